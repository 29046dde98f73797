"""A Service that shares the address of another one, its primary; it has no load balancer of its own."""

from __future__ import annotations

from dataclasses import replace

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import Done, EventMessage, Refused, Wait, WaitReason
from harvester_ccm.names import (
    DHCP_ADDRESS,
    IPAM,
    MOVING,
    NETWORK,
    PRIMARY_SERVICE_LABEL,
    Reason,
)
from harvester_ccm.plan.service.cleanup import plan_removal, users_of_address
from harvester_ccm.plan.service.ignored import ignored_on_secondary, obstacle
from harvester_ccm.plan.service.kube_vip import WITHDRAWN, Announcement, announce_like, hold, late_announcement
from harvester_ccm.plan.service.patch import ServiceChange, virtual_ip_ingress
from harvester_ccm.plan.service.request import unknown_annotations
from harvester_ccm.plan.service.selection import was_secondary
from harvester_ccm.plan.service.sharing import primary_label, share
from harvester_ccm.plan.service.situation import (
    ChangeService,
    EmitEvent,
    ServicePlan,
    Situation,
    Step,
    change_service,
    emit,
    hand_to_harvester,
)


def plan_secondary(situation: Situation, own: tuple[LoadBalancer, ...], keep: ServicePlan | None) -> ServicePlan:
    """Return what to do for a Service that names a primary.

    ``own`` are load balancers that it had before it did; ``keep`` is how the one that serves it is kept until the
    other address can be used.
    """
    service, primary = situation.service, situation.primary
    sharing = share(service, primary, situation.sharers, situation.cluster)
    if primary is None or not sharing.address or not _is_given(situation, sharing.address):
        told = emit(sharing.note)
        rest = keep if keep is not None else _plan_without_address(situation, outranked=sharing.outranked)
        return ServicePlan((*told, *rest.steps), rest.outcome)
    hindrance = obstacle(service, vm=Announcement.of(primary).ignored)
    if hindrance is not None:
        rest = keep or replace(_plan_without_address(situation), outcome=Refused(WaitReason.NOT_SERVABLE))
        return ServicePlan((*emit(hindrance), *rest.steps), rest.outcome)
    users = users_of_address(situation, own)
    if users:
        text = (
            f"The address cannot be shared with {primary.metadata.key} yet: this Service keeps its own, because "
            f"{', '.join(users)} shares it. Name {primary.metadata.key} as primary there, too"
        )
        kept_steps = keep.steps if keep is not None else ()
        return ServicePlan(
            (EmitEvent(EventMessage("Warning", Reason.SHARING_REFUSED, text)), *kept_steps),
            Wait(WaitReason.SECONDARIES),
        )
    ignored = ignored_on_secondary(service, primary, vm=Announcement.of(primary).ignored)
    told = emit(ignored, *unknown_annotations(service))
    changes = Announcement.of(service).address != sharing.address
    removal, wait = plan_removal(situation, own, withdrawing=bool(own) and changes)
    if wait is not None:
        return ServicePlan((*told, *removal), wait)
    steps: list[Step] = [*told, *removal, *_attached(service, primary, sharing.address)]
    if service.addresses != (sharing.address,):
        steps.append(EmitEvent(_ensured(service, primary, sharing.address)))
    return ServicePlan(tuple(steps), Done())


def plan_leaving(service: Service) -> ServicePlan:
    """Return the plan by which a former secondary gives up the shared address, before it gets one of its own."""
    change = ServiceChange(annotations=WITHDRAWN, labels={PRIMARY_SERVICE_LABEL: None}, ingress=())
    return ServicePlan(change_service(service, change), Wait(WaitReason.LEAVING_PRIMARY, 1.0))


def _plan_without_address(situation: Situation, *, outranked: bool = False) -> ServicePlan:
    """Return the plan while the address may not be shared or is not there; a change of the others wakes us.

    ``outranked``: another secondary has a port of this Service.
    """
    service, primary = situation.service, situation.primary
    if (was_secondary(service) or service.addresses) and (outranked or not _is_of(service, primary)):
        # Its own load balancer is gone, or the Service that it shared with is gone or no longer named: nobody holds
        # the address for it. Or both would be on one port, and where its traffic goes would be chance.
        return ServicePlan(plan_leaving(service).steps, Wait(WaitReason.PRIMARY))
    withdrawn = service.addresses and primary is not None and Announcement.of(primary).withdrawn
    annotations = WITHDRAWN if withdrawn else hold(service)
    change = ServiceChange(annotations=annotations, finalizer=True)
    return ServicePlan(change_service(service, change), Wait(WaitReason.PRIMARY))


def _is_given(situation: Situation, address: str) -> bool:
    """Return whether the primary's address is from Harvester; kube-vip may show there what its user asked for."""
    given = situation.primary_given
    return given is None or not given.isdisjoint({address, DHCP_ADDRESS})


def _is_of(service: Service, primary: Service | None) -> bool:
    """Return whether the address that the Service has is the one of the primary it names."""
    if primary is None or service.metadata.label(PRIMARY_SERVICE_LABEL) != primary_label(primary.metadata.key):
        return False
    return not primary.addresses or service.addresses[:1] == primary.addresses[:1]


def _attached(service: Service, primary: Service, address: str) -> tuple[ChangeService, ...]:
    """Return the steps that give the Service the primary's address, announced like the primary's."""
    first = hand_to_harvester(service) if Announcement.of(primary).ignored else ()
    network = primary.metadata.annotation(NETWORK)
    change = ServiceChange(
        annotations={
            **announce_like(primary, service, address),
            **({NETWORK: network} if network else {}),
            IPAM: None,
            MOVING: None,
        },
        labels={PRIMARY_SERVICE_LABEL: primary_label(primary.metadata.key)},
        finalizer=True,
        ingress=virtual_ip_ingress(address, service),
    )
    return (*first, *change_service(service, change))


def _ensured(service: Service, primary: Service, address: str) -> EventMessage:
    shared = f"shared with {primary.metadata.key}"
    if not Announcement.of(primary).ignored:
        shared += late_announcement(service, address)
    if service.addresses:
        text = f"The address changed from {service.addresses[0]} to {address}, {shared}"
        return EventMessage("Warning", Reason.ADDRESS_CHANGED, text)
    text = f"Ensured load balancer, address {address} {shared}"
    return EventMessage("Normal", Reason.ENSURED, text)
