"""What makes this process live and ready: checks by name, and the functions that they are made of.

A check looks at plain state and says what is wrong, or None while all is well. All are instant. Times are the event
loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from harvester_ccm.errors import CCMError, CredentialError, Forbidden, Unauthorized
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.informer import SILENCE_SECONDS, Informer
from harvester_ccm.kube.lease import LeaderElector
from harvester_ccm.telemetry.queues import Queue

STALE_SECONDS: Final = 2 * SILENCE_SECONDS
"""A cache whose server has not been heard of for so long does not follow its collection any more."""
RENEWAL_GRACE: Final = 20.0
"""So long after the end of an unrenewed Lease a holder that still runs counts as broken."""
STUCK_SECONDS: Final = 600.0
"""No object takes this long: every request has a time limit of seconds."""

Check = Callable[[], str | None]
"""Returns None while all is well, else what is wrong, in plain words. Must return at once."""


class Aspect(StrEnum):
    """What a check is about; the value is the path that answers it."""

    LIVE = "livez"
    """Whether this process works; a process that does not is restarted."""
    READY = "readyz"
    """Whether this process can do its work now."""


class CheckResult(Struct, frozen=True):
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

    def follow_caches(self, *, guest: Sequence[Informer[Any]], harvester: Sequence[Informer[Any]]) -> None:
        """Be ready only while all of these can be read."""
        caches = (*guest, *harvester)
        ready: dict[str, Check] = {
            "caches-synced": lambda: caches_synced(caches),
            "watches-alive": lambda: watches_alive(caches, loop_time()),
            "guest-reachable": lambda: server_reachable(guest),
            "guest-credential": lambda: credential_accepted(guest),
            "harvester-reachable": lambda: server_reachable(harvester),
            "harvester-credential": lambda: credential_accepted(harvester),
        }
        for name, check in ready.items():
            self.add(name, check, Aspect.READY)

    def follow_lease(self, candidate: LeaderElector, lease_seconds: float) -> None:
        """Be neither live nor ready when this process holds the Lease, cannot renew it, and does not stop."""
        self.add("leaderElection", lambda: lease_renewed(candidate, lease_seconds, loop_time()), *Aspect)

    def follow_controller(self, name: str, queue: Queue) -> None:
        """Be live only while the controller, named as in ``--controllers``, is not stuck in its queue."""
        self.add(name, lambda: not_stuck(queue.longest_seconds), Aspect.LIVE)

    def results(self, aspect: Aspect) -> tuple[CheckResult, ...]:
        """Run all checks of an aspect."""
        return tuple(CheckResult(name, check()) for name, check in self._checks[aspect].items())


def caches_synced(caches: Iterable[Informer[Any]]) -> str | None:
    """Return which caches were never filled."""
    missing = [cache.name for cache in caches if not cache.synced]
    return f"never listed: {', '.join(missing)}" if missing else None


def watches_alive(caches: Iterable[Informer[Any]], now: float) -> str | None:
    """Return which filled caches have not heard of their server for too long."""
    stale = [
        f"{cache.name} for {now - cache.last_contact:.0f} s"
        for cache in caches
        if cache.synced and now - cache.last_contact > STALE_SECONDS
    ]
    return f"nothing heard of {', '.join(stale)}" if stale else None


def server_reachable(caches: Iterable[Informer[Any]]) -> str | None:
    """Return why a server cannot be used; a refused credential is told by ``credential_accepted``."""
    return _problems(caches, lambda error: not _is_refusal(error))


def credential_accepted(caches: Iterable[Informer[Any]]) -> str | None:
    """Return what the server says against our credential, or why there is none to send."""
    return _problems(caches, _is_refusal)


def lease_renewed(candidate: LeaderElector, lease_seconds: float, now: float) -> str | None:
    """Return whether this process holds the Lease and should have given it up long ago."""
    late = now - candidate.renewed_at
    if candidate.leading and late > lease_seconds + RENEWAL_GRACE:
        return f"the Lease is held and was not renewed for {late:.0f} s"
    return None


def not_stuck(longest_seconds: float) -> str | None:
    """Return whether the work on one object takes longer than any can."""
    if longest_seconds > STUCK_SECONDS:
        return f"one object is being worked on for {longest_seconds:.0f} s"
    return None


def _is_refusal(error: CCMError) -> bool:
    return isinstance(error, Unauthorized | Forbidden | CredentialError)


def _problems(caches: Iterable[Informer[Any]], matches: Callable[[CCMError], bool]) -> str | None:
    found: Sequence[str] = [
        f"{cache.name}: {cache.problem}" for cache in caches if cache.problem is not None and matches(cache.problem)
    ]
    return "; ".join(found) or None
