"""The decision about one Service, in one pure function.

``plan_service`` reads a snapshot of everything that is known and returns the next write, the Events and the condition.
It is called again after every change, so each plan only has to come nearer to the goal:

1. the Service has the finalizer before anything exists in Harvester;
2. one load balancer exists; it is replaced only if the user requests the other workload type;
3. kube-vip's annotation and the status have the address as soon as Harvester has allocated it;
4. removal: withdraw the address, delete the load balancer, clear the Service and remove the finalizer.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import EventMessage, Refused, Wait, WaitReason
from harvester_ccm.names import PRIMARY_SERVICE_LABEL, SERVICE_FINALIZER, Reason
from harvester_ccm.plan.service.cluster_lb import TOUCH_ENDPOINTS_AFTER, plan_cluster
from harvester_ccm.plan.service.condition import condition_of
from harvester_ccm.plan.service.create import (
    CREATION_QUEUED,
    QUEUED_SECONDS,
    plan_creation,
    plan_harvester_mismatch,
    plan_replacement,
)
from harvester_ccm.plan.service.kept_address import allocated_twice, plan_taken
from harvester_ccm.plan.service.kube_vip import Announcement, suppress
from harvester_ccm.plan.service.messages import UNAVAILABLE_PATIENCE, harvester_unavailable
from harvester_ccm.plan.service.ownership import adoption_note, allocated_addresses, foreign_note
from harvester_ccm.plan.service.removal import deletion_of, plan_removal
from harvester_ccm.plan.service.request import converted, ignored_settings, refused_changes, unsupported
from harvester_ccm.plan.service.scope import is_served, was_secondary
from harvester_ccm.plan.service.shared_address import plan_leaving, plan_secondary
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.vm_lb import plan_vm
from harvester_ccm.plan.service.writes import Desired, ServiceChange, ServicePlan, next_write

GONE_PATIENCE: Final = 30.0
"""Seconds that the deletion of a load balancer may take before an Event reports that it is awaited."""


def plan_service(snapshot: ServiceSnapshot) -> ServicePlan:
    """Return what to do for the Service now."""
    desired = _decide(snapshot)
    return next_write(desired, snapshot, condition_of(desired, snapshot))


def plan_queued(plan: ServicePlan, snapshot: ServiceSnapshot) -> ServicePlan:
    """Return the plan of a Service whose load balancer cannot be created yet, because another one is in progress."""
    warnings = tuple(event for event in plan.events if event.type == "Warning")
    if snapshot.waited < QUEUED_SECONDS:
        outcome, cause = Wait(WaitReason.CREATION_QUEUED, QUEUED_SECONDS - snapshot.waited), None
    else:
        outcome, cause = Wait(WaitReason.CREATION_QUEUED), CREATION_QUEUED
    desired = Desired(outcome, cause, events=warnings)
    return next_write(desired, snapshot, condition_of(desired, snapshot))


def _decide(snapshot: ServiceSnapshot) -> Desired:
    """Return the desired state of the Service, with or without an address of its own."""
    service, match = snapshot.service, snapshot.match
    if not snapshot.scope.ours:
        return Desired(events=(snapshot.scope.note,))
    # A load balancer whose creation got no response may be missing in a cache that is not current.
    may_miss_one = snapshot.scope.leaving and snapshot.harvester_problem is not None and not match.own
    if may_miss_one or not snapshot.harvester_known:
        return _plan_unavailable(snapshot)
    if snapshot.scope.leaving:
        return plan_removal(snapshot)
    if snapshot.request.primary is not None:
        is_served_alone = match.lb is not None and not match.lb.metadata.deleting
        return plan_secondary(snapshot, _plan_own(snapshot) if is_served_alone else None)
    if was_secondary(service) and allocated_addresses(match.own).isdisjoint(service.addresses):
        return plan_leaving(service)
    desired = _plan_own(snapshot)
    # The label alone does not make a secondary of a Service with an address of its own.
    labels = {**desired.service.labels, PRIMARY_SERVICE_LABEL: None}
    return replace(desired, service=replace(desired.service, labels=labels))


def _plan_unavailable(snapshot: ServiceSnapshot) -> Desired:
    """Return the desired state while Harvester's load balancers cannot be read: only a new Service is suppressed."""
    service, problem = snapshot.service, snapshot.harvester_problem
    is_managed = service.metadata.has_finalizer(SERVICE_FINALIZER)
    suppressed = ServiceChange(annotations={} if is_managed else suppress(service))
    if problem is None and snapshot.waited < UNAVAILABLE_PATIENCE:
        outcome = Wait(WaitReason.HARVESTER_UNAVAILABLE, UNAVAILABLE_PATIENCE - snapshot.waited)
        return Desired(outcome, service=suppressed)
    # For Services that have what they need, health checks and metrics report the outage.
    waits = snapshot.scope.leaving or not is_served(service)
    cause = harvester_unavailable(problem, service) if waits else None
    return Desired(Wait(WaitReason.HARVESTER_UNAVAILABLE), cause, service=suppressed)


