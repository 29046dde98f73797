"""Health checks of load balancers of type vm."""

import pytest

from devenv.harvester.probes import Check, Tally


@pytest.mark.parametrize(
    ("results", "verdicts"),
    [
        ("++++", [None, True, None, True]),
        ("---", [None, None, False]),
        ("+-+-", [None, None, None, None]),
        ("--+---", [None, None, None, None, None, False]),
        ("------", [None, None, False, None, None, False]),
    ],
)
def test_verdicts_need_a_row_of_results_and_are_repeated(results: str, verdicts: list[bool | None]) -> None:
    tally = Tally(success=2, failure=3)
    assert [tally.count(good=result == "+") for result in results] == verdicts


def test_check_without_thresholds_uses_the_controllers_own() -> None:
    assert Check.of({"healthCheck": {"port": 1}}) == Check(1, success=1, failure=3, period=5, timeout=3)
    assert Check.of({"healthCheck": {"port": 0}}) is None
    assert Check.of({}) is None
