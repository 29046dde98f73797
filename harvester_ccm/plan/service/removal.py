"""The removal of a Service from Harvester: withdraw the address, delete the load balancer, clear the Service."""

from typing import Final

from msgspec.structs import replace

from harvester_ccm import names
from harvester_ccm.model.core import Ingress
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.deletion import next_deletion
from harvester_ccm.plan.service.desired import Desired, Finalizer, not_ready, virtual_ip_ingress, waits_for
from harvester_ccm.plan.service.device import RESTART
from harvester_ccm.plan.service.kube_vip import (
    LEAVE,
    NOTES_ARE_VALID,
    Announce,
    Delegate,
    Intent,
    Release,
    Withdraw,
    WithdrawForGood,
    annotations_for,
)
from harvester_ccm.plan.service.load_balancer import network_of
from harvester_ccm.plan.service.ownership import allocated_addresses
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.scope import has_other_class, was_secondary
from harvester_ccm.plan.service.sharing import users_of_address
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.verdict import NotManaged

_DELETED: Final = EventMessage("Normal", Reason.DELETED, "Deleted load balancer")


def plan_leaving(snapshot: ServiceSnapshot) -> Desired:
    """Withdraw the address, delete the load balancers, then clear the Service and remove the finalizer."""
    users = users_of_address(snapshot)
    if users:
        return Desired(
            not_ready(_still_shared(users), snapshot),
            _intent_while_shared(snapshot),
            ingress=_ingress_while_shared(snapshot),
        )
    withdrawal = _withdrawal(snapshot)
    reported = _still_announced(snapshot)
    if snapshot.match.undeleted:
        return _plan_deletion(snapshot, withdrawal).with_events(reported)
    if withdrawal.ingress is not None or annotations_for(snapshot.kube_vip, withdrawal.kube_vip):
        # kube-vip must see the withdrawal before the release, also if the Service has no load balancer of its own.
        return withdrawal.with_events(reported)
    return _released(snapshot).with_events(reported)


def _intent_while_shared(snapshot: ServiceSnapshot) -> Intent:
    """Keep the address that others share announced, and no other one that a client wrote to kube-vip's annotation.

    kube-vip reads the annotation of a Service of another type as soon as that is of type LoadBalancer again.
    """
    allocated = allocated_addresses(snapshot.match.own)
    annotated = snapshot.kube_vip.annotated
    is_ours = not annotated or annotated in allocated or not allocated
    if is_ours or has_other_class(snapshot.service):
        return LEAVE
    if snapshot.service.spec.type != "LoadBalancer":
        return Withdraw()
    if _is_delegated(snapshot):
        return Delegate()
    return Announce(min(allocated))


def _ingress_while_shared(snapshot: ServiceSnapshot) -> tuple[Ingress, ...] | None:
    """Return the address that others share, if another client wrote another one to the status; else None."""
    service = snapshot.service
    allocated = allocated_addresses(snapshot.match.own) - {names.DHCP_ADDRESS}
    if service.spec.type != "LoadBalancer" or has_other_class(service):
        return None
    if not service.addresses or not allocated or not allocated.isdisjoint(service.addresses):
        return None
    return virtual_ip_ingress(min(allocated), service)


def _plan_deletion(snapshot: ServiceSnapshot, withdrawal: Desired) -> Desired:
    if snapshot.secondary_in_progress:
        # The patch by which that Service begins to share the address may be on its way.
        verdict = waits_for(Reason.SHARED_ADDRESS_PENDING)
        return replace(withdrawal, verdict=verdict, look_again_after=1.0)
    deletion = next_deletion(snapshot.match.undeleted, snapshot.waited(Phase.LEAVING))
    return replace(
        withdrawal,
        verdict=deletion.verdict,
        write=deletion.write,
        events=deletion.events,
        look_again_after=deletion.look_again_after,
    )


def _still_shared(users: list[str]) -> EventMessage:
    cause = f"The address is still shared by {', '.join(users)}"
    remedy = "The load balancer is deleted when those Services are deleted or no longer name this one as their primary"
    return EventMessage("Warning", Reason.DELETION_PENDING, cause, remedy)


def _withdrawal(snapshot: ServiceSnapshot) -> Desired:
    """Return the state in which kube-vip has withdrawn the address, if it announced that for this controller."""
    verdict = waits_for(Reason.DELETION_PENDING)
    if not _is_announced_by_us(snapshot):
        return Desired(verdict)
    # kube-vip writes the address to the status. A Service of another class can have another one there by now.
    # An address that kube-vip wrote for this controller can be recognized only until the annotation is withdrawn. So
    # the patch is valid only for the version in which kube-vip's last write was read.
    is_of_other_class = has_other_class(snapshot.service)
    is_stale = is_of_other_class and snapshot.kube_vip.shows_announced_address
    ingress = () if is_stale else None
    return Desired(
        verdict,
        _last_withdrawal(snapshot),
        ingress=ingress,
        requires_version=is_of_other_class,
    )


