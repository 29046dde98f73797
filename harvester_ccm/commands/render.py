"""How commands print: an answer is one document, shown to scripts as JSON or YAML and to people as indented text.

In the text, a list of entries without lists of their own is a table, other entries have a dash in front, and empty
values are left out.
"""

from __future__ import annotations

import json
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Final, TextIO, cast

import yaml

from harvester_ccm.redaction import one_line

GAP: Final = 2
"""Blanks between two columns."""
BELOW: Final = 4
"""Indentation of a cell that stands below its row."""
VALUES: Final = 18
"""Column at which the values of a mapping begin."""
NARROWEST: Final = 60
WIDEST: Final = 140

Document = dict[str, object]
"""What JSON can hold."""


class Form(StrEnum):
    """The form of an answer."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


class Output:
    """Where a command prints, and in which form. Every line is out when the method returns."""

    def __init__(
        self,
        stream: TextIO,
        *,
        form: Form = Form.TEXT,
        width: int | None = None,
        paint: Callable[[str], str] | None = None,
    ) -> None:
        """``paint`` puts colours into a line of text; ``width`` is that of the terminal unless told."""
        self._stream = stream
        self._paint = paint
        self._form = form
        self.scripted = form is not Form.TEXT
        """Whether the answer is one document for scripts; then nothing but ``document`` may print."""
        terminal = shutil.get_terminal_size(fallback=(120, 24)).columns
        self.width = width if width is not None else min(max(terminal, NARROWEST), WIDEST)

    def document(self, document: Mapping[str, object]) -> None:
        """Print a document for scripts."""
        if self._form is Form.YAML:
            self._write(yaml_text(document))
        else:
            self._write(json.dumps(document, indent=2, ensure_ascii=False))

    def answer(self, document: Mapping[str, object], sentence: str = "") -> None:
        """Print a document; in the text the sentence follows."""
        if self.scripted:
            self.document(document)
            return
        for line in rendered(document, width=self.width):
            self.line(line)
        if sentence:
            self.line(f"\n{hanging(sentence, first='', width=self.width)}")

    @property
    def is_terminal(self) -> bool:
        """Whether somebody looks at it who can see lines change in their place."""
        return self._stream.isatty()

    def screen(self, lines: Iterable[str]) -> None:
        """Show lines in the place of what is on the terminal, as many as there is room for."""
        rows = "\n".join(lines).split("\n")
        room = shutil.get_terminal_size(fallback=(120, 24)).lines - 1
        if len(rows) > room:
            rows = [*rows[: room - 1], f"… {len(rows) - room + 1} more lines"]
        # Home, each line with what was behind it cleared, then all below: nothing flickers.
        self._stream.write("\x1b[H" + "".join(f"{one_line(row)}\x1b[K\n" for row in rows) + "\x1b[J")
        self._stream.flush()

    def program(self, text: str) -> None:
        """Print what a program of ours wrote for another program, as it is."""
        self._stream.write(text)
        self._stream.flush()

    def line(self, text: str = "") -> None:
        """Print one line, or several."""
        self._write(text, self._paint)

    def _write(self, text: str, paint: Callable[[str], str] | None = None) -> None:
        # Objects hold what their owners wrote: it must not write on the terminal of whoever looks at them.
        lines = map(one_line, text.split("\n"))
        shown = "\n".join(lines if paint is None else map(paint, lines))
        self._stream.write(f"{shown}\n")
        self._stream.flush()


def yaml_text(document: Mapping[str, object]) -> str:
    """Return a document as YAML; what is not to be shown as it is stands there escaped.

    >>> print(yaml_text({"name": "web", "ports": [80]}))
    name: web
    ports:
    - 80
    """
    # As JSON first: what is one object twice would become an anchor and a reference.
    plain = json.loads(json.dumps(document))
    dump = partial(yaml.safe_dump, plain, sort_keys=False, width=WIDEST)
    text = str(dump(allow_unicode=True))
    return (text if text.replace("\n", "").isprintable() else str(dump(allow_unicode=False))).rstrip("\n")


def rendered(value: Mapping[str, object] | Sequence[object], *, width: int, indent: int = 0) -> Iterator[str]:
    """Yield the lines that show a JSON value; empty values of a mapping are left out.

    >>> print(*rendered({"name": "web", "ports": [80, 443], "owner": {"uid": "1", "kind": None}}, width=80), sep="\\n")
    Name:             web
    Ports:
      80
      443
    Owner:
      Uid:            1
    """
    margin = " " * indent
    if isinstance(value, Mapping):
        for key, one in _filled(value).items():
            title = f"{margin}{_words(key).capitalize() if key.isalpha() else key}:"
            if isinstance(one, Mapping | list | tuple):
                yield title
                yield from rendered(one, width=width, indent=indent + 2)
            else:
                yield hanging(_scalar(one), first=f"{title} ".ljust(VALUES), width=width)
    elif _is_table(value):
        yield from table(_columns_of(cast("Sequence[Mapping[str, object]]", value)), width=width, indent=indent)
    else:
        for one in value:
            if isinstance(one, Mapping):
                first, *more = rendered(one, width=width, indent=indent + 2)
                yield f"{margin}- {first[indent + 2 :]}"
                yield from more
            else:
                yield hanging(_scalar(one), first=margin, width=width - 2).replace("\n", "\n  ")


def _filled(document: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in document.items() if value not in (None, "", [], (), {})}


def _words(key: str) -> str:
    """Return the words of a name in camel case, with blanks between them."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", key)


