"""Every kind of fault, one after the other, on one run of the program: nothing is lost, and nothing is left."""

from __future__ import annotations

import pytest

from benchmarks.soak import CONNECTIONS, QUICK, Soak
from devenv.harvester import FAST
from devenv.stage import Stage

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.usefixtures("lan"),
    pytest.mark.parametrize("pace", [FAST], ids=["fast"]),
]


@pytest.mark.timeout(900)
async def test_after_all_faults_everything_is_served_and_nothing_has_grown(stage: Stage) -> None:
    """All that the soak creates is served, or it ends with an error; times depend on the machine and are not asked."""
    section = await Soak(stage, QUICK).measure()
    numbers = {one.what: one.value for one in section.measurements}
    assert numbers["growth of other descriptors"] == 0
    assert numbers["connections to API servers at the end"] <= CONNECTIONS
    assert numbers["growth of tasks"] == 0
    assert sum(what.startswith("served: ") for what in numbers) == 17
