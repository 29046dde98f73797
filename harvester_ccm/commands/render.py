"""Prints the document of a command: JSON or YAML for scripts, the layout of ``kubectl describe`` for people.

Text is wrapped at the width of the terminal and nowhere else, so that lines can be searched in a pipe. A ``kubectl``
command at the end of a text has a line of its own, which can be pasted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import Any, Final, TextIO

import yaml
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harvester_ccm.redaction import one_line, redact_text

Document = dict[str, Any]
"""A JSON value."""

UNLIMITED: Final = 100_000
"""Width without a terminal, where lines are not wrapped."""
KEY_WIDTH: Final = 16
"""Minimum width of the keys of a document, with the colon."""
_GAP: Final = 2
_STYLES: Final = {
    **dict.fromkeys(("failed", "Blocked"), "bold red"),
    **dict.fromkeys(("warning", "Warning", "Pending", "Degraded", "Orphaned"), "yellow"),
    **dict.fromkeys(("ok", "Ready"), "green"),
}
"""Styles of cells by their text."""


class Form(StrEnum):
    """The form of the output."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


class Output:
    """Where a command prints, and in which form."""

    def __init__(
        self, stream: TextIO, form: Form = Form.TEXT, *, width: int | None = None, colors: bool = False
    ) -> None:
        """``width`` None is that of the terminal."""
        self._stream = stream
        self._console = Console(
            file=stream,
            width=width,
            color_system="auto" if colors else None,
            markup=False,
            highlight=False,
            emoji=False,
        )
        self.form = form

    @property
    def is_terminal(self) -> bool:
        """Whether text can be updated in place."""
        return self.form is Form.TEXT and self._stream.isatty()

    def answer(self, document: Document, layout: Callable[[Document], Iterable[RenderableType]] | None = None) -> None:
        """Print a document; ``layout`` is its text, by default the keys with their values."""
        document = harmless(document)
        match self.form:
            case Form.TEXT:
                with self._console.capture() as captured:
                    self._console.print(Group(*(layout or describe)(document)), crop=False)
                self.write("\n".join(line.rstrip() for line in captured.get().splitlines()))
            case Form.YAML:
                self.write(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=UNLIMITED).rstrip())
            case Form.JSON:
                self.write(json.dumps(document, indent=2, ensure_ascii=False))

    def write(self, text: str) -> None:
        """Print a text as it is."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def live(self) -> Live:
        """Return a display that is updated in place, as much of it as fits."""
        return Live(console=self._console, auto_refresh=False, vertical_overflow="ellipsis")


def harmless(value: Any) -> Any:
    """Return a document without credentials, line ends and control characters: objects contain what users wrote."""
    match value:
        case str():
            return one_line(redact_text(value))
        case Mapping():
            return {key: harmless(one) for key, one in value.items()}
        case list() | tuple():
            return [harmless(one) for one in value]
    return value


def describe(document: Mapping[str, Any], indent: int = 0) -> Iterator[RenderableType]:
    """Yield the lines of a document, without empty values. A list of flat mappings is a table."""
    for key, value in document.items():
        title = Text(f"{_words(key).capitalize() if key.isalpha() else key}:", "bold")
        width = max(KEY_WIDTH - indent, len(title))
        if value in (None, "", [], {}):
            continue
        if isinstance(value, list) and not isinstance(value[0], Mapping):
            for number, one in enumerate(value):
                yield from row(["" if number else title, str(one)], [width], indent)
        elif not isinstance(value, list | Mapping):
            yield from row([title, str(value)], [width], indent)
        else:
            yield from row([title], indent=indent)
            blocks = [value] if isinstance(value, Mapping) else value
            if isinstance(value, list) and not any(isinstance(one, list) for block in value for one in block.values()):
                yield from table(value, indent + 2)
            else:
                for block in blocks:
                    yield from describe(block, indent + 2)


def _words(key: str) -> str:
    """Return a key in camel case as words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", key)


def table(rows: Sequence[Mapping[str, Any]], indent: int = 0, below: Sequence[str] = ()) -> Iterator[RenderableType]:
    """Yield a table of rows with the same keys, without empty columns; ``below`` has a text for each row."""
    columns = [[_words(key).upper(), *(str(one[key] or "-") for one in rows)] for key in rows[0]]
    filled = [cells for cells in columns if set(cells[1:]) != {"-"}]
    widths = [max(map(len, cells)) for cells in filled[:-1]]
    heading, *others = zip(*filled, strict=True)
    yield from row([Text(title, "bold") for title in heading], widths, indent)
    for cells, text in zip_longest(others, below, fillvalue=""):
        yield from row(list(cells), widths, indent)
        if text:
            yield from row([text], indent=indent + 4)


def row(cells: Sequence[str | Text], widths: Sequence[int] = (), indent: int = 0) -> Iterator[RenderableType]:
    """Yield the lines of one row; ``widths`` are those of all cells but the last, which wraps."""
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    for width in widths:
        grid.add_column(width=width, overflow="fold")
    grid.add_column(overflow="fold")
    *others, last = (one if isinstance(one, Text) else Text(one, _STYLES.get(one, "")) for one in cells)
    prose, is_command, command = last.plain.partition(": kubectl ")
    grid.add_row(*others, Text(f"{prose}:") if is_command else last)
    yield Padding(grid, (0, 0, 0, indent), expand=False)
    if is_command:
        start = indent + sum(widths) + _GAP * len(widths)
        yield Text(f"{' ' * start}kubectl {command}", no_wrap=True, overflow="ignore")
