"""Prints the document of a command: JSON or YAML for scripts, the layout of ``kubectl describe`` for people.

Text is wrapped at the width of the terminal and nowhere else, so that lines can be searched in a pipe. A ``kubectl``
command at the end of a text has a line of its own, which can be pasted.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import Any, Final, TextIO

import yaml
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harvester_ccm.redaction import one_line, redact_text

Document = dict[str, Any]
"""A JSON value."""

UNLIMITED: Final = 100_000
"""Width without a terminal, where lines are not wrapped."""
_ACRONYMS: Final = frozenset({"id", "ip", "ipam", "uid", "vm"})
KEY_WIDTH: Final = 16
"""Minimum width of the keys of a document, with the colon."""
_STYLES: Final = {
    **dict.fromkeys(("failed", "Blocked"), "bold red"),
    **dict.fromkeys(("warning", "Pending", "Degraded", "Orphaned"), "yellow"),
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
        self.form = form
        self.console = Console(
            file=stream,
            width=width,
            color_system="auto" if colors else None,
            markup=False,
            highlight=False,
            emoji=False,
        )

    def answer(self, document: Document, layout: Callable[[Document], Iterable[RenderableType]] | None = None) -> None:
        """Print a document; ``layout`` is its text, by default the keys with their values."""
        document = harmless(document)
        match self.form:
            case Form.TEXT:
                with self.console.capture() as captured:
                    self.console.print(Group(*(layout or describe)(document)), crop=False)
                self.write("\n".join(line.rstrip() for line in captured.get().splitlines()))
            case Form.YAML:
                self.write(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=UNLIMITED).rstrip())
            case Form.JSON:
                self.write(json.dumps(document, indent=2, ensure_ascii=False))

    def write(self, text: str) -> None:
        """Print a text as it is."""
        self.console.file.write(f"{text}\n")
        self.console.file.flush()


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
        title = Text(f"{_words(key) if key.isalpha() else key}:", "bold")
        if value in (None, "", [], {}):
            continue
        blocks = value if isinstance(value, list) else [value]
        if not isinstance(blocks[0], Mapping):
            for number, one in enumerate(blocks):
                yield from row(["" if number else title, str(one)], [max(KEY_WIDTH - indent, len(title))], indent)
            continue
        yield from row([title], indent=indent)
        is_nested = isinstance(value, Mapping) or any(isinstance(one, list) for one in blocks[0].values())
        if not is_nested:
            yield from table(blocks, indent + 2)
        for block in blocks if is_nested else ():
            yield from describe(block, indent + 2)


def _words(key: str) -> str:
    """Return the words of a key in camel case: ``Provider ID`` for ``providerId``."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", key).lower().split()
    text = " ".join(one.upper() if one in _ACRONYMS else one for one in words)
    return f"{text[0].upper()}{text[1:]}"


def table(rows: Sequence[Mapping[str, Any]], indent: int = 0, below: Sequence[str] = ()) -> Iterator[RenderableType]:
    """Yield a table of rows with the same keys, without empty columns; ``below`` has a text for each row."""
    columns = [[_words(key).upper(), *(str(one[key] or "-") for one in rows)] for key in rows[0]]
    filled = [cells for cells in columns if set(cells[1:]) != {"-"}]
    widths = [max(map(len, cells)) for cells in filled[:-1]]
    heading, *others = zip(*filled, strict=True)
    yield from row([Text(title, "bold") for title in heading], widths, indent)
    for cells, text in zip_longest(others, below, fillvalue=""):
        yield from row(cells, widths, indent)
        if text:
            yield from row([text], indent=indent + 4)


def row(cells: Sequence[str | Text], widths: Sequence[int] = (), indent: int = 0) -> Iterator[RenderableType]:
    """Yield the lines of one row; ``widths`` are those of all cells but the last, which wraps."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for width in widths:
        grid.add_column(width=width, overflow="fold")
    grid.add_column(overflow="fold")
    *others, last = (one if isinstance(one, Text) else Text(one, _STYLES.get(one, "")) for one in cells)
    prose, is_command, command = last.plain.partition(": kubectl ")
    grid.add_row(*others, Text(f"{prose}:") if is_command else last)
    yield Padding(grid, (0, 0, 0, indent), expand=False)
    if is_command:
        yield Text(f"{' ' * indent}kubectl {command}", no_wrap=True, overflow="ignore")
