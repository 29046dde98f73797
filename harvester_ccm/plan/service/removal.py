"""The removal of a Service from Harvester: withdraw the address, delete the load balancer, clear the Service."""

from typing import Final

from msgspec.structs import replace

from harvester_ccm import names
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.allocation.deletion import deletion_in
from harvester_ccm.plan.service.announcing.device import RESTART
from harvester_ccm.plan.service.announcing.sequence import LEAVE, WITHDRAW, Goal, Wish
from harvester_ccm.plan.service.desired import Desired, Finalizer, not_ready, waits_for
from harvester_ccm.plan.service.ownership.owner import Mark, Owner, allocated_addresses, foreign_warning, mark_of
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.scope import has_other_class, was_secondary
from harvester_ccm.plan.service.sharing.permission import users_of_address
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.verdict import NotManaged

_DELETED: Final = EventMessage("Normal", Reason.DELETED, "Deleted load balancer")


def plan_leaving(snapshot: ServiceSnapshot) -> Desired:
    """Withdraw the address, delete the load balancers, then clear the Service and remove the finalizer."""
    users = users_of_address(snapshot)
    if users:
        return Desired(not_ready(_still_shared(users), snapshot))
    withdrawal = _withdrawal(snapshot)
    reported = _still_announced(snapshot)
    if snapshot.match.own_undeleted:
        deletion = deletion_in(Phase.LEAVING, snapshot, snapshot.match.own_undeleted)
        deletion = replace(deletion, wish=withdrawal.wish, requires_version=withdrawal.requires_version)
        return deletion.with_events(reported)
    if not _is_withdrawn(snapshot, withdrawal):
        # kube-vip must see the withdrawal before the release, also if the Service has no load balancer of its own.
        return withdrawal.with_events(reported)
    return _released(snapshot).with_events(reported)


def _is_withdrawn(snapshot: ServiceSnapshot, withdrawal: Desired) -> bool:
    return not snapshot.step_towards(withdrawal.wish).annotations


def _still_shared(users: list[str]) -> EventMessage:
    cause = f"The address is still shared by {', '.join(users)}"
    remedy = "The load balancer is deleted when those Services are deleted or no longer name this one as their primary"
    return EventMessage("Warning", Reason.DELETION_PENDING, cause, remedy)


def _withdrawal(snapshot: ServiceSnapshot) -> Desired:
    """Return the state in which kube-vip has withdrawn the address, if it announced that for this controller.

    The controller of another class may write its own address at this moment.
    """
    verdict = waits_for(Reason.DELETION_PENDING)
    wish = WITHDRAW if _is_announced_by_us(snapshot) else LEAVE
    return Desired(verdict, wish, requires_version=has_other_class(snapshot.service))


def _is_announced_by_us(snapshot: ServiceSnapshot) -> bool:
    """Return whether kube-vip announces the address for this controller: of a Service of another class, it may not."""
    seen = snapshot.seen
    if seen.is_withdrawn or not has_other_class(snapshot.service):
        return True
    return not _our_addresses(snapshot).isdisjoint({*seen.status, seen.read_address})


def _our_addresses(snapshot: ServiceSnapshot) -> frozenset[str]:
    """Return the addresses that this controller has published, or that its load balancers have."""
    published = "" if snapshot.record is None else snapshot.record.address
    return allocated_addresses(snapshot.match.own_load_balancers).union({published}) - {""}


def _released(snapshot: ServiceSnapshot) -> Desired:
    """Return the last state: a Service that stays loses everything of this controller and nothing of others."""
    service = snapshot.service
    # Another client may have removed the finalizer; only this controller writes the record and the condition.
    was_managed = service.has_finalizer or snapshot.record is not None or service.ready_condition is not None
    desired = Desired(
        NotManaged(),
        finalizer=Finalizer.REMOVE,
        ingress=() if was_managed and _has_our_status(snapshot) else None,
    )
    if service.has_finalizer:
        desired = desired.with_events(_left_under_other_name(snapshot) or _DELETED)
    if service.metadata.deleting:
        return desired
    return replace(
        desired,
        wish=Wish(Goal.RELEASE if _is_announced_by_us(snapshot) else Goal.LEAVE, device=_device_to_remove(snapshot)),
        annotations={names.ANNOUNCED_AS: None},
        labels={names.PRIMARY_SERVICE_LABEL: None},
    )


def _left_under_other_name(snapshot: ServiceSnapshot) -> EventMessage | None:
    """Return the Warning about a load balancer of the Service that stays: it has another cluster name. Or None."""
    for candidate in snapshot.match.candidates:
        is_of_other_cluster = mark_of(candidate.load_balancer, snapshot.cluster) is Mark.FOREIGN
        if candidate.owner is Owner.FOREIGN and not is_of_other_cluster:
            return foreign_warning(candidate)
    return None


def _has_our_status(snapshot: ServiceSnapshot) -> bool:
    """Return whether this controller wrote the status; with another class, the controller of that class can have."""
    if not has_other_class(snapshot.service):
        return True
    return not _our_addresses(snapshot).union(snapshot.seen.leases).isdisjoint(snapshot.service.addresses)


def _device_to_remove(snapshot: ServiceSnapshot) -> str | None:
    """Return empty, which removes the annotation of the device, if this controller wrote it; else None.

    It writes the device of a network, and on a secondary the device of the primary.
    """
    is_ours = snapshot.seen.device in (snapshot.network_devices or {}).values()
    return "" if is_ours or was_secondary(snapshot.service) else None


def _still_announced(snapshot: ServiceSnapshot) -> EventMessage | None:
    """Return the Warning for an address that kube-vip may not withdraw: it ignores Services of another type.

    The version after 1.2.3 does withdraw it, and leaves its receipt on the Service.
    """
    service = snapshot.service
    seen = snapshot.seen
    if service.metadata.deleting or service.spec.type == "LoadBalancer" or seen.is_held or not seen.node:
        return None
    addresses = _our_addresses(snapshot).union(seen.status) - {names.DHCP_ADDRESS}
    cause = (
        "kube-vip up to 1.2.3 does not withdraw an address when a Service is no longer of type LoadBalancer: "
        f"{', '.join(sorted(addresses)) or 'its address'} may stay up on node {seen.node} until kube-vip restarts "
        "there, while Harvester may allocate it to another Service"
    )
    return EventMessage("Warning", Reason.STILL_ANNOUNCED, cause, RESTART, subject=seen.node)
