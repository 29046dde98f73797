"""Creates the load balancer of a Service, and replaces one by another of the other workload type."""

from __future__ import annotations

from typing import Final, cast

from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import EventMessage, Refused, Wait, WaitReason
from harvester_ccm.names import IP_POOL, LB_TOUCH, Reason
from harvester_ccm.plan.service.cleanup import wait_for_booking
from harvester_ccm.plan.service.kube_vip import WITHDRAWN, Announcement, hold_or_leave_requested, withdraw
from harvester_ccm.plan.service.load_balancer import Document, new_load_balancer
from harvester_ccm.plan.service.pending import CONTROLLER_PATIENCE
from harvester_ccm.plan.service.request import ignored_settings, unsupported
from harvester_ccm.plan.service.selection import is_served
from harvester_ccm.plan.service.situation import Situation
from harvester_ccm.plan.service.steps import (
    ChangeService,
    CheckCreation,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    EmitEvent,
    ServiceChange,
    ServicePlan,
    Step,
    change_service,
    emit,
    hand_to_harvester,
    hold,
)
from harvester_ccm.plan.service.unbooked import record_of
from harvester_ccm.plan.service.vm_lb import wanted_spec

QUEUED_SECONDS: Final = 60.0
"""Time after which a Service whose creation is queued gets an Event; Harvester serves more than 100 Services in it."""
CREATION_QUEUED: Final = EventMessage(
    "Warning",
    Reason.ADDRESS_PENDING,
    "The load balancer is created after Harvester has responded to those that were created before it; load balancers "
    "are created one at a time. If this Event stays, check that the deployment harvester-load-balancer in namespace "
    "harvester-system is running",
)
_ENSURING: Final = EventMessage("Normal", Reason.ENSURING, "Ensuring load balancer")


def plan_creation(situation: Situation) -> ServicePlan:
    """Return what to do for a Service that has no load balancer."""
    service, request = situation.service, situation.request
    vm = request.wants_vm
    refusal = unsupported(service, vm=vm, new=situation.is_new)
    if refusal is not None or request.ipam is None:
        return ServicePlan((*emit(refusal), *_given_up(situation)), Refused(WaitReason.NOT_SERVABLE))
    body = _new_load_balancer(situation, vm=vm)
    if body is None:
        reason = WaitReason.NODE_PORTS if not wanted_spec(situation) else WaitReason.MACHINES
        return ServicePlan(hold(service), Wait(reason))
    switches = _is_switching(service, vm=vm)
    if switches and request.ipam == "dhcp":
        # Another machine asks for the next lease, so the address is another one.
        return ServicePlan(change_service(service, ServiceChange(ingress=())), Wait(WaitReason.SWITCHING))
    # kube-vip may have announced the address that the user asks for.
    lost = not switches and is_served(service) and service.addresses[0] != request.address
    name = situation.match.expected_name
    steps: tuple[Step, ...] = (
        *emit(ignored_settings(service, request, vm=vm)),
        # While kube-vip is told to withdraw, it may be told to ignore the Service later.
        *(() if switches and vm else _prepared(situation, vm=vm)),
        CreateLoadBalancer(name, body, otherwise=_queued(situation)),
        EmitEvent(_recreating(service, name) if lost else _ENSURING),
    )
    return ServicePlan(steps, Wait(WaitReason.NOT_PROCESSED, CONTROLLER_PATIENCE))


def _new_load_balancer(situation: Situation, *, vm: bool) -> Document | None:
    """Return the load balancer as it is created; None while the backends or node ports of one for VMs are not known."""
    service, request = situation.service, situation.request
    pool = request.ip_pool if request.ipam == "pool" else ""
    spec: Document = {"workloadType": "vm" if vm else "cluster", "ipam": request.ipam, "ipPool": pool}
    if vm:
        fields = wanted_spec(situation)
        if not fields or not situation.backends.known:
            return None
        spec.update(fields)
    body = new_load_balancer(service, request, situation.match.expected_name, situation.cluster, spec=spec)
    if vm:
        # Harvester may still collect the parts of an earlier load balancer of this name, and those of this one, too.
        metadata = cast("dict[str, Document]", body["metadata"])
        metadata["annotations"][LB_TOUCH] = "true"
    return body


def _is_switching(service: Service, *, vm: bool) -> bool:
    """Return whether the Service shows the address of a load balancer of the other workload type."""
    found = Announcement.of(service)
    return found.withdrawn and found.ignored != vm and is_served(service)


def _queued(situation: Situation) -> ServicePlan:
    """Return the plan for a Service whose creation is not admitted yet."""
    if situation.waited < QUEUED_SECONDS:
        return ServicePlan((), Wait(WaitReason.CREATION_QUEUED, QUEUED_SECONDS - situation.waited))
    return ServicePlan(emit(CREATION_QUEUED), Wait(WaitReason.CREATION_QUEUED))


