"""Runs of the program without the half second of processor time that an interpreter needs to load it.

One process loads the program once and forks for every run. A run is a process of its own all the same: with its own
arguments, environment, log and process group, ended by signals, and killed by the kernel when what it was forked from
is gone. What only a fresh interpreter has, such as the command line in ``/proc``, it has not. Linux only.

The talk goes over a Unix socket, one connection for each run: a line of JSON with what to run, the process ID as the
answer, and the exit code when the run has ended.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from devenv import times as built_in
from devenv.process import ChildProcess, DevenvError

PROGRAM: Final = built_in.PROGRAM
LOADED: Final = (f"{PROGRAM}.cli", f"{PROGRAM}.app")
"""What every run needs."""
LOAD_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
_PR_SET_PDEATHSIG: Final = 1
_MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Order:
    """What to run."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    log_file: str
    times: Mapping[str, float]
    """Seconds by the name of the time, as ``devenv.times`` puts them into the program."""


class Run:
    """The process of a run, as ``subprocess.Popen`` shows one."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid = int(_line(connection))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, None while it runs; minus the signal number after a kill."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raises subprocess.TimeoutExpired when it has not ended after so many seconds."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(PROGRAM, timeout or 0.0)
        return code

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            told = _line(self._connection)
            # Without a word the process that ran it is gone, and the kernel has killed the run.
            self.returncode = int(told) if told else -signal.SIGKILL
            self._connection.close()
        return self.returncode


class LoadedProgram:
    """The process that has the program loaded. Use as a context manager; at its end all its runs are killed."""

    def __init__(self, directory: Path) -> None:
        """``directory`` gets its socket and its log."""
        self._address = directory / "loaded.socket"
        command = [sys.executable, "-m", "devenv.loaded", str(self._address)]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self._child = ChildProcess.start("loaded", command, log_file=directory / "loaded.log", env=environment)

    def __enter__(self) -> Self:
        deadline = time.monotonic() + LOAD_SECONDS
        while not self._address.exists():
            if self._child.exit_code() is not None or time.monotonic() > deadline:
                self._child.stop()
                raise DevenvError(f"the program was not loaded:\n{self._child.log_tail()}")
            time.sleep(_POLL_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.stop(grace=0)

    def start(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        log_file: Path,
        times: Mapping[str, float] | None = None,
    ) -> ChildProcess:
        """Start a run whose output is appended to the log file; ``times`` are others than those built in."""
        order = Order(arguments, environment, str(log_file), times or {})
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(self._address))
            connection.sendall(json.dumps(asdict(order)).encode() + b"\n")
            return ChildProcess.adopt(PROGRAM, Run(connection), log_file=log_file)
        except BaseException:
            connection.close()
            raise


class _Server:
    """Forks for every order; in the fork, ``serve`` returns what to run there."""

    def __init__(self, address: Path) -> None:
        self._selector = selectors.DefaultSelector()
        self._runs: dict[int, socket.socket] = {}
        self._woken, self._wake = socket.socketpair()
        for end in (self._woken, self._wake):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._listener = socket.socket(socket.AF_UNIX)
        # Whoever sees the socket can connect.
        unready = address.with_suffix(".unready")
        self._listener.bind(str(unready))
        self._listener.listen()
        unready.rename(address)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def serve(self) -> Order:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._woken:
                    self._woken.recv(_MOST_BYTES)
                    self._tell_ends()
                    continue
                connection, _ = self._listener.accept()
                order = Order(**json.loads(_line(connection)))
                if self._fork(connection):
                    return order

    def _fork(self, connection: socket.socket) -> bool:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self._runs[pid] = connection
            connection.sendall(f"{pid}\n".encode())
            return False
        os.setpgid(0, 0)
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for one in (connection, self._listener, self._woken, self._wake, *self._runs.values()):
            one.close()
        return True

    def _tell_ends(self) -> None:
        while self._runs:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self._runs.pop(pid) as connection:
                try:
                    connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
                except BrokenPipeError:
                    continue


def _line(connection: socket.socket) -> str:
    received = b""
    while not received.endswith(b"\n"):
        more = connection.recv(_MOST_BYTES)
        if not more:
            break
        received += more
    return received.decode().rstrip("\n")


def _become(order: Order) -> None:
    """Run the program in this process, to its end."""
    log = os.open(order.log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    os.environ.clear()
    os.environ.update(order.environment)
    built_in.put(order.times)
    sys.argv = [PROGRAM, *order.arguments]
    runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)


def main() -> None:
    """Entry point of ``python -m devenv.loaded SOCKET``."""
    for module in LOADED:
        importlib.import_module(module)
    server = _Server(Path(sys.argv[1]))
    # In a run, too: what is loaded stays, and a collector that went through it would take a third of a start.
    gc.collect()
    gc.freeze()
    _become(server.serve())


if __name__ == "__main__":
    main()
