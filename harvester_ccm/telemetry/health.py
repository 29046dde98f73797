"""Health checks of this process, and the text of the responses, in the form that Kubernetes components use.

A check reads plain state, returns at once, and returns None or the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from harvester_ccm.errors import CredentialError, Forbidden, Unauthorized
from harvester_ccm.kube.flowcontrol import loop_time
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.lease import LeaderElector
from harvester_ccm.telemetry.metrics import Metrics

LIVE: Final = "livez"
"""Endpoint for whether the process works. If it does not, the kubelet restarts it."""
READY: Final = "readyz"
"""Endpoint for whether the process can do its work now."""
RENEWAL_GRACE_SECONDS: Final = 20.0
"""A holder that still runs so long after the end of its unrenewed Lease is broken."""

Check = Callable[[], str | None]
Caches = Sequence[Informer[Any]]


class HealthRegistry:
    """Checks by name, in the order in which they were added. ``ping`` is the first and always passes."""

    def __init__(self) -> None:
        self._checks: dict[str, dict[str, Check]] = {LIVE: {}, READY: {}}
        self.add("ping", lambda: None, LIVE, READY)

    def add(self, name: str, check: Check, *endpoints: str) -> None:
        """Add a check to endpoints."""
        for endpoint in endpoints:
            self._checks[endpoint][name] = check

    def problems(self, endpoint: str) -> dict[str, str | None]:
        """Run all checks of an endpoint. Return the problem of each, None if the check passes."""
        return {name: check() for name, check in self._checks[endpoint].items()}

    def show(self, metrics: Metrics) -> None:
        """Set the metric of the health checks."""
        for endpoint in self._checks:
            for name, problem in self.problems(endpoint).items():
                metrics.healthcheck.labels(name, endpoint).set(problem is None)

    def follow_caches(self, *, guest: Caches, harvester: Caches) -> None:
        """Be ready only while all caches are synced and their servers respond."""
        caches = (*guest, *harvester)
        self.add("caches-synced", lambda: _never_listed(caches), READY)
        self.add("guest-reachable", lambda: _errors(guest, rejected=False), READY)
        self.add("guest-credential", lambda: _errors(guest, rejected=True), READY)
        self.add("harvester-reachable", lambda: _errors(harvester, rejected=False), READY)
        self.add("harvester-credential", lambda: _errors(harvester, rejected=True), READY)

    def follow_lease(self, elector: LeaderElector, lease_seconds: float) -> None:
        """Be neither live nor ready while this process holds the Lease, cannot renew it, and does not stop."""

        def check() -> str | None:
            late = loop_time() - elector.renewed_at
            is_late = elector.leading and late > lease_seconds + RENEWAL_GRACE_SECONDS
            return f"the Lease is held and was not renewed for {late:.0f} s" if is_late else None

        self.add("leaderElection", check, LIVE, READY)


def _never_listed(caches: Caches) -> str | None:
    names = ", ".join(cache.name for cache in caches if not cache.synced)
    return f"never listed: {names}" if names else None


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
