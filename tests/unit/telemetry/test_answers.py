"""Health answers, word for word as Kubernetes components give them."""

from __future__ import annotations

import pytest

from harvester_ccm.telemetry.answers import HttpAnswer, single, summary
from harvester_ccm.telemetry.health import Aspect, CheckResult, HealthRegistry
from harvester_ccm.telemetry.server import is_open

GOOD = (CheckResult("ping", None), CheckResult("leaderElection", None))
BAD = (CheckResult("ping", None), CheckResult("harvester-reachable", "https://10.0.0.1: connection refused"))


def text(answer: HttpAnswer) -> tuple[int, str]:
    return answer.status, answer.body.decode()


def test_all_is_well() -> None:
    assert text(summary("healthz", GOOD, verbose=False)) == (200, "ok")
    assert text(summary("readyz", GOOD, verbose=True)) == (
        200,
        "[+]ping ok\n[+]leaderElection ok\nreadyz check passed\n",
    )


@pytest.mark.parametrize("verbose", [True, False])
def test_a_failure_is_told_without_its_reason(verbose: bool) -> None:
    assert text(summary("readyz", BAD, verbose=verbose)) == (
        500,
        "[+]ping ok\n[-]harvester-reachable failed: reason withheld\nreadyz check failed\n",
    )


def test_a_check_can_be_excluded() -> None:
    assert text(summary("readyz", BAD, verbose=False, exclude=["harvester-reachable"])) == (200, "ok")
    assert text(summary("readyz", BAD, verbose=True, exclude=["harvester-reachable"])) == (
        200,
        "[+]ping ok\n[+]harvester-reachable excluded: ok\nreadyz check passed\n",
    )


def test_excluding_what_does_not_exist_is_told() -> None:
    answer = summary("livez", GOOD, verbose=True, exclude=["b", "a", "ping"])

    assert answer.status == 200
    assert answer.body.decode().splitlines() == [
        "[+]ping excluded: ok",
        "[+]leaderElection ok",
        'warn: some health checks cannot be excluded: no matches for "a", "b"',
        "livez check passed",
    ]


def test_one_check_says_why_to_those_who_may_know() -> None:
    assert text(single(GOOD[0], explain=True)) == (200, "ok")
    assert text(single(BAD[1], explain=True)) == (
        500,
        "internal server error: https://10.0.0.1: connection refused\n",
    )
    assert text(single(BAD[1], explain=False)) == (500, "internal server error: reason withheld\n")


def test_checks_belong_to_what_they_are_about() -> None:
    health = HealthRegistry()
    health.add("both", lambda: None, *Aspect)
    health.add("ready", lambda: "not yet", Aspect.READY)

    assert health.results(Aspect.LIVE) == (CheckResult("ping", None), CheckResult("both", None))
    assert health.results(Aspect.READY) == (
        CheckResult("ping", None),
        CheckResult("both", None),
        CheckResult("ready", "not yet"),
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/healthz", True), ("/healthz/ping", False), ("/open/", True), ("/open/a/b", True), ("/open", False)],
)
def test_open_paths(path: str, expected: bool) -> None:
    assert is_open(path, ["/healthz", "/open/*"]) is expected
    assert is_open(path, ["*"])
    assert not is_open(path, [])
