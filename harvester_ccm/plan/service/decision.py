"""The decision about one Service, in one pure function.

``plan_service`` reads a snapshot of everything that is known and returns the next write, the Events and the condition.
It is called again after every change, so each plan only has to come nearer to the goal:

1. the Service has the finalizer before anything exists in Harvester;
2. one load balancer exists; it is replaced only if the user requests the other workload type;
3. kube-vip's annotation and the status have the address as soon as Harvester has allocated it;
4. removal: withdraw the address, delete the load balancer, clear the Service and remove the finalizer.
"""

from typing import Final

from msgspec.structs import replace

from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import EventMessage, Refused, Wait, WaitReason
from harvester_ccm.names import PRIMARY_SERVICE_LABEL, SERVICE_FINALIZER, Reason
from harvester_ccm.plan.service.cluster_lb import TOUCH_ENDPOINTS_AFTER, plan_cluster
from harvester_ccm.plan.service.kube_vip import NOT_IGNORED, WITHDRAWN, Announcement, delegate, suppress
from harvester_ccm.plan.service.load_balancer import new_load_balancer
from harvester_ccm.plan.service.messages import (
    CONTROLLER_PATIENCE,
    UNAVAILABLE_PATIENCE,
    harvester_mismatch,
    harvester_unavailable,
    replacement_mismatch,
)
from harvester_ccm.plan.service.ownership import Claim, allocated_addresses, foreign_note
from harvester_ccm.plan.service.removal import REPORT_DELETION_AFTER, deletion_of, plan_removal, plan_replacement
from harvester_ccm.plan.service.request import converted, ignored_settings, local_policy, refused_changes, unsupported
from harvester_ccm.plan.service.scope import is_served, was_secondary
from harvester_ccm.plan.service.shared_address import plan_leaving, plan_secondary
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.vm_lb import plan_vm, wanted_spec
from harvester_ccm.plan.service.writes import (
    CreateLoadBalancer,
    Desired,
    Document,
    ServiceChange,
    ServicePlan,
    next_write,
    service_patch,
    wait_for,
)

MISMATCH_SECONDS: Final = 60.0
"""Interval at which a Service without a load balancer looks whether this is the Harvester of the cluster."""
QUEUED_SECONDS: Final = 60.0
"""Time after which a Service whose creation is queued gets an Event; Harvester serves more than 100 Services in it."""
CREATION_QUEUED: Final = EventMessage(
    "Warning",
    Reason.ADDRESS_PENDING,
    "Load balancers are created one at a time, each after Harvester has responded to the one before. If this Event "
    "stays, check that the deployments harvester-load-balancer and harvester-load-balancer-webhook in namespace "
    "harvester-system of Harvester are running",
)
_ENSURING: Final = EventMessage("Normal", Reason.ENSURING, "Ensuring load balancer")


def plan_service(snapshot: ServiceSnapshot) -> ServicePlan:
    """Return the plan of the Service."""
    return next_write(_decide(snapshot), snapshot)


def plan_queued(plan: ServicePlan, snapshot: ServiceSnapshot) -> ServicePlan:
    """Return the plan of a Service whose load balancer cannot be created yet, because another one is in progress."""
    # The error of the last attempt stays until the next one.
    has_failed = getattr(snapshot.service.ready_condition, "reason", "") == Reason.HARVESTER_UNAVAILABLE
    queued = wait_for(WaitReason.CREATION_QUEUED, snapshot, QUEUED_SECONDS, None if has_failed else CREATION_QUEUED)
    return next_write(queued.plus(*(one for one in plan.events if one.type == "Warning")), snapshot)


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
    # For Services that have what they need, health checks and metrics report the outage.
    waits = snapshot.scope.leaving or not is_served(service)
    cause = harvester_unavailable(problem, service) if waits else None
    patience = UNAVAILABLE_PATIENCE if problem is None else 0.0
    desired = wait_for(WaitReason.HARVESTER_UNAVAILABLE, snapshot, patience, cause)
    return desired if is_managed else replace(desired, service=ServiceChange(annotations=suppress(service)))


