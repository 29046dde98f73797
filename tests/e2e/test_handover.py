"""The leader is ended while Services come and go: the standby leads at once, and only the leader writes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.handover import play
from devenv.stage import Scene

pytestmark = pytest.mark.apiserver


async def test_only_the_leader_writes_during_handovers(tmp_path: Path) -> None:
    # The clusters of the session have no audit logs.
    scene = await asyncio.to_thread(Scene.start, tmp_path, audit=True)
    try:
        relay = await play(scene, tmp_path, terminated=2, killed=1)
        assert relay.intruders() == []
        assert len(relay.ended) == 3
        longest = [row.value for row in relay.rows() if row.what == "  longest"]
        # SIGTERM: the standby retries every 2 s. SIGKILL: the Lease of 3 s expires.
        assert longest[0] <= 3.0
        assert longest[1] <= 5.5
        assert relay.created > 10
    finally:
        await asyncio.to_thread(scene.stop)
