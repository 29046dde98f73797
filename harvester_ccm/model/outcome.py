"""The four answers of a reconcile. A fifth way out is to raise an error: that is a retry with growing pauses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Done:
    """All is as it should be; look again when something changes."""


@dataclass(frozen=True)
class Wait:
    """Something else must happen first; its event wakes us. Look again after ``at_most`` seconds in any case."""

    reason: str
    at_most: float | None = None


@dataclass(frozen=True)
class Retry:
    """Try again after a fixed time in seconds; not a failure."""

    after: float


@dataclass(frozen=True)
class Refused:
    """The user must change something; the object's next change wakes us."""

    reason: str


Outcome = Done | Wait | Retry | Refused