def _plan_own(snapshot: ServiceSnapshot) -> Desired:
    """Return the desired state of a Service with an address of its own."""
    service, match = snapshot.service, snapshot.match
    lb, expected = match.lb, match.expected_name
    if lb is not None and lb.metadata.deleting and snapshot.waited >= GONE_PATIENCE and lb.metadata.name != expected:
        # The new one has another name, so it need not wait for a deletion that does not finish.
        lb = None
    conflicting = next((one for one in match.foreign if one.conflicts(service, expected)), None)
    taken = plan_taken(snapshot) if snapshot.unbooked else None
    if lb is None and conflicting is not None:
        suppressed = ServiceChange(annotations=suppress(service))
        desired = Desired(Refused(WaitReason.FOREIGN_LOAD_BALANCER), foreign_note(conflicting), service=suppressed)
    elif lb is None and not snapshot.our_harvester:
        desired = plan_harvester_mismatch(snapshot)
    elif taken is not None:
        desired = taken
    elif lb is None:
        desired = plan_creation(snapshot)
    else:
        desired = _plan_going(snapshot, lb) if lb.metadata.deleting else _plan_present(snapshot, lb)
    if desired.then is None:
        # Not next to a creation: while the load balancer in use is being deleted, duplicates stay.
        left_over = (deletion_of(one) for one in match.duplicates if not one.metadata.deleting)
        desired = replace(desired, then=next((one for one in left_over if one is not None), None))
    return desired.tell(*snapshot.request.problems, snapshot.request.unknown, *map(foreign_note, match.foreign[:1]))


def _plan_going(snapshot: ServiceSnapshot, going: LoadBalancer) -> Desired:
    """Return the desired state while the old load balancer is being deleted, which has the name and the address."""
    suppressed = ServiceChange(annotations=suppress(snapshot.service), finalizer=True)
    if snapshot.waited < GONE_PATIENCE:
        return Desired(Wait(WaitReason.OLD_LOAD_BALANCER, GONE_PATIENCE - snapshot.waited), service=suppressed)
    text = (
        f"Load balancer {going.metadata.name} is still being deleted in Harvester after {GONE_PATIENCE:.0f} s; a new "
        "one is created afterwards. Check that harvester-load-balancer and its webhook run in namespace "
        "harvester-system"
    )
    cause = EventMessage("Warning", Reason.ADDRESS_PENDING, text)
    return Desired(Wait(WaitReason.OLD_LOAD_BALANCER), cause, service=suppressed)


def _plan_present(snapshot: ServiceSnapshot, current: LoadBalancer) -> Desired:
    """Return the desired state with a load balancer that exists, or its replacement by one of the other type."""
    service, request = snapshot.service, snapshot.request
    vm = current.spec.workload_type == "vm"
    wanted = request.workload_type or current.spec.workload_type
    refusal = unsupported(service, vm=wanted == "vm")
    desired = plan_vm(snapshot, current) if vm else plan_cluster(snapshot, current)
    if wanted != current.spec.workload_type and refusal is None:
        # The present one is brought to its desired state first, because Harvester may refuse the new one.
        is_started = not current.allocated_ip or (not vm and Announcement.of(service).withdrawn)
        # A touch that is not permitted is repeated after minutes, and must not keep the Service from switching.
        touch_at = snapshot.remembered.touch_at
        awaits_touch = not vm and touch_at is not None and 0 < touch_at - snapshot.now <= TOUCH_ENDPOINTS_AFTER
        is_reached = not awaits_touch and desired.is_reached(service)
        replacement = plan_replacement(snapshot, current, wanted) if is_started or is_reached else None
        if replacement is not None:
            return replacement.tell(*(desired.events if is_reached else ()))
    return desired.tell(
        refusal,
        adoption_note(current, service, snapshot.cluster),
        allocated_twice(snapshot, current) if snapshot.holders else None,
        converted(request, current),
        ignored_settings(service, request, vm=vm),
        *refused_changes(request, current),
    )
