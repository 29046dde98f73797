"""Colours on a terminal: what is wrong stands out, and so do titles. Loaded only where there is a terminal for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TextIO

from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.text import Text
from rich.theme import Theme

_WIDTH: Final = 10_000
"""Lines are broken before they come here."""


class _Words(RegexHighlighter):
    """The words that get a colour."""

    highlights = (
        r"(?P<title>^ *(- )?[A-Z][\w ,'\-]{1,70}:)(?= |$)",
        r"(?P<title>^ *[A-Z][A-Z ]+(  [A-Z][A-Z ]+)+$)",
        r"(?P<bad>\bFAILED\b|\bNOT READY\b|\bUNREADABLE\b|\bEXPIRED\b|^ *Problem:|^PROBLEMS.*$|\bWarning\b)",
        r"(?P<odd>(?<=  )(warning|pending)(?=  |$)|\bnot known\b)",
        r"(?P<good>(?<=  )(ok|ready)(?=  |$)|^READY\b|^All is well\b)",
        r"(?P<faint>(?<=  )skipped(?=  ).*$)",
        r"(?P<remedy>^ *→ .*$)",
    )


_THEME: Final = Theme(
    {"title": "bold", "bad": "bold red", "odd": "yellow", "good": "green", "faint": "dim", "remedy": "cyan"}
)


def painter(stream: TextIO) -> Callable[[str], str]:
    """Return a function that puts colours into a line of plain text."""
    console = Console(file=stream, theme=_THEME, force_terminal=True, width=_WIDTH, highlight=False)
    words = _Words()

    def paint(line: str) -> str:
        text = Text(line)
        words.highlight(text)
        with console.capture() as captured:
            console.print(text, end="", soft_wrap=True)
        return captured.get()

    return paint