def _scalar(value: object) -> str:
    """Return a text in one line, and all else as in JSON."""
    return one_line(value) if isinstance(value, str) and value else json.dumps(value)


def _is_table(value: object) -> bool:
    """Return whether these are entries with the same fields and nothing nested in them."""
    if not isinstance(value, list | tuple) or not all(isinstance(one, Mapping) for one in value):
        return False
    alike = len({tuple(one) for one in value}) == 1
    return alike and not any(isinstance(cell, Mapping | list | tuple) for one in value for cell in one.values())


def _columns_of(entries: Sequence[Mapping[str, object]]) -> list[list[str]]:
    """Return the columns of a table, each with its title in front."""
    cells = {key: ["" if one[key] in (None, "") else _scalar(one[key]) for one in entries] for key in entries[0]}
    return [[_words(key).upper(), *column] for key, column in cells.items()]


def table(columns: Iterable[Sequence[str]], *, width: int, indent: int = 0) -> Iterator[str]:
    """Yield a table; ``columns`` have their titles in front, and one without any value is left out."""
    kept = [cells for cells in columns if any(cells[1:])]
    widths = [max(map(len, cells)) for cells in kept[:-1]]
    for row in zip(*kept, strict=True):
        yield table_row([cell or "-" for cell in row], widths, width=width, indent=indent)


def table_row(cells: Sequence[str], widths: Sequence[int], *, width: int, indent: int = 0) -> str:
    """Return the lines of one row: the last cell is broken at blanks, under itself, or below where there is no room.

    >>> print(table_row(["a", "bb", "c d"], [3, 2], width=12))
    a    bb  c d
    >>> print(table_row(["a", "bb", "c d"], [3, 2], width=11))
    a    bb
        c d
    """
    padded = [cell.ljust(column + GAP) for cell, column in zip(cells[:-1], widths, strict=True)]
    first = " " * indent + "".join(padded)
    if cells[-1] and len(first) + min(len(cells[-1]), NARROWEST // 2) > width:
        return f"{first.rstrip()}\n{hanging(cells[-1], first=' ' * (indent + BELOW), width=width)}"
    return hanging(cells[-1], first=first, width=width)


def hanging(text: str, *, first: str, width: int) -> str:
    """Return the text behind ``first``, further lines indented as far; words longer than a line stay whole.

    A command of kubectl at the end of the text stays on one line, so that it can be pasted.
    """
    prose, kubectl, command = text.partition(": kubectl ")
    lines = textwrap.wrap(
        f"{prose}{kubectl[:1]}",
        width=max(width - len(first), NARROWEST // 2),
        break_long_words=False,
        break_on_hyphens=False,
    )
    if kubectl:
        lines.append(f"kubectl {command}")
    indent = " " * len(first)
    return "\n".join(f"{first if number == 0 else indent}{line}" for number, line in enumerate(lines or [""])).rstrip()
