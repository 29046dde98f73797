"""A measured number beside its target: verdicts, ratios and the printed table. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

HEADINGS: Final = ("", "measured", "target", "of target", "Go provider", "of Go", "")


@dataclass(frozen=True)
class Measurement:
    """One number."""

    what: str
    value: float
    unit: str = ""
    """Printed behind the number; empty for counts."""
    target: float | None = None
    """The largest value that is good enough, in the same unit."""
    go: float | None = None
    """What the Go provider needs for the same, in the same unit, where that is known."""

    @property
    def verdict(self) -> str:
        """``OK``, by how much the target was missed, or nothing without a target."""
        if self.target is None:
            return ""
        if self.value <= self.target:
            return "OK"
        if not self.target:
            return f"MISSED by {number(self.value)}"
        return f"MISSED by {(self.value / self.target - 1) * 100:.0f} %"

    def row(self) -> tuple[str, ...]:
        """Return the cells under HEADINGS."""
        return (
            self.what,
            _with_unit(self.value, self.unit),
            "" if self.target is None else f"<= {_with_unit(self.target, self.unit)}",
            _ratio(self.value, self.target),
            "" if self.go is None else _with_unit(self.go, self.unit),
            _ratio(self.value, self.go),
            self.verdict,
        )


@dataclass(frozen=True)
class Section:
    """What one benchmark found."""

    title: str
    measurements: Sequence[Measurement]
    remarks: Sequence[str] = field(default=())
    """Sentences under the numbers."""

    def text(self) -> str:
        """Return the section as a table."""
        rows = columns([(*row[:-1], "") for row in (HEADINGS, *(one.row() for one in self.measurements))])
        verdicts = ("", *(one.verdict for one in self.measurements))
        lines = [f"{row}{verdict}".rstrip() for row, verdict in zip(rows, verdicts, strict=True)]
        return "\n".join([self.title, *(f"  {line}" for line in (*lines, *self.remarks))])


def columns(rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return rows of equally many cells as lines: the first cell to the left, all others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return tuple(
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )


def missed(sections: Sequence[Section]) -> list[str]:
    """Return a line for every target that was missed."""
    return [
        f"{section.title}: {one.what}: {one.verdict}"
        for section in sections
        for one in section.measurements
        if one.verdict.startswith("MISSED")
    ]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least ``share`` (0 to 1) of the values do not exceed. Raises ValueError."""
    if not values:
        raise ValueError("no values to take a percentile of")
    ordered = sorted(values)
    rank = -int(-share * len(ordered) // 1)
    return ordered[min(max(rank, 1), len(ordered)) - 1]


def number(value: float) -> str:
    """Return the value with about three digits; whole numbers without a fraction."""
    if value == int(value):
        return str(int(value))
    if abs(value) < 10:
        return f"{value:.2f}"
    return f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def _with_unit(value: float, unit: str) -> str:
    return f"{number(value)} {unit}".rstrip()


def _ratio(value: float, base: float | None) -> str:
    return f"{value / base:.2f} ×" if base else ""
