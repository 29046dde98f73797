"""When this process is live and ready."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from harvester_ccm.errors import Answer, CCMError, CredentialError, Forbidden, ServerError, Unauthorized, Unreachable
from harvester_ccm.telemetry import health
from harvester_ccm.telemetry.health import CheckResult, check_text, summary

NOW = 10_000.0


@dataclass
class Cache:
    """An informer's state."""

    name: str = "harvester/loadbalancers"
    synced: bool = True
    problem: CCMError | None = None
    restarts: int = 0
    last_contact: float = NOW

    def __len__(self) -> int:
        return 0


@dataclass
class Candidate:
    """A leader elector's state."""

    leading: bool
    renewed_at: float


def answer(status: int, message: str) -> Answer:
    return Answer(status, "", message, "GET /x")


def test_all_is_well() -> None:
    caches: list[Any] = [Cache(), Cache("guest/services")]
    assert health.caches_synced(caches) is None
    assert health.watches_alive(caches, NOW + 299) is None
    assert health.server_reachable(caches) is None
    assert health.credential_accepted(caches) is None


def test_caches_that_were_never_filled_are_named() -> None:
    caches: list[Any] = [Cache(), Cache("guest/services", synced=False), Cache("guest/nodes", synced=False)]

    assert health.caches_synced(caches) == "never listed: guest/services, guest/nodes"


def test_a_watch_that_says_nothing_is_dead() -> None:
    caches: list[Any] = [Cache(), Cache("guest/services", last_contact=NOW - 301)]

    assert health.watches_alive(caches, NOW) == "nothing heard of guest/services for 301 s"


def test_a_cache_that_was_never_filled_is_told_once() -> None:
    caches: list[Any] = [Cache(synced=False, last_contact=float("-inf"))]
    assert health.watches_alive(caches, NOW) is None


@pytest.mark.parametrize(
    ("problem", "reachable", "accepted"),
    [
        (Unreachable("no answer"), "harvester/loadbalancers: no answer", None),
        (ServerError(answer(500, "etcd is away")), "harvester/loadbalancers: etcd is away", None),
        (Unauthorized(answer(401, "who?")), None, "harvester/loadbalancers: who?"),
        (Forbidden(answer(403, "cannot list")), None, "harvester/loadbalancers: cannot list"),
        (CredentialError("/token: no such file"), None, "harvester/loadbalancers: /token: no such file"),
    ],
)
def test_a_refused_credential_is_not_an_unreachable_server(
    problem: CCMError, reachable: str | None, accepted: str | None
) -> None:
    caches: list[Any] = [Cache(problem=problem)]
    assert health.server_reachable(caches) == reachable
    assert health.credential_accepted(caches) == accepted


LEASES: Mapping[str, tuple[Candidate, str | None]] = {
    "leader that renews": (Candidate(True, NOW - 2), None),
    "leader that has just stopped to renew": (Candidate(True, NOW - 35), None),
    "leader that should be gone": (Candidate(True, NOW - 36), "the Lease is held and was not renewed for 36 s"),
    "standby": (Candidate(False, float("-inf")), None),
}


@pytest.mark.parametrize(("candidate", "expected"), LEASES.values(), ids=LEASES.keys())
def test_the_lease_counts_only_for_its_holder(candidate: Any, expected: str | None) -> None:
    assert health.lease_renewed(candidate, 15.0, NOW) == expected


def test_work_that_never_ends_is_told() -> None:
    assert health.not_stuck(600) is None
    assert health.not_stuck(601) == "one object is being worked on for 601 s"


GOOD = (CheckResult("ping", None), CheckResult("leaderElection", None))
BAD = (CheckResult("ping", None), CheckResult("harvester-reachable", "https://10.0.0.1: connection refused"))


def test_summary_names_failed_checks_without_their_problems() -> None:
    assert summary("healthz", GOOD, verbose=False) == (True, "ok")
    assert summary("readyz", GOOD, verbose=True) == (True, "[+]ping ok\n[+]leaderElection ok\nreadyz check passed\n")
    failed = "[+]ping ok\n[-]harvester-reachable failed: reason withheld\nreadyz check failed\n"
    assert summary("readyz", BAD, verbose=True) == summary("readyz", BAD, verbose=False) == (False, failed)


def test_summary_without_excluded_checks() -> None:
    assert summary("readyz", BAD, verbose=False, exclude=["harvester-reachable"]) == (True, "ok")
    passed, text = summary("livez", GOOD, verbose=True, exclude=["b", "a", "ping"])
    assert passed
    assert text.splitlines() == [
        "[+]ping excluded: ok",
        "[+]leaderElection ok",
        'warn: some health checks cannot be excluded: no matches for "a", "b"',
        "livez check passed",
    ]


def test_problem_is_shown_only_to_authorized_callers() -> None:
    assert check_text(GOOD[0], explain=True) == "ok"
    assert check_text(BAD[1], explain=True) == "internal server error: https://10.0.0.1: connection refused\n"
    assert check_text(BAD[1], explain=False) == "internal server error: reason withheld\n"