def _last_withdrawal(snapshot: ServiceSnapshot) -> Intent:
    """kube-vip reads no Service of another type, and Harvester announces the address of a VM load balancer."""
    is_read = snapshot.service.spec.type == "LoadBalancer"
    return WithdrawForGood() if is_read and not _is_delegated(snapshot) else Withdraw()


def _is_delegated(snapshot: ServiceSnapshot) -> bool:
    return any(load_balancer.spec.workload_type == "vm" for load_balancer in snapshot.match.own)


def _is_announced_by_us(snapshot: ServiceSnapshot) -> bool:
    """Return whether kube-vip announces the address for this controller.

    It may announce a Service of another class for its other controller. The address of a former secondary is in no load
    balancer of its own, and the load balancer of any Service can have been deleted just before. Without any address on
    the Service, kube-vip can only have one that this controller gave it.
    """
    service = snapshot.service
    own = snapshot.match.own
    kube_vip = snapshot.kube_vip
    if not has_other_class(service) or kube_vip.is_withdrawn or was_secondary(service):
        return True
    if not own or not kube_vip.read_address:
        return service.ready_condition is not None
    return not allocated_addresses(own).isdisjoint({*kube_vip.status, kube_vip.read_address})


def _released(snapshot: ServiceSnapshot) -> Desired:
    """Return the last state: a Service that stays loses everything of this controller and nothing of others."""
    service = snapshot.service
    has_our_address = not _announced_addresses(snapshot).isdisjoint(service.addresses)
    is_ours = not has_other_class(service) or has_our_address
    # Another client may have removed the finalizer; only this controller writes the condition.
    was_served = not snapshot.is_new or service.ready_condition is not None
    finished = None if snapshot.is_new else _DELETED
    desired = Desired(
        NotManaged(),
        LEAVE,
        finalizer=Finalizer.REMOVE,
        ingress=() if is_ours and was_served else None,
        events=(finished,),
    )
    if service.metadata.deleting:
        return desired
    return replace(
        desired,
        kube_vip=_release(snapshot),
        annotations=NOTES_ARE_VALID,
        labels={names.PRIMARY_SERVICE_LABEL: None},
    )


def _announced_addresses(snapshot: ServiceSnapshot) -> frozenset[str]:
    """Return the addresses that kube-vip announced for this controller, including its lease from DHCP."""
    allocated = allocated_addresses(snapshot.match.own)
    if names.DHCP_ADDRESS not in allocated:
        return allocated
    return allocated.union(filter(snapshot.kube_vip.is_noted_lease, snapshot.kube_vip.status))


def _release(snapshot: ServiceSnapshot) -> Intent:
    """Remove the device as well, if this controller wrote it: the one of the network, or of the primary."""
    own = snapshot.match.own
    requested = snapshot.request.network
    network = network_of(own[0], requested) if own else requested
    device = (snapshot.network_devices or {}).get(network, "")
    is_ours = bool(device) and snapshot.kube_vip.device == device
    was_of_primary = was_secondary(snapshot.service)
    removed_device = "" if is_ours or was_of_primary else None
    return Release(_is_announced_by_us(snapshot), removed_device)


def _still_announced(snapshot: ServiceSnapshot) -> EventMessage | None:
    """Return the Warning for an address that kube-vip does not withdraw: it ignores Services of another type."""
    service = snapshot.service
    kube_vip = snapshot.kube_vip
    if service.metadata.deleting or service.spec.type == "LoadBalancer":
        return None
    if kube_vip.is_paused or kube_vip.node is None:
        return None
    # The API server empties the status with the type.
    allocated = allocated_addresses(snapshot.match.own)
    addresses = {*allocated, *kube_vip.status, kube_vip.annotated or ""} - {"", names.DHCP_ADDRESS}
    cause = (
        "kube-vip does not withdraw an address when a Service is no longer of type LoadBalancer: "
        f"{', '.join(sorted(addresses)) or 'its address'} may stay up on node {kube_vip.node} until kube-vip restarts "
        "there, while Harvester may allocate it to another Service"
    )
    return EventMessage("Warning", Reason.STILL_ANNOUNCED, cause, RESTART, subject=kube_vip.node)
