"""The plan for one Service, in one pure function: its phase, the desired state in that phase, and the next write.

``plan_service`` reads a snapshot of everything that is known. It is called again after every change, so each plan only
has to come nearer to the goal:

1. the Service has the finalizer before anything exists in Harvester;
2. one load balancer exists; it is replaced only if the user requests the other workload type;
3. kube-vip's annotation and the status have the address as soon as Harvester has allocated it;
4. removal: withdraw the address, delete the load balancer, clear the Service and remove the finalizer.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from harvester_ccm.model.core import Ingress, ServiceCondition
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import DHCP_ADDRESS, LOAD_BALANCER_READY, PRIMARY_SERVICE_LABEL, REQUESTED_ADDRESS, Reason
from harvester_ccm.plan.service.allocation.creation import plan_new, plan_old_terminating, plan_queued
from harvester_ccm.plan.service.allocation.deletion import deletion_write
from harvester_ccm.plan.service.allocation.pending import plan_pending
from harvester_ccm.plan.service.announcing.announced import plan_announced_by_kube_vip, plan_other_network
from harvester_ccm.plan.service.announcing.readiness import judged
from harvester_ccm.plan.service.announcing.record import Step
from harvester_ccm.plan.service.announcing.seen import ADDRESS_ANNOTATION
from harvester_ccm.plan.service.announcing.sequence import Next, Progress
from harvester_ccm.plan.service.desired import Desired, Document, PatchService, ServicePlan, TouchEndpoints, Write
from harvester_ccm.plan.service.ineffective import ignored_on_load_balancer, local_policy, rejected_changes
from harvester_ccm.plan.service.load_balancer.delegated import plan_announced_by_harvester
from harvester_ccm.plan.service.obstacles import (
    plan_address_in_use,
    plan_address_taken,
    plan_harvester_unknown,
    plan_name_taken,
    plan_not_ours,
    plan_unsupported,
    plan_wrong_harvester,
)
from harvester_ccm.plan.service.ownership.owner import allocated_addresses, foreign_warning
from harvester_ccm.plan.service.ownership.right_harvester import HarvesterCheck
from harvester_ccm.plan.service.patch import service_patch, with_condition
from harvester_ccm.plan.service.phase import Phase, phase_of
from harvester_ccm.plan.service.removal import plan_leaving
from harvester_ccm.plan.service.request import WorkloadType
from harvester_ccm.plan.service.scope import has_other_class, was_secondary
from harvester_ccm.plan.service.sharing.permission import sharing_of
from harvester_ccm.plan.service.sharing.shared_address import plan_sharing, plan_sharing_pending
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.supported import unsupported_reason
from harvester_ccm.plan.service.switching import is_switch_possible, is_switch_started, plan_switching, switch_mismatch
from harvester_ccm.plan.service.verdict import NotManaged, NotReady, Ready

PLANS: Final[Mapping[Phase, Callable[[ServiceSnapshot], Desired]]] = {
    Phase.NOT_OURS: plan_not_ours,
    Phase.HARVESTER_UNKNOWN: plan_harvester_unknown,
    Phase.LEAVING: plan_leaving,
    Phase.SHARING: plan_sharing,
    Phase.SHARING_PENDING: plan_sharing_pending,
    Phase.NAME_TAKEN: plan_name_taken,
    Phase.WRONG_HARVESTER: plan_wrong_harvester,
    Phase.ADDRESS_TAKEN: plan_address_taken,
    Phase.UNSUPPORTED: plan_unsupported,
    Phase.NEW: plan_new,
    Phase.OLD_TERMINATING: plan_old_terminating,
    Phase.ADDRESS_IN_USE: plan_address_in_use,
    Phase.ANNOUNCED_BY_HARVESTER: plan_announced_by_harvester,
    Phase.PENDING: plan_pending,
    Phase.OTHER_NETWORK: plan_other_network,
    Phase.ANNOUNCED_BY_KUBE_VIP: plan_announced_by_kube_vip,
    Phase.SWITCHING: plan_switching,
}
"""The plan of each phase. No plan calls another one."""

_NOT_ALONE: Final = frozenset(
    {Phase.NOT_OURS, Phase.HARVESTER_UNKNOWN, Phase.LEAVING, Phase.SHARING, Phase.SHARING_PENDING}
)
"""Phases of a Service that has no load balancer of its own, or whose own one is not known or not wanted."""
_PRESENT: Final = frozenset(
    {Phase.PENDING, Phase.OTHER_NETWORK, Phase.ANNOUNCED_BY_KUBE_VIP, Phase.ANNOUNCED_BY_HARVESTER}
)
"""Phases of a Service whose load balancer stays, unless the user requests another workload type."""

_ANNOUNCING: Final = frozenset({Reason.ANNOUNCING, Reason.NOT_ANNOUNCED, Reason.DHCP_LEASE_PENDING})
"""Reasons for which an allocated address is not announced."""


def plan_service(snapshot: ServiceSnapshot) -> ServicePlan:
    """Return the plan of the Service."""
    phase = phase_of(snapshot)
    desired = PLANS[phase](snapshot)
    if phase in _PRESENT and is_switch_possible(snapshot):
        # The present load balancer is brought to its desired state first, because Harvester may refuse the new one.
        is_settled = _is_settled(snapshot, desired)
        if is_settled or is_switch_started(snapshot):
            # The Warnings about the present load balancer hold until it is deleted.
            warnings = desired.events if is_settled else ()
            phase = Phase.SWITCHING
            desired = PLANS[phase](snapshot).with_events(*warnings)
    desired = _with_common_parts(desired, snapshot, phase)
    return _next_write(desired, snapshot, phase)


def plan_waiting_for_creation(snapshot: ServiceSnapshot, plan: ServicePlan) -> ServicePlan:
    """Return the plan of a Service whose load balancer cannot be created yet, because another one is in progress."""
    warnings = [event for event in plan.events if event.type == "Warning"]
    if plan.reads_pool:
        # The plan after the pool is read decides what is said.
        warnings = []
    return _next_write(plan_queued(snapshot).with_events(*warnings), snapshot, Phase.NEW)


def _is_settled(snapshot: ServiceSnapshot, desired: Desired) -> bool:
    """Return whether nothing is left to write, apart from the condition."""
    step = snapshot.step_towards(desired.wish)
    desired = _with_step(judged(desired, step, snapshot), step, snapshot)
    return desired.write is None and not service_patch(snapshot.service, desired)


def _with_common_parts(desired: Desired, snapshot: ServiceSnapshot, phase: Phase) -> Desired:
    """Return the state with what holds in several phases: Warnings, the end of sharing, and duplicates."""
    if phase in _PRESENT:
        has_address = phase is not Phase.OTHER_NETWORK and bool(snapshot.load_balancer.allocated_ip)
        desired = desired.with_events(*_present_warnings(snapshot, has_address=has_address))
    if phase in _NOT_ALONE:
        return desired
    desired = desired.with_events(*_request_warnings(snapshot))
    if not snapshot.request.primary:
        # The label alone does not make a secondary of a Service with an address of its own.
        desired = replace(desired, labels={**desired.labels, PRIMARY_SERVICE_LABEL: None})
        if was_secondary(snapshot.service) and desired.wish.device is None:
            # This controller copied the device from the primary.
            desired = replace(desired, wish=replace(desired.wish, device=""))
    if desired.write is None:
        desired = replace(desired, write=_deletion_of_duplicate(snapshot))
    return desired


def _deletion_of_duplicate(snapshot: ServiceSnapshot) -> Write | None:
    """Return the deletion of a duplicate of the load balancer in use; None if there is none to delete."""
    for duplicate in snapshot.match.duplicates:
        write = None if duplicate.metadata.deleting else deletion_write(duplicate)
        if write is not None:
            return write
    return None


def _request_warnings(snapshot: ServiceSnapshot) -> Iterator[EventMessage | None]:
    """Yield the Warnings about the request of a Service with a load balancer of its own."""
    yield from snapshot.request.problems
    yield snapshot.request.unknown_annotations
    for candidate in snapshot.match.foreign[:1]:
        yield foreign_warning(candidate)
    if snapshot.request.primary:
        yield sharing_of(snapshot).refusal


def _present_warnings(snapshot: ServiceSnapshot, *, has_address: bool) -> Iterator[EventMessage | None]:
    """Yield the Warnings about a Service whose load balancer stays; ``has_address``: it has one to lose."""
    service = snapshot.service
    request = snapshot.request
    load_balancer = snapshot.load_balancer
    is_vm = load_balancer.spec.workload_type == "vm"
    yield _rejected_switch(snapshot, is_vm=is_vm)
    if not is_vm:
        yield local_policy(service)
    yield ignored_on_load_balancer(service, request, load_balancer, is_vm=is_vm)
    yield from rejected_changes(request, load_balancer, has_address=has_address)
    yield from _not_stored(snapshot)


def _rejected_switch(snapshot: ServiceSnapshot, *, is_vm: bool) -> EventMessage | None:
    """Return why the Service cannot have the load balancer that it requests, or None."""
    wants_vm = snapshot.request.workload_type is WorkloadType.VM if snapshot.wants_switch else is_vm
    refusal = unsupported_reason(snapshot.service, is_vm=wants_vm)
    if refusal is None and snapshot.wants_switch and snapshot.harvester_check is HarvesterCheck.MISMATCH:
        return switch_mismatch(snapshot.cluster)
    return refusal


def _not_stored(snapshot: ServiceSnapshot) -> Iterator[EventMessage]:
    """Yield the Warning about fields that this version of Harvester does not store."""
    fields = sorted(snapshot.remembered.not_stored)
    if fields:
        listed = ", ".join(f"spec.{field}" for field in fields)
        cause = f"Harvester does not store {listed} of the load balancer as it was sent"
        yield EventMessage("Warning", Reason.IGNORED, cause, "Update Harvester, or remove the setting that needs it")


def _with_step(desired: Desired, step: Next, snapshot: ServiceSnapshot) -> Desired:
    """Return the state with what a step of announcing writes to the Service."""
    annotations = {**desired.annotations, **step.annotations}
    return replace(desired, annotations=annotations, ingress=_ingress(desired, step, snapshot))


def _ingress(desired: Desired, step: Next, snapshot: ServiceSnapshot) -> tuple[Ingress, ...] | None:
    """Return the status that goes with a step; None to leave it as it is."""
    if step.clears_status:
        return ()
    if step.holds_status:
        return None
    return _without_others(snapshot) if desired.ingress is None else desired.ingress


def _without_others(snapshot: ServiceSnapshot) -> tuple[Ingress, ...] | None:
    """Return the status without the addresses that another client has added; None if it has no such.

    Beside a lease, kube-vip writes further addresses itself. The status of a Service of another class belongs to the
    controller of that class.
    """
    record = snapshot.record
    if record is None or record.address == DHCP_ADDRESS or has_other_class(snapshot.service):
        return None
    present = snapshot.service.status.load_balancer.ingress
    own = tuple(entry for entry in present if entry.ip in {"", record.address})
    return None if own == present else own


def _next_write(desired: Desired, snapshot: ServiceSnapshot, phase: Phase) -> ServicePlan:
    """Return the plan for a desired state: the Service is patched first, then the load balancer is written.

    A condition that has to change alone comes after that, and a touch of the endpoints comes last.
    """
    step = snapshot.step_towards(desired.wish)
    desired = judged(desired, step, snapshot)
    condition = condition_of(desired, step, snapshot)
    plan = ServicePlan(
        phase,
        desired.verdict,
        condition=condition,
        events=_events(desired),
        dry_run=desired.dry_run,
        reads_pool=desired.reads_pool,
        reads_endpoints=desired.reads_endpoints,
        look_again_after=_earlier(desired.look_again_after, step.look_again_after),
    )
    desired = _with_step(desired, step, snapshot)
    if service_patch(snapshot.service, desired):
        patch = _whole_patch(desired, step, snapshot, condition)
        write = PatchService(patch, releases=isinstance(desired.verdict, NotManaged))
        return replace(plan, write=write, following_write=desired.write)
    if desired.reads_endpoints and desired.write is None:
        # The plan after that decides what the condition says.
        return plan
    of_condition = None
    if not step.holds_status:
        of_condition = _patch_of_condition_alone(desired, step, snapshot, condition)
    if phase is Phase.SWITCHING and of_condition is not None:
        return replace(plan, write=of_condition, following_write=desired.write)
    if desired.write is not None:
        return replace(plan, write=desired.write)
    if of_condition is not None:
        return replace(plan, write=of_condition, dry_run=None)
    return replace(plan, write=TouchEndpoints() if step.touch else None, dry_run=None)


def _earlier(*delays: float | None) -> float | None:
    """Return the shortest of the delays that are not None."""
    return min((delay for delay in delays if delay is not None), default=None)


def _whole_patch(
    desired: Desired, step: Next, snapshot: ServiceSnapshot, condition: ServiceCondition | None
) -> Document:
    """Return a patch that is necessary, with what changes only in such a one: a kept request, and the condition.

    After a publication, the patch of the condition is the second event that kube-vip needs, so it comes later. A
    withdrawal needs no second event.
    """
    annotations = {**kept_request(snapshot), **desired.annotations}
    patch = service_patch(snapshot.service, replace(desired, annotations=annotations))
    is_held = step.holds_status and step.progress is not Progress.SILENT
    return patch if is_held else with_condition(patch, snapshot.service, condition)


def _patch_of_condition_alone(
    desired: Desired, step: Next, snapshot: ServiceSnapshot, condition: ServiceCondition | None
) -> PatchService | None:
    """Return the patch of the condition alone; None if it does not differ or has to wait for another patch.

    Any change of a Service can make kube-vip announce its address again, so a Service that the Go provider served gets
    its first condition with the next patch that it needs.
    """
    record = snapshot.record
    is_adopted = record is not None and record.step is Step.ADOPTED
    is_ready = condition is not None and condition.status == "True"
    if is_adopted and is_ready and snapshot.service.ready_condition is None:
        return None
    if not with_condition({}, snapshot.service, condition):
        return None
    return PatchService(_whole_patch(desired, step, snapshot, condition))


def _events(desired: Desired) -> tuple[EventMessage, ...]:
    """Return the Events, each once. The Event of the verdict comes last."""
    events = [event for event in desired.events if event is not None]
    if isinstance(desired.verdict, NotReady) and desired.verdict.emits_event:
        events.append(desired.verdict.message)
    return tuple(dict.fromkeys(events))


def kept_request(snapshot: ServiceSnapshot) -> dict[str, str]:
    """Return the annotation that keeps the address in kube-vip's annotation as the user's request.

    The first patch of the Service brings the record, and kube-vip's annotation becomes this controller's.
    """
    request = snapshot.request
    is_own = request.address in snapshot.primary_allocated | allocated_addresses(snapshot.match.own_load_balancers)
    if snapshot.is_leaving or request.address_setting != ADDRESS_ANNOTATION or is_own:
        return {}
    return {REQUESTED_ADDRESS: f"{request.address} {snapshot.service.metadata.uid}"}


def condition_of(desired: Desired, step: Next, snapshot: ServiceSnapshot) -> ServiceCondition | None:
    """Return the condition that the Service has in a desired state; None if it has none."""
    present = snapshot.service.ready_condition
    match desired.verdict:
        case NotManaged():
            return None
        case Ready(message=message):
            return _condition(snapshot, "True", Reason.ENSURED, message)
        case NotReady() as verdict:
            if verdict.changes_condition or _shows_waiting(verdict, desired, step, snapshot):
                return failed_condition(verdict, snapshot)
            return present


def failed_condition(verdict: NotReady, snapshot: ServiceSnapshot) -> ServiceCondition:
    """Return the condition with status False for a verdict."""
    return _condition(snapshot, "False", verdict.reason, verdict.message.message)


def _shows_waiting(verdict: NotReady, desired: Desired, step: Next, snapshot: ServiceSnapshot) -> bool:
    """Return whether the condition becomes False although no Event is due yet.

    A new Service gets its first condition when something is wrong, or with its address: one write less for most. The
    text about a missing announcement stays while the next one is on its way, and after a restart.
    """
    if verdict.emits_event:
        return False
    present = snapshot.service.ready_condition
    if verdict.reason in _ANNOUNCING:
        return present is None or not _is_explained(verdict, present, snapshot)
    if present is None or present.status != "True":
        return False
    return step.progress is Progress.SILENT or desired.ingress == ()


def _is_explained(verdict: NotReady, present: ServiceCondition, snapshot: ServiceSnapshot) -> bool:
    """Return whether the condition says already why an address is not announced, or need not be."""
    if present.status != "True":
        return present.reason in _ANNOUNCING
    record = snapshot.record
    is_first = record is not None and record.is_published and not record.again
    return is_first and verdict.reason is Reason.ANNOUNCING


def _condition(snapshot: ServiceSnapshot, status: str, reason: Reason, message: str) -> ServiceCondition:
    return ServiceCondition(
        type=LOAD_BALANCER_READY,
        status=status,
        reason=str(reason),
        message=message,
        observed_generation=snapshot.service.metadata.generation,
        last_transition_time=snapshot.wall_time,
    )
