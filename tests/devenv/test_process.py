"""Child processes, reserved ports and run directories of the development environment."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from devenv.process import ChildProcess, DevenvError, ReservedPort, run_directory, stop_together
from devenv.restclient import wait_until

ROOT = Path(__file__).parents[2]
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""


def start(directory: Path, code: str) -> ChildProcess:
    return ChildProcess.start("child", [sys.executable, "-c", code], log_file=directory / "log")


CHILD_OF_A_SHORT_THREAD = """
import pathlib, signal, sys, threading
from devenv.process import ChildProcess

# Who was started in the background by a shell ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
children = []
command, log = ["/bin/sleep", "600"], pathlib.Path(sys.argv[1])
starter = threading.Thread(target=lambda: children.append(ChildProcess.start("sleep", command, log_file=log)))
starter.start()
starter.join()
# One that comes before it is waited for waits as well.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
print(children[0].pid, flush=True)
signal.default_int_handler(signal.sigwait({signal.SIGINT}), None)
"""


def test_output_goes_to_the_log(tmp_path: Path) -> None:
    child = start(tmp_path, "print('one'); print('two')")

    assert child.wait(10)
    assert child.exit_code() == 0
    assert child.log_tail(1) == "two"


def test_child_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    started: list[ChildProcess] = []
    thread = threading.Thread(target=lambda: started.append(start(tmp_path, "import time; time.sleep(600)")))
    thread.start()
    thread.join()

    (child,) = started
    assert not child.wait(0.5)
    child.stop()
    assert child.exit_code() is not None


def test_child_that_ignores_the_request_to_end_is_killed_in_time(tmp_path: Path) -> None:
    children = [start(tmp_path, STUBBORN) for _ in range(2)]
    wait_until(lambda: children[0].log_tail().count("deaf") == 2, seconds=60, what="children")
    started = time.monotonic()

    stop_together(children, grace=0.2)

    assert [child.exit_code() for child in children] == [-9, -9]
    assert time.monotonic() - started < 1


def test_end_of_a_child_takes_its_own_children_along(tmp_path: Path) -> None:
    child = ChildProcess.start("shell", ["/bin/sh", "-c", "sleep 600 & echo $!; wait"], log_file=tmp_path / "log")
    wait_until(lambda: child.log_tail().isdigit(), seconds=60, what="grandchild")
    grandchild = Path("/proc", child.log_tail(), "cmdline")
    # While it turns from the shell into the other program it has no command line.
    wait_until(lambda: b"sleep" in grandchild.read_bytes(), seconds=60, what="start of the grandchild's program")

    child.stop()

    wait_until(lambda: is_gone(grandchild), seconds=3, what="end of the grandchild")


def is_gone(command_line: Path) -> bool:
    """Whether a process has ended, by its file of the kernel; a dead one that nobody has waited for has, too."""
    try:
        return not command_line.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_end_of_the_parent_takes_its_children_along(tmp_path: Path, number: signal.Signals) -> None:
    """Also when the thread that started them ended long before."""
    command = [sys.executable, "-c", CHILD_OF_A_SHORT_THREAD, str(tmp_path / "log")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout is not None
        child = Path("/proc", parent.stdout.readline().strip(), "cmdline")
        wait_until(lambda: b"sleep" in child.read_bytes(), seconds=60, what="start of the child's program")

        os.kill(parent.pid, number)

        wait_until(lambda: is_gone(child), seconds=60, what="end of the child")


def test_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DevenvError, match=r"cannot start server: .*absent is not"):
        ChildProcess.start("server", [tmp_path / "absent"], log_file=tmp_path / "log")


def test_reserved_port_is_kept_from_others_but_not_from_our_servers() -> None:
    port = ReservedPort()
    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(("127.0.0.1", port.number))

    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("127.0.0.1", port.number))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port.number))
        server.listen()
        socket.create_connection(("127.0.0.1", port.number)).close()

    port.release()
    port.release()


def test_run_directory_is_removed() -> None:
    with run_directory("test") as directory:
        (directory / "log").touch()

    assert not directory.exists()


def test_run_directory_stays_when_asked_for() -> None:
    with run_directory("test", keep=True) as directory:
        pass

    assert directory.exists()
    directory.rmdir()


def test_run_directory_stays_after_a_failure_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), run_directory("test") as directory:
        raise ZeroDivisionError

    assert str(directory) in capsys.readouterr().err
    directory.rmdir()
