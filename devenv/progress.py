"""The progress of steps that take a while: what is done, and for how long. Uses only Python's standard library.

On a terminal, one line per step counts the seconds. Elsewhere, and in a parallel make, whose steps would overwrite each
other's line, there is a line at the start and one at the end.

``python -m devenv.progress TEXT COMMAND...`` runs a command as such a step. Its output is shown only if it fails:
warnings of tools about themselves are of no use to those who set up the checkout.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

_TICK_SECONDS: Final = 1.0
_ERASE: Final = "\r\x1b[K"
_INTERRUPTED: Final = 130
"""The exit code of a command that Ctrl-C ended."""


@contextmanager
def step(text: str) -> Iterator[None]:
    """Show ``text`` with the seconds since the start, while the body runs."""
    started, ended = time.monotonic(), threading.Event()
    moves = _moves()
    if not moves:
        _write(f"{text} ...\n")
    counter = threading.Thread(target=_count, args=(text, started, ended), daemon=True)
    if moves:
        counter.start()
    outcome = "failed after"
    try:
        yield
        outcome = "done in"
    finally:
        ended.set()
        if moves:
            counter.join()
        erase = _ERASE if moves else ""
        _write(f"{erase}{text}: {outcome} {time.monotonic() - started:.0f} s\n")


def _moves() -> bool:
    """Return whether a line can be written again and again."""
    is_parallel = "--jobserver" in os.environ.get("MAKEFLAGS", "")
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not is_parallel


def _count(text: str, started: float, ended: threading.Event) -> None:
    while True:
        seconds = f": {time.monotonic() - started:.0f} s"
        # A line that wraps cannot be erased.
        width = shutil.get_terminal_size().columns - len(seconds) - 1
        _write(f"{_ERASE}{text[:width]}{seconds}")
        if ended.wait(_TICK_SECONDS):
            return


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


class _CommandFailed(Exception):
    def __init__(self, code: int, output: bytes) -> None:
        super().__init__(code)
        self.code = code
        self.output = output


def run(text: str, command: Sequence[str]) -> int:
    """Run a command as a step and return its exit code. Its output is written to stderr if it fails."""
    try:
        with step(text):
            _run_quietly(command)
    except _CommandFailed as failure:
        _write(failure.output.decode(errors="replace"))
        return failure.code
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _run_quietly(command: Sequence[str]) -> None:
    with tempfile.TemporaryFile() as output:
        try:
            code = subprocess.run(command, check=False, stdout=output, stderr=subprocess.STDOUT).returncode
        except OSError as error:
            raise _CommandFailed(1, f"{command[0]}: {error.strerror}\n".encode()) from None
        if code != 0:
            output.seek(0)
            raise _CommandFailed(code if code > 0 else 1, output.read())


def main() -> int:
    """Entry point of ``python -m devenv.progress``. Returns the exit code of the command."""
    if len(sys.argv) < 3:
        _write("usage: python -m devenv.progress TEXT COMMAND...\n")
        return 2
    return run(sys.argv[1], sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
