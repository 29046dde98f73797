"""Simulated schedules of events: their results, and that the seed alone determines them."""

import os
import subprocess
import sys
from typing import Final

import pytest

from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import LB_RECONCILE
from harvester_ccm.plan.service.allocation.deletion import deletion_write
from harvester_ccm.plan.service.desired import ChangeLoadBalancer, DeleteLoadBalancer
from tests.simulation.actions import LATE, Action, Scenario
from tests.simulation.known import KNOWN, ONE_PORT
from tests.simulation.oracles import FORGOTTEN, UNSEEN
from tests.simulation.schedule import Schedule
from tests.simulation.seeds import ROOT, first_unseen
from tests.simulation.soak import play

GROUPS: Final = 10
FEW, MANY = 1, 18
"""Schedules per group."""
CLOSED: Final = Action(0.0, "open_pool", {"to_everybody": False})
CREATED: Final = Action(0.0, "create", {"name": "a", "ports": ONE_PORT, "annotations": {}})


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.guarantee("Deleting a Service leaves nothing in Harvester")
def test_schedule_ends_in_the_desired_state(group: int, *, thorough: bool) -> None:
    first = first_unseen() + group * MANY
    for number in range(MANY if thorough else FEW):
        seed = str(first + number)
        assert play(seed).wrong == "", f"see it with: make soak SEED={seed}"


@pytest.mark.parametrize("name", KNOWN)
def test_known_schedule_ends_in_the_desired_state(name: str) -> None:
    assert Schedule(KNOWN[name]).run().wrong == ""


def _closed_pool(seed: str, *actions: Action) -> Scenario:
    return Scenario(seed, 1, 0, (CLOSED, CREATED, *actions))


def test_allocation_that_could_not_be_seen_may_stay() -> None:
    """Harvester allocates in a pool that is opened during a deletion that is based on its last response."""
    opened = Action(0.05, "open_pool", {"to_everybody": True})
    result = Schedule(_closed_pool("63723 2", Action(1.5, "delete", {"name": "a"}), opened)).run()
    assert result.wrong == ""
    assert result.met[UNSEEN] == 1


@pytest.mark.parametrize(
    "actions",
    [
        pytest.param(
            (CREATED, Action(0.09, "stop_controllers", {"seconds": 1}), Action(0.1, "make_pool", {"name": LATE})),
            id="stopped before it recorded the address, and another pool fits then",
        ),
        pytest.param(
            (
                CLOSED,
                CREATED,
                Action(1.5, "open_pool", {"to_everybody": True}),
                Action(0.65, "make_pool", {"name": LATE}),
            ),
            id="another pool fits on a copy from before the first allocation",
        ),
        pytest.param(
            (
                CREATED,
                Action(0.05, "make_pool", {"name": LATE}),
                Action(0.08, "resize_pool", {"by": 2}),
                Action(0.025, "delete", {"name": "a"}),
            ),
            id="another pool fits on an old copy, and the service is deleted",
        ),
    ],
)
def test_address_that_harvester_forgets_may_stay_allocated(actions: tuple[Action, ...]) -> None:
    results = (Schedule(Scenario(str(seed), 2, 0, actions)).run() for seed in range(100))
    assert next(result for result in results if result.met[FORGOTTEN]).wrong == ""


def test_allocation_that_one_more_search_shows_may_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Action(1.5, "open_pool", {"to_everybody": True})
    scenario = _closed_pool("63723 1", opened, Action(0.6, "delete", {"name": "a"}))
    result = Schedule(scenario).run()
    assert (result.wrong, result.met[UNSEEN]) == ("", 0)

    def unasked(balancer: LoadBalancer) -> DeleteLoadBalancer | ChangeLoadBalancer | None:
        write = deletion_write(balancer)
        asks = isinstance(write, ChangeLoadBalancer) and LB_RECONCILE in write.annotations
        return DeleteLoadBalancer(balancer) if asks else write

    monkeypatch.setattr("harvester_ccm.plan.service.allocation.deletion.deletion_write", unasked)
    assert "is allocated to" in Schedule(scenario).run().wrong


def test_seed_alone_determines_a_schedule() -> None:
    # Another process has other addresses in memory and another order of sets.
    code = "from tests.simulation.soak import play; print(*(play(str(seed)).digest for seed in range(3)))"
    found = [play(str(seed)).digest for seed in range(3)]
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {**os.environ, "PYTHONHASHSEED": other, "PYTHONPATH": str(ROOT)}
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    assert answer.stdout.split() == found
