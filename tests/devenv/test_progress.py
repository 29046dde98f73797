"""Steps that show their progress, and the output of tools that nobody has to read."""

import subprocess
import sys
from pathlib import Path

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
    assert "No such file or directory: '/nowhere/pip'" in done.stderr
