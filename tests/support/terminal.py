"""A process on a terminal: its input and output."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_PIECE: Final = 65536


class Terminal:
    """The output of a process on its terminal."""

    def __init__(self, process: subprocess.Popen[bytes], end: int) -> None:
        self.process = process
        self.written = bytearray()
        self._end = end

    def press(self, keys: str) -> None:
        os.write(self._end, keys.encode())

    def shows(self, words: str) -> bool:
        """Return whether these words come; False when the process has ended without."""
        while words.encode() not in self.written:
            if not self._read():
                return False
        return True

    def text(self, *, within: float) -> str:
        """Return all that was written when the process has ended, which it has ``within`` seconds of closing it."""
        while self._read():
            pass
        self.process.wait(within)
        # Ctrl-C can end a write in the middle of a character.
        return self.written.decode(errors="replace").replace("\r\n", "\n")

    def _read(self) -> bool:
        try:
            piece = os.read(self._end, _PIECE)
        except OSError:
            return False  # the other end is closed: Linux's way of saying so
        self.written += piece
        return bool(piece)


@contextmanager
def on_terminal(
    order: Sequence[str],
    environment: Mapping[str, str],
    *,
    size: tuple[int, int] | None = None,
    cwd: Path | None = None,
) -> Iterator[Terminal]:
    """Run a process on a terminal of this size (rows, columns). It is waited for at the end."""
    ours, theirs = pty.openpty()
    try:
        if size is not None:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        with subprocess.Popen(
            order, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=dict(environment)
        ) as process:
            os.close(theirs)
            try:
                yield Terminal(process, ours)
            except BaseException:
                process.kill()
                raise
    finally:
        os.close(ours)
