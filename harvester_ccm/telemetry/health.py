"""Health checks of this process, and the text of the responses, in the form that Kubernetes components use.

A check reads plain state, returns at once, and returns None or the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from harvester_ccm.errors import CredentialError, Forbidden, Unauthorized
from harvester_ccm.kube.flowcontrol import loop_time
from harvester_ccm.kube.informer import SILENCE_SECONDS, Informer
from harvester_ccm.kube.lease import LeaderElector
from harvester_ccm.telemetry.metrics import Metrics, Queue

STALE_SECONDS: Final = 2 * SILENCE_SECONDS
"""A synced cache that received nothing from its server for longer no longer follows its collection."""
RENEWAL_GRACE_SECONDS: Final = 20.0
"""A holder that still runs so long after the end of its unrenewed Lease is broken."""
STUCK_SECONDS: Final = 600.0
"""No reconcile takes so long: every request has a time limit of seconds."""

Check = Callable[[], str | None]
Caches = Sequence[Informer[Any]]


class Aspect(StrEnum):
    """What a check is about; the value is the endpoint that reports it."""

    LIVE = "livez"
    """Whether the process works. If it does not, the kubelet restarts it."""
    READY = "readyz"
    """Whether the process can do its work now."""


class HealthRegistry:
    """Checks by name, in the order in which they were added. ``ping`` is the first and always passes."""

    def __init__(self) -> None:
        self._checks: dict[Aspect, dict[str, Check]] = {aspect: {} for aspect in Aspect}
        self.add("ping", lambda: None, *Aspect)

    def add(self, name: str, check: Check, *aspects: Aspect) -> None:
        """Add a check."""
        for aspect in aspects:
            self._checks[aspect][name] = check

    def problems(self, aspect: Aspect) -> dict[str, str | None]:
        """Run all checks of an aspect. Return the problem of each, None if the check passes."""
        return {name: check() for name, check in self._checks[aspect].items()}

    def show(self, metrics: Metrics) -> None:
        """Set the metric of the health checks."""
        for aspect in Aspect:
            for name, problem in self.problems(aspect).items():
                metrics.healthcheck.labels(name, aspect).set(problem is None)

    def follow_caches(self, *, guest: Caches, harvester: Caches) -> None:
        """Be ready only while all caches are synced and current."""
        caches = (*guest, *harvester)
        ready: dict[str, Check] = {
            "caches-synced": lambda: _never_listed(caches),
            "watches-alive": lambda: _stale(caches),
            "guest-reachable": lambda: _errors(guest, rejected=False),
            "guest-credential": lambda: _errors(guest, rejected=True),
            "harvester-reachable": lambda: _errors(harvester, rejected=False),
            "harvester-credential": lambda: _errors(harvester, rejected=True),
        }
        for name, check in ready.items():
            self.add(name, check, Aspect.READY)

    def follow_lease(self, elector: LeaderElector, lease_seconds: float) -> None:
        """Be neither live nor ready while this process holds the Lease, cannot renew it, and does not stop."""

        def check() -> str | None:
            late = loop_time() - elector.renewed_at
            is_late = elector.leading and late > lease_seconds + RENEWAL_GRACE_SECONDS
            return f"the Lease is held and was not renewed for {late:.0f} s" if is_late else None

        self.add("leaderElection", check, *Aspect)

    def follow_controller(self, name: str, queue: Queue) -> None:
        """Be live only while no reconcile of the controller, named as in ``--controllers``, is stuck."""

        def check() -> str | None:
            seconds = queue.longest_seconds
            return f"a reconcile has taken {seconds:.0f} s" if seconds > STUCK_SECONDS else None

        self.add(name, check, Aspect.LIVE)


def _never_listed(caches: Caches) -> str | None:
    names = ", ".join(cache.name for cache in caches if not cache.synced)
    return f"never listed: {names}" if names else None


def _stale(caches: Caches) -> str | None:
    ages = {cache.name: loop_time() - cache.last_contact for cache in caches if cache.synced}
    stale = ", ".join(f"{name} for {age:.0f} s" for name, age in ages.items() if age > STALE_SECONDS)
    return f"nothing received for {stale}" if stale else None


def _errors(caches: Caches, *, rejected: bool) -> str | None:
    """Return the errors of the caches that concern our credential, or the others."""
    errors = [(cache.name, cache.problem) for cache in caches if cache.problem is not None]
    rejections = (Unauthorized, Forbidden, CredentialError)
    return "; ".join(f"{name}: {one}" for name, one in errors if isinstance(one, rejections) is rejected) or None


def summary(endpoint: str, problems: Mapping[str, str | None], *, verbose: bool) -> tuple[bool, str]:
    """Return whether all checks of an endpoint pass, and the text of the response.

    The text does not contain the problems, because every client can read it.
    """
    passed = not any(problems.values())
    if passed and not verbose:
        return True, "ok"
    lines = [f"[-]{name} failed: reason withheld" if one else f"[+]{name} ok" for name, one in problems.items()]
    return passed, "\n".join([*lines, f"{endpoint} check {'passed' if passed else 'failed'}\n"])
