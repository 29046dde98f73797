"""A cluster load balancer that exists: hand its address to kube-vip in the guest and to the Service's status."""

from __future__ import annotations

from typing import Final

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import Done, EventMessage, Wait, WaitReason
from harvester_ccm.names import DHCP_ADDRESS, MOVING, Reason
from harvester_ccm.plan.service.ignored import not_as_requested
from harvester_ccm.plan.service.kube_vip import (
    WITHDRAWN,
    Annotations,
    Announcement,
    Device,
    announce,
    device_for,
    edited,
    hold_and_withdraw,
    hold_or_leave_requested,
    late_announcement,
    needs_endpoint_change,
)
from harvester_ccm.plan.service.load_balancer import load_balancer_change, network_of
from harvester_ccm.plan.service.pending import NO_DHCP_ANSWER, harvester_unavailable
from harvester_ccm.plan.service.request import Request
from harvester_ccm.plan.service.situation import Situation
from harvester_ccm.plan.service.steps import (
    ChangeLoadBalancer,
    EmitEvent,
    ServiceChange,
    ServicePlan,
    Step,
    change_service,
    emit,
    virtual_ip_ingress,
)

CONTROLLER_PATIENCE: Final = 30.0
"""Seconds Harvester may take to look at a new load balancer before we tell; in bulk it serves about one a second."""
DHCP_PATIENCE: Final = 30.0
"""Seconds kube-vip may take for a lease before we tell."""
NO_ADDRESS: Final = frozenset({"no_matching_pool", "no_such_pool", "pool_exhausted"})
"""Causes for which Harvester certainly has no address for a Service."""
UNAVAILABLE_PATIENCE: Final = 5.0
"""Seconds Harvester may be out of reach before waiting Services are told."""


def plan_cluster(situation: Situation, request: Request, load_balancer: LoadBalancer) -> ServicePlan:
    """Return what to do for a Service whose cluster load balancer exists."""
    if not load_balancer.allocated_ip:
        service, soon = situation.service, _is_due(situation)
        waiting = hold_or_leave_requested(service) if soon else hold_and_withdraw(service)
        return plan_pending(situation, load_balancer, waiting)
    if load_balancer.allocated_ip == DHCP_ADDRESS:
        return _plan_dhcp(situation, request, load_balancer)
    return _plan_pool(situation, request, load_balancer)


def plan_pending(situation: Situation, load_balancer: LoadBalancer, annotations: Annotations) -> ServicePlan:
    """Return what to do while Harvester has not given an address: keep the object right, and say why it takes time."""
    service, cause = situation.service, situation.pending
    prepared = ServiceChange(annotations=annotations, finalizer=True)
    if cause.reason in NO_ADDRESS and service.addresses:
        # The one in the status is somebody else's, or may be at any moment.
        prepared = ServiceChange(annotations={**annotations, **WITHDRAWN}, finalizer=True, ingress=())
    steps: list[Step] = [*change_service(service, prepared)]
    as_made = is_being_answered(situation)
    change = load_balancer_change(load_balancer, service, situation.cluster, as_made=as_made)
    if not change.empty:
        steps.append(ChangeLoadBalancer(load_balancer.metadata.name, change))
    if situation.harvester_problem is not None and situation.waited >= UNAVAILABLE_PATIENCE:
        steps.append(EmitEvent(harvester_unavailable(situation.harvester_problem)))
        return ServicePlan(tuple(steps), Wait(WaitReason.HARVESTER_UNAVAILABLE))
    if _is_due(situation):
        return ServicePlan(tuple(steps), Wait(cause.reason, CONTROLLER_PATIENCE - situation.waited))
    steps += emit(cause.note or cause.late)
    return ServicePlan(tuple(steps), Wait(cause.reason))


def _is_due(situation: Situation) -> bool:
    """Return whether an address may come in the time that Harvester usually takes."""
    return is_being_answered(situation) and situation.waited < CONTROLLER_PATIENCE


def is_being_answered(situation: Situation) -> bool:
    """Return whether Harvester may be booking an address for the load balancer now.

    Its pool and network stay as they were made until it has refused: a booking in one pool is lost for good when
    Harvester finds another one named before it has written the address down.
    """
    return situation.pending.note is None


