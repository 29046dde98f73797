"""What a plan comes to, as a condition in the Service's status: for ``kubectl wait`` and tools of GitOps.

It says what the Events say, and is written only when that changes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from harvester_ccm.model.core import Service, ServiceCondition
from harvester_ccm.model.outcome import Done, EventMessage, Outcome, Refused, Wait, WaitReason
from harvester_ccm.names import LOAD_BALANCER_READY, SERVICE_FINALIZER, Reason
from harvester_ccm.plan.service.kube_vip import Announcement
from harvester_ccm.plan.service.situation import Situation
from harvester_ccm.plan.service.steps import (
    REMOVED,
    ChangeService,
    EmitEvent,
    ServiceChange,
    ServicePlan,
    Step,
    change_service,
)
from harvester_ccm.plan.service.unbooked import keeping_note
from harvester_ccm.redaction import inert

SERVED: Final = frozenset({WaitReason.TOUCH, WaitReason.BACKENDS, WaitReason.ENDPOINTS})
"""What is waited for by a Service that has its load balancer."""
CAUSES: Final = frozenset(
    {
        Reason.ADDRESS_NOT_BOOKED,
        Reason.ADDRESS_PENDING,
        Reason.BACKENDS_UNHEALTHY,
        Reason.DELETION_PENDING,
        Reason.HARVESTER_UNAVAILABLE,
        Reason.NO_DEVICE,
        Reason.NOT_RECOGNISED,
        Reason.SHARING_REFUSED,
        Reason.SYNC_FAILED,
    }
)
"""Reasons of Warnings that are why a Service waits; all others are told beside."""
_REFUSALS: Final = frozenset({Reason.FOREIGN_LOAD_BALANCER, Reason.INVALID_ANNOTATION})
"""Those that are where its user has to change something."""
_OF_ALL: Final = frozenset({Reason.HARVESTER_UNAVAILABLE, Reason.NOT_RECOGNISED})
"""Those that hold for all Services at once; one that has its address lacks nothing for it."""


def with_condition(plan: ServicePlan, situation: Situation) -> ServicePlan:
    """Return the plan with the condition in its last patch of the Service, or in one of its own where that is due."""
    wanted = _condition(plan, situation) if situation.scope.ours else REMOVED
    if wanted is None:
        return plan
    patches = [number for number, step in enumerate(plan.steps) if isinstance(step, ChangeService)]
    if not patches:
        # A Service that was served before there were conditions gets one with its next patch.
        due = wanted.status == "False" or not situation.found_served or situation.service.condition(LOAD_BALANCER_READY)
        alone = change_service(situation.service, ServiceChange(condition=wanted)) if due or situation.kept else ()
        return ServicePlan((*plan.steps, *alone), plan.outcome)
    steps: list[Step] = list(plan.steps)
    # What the Service has is true after the last patch. What it waits for comes with our finalizer.
    at = patches[0 if wanted.status == "False" else -1]
    step = steps[at]
    if isinstance(step, ChangeService):
        steps[at] = ChangeService(replace(step.change, condition=wanted))
    return ServicePlan(tuple(steps), plan.outcome)


def condition_after(plan: ServicePlan, situation: Situation) -> ServiceCondition | None:
    """Return what the condition of a Service of ours says once the plan is done; None where it has none then."""
    wanted = _condition(plan, situation)
    if wanted is None:
        return situation.service.condition(LOAD_BALANCER_READY)
    return None if wanted == REMOVED else wanted


def not_ready(situation: Situation, event: EventMessage) -> ServiceChange:
    """Return the change after which the condition says what an Event says."""
    if _lacks_nothing(situation, event):
        return ServiceChange()
    return ServiceChange(condition=_condition_of(situation, "False", str(event.reason), event.message))


def _lacks_nothing(situation: Situation, event: EventMessage) -> bool:
    return event.reason in _OF_ALL and bool(situation.service.addresses) and not situation.scope.leaving


def _condition(plan: ServicePlan, situation: Situation) -> ServiceCondition | None:
    """Return what the condition should say after a plan; None for what it says now."""
    changes = [step.change for step in plan.steps if isinstance(step, ChangeService)]
    if any(change.finalizer is False for change in changes):
        return REMOVED
    told, outcome = _obstacle(plan), plan.outcome
    if told is not None and _lacks_nothing(situation, told):
        return None
    if told is not None:
        waits = isinstance(outcome, Wait | Refused) and told.reason is not Reason.BACKENDS_UNHEALTHY
        reason = _camel(outcome.reason) if waits and isinstance(outcome, Wait | Refused) else str(told.reason)
        return _condition_of(situation, "False", reason, told.message)
    given = [change.ingress for change in changes if change.ingress is not None]
    addresses = [one.ip for one in given[-1] if one.ip] if given else [*situation.service.addresses]
    if _is_served(outcome) and addresses:
        keeps = keeping_note(situation) if situation.kept else None
        text = f"The load balancer has address {', '.join(addresses)}" if keeps is None else keeps.message
        return _condition_of(situation, "True", str(Reason.ENSURED), text)
    lacks = _lacks(situation.service, addresses)
    if isinstance(outcome, Wait) and lacks:
        return _condition_of(situation, "False", _camel(outcome.reason), lacks)
    return None


def _lacks(service: Service, addresses: list[str]) -> str:
    """Return what a Service that waits in silence lacks; empty where nothing has to be said of it yet."""
    if _may_be_announced(service):
        return "Harvester is asked for an address"
    present = service.condition(LOAD_BALANCER_READY)
    was_ready = present is not None and present.status == "True"
    return "The Service has no address at the moment" if was_ready and not addresses else ""


def _may_be_announced(service: Service) -> bool:
    """Return whether kube-vip may announce the wish of a Service that is new to us.

    Without a word of ours it would look, at the next start, like one that another provider served before us.
    """
    found = Announcement.of(service)
    return not service.metadata.has_finalizer(SERVICE_FINALIZER) and bool(found.wished or found.status)


def _obstacle(plan: ServicePlan) -> EventMessage | None:
    """Return what a Service is told of why it has no load balancer, or none that works."""
    warnings = [step.event for step in plan.steps if isinstance(step, EmitEvent) and step.event.type == "Warning"]
    if _is_served(plan.outcome):
        return next((one for one in warnings if one.reason is Reason.BACKENDS_UNHEALTHY), None)
    causes = CAUSES | _REFUSALS if isinstance(plan.outcome, Refused) else CAUSES
    return next((one for one in reversed(warnings) if one.reason in causes), None)


def _is_served(outcome: Outcome) -> bool:
    return isinstance(outcome, Done) or (isinstance(outcome, Wait) and outcome.reason in SERVED)


def _condition_of(situation: Situation, status: str, reason: str, message: str) -> ServiceCondition:
    """Return our condition; by its reason the next start knows that the Service keeps an address of the user."""
    return ServiceCondition(
        type=LOAD_BALANCER_READY,
        status=status,
        reason=str(Reason.ADDRESS_NOT_BOOKED) if situation.kept else reason,
        message=inert(message),
        observed_generation=situation.service.metadata.generation,
        last_transition_time=situation.wall_time,
    )


def _camel(reason: str) -> str:
    """Return a reason to wait as the API wants reasons.

    >>> _camel("pool_exhausted")
    'PoolExhausted'
    """
    return "".join(word.capitalize() for word in reason.split("_"))
