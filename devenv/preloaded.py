"""Controllers as forks of a process that has loaded their modules (Unix).

An interpreter needs half a second of CPU time to load the controller. With forks, 42 tests on API servers take 26
instead of 42 s of CPU time. ``multiprocessing`` starts the process that forks; a controller is a separate process with
its own arguments, environment, log and process group. Only its command line in ``/proc`` is that of the forking one.
"""

import ctypes
import gc
import importlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

from devenv.process import ChildProcess

PROGRAM: Final = "harvester_ccm"
_PR_SET_PDEATHSIG: Final = 1
_context: Final = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([f"{PROGRAM}.cli", f"{PROGRAM}.app", __name__])


class _Run:
    """The process of a controller, with the interface of ``subprocess.Popen``."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process
        assert process.pid is not None
        self.pid = process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(PROGRAM, timeout or 0.0)
        return self._process.exitcode


def start(arguments: Sequence[str], *, log_file: Path, times: Mapping[str, float]) -> ChildProcess:
    """Start the controller with its output appended to ``log_file``. ``times`` as in ``replace_times``."""
    order = (list(arguments), dict(os.environ), str(log_file), dict(times))
    process = _context.Process(target=_become, args=order, daemon=True)
    process.start()
    return ChildProcess.adopt(PROGRAM, _Run(process), log_file=log_file)


def _become(arguments: list[str], environment: dict[str, str], log_file: str, times: dict[str, float]) -> None:
    """Run the controller in this process."""
    os.environ.clear()
    os.environ.update(environment)
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Loaded modules stay: without this, the garbage collector takes a third of a start.
    gc.freeze()
    log = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    replace_times(times)
    sys.argv = [PROGRAM, *arguments]
    runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)


def replace_times(times: Mapping[str, float]) -> None:
    """Replace constants of the controller, by module and name, so that tests need not wait for them.

    A name is for example ``plan.service.ownership.orphans.ORPHAN_GRACE_SECONDS``; values are in seconds. Raises
    KeyError for an unknown one. Values that a module derived from a constant when it was loaded are not changed.
    """
    for name, seconds in times.items():
        home, _, constant = f"{PROGRAM}.{name}".rpartition(".")
        built_in = vars(importlib.import_module(home))[constant]
        users = [module for module in list(sys.modules.values()) if module.__name__.startswith(f"{PROGRAM}.")]
        for module in users:
            if vars(module).get(constant) is built_in:
                setattr(module, constant, seconds)
