"""A cluster load balancer that exists: kube-vip in the guest cluster announces its address."""

from typing import Final

from msgspec.structs import replace

from harvester_ccm import names
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import EventMessage, Wait, WaitReason
from harvester_ccm.plan.service import kube_vip
from harvester_ccm.plan.service.load_balancer import load_balancer_change, network_of, searches_elsewhere
from harvester_ccm.plan.service.messages import NO_DHCP_ANSWER, UNAVAILABLE_PATIENCE, harvester_unavailable
from harvester_ccm.plan.service.network_device import Device, device_for
from harvester_ccm.plan.service.removal import deletion_of
from harvester_ccm.plan.service.request import Request
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.writes import (
    ChangeLoadBalancer,
    DeleteLoadBalancer,
    Desired,
    ServiceChange,
    TouchEndpoints,
    wait_for,
)

DHCP_PATIENCE: Final = 30.0
"""Seconds that kube-vip can take to get a lease before an Event reports that none exists."""
TOUCH_ENDPOINTS_AFTER: Final = 1.0
"""Seconds that kube-vip gets to read an address before the endpoints are touched; an earlier touch has no effect."""
TOUCH_RETRY: Final = 600.0
"""Seconds after which endpoints are touched again if the patch was not permitted."""
NO_ADDRESS: Final = frozenset({WaitReason.NO_MATCHING_POOL, WaitReason.POOL_EXHAUSTED})
"""Causes for which Harvester certainly has no address for a Service."""


