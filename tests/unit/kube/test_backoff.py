"""Delays between attempts."""

from __future__ import annotations

import pytest

from harvester_ccm.errors import UnexpectedAnswer
from harvester_ccm.kube.flowcontrol import pause_after


@pytest.mark.parametrize(
    ("failures", "shortest", "longest"), [(1, 0.5, 1), (2, 1, 1.5), (5, 8, 8.5), (9, 60, 60), (5000, 60, 60)]
)
def test_pause_doubles_is_a_little_random_and_capped(failures: int, shortest: float, longest: float) -> None:
    pauses = {pause_after(None, failures, first=0.5, longest=60) for _ in range(50)}

    assert all(shortest <= pause <= longest for pause in pauses)
    assert (len(pauses) > 1) == (shortest != longest)


@pytest.mark.parametrize(("asked", "expected"), [(30.0, 30.0), (None, 2.0)])
def test_retry_after_of_the_server_is_the_delay(asked: float | None, expected: float) -> None:
    page = UnexpectedAnswer("a page")
    page.retry_after = asked

    assert pause_after(page, failures=5, first=1, longest=2) == expected
