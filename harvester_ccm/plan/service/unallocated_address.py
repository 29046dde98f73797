"""Addresses that a Service has without a load balancer of its own."""

from collections.abc import Iterable

from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import EventMessage, Wait, WaitReason
from harvester_ccm.names import IP_POOL, REQUESTED_ADDRESS, Reason
from harvester_ccm.plan.service.kube_vip import WITHDRAWN, Annotations, Announcement
from harvester_ccm.plan.service.ownership import service_key
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.writes import Desired, ServiceChange


def record_of(snapshot: ServiceSnapshot) -> Annotations:
    """Return the annotation that keeps a requested address which only kube-vip's annotation has."""
    found = Announcement.of(snapshot.service)
    is_recorded = snapshot.retained_address in {"", found.specified, found.requested}
    return {} if is_recorded else {REQUESTED_ADDRESS: snapshot.retained_address}


def not_allocated_note(snapshot: ServiceSnapshot) -> EventMessage | None:
    """Return the Warning about the address of a Service that no load balancer has allocated, or None."""
    address = snapshot.unallocated_address
    if snapshot.retained_address:
        text = (
            f"Address {address} stays announced: the Service requests it, and Harvester has given it no other one. It "
            "is not allocated in Harvester and may be given to another Service. To have it allocated, create an IP "
            f"pool with that single address and name it in annotation {IP_POOL}"
        )
    else:
        text = (
            f"The Service still has address {address}, but no load balancer of Harvester: the address is not allocated "
            "any more and may be given to another Service"
        )
    return EventMessage("Warning", Reason.ADDRESS_NOT_ALLOCATED, text) if address else None


def plan_taken(snapshot: ServiceSnapshot) -> Desired | None:
    """Return how a Service gives up an address that another load balancer has now; None if that is not the case."""
    address = snapshot.unallocated_address
    others = snapshot.allocated_to_others(address) if address else ()
    if not others:
        return None
    text = (
        f"Address {address} is withdrawn: no load balancer of this Service has it any more, and Harvester has given "
        f"it to {_names(others)}. The Service gets another one"
    )
    cause = EventMessage("Warning", Reason.ADDRESS_NOT_ALLOCATED, text)
    return Desired(Wait(WaitReason.OTHER, 1.0), cause, service=ServiceChange(annotations=WITHDRAWN, ingress=()))


def _names(others: Iterable[LoadBalancer]) -> str:
    return ", ".join(sorted(f"{one.metadata.name} (Service {service_key(one)})" for one in others)[:3])
