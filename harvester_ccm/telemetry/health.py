"""The health checks of one process. A check is a function that looks at plain state and says what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

Check = Callable[[], str | None]
"""Returns None while all is well, else what is wrong, in plain words. Must return at once."""


class Aspect(StrEnum):
    """What a check is about; the value is the path that answers it."""

    LIVE = "livez"
    """Whether this process works; a process that does not is restarted."""
    READY = "readyz"
    """Whether this process can do its work now."""


@dataclass(frozen=True)
class Result:
    """Outcome of one check."""

    name: str
    problem: str | None


class HealthRegistry:
    """Checks by name, in the order in which they were added. ``ping`` is always the first and always succeeds."""

    def __init__(self) -> None:
        self._checks: dict[Aspect, dict[str, Check]] = {aspect: {} for aspect in Aspect}
        self.add("ping", lambda: None, *Aspect)

    def add(self, name: str, check: Check, *aspects: Aspect) -> None:
        """Add a check, or replace the one of this name."""
        for aspect in aspects:
            self._checks[aspect][name] = check

    def results(self, aspect: Aspect) -> tuple[Result, ...]:
        """Run all checks of an aspect."""
        return tuple(Result(name, check()) for name, check in self._checks[aspect].items())
