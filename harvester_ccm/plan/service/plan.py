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

from harvester_ccm.model.core import ServiceCondition
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import (
    LOAD_BALANCER_READY,
    PRIMARY_SERVICE_LABEL,
    REQUESTED_ADDRESS,
    REQUESTED_FOR,
    SPECIFIED_ADDRESS,
    Reason,
)
from harvester_ccm.plan.service.announced import plan_announced_by_kube_vip, plan_device_unknown
from harvester_ccm.plan.service.creation import plan_new, plan_old_terminating, plan_queued
from harvester_ccm.plan.service.delegated import plan_announced_by_harvester
from harvester_ccm.plan.service.deletion import deletion_write
from harvester_ccm.plan.service.desired import (
    CreateLoadBalancer,
    DeleteLoadBalancer,
    Desired,
    Document,
    PatchService,
    SeedPool,
    ServicePlan,
    Write,
    waits_for,
)
from harvester_ccm.plan.service.kube_vip import (
    annotations_for,
    empties_address,
    end_of_specification,
    intent_needs_resync,
    is_about_announced_address,
)
from harvester_ccm.plan.service.obstacles import (
    plan_address_taken,
    plan_address_unavailable,
    plan_harvester_unknown,
    plan_harvester_unverified,
    plan_name_taken,
    plan_not_ours,
    plan_unsupported,
    plan_wrong_harvester,
)
from harvester_ccm.plan.service.ownership import allocated_addresses, foreign_note
from harvester_ccm.plan.service.patch import ConditionChange, ServiceFields, service_patch
from harvester_ccm.plan.service.pending import plan_pending
from harvester_ccm.plan.service.phase import Phase, phase_of
from harvester_ccm.plan.service.reannouncement import record_in
from harvester_ccm.plan.service.removal import plan_leaving
from harvester_ccm.plan.service.request import WorkloadType
from harvester_ccm.plan.service.settings import (
    converted,
    ignored_on_cluster_load_balancer,
    ignored_on_vm_load_balancer,
    local_policy,
    rejected_changes,
    sctp_on_vm_load_balancer,
)
from harvester_ccm.plan.service.shared_address import (
    plan_former_secondary,
    plan_sharing,
    plan_sharing_pending,
)
from harvester_ccm.plan.service.sharing import sharing_of
from harvester_ccm.plan.service.snapshot import HarvesterCheck, ServiceSnapshot
from harvester_ccm.plan.service.supported import unsupported_reason
from harvester_ccm.plan.service.switching import (
    awaits_resync,
    is_switch_noted,
    is_switch_possible,
    is_switch_started,
    plan_switching,
    switch_mismatch,
)
from harvester_ccm.plan.service.verdict import NotManaged, NotReady, Ready

PLANS: Final[Mapping[Phase, Callable[[ServiceSnapshot], Desired]]] = {
    Phase.NOT_OURS: plan_not_ours,
    Phase.HARVESTER_UNKNOWN: plan_harvester_unknown,
    Phase.LEAVING: plan_leaving,
    Phase.SHARING: plan_sharing,
    Phase.SHARING_PENDING: plan_sharing_pending,
    Phase.FORMER_SECONDARY: plan_former_secondary,
    Phase.NAME_TAKEN: plan_name_taken,
    Phase.HARVESTER_UNVERIFIED: plan_harvester_unverified,
    Phase.WRONG_HARVESTER: plan_wrong_harvester,
    Phase.ADDRESS_TAKEN: plan_address_taken,
    Phase.UNSUPPORTED: plan_unsupported,
    Phase.ADDRESS_UNAVAILABLE: plan_address_unavailable,
    Phase.NEW: plan_new,
    Phase.OLD_TERMINATING: plan_old_terminating,
    Phase.PENDING: plan_pending,
    Phase.SWITCHING: plan_switching,
    Phase.DEVICE_UNKNOWN: plan_device_unknown,
    Phase.ANNOUNCED_BY_KUBE_VIP: plan_announced_by_kube_vip,
    Phase.ANNOUNCED_BY_HARVESTER: plan_announced_by_harvester,
}
"""The plan of each phase. No plan calls another one."""