def plan_cluster(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> Desired:
    """Return the desired state of a Service whose cluster load balancer exists."""
    service, address = snapshot.service, load_balancer.allocated_ip
    if not address:
        return _plan_pending(snapshot, load_balancer)
    network = network_of(load_balancer, snapshot.request.network)
    device = Device()
    if network:
        device = device_for(
            network,
            snapshot.network_devices,
            read=snapshot.mapping_known,
            published=snapshot.cluster.publishes_devices,
        )
    if kube_vip.awaits_device(service, address, device):
        return _plan_without_device(snapshot, load_balancer, device)
    plan = _plan_dhcp if address == names.DHCP_ADDRESS else _plan_pool
    return announced_again(plan(snapshot, load_balancer, device), snapshot, address)


def _plan_pending(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> Desired:
    """Return the desired state while Harvester has not allocated an address."""
    # The address may come in the time that Harvester usually takes.
    is_late = snapshot.waited >= snapshot.pending.patience
    annotations = kube_vip.suppress(snapshot.service, keep_request=not is_late)
    change = load_balancer_change(load_balancer, snapshot)
    return replace(
        wait_for_address(snapshot),
        service=without_address(snapshot, annotations),
        then=keep_or_remake(snapshot, load_balancer, change),
    )


def keep_or_remake(
    snapshot: ServiceSnapshot, load_balancer: LoadBalancer, change: ChangeLoadBalancer | None
) -> DeleteLoadBalancer | ChangeLoadBalancer | None:
    """Return the write for a load balancer without an address, whose desired state differs by ``change``.

    If it is in another pool or network than the Service requests now, it is deleted and created again: Harvester
    forgets what it has allocated in one pool when another one is named.
    """
    elsewhere = searches_elsewhere(load_balancer, snapshot) and not snapshot.pending.patience
    return deletion_of(load_balancer) if elsewhere or load_balancer.is_closed else change


def without_address(snapshot: ServiceSnapshot, annotations: kube_vip.Annotations) -> ServiceChange:
    """Return the change for a Service without an address from Harvester, with these annotations."""
    if snapshot.retained_address:
        return ServiceChange(annotations={**annotations, **record_of(snapshot)}, finalizer=True)
    if snapshot.pending.reason not in NO_ADDRESS:
        return ServiceChange(annotations=annotations, finalizer=True)
    # An address in the status belongs to another Service, or may at any moment. A host name there is a user's.
    shown = () if snapshot.service.addresses else None
    return ServiceChange(annotations={**annotations, **kube_vip.WITHDRAWN}, finalizer=True, ingress=shown)


def record_of(snapshot: ServiceSnapshot) -> kube_vip.Annotations:
    """Return the annotation that keeps a requested address which only kube-vip's annotation has."""
    found = kube_vip.Announcement.of(snapshot.service)
    is_recorded = snapshot.retained_address in {"", found.specified, found.requested}
    return {} if is_recorded else {names.REQUESTED_ADDRESS: snapshot.retained_address}


def wait_for_address(snapshot: ServiceSnapshot) -> Desired:
    """Return the state of a Service that waits for an address from Harvester, with the Warning when it is due."""
    cause, problem = snapshot.pending, snapshot.harvester_problem
    if problem is not None and snapshot.waited >= UNAVAILABLE_PATIENCE:
        return Desired(Wait(WaitReason.HARVESTER_UNAVAILABLE), harvester_unavailable(problem))
    desired = wait_for(cause.reason, snapshot, cause.patience, cause.note)
    # If there is certainly no address, one that the Service does not request is withdrawn.
    shown = desired.cause is not None and (snapshot.retained_address or cause.reason not in NO_ADDRESS)
    return desired.plus(not_allocated_note(snapshot)) if shown else desired


def not_allocated_note(snapshot: ServiceSnapshot) -> EventMessage | None:
    """Return the Warning about the address of a Service that no load balancer of it has, or None."""
    address = snapshot.unallocated_address
    text = (
        f"Address {address} stays announced, but it is not allocated to this Service in Harvester and may be given to "
        "another one. To have it allocated, create an IP pool with that single address and name it in annotation "
        f"{names.IP_POOL}"
    )
    return EventMessage("Warning", names.Reason.ADDRESS_NOT_ALLOCATED, text) if address else None


def _plan_without_device(snapshot: ServiceSnapshot, load_balancer: LoadBalancer, device: Device) -> Desired:
    """Return the desired state until the device is known: kube-vip would announce on another device, permanently."""
    service, address = snapshot.service, load_balancer.allocated_ip
    annotations = kube_vip.withdraw(service) if service.addresses else kube_vip.suppress(service)
    return Desired(
        Wait(WaitReason.NETWORK_DEVICE),
        kube_vip.device_note(service, address, device, waits=True),
        service=ServiceChange(annotations=annotations, finalizer=True),
        then=load_balancer_change(load_balancer, snapshot),
    )


def _plan_pool(snapshot: ServiceSnapshot, load_balancer: LoadBalancer, device: Device) -> Desired:
    service, address = snapshot.service, load_balancer.allocated_ip
    return Desired(
        events=(
            kube_vip.device_note(service, address, device),
            not_as_requested(snapshot.request, address),
            kube_vip.restored(service, address),
            address_event(snapshot, load_balancer, address),
        ),
        service=ServiceChange(
            annotations=kube_vip.announce(service, address, device=device.name),
            finalizer=True,
            ingress=kube_vip.virtual_ip_ingress(address, service),
        ),
        then=load_balancer_change(load_balancer, snapshot, address=address),
    )


def _plan_dhcp(snapshot: ServiceSnapshot, load_balancer: LoadBalancer, device: Device) -> Desired:
    """Have kube-vip request a lease, which it writes to the status; the load balancer gets a copy of the address."""
    service = snapshot.service
    lease = kube_vip.lease_of(service, touched=snapshot.remembered.touch_at is None)
    desired = Desired() if lease else wait_for(WaitReason.DHCP, snapshot, DHCP_PATIENCE, NO_DHCP_ANSWER)
    return replace(
        desired,
        events=(
            kube_vip.device_note(service, names.DHCP_ADDRESS, device),
            not_as_requested(snapshot.request, lease),
            _lease_event(load_balancer.address, lease) if lease and lease != load_balancer.address else None,
        ),
        service=ServiceChange(
            annotations=kube_vip.announce(service, names.DHCP_ADDRESS, device=device.name),
            finalizer=True,
            # kube-vip writes the lease with the ports of that moment and does not follow them.
            ingress=kube_vip.virtual_ip_ingress(lease, service) if lease and len(service.addresses) <= 1 else None,
        ),
        then=load_balancer_change(load_balancer, snapshot, address=lease),
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


def address_event(snapshot: ServiceSnapshot, load_balancer: LoadBalancer, address: str) -> EventMessage | None:
    """Return the Event about a new address, a changed one, or one that another load balancer has got again."""
    service, kind = snapshot.service, load_balancer.spec.workload_type
    before = service.addresses
    if before and before != (address,):
        text = f"The address changed from {before[0]} to {address}"
        return EventMessage("Warning", names.Reason.ADDRESS_CHANGED, text)
    if kind == "cluster":
        is_known = load_balancer.address == address or bool(kube_vip.Announcement.of(service).address)
    else:
        is_known = load_balancer.metadata.annotation(names.LB_TOUCH) is None
    if before == (address,) and is_known:
        return None
    backends = f", backends {', '.join(sorted(load_balancer.backends))}" if load_balancer.backends else ""
    return EventMessage("Normal", names.Reason.ENSURED, f"Ensured load balancer, address {address}{backends}")


def _lease_event(before: str, lease: str) -> EventMessage:
    if before:
        text = (
            f"The DHCP server gave another address: {lease} instead of {before}. Clients that know the old one lose it"
        )
        return EventMessage("Warning", names.Reason.ADDRESS_CHANGED, text)
    return EventMessage("Normal", names.Reason.ENSURED, f"Ensured load balancer, address {lease} from DHCP")


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