def _plan_pool(situation: Situation, request: Request, load_balancer: LoadBalancer) -> ServicePlan:
    service, address = situation.service, load_balancer.allocated_ip
    device = _device(situation, request, load_balancer)
    annotations = {**announce(service, address, device=device.name), **_replacement_over(service)}
    wanted = ServiceChange(annotations=annotations, finalizer=True, ingress=virtual_ip_ingress(address, service))
    told = emit(device.note, not_as_requested(service, request, load_balancer, address), edited(service, address))
    steps: list[Step] = [*told, *change_service(service, wanted)]
    # Told before the load balancer is written: that write often meets Harvester's own, and the next plan finds the
    # address in the status already.
    steps += told_address(service, load_balancer, address)
    change = load_balancer_change(load_balancer, service, situation.cluster, address=address)
    if not change.empty:
        steps.append(ChangeLoadBalancer(load_balancer.metadata.name, change))
    return ServicePlan(tuple(steps), Done())


def _device(situation: Situation, request: Request, load_balancer: LoadBalancer) -> Device:
    """Return the device in the network of the address, which a later change of the annotation does not move."""
    if not situation.mapping_known:
        return Device()
    return device_for(network_of(load_balancer, request.network), situation.network_devices)


def _replacement_over(service: Service) -> Annotations:
    """Return what to take from a Service whose load balancer has taken the place of one of the other workload type."""
    return {MOVING: None} if service.metadata.annotation(MOVING) is not None else {}


def told_address(service: Service, load_balancer: LoadBalancer, address: str) -> tuple[Step, ...]:
    """Return the Event about a new address, a changed one, or the end of a change of the workload type."""
    before, kind = service.addresses, load_balancer.spec.workload_type
    caveat = late_announcement(service, address) if kind == "cluster" else ""
    if before and before != (address,):
        text = f"The address changed from {before[0]} to {address}{caveat}"
        return (EmitEvent(EventMessage("Warning", Reason.ADDRESS_CHANGED, text)),)
    if service.metadata.annotation(MOVING) is not None:
        text = f"The load balancer is one of workload type {kind} now, address {address}{caveat}"
        return (EmitEvent(EventMessage("Normal", Reason.SWITCHED, text)),)
    known = load_balancer.address == address or Announcement.of(service).address
    if before and (kind != "cluster" or known):
        # Else kube-vip has followed a wish of the user before we came.
        return ()
    backends = f", backends {', '.join(sorted(load_balancer.backends))}" if load_balancer.backends else ""
    return (
        EmitEvent(
            EventMessage("Normal", Reason.ENSURED, f"Ensured load balancer, address {address}{backends}{caveat}")
        ),
    )


def _plan_dhcp(situation: Situation, request: Request, load_balancer: LoadBalancer) -> ServicePlan:
    """Hand the request to kube-vip, which alone gets the lease and writes the status; copy the lease to Harvester."""
    service = situation.service
    lease = service.addresses[0] if service.addresses else None
    device = _device(situation, request, load_balancer)
    annotations = {**announce(service, DHCP_ADDRESS, device=device.name), **_replacement_over(service)}
    # kube-vip writes the lease with the ports of that moment and does not follow them.
    ingress = virtual_ip_ingress(lease, service) if lease and len(service.addresses) == 1 else None
    wanted = ServiceChange(annotations=annotations, finalizer=True, ingress=ingress)
    differences = not_as_requested(service, request, load_balancer, lease or "")
    steps: list[Step] = [*emit(device.note, differences), *change_service(service, wanted)]
    change = load_balancer_change(load_balancer, service, situation.cluster, address=lease)
    if not change.empty:
        steps.append(ChangeLoadBalancer(load_balancer.metadata.name, change))
    if lease is None:
        if situation.waited < DHCP_PATIENCE:
            return ServicePlan(tuple(steps), Wait(WaitReason.DHCP, DHCP_PATIENCE - situation.waited))
        return ServicePlan((*steps, EmitEvent(_no_lease(service))), Wait(WaitReason.DHCP))
    if change.address is not None:
        steps.append(_told_lease(load_balancer.address, lease))
    return ServicePlan(tuple(steps), Done())


def _no_lease(service: Service) -> EventMessage:
    """Return what to tell of a lease that does not come; kube-vip may not have asked for it."""
    if not needs_endpoint_change(service):
        return NO_DHCP_ANSWER
    text = (
        f"{NO_DHCP_ANSWER.message}. kube-vip has announced this Service before and may ask for an address again only "
        "after the endpoints of the Service change or kube-vip restarts"
    )
    return EventMessage(NO_DHCP_ANSWER.type, NO_DHCP_ANSWER.reason, text)


def _told_lease(before: str, lease: str) -> Step:
    if before:
        text = (
            f"The DHCP server gave another address: {lease} instead of {before}. Clients that know the old one lose it"
        )
        return EmitEvent(EventMessage("Warning", Reason.ADDRESS_CHANGED, text))
    return EmitEvent(EventMessage("Normal", Reason.ENSURED, f"Ensured load balancer, address {lease} from DHCP"))
