"""Steps that show their progress, and the output of tools that nobody has to read."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRINT_AND_EXIT = "import sys; print('a banner of warnings'); print('on stderr', file=sys.stderr); sys.exit(%d)"


def command(code: int) -> list[str]:
    return [sys.executable, "-m", "devenv.progress", "Installing", sys.executable, "-c", PRINT_AND_EXIT % code]


def test_output_of_a_command_that_succeeds_is_hidden() -> None:
    done = subprocess.run(command(0), check=True, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == ""
    first, last = done.stderr.splitlines()
    assert first == "Installing ..."
    assert last.startswith("Installing: done in ")


def test_output_of_a_command_that_fails_is_shown() -> None:
    done = subprocess.run(command(3), check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 3
    assert "Installing: failed after" in done.stderr
    assert {"a banner of warnings", "on stderr"} <= set(done.stderr.splitlines())


def test_missing_command_is_an_error() -> None:
    words = [sys.executable, "-m", "devenv.progress", "Installing", "/nowhere/pip"]
    done = subprocess.run(words, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "/nowhere/pip: No such file or directory" in done.stderr


def on_terminal(environment: dict[str, str]) -> str:
    """Return what a terminal receives from a command that succeeds."""
    controller, terminal = pty.openpty()
    try:
        subprocess.run(command(0), check=True, cwd=ROOT, stderr=terminal, env={**os.environ, **environment})
    finally:
        os.close(terminal)
    received = b""
    try:
        # The last end of the terminal is closed: reading ends with an error, once everything was received.
        while part := os.read(controller, 10_000):
            received += part
    except OSError:
        pass
    finally:
        os.close(controller)
    return received.decode()


def test_seconds_are_counted_on_a_terminal() -> None:
    shown = on_terminal({"TERM": "xterm", "MAKEFLAGS": ""})
    assert shown.startswith("\r\x1b[KInstalling: 0 s")
    assert "Installing: done in" in shown


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"TERM": "xterm", "MAKEFLAGS": " -j2 --jobserver-auth=3,4"}])
def test_lines_do_not_move_where_they_cannot(environment: dict[str, str]) -> None:
    shown = on_terminal({"MAKEFLAGS": "", **environment})
    assert "\x1b" not in shown
    assert shown.startswith("Installing ...")
