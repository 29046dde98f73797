"""``harvester-ccm status`` in the pod of the controller, on real API servers.

The controller is process 1 of a /proc of its own here, as it is in its container, so that the command needs no flags.
"""

import asyncio
import json
from pathlib import Path

import pytest

from devenv.demo.scenario import NETWORKS
from devenv.guestnodes import GuestNodes
from devenv.restclient import Json
from devenv.stage import Stage, until
from harvester_ccm.cli import main

pytestmark = pytest.mark.apiserver

MAX_SECONDS = 90.0


async def test_status_in_the_pod_needs_no_flags(
    stage: Stage, lan: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with GuestNodes(stage.guest, stage.host, networks=NETWORKS) as nodes:
        await nodes.add(1)
        await _reads_status(stage, tmp_path, capsys)


async def _reads_status(stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = stage.run(fresh=True)
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "1").symlink_to(f"/proc/{run.pid}")
    await stage.logged(run, "became leader", within=MAX_SECONDS)
    await stage.create_service("good")
    await stage.create_service("bad", annotations={"cloudprovider.harvesterhci.io/ip-pool": "nope"})

    async def status() -> Json | None:
        capsys.readouterr()
        code = await asyncio.to_thread(main, ["harvester-ccm", "status", "-o", "json"], {}, proc=proc)
        captured = capsys.readouterr()
        assert "error" not in captured.err
        document: Json = json.loads(captured.out)
        first = (document["problems"] or [{}])[-1]
        found = (code, document["services"], first.get("reason")) == (1, {"Pending": 1, "Ready": 1}, "NoMatchingPool")
        # The load balancer says why before the condition of the Service says since when.
        return document if found and first["since"] else None

    document = await until(status, within=MAX_SECONDS, what="one Service that is served and one that is not")
    assert document["leader"]["identity"]
    # What a controller of an earlier test reported about itself is named for an hour.
    assert [note for note in document["notes"] if " ago the controller reported " not in note] == []
    bad = document["problems"][-1]
    assert bad["object"] == "Service default/bad"
    assert "nope" in bad["message"]