def _plan_own(snapshot: ServiceSnapshot) -> Desired:
    """Return the desired state of a Service with an address of its own."""
    service, match = snapshot.service, snapshot.match
    lb, suppressed = match.lb, ServiceChange(annotations=suppress(service))
    conflicting = _conflicting(snapshot)
    if lb is None and conflicting is not None:
        desired = Desired(Refused(WaitReason.OWNERSHIP_CONFLICT), foreign_note(conflicting), service=suppressed)
    elif lb is None and snapshot.our_harvester is None:
        desired = Desired(Wait(WaitReason.HARVESTER_UNAVAILABLE, 1.0), service=suppressed)
    elif lb is None and not snapshot.our_harvester:
        # A Service that has an address keeps it: it is announced, and allocated in the Harvester of the cluster.
        cause = harvester_mismatch(snapshot.cluster)
        # It depends on all Services, load balancers and VMs, whose changes do not wake this Service.
        desired = Desired(Wait(WaitReason.HARVESTER_MISMATCH, MISMATCH_SECONDS), cause, service=suppressed)
    elif others := snapshot.allocated_to_others(snapshot.unallocated_address):
        text = (
            f"Address {snapshot.unallocated_address} is withdrawn: Harvester has given it to "
            f"{others[0].metadata.name}, and this Service gets another one"
        )
        cause = EventMessage("Warning", Reason.ADDRESS_NOT_ALLOCATED, text)
        withdrawn = ServiceChange(annotations=WITHDRAWN, ingress=())
        desired = Desired(Wait(WaitReason.OTHER, 1.0), cause, service=withdrawn)
    elif lb is None:
        desired = _plan_creation(snapshot)
    else:
        desired = _plan_terminating(snapshot, lb) if lb.metadata.deleting else _plan_present(snapshot, lb)
    if desired.then is None:
        # Not next to a creation: while the load balancer in use is being deleted, duplicates stay.
        left_over = (deletion_of(one) for one in match.duplicates if not one.metadata.deleting)
        desired = replace(desired, then=next((one for one in left_over if one is not None), None))
    return desired.plus(*snapshot.request.problems, snapshot.request.unknown, *map(foreign_note, match.foreign[:1]))


def _plan_terminating(snapshot: ServiceSnapshot, old: LoadBalancer) -> Desired:
    """Return the desired state while the old load balancer is being deleted, which has the name and the address.

    The pool can be deleted while it is being blocked, or at any time after the allocation. Harvester then never removes
    its finalizer, because it cannot release the address.
    """
    pool = old.allocated_pool
    text = (
        f"Load balancer {old.metadata.name} is still being deleted in Harvester; a new one is created afterwards. "
        "Check that harvester-load-balancer and its webhook run in namespace harvester-system"
    )
    if pool:
        text += (
            f". If IP pool {pool!r} does not exist any more, create it again under this name, with any range: "
            "Harvester completes the deletion then"
        )
    cause = EventMessage("Warning", Reason.ADDRESS_PENDING, text)
    suppressed = ServiceChange(annotations=suppress(snapshot.service), finalizer=True)
    return replace(wait_for(WaitReason.OLD_LOAD_BALANCER, snapshot, REPORT_DELETION_AFTER, cause), service=suppressed)


def _plan_present(snapshot: ServiceSnapshot, current: LoadBalancer) -> Desired:
    """Return the desired state with a load balancer that exists, or its replacement by one of the other type."""
    service, request = snapshot.service, snapshot.request
    vm = current.spec.workload_type == "vm"
    wanted = request.workload_type or current.spec.workload_type
    refusal = unsupported(service, vm=wanted == "vm")
    desired = plan_vm(snapshot, current) if vm else plan_cluster(snapshot, current)
    if wanted != current.spec.workload_type and refusal is None:
        switch = _plan_switch(snapshot, current, wanted, desired)
        if switch is not None:
            return switch
        refusal = replacement_mismatch(snapshot.cluster) if snapshot.our_harvester is False else None
    return desired.plus(
        refusal,
        None if vm else local_policy(service),
        converted(request, current),
        ignored_settings(service, request, vm=vm),
        *refused_changes(request, current),
    )


