"""How commands print: JSON documents for scripts; sections and tables for people, line by line."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Final, TextIO

GAP: Final = 2
"""Blanks between two columns."""
NARROWEST: Final = 60
WIDEST: Final = 140

Document = Mapping[str, object]


class Output:
    """Where a command prints, and in which form. Every line is out when the method returns."""

    def __init__(self, stream: TextIO, *, as_json: bool, width: int | None = None) -> None:
        self._stream = stream
        self.as_json = as_json
        """Whether the answer is one JSON document; then nothing but ``document`` may print."""
        terminal = shutil.get_terminal_size(fallback=(120, 24)).columns
        self.width = width if width is not None else min(max(terminal, NARROWEST), WIDEST)

    def document(self, document: Document) -> None:
        """Print a JSON document."""
        self.line(json.dumps(document, indent=2, ensure_ascii=False))

    def line(self, text: str = "") -> None:
        """Print one line, or several."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def entry(self, text: str, *, indent: int = 2, mark: str = "") -> None:
        """Print a text, broken at blanks; further lines stand under the first character behind the mark."""
        self.line(hanging(text, first=" " * indent + mark, width=self.width))

    def section(self, title: str, entries: Sequence[str], *, mark: str = "", numbered: bool = False) -> None:
        """Print a title with entries under it; nothing without entries."""
        if not entries:
            return
        self.line(f"\n{title}")
        for number, entry in enumerate(entries, 1):
            self.entry(entry, mark=f"{number}. " if numbered else mark)

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """Print rows, heading first, with columns as wide as they need to be."""
        widths = column_widths(rows)
        for row in rows:
            self.line(table_row(row, widths, width=self.width))


def standard_output(*, as_json: bool) -> Output:
    """Return the output of this process."""
    return Output(sys.stdout, as_json=as_json)


def column_widths(rows: Sequence[Sequence[str]]) -> tuple[int, ...]:
    """Return the width that each column needs, the last one left out."""
    return tuple(max(len(cell) for cell in column) for column in zip(*rows, strict=True))[:-1]


def table_row(cells: Sequence[str], widths: Sequence[int], *, width: int) -> str:
    """Return the lines of one row: the last cell is broken at blanks, under itself.

    >>> print(table_row(["a", "bb", "c d"], [3, 2], width=12))
    a    bb  c d
    """
    padded = [cell.ljust(column + GAP) for cell, column in zip(cells[:-1], widths, strict=True)]
    return hanging(cells[-1], first="".join(padded), width=width)


def hanging(text: str, *, first: str, width: int) -> str:
    """Return the text behind ``first``, further lines indented as far; words longer than a line stay whole."""
    lines = textwrap.wrap(
        text,
        width=max(width - len(first), NARROWEST // 2),
        break_long_words=False,
        break_on_hyphens=False,
    )
    indent = " " * len(first)
    return "\n".join(f"{first if number == 0 else indent}{line}" for number, line in enumerate(lines or [""])).rstrip()
