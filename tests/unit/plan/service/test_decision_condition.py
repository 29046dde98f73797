"""What the condition in a Service's status says of a plan, for each reason to wait and whatever else is told."""

from __future__ import annotations

import inspect
import re

import pytest
from msgspec.structs import replace

from harvester_ccm.model.core import ServiceCondition
from harvester_ccm.model.outcome import Done, EventMessage, Outcome, Refused, Wait, WaitReason
from harvester_ccm.names import LOAD_BALANCER_READY, Reason
from harvester_ccm.plan.service.decision import CAUSES, SERVED, with_condition
from harvester_ccm.plan.service.steps import ChangeService, EmitEvent, ServicePlan
from tests.unit.plan.service.plans import situation_of
from tests.worlds.builders import ADDRESS, allocated, served

LACKING = frozenset(
    {
        WaitReason.QUEUED,
        WaitReason.CREATION_QUEUED,
        WaitReason.NOT_PROCESSED,
        WaitReason.ALLOCATING,
        WaitReason.ANNOUNCING,
        WaitReason.NO_MATCHING_POOL,
        WaitReason.NO_SUCH_POOL,
        WaitReason.POOL_EXHAUSTED,
        WaitReason.DHCP,
        WaitReason.ENDPOINTS,
        WaitReason.NETWORK_DEVICE,
        WaitReason.HARVESTER_UNAVAILABLE,
        WaitReason.PRIMARY,
        WaitReason.NOT_SHARABLE,
        WaitReason.SECONDARIES,
        WaitReason.LEAVING_PRIMARY,
        WaitReason.FOREIGN_LOAD_BALANCER,
        WaitReason.OTHER_CLUSTER_NAME,
        WaitReason.NEW_HARVESTER,
        WaitReason.NODE_PORTS,
        WaitReason.MACHINES,
        WaitReason.OLD_LOAD_BALANCER,
        WaitReason.SWITCHING,
        WaitReason.BOOKING,
        WaitReason.NOT_SERVABLE,
        WaitReason.THROTTLED,
        WaitReason.OTHER,
    }
)
"""What is waited for by a Service that has no load balancer, or has it no longer."""
REFUSALS = {Reason.INVALID_ANNOTATION, Reason.FOREIGN_LOAD_BALANCER}
BESIDE = frozenset(
    {
        Reason.ADDRESS_CHANGED,
        Reason.ADDRESS_NOT_AS_REQUESTED,
        Reason.ANNOTATION_RESTORED,
        Reason.DEVICE_CHANGED,
        Reason.FIELD_CONFLICT,
        Reason.IGNORED,
        Reason.IMMUTABLE,
        Reason.NODES_WITHOUT_VM,
        Reason.NOT_ANNOUNCED,
        Reason.RECREATING,
        Reason.STILL_ANNOUNCED,
    }
)
"""Warnings to a Service that does not wait because of them, or that are not of a plan."""
UNRELATED = sorted(set(Reason) - {Reason.BACKENDS_UNHEALTHY})


def said(outcome: Outcome, *told: Reason) -> ServiceCondition | None:
    """Return what the condition of a Service with an address says of a plan that tells this."""
    events = (EmitEvent(EventMessage("Warning", reason, f"text of {reason}")) for reason in told)
    asked = served(condition=False)
    before = ServiceCondition(type=LOAD_BALANCER_READY, status="False")
    asked = replace(asked, status=replace(asked.status, conditions=(before,)))
    situation = situation_of(asked, allocated())
    changes = [
        step.change.condition
        for step in with_condition(ServicePlan(tuple(events), outcome), situation).steps
        if isinstance(step, ChangeService)
    ]
    return changes[-1] if changes else None


def test_every_reason_to_wait_is_with_a_load_balancer_or_for_the_lack_of_one() -> None:
    told = "a reason to wait goes into SERVED of plan/service/decision.py, or into LACKING here"
    assert set(WaitReason) == SERVED | LACKING, told
    assert not SERVED & LACKING


def test_every_warning_is_why_a_service_waits_or_is_told_beside() -> None:
    """Otherwise the Event says why and ``status`` and ``kubectl wait`` do not."""
    warnings = {Reason(one) for one in re.findall(r'= "(\w+)"\n +"""Warning: ', inspect.getsource(Reason))}
    told = "why a Service waits goes into CAUSES of plan/service/decision.py, every other Warning into BESIDE here"
    assert warnings == CAUSES | REFUSALS | BESIDE, told
    assert not BESIDE & (CAUSES | REFUSALS)


@pytest.mark.parametrize("outcome", [Done(), *(Wait(reason, 1.0) for reason in sorted(SERVED))], ids=str)
def test_it_is_true_of_a_service_with_its_load_balancer_whatever_else_is_told(outcome: Outcome) -> None:
    for reason in UNRELATED:
        found = said(outcome, reason)
        assert found is not None
        assert (found.status, found.message) == ("True", f"The load balancer has address {ADDRESS}"), reason
    unhealthy = said(outcome, Reason.BACKENDS_UNHEALTHY, *UNRELATED)
    assert unhealthy is not None
    assert (unhealthy.status, unhealthy.reason) == ("False", "BackendsUnhealthy")


@pytest.mark.parametrize("reason", sorted(LACKING))
def test_it_says_what_is_lacking_and_nothing_that_is_told_beside(reason: WaitReason) -> None:
    for outcome in (Wait(reason), Refused(reason)):
        for cause in sorted(CAUSES - {Reason.BACKENDS_UNHEALTHY, Reason.HARVESTER_UNAVAILABLE, Reason.NOT_RECOGNISED}):
            found = said(outcome, cause, *(one for one in UNRELATED if one not in CAUSES | REFUSALS))
            assert found is not None
            assert (found.status, found.message) == ("False", f"text of {cause}")
            assert found.reason == "".join(word.capitalize() for word in reason.split("_"))


@pytest.mark.parametrize("reason", sorted(REFUSALS))
def test_what_the_user_must_change_is_the_cause_only_where_that_is_waited_for(reason: Reason) -> None:
    refused = said(Refused(WaitReason.NOT_SERVABLE), reason)
    assert refused is not None
    assert refused.message == f"text of {reason}"
    assert said(Wait(WaitReason.NOT_PROCESSED), reason) is None
