"""What kube-vip announces for a load balancer, and the Events about that: the same for a pool and for DHCP."""

from harvester_ccm import names
from harvester_ccm.model.event import EventMessage
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.address import address_event, not_as_requested
from harvester_ccm.plan.service.device import device_for
from harvester_ccm.plan.service.kube_vip import ADDRESS_ANNOTATION, Announce, overwritten_address
from harvester_ccm.plan.service.snapshot import ServiceSnapshot


def announcement_of(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> Announce:
    """Return what kube-vip must announce: the allocated address (0.0.0.0 requests a lease), on its device."""
    device = device_for(snapshot, load_balancer).name
    return Announce(load_balancer.allocated_ip, device, is_first=not load_balancer.address)


def address_events(
    snapshot: ServiceSnapshot, load_balancer: LoadBalancer, address: str
) -> tuple[EventMessage | None, ...]:
    """Return the Events about the announcement of ``address``, which is empty without a lease."""
    return (
        device_for(snapshot, load_balancer).warning,
        not_as_requested(snapshot, address),
        _restored(snapshot, load_balancer.allocated_ip),
        address_event(snapshot, load_balancer, address),
    )


def _restored(snapshot: ServiceSnapshot, address: str) -> EventMessage | None:
    """Return the Warning for an address annotation that another client changed on a served Service, or None."""
    overwritten = overwritten_address(snapshot.kube_vip, address)
    if not overwritten:
        return None
    cause = f"was changed to {overwritten!r} and is restored to {address}, the address from Harvester"
    remedy = (
        "To get a certain address, create an IP pool with that single address and name it in annotation "
        f"{names.IP_POOL} when the Service is created"
    )
    place = f"Annotation {ADDRESS_ANNOTATION}"
    return EventMessage("Warning", Reason.ANNOTATION_RESTORED, cause, remedy, place=place)