_ALONE: Final = frozenset(
    {
        Phase.NAME_TAKEN,
        Phase.HARVESTER_UNVERIFIED,
        Phase.WRONG_HARVESTER,
        Phase.ADDRESS_TAKEN,
        Phase.UNSUPPORTED,
        Phase.ADDRESS_UNAVAILABLE,
        Phase.NEW,
        Phase.OLD_TERMINATING,
        Phase.PENDING,
        Phase.SWITCHING,
        Phase.DEVICE_UNKNOWN,
        Phase.ANNOUNCED_BY_KUBE_VIP,
        Phase.ANNOUNCED_BY_HARVESTER,
    }
)
"""Phases of a Service that has, or will have, a load balancer of its own."""
_PRESENT: Final = frozenset(
    {Phase.PENDING, Phase.DEVICE_UNKNOWN, Phase.ANNOUNCED_BY_KUBE_VIP, Phase.ANNOUNCED_BY_HARVESTER}
)
"""Phases of a Service whose load balancer stays, unless the user requests another workload type."""

REPLACEMENT_WRITES: Final = 12
"""Writes that belong to the replacement of a load balancer, until kube-vip announces the next one: the most are those
with DHCP, for which the endpoints are touched several times."""
WITHDRAWAL_WRITES: Final = 3
"""Writes that belong to the withdrawal of an address: that one, the next announcement, and the resync after it."""

READ_AGAIN_SECONDS: Final = 5.0
"""Time after which a deletion is planned again that waits until the Services can be read."""


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
    plan = _next_write(desired, snapshot, phase)
    if isinstance(plan.write, DeleteLoadBalancer) and snapshot.services_problem is not None:
        return _deferred_deletion(plan)
    return plan


def _deferred_deletion(plan: ServicePlan) -> ServicePlan:
    """Return the plan to delete nothing while the Services cannot be read.

    The guest cluster may have been restored: then kube-vip announces addresses that the cache does not show.
    """
    warnings = tuple(event for event in plan.events if event.type == "Warning")
    return replace(
        plan,
        verdict=waits_for(Reason.DELETION_PENDING),
        events=warnings,
        write=None,
        dry_run=None,
        look_again_after=READ_AGAIN_SECONDS,
    )


def plan_waiting_for_creation(snapshot: ServiceSnapshot, plan: ServicePlan) -> ServicePlan:
    """Return the plan of a Service whose load balancer cannot be created yet, because another one is in progress."""
    warnings = [event for event in plan.events if event.type == "Warning"]
    if plan.reads_pool:
        # The plan after the pool is read decides what is said.
        warnings = []
    return _next_write(plan_queued(snapshot).with_events(*warnings), snapshot, Phase.NEW)


def _is_settled(snapshot: ServiceSnapshot, desired: Desired) -> bool:
    """Return whether nothing is left to write, apart from the condition."""
    if desired.write is not None or awaits_resync(snapshot):
        return False
    return not service_patch(snapshot.service, _fields(desired, snapshot))


def _with_common_parts(desired: Desired, snapshot: ServiceSnapshot, phase: Phase) -> Desired:
    """Return the state with what holds in several phases: Warnings, the end of sharing, and duplicates."""
    if phase in _PRESENT:
        desired = desired.with_events(*_present_warnings(snapshot))
    if phase not in _ALONE:
        return desired
    desired = desired.with_events(*_request_warnings(snapshot))
    if not snapshot.request.primary:
        # The label alone does not make a secondary of a Service with an address of its own.
        desired = replace(desired, labels={**desired.labels, PRIMARY_SERVICE_LABEL: None})
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
    for claim in snapshot.match.foreign[:1]:
        yield foreign_note(claim)
    if snapshot.request.primary:
        yield sharing_of(snapshot).refusal


def _present_warnings(snapshot: ServiceSnapshot) -> Iterator[EventMessage | None]:
    """Yield the Warnings about a Service whose load balancer stays."""
    service = snapshot.service
    request = snapshot.request
    load_balancer = snapshot.load_balancer
    is_vm = load_balancer.spec.workload_type == "vm"
    yield _rejected_switch(snapshot, is_vm=is_vm)
    if is_vm:
        yield converted(request, load_balancer)
        yield sctp_on_vm_load_balancer(service)
        yield ignored_on_vm_load_balancer(service, request, load_balancer.spec.ipam)
    else:
        yield local_policy(service)
        yield ignored_on_cluster_load_balancer(service, request, load_balancer.spec.ipam)
    yield from rejected_changes(request, load_balancer)
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


def _fields(desired: Desired, snapshot: ServiceSnapshot) -> ServiceFields:
    """Return the desired fields of the Service, without the condition."""
    intent = desired.kube_vip
    of_kube_vip = annotations_for(snapshot.kube_vip, intent)
    annotations = {
        **desired.annotations,
        **of_kube_vip,
        **record_in(snapshot, intent),
        **end_of_specification(snapshot.kube_vip, of_kube_vip),
    }
    return ServiceFields(
        annotations,
        desired.labels,
        desired.finalizer,
        desired.ingress,
        requires_version=desired.requires_version,
    )


