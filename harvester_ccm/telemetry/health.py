"""Health of this process: checks by name, and the text of the responses, in the form that Kubernetes components use.

A check reads plain state, returns at once, and returns None or a message. Times are the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from harvester_ccm.errors import CCMError, CredentialError, Forbidden, Unauthorized
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.informer import SILENCE_SECONDS, Informer
from harvester_ccm.kube.lease import LeaderElector
from harvester_ccm.telemetry.queues import Queue

STALE_SECONDS: Final = 2 * SILENCE_SECONDS
"""A synced cache that received nothing from its server for longer no longer follows its collection."""
RENEWAL_GRACE_SECONDS: Final = 20.0
"""A holder that still runs so long after the end of its unrenewed Lease is broken."""
STUCK_SECONDS: Final = 600.0
"""No reconcile takes so long: every request has a time limit of seconds."""

Check = Callable[[], str | None]


class Aspect(StrEnum):
    """What a check is about; the value is the endpoint that reports it."""

    LIVE = "livez"
    """Whether the process works. If it does not, the kubelet restarts it."""
    READY = "readyz"
    """Whether the process can do its work now."""


class CheckResult(Struct, frozen=True):
    """Outcome of one check; ``problem`` is None if it passed."""

    name: str
    problem: str | None


class HealthRegistry:
    """Checks by name, in the order in which they were added. ``ping`` is the first and always passes."""

    def __init__(self) -> None:
        self._checks: dict[Aspect, dict[str, Check]] = {aspect: {} for aspect in Aspect}
        self.add("ping", lambda: None, *Aspect)

    def add(self, name: str, check: Check, *aspects: Aspect) -> None:
        """Add a check."""
        for aspect in aspects:
            self._checks[aspect][name] = check

    def follow_caches(self, *, guest: Sequence[Informer[Any]], harvester: Sequence[Informer[Any]]) -> None:
        """Be ready only while all caches are synced and current."""
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

    def follow_lease(self, elector: LeaderElector, lease_seconds: float) -> None:
        """Be neither live nor ready while this process holds the Lease, cannot renew it, and does not stop."""
        self.add("leaderElection", lambda: lease_renewed(elector, lease_seconds, loop_time()), *Aspect)

    def follow_controller(self, name: str, queue: Queue) -> None:
        """Be live only while no reconcile of the controller, named as in ``--controllers``, is stuck."""
        self.add(name, lambda: not_stuck(queue.longest_seconds), Aspect.LIVE)

    def results(self, aspect: Aspect) -> tuple[CheckResult, ...]:
        """Run all checks of an aspect."""
        return tuple(CheckResult(name, check()) for name, check in self._checks[aspect].items())


def caches_synced(caches: Iterable[Informer[Any]]) -> str | None:
    """Return which caches never synced."""
    missing = [cache.name for cache in caches if not cache.synced]
    return f"never listed: {', '.join(missing)}" if missing else None


def watches_alive(caches: Iterable[Informer[Any]], now: float) -> str | None:
    """Return which synced caches have received nothing from their server for too long."""
    stale = [
        f"{cache.name} for {now - cache.last_contact:.0f} s"
        for cache in caches
        if cache.synced and now - cache.last_contact > STALE_SECONDS
    ]
    return f"nothing heard of {', '.join(stale)}" if stale else None


def server_reachable(caches: Iterable[Informer[Any]]) -> str | None:
    """Return why a server cannot be used, rejected credentials excepted."""
    return _problems(caches, lambda error: not _is_rejection(error))


def credential_accepted(caches: Iterable[Informer[Any]]) -> str | None:
    """Return why the server rejects our credential, or why there is none to send."""
    return _problems(caches, _is_rejection)


def lease_renewed(elector: LeaderElector, lease_seconds: float, now: float) -> str | None:
    """Return a message if this process holds the Lease and should have stopped long ago."""
    late = now - elector.renewed_at
    if elector.leading and late > lease_seconds + RENEWAL_GRACE_SECONDS:
        return f"the Lease is held and was not renewed for {late:.0f} s"
    return None


def not_stuck(longest_seconds: float) -> str | None:
    """Return a message if the reconcile in progress takes longer than any can."""
    return f"one object is being worked on for {longest_seconds:.0f} s" if longest_seconds > STUCK_SECONDS else None


def _is_rejection(error: CCMError) -> bool:
    return isinstance(error, Unauthorized | Forbidden | CredentialError)


def _problems(caches: Iterable[Informer[Any]], matches: Callable[[CCMError], bool]) -> str | None:
    found = [f"{cache.name}: {cache.problem}" for cache in caches if cache.problem and matches(cache.problem)]
    return "; ".join(found) or None


def summary(
    endpoint: str, results: Sequence[CheckResult], *, verbose: bool, exclude: Collection[str] = ()
) -> tuple[bool, str]:
    """Return whether the checks of an endpoint passed, those to ``exclude`` excepted, and the text of the response.

    The text does not contain the problems, because every client can read it.
    """
    passed = all(one.problem is None or one.name in exclude for one in results)
    if passed and not verbose:
        return True, "ok"
    lines = [_line(one, excluded=one.name in exclude) for one in results]
    unknown = sorted(set(exclude) - {one.name for one in results})
    if unknown:
        names = ", ".join(f'"{name}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
    lines.append(f"{endpoint} check {'passed' if passed else 'failed'}\n")
    return passed, "\n".join(lines)


def check_text(result: CheckResult, *, explain: bool) -> str:
    """Return the text of the response about one check; ``explain`` only to authorized callers."""
    if result.problem is None:
        return "ok"
    return f"internal server error: {result.problem if explain else 'reason withheld'}\n"


def _line(result: CheckResult, *, excluded: bool) -> str:
    if excluded:
        return f"[+]{result.name} excluded: ok"
    return f"[+]{result.name} ok" if result.problem is None else f"[-]{result.name} failed: reason withheld"
