"""What makes this process live and ready: functions from the state of caches, Lease and queues to what is wrong.

All of them are instant and say None while all is well. Times are the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from harvester_ccm.errors import CCMError, CredentialError, Forbidden, Unauthorized
from harvester_ccm.kube.informer import SILENCE

STALE_SECONDS: Final = 2 * SILENCE
"""A cache whose server has not been heard of for so long does not follow its collection any more."""
RENEWAL_GRACE: Final = 20.0
"""So long after the end of an unrenewed Lease a holder that still runs counts as broken."""
STUCK_SECONDS: Final = 600.0
"""No object takes this long: every request has a time limit of seconds."""


class Cache(Protocol):
    """What is asked of an informer."""

    @property
    def name(self) -> str:
        """``cluster/resource``."""

    @property
    def synced(self) -> bool:
        """Whether it was filled at least once."""

    @property
    def problem(self) -> CCMError | None:
        """Why the collection cannot be read at the moment."""

    @property
    def restarts(self) -> int:
        """How often a watch was ended or lost."""

    @property
    def last_contact(self) -> float:
        """Time of the last sign of life of the server."""

    def __len__(self) -> int: ...


class Candidate(Protocol):
    """What is asked of a leader elector."""

    @property
    def leading(self) -> bool:
        """Whether this process holds the Lease."""

    @property
    def renewed_at(self) -> float:
        """Time of the last successful write of the Lease."""


def caches_synced(caches: Iterable[Cache]) -> str | None:
    """Return which caches were never filled."""
    missing = [cache.name for cache in caches if not cache.synced]
    return f"never listed: {', '.join(missing)}" if missing else None


def watches_alive(caches: Iterable[Cache], now: float) -> str | None:
    """Return which filled caches have not heard of their server for too long."""
    stale = [
        f"{cache.name} for {now - cache.last_contact:.0f} s"
        for cache in caches
        if cache.synced and now - cache.last_contact > STALE_SECONDS
    ]
    return f"nothing heard of {', '.join(stale)}" if stale else None


def server_reachable(caches: Iterable[Cache]) -> str | None:
    """Return why a server cannot be used; a refused credential is told by ``credential_accepted``."""
    return _problems(caches, lambda error: not _is_refusal(error))


def credential_accepted(caches: Iterable[Cache]) -> str | None:
    """Return what the server says against our credential, or why there is none to send."""
    return _problems(caches, _is_refusal)


def lease_renewed(candidate: Candidate, lease_seconds: float, now: float) -> str | None:
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


def _problems(caches: Iterable[Cache], matches: Callable[[CCMError], bool]) -> str | None:
    found: Sequence[str] = [
        f"{cache.name}: {cache.problem}" for cache in caches if cache.problem is not None and matches(cache.problem)
    ]
    return "; ".join(found) or None
