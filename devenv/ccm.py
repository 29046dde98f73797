"""The controller as a process, started with real flags and stopped with real signals."""

import itertools
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from devenv import preloaded
from devenv.process import ChildProcess

DEFAULT_FLAGS: Final[Mapping[str, str]] = {
    "cluster-name": "demo",
    "bind-address": "127.0.0.1",
    "secure-port": "0",
    "v": "4",
}

_numbers = itertools.count(1)


class CcmProcess:
    """One run of ``harvester-ccm``; its log is in a file."""

    def __init__(self, child: ChildProcess, log_file: Path) -> None:
        self._child = child
        self.log_file = log_file

    @classmethod
    def start(
        cls,
        directory: Path,
        *,
        cloud_config: Path,
        kubeconfig: Path,
        flags: Mapping[str, str] | None = None,
        fork: bool = False,
        times: Mapping[str, float] | None = None,
    ) -> "CcmProcess":
        """Start the controller; ``flags`` are added to, or replace, the defaults.

        ``fork``: from a process that has loaded it, with other constants ``times``. See ``devenv.preloaded``.
        """
        files = {"cloud-config": str(cloud_config), "kubeconfig": str(kubeconfig)}
        words = [f"--{key}={value}" for key, value in {**files, **DEFAULT_FLAGS, **(flags or {})}.items()]
        log_file = directory / f"ccm-{next(_numbers)}.log"
        if fork:
            return cls(preloaded.start(words, log_file=log_file, times=times or {}), log_file)
        assert not times, "only a fork has other times"
        command = [sys.executable, "-m", preloaded.PROGRAM, *words]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        return cls(ChildProcess.start(preloaded.PROGRAM, command, log_file=log_file, env=environment), log_file)

    @property
    def pid(self) -> int:
        """Process ID."""
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, or None while it runs; minus the signal number after a kill."""
        return self._child.exit_code()

    @property
    def log(self) -> str:
        """Its log so far."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def kill(self) -> None:
        """Send SIGKILL."""
        self._child.signal_group(signal.SIGKILL)
        self._child.wait(10)

    def terminate(self, seconds: float = 10.0) -> int | None:
        """Send SIGTERM; return the exit code, None if it still runs after the time."""
        self._child.signal_group(signal.SIGTERM)
        self._child.wait(seconds)
        return self._child.exit_code()

    def stop(self) -> None:
        """Stop it, by SIGKILL if necessary."""
        self._child.stop()

    def peak_memory(self) -> int:
        """Return the largest resident size so far in bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return 0
