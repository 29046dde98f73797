"""Liveness and readiness, and the text of the responses."""

from typing import Any

import pytest

from harvester_ccm.kube.errors import (
    Answer,
    CredentialError,
    Forbidden,
    KubeError,
    ServerError,
    Unauthorized,
    Unreachable,
)
from harvester_ccm.telemetry.health import LIVE, READY, HealthRegistry, summary
from tests.unit.telemetry.states import CacheState

GOOD = {"ping": True, "caches-synced": True}
BAD = {"ping": True, "harvester-reachable": False}


def failed(health: HealthRegistry, endpoint: str) -> set[str]:
    return {name for name, passed in health.results(endpoint).items() if not passed}


def answer(status: int, message: str) -> Answer:
    return Answer(status, "", message)


async def test_caches_that_are_not_synced_are_not_ready() -> None:
    services: Any = CacheState("guest/services")
    balancers: Any = CacheState("harvester/loadbalancers")
    health = HealthRegistry()
    health.follow_caches(guest=[services], harvester=[balancers])
    assert failed(health, READY) == set()

    services.synced = False
    assert failed(health, LIVE) == set()
    assert failed(health, READY) == {"caches-synced"}
    assert health.samples()["caches-synced", "readyz"] == 0
    assert health.samples()["ping", "livez"] == 1


@pytest.mark.parametrize(
    ("problem", "check"),
    [
        (Unreachable("no answer"), "harvester-reachable"),
        (ServerError(answer(500, "etcd is away")), "harvester-reachable"),
        (Unauthorized(answer(401, "who?")), "harvester-credential"),
        (Forbidden(answer(403, "cannot list")), "harvester-credential"),
        (CredentialError("/token: no such file"), "harvester-credential"),
    ],
)
async def test_rejected_credential_is_not_an_unreachable_server(problem: KubeError, check: str) -> None:
    cache: Any = CacheState(problem=problem)
    health = HealthRegistry()
    health.follow_caches(guest=[], harvester=[cache])
    assert failed(health, READY) == {check}


def test_summary_names_failed_checks() -> None:
    passed = "[+]ping ok\n[+]caches-synced ok\nreadyz check passed\n"
    assert summary("healthz", GOOD, verbose=False) == (True, "ok")
    assert summary("readyz", GOOD, verbose=True) == (True, passed)
    failed_text = "[+]ping ok\n[-]harvester-reachable failed: reason withheld\nreadyz check failed\n"
    for verbose in (True, False):
        assert summary("readyz", BAD, verbose=verbose) == (False, failed_text)
