"""``harvester-ccm status`` beside real runs of the program, on real API servers: with the right to ask it and without.

A run is process 1 of a /proc of its own here, as it is in its container, so that the command needs no flags.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from devenv.ccm import CcmProcess
from devenv.process import ReservedPort
from devenv.restclient import Json
from devenv.stage import Stage, until
from harvester_ccm.cli import main
from harvester_ccm.commands import call
from harvester_ccm.logs import configure_logging
from tests.conftest import bind
from tests.e2e.test_health import Port

pytestmark = pytest.mark.apiserver

PATIENCE = 90.0


@dataclass
class Pod:
    """A run of the program, and commands in its container."""

    run: CcmProcess
    port: Port
    proc: Path
    capsys: pytest.CaptureFixture[str]

    async def status(self, *words: str) -> tuple[int, Json]:
        """Run the command without any flag of the program; return its exit code and the document."""
        self.capsys.readouterr()
        line = ["harvester-ccm", "status", "-o", "json", *words]
        code = await asyncio.to_thread(main, line, {}, proc=self.proc)
        captured = self.capsys.readouterr()
        assert captured.err == ""
        return code, json.loads(captured.out)


class Pods:
    """Starts runs with a port each."""

    def __init__(self, stage: Stage, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._stage, self._directory, self._capsys = stage, directory, capsys

    def start(self) -> Pod:
        reserved = ReservedPort()
        reserved.release()
        # The command reads the command line of the process.
        run = self._stage.run(flags={"secure-port": str(reserved.number), "bind-address": "127.0.0.1"}, fresh=True)
        proc = self._directory / f"proc-{run.pid}"
        proc.mkdir()
        (proc / "1").symlink_to(f"/proc/{run.pid}")
        return Pod(run, Port(reserved.number), proc, self._capsys)

    def going_by(self, pod: Pod, kubeconfig: Path) -> Pod:
        """Return the same run as a /proc shows it whose command line names another kubeconfig."""
        real, proc = Path(f"/proc/{pod.run.pid}"), self._directory / f"proc-{kubeconfig.name}"
        (proc / "1").mkdir(parents=True)
        for name in ("fd", "net"):
            (proc / "1" / name).symlink_to(real / name)
        line = (real / "cmdline").read_bytes().removesuffix(b"\0")
        (proc / "1" / "cmdline").write_bytes(line + f"\0--kubeconfig={kubeconfig}\0".encode())
        return replace(pod, proc=proc)


@pytest.fixture
def pods(stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Pods:
    """What starts runs of the program."""
    monkeypatch.setattr(call, "configure_logging", partial(configure_logging, cache=False))
    return Pods(stage, tmp_path, capsys)


async def test_status_in_the_pods(stage: Stage, lan: None, pods: Pods) -> None:
    """The leader tells what it knows; a standby and a leader that may not be asked leave it to lists, and say so."""
    leader = pods.start()
    await stage.logged(leader.run, "became leader", within=PATIENCE)
    await stage.create_service("good")
    await stage.create_service("bad", annotations={"cloudprovider.harvesterhci.io/ip-pool": "nope"})

    async def told() -> Json | None:
        code, document = await leader.status()
        states = {one["name"]: one["state"] for one in document["services"]}
        judged = document["services"][0]["reason"] if states else ""
        found = (code, states, judged) == (1, {"good": "ready", "bad": "pending"}, "NoSuchPool")
        return document if found else None

    document = await until(told, within=PATIENCE, what="one Service that is served and one that is not")
    assert document["program"]["leading"] is True
    assert document["program"]["identity"] == document["leader"]["identity"]
    assert document["assumptions"] == []
    bad = document["services"][0]
    assert bad["name"] == "bad"
    assert "nope" in bad["message"]

    standby = pods.start()
    await stage.logged(standby.run, "waiting for leadership", within=PATIENCE)
    _, listed = await standby.status()
    assert listed["program"] is None
    assert listed["leader"]["identity"] == document["leader"]["identity"]
    assert any("does not lead" in one for one in listed["assumptions"])
    assert [(one["name"], one["state"], one["reason"], one["message"]) for one in listed["services"]] == [
        (one["name"], one["state"], one["reason"], one["message"]) for one in document["services"]
    ]

    _, older = await pods.going_by(leader, of_older_chart(stage)).status()
    assert older["program"] is None
    assert any('cannot get path "/status"' in one for one in older["assumptions"])
    assert [one["name"] for one in older["services"]] == ["bad", "good"]

    refused = [(await leader.port.get("/status", token)).status for token in (None, "made-up")]
    assert refused == [401, 401]


def of_older_chart(stage: Stage) -> Path:
    """Return the kubeconfig of an account with the rights that the Go provider's chart gives, and no others."""
    guest = stage.scene.guest
    bind(guest, "harvester-cloud-provider", account=("kube-system", "older"))
    return guest.kubeconfig_for_service_account("kube-system", "older", context_namespace="kube-system")
