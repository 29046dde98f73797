"""A cluster load balancer that exists: kube-vip in the guest cluster announces its address."""

from typing import Final

from msgspec.structs import replace

from harvester_ccm import names
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import EventMessage, Wait, WaitReason
from harvester_ccm.plan.service import kube_vip
from harvester_ccm.plan.service.load_balancer import load_balancer_change, network_of, searches_elsewhere
from harvester_ccm.plan.service.messages import (
    NO_DHCP_ANSWER,
    UNAVAILABLE_PATIENCE,
    harvester_unavailable,
    pending_cause,
)
from harvester_ccm.plan.service.network_device import Device, device_for
from harvester_ccm.plan.service.removal import deletion_of
from harvester_ccm.plan.service.request import Request
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.writes import Desired, Document, ServiceChange, TouchEndpoints, wait_for

DHCP_PATIENCE: Final = 30.0
"""Seconds that kube-vip can take to get a lease before an Event reports that none exists."""
TOUCH_ENDPOINTS_AFTER: Final = 1.0
"""Seconds that kube-vip gets to read an address before the endpoints are touched; an earlier touch has no effect."""
NO_ADDRESS: Final = frozenset({WaitReason.NO_MATCHING_POOL, WaitReason.POOL_EXHAUSTED})
"""Causes for which Harvester certainly has no address for a Service."""


