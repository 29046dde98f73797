"""How the demo speaks: one short line per thing that happens, with the seconds since the start."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable
from typing import Final, TextIO

INDENT: Final = " " * 4
WIDTHS: Final = (60, 110)
"""Narrowest and widest text; a log counts as wide."""
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


class Voice:
    """Prints to a terminal or into a log; only a terminal gets bold headlines."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self._stream = stream
        self._started = time.monotonic()
        self._bold = stream.isatty() and "NO_COLOR" not in os.environ
        narrow, wide = WIDTHS
        self._width = max(narrow, min(wide, shutil.get_terminal_size((wide, 24)).columns))

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def headline(self, text: str) -> None:
        """Begin something new."""
        line = f"{self.elapsed:6.2f} s  {text}"
        self._print(f"\n{BOLD}{line}{PLAIN}" if self._bold else f"\n{line}")

    def say(self, text: str, *, hang: int = 2) -> None:
        """Tell one thing; long texts are wrapped, with ``hang`` blanks before the second and later lines."""
        lines = textwrap.wrap(text, self._width - len(INDENT), subsequent_indent=" " * hang, break_on_hyphens=False)
        self.show(lines)

    def show(self, lines: Iterable[str]) -> None:
        """Print lines as they are, indented."""
        for line in lines:
            self._print(f"{INDENT}{line}".rstrip())

    def command(self, text: str) -> None:
        """Show what a user would type to see what follows."""
        self._print(f"\n{INDENT}$ {text}")

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)
