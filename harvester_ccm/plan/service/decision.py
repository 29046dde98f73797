"""What to do for one Service: the decision of the whole Service side in one pure function.

``plan_service`` is called with everything that is known and returns steps to take in this order, and what is being
waited for. It is called again after every change, so each plan only has to bring things nearer to the goal:

1. our finalizer is on the Service before anything exists in Harvester;
2. one load balancer exists, kept or deleted, and replaced only when the user asks for the other workload type;
3. the address is in kube-vip's annotation and in the status as soon as Harvester has it;
4. on the way out: stop announcing, delete the load balancer, clear the status, let the Service go.

What that comes to is said as a condition in the Service's status, for ``kubectl wait`` and tools of GitOps. It says
what the Events say, and is written only when that changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from harvester_ccm.model.core import Service, ServiceCondition
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import Done, EventMessage, Outcome, Refused, Wait, WaitReason
from harvester_ccm.names import (
    LB_CLUSTER,
    LOAD_BALANCER_READY,
    PRIMARY_SERVICE_LABEL,
    SERVICE_FINALIZER,
    Reason,
)
from harvester_ccm.plan.service import kube_vip
from harvester_ccm.plan.service.cleanup import ending, plan_cleanup
from harvester_ccm.plan.service.cluster_lb import plan_cluster
from harvester_ccm.plan.service.create import (
    plan_creation,
    plan_harvester_mismatch,
    plan_replacement,
)
from harvester_ccm.plan.service.kube_vip import Announcement
from harvester_ccm.plan.service.ownership import (
    adoption_note,
    allocated_addresses,
    foreign_note,
    other_name_note,
    shows_address,
)
from harvester_ccm.plan.service.pending import UNAVAILABLE_PATIENCE, harvester_unavailable
from harvester_ccm.plan.service.request import (
    converted,
    ignored_settings,
    refused_changes,
    unsupported,
)
from harvester_ccm.plan.service.selection import is_served, was_secondary
from harvester_ccm.plan.service.shared_address import plan_leaving, plan_secondary
from harvester_ccm.plan.service.situation import Situation
from harvester_ccm.plan.service.steps import (
    REMOVED,
    TOUCH_ENDPOINTS_AFTER,
    ChangeService,
    CreateLoadBalancer,
    EmitEvent,
    ServiceChange,
    ServicePlan,
    Step,
    change_service,
    emit,
    hold,
)
from harvester_ccm.plan.service.unbooked import booked_twice, plan_taken
from harvester_ccm.plan.service.vm_lb import plan_vm
from harvester_ccm.redaction import inert

GONE_PATIENCE: Final = 30.0
"""Seconds a load balancer may take to go before we tell that it is being waited for."""


def plan_service(situation: Situation) -> ServicePlan:
    """Return what to do for the Service now, and what its condition says of that."""
    plan = with_condition(_plan(situation), situation)
    steps = [
        replace(one, otherwise=with_condition(one.otherwise, situation)) if isinstance(one, CreateLoadBalancer) else one
        for one in plan.steps
    ]
    return replace(plan, steps=tuple(steps))


def _plan(situation: Situation) -> ServicePlan:
    if not situation.scope.ours:
        return ServicePlan(emit(situation.scope.note))
    service, lb = situation.service, situation.match.lb
    # A load balancer whose creation was not answered may be missing in a cache that is not current.
    may_miss_one = situation.scope.leaving and situation.harvester_problem is not None and not situation.match.own
    if may_miss_one or not situation.harvester_known:
        return _plan_unavailable(situation)
    if situation.scope.leaving:
        return plan_cleanup(situation)
    if situation.request.primary is not None:
        served = lb is not None and not lb.metadata.deleting
        return plan_secondary(situation, _plan_own(situation) if served else None)
    if was_secondary(service) and allocated_addresses(situation.match.own).isdisjoint(service.addresses):
        return plan_leaving(service)
    # A label alone does not make a secondary of one that is served with an address of its own.
    unlabelled = change_service(service, ServiceChange(labels={PRIMARY_SERVICE_LABEL: None}))
    return _plan_own(situation).after(*unlabelled)


def _plan_unavailable(situation: Situation) -> ServicePlan:
    """Return the plan while Harvester's load balancers have not been listed yet."""
    service = situation.service
    waiting = () if service.metadata.has_finalizer(SERVICE_FINALIZER) else hold(service)
    if situation.harvester_problem is None and situation.waited < UNAVAILABLE_PATIENCE:
        return ServicePlan(waiting, Wait(WaitReason.HARVESTER_UNAVAILABLE, UNAVAILABLE_PATIENCE - situation.waited))
    told = emit(harvester_unavailable(situation.harvester_problem, service)) if _needs_harvester(situation) else ()
    return ServicePlan((*told, *waiting), Wait(WaitReason.HARVESTER_UNAVAILABLE))


