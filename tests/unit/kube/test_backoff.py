"""Growing pauses between tries."""

from __future__ import annotations

import pytest

from harvester_ccm.kube.backoff import backoff


@pytest.mark.parametrize(
    ("failures", "shortest", "longest"), [(1, 0.5, 1), (2, 1, 1.5), (5, 8, 8.5), (9, 60, 60), (5000, 60, 60)]
)
def test_pause_doubles_is_a_little_random_and_capped(failures: int, shortest: float, longest: float) -> None:
    pauses = {backoff(failures, first=0.5, longest=60) for _ in range(50)}

    assert all(shortest <= pause <= longest for pause in pauses)
    assert (len(pauses) > 1) == (shortest != longest)
