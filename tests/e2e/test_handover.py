"""The leader is ended while Services come and go: one takes over at once, and never do two write at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.handover import open_relay
from benchmarks.result import missed
from devenv.stage import Scene

pytestmark = pytest.mark.apiserver


async def test_three_handovers_with_one_writer_at_a_time(tmp_path: Path) -> None:
    # The audit logs are the witness, and the clusters of the session have none.
    scene = await asyncio.to_thread(Scene.start, tmp_path, audit=True)
    try:
        async with open_relay(scene, tmp_path) as relay:
            await relay.run(terminated=2, killed=1)
            section, problems = relay.report()
    finally:
        await asyncio.to_thread(scene.stop)
    print(section.text())  # noqa: T201 - shown by pytest -s and with a failure
    assert problems == []
    assert missed([section]) == []
    assert len(relay.handovers) == 3
    assert relay.traffic.created > 10
