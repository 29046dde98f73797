"""The screen: what has been seen, as rich draws it. Pure: the same view is the same picture."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from rich.console import Group, RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.text import Text

from devenv.demo.live.board import Balancer, Board, Line, Mark

SMALLEST: Final = (80, 24)
"""Columns and lines that a terminal has at least; the picture is made for about a hundred by thirty."""
HEAD_LINES: Final = 4
FOOT_LINES: Final = 10
SMALL_FOOT_LINES: Final = 8
FRAME: Final = 2
"""Lines, and columns with the blanks inside, that a frame takes: twice this in width."""
NAME_COLUMNS: Final = 10
"""For a dot and the name of a Service."""
IN_A_ROW: Final = 20
"""Dots in a row of a crowd."""

_DOTS: Final = {
    Mark.ASKED: ("○", "bright_black"),
    Mark.WAITING: ("◐", "yellow"),
    Mark.SERVED: ("●", "green"),
    Mark.LEAVING: ("◌", "bright_black"),
}


@dataclass(frozen=True)
class View:
    """What is on the screen at a moment."""

    title: str
    caption: str
    elapsed: float
    """Seconds since the start."""
    board: Board
    crowd: str = ""
    """How the names of the Services begin that are shown as dots."""
    foot_title: str = ""
    foot: Sequence[Text] = ()


def draw(view: View, *, width: int, height: int) -> RenderableType:
    """Return the picture of a view, as large as the terminal."""
    foot_lines = FOOT_LINES if height >= SMALLEST[1] + FOOT_LINES - SMALL_FOOT_LINES else SMALL_FOOT_LINES
    rows, columns = height - HEAD_LINES - foot_lines - FRAME, width // 2 - 2 * FRAME
    screen = Layout()
    screen.split_column(
        Layout(_head(view), size=HEAD_LINES),
        Layout(name="body"),
        Layout(_panel(view.foot_title, view.foot), size=foot_lines),
    )
    screen["body"].split_row(
        Layout(_panel(_guest_title(view), _guest(view, rows, columns))),
        Layout(_panel(_harvester_title(view.board), _harvester(view, rows, columns))),
    )
    return screen


def took(seconds: float) -> str:
    """Return how long something took, for people.

    >>> took(0.0431), took(15.21)
    ('43 ms', '15.2 s')
    """
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def command(text: str) -> Text:
    """Return a command line that a user would type."""
    return Text.assemble(("$ ", "bright_black"), (text, "bold"))


def _head(view: View) -> RenderableType:
    title = Text.assemble((f" {view.title} ", "bold"), (f" {view.elapsed:.1f} s ", "bright_black"))
    return Panel(Text(view.caption, overflow="ellipsis"), title=title, title_align="left", border_style="cyan")


def _panel(title: str, lines: Iterable[Text]) -> Panel:
    return Panel(
        Group(*lines), title=f"[bold]{title}[/]" if title else None, title_align="left", border_style="bright_black"
    )


def _guest_title(view: View) -> str:
    lines = view.board.services.values()
    served = sum(line.mark is Mark.SERVED for line in lines)
    return f"Guest: {served} of {len(lines)} Services served"


def _harvester_title(board: Board) -> str:
    return f"Harvester: {len(board.balancers)} LBs, {board.booked} addresses"


def _guest(view: View, rows: int, columns: int) -> Iterator[Text]:
    lines = list(view.board.services.values())
    alone = [line for line in lines if not _in_crowd(view, line.name)]
    crowd = [line.mark for line in lines if _in_crowd(view, line.name)]
    yield from _fitting(
        [text for line in alone for text in _service(line, columns)], list(_dots(crowd, columns)), rows, columns
    )


def _harvester(view: View, rows: int, columns: int) -> Iterator[Text]:
    balancers = list(view.board.balancers.values())
    alone = [one for one in balancers if not _in_crowd(view, one.service)]
    crowd = [one.mark for one in balancers if _in_crowd(view, one.service)]
    yield from _fitting([_balancer(one) for one in alone], list(_dots(crowd, columns)), rows, columns)


def _in_crowd(view: View, name: str) -> bool:
    return bool(view.crowd) and name.startswith(view.crowd)


def _fitting(alone: list[Text], crowd: list[Text], rows: int, columns: int) -> Iterator[Text]:
    """Yield the crowd below as many of the others, the latest ones, as there is room for."""
    room = max(rows - len(crowd), 0)
    for text in [*alone[len(alone) - room if len(alone) > room else 0 :], *crowd]:
        text.truncate(columns, overflow="ellipsis")
        yield text


def _service(line: Line, columns: int) -> Iterator[Text]:
    dot, style = _DOTS[line.mark]
    first, *more = _said(line, columns - NAME_COLUMNS)
    yield Text.assemble((f"{dot} ", style), f"{line.name:{NAME_COLUMNS - 2}}", first)
    yield from (Text(" " * NAME_COLUMNS).append_text(text) for text in more)


def _said(line: Line, columns: int) -> list[Text]:
    match line.mark:
        case Mark.SERVED:
            time = took(line.took) if line.took is not None else ""
            return [Text.assemble((f"{line.address:13}", "bold"), (f"{time:>8}", "green"))]
        case Mark.WAITING:
            return [Text(part, "yellow") for part in textwrap.wrap(line.reason, columns)] or [Text("waits", "yellow")]
        case Mark.LEAVING:
            return [Text("being deleted", "bright_black")]
        case Mark.ASKED:
            return [Text("asked for", "bright_black")]


def _balancer(one: Balancer) -> Text:
    dot, style = _DOTS[one.mark]
    return Text.assemble((f"{dot} ", style), (f"{one.address:13}", "bold"), (f"{one.pool:5}", "bright_black"), one.name)


def _dots(marks: Sequence[Mark], columns: int) -> Iterator[Text]:
    gap = " " if columns >= 2 * IN_A_ROW - 1 else ""
    for first in range(0, len(marks), IN_A_ROW):
        row = Text()
        # Dots of one colour are one piece: that is less to draw.
        for mark, alike in groupby(marks[first : first + IN_A_ROW]):
            dot, style = _DOTS[mark]
            row.append(f"{dot}{gap}" * len(list(alike)), style)
        row.rstrip()
        yield row
