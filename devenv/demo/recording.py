"""Frames of a terminal as one animated SVG, without references to other files.

The frames are below each other on a strip, and a style sheet moves the strip. A viewer without style sheets, or with
reduced motion, shows the last frame.
"""

import io
import re
from html import escape
from typing import Final

from rich.console import Console, RenderableType

FRAME_SECONDS: Final = 1.5
"""Time between two frames."""
SIZE: Final = (100, 28)
"""Columns and lines of the terminal."""
BACKGROUND, BORDER = "#292929", "#8a94a4"
FONTS: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
MARGIN: Final = 12
"""Around the text, in units of the picture."""
_FORMAT: Final = "{styles}\0{backgrounds}\0{matrix}\0{terminal_width}\0{terminal_height}"
_SURPLUS: Final = re.compile(r' clip-path="[^"]*"|<text [^>]*>\n</text>')
"""Written by rich, without a visible effect."""
_RULE: Final = re.compile(r"\.(\S+) \{ (.*) \}")


class Recording:
    """Frames in the order of their addition."""

    def __init__(self) -> None:
        self._bodies: list[str] = []
        self._classes: dict[str, str] = {}
        """Style rules and the names of their classes, shared by all frames."""
        self._width = self._height = 0.0

    def add(self, picture: RenderableType) -> None:
        """Add a frame."""
        console = Console(
            file=io.StringIO(), record=True, width=SIZE[0], height=SIZE[1], force_terminal=True,
            color_system="truecolor", legacy_windows=False, _environ={},
        )  # fmt: skip
        console.print(picture, end="")
        exported = console.export_svg(code_format=_FORMAT, unique_id=f"f{len(self._bodies)}", title="")
        styles, backgrounds, matrix, width, height = exported.split("\0")
        body = _SURPLUS.sub("", backgrounds + matrix).replace("&#160;", " ")
        for own, rule in _RULE.findall(styles):
            shared = self._classes.setdefault(rule, f"c{len(self._classes)}")
            body = body.replace(f'class="{own}"', f'class="{shared}"')
        self._width, self._height = float(width) + 2 * MARGIN, float(height) + 2 * MARGIN
        self._bodies.append(body)

    def svg(self, title: str) -> str:
        """Return the animation. ``title`` is its alternative text."""
        width, height, number = self._width, self._height, len(self._bodies)
        strip = "\n".join(
            f'<g transform="translate({MARGIN} {index * height + MARGIN:g})">{body}</g>'
            for index, body in enumerate(self._bodies)
        )
        styles = "\n".join(f".{name} {{ {rule} }}" for rule, name in self._classes.items())
        return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" xml:space="preserve"
 role="img" aria-label="{escape(title)}">
<title>{escape(title)}</title>
<style>
text {{ font: 20px {FONTS}; white-space: pre; }}
{styles}
.strip {{ transform: translateY({-(number - 1) * height:g}px); }}
@media (prefers-reduced-motion: no-preference) {{
.strip {{ animation: play {number * FRAME_SECONDS:g}s steps({number}) infinite; }}
}}
@keyframes play {{ from {{ transform: none; }} to {{ transform: translateY({-number * height:g}px); }} }}
</style>
<rect x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="10" fill="{BACKGROUND}" stroke="{BORDER}"/>
<svg width="{width:g}" height="{height:g}"><g class="strip">
{strip}
</g></svg>
</svg>
"""
