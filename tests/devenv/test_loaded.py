"""Runs of the program out of a process that has it loaded."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devenv.loaded import LoadedProgram
from devenv.process import ChildProcess
from devenv.restclient import wait_until
from harvester_ccm import __version__

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel has to end what is left")

SECONDS = 60.0
NOWHERE = """
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: one, cluster: {server: "https://127.0.0.1:9"}}]
contexts: [{name: one, context: {cluster: one, user: one, namespace: default}}]
users: [{name: one, user: {token: none}}]
"""


class Runs:
    """Runs with one log."""

    def __init__(self, loaded: LoadedProgram, directory: Path) -> None:
        self._loaded = loaded
        self.log = directory / "log"
        self.kubeconfig = directory / "kubeconfig"
        self.kubeconfig.write_text(NOWHERE)

    def start(self, *arguments: str, **environment: str) -> ChildProcess:
        return self._loaded.start(arguments, environment={**os.environ, **environment}, log_file=self.log)

    def serve(self) -> ChildProcess:
        """Start one that goes on until it is told to end."""
        before = self.started
        flags = {"cloud-config": self.kubeconfig, "kubeconfig": self.kubeconfig, "cluster-name": "c", "secure-port": 0}
        run = self.start(*(f"--{name}={value}" for name, value in flags.items()))
        wait_until(lambda: self.started > before, seconds=SECONDS, what="the start of the run")
        return run

    @property
    def started(self) -> int:
        # From then on a run hears signals; that its server is not there is said once.
        return self.log.read_text().count("lease requests fail") if self.log.exists() else 0


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[LoadedProgram]:
    with LoadedProgram(tmp_path) as program:
        yield program


@pytest.fixture
def runs(loaded: LoadedProgram, tmp_path: Path) -> Runs:
    return Runs(loaded, tmp_path)


def test_each_run_has_arguments_environment_log_and_exit_code_of_its_own(runs: Runs) -> None:
    version, wrong = runs.start("--version"), runs.start("--nonsense")
    assert version.wait(SECONDS)
    assert wrong.wait(SECONDS)
    assert (version.exit_code(), wrong.exit_code()) == (0, 1)
    assert version.pid != wrong.pid
    text = runs.log.read_text()
    assert f"harvester-ccm {__version__}\n" in text
    assert "unknown flag: --nonsense" in text
    narrow, wide = runs.start("--help", COLUMNS="50"), runs.start("--help", COLUMNS="110")
    assert narrow.wait(SECONDS)
    assert wide.wait(SECONDS)
    assert 100 < max(len(line) for line in runs.log.read_text().splitlines()) <= 110


def test_a_run_is_ended_by_signals_and_leads_its_process_group(runs: Runs) -> None:
    asked, killed = runs.serve(), runs.serve()
    assert os.getpgid(asked.pid) == asked.pid
    assert not asked.wait(0)
    os.killpg(asked.pid, signal.SIGTERM)
    os.kill(killed.pid, signal.SIGKILL)
    assert asked.wait(SECONDS)
    assert killed.wait(SECONDS)
    assert (asked.exit_code(), killed.exit_code()) == (0, -signal.SIGKILL)


def test_no_run_outlives_what_it_was_made_from(runs: Runs, loaded: LoadedProgram) -> None:
    run = runs.serve()
    loaded.__exit__(None, None, None)
    assert run.wait(SECONDS)
    assert run.exit_code() == -signal.SIGKILL

    def gone() -> bool:
        try:
            os.kill(run.pid, 0)
        except ProcessLookupError:
            return True
        return Path(f"/proc/{run.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    wait_until(gone, seconds=SECONDS, what="the end of the run")
