"""A cluster load balancer that exists: hand its address to kube-vip in the guest and to the Service's status."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import Done, EventMessage, Wait, WaitReason
from harvester_ccm.names import (
    DHCP_ADDRESS,
    IP_POOL,
    LB_SELECT_NAMESPACE,
    LB_SELECT_NETWORK,
    LB_SELECT_PROJECT,
    LB_TOUCH,
    POOL_NAMESPACE,
    PROJECT,
    Reason,
)
from harvester_ccm.netip import ipv4_text
from harvester_ccm.plan.service.cleanup import keep_or_remake
from harvester_ccm.plan.service.kube_vip import (
    WITHDRAWN,
    Annotations,
    Announcement,
    announce,
    awaited_device,
    awaits_device,
    device_note,
    edited,
    hold_and_withdraw,
    hold_or_leave_requested,
    lease_of,
    stripped,
    virtual_ip_ingress,
    withdraw,
)
from harvester_ccm.plan.service.load_balancer import load_balancer_change, network_of
from harvester_ccm.plan.service.network_device import NO_DEVICE, Device, device_for
from harvester_ccm.plan.service.pending import NO_DHCP_ANSWER, UNAVAILABLE_PATIENCE, harvester_unavailable
from harvester_ccm.plan.service.request import Request, asked_in, normal_network
from harvester_ccm.plan.service.situation import Situation
from harvester_ccm.plan.service.steps import (
    ServiceChange,
    ServicePlan,
    Step,
    announced_again,
    change_load_balancer,
    change_service,
    emit,
)
from harvester_ccm.plan.service.unbooked import record_of, unbooked_note

DHCP_PATIENCE: Final = 30.0
"""Seconds that kube-vip can take to get a lease before an Event reports that there is none."""
NO_ADDRESS: Final = frozenset({"no_matching_pool", "no_such_pool", "pool_exhausted"})
"""Causes for which Harvester certainly has no address for a Service."""
POINT_TO_POINT: Final = 31
"""Length of the prefix from which on a subnet has no room for load balancers beside nodes."""


def plan_cluster(situation: Situation, load_balancer: LoadBalancer) -> ServicePlan:
    """Return what to do for a Service whose cluster load balancer exists."""
    service, address = situation.service, load_balancer.allocated_ip
    if not address:
        return _plan_pending(situation, load_balancer)
    network = network_of(load_balancer, situation.request.network)
    devices, read, attached = situation.network_devices, situation.mapping_known, situation.backends.attached
    device = device_for(network, devices, read=read, attached=attached) if network else NO_DEVICE
    if awaits_device(service, address, device):
        return _plan_without_device(situation, load_balancer, device)
    plan = (_plan_dhcp if address == DHCP_ADDRESS else _plan_pool)(situation, load_balancer, device)
    return announced_again(plan, situation, address)


def _plan_pending(situation: Situation, load_balancer: LoadBalancer) -> ServicePlan:
    """Return what to do while Harvester has not given an address: keep the object right, and say why it takes time."""
    service = situation.service
    # An address may come in the time that Harvester usually takes.
    is_late = situation.waited >= situation.pending.patience
    annotations = hold_and_withdraw(service) if is_late else hold_or_leave_requested(service)
    change = load_balancer_change(load_balancer, situation)
    return wait_for_address(situation).after(
        *change_service(service, without_address(situation, annotations)),
        *keep_or_remake(situation, load_balancer, change),
    )


def without_address(situation: Situation, annotations: Annotations) -> ServiceChange:
    """Return what a Service without an address from Harvester should be like, with these annotations."""
    if situation.kept:
        return ServiceChange(annotations={**annotations, **record_of(situation)}, finalizer=True)
    if situation.pending.reason not in NO_ADDRESS:
        return ServiceChange(annotations=annotations, finalizer=True)
    # An address in the status is somebody else's, or may be at any moment. Who wrote a host name there knows why.
    shown = () if situation.service.addresses else None
    return ServiceChange(annotations={**annotations, **WITHDRAWN}, finalizer=True, ingress=shown)


def wait_for_address(situation: Situation) -> ServicePlan:
    """Return the Event about an address that does not come, once it is due, and what is waited for."""
    cause = situation.pending
    if situation.harvester_problem is not None and situation.waited >= UNAVAILABLE_PATIENCE:
        event = harvester_unavailable(situation.harvester_problem)
        return ServicePlan(emit(event), Wait(WaitReason.HARVESTER_UNAVAILABLE))
    if situation.waited < cause.patience:
        return ServicePlan((), Wait(cause.reason, cause.patience - situation.waited))
    # Where there is certainly no address, one that nobody asks for is withdrawn.
    shown = unbooked_note(situation) if situation.kept or cause.reason not in NO_ADDRESS else None
    return ServicePlan(emit(cause.note, shown), Wait(cause.reason))


def _plan_without_device(situation: Situation, load_balancer: LoadBalancer, device: Device) -> ServicePlan:
    """Return what to do until the device of the address is known: it would be announced on another one, for good."""
    service = situation.service
    annotations = withdraw(service) if service.addresses else hold_and_withdraw(service)
    change = load_balancer_change(load_balancer, situation)
    steps: tuple[Step, ...] = (
        *emit(awaited_device(load_balancer.allocated_ip, device)),
        *change_service(service, ServiceChange(annotations=annotations, finalizer=True)),
        *change_load_balancer(load_balancer, change),
    )
    return ServicePlan(steps, Wait(WaitReason.NETWORK_DEVICE))


def _plan_pool(situation: Situation, load_balancer: LoadBalancer, device: Device) -> ServicePlan:
    service, address = situation.service, load_balancer.allocated_ip
    annotations = announce(service, address, device=device.name)
    wanted = ServiceChange(annotations=annotations, finalizer=True, ingress=virtual_ip_ingress(address, service))
    difference = not_as_requested(service, situation.request, load_balancer, address)
    unreachable = out_of_reach(situation.request, load_balancer, situation.node_addresses)
    change = load_balancer_change(load_balancer, situation, address=address)
    steps: tuple[Step, ...] = (
        *emit(device_note(service, address, device), difference, unreachable, edited(service, address)),
        *emit(stripped(service, address)),
        *change_service(service, wanted),
        # Before the load balancer is written: that write often meets Harvester's own, and the next plan finds the
        # address in the status already.
        *emit(address_event(situation, load_balancer, address)),
        *change_load_balancer(load_balancer, change),
    )
    return ServicePlan(steps, Done())


def address_event(situation: Situation, load_balancer: LoadBalancer, address: str) -> EventMessage | None:
    """Return the Event about a new address, a changed one, or one that another load balancer has got again."""
    service, kind = situation.service, load_balancer.spec.workload_type
    before = service.addresses
    if before and before != (address,):
        text = f"The address changed from {before[0]} to {address}"
        return EventMessage("Warning", Reason.ADDRESS_CHANGED, text)
    if kind == "cluster":
        is_known = load_balancer.address == address or bool(Announcement.of(service).address)
    else:
        is_known = load_balancer.metadata.annotation(LB_TOUCH) is None
    if before == (address,) and is_known:
        return None
    backends = f", backends {', '.join(sorted(load_balancer.backends))}" if load_balancer.backends else ""
    return EventMessage("Normal", Reason.ENSURED, f"Ensured load balancer, address {address}{backends}")


def _plan_dhcp(situation: Situation, load_balancer: LoadBalancer, device: Device) -> ServicePlan:
    """Hand the request to kube-vip, which alone gets the lease and writes the status; copy the lease to Harvester."""
    service = situation.service
    lease = lease_of(service, touched=situation.remembered.touch_at is None)
    annotations = announce(service, DHCP_ADDRESS, device=device.name)
    # kube-vip writes the lease with the ports of that moment and does not follow them.
    ingress = virtual_ip_ingress(lease, service) if lease and len(service.addresses) <= 1 else None
    wanted = ServiceChange(annotations=annotations, finalizer=True, ingress=ingress)
    change = load_balancer_change(load_balancer, situation, address=lease)
    difference = not_as_requested(service, situation.request, load_balancer, lease)
    steps: tuple[Step, ...] = (
        *emit(device_note(service, DHCP_ADDRESS, device), difference),
        *change_service(service, wanted),
        *change_load_balancer(load_balancer, change),
    )
    if not lease:
        if situation.waited < DHCP_PATIENCE:
            return ServicePlan(steps, Wait(WaitReason.DHCP, DHCP_PATIENCE - situation.waited))
        return ServicePlan((*steps, *emit(NO_DHCP_ANSWER)), Wait(WaitReason.DHCP))
    news = _lease_event(load_balancer.address, lease) if change.address is not None else None
    return ServicePlan((*steps, *emit(news)), Done())


def _lease_event(before: str, lease: str) -> EventMessage:
    if before:
        text = (
            f"The DHCP server gave another address: {lease} instead of {before}. Clients that know the old one lose it"
        )
        return EventMessage("Warning", Reason.ADDRESS_CHANGED, text)
    return EventMessage("Normal", Reason.ENSURED, f"Ensured load balancer, address {lease} from DHCP")


def not_as_requested(
    service: Service, request: Request, load_balancer: LoadBalancer, address: str
) -> EventMessage | None:
    """Return what to tell when the address, or how it was chosen, is not as asked for, or None."""
    differences = []
    if request.address and address and request.address != address:
        place = asked_in(service, request.address)
        where = f" ({place})" if place else ""
        text = (
            f"address {request.address} was asked for{where} and {address} was given, because Harvester chooses the "
            f"address itself. To have {request.address}, make an IP pool with only that address, name the pool in "
            f"annotation {IP_POOL}, delete this Service and create it anew"
        )
        differences.append(text)
    pool, wanted = load_balancer.allocated_pool, load_balancer.spec.ip_pool
    if pool and wanted and pool != wanted:
        differences.append(f"IP pool {wanted} was asked for and the address comes from {pool}")
    differences += _chosen_otherwise(request, load_balancer)
    if not differences:
        return None
    return EventMessage("Warning", Reason.ADDRESS_NOT_AS_REQUESTED, f"Not as requested: {'; '.join(differences)}")


def out_of_reach(request: Request, load_balancer: LoadBalancer, nodes: tuple[str, ...]) -> EventMessage | None:
    """Return what to tell of an address that fits no node in the network that was asked for, or None.

    Harvester falls back to a global pool, whatever network that is for. ``nodes`` are the addresses of the nodes there;
    where none is known nothing follows.
    """
    subnet, known = _subnet(load_balancer), [address for address in map(ipv4_text, nodes) if address]
    if not request.network or subnet is None or not known or any(IPv4Address(one) in subnet for one in known):
        return None
    text = (
        f"Address {load_balancer.allocated_ip} comes from IP pool {load_balancer.allocated_pool} ({subnet}), but no "
        f"node has an address of that subnet in network {request.network}: it will probably not be reachable. Give the "
        "network an IP pool of its own, delete the Service and create it anew"
    )
    return EventMessage("Warning", Reason.ADDRESS_NOT_AS_REQUESTED, text)


def _subnet(load_balancer: LoadBalancer) -> IPv4Network | None:
    """Return the subnet of the pool of the address; None where that has no room for nodes, or does not say."""
    allocated = load_balancer.status.allocated_address if load_balancer.status else None
    try:
        subnet = IPv4Network((allocated.ip, allocated.mask) if allocated else "", strict=False)
    except ValueError:
        return None
    return subnet if subnet.prefixlen < POINT_TO_POINT else None


def _chosen_otherwise(request: Request, load_balancer: LoadBalancer) -> Iterator[str]:
    """Yield the differences between what the pool was to be chosen by and what Harvester made of it."""
    meta, network = load_balancer.metadata, network_of(load_balancer, request.network)
    chosen = meta.annotation(LB_SELECT_NETWORK) or ""
    if network and chosen and normal_network(chosen) != network:
        yield f"network {network} was asked for and Harvester chose {chosen} (versions before 1.9 do that)"
    wishes = (
        (PROJECT, request.project, LB_SELECT_PROJECT),
        (POOL_NAMESPACE, request.pool_namespace, LB_SELECT_NAMESPACE),
    )
    for key, wish, used_by in wishes:
        used = meta.annotation(used_by)
        if wish and used is not None and wish != used:
            yield f"{key} {wish} was asked for and Harvester uses {used or 'none'}, that of the load balancer itself"
