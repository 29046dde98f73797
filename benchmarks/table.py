"""The table: a measured value, the value of the API servers alone, and the ratio. Pure."""

from dataclasses import dataclass
from typing import Final

WIDTH: Final = 76
HEADING: Final = f"{'':{WIDTH}}{'measured':>12}{'API servers alone':>20}{'ratio':>8}"


@dataclass(frozen=True)
class Row:
    """One measured value."""

    title: str
    value: float
    unit: str = ""
    """Empty for counts."""
    alone: float | None = None
    """The value of a client that sends the same requests to the same servers without any decision."""

    def line(self) -> str:
        """Return the line under ``HEADING``."""
        alone = "" if self.alone is None else _text(self.alone, self.unit)
        ratio = f"{self.value / self.alone:.2f}" if self.alone else ""
        return f"{self.title:{WIDTH}}{_text(self.value, self.unit):>12}{alone:>20}{ratio:>8}".rstrip()


LIMITS_HEADING: Final = f"{'':{WIDTH}}{'measured':>12}{'limit':>12}"


@dataclass(frozen=True)
class Limited:
    """One measured value that has a limit."""

    title: str
    value: float
    unit: str
    most: float

    @property
    def holds(self) -> bool:
        """Whether the value is within its limit."""
        return self.value <= self.most

    def line(self) -> str:
        """Return the line under ``LIMITS_HEADING``."""
        verdict = "" if self.holds else "  EXCEEDED"
        return f"{self.title:{WIDTH}}{_text(self.value, self.unit):>12}{_text(self.most, self.unit):>12}{verdict}"


def _text(value: float, unit: str) -> str:
    """Return the value with about three digits; whole numbers without a fraction."""
    digits = 0 if value == int(value) or value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}".rstrip()