def _next_write(desired: Desired, snapshot: ServiceSnapshot, phase: Phase) -> ServicePlan:
    """Return the plan for a desired state: the Service is patched first, then the load balancer is written.

    A condition that has to change alone comes last.
    """
    condition = condition_of(desired, snapshot)
    plan = ServicePlan(
        phase,
        desired.verdict,
        condition=condition,
        events=_events(desired),
        write=desired.write,
        dry_run=desired.dry_run,
        writes_needed=_writes_needed(desired, snapshot, phase),
        reads_pool=desired.reads_pool,
        reads_endpoints=desired.reads_endpoints,
        look_again_after=desired.look_again_after,
    )
    fields = _fields(desired, snapshot)
    kept = kept_request(snapshot)
    with_condition = replace(fields, annotations={**kept, **fields.annotations}, condition=ConditionChange(condition))
    # Once this controller has created a load balancer, kube-vip's annotation does not count as a request any more.
    is_before_creation = desired.reads_pool or isinstance(desired.write, CreateLoadBalancer | SeedPool)
    keeps_request = bool(kept) and is_before_creation
    if keeps_request or service_patch(snapshot.service, fields):
        return replace(plan, write=_patch(with_condition, snapshot, desired), following_write=desired.write)
    if desired.write is None and desired.reads_endpoints:
        # The plan after that decides what the condition says.
        return plan
    of_condition = _patch_of_condition_alone(condition, with_condition, snapshot)
    if desired.write is None:
        return replace(plan, write=of_condition, dry_run=None)
    if phase is Phase.SWITCHING and of_condition is not None:
        # A switch can take minutes, and the next process must find that the address is not announced.
        return replace(plan, write=of_condition, following_write=desired.write)
    return plan


def _patch(fields: ServiceFields, snapshot: ServiceSnapshot, desired: Desired) -> PatchService:
    triggers_resync = desired.triggers_resync or _withdraws(desired, snapshot)
    return PatchService(
        service_patch(snapshot.service, fields),
        triggers_resync=triggers_resync,
        requests_lease=desired.requests_lease,
        releases=isinstance(desired.verdict, NotManaged),
    )


def _withdraws(desired: Desired, snapshot: ServiceSnapshot) -> bool:
    """Return whether the patch withdraws an address, so that kube-vip stays silent about the next one.

    The patch that announces that one is marked by ``reannouncement.with_reannouncement``.
    """
    return not desired.triggers_resync and intent_needs_resync(snapshot.kube_vip, desired.kube_vip)


def _writes_needed(desired: Desired, snapshot: ServiceSnapshot, phase: Phase) -> int:
    """Return how many writes belong together, so that the rate limit does not stop a replacement halfway."""
    if snapshot.is_leaving:
        return 1
    if phase is Phase.SWITCHING:
        is_begun = is_switch_started(snapshot) or is_switch_noted(snapshot)
        return 1 if is_begun else REPLACEMENT_WRITES
    # An address that has to come back into the annotation is withdrawn first.
    is_first_of_two = desired.triggers_resync and empties_address(snapshot.kube_vip, desired.kube_vip)
    if not _withdraws(desired, snapshot) and not is_first_of_two:
        return 1
    return REPLACEMENT_WRITES if isinstance(desired.write, DeleteLoadBalancer) else WITHDRAWAL_WRITES


def _patch_of_condition_alone(
    condition: ServiceCondition | None, fields: ServiceFields, snapshot: ServiceSnapshot
) -> PatchService | None:
    """Return the patch of the condition alone; None if it does not differ or has to wait for another patch.

    Any change of a Service can make kube-vip announce its address again, so a Service that the Go provider served gets
    its first condition with the next patch that it needs.
    """
    is_first = condition is not None and not snapshot.request.had_condition
    if is_first and condition is not None and condition.status == "True":
        return None
    alone = ServiceFields(condition=fields.condition)
    if not service_patch(snapshot.service, alone):
        return None
    return PatchService(service_patch(snapshot.service, fields))


def _events(desired: Desired) -> tuple[EventMessage, ...]:
    """Return the Events, each once; that of the verdict comes last."""
    events = [event for event in desired.events if event is not None]
    verdict = desired.verdict
    if isinstance(verdict, NotReady) and verdict.emits_event:
        events.append(verdict.message)
    return tuple(dict.fromkeys(events))