def _needs_harvester(situation: Situation) -> bool:
    """Return whether the Service waits for Harvester. For all others, health checks and metrics report the outage."""
    return situation.scope.leaving or not is_served(situation.service)


def _plan_own(situation: Situation) -> ServicePlan:
    """Return the plan for a Service with an address of its own."""
    service, match = situation.service, situation.match
    current = match.lb
    if current is None and (held := _held_by_another_name(situation)) is not None:
        note = other_name_note(*held, service, situation.cluster)
        return ServicePlan(emit(note), Refused(WaitReason.OTHER_CLUSTER_NAME))
    if not situation.our_harvester:
        return plan_harvester_mismatch(situation)
    if situation.unbooked and (taken := plan_taken(situation)) is not None:
        return taken
    request = situation.request
    notes = [*request.problems, request.unknown, *(foreign_note(one, situation.cluster) for one in match.foreign[:1])]
    if current is not None and not current.metadata.deleting:
        plan = _plan_present(situation, current)
    elif current is not None and (situation.waited < GONE_PATIENCE or current.metadata.name == match.expected_name):
        plan = _plan_going(situation, current)
    elif any(one.metadata.name == match.expected_name or shows_address(service, one) for one in match.foreign):
        plan = ServicePlan(hold(service), Refused(WaitReason.FOREIGN_LOAD_BALANCER))
    else:
        plan = plan_creation(situation)
    # No creation is planned beside these: if a duplicate is not being deleted, neither is the one in use.
    left_over = [step for one in match.duplicates if not one.metadata.deleting for step in ending(one)]
    return ServicePlan((*emit(*notes), *plan.steps, *left_over), plan.outcome)


def _held_by_another_name(situation: Situation) -> tuple[str, str] | None:
    """Return the cluster name and the name of the load balancer of another name of this cluster that has the Service's
    address, or the name of its own.

    As long as nobody says whether this cluster was renamed or copied, either answer would take the address from
    somebody.
    """
    service, match = situation.service, situation.match
    for one in match.other_name:
        if one.metadata.name == match.expected_name or shows_address(service, one):
            return one.metadata.label(LB_CLUSTER) or "", one.metadata.name
    return None


def _plan_going(situation: Situation, going: LoadBalancer) -> ServicePlan:
    """Return the plan while the old load balancer is being deleted; its name and address are free after that."""
    service = situation.service
    waiting = change_service(service, ServiceChange(annotations=kube_vip.hold(service), finalizer=True))
    if situation.waited < GONE_PATIENCE:
        return ServicePlan(waiting, Wait(WaitReason.OLD_LOAD_BALANCER, GONE_PATIENCE - situation.waited))
    text = (
        f"Load balancer {going.metadata.name} is being deleted in Harvester and not gone after {GONE_PATIENCE:.0f} s; "
        "a new one is created when it is. Check that harvester-load-balancer and its webhook run in namespace "
        "harvester-system"
    )
    return ServicePlan(
        (EmitEvent(EventMessage("Warning", Reason.ADDRESS_PENDING, text)), *waiting), Wait(WaitReason.OLD_LOAD_BALANCER)
    )


