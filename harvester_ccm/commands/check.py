"""One line of a preflight: what was looked at, what came of it, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

FLAGS: Final = "flags"
BOTH: Final = "both"
"""Where neither cluster alone is looked at."""


class Result(StrEnum):
    """What came of a check, in the words of the table."""

    OK = "ok"
    WARNING = "warning"
    """It works, or the rest does."""
    FAILED = "FAILED"
    SKIPPED = "skipped"
    """Could not be looked at, for the reason of a failure above."""


@dataclass(frozen=True)
class Check:
    """One check that was made."""

    where: str
    """``flags``, ``harvester``, ``guest`` or ``both``."""
    name: str
    result: Result
    detail: str
    advice: str = ""
    """What to do; empty when nothing is."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """More for scripts."""

    def document(self) -> dict[str, object]:
        """Return the check for scripts."""
        document: dict[str, object] = {
            "where": self.where,
            "check": self.name,
            "result": self.result.lower(),
            "detail": self.detail,
            "advice": self.advice or None,
        }
        return {**document, **self.facts}


def ok(where: str, name: str, detail: str) -> Check:
    """Return a check that found all right."""
    return Check(where, name, Result.OK, detail)


def warning(where: str, name: str, detail: str, advice: str) -> Check:
    """Return a check that found something to look at."""
    return Check(where, name, Result.WARNING, detail, advice)


def failed(where: str, name: str, detail: str, advice: str) -> Check:
    """Return a check that found what keeps the program from working."""
    return Check(where, name, Result.FAILED, detail, advice)


def skipped(where: str, name: str, detail: str) -> Check:
    """Return a check that could not be made."""
    return Check(where, name, Result.SKIPPED, detail)
