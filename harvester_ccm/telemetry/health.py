"""Health checks of this process, and the text of the responses, in the form that Kubernetes components use."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from harvester_ccm.kube.errors import CredentialError, Forbidden, Unauthorized
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.reload import CredentialReloader

LIVE: Final = "livez"
"""Endpoint for whether the process works. If it does not, the kubelet restarts it."""
READY: Final = "readyz"
"""Endpoint for whether the process can do its work now."""
_REJECTIONS: Final = (Unauthorized, Forbidden, CredentialError)

Check = Callable[[], bool]
"""Reads plain state and returns at once whether the check passes."""
Caches = Sequence[Informer[Any]]


class HealthRegistry:
    """Checks of readiness by name, in the order in which they were added. Liveness has only ``ping``, which passes."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}

    def add(self, name: str, check: Check) -> None:
        """Add a check of readiness."""
        self._checks[name] = check

    def results(self, endpoint: str) -> dict[str, bool]:
        """Run all checks of an endpoint. Return which pass."""
        results = {"ping": True}
        if endpoint == READY:
            results.update({name: check() for name, check in self._checks.items()})
        return results

    def samples(self) -> dict[tuple[str, ...], float]:
        """Run all checks. Return 1 for each that passes and 0 for the others, by its name and endpoint."""
        return {
            (name, endpoint): float(passed)
            for endpoint in (LIVE, READY)
            for name, passed in self.results(endpoint).items()
        }

    def follow_caches(self, *, guest: Caches, harvester: Caches) -> None:
        """Be ready only while all caches are synced and their servers respond."""
        self.add("caches-synced", lambda: all(cache.synced for cache in (*guest, *harvester)))
        self.add("guest-reachable", lambda: not _fails(guest, rejected=False))
        self.add("guest-credential", lambda: not _fails(guest, rejected=True))
        self.add("harvester-reachable", lambda: not _fails(harvester, rejected=False))
        self.add("harvester-credential", lambda: not _fails(harvester, rejected=True))

    def follow_files(self, reloaders: Sequence[CredentialReloader]) -> None:
        """Be ready only while the files of the credentials in use can be loaded, without which a restart fails."""
        for reloader in reloaders:
            self.add(f"{reloader.cluster}-credential-file", partial(_is_loadable, reloader))


def _is_loadable(reloader: CredentialReloader) -> bool:
    return not reloader.problem


def _fails(caches: Caches, *, rejected: bool) -> bool:
    """Return whether a cache has an error that concerns the credential (``rejected``), or another error."""
    return any(cache.problem and isinstance(cache.problem, _REJECTIONS) is rejected for cache in caches)


def summary(endpoint: str, results: Mapping[str, bool], *, verbose: bool) -> tuple[bool, str]:
    """Return whether all checks of an endpoint pass, and the text of the response."""
    passed = all(results.values())
    if passed and not verbose:
        return True, "ok"
    lines = [_line(name, is_ok=is_ok) for name, is_ok in results.items()]
    verdict = "passed" if passed else "failed"
    lines.append(f"{endpoint} check {verdict}\n")
    return passed, "\n".join(lines)


def _line(name: str, *, is_ok: bool) -> str:
    if is_ok:
        return f"[+]{name} ok"
    return f"[-]{name} failed: reason withheld"