def _plan_present(situation: Situation, current: LoadBalancer) -> ServicePlan:
    """Return the plan for a load balancer that exists: keep it right, or switch it to the other workload type."""
    service, request = situation.service, situation.request
    vm = current.spec.workload_type == "vm"
    wanted = request.workload_type or current.spec.workload_type
    refusal = unsupported(service, vm=wanted == "vm")
    plan = plan_vm(situation, current) if vm else plan_cluster(situation, current)
    if wanted != current.spec.workload_type and refusal is None:
        # The present one is kept right first, so that it goes on working if Harvester refuses the new one.
        is_started = not current.allocated_ip or (not vm and Announcement.of(service).withdrawn)
        # A touch that is not permitted is tried again after minutes, and must not keep the Service from switching.
        touch_at = situation.remembered.touch_at
        awaits_touch = not vm and touch_at is not None and 0 < touch_at - situation.now <= TOUCH_ENDPOINTS_AFTER
        is_right = not awaits_touch and all(isinstance(step, EmitEvent) for step in plan.steps)
        replacement = plan_replacement(situation, current, wanted) if is_started or is_right else None
        if replacement is not None:
            return replacement.after(*(plan.steps if is_right else ()))
    told = (
        refusal,
        adoption_note(current, service, situation.cluster),
        booked_twice(situation, current) if situation.holders else None,
        converted(request, current),
        ignored_settings(service, request, vm=vm),
        *refused_changes(request, current),
    )
    return plan.after(*emit(*told))


SERVED: Final = frozenset({WaitReason.TOUCH, WaitReason.BACKENDS})
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
_OF_KUBE_VIP: Final[Mapping[str, str]] = {
    WaitReason.ENDPOINTS: "kube-vip announces the address after the next change of the endpoints of the Service",
    WaitReason.DHCP: "kube-vip asks for an address from DHCP",
}
"""What a Service that has its load balancer waits for."""
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
        # Any change of a Service can make kube-vip announce its address again, so one that the Go provider served gets
        # its first condition with the next patch that it needs.
        due = wanted.status == "False" or situation.service.ready_condition is not None
        alone = change_service(situation.service, ServiceChange(condition=wanted)) if due else ()
        return ServicePlan((*plan.steps, *alone), plan.outcome)
    steps: list[Step] = list(plan.steps)
    # What the Service has is true after the last patch. What it waits for comes with our finalizer.
    at = patches[0 if wanted.status == "False" else -1]
    step = steps[at]
    if isinstance(step, ChangeService):
        steps[at] = replace(step, change=replace(step.change, condition=wanted))
    return ServicePlan(tuple(steps), plan.outcome)


def condition_after(plan: ServicePlan, situation: Situation) -> ServiceCondition | None:
    """Return what the condition of a Service of ours says once the plan is done; None where it has none then."""
    wanted = _condition(plan, situation)
    if wanted is None:
        return situation.service.ready_condition
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
        reason = str(told.reason)
        if isinstance(outcome, Wait | Refused) and told.reason is not Reason.BACKENDS_UNHEALTHY:
            reason = _camel(outcome.reason)
        return _condition_of(situation, "False", reason, told.message)
    given = [change.ingress for change in changes if change.ingress is not None]
    addresses = [one.ip for one in given[-1] if one.ip] if given else [*situation.service.addresses]
    if _is_served(outcome) and addresses:
        text = f"The load balancer has address {', '.join(addresses)}"
        return _condition_of(situation, "True", str(Reason.ENSURED), text)
    lacks = _lacks(situation.service, addresses)
    if isinstance(outcome, Wait) and outcome.reason in _OF_KUBE_VIP:
        lacks = _OF_KUBE_VIP[outcome.reason]
    if isinstance(outcome, Wait) and lacks:
        return _condition_of(situation, "False", _camel(outcome.reason), lacks)
    return None


def _lacks(service: Service, addresses: list[str]) -> str:
    """Return what a Service that waits in silence lacks; empty where nothing has to be said of it yet."""
    if _may_be_announced(service):
        return "Harvester is asked for an address"
    present = service.ready_condition
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
    return ServiceCondition(
        type=LOAD_BALANCER_READY,
        status=status,
        reason=reason,
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
