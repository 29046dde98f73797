"""The way out: stop announcing, delete the load balancer, clear the status, let the Service go.

Harvester books an address first, records it on the load balancer next and puts its finalizer on it last; a deletion in
between loses the booking for good. So a deletion waits for the finalizer, for a bounded time.
"""

from __future__ import annotations

from typing import Final

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import Done, EventMessage, Wait, WaitReason
from harvester_ccm.names import (
    LB_CONTROLLER_FINALIZER,
    MOVING,
    PRIMARY_SERVICE_LABEL,
    SERVICE_FINALIZER,
    Reason,
)
from harvester_ccm.plan.service.kube_vip import (
    Annotations,
    Announcement,
    device_for,
    release,
    still_announced,
    withdraw,
)
from harvester_ccm.plan.service.load_balancer import network_of
from harvester_ccm.plan.service.ownership import allocated_addresses
from harvester_ccm.plan.service.pending import pending_cause
from harvester_ccm.plan.service.selection import of_other_class, primary_label
from harvester_ccm.plan.service.situation import Situation
from harvester_ccm.plan.service.steps import (
    ChangeService,
    DeleteLoadBalancer,
    EmitEvent,
    ServiceChange,
    ServicePlan,
    Step,
    change_service,
    emit,
)

DELETION_PATIENCE: Final = 300.0
"""Seconds a deletion waits for Harvester to have booked the address properly."""
TELL_DELETION_AFTER: Final = 30.0
"""Seconds after which the user is told what a deletion waits for."""


def plan_cleanup(situation: Situation) -> ServicePlan:
    """Return what to do for a Service that is being deleted, or no longer of type LoadBalancer or of our class."""
    own = situation.match.own
    users = users_of_address(situation, own)
    if users:
        text = (
            f"The address is still shared by {', '.join(users)}. The load balancer is deleted when those Services are "
            "deleted or no longer name this one as their primary"
        )
        return ServicePlan(
            (EmitEvent(EventMessage("Warning", Reason.DELETION_PENDING, text)),), Wait(WaitReason.SECONDARIES)
        )
    steps, wait = plan_removal(situation, own, withdrawing=_announced_by_us(situation.service, own))
    if wait is not None:
        return ServicePlan(tuple(steps), wait)
    if own:
        # Before the Service is let go: it is gone then, and nothing can be told of it.
        steps.append(EmitEvent(EventMessage("Normal", Reason.DELETED, "Deleted load balancer")))
    steps += emit(still_announced(situation.service, allocated_addresses(own)))
    steps.append(ChangeService(_farewell(situation, own)))
    return ServicePlan(tuple(steps), Done())


def users_of_address(situation: Situation, own: tuple[LoadBalancer, ...]) -> list[str]:
    """Return the Services that still have the address of this one, which its load balancers ``own`` hold."""
    if not own:
        return []
    held = {*situation.service.addresses, *allocated_addresses(own)}
    label = primary_label(situation.service.metadata.key)
    users = (one for one in situation.own_secondaries if _is_served(one, label) and held.intersection(one.addresses))
    return sorted(one.metadata.key for one in users)


def _announced_by_us(service: Service, own: tuple[LoadBalancer, ...]) -> bool:
    """Return whether kube-vip was told by us what to announce; for a Service of another class that one may have."""
    found = Announcement.of(service)
    shown = {*found.status, found.address}
    return not of_other_class(service) or found.withdrawn or not allocated_addresses(own).isdisjoint(shown)


def _is_served(secondary: Service, label: str) -> bool:
    """Return whether a Service may still be announced; one on its way out holds our finalizer until it is not."""
    meta = secondary.metadata
    kept = meta.has_finalizer(SERVICE_FINALIZER) or (secondary.spec.type == "LoadBalancer" and not meta.deleting)
    return kept and meta.label(PRIMARY_SERVICE_LABEL) == label


def _farewell(situation: Situation, own: tuple[LoadBalancer, ...]) -> ServiceChange:
    """Return the last change: a Service that stays loses all that we put on it, and nothing of another controller's."""
    service = situation.service
    annotations: Annotations = {}
    labels: dict[str, str | None] = {}
    if not service.metadata.deleting:
        wanted = situation.request.network
        network = network_of(own[0], wanted) if own else wanted
        device = device_for(network, situation.network_devices).name
        released = release(service, device=device, announced_by_us=_announced_by_us(service, own))
        annotations = {MOVING: None, **released}
        labels = {PRIMARY_SERVICE_LABEL: None}
    ours = not of_other_class(service) or not allocated_addresses(own).isdisjoint(service.addresses)
    served = service.metadata.has_finalizer(SERVICE_FINALIZER)
    ingress = () if ours and served else None
    return ServiceChange(annotations=annotations, labels=labels, finalizer=False, ingress=ingress)


def plan_removal(
    situation: Situation, own: tuple[LoadBalancer, ...], *, withdrawing: bool
) -> tuple[list[Step], Wait | None]:
    """Return the steps that end the announcement and delete the load balancers, and what must be waited for first."""
    service = situation.service
    steps: list[Step] = []
    if withdrawing and Announcement.of(service).shown:
        # First, so that the address is not given to another Service while it is still announced.
        steps += change_service(service, ServiceChange(annotations=withdraw(service)))
    alive = [one for one in own if not one.metadata.deleting]
    if not all(safe_to_delete(one) for one in alive) and situation.waited < DELETION_PATIENCE:
        return steps, _wait(situation, steps)
    if alive:
        steps.append(EmitEvent(EventMessage("Normal", Reason.DELETING, "Deleting load balancer")))
    steps += [DeleteLoadBalancer(one.metadata.name, one.metadata.uid) for one in alive]
    return steps, None


def _wait(situation: Situation, steps: list[Step]) -> Wait:
    if situation.waited < TELL_DELETION_AFTER:
        return Wait(WaitReason.BOOKING, TELL_DELETION_AFTER - situation.waited)
    left = DELETION_PATIENCE - situation.waited
    text = (
        "Harvester has not finished booking the address of the load balancer; deleting it now would lose the address. "
        "Check that harvester-load-balancer in namespace harvester-system runs. It is deleted in any case after "
        f"{DELETION_PATIENCE:.0f} s"
    )
    steps.append(EmitEvent(EventMessage("Warning", Reason.DELETION_PENDING, text)))
    return Wait(WaitReason.BOOKING, left)


def safe_to_delete(load_balancer: LoadBalancer) -> bool:
    """Return whether Harvester gives the address back when the load balancer is deleted now.

    A refused allocation has booked nothing. Before 1.2 Harvester booked nothing on the load balancer: what kube-vip has
    given goes with the Service that Harvester made.
    """
    if not load_balancer.capabilities.has_ip_pools:
        return True
    if not load_balancer.metadata.has_finalizer(LB_CONTROLLER_FINALIZER):
        return False
    return bool(load_balancer.allocated_ip) or pending_cause(load_balancer).note is not None
