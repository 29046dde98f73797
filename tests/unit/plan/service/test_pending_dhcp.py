"""A DHCP address that does not come: how long nothing is said, what is said then, and that it is said once."""

from __future__ import annotations

import pytest

from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES, KUBE_VIP_HOST
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.outcome import Done, EventMessage, Wait
from harvester_ccm.names import (
    IPAM,
    LB_CLUSTER,
    LB_OWNER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    Reason,
)
from harvester_ccm.plan.service.decision import plan_service
from harvester_ccm.plan.service.steps import EmitEvent, ServicePlan
from tests.unit.plan.service.plans import situation_of
from tests.worlds.builders import load_balancer, service

CLUSTER = ClusterIdentity("demo", "vms", uid="cluster-uid")


def plan_after(waited: float, *, address: str | None = None, announced_before: bool = False) -> ServicePlan:
    """Return the plan for a DHCP Service that Harvester has served so long ago."""
    balancer = load_balancer(
        labels={LB_CLUSTER: "demo", LB_SERVICE_NAMESPACE: "shop", LB_SERVICE_NAME: "web"},
        annotations={LB_OWNER: "cluster-uid"},
        spec={"ipam": "dhcp"},
        ip="0.0.0.0",
    )
    marks = {KUBE_VIP_HOST: "node-1"} if announced_before else {}
    if address is not None:
        marks[KUBE_VIP_ADDRESSES] = "0.0.0.0"
    asked = service(annotations={IPAM: "dhcp", **marks}, ours=True, address=address)
    return plan_service(situation_of(asked, balancer, waited=waited))


def told(plan: ServicePlan, reason: Reason = Reason.ADDRESS_PENDING) -> list[EventMessage]:
    return [step.event for step in plan.steps if isinstance(step, EmitEvent) and step.event.reason == reason]


@pytest.mark.parametrize("waited", [0.0, 29.9])
def test_nothing_is_said_while_the_server_may_still_answer(waited: float) -> None:
    plan = plan_after(waited)

    assert told(plan) == []
    assert plan.outcome == Wait("dhcp", 30.0 - waited)


@pytest.mark.parametrize("waited", [30.0, 3600.0])
def test_then_one_warning_says_what_to_look_at_and_the_wait_goes_on(waited: float) -> None:
    plan = plan_after(waited)

    (note,) = told(plan)
    assert note.type == "Warning"
    for words in ("DHCP", "kube-vip pods run", "macvlan"):
        assert words in note.message
    assert plan.outcome == Wait("dhcp")
    assert told(plan) == told(plan_after(7200.0))


def test_kube_vip_that_has_let_go_of_an_address_is_made_to_ask_again() -> None:
    plan = plan_after(0.0, announced_before=True)

    assert plan.outcome == Wait("endpoints", 1.0)


def test_late_answer_ends_it() -> None:
    plan = plan_after(3600.0, address="192.0.2.7")

    assert told(plan) == []
    assert [note.message for note in told(plan, Reason.ENSURED)] == [
        "Ensured load balancer, address 192.0.2.7 from DHCP"
    ]
    assert plan.outcome == Done()
