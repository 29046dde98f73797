"""Child processes that never outlive their parent, ports that stay ours, and directories to run in.

Guarantees:

- A child is killed by the kernel when this process ends in whatever way, SIGKILL included (Linux). Elsewhere
  it is stopped by ``stop``, by the interpreter's exit handlers and by context managers only.
- A child leads its own process group, so Ctrl-C in a terminal reaches only this process, which then stops its
  children in order.
- What a child prints goes to its log file.
"""

from __future__ import annotations

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, Self

GRACE_SECONDS = 1.5
"""How long a child may take to end by itself before it is killed. All of a cluster stops within 3 s."""
REAP_SECONDS = 60.0
"""Longest wait for the end of a killed program: a large one is not gone at once on a busy machine."""

# The kernel forgets the death signal in a fork but keeps it over exec, so a short Python program sets it for
# itself and then becomes the real one. Doing that in the forked child instead (preexec_fn) can deadlock in a
# program with threads.
_GUARD = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("parent ended before the child was started")
os.execv(sys.argv[2], sys.argv[2:])
"""


class DevenvError(RuntimeError):
    """Raised when the development environment cannot do what was asked. The message says what to do."""


class RunningProcess(Protocol):
    """What is known of a process that somebody started; as of ``subprocess.Popen``."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


class _Family:
    """The children of this process: who starts them, and which are left at exit.

    The kernel sends the death signal when the *thread* that forked ends, not the process. So all children are started
    by one thread that lives as long as this process; a worker thread of a pool can end before.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.children: list[ChildProcess] = []
        self._spawner: ThreadPoolExecutor | None = None

    def start(self, order: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """Return the process that ``order`` starts. Raises what it raises."""
        with self.lock:
            if self._spawner is None:
                self._spawner = ThreadPoolExecutor(1, thread_name_prefix="devenv-spawner")
        return self._spawner.submit(order).result()

    def stop_all(self) -> None:
        """Stop the children that are left."""
        with self.lock:
            children = list(self.children)
        stop_together(children)


_family = _Family()
atexit.register(_family.stop_all)


class ChildProcess:
    """One running program and its log file."""

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
        """Start ``command`` (first the absolute path of a program) with its output appended to ``log_file``.

        ``env`` replaces the environment when given. Raises DevenvError when the program cannot be started.
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
            popen = _family.start(order)
        except OSError as error:
            raise DevenvError(f"cannot start {name} ({argv[0]}): {error}") from error
        return cls.adopt(name, popen, log_file=log_file)

    @classmethod
    def adopt(cls, name: str, process: RunningProcess, *, log_file: Path) -> Self:
        """Take a process that leads its own process group as a child: it is stopped with the others."""
        child = cls(name, process, log_file=log_file)
        with _family.lock:
            _family.children.append(child)
        return child

    @property
    def pid(self) -> int:
        """Process ID, also the ID of its process group."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> bool:
        """Tell whether it ended within ``seconds``."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, grace: float = GRACE_SECONDS) -> None:
        """Ask it to end, kill its process group after ``grace`` seconds, and wait until it is gone."""
        stop_together([self], grace)

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of its log, for error messages."""
        return log_tail(self.log_file, lines)

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to its process group. Nothing happens when it has ended."""
        if self.exit_code() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)


def stop_together(children: Sequence[ChildProcess], grace: float = GRACE_SECONDS) -> None:
    """Stop several children at once: one grace period for all of them. Children that have ended are fine."""
    try:
        for child in children:
            child.signal_group(signal.SIGTERM)
        deadline = time.monotonic() + grace
        for child in children:
            child.wait(max(0.0, deadline - time.monotonic()))
    finally:
        # Also when a second Ctrl-C cuts the grace period short.
        for child in children:
            child.signal_group(signal.SIGKILL)
        for child in children:
            child.wait(REAP_SECONDS)
        with _family.lock:
            _family.children = [child for child in _family.children if child not in children]


def log_tail(log_file: Path, lines: int = 20) -> str:
    """The last ``lines`` lines of a log file, or a note that there is none."""
    try:
        text = log_file.read_text(errors="replace")
    except FileNotFoundError:
        return "(no log)"
    return "\n".join(text.splitlines()[-lines:]) or "(log is empty)"


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, user and system, in steps of 10 ms (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process (Linux)."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class ReservedPort:
    """A free TCP port on 127.0.0.1 that nobody else can take until ``release``.

    The socket is bound but never listens: connections are refused until a server binds the same port, which
    it can only with SO_REUSEPORT set and as the same user. So a server can be stopped and started on its
    port at will.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Give the port back. May be called again."""
        self._socket.close()


@contextlib.contextmanager
def run_directory(purpose: str, *, keep: bool = False) -> Iterator[Path]:
    """A private temporary directory, removed at the end unless the block raised or ``keep`` is set.

    When it stays, its path is printed to stderr.
    """
    directory = Path(tempfile.mkdtemp(prefix=f"harvester-ccm-{purpose}-"))
    failed = True
    try:
        yield directory
        failed = False
    finally:
        if failed or keep:
            print(f"logs and data are kept in {directory}", file=sys.stderr)
        else:
            shutil.rmtree(directory, ignore_errors=True)