def plan_cluster(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> Desired:
    """Return the desired state of a Service whose cluster load balancer exists."""
    service, address = snapshot.service, load_balancer.allocated_ip
    if not address:
        # The address may come in the time that Harvester usually takes.
        is_late = snapshot.waited >= pending_cause(load_balancer).patience
        return plan_pending(snapshot, load_balancer, kube_vip.suppress(service, keep_request=not is_late), {})
    network = network_of(load_balancer, snapshot.request.network)
    device = device_for(network, address, snapshot) if network else Device()
    if device.awaited:
        # kube-vip would announce the address on another device, permanently.
        annotations = kube_vip.withdraw(service) if service.addresses else kube_vip.suppress(service)
        change = ServiceChange(annotations=annotations, finalizer=True)
        then = load_balancer_change(load_balancer, snapshot)
        return Desired(Wait(WaitReason.NETWORK_DEVICE), device.note, service=change, then=then)
    return announced_again(_plan_announced(snapshot, load_balancer, device), snapshot, address)


def plan_pending(
    snapshot: ServiceSnapshot, load_balancer: LoadBalancer, annotations: kube_vip.Annotations, spec: Document
) -> Desired:
    """Return the desired state while Harvester has not allocated an address, with ``annotations`` for kube-vip.

    A load balancer in another pool or network than the Service requests now is deleted and created again: Harvester
    forgets what it has allocated in one pool when another one is named.
    """
    cause, problem, service = pending_cause(load_balancer), snapshot.harvester_problem, snapshot.service
    if problem is not None and snapshot.waited >= UNAVAILABLE_PATIENCE:
        desired = Desired(Wait(WaitReason.HARVESTER_UNAVAILABLE), harvester_unavailable(problem))
    else:
        desired = wait_for(cause.reason, snapshot, cause.patience, cause.note)
    change = ServiceChange(annotations=annotations, finalizer=True)
    if cause.reason in NO_ADDRESS and not snapshot.retained_address:
        # An address in the status belongs to another Service, or may at any moment. A host name there is a user's.
        shown = () if service.addresses else None
        change = replace(change, annotations={**annotations, **kube_vip.WITHDRAWN}, ingress=shown)
    elif desired.cause is not None:
        desired = desired.plus(not_allocated_note(snapshot))
    elsewhere = searches_elsewhere(load_balancer, snapshot) and not cause.patience
    remade = elsewhere or load_balancer.is_closed
    then = deletion_of(load_balancer) if remade else load_balancer_change(load_balancer, snapshot, spec=spec)
    return replace(desired, service=change, then=then)


def not_allocated_note(snapshot: ServiceSnapshot) -> EventMessage | None:
    """Return the Warning about the address of a Service that no load balancer of it has, or None."""
    address = snapshot.unallocated_address
    text = (
        f"Address {address} stays announced, but it is not allocated to this Service in Harvester and may be given to "
        "another one. To have it allocated, create an IP pool with that single address and name it in annotation "
        f"{names.IP_POOL}"
    )
    return EventMessage("Warning", names.Reason.ADDRESS_NOT_ALLOCATED, text) if address else None


def _plan_announced(snapshot: ServiceSnapshot, load_balancer: LoadBalancer, device: Device) -> Desired:
    """Return the desired state with an allocated address.

    For DHCP, kube-vip requests a lease and writes it to the status; the load balancer gets a copy of the address.
    """
    service = snapshot.service
    announced = address = load_balancer.allocated_ip
    if is_dhcp := announced == names.DHCP_ADDRESS:
        address = kube_vip.lease_of(service, touched=snapshot.remembered.touch_at is None)
    desired = Desired() if address else wait_for(WaitReason.DHCP, snapshot, DHCP_PATIENCE, NO_DHCP_ANSWER)
    # kube-vip writes a lease with the ports of that moment and does not follow them.
    is_written = address and not (is_dhcp and len(service.addresses) > 1)
    return replace(
        desired,
        events=(
            device.note,
            not_as_requested(snapshot.request, address),
            kube_vip.restored(service, announced),
            address_event(service, load_balancer, address),
        ),
        service=ServiceChange(
            annotations=kube_vip.announce(service, announced, device=device.name),
            finalizer=True,
            ingress=kube_vip.virtual_ip_ingress(address, service) if is_written else None,
        ),
        then=load_balancer_change(load_balancer, snapshot, address=address),
    )


def announced_again(desired: Desired, snapshot: ServiceSnapshot, address: str) -> Desired:
    """Return a plan that announces an address, with the touch of the endpoints without which kube-vip stays silent."""
    service, touch_at = snapshot.service, snapshot.remembered.touch_at
    read = kube_vip.Announcement.of(service).read_address
    if kube_vip.stays_silent(service, address) or (touch_at is not None and read != address):
        if read not in {"", address}:
            # kube-vip does not announce an address in the event in which it withdraws another one.
            withdrawn = ServiceChange(annotations=kube_vip.withdraw(service))
            return Desired(Wait(WaitReason.ENDPOINTS), events=desired.events, service=withdrawn)
        return replace(desired, outcome=Wait(WaitReason.ENDPOINTS, TOUCH_ENDPOINTS_AFTER), touch=True)
    if touch_at is None:
        return desired
    if touch_at > snapshot.now:
        return replace(desired, outcome=Wait(WaitReason.ENDPOINTS, touch_at - snapshot.now))
    return replace(desired, then=desired.then or TouchEndpoints())


def address_event(service: Service, load_balancer: LoadBalancer, address: str) -> EventMessage | None:
    """Return the Event about a new address, a changed one, or one that another load balancer has got again."""
    if not address:
        return None
    before = next((one for one in (*service.addresses[:1], load_balancer.address) if one not in {"", address}), "")
    if before:
        text = f"The address changed from {before} to {address}"
        return EventMessage("Warning", names.Reason.ADDRESS_CHANGED, text)
    has_it = address in {load_balancer.address, kube_vip.Announcement.of(service).address}
    is_recreated = not has_it or load_balancer.metadata.annotation(names.LB_TOUCH) is not None
    if service.addresses and not is_recreated:
        return None
    backends = f", backends {', '.join(sorted(load_balancer.backends))}" if load_balancer.backends else ""
    return EventMessage("Normal", names.Reason.ENSURED, f"Ensured load balancer, address {address}{backends}")


def not_as_requested(request: Request, address: str) -> EventMessage | None:
    """Return the Warning about an address that differs from the requested one, or None."""
    if not request.address or not address or request.address == address:
        return None
    text = (
        f"Not as requested: address {request.address} is requested and {address} was allocated, because Harvester "
        f"chooses the address itself. To have {request.address}, make an IP pool with only that address, name the pool "
        f"in annotation {names.IP_POOL}, delete this Service and create it again"
    )
    return EventMessage("Warning", names.Reason.ADDRESS_NOT_AS_REQUESTED, text)
