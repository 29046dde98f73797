"""The way out: stop announcing, delete the load balancer, clear the status, let the Service go.

Harvester books an address first, records it on the load balancer next and puts its finalizer on it last; a deletion in
between loses the booking for good. So a deletion waits for the finalizer, for a bounded time. After a refusal Harvester
tries again whenever it likes: a load balancer that was refused is closed before it is deleted, and deleted when
Harvester has looked at it since, as no try of before is under way then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import Done, EventMessage, Wait, WaitReason
from harvester_ccm.names import (
    DHCP_ADDRESS,
    LB_ASKED_AGAIN,
    LB_CONTROLLER_FINALIZER,
    PRIMARY_SERVICE_LABEL,
    SERVICE_FINALIZER,
    Reason,
)
from harvester_ccm.plan.service.kube_vip import (
    NO_OWN_DEVICE,
    RESTART,
    Annotations,
    Announcement,
    release,
    stays_up,
    withdraw,
)
from harvester_ccm.plan.service.load_balancer import LoadBalancerChange, network_of, searches_elsewhere
from harvester_ccm.plan.service.network_device import device_for
from harvester_ccm.plan.service.ownership import allocated_addresses
from harvester_ccm.plan.service.pending import pending_cause, pool_of_last_attempt
from harvester_ccm.plan.service.selection import of_other_class, primary_label, was_secondary
from harvester_ccm.plan.service.situation import Situation
from harvester_ccm.plan.service.steps import (
    ChangeService,
    DeleteLoadBalancer,
    ServiceChange,
    ServicePlan,
    Step,
    change_load_balancer,
    change_service,
    emit,
)

DELETION_PATIENCE: Final = 300.0
"""Seconds a deletion waits for Harvester to have booked the address properly."""
SHARING_SECONDS: Final = 1.0
"""Seconds after which the response to any patch of a Service that shares the address is known."""
TELL_DELETION_AFTER: Final = 30.0
"""Seconds after which an Event says what a deletion waits for."""
_DELETING: Final = EventMessage("Normal", Reason.DELETING, "Deleting load balancer")
_DELETED: Final = EventMessage("Normal", Reason.DELETED, "Deleted load balancer")


def plan_cleanup(situation: Situation) -> ServicePlan:
    """Return what to do for a Service that is being deleted, or no longer of type LoadBalancer or of our class."""
    service, own = situation.service, situation.match.own
    users = users_of_address(situation)
    if users:
        text = (
            f"The address is still shared by {', '.join(users)}. The load balancer is deleted when those Services are "
            "deleted or no longer name this one as their primary"
        )
        return ServicePlan(_pending(text), Wait(WaitReason.SECONDARIES))
    announced_by_us = _announced_by_us(service, own)
    withdrawn = withdrawal(service) if announced_by_us else ()
    if situation.own_secondaries and own and situation.waited < SHARING_SECONDS:
        # A patch by which another Service begins to share the address may be in progress.
        return ServicePlan(withdrawn, Wait(WaitReason.SECONDARIES, SHARING_SECONDS - situation.waited))
    booking = wait_for_booking(situation, own)
    if booking is not None:
        return booking.after(*withdrawn)
    steps: tuple[Step, ...] = (
        *withdrawn,
        *deletion(own),
        # Before the Service is let go: it is gone then, and has no Events any more.
        *emit(_DELETED if own else None),
        *emit(_still_announced(service, allocated_addresses(own))),
        ChangeService(_letting_go(situation, own, announced_by_us=announced_by_us)),
    )
    return ServicePlan(steps, Done())


def _still_announced(service: Service, allocated: Iterable[str]) -> EventMessage | None:
    """Return what to tell of an address that kube-vip does not take down, as it looks at no Service of another type.

    ``allocated`` are the addresses that Harvester gave for it: the API server empties the status with the change of
    the type.
    """
    found = Announcement.of(service)
    if not stays_up(service):
        return None
    addresses = {*allocated, *found.status, found.address or ""} - {"", DHCP_ADDRESS}
    text = (
        "kube-vip does not take an address down when a Service is no longer of type LoadBalancer: "
        f"{', '.join(sorted(addresses)) or 'its address'} may stay up on node {found.node} until kube-vip restarts "
        f"there, while Harvester may give it to another Service. {RESTART}"
    )
    return EventMessage("Warning", Reason.STILL_ANNOUNCED, text)


def users_of_address(situation: Situation) -> list[str]:
    """Return the Services that still have the address of this one, which its load balancers hold."""
    own = situation.match.own
    if not own:
        return []
    held = {*situation.service.addresses, *allocated_addresses(own)}
    label = primary_label(situation.service.metadata.key)
    users = (one for one in situation.own_secondaries if _is_served(one, label))
    # kube-vip announces what it is told, whatever somebody has made of the status.
    return sorted(one.metadata.key for one in users if held & {*one.addresses, Announcement.of(one).address})


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


def _letting_go(situation: Situation, own: tuple[LoadBalancer, ...], *, announced_by_us: bool) -> ServiceChange:
    """Return the last change: a Service that stays loses all that we put on it, and nothing of another controller's."""
    service = situation.service
    annotations: Annotations = {}
    labels: dict[str, str | None] = {}
    if not service.metadata.deleting:
        wanted = situation.request.network
        network = network_of(own[0], wanted) if own else wanted
        device = device_for(network, situation.network_devices).name
        annotations = {**release(service, device=device, announced_by_us=announced_by_us)}
        annotations |= NO_OWN_DEVICE if was_secondary(service) else {}
        labels = {PRIMARY_SERVICE_LABEL: None}
    ours = not of_other_class(service) or not allocated_addresses(own).isdisjoint(service.addresses)
    served = service.metadata.has_finalizer(SERVICE_FINALIZER)
    ingress = () if ours and served else None
    return ServiceChange(annotations=annotations, labels=labels, finalizer=False, ingress=ingress)


