"""Pictures of the screen as one SVG that plays by itself, without fonts or anything else from elsewhere.

The frames lie below each other on a strip, and a style sheet moves the strip; what plays no style sheets, and whoever
asked for less motion, shows the last frame. Colours are a dark terminal's, with its own background.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from html import escape
from typing import Final

from rich.console import Console, RenderableType
from rich.terminal_theme import TerminalTheme

SIZE: Final = (100, 28)
"""Columns and lines of the terminal in the picture."""
THEME: Final = TerminalTheme(
    (17, 21, 28),
    (208, 214, 222),
    [
        (40, 46, 56), (224, 108, 117), (80, 200, 120), (229, 192, 94),
        (97, 160, 239), (198, 120, 221), (86, 182, 194), (208, 214, 222),
    ],
    [
        (138, 148, 164), (240, 130, 138), (110, 220, 145), (240, 208, 120),
        (130, 180, 245), (215, 150, 235), (110, 200, 212), (255, 255, 255),
    ],
)  # fmt: skip
FONTS: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
PAGE: Final = "\0"
"""Between the parts of a frame as rich exports them: a letter that is in none."""
_PARTS: Final = PAGE.join(["{styles}", "{backgrounds}", "{matrix}", "{terminal_width}", "{terminal_height}"])
_SURPLUS: Final = re.compile(r' clip-path="[^"]*"|<text [^>]*>\n</text>')
"""What rich writes and nobody sees: every text is inside, and ends of lines are no text."""
_RULE: Final = re.compile(r"\.(\S+) \{ (.*) \}")
MARGIN: Final = 12
"""Around the text, in units of the picture."""


@dataclass(frozen=True)
class _Frame:
    body: str
    width: float
    height: float
    seconds: float


class Film:
    """Frames in the order in which they were taken."""

    def __init__(self) -> None:
        self._frames: list[_Frame] = []
        self._classes: dict[str, str] = {}
        """Style rules, and the names of their classes: all frames share them."""

    def take(self, picture: RenderableType, seconds: float) -> None:
        """Add a frame that is shown for so many seconds."""
        width, height = SIZE
        console = Console(
            file=io.StringIO(), record=True, width=width, height=height, force_terminal=True, color_system="truecolor",
            legacy_windows=False, _environ={},
        )  # fmt: skip
        console.print(picture, end="")
        name = f"f{len(self._frames)}"
        made = console.export_svg(theme=THEME, code_format=_PARTS, unique_id=name, title="")
        styles, backgrounds, matrix, across, down = made.split(PAGE)
        body = _SURPLUS.sub("", backgrounds + matrix).replace("&#160;", " ")
        for own, rule in _RULE.findall(styles):
            shared = self._classes.setdefault(rule, f"c{len(self._classes)}")
            body = body.replace(f'class="{own}"', f'class="{shared}"')
        self._frames.append(_Frame(body, float(across), float(down), seconds))

    def svg(self, title: str) -> str:
        """Return the film; ``title`` is what is read out in its place. Raises IndexError when there is no frame."""
        last = self._frames[-1]
        width, height = last.width + 2 * MARGIN, last.height + 2 * MARGIN
        strip = "\n".join(
            f'<g transform="translate({MARGIN} {number * height + MARGIN:g})">{frame.body}</g>'
            for number, frame in enumerate(self._frames)
        )
        styles = "\n".join(f".{name} {{ {rule} }}" for rule, name in self._classes.items())
        background, border = THEME.background_color, THEME.ansi_colors[8]
        return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" xml:space="preserve"
 role="img" aria-label="{escape(title)}">
<title>{escape(title)}</title>
<style>
text {{ font: 20px {FONTS}; white-space: pre; }}
{styles}
{self._motion(height)}
</style>
<rect x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="10"
 fill="{_hex(background)}" stroke="{_hex(border)}"/>
<svg width="{width:g}" height="{height:g}"><g class="strip">
{strip}
</g></svg>
</svg>
"""

    def _motion(self, height: float) -> str:
        whole, passed, stops = sum(frame.seconds for frame in self._frames), 0.0, []
        for number, frame in enumerate(self._frames):
            stops.append(f"{100 * passed / whole:.2f}% {{ transform: translateY({-number * height:g}px); }}")
            passed += frame.seconds
        at_rest = -(len(self._frames) - 1) * height
        return "\n".join(
            [
                f".strip {{ transform: translateY({at_rest:g}px); }}",
                "@media (prefers-reduced-motion: no-preference) {",
                f".strip {{ animation: play {whole:g}s step-end infinite; }}",
                "}",
                f"@keyframes play {{ {' '.join(stops)} }}",
            ]
        )


def _hex(color: tuple[int, int, int]) -> str:
    return "#" + "".join(f"{part:02x}" for part in color)
