"""Addresses that a Service shows and no load balancer of its own holds, and those that Harvester gives twice."""

from __future__ import annotations

from collections.abc import Iterable

from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import EventMessage, Wait, WaitReason
from harvester_ccm.names import IP_POOL, REQUESTED_ADDRESS, Reason
from harvester_ccm.plan.service.kube_vip import WITHDRAWN, Annotations, Announcement
from harvester_ccm.plan.service.ownership import service_key
from harvester_ccm.plan.service.situation import Situation
from harvester_ccm.plan.service.steps import ServiceChange, ServicePlan, change_service, emit


def record_of(situation: Situation) -> Annotations:
    """Return the annotation that keeps the request for an address which only kube-vip's annotation has."""
    found = Announcement.of(situation.service)
    is_recorded = situation.kept in {"", found.specified, found.requested}
    return {} if is_recorded else {REQUESTED_ADDRESS: situation.kept}


def unbooked_note(situation: Situation) -> EventMessage | None:
    """Return what to tell of an address that the Service shows while no load balancer holds it for it."""
    address = situation.unbooked
    if situation.kept:
        text = (
            f"Address {address} stays announced: the Service asks for it, and Harvester has given it no other one. It "
            "is not booked in Harvester and may be given to another Service. To have it booked, make an IP pool with "
            f"that single address and name it in annotation {IP_POOL}"
        )
    else:
        text = (
            f"Address {address} is still that of the Service although no load balancer of Harvester holds it: it is "
            "not booked any more and may be given to somebody else"
        )
    return EventMessage("Warning", Reason.ADDRESS_NOT_BOOKED, text) if address else None


def plan_taken(situation: Situation) -> ServicePlan | None:
    """Return how a Service gives up the address that it lost to another load balancer; None when it did not."""
    address = situation.unbooked
    others = situation.booked_for_others(address) if address else ()
    if not others:
        return None
    text = (
        f"Address {address} is withdrawn: no load balancer of this Service holds it any more, and Harvester has given "
        f"it to {_named(others)}. The Service gets another one"
    )
    change = change_service(situation.service, ServiceChange(annotations=WITHDRAWN, ingress=()))
    told = emit(EventMessage("Warning", Reason.ADDRESS_NOT_BOOKED, text))
    return ServicePlan((*told, *change), Wait(WaitReason.QUEUED, 1.0))


def booked_twice(situation: Situation, current: LoadBalancer) -> EventMessage | None:
    """Return what to tell when Harvester has given the address of the load balancer to another one of its pool, too."""
    address, pool = current.allocated_ip, current.allocated_pool
    others = tuple(one for one in situation.booked_for_others(address) if one.allocated_pool == pool)
    if not address or not others:
        return None
    text = (
        f"Harvester has given address {address} of IP pool {pool} twice: to {current.metadata.name} of this Service "
        f"and to {_named(others)}. Which of them answers is chance. Look in Harvester for whom status.allocated of the "
        "pool has it, and delete the other load balancer: it is made again with another address"
    )
    return EventMessage("Warning", Reason.ADDRESS_NOT_BOOKED, text)


def _named(others: Iterable[LoadBalancer]) -> str:
    return ", ".join(sorted(f"{one.metadata.name} (Service {service_key(one)})" for one in others)[:3])
