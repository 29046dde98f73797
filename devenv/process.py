"""Child processes that never outlive their parent, reserved ports, and temporary directories.

Guarantees:

- On Linux, the kernel kills a child when this process ends for any reason, also by SIGKILL. Elsewhere only ``stop``,
  the interpreter's exit handlers and context managers stop it.
- A child has its own process group, so Ctrl-C in a terminal is sent only to this process, which then stops its
  children in order.
- The output of a child is in its log file.
"""

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, Self

GRACE_SECONDS = 1.5
"""Time for a child to exit after SIGTERM before it is killed. A cluster stops within 3 s."""
REAP_SECONDS = 60.0
"""Timeout for the end of a killed process: a large one takes time on a busy machine."""

# A fork clears the death signal, an exec keeps it. So a short Python script sets it and then executes the command.
# Setting it in the forked child (preexec_fn) can deadlock in a process with threads.
_GUARD = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("parent ended before the child was started")
os.execv(sys.argv[2], sys.argv[2:])
"""


class DevenvError(RuntimeError):
    """Raised if a step of the development environment fails. The message states what to do."""


class RunningProcess(Protocol):
    """The part of the interface of ``subprocess.Popen`` that is used here."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


_lock = threading.Lock()
_children: list["ChildProcess"] = []
# The kernel sends the death signal at the end of the *thread* that forked. So one thread that lives as long as this
# process starts all children; a worker thread of a pool can end before.
_spawner = ThreadPoolExecutor(1, thread_name_prefix="devenv-spawner")


class ChildProcess:
    """One process and its log file."""

    def __init__(self, name: str, process: RunningProcess, *, log_file: Path) -> None:
        self.name = name
        self.log_file = log_file
        self._process = process

    @classmethod
    def start(
        cls,
        name: str,
        command: Sequence[str | Path],
        *,
        log_file: Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Self:
        """Start ``command`` (first an absolute path) with its output appended to ``log_file``.

        ``env`` replaces the environment. Raises DevenvError if the command cannot be started.
        """
        argv = [str(part) for part in command]
        if not os.access(argv[0], os.X_OK):
            raise DevenvError(f"cannot start {name}: {argv[0]} is not an executable file")
        if sys.platform == "linux":
            argv = [sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), *argv]

        def order() -> subprocess.Popen[bytes]:
            with log_file.open("ab") as log:
                return subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=cwd,
                    env=env,
                    process_group=0,
                )

        try:
            popen = _spawner.submit(order).result()
        except OSError as error:
            raise DevenvError(f"cannot start {name} ({argv[0]}): {error}") from error
        return cls.adopt(name, popen, log_file=log_file)

    @classmethod
    def adopt(cls, name: str, process: RunningProcess, *, log_file: Path) -> Self:
        """Add a process with its own process group to the children that are stopped at exit."""
        child = cls(name, process, log_file=log_file)
        with _lock:
            _children.append(child)
        return child

    @property
    def pid(self) -> int:
        """Process ID, also the ID of its process group."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> bool:
        """Return whether it exits within ``seconds``."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, grace: float = GRACE_SECONDS) -> None:
        """Send SIGTERM, kill its process group after ``grace`` seconds, and wait for its end."""
        stop_together([self], grace)

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines of its log, for error messages."""
        text = self.log_file.read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:]) or "(log is empty)"

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to its process group, if it runs."""
        if self.exit_code() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)


def stop_together(children: Sequence[ChildProcess], grace: float = GRACE_SECONDS) -> None:
    """Stop several children with one grace period. Some can have exited."""
    try:
        for child in children:
            child.signal_group(signal.SIGTERM)
        deadline = time.monotonic() + grace
        for child in children:
            child.wait(max(0.0, deadline - time.monotonic()))
    finally:
        # Also if a second Ctrl-C interrupts the grace period.
        for child in children:
            child.signal_group(signal.SIGKILL)
        for child in children:
            child.wait(REAP_SECONDS)
        with _lock:
            _children[:] = [child for child in _children if child not in children]


def require_running(children: Iterable[ChildProcess]) -> None:
    """Raise DevenvError with the end of its log if one of the children has exited."""
    for child in children:
        if child.exit_code() is not None:
            raise DevenvError(f"{child.name} exited with code {child.exit_code()}:\n{child.log_tail()}")


@atexit.register
def _stop_all() -> None:
    with _lock:
        children = list(_children)
    stop_together(children)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, user and system, with a resolution of 10 ms (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class ReservedPort:
    """A free TCP port on 127.0.0.1 that is reserved until ``release``.

    The socket is bound but does not listen: connections are refused until a server binds the same port, which
    requires SO_REUSEPORT and the same user. So a server can be stopped and started again on its port.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Release the port. Can be called again."""
        self._socket.close()


@contextlib.contextmanager
def run_directory(purpose: str) -> Iterator[Path]:
    """Yield a private temporary directory that is removed at the end.

    If the block raises, it is kept and its path is printed to stderr.
    """
    directory = Path(tempfile.mkdtemp(prefix=f"harvester-ccm-{purpose}-"))
    failed = True
    try:
        yield directory
        failed = False
    finally:
        if failed:
            print(f"logs and data are kept in {directory}", file=sys.stderr)
        else:
            shutil.rmtree(directory, ignore_errors=True)
