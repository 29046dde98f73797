"""The one table of the benchmarks: what was measured, what the API servers alone need for it, and the ratio. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WIDTH: Final = 76
HEADING: Final = f"{'':{WIDTH}}{'measured':>12}{'API servers alone':>20}{'ratio':>8}"


@dataclass(frozen=True)
class Row:
    """One number."""

    what: str
    value: float
    unit: str = ""
    """Empty for counts."""
    alone: float | None = None
    """The same number for a client that decides nothing and sends the same requests to the same servers."""

    def line(self) -> str:
        """Return it as a line under ``HEADING``."""
        alone = "" if self.alone is None else _text(self.alone, self.unit)
        ratio = f"{self.value / self.alone:.2f}" if self.alone else ""
        return f"{self.what:{WIDTH}}{_text(self.value, self.unit):>12}{alone:>20}{ratio:>8}".rstrip()


def _text(value: float, unit: str) -> str:
    """Return the value with about three digits; whole numbers without a fraction."""
    digits = 0 if value == int(value) or value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}".rstrip()