def _plan_switch(snapshot: ServiceSnapshot, current: LoadBalancer, wanted: str, desired: Desired) -> Desired | None:
    """Return how the load balancer is replaced by one of the ``wanted`` type; None if that is not due or not possible.

    The present one is brought to its ``desired`` state first, because Harvester may refuse the new one.
    """
    service, request, vm = snapshot.service, snapshot.request, current.spec.workload_type == "vm"
    is_started = not current.allocated_ip or (not vm and Announcement.of(service).withdrawn)
    # A touch that is not permitted is repeated after minutes, and must not keep the Service from switching.
    touch_at = snapshot.remembered.touch_at
    awaits_touch = not vm and touch_at is not None and 0 < touch_at - snapshot.now <= TOUCH_ENDPOINTS_AFTER
    is_reached = not awaits_touch and desired.then is None and not service_patch(service, desired.service)
    if not (is_started or is_reached) or request.primary is not None or request.ipam is None:
        return None
    body = _new_body(snapshot, vm=wanted == "vm")
    if body is None or not _can_create(snapshot):
        return None
    replacement = plan_replacement(snapshot, current, wanted, body)
    return replacement.plus(*desired.events) if is_reached else replacement


def _can_create(snapshot: ServiceSnapshot) -> bool:
    """Return whether the controller would create the next load balancer if the present one did not exist."""
    return bool(snapshot.our_harvester) and _conflicting(snapshot) is None


def _conflicting(snapshot: ServiceSnapshot) -> Claim | None:
    """Return a load balancer of another cluster with the name or the address that a new one would get, or None."""
    match = snapshot.match
    return next((claim for claim in match.foreign if claim.conflicts(snapshot.service, match.expected_name)), None)


def _plan_creation(snapshot: ServiceSnapshot) -> Desired:
    """Return the desired state of a Service that has no load balancer."""
    service, request = snapshot.service, snapshot.request
    vm = request.wants_vm
    refusal = unsupported(service, vm=vm)
    if refusal is not None or request.ipam is None:
        # The first problem is that of the annotation ipam.
        cause = refusal or request.problems[0]
        return Desired(Refused(WaitReason.UNSUPPORTED), cause, service=_without_load_balancer(snapshot))
    if vm and not wanted_spec(snapshot):
        return Desired(Wait(WaitReason.NODE_PORTS), service=_without_load_balancer(snapshot))
    body = _new_body(snapshot, vm=vm)
    if body is None:
        return Desired(Wait(WaitReason.HARVESTER_UNAVAILABLE), service=ServiceChange(annotations=suppress(service)))
    found = Announcement.of(service)
    # The Service has the address of a load balancer of the other workload type.
    switches = found.withdrawn and found.ignored != vm and is_served(service)
    if switches and request.ipam == "dhcp":
        # Another machine requests the next lease, so the address is another one. A Service without an address that
        # kube-vip ignores would count as new (``stays_silent``).
        cleared = ServiceChange(annotations=NOT_IGNORED, ingress=())
        return Desired(Wait(WaitReason.OLD_LOAD_BALANCER), service=cleared)
    event, name = _ENSURING, snapshot.match.expected_name
    # kube-vip may have announced the address that the user requests.
    if not switches and is_served(service) and service.addresses[0] not in {found.specified, found.requested}:
        text = (
            f"No load balancer in Harvester has address {service.addresses[0]} of this Service; one is created as "
            f"{name}. If that was its name, Harvester gives it the same address unless another load balancer has it now"
        )
        event = EventMessage("Warning", Reason.RECREATING, text)
    annotations = delegate(service) if vm else suppress(service, keep_request=True)
    # ``ignore`` is set only after kube-vip has seen the withdrawal.
    prepared = ServiceChange() if switches and vm else ServiceChange(annotations=annotations, finalizer=True)
    return Desired(
        Wait(WaitReason.QUEUED, CONTROLLER_PATIENCE),
        events=(ignored_settings(service, request, vm=vm), event),
        service=prepared,
        then=CreateLoadBalancer(name, body),
    )


def _without_load_balancer(snapshot: ServiceSnapshot) -> ServiceChange:
    """Return the fields of a Service for which no load balancer can be created."""
    service = snapshot.service
    if is_served(service) and not snapshot.retained_address:
        # The address is that of an earlier load balancer.
        return ServiceChange(annotations=WITHDRAWN, ingress=())
    return ServiceChange(annotations=suppress(service, keep_request=bool(snapshot.retained_address)))


def _new_body(snapshot: ServiceSnapshot, *, vm: bool) -> Document | None:
    """Return the load balancer as it is created; None while the backends or node ports of one for VMs are not known."""
    spec = wanted_spec(snapshot) if vm else {}
    if vm and not (spec and snapshot.backends is not None):
        return None
    return new_load_balancer(snapshot.service, snapshot.request, snapshot.cluster, spec)