def withdrawal(service: Service) -> tuple[ChangeService, ...]:
    """Return the step that ends the announcement by kube-vip.

    It comes first, so that the address is not given to another Service while it is still announced.
    """
    shown = Announcement.of(service).shown
    return change_service(service, ServiceChange(annotations=withdraw(service))) if shown else ()


def wait_for_booking(situation: Situation, own: tuple[LoadBalancer, ...]) -> ServicePlan | None:
    """Return what is waited for before load balancers are deleted, with its Event; None when they may be deleted."""
    firsts = [(one, before_deletion(one)) for one in own if not one.metadata.deleting]
    if all(first is not None and first.empty for _, first in firsts) or situation.waited >= DELETION_PATIENCE:
        return None
    closed = tuple(step for one, first in firsts if first is not None for step in change_load_balancer(one, first))
    if situation.waited < TELL_DELETION_AFTER:
        return ServicePlan(closed, Wait(WaitReason.BOOKING, TELL_DELETION_AFTER - situation.waited))
    text = (
        "Harvester has not finished booking the address of the load balancer; deleting it now would lose the address. "
        "Check that harvester-load-balancer in namespace harvester-system runs. It is deleted in any case after "
        f"{DELETION_PATIENCE:.0f} s"
    )
    return ServicePlan((*_pending(text), *closed), Wait(WaitReason.BOOKING, DELETION_PATIENCE - situation.waited))


def deletion(own: tuple[LoadBalancer, ...]) -> tuple[Step, ...]:
    """Return the steps that delete the load balancers, and the Event about it."""
    going = [DeleteLoadBalancer.of(one) for one in own if not one.metadata.deleting]
    return (*emit(_DELETING if going else None), *going)


def _pending(text: str) -> tuple[Step, ...]:
    return emit(EventMessage("Warning", Reason.DELETION_PENDING, text))


def before_deletion(load_balancer: LoadBalancer) -> LoadBalancerChange | None:
    """Return what is written before a load balancer is deleted; empty where nothing is, None while nothing can be.

    Deleted while Harvester is booking an address for it, the address is lost. After a refusal it may do so at any
    moment. With the pool named in the status it books nothing more, fails to record what it is booking just now, and
    gives that back on deletion; but a deletion that it meets before that booking gives back nothing. It looks at one
    load balancer once at a time, so an answer to what was closed says that nothing is being booked any more. A pool
    that does not exist must not be named: Harvester would never let the load balancer go. Where it has found no pool
    it is asked once more, since its answer was made after the question.
    """
    if not load_balancer.metadata.has_finalizer(LB_CONTROLLER_FINALIZER):
        return None
    if load_balancer.allocated_ip or (load_balancer.is_closed and load_balancer.ready):
        return LoadBalancerChange()
    pool = pool_of_last_attempt(load_balancer)
    if pool:
        return LoadBalancerChange(closing_pool=pool)
    if pending_cause(load_balancer).patience:
        return None
    asked = load_balancer.metadata.annotation(LB_ASKED_AGAIN) is not None
    return LoadBalancerChange() if asked else LoadBalancerChange(annotations={LB_ASKED_AGAIN: "true"}, ask_again=True)


def ending(load_balancer: LoadBalancer) -> tuple[Step, ...]:
    """Return the deletion of a load balancer or what has to come before it; nothing while Harvester may be booking."""
    first = before_deletion(load_balancer)
    if first is None:
        return ()
    return change_load_balancer(load_balancer, first) or (DeleteLoadBalancer.of(load_balancer),)


def keep_or_remake(situation: Situation, load_balancer: LoadBalancer, change: LoadBalancerChange) -> tuple[Step, ...]:
    """Return the steps that keep a load balancer right, by this change.

    One that was refused an address where the Service does not ask for one any more is deleted, and made anew when it is
    gone: Harvester forgets what it has booked in one pool when it finds another one named.
    """
    elsewhere = searches_elsewhere(load_balancer, situation) and not situation.pending.patience
    return (
        ending(load_balancer) if elsewhere or load_balancer.is_closed else change_load_balancer(load_balancer, change)
    )