def plan_harvester_mismatch(situation: Situation) -> ServicePlan:
    """Return the plan for a Service without a load balancer if this is not known to be the Harvester of the cluster.

    A Service that shows an address keeps it: it is announced, and allocated in the Harvester of the cluster.
    """
    service = situation.service
    if situation.our_harvester is None:
        return ServicePlan(hold(service), Wait(WaitReason.MACHINES, 1.0))
    told = EventMessage("Warning", Reason.NOT_RECOGNISED, harvester_mismatch(situation.cluster))
    return ServicePlan((*emit(told), *hold(service)), Refused(WaitReason.NEW_HARVESTER))


def harvester_mismatch(cluster: ClusterIdentity) -> str:
    """Return the message for a cloud-config that leads to another Harvester or namespace."""
    return (
        f"Harvester has no load balancer and no VM of this cluster in namespace {cluster.namespace}: the cloud-config "
        "seems to lead to another Harvester or namespace. No load balancer is created there, and Services keep their "
        "addresses. Correct the cloud-config; if the cluster moved there, start the controller with "
        "--accept-new-harvester"
    )


def _given_up(situation: Situation) -> tuple[ChangeService, ...]:
    """Return the steps for a Service that cannot have a load balancer: the address of the one it had is not its own."""
    service = situation.service
    if situation.kept:
        return ()
    # What kube-vip shows of a withdrawn Service is the address of an earlier load balancer.
    if service.addresses and (is_served(service) or Announcement.of(service).withdrawn):
        return change_service(service, ServiceChange(annotations=WITHDRAWN, ingress=()))
    return hold(service)


def _prepared(situation: Situation, *, vm: bool) -> tuple[ChangeService, ...]:
    """Return the steps that put our finalizer on the Service and keep kube-vip from it until there is an address."""
    service = situation.service
    if vm:
        return hand_to_harvester(service)
    annotations = {**hold_or_leave_requested(service), **record_of(situation)}
    return change_service(service, ServiceChange(annotations=annotations, finalizer=True))


def _recreating(service: Service, name: str) -> EventMessage:
    """Return the Event for a missing load balancer; Harvester allocates an address again by the name."""
    text = (
        f"No load balancer in Harvester has address {service.addresses[0]}, which the Service shows; one is created as "
        f"{name}. If that was its name, Harvester gives the same address unless somebody else took it"
    )
    return EventMessage("Warning", Reason.RECREATING, text)


def plan_replacement(situation: Situation, load_balancer: LoadBalancer, wanted: str) -> ServicePlan | None:
    """Return how a load balancer is replaced by one of the ``wanted`` workload type; None if it cannot be created.

    Nothing is withdrawn before Harvester has accepted the new one in a dry run. One patch pins the IP pool, so that
    Harvester allocates the same address again, and withdraws the address.
    """
    service, found = situation.service, Announcement.of(situation.service)
    body = _new_load_balancer(situation, vm=wanted == "vm")
    if body is None or situation.request.primary is not None or situation.request.ipam is None:
        return None
    booking = wait_for_booking(situation, (load_balancer,))
    if booking is not None:
        return booking
    pool = load_balancer.allocated_pool if load_balancer.spec.ipam == "pool" else ""
    pinned = {IP_POOL: pool} if pool and not situation.request.ip_pool else {}
    withdrawn = withdraw(service) if found.shown else {}
    prepared = change_service(service, ServiceChange(annotations={**pinned, **withdrawn}, finalizer=True))
    # A Service that is withdrawn already has no address to keep.
    checked = () if wanted == "vm" and not prepared else (CheckCreation(body),)
    if _announced_by_secondaries(situation, load_balancer):
        # They withdraw as soon as they see that this Service has.
        return ServicePlan((*checked, *prepared), Wait(WaitReason.SECONDARIES, 5.0))
    text = (
        f"The load balancer becomes one of workload type {wanted}: it is deleted now and created again. Its address is "
        "kept where Harvester allows it"
    )
    told = emit(EventMessage("Normal", Reason.SWITCHING, text))
    return ServicePlan((*checked, *prepared, *told, DeleteLoadBalancer.of(load_balancer)), Wait(WaitReason.SWITCHING))


def _announced_by_secondaries(situation: Situation, load_balancer: LoadBalancer) -> bool:
    held = {*situation.service.addresses, load_balancer.allocated_ip, load_balancer.address}
    announced = (one for one in map(Announcement.of, situation.own_secondaries) if one.shown and not one.ignored)
    return any(held.intersection(one.status) for one in announced)