def kept_request(snapshot: ServiceSnapshot) -> dict[str, str]:
    """Return the annotations that keep what the first patch of the Service hides.

    That patch brings the condition, and kube-vip's annotation becomes this controller's.
    """
    request = snapshot.request
    address = request.address
    kube_vip = snapshot.kube_vip
    if snapshot.is_leaving or not address:
        return {}
    if address == kube_vip.specified:
        return _note_of_specification(snapshot)
    binding = _note_of_binding(snapshot)
    if address == kube_vip.requested:
        return binding
    return {} if _allocated(snapshot) else {REQUESTED_ADDRESS: address, **binding}


def _allocated(snapshot: ServiceSnapshot) -> frozenset[str]:
    """Return the addresses that Harvester has allocated for the Service, or for its primary."""
    return snapshot.primary_allocated or allocated_addresses(snapshot.match.own)


def _note_of_specification(snapshot: ServiceSnapshot) -> dict[str, str]:
    """Return the annotation that kube-vip has the address from the specification alone: later, nothing else shows it.

    A patch that writes kube-vip's annotation does not have it (``end_of_specification``).
    """
    address = snapshot.request.address
    if snapshot.kube_vip.only_specified == address or not _is_only_specified(snapshot):
        return {}
    allocated = _allocated(snapshot)
    is_possible = not allocated or address in allocated
    return {SPECIFIED_ADDRESS: address} if is_possible else {}


def _note_of_binding(snapshot: ServiceSnapshot) -> dict[str, str]:
    """Return the annotation that the user wrote the request on this Service: later, nothing else shows it."""
    uid = snapshot.service.metadata.uid
    is_noted = snapshot.kube_vip.requested_for == uid
    return {REQUESTED_FOR: uid} if snapshot.request.is_binding and not is_noted else {}


def _is_only_specified(snapshot: ServiceSnapshot) -> bool:
    """Return whether kube-vip can have the requested address, and never had an annotation of this controller."""
    is_first = not snapshot.request.had_condition
    return is_first and snapshot.kube_vip.annotated is None and not snapshot.request.wants_vm


def condition_of(desired: Desired, snapshot: ServiceSnapshot) -> ServiceCondition | None:
    """Return the condition that the Service has in a desired state; None if it has none."""
    match desired.verdict:
        case NotManaged():
            return None
        case Ready(message=message):
            return _condition(snapshot, "True", Reason.ENSURED, message)
        case NotReady() as verdict:
            if verdict.changes_condition or (not verdict.emits_event and _shows_waiting(verdict, desired, snapshot)):
                return failed_condition(verdict, snapshot)
            return snapshot.service.ready_condition


def failed_condition(verdict: NotReady, snapshot: ServiceSnapshot) -> ServiceCondition:
    """Return the condition with status False for a verdict."""
    return _condition(snapshot, "False", verdict.reason, verdict.message.message)


def _shows_waiting(verdict: NotReady, desired: Desired, snapshot: ServiceSnapshot) -> bool:
    """Return whether the condition becomes False although no Event is due yet.

    A new Service gets its first condition when something is wrong, or with its address: one write less for most.
    """
    if verdict.reason in {Reason.KUBE_VIP_RESYNC_PENDING, Reason.DHCP_LEASE_PENDING}:
        # The address is allocated, and kube-vip does not announce it yet.
        return True
    # kube-vip may announce the requested address of a new Service, or have written it to the status. Without the
    # condition, the next plan would take that for the address of a Service that another provider served.
    has_any_address = bool(snapshot.kube_vip.read_address) or bool(snapshot.service.addresses)
    if has_any_address and snapshot.is_new:
        return True
    condition = snapshot.service.ready_condition
    if is_about_announced_address(condition) and _withdraws(desired, snapshot):
        # The next process finds the condition and touches the endpoints, if this one ends before it does.
        return True
    if condition is None or condition.status != "True":
        return False
    if desired.ingress is None:
        return not snapshot.service.addresses
    return not desired.ingress


def _condition(snapshot: ServiceSnapshot, status: str, reason: Reason, message: str) -> ServiceCondition:
    return ServiceCondition(
        type=LOAD_BALANCER_READY,
        status=status,
        reason=str(reason),
        message=message,
        observed_generation=snapshot.service.metadata.generation,
        last_transition_time=snapshot.wall_time,
    )


def body_of(plan: ServicePlan) -> Document | None:
    """Return the load balancer that a plan would create, now or next; None if it creates none."""
    if plan.dry_run is not None:
        return plan.dry_run
    for write in (plan.write, plan.following_write):
        if isinstance(write, CreateLoadBalancer):
            return write.body
    return None
