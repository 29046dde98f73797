"""A Service that comes back a moment after its VM load balancer went: Harvester still has parts of that one."""

from __future__ import annotations

import msgspec
import pytest

from harvester_ccm.model.outcome import Wait
from harvester_ccm.names import HEALTH_CHECK_PORT, LB_TOUCH, WORKLOAD_TYPE
from harvester_ccm.plan.service.create import COLLECTED_AFTER, REPLACEMENT_PAUSE
from harvester_ccm.plan.service.decision import plan_service
from harvester_ccm.plan.service.steps import ChangeService, CreateLoadBalancer, ServicePlan
from tests.unit.plan.service.plans import situation_of
from tests.worlds.builders import service

VM = {WORKLOAD_TYPE: "vm"}


def plan_after(since_vm_lb: float | None, annotations: dict[str, str], *, waited: float = 0.0) -> ServicePlan:
    """Return the plan for a Service without load balancer whose last VM load balancer went so long ago."""
    asked = service(annotations=annotations)
    return plan_service(situation_of(asked, backends=("vm-1",), waited=waited, since_vm_lb=since_vm_lb))


def touched(plan: ServicePlan) -> bool | None:
    """Return whether the load balancer that is created is to be written once more later; None when none is."""
    for step in plan.steps:
        if isinstance(step, CreateLoadBalancer):
            return LB_TOUCH in msgspec.json.encode(step.body).decode()
    return None


@pytest.mark.parametrize("annotations", [VM, {HEALTH_CHECK_PORT: "80"}, {}], ids=["vm", "checked", "cluster"])
def test_new_load_balancer_waits_for_the_end_of_the_old_ones_parts(annotations: dict[str, str]) -> None:
    plan = plan_after(1.0, annotations)

    # Meanwhile it does not hold up kube-vip.
    assert [type(step) for step in plan.steps] == [ChangeService]
    assert plan.outcome == Wait("switching", REPLACEMENT_PAUSE - 1.0)


@pytest.mark.parametrize(
    ("since_vm_lb", "annotations", "again"),
    [
        pytest.param(REPLACEMENT_PAUSE, VM, True, id="perhaps not collected"),
        pytest.param(COLLECTED_AFTER, VM, False, id="certainly collected"),
        pytest.param(None, VM, False, id="never had one"),
        pytest.param(REPLACEMENT_PAUSE, {}, False, id="nothing to collide with"),
    ],
)
def test_then_it_is_created(since_vm_lb: float | None, annotations: dict[str, str], again: bool) -> None:
    assert touched(plan_after(since_vm_lb, annotations)) is again


def test_time_without_any_load_balancer_counts() -> None:
    assert touched(plan_after(1.0, VM, waited=REPLACEMENT_PAUSE)) is True
