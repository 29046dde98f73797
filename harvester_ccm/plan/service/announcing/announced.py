"""The plan of a Service with an allocated address that kube-vip in this cluster announces."""

from msgspec.structs import replace

from harvester_ccm.model.event import EventMessage
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import DHCP_ADDRESS, Reason
from harvester_ccm.plan.service.allocation.chosen_network import network_warning, other_network
from harvester_ccm.plan.service.allocation.deletion import deletion_write
from harvester_ccm.plan.service.announcing.address_events import address_events, allocated_before
from harvester_ccm.plan.service.announcing.device import device_for
from harvester_ccm.plan.service.announcing.dhcp_lease import plan_without_lease, with_lease
from harvester_ccm.plan.service.announcing.sequence import HOLD, Goal, Wish
from harvester_ccm.plan.service.desired import Desired, Finalizer, not_ready, virtual_ip_ingress, waits_for
from harvester_ccm.plan.service.load_balancer.specification import is_for_other_request, load_balancer_change
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.verdict import NotReady, Ready
from harvester_ccm.plan.service.waiting import unpublished, without_addresses


def plan_announced_by_kube_vip(snapshot: ServiceSnapshot) -> Desired:
    """Announce the allocated address, on the device of its network, and publish it in the status."""
    load_balancer = snapshot.load_balancer
    device = device_for(snapshot, load_balancer)
    if device.is_awaited:
        return _plan_device_unknown(snapshot, device.warning)
    leases = snapshot.leases
    wish = Wish(Goal.ANNOUNCE, load_balancer.allocated_ip, device.name, has_lease=bool(leases), had_address=True)
    if load_balancer.allocated_ip != DHCP_ADDRESS:
        warnings = network_warning(snapshot, load_balancer), device.warning
        return _plan_pool(snapshot, load_balancer, wish).with_events(*warnings)
    if leases:
        desired = with_lease(snapshot, load_balancer, wish, leases)
        return desired.with_events(device.warning, *address_events(snapshot, load_balancer, leases[0]))
    return plan_without_lease(snapshot, load_balancer, wish).with_events(device.warning)


def _plan_device_unknown(snapshot: ServiceSnapshot, warning: EventMessage | None) -> Desired:
    """Wait for the device: kube-vip would announce the address on another device, permanently."""
    verdict = waits_for(Reason.NETWORK_DEVICE_UNKNOWN)
    if warning is not None:
        verdict = not_ready(warning, snapshot)
    return _held(snapshot, verdict)


def plan_other_network(snapshot: ServiceSnapshot) -> Desired:
    """Announce nothing. When the Service names a pool or requests another network, it gets another load balancer."""
    load_balancer = snapshot.load_balancer
    desired = _held(snapshot, not_ready(other_network(snapshot, load_balancer), snapshot))
    if not is_for_other_request(load_balancer, snapshot):
        return desired
    return replace(desired, verdict=waits_for(Reason.REPLACEMENT_PENDING), write=deletion_write(load_balancer))


def _held(snapshot: ServiceSnapshot, verdict: NotReady) -> Desired:
    """Return the state of a Service whose address nothing announces: its load balancer is kept current."""
    write = load_balancer_change(snapshot.load_balancer, snapshot)
    return Desired(verdict, HOLD, finalizer=Finalizer.ADD, ingress=without_addresses(snapshot), write=write)


def _plan_pool(snapshot: ServiceSnapshot, load_balancer: LoadBalancer, wish: Wish) -> Desired:
    """Return the desired state with an address from an IP pool."""
    address = load_balancer.allocated_ip
    conflict = allocated_before(snapshot, load_balancer)
    if conflict is not None:
        write = load_balancer_change(load_balancer, snapshot)
        verdict = not_ready(conflict, snapshot)
        return unpublished(snapshot, Desired(verdict, finalizer=Finalizer.ADD, write=write))
    return Desired(
        Ready((address,), f"The load balancer has address {address}"),
        wish,
        finalizer=Finalizer.ADD,
        ingress=virtual_ip_ingress(address, snapshot.service),
        write=load_balancer_change(load_balancer, snapshot, address=address),
        events=address_events(snapshot, load_balancer, address),
    )
