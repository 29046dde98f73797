"""Runs of the program as forks of a process that has loaded it already (Unix).

An interpreter needs half a second of processor time to load the program. With this, 42 tests on API servers take 26
instead of 42 s of processor time. ``multiprocessing`` starts the process that forks; a run is a process of its own all
the same, with its own arguments, environment, log and process group. The command line in ``/proc`` is not its own.
"""

from __future__ import annotations

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
    """The process of a run, with the interface of ``subprocess.Popen``."""

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
    """Start the program with its output appended to ``log_file``. ``times`` as of ``replace_times``."""
    order = (list(arguments), dict(os.environ), str(log_file), dict(times))
    process = _context.Process(target=_become, args=order, daemon=True)
    process.start()
    return ChildProcess.adopt(PROGRAM, _Run(process), log_file=log_file)


def _become(arguments: list[str], environment: dict[str, str], log_file: str, times: dict[str, float]) -> None:
    """Run the program in this process, to its end."""
    os.environ.clear()
    os.environ.update(environment)
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # What is loaded stays: without this, the garbage collector takes a third of a start.
    gc.freeze()
    log = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    replace_times(times)
    sys.argv = [PROGRAM, *arguments]
    runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)


def replace_times(times: Mapping[str, float]) -> None:
    """Replace constants of the program that a test would only wait for, by name.

    A name is that of a module and its constant, such as ``plan.service.orphans.ORPHAN_GRACE``; values are in seconds.
    Raises KeyError for an unknown one. What a module derived from a constant when it was loaded is not changed.
    """
    for name, seconds in times.items():
        home, _, constant = f"{PROGRAM}.{name}".rpartition(".")
        built_in = vars(importlib.import_module(home))[constant]
        users = [module for module in list(sys.modules.values()) if module.__name__.startswith(f"{PROGRAM}.")]
        for module in users:
            if vars(module).get(constant) is built_in:
                setattr(module, constant, seconds)
