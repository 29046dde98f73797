"""The removal of a Service from Harvester: withdraw the address, delete the load balancer, clear the Service.

Harvester allocates an address in the pool first, records it on the load balancer next and adds its finalizer last; a
deletion in between loses the address for good. So a deletion waits for the finalizer, for a limited time. After a
refusal Harvester may try again at any moment: before such a load balancer is deleted, its pool is blocked, and
Harvester's next response shows that no earlier attempt is in progress.
"""

from collections.abc import Iterable, Set
from typing import Final

from msgspec.structs import replace

from harvester_ccm import names
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import EventMessage, Wait, WaitReason
from harvester_ccm.plan.service import kube_vip
from harvester_ccm.plan.service.load_balancer import network_of
from harvester_ccm.plan.service.messages import pending_cause, pool_of_last_attempt
from harvester_ccm.plan.service.ownership import allocated_addresses
from harvester_ccm.plan.service.scope import is_managed, of_other_class, primary_label, was_secondary
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.writes import (
    ChangeLoadBalancer,
    DeleteLoadBalancer,
    Desired,
    Document,
    ServiceChange,
    service_patch,
)

DELETION_PATIENCE: Final = 300.0
"""Seconds for which a deletion waits until Harvester has recorded the address."""
REPORT_DELETION_AFTER: Final = 30.0
"""Seconds after which an Event reports what a deletion waits for."""
_DELETING: Final = EventMessage("Normal", names.Reason.DELETING, "Deleting load balancer")
_DELETED: Final = EventMessage("Normal", names.Reason.DELETED, "Deleted load balancer")


def plan_removal(snapshot: ServiceSnapshot) -> Desired:
    """Return the desired state of a Service that is being deleted or is not to be served any more."""
    service, own = snapshot.service, snapshot.match.own
    users = users_of_address(snapshot)
    if users:
        text = (
            f"The address is still shared by {', '.join(users)}. The load balancer is deleted when those Services are "
            "deleted or no longer name this one as their primary"
        )
        return Desired(Wait(WaitReason.SHARED_ADDRESS), EventMessage("Warning", names.Reason.DELETION_PENDING, text))
    withdrawn, reported = _withdrawal(snapshot), _still_announced(snapshot)
    if not snapshot.match.left:
        if service_patch(service, withdrawn):
            # kube-vip must see the withdrawal before the release, whoever has the load balancer of the address.
            return Desired(Wait(WaitReason.OTHER), events=(reported,), service=withdrawn)
        finished = _DELETED if service.metadata.has_finalizer(names.SERVICE_FINALIZER) else None
        return Desired(events=(finished, reported), service=_released(snapshot, own))
    deletion = plan_deletion(snapshot, snapshot.match.left)
    if snapshot.secondary_in_progress:
        # The patch by which that Service begins to share the address may be on its way.
        return Desired(Wait(WaitReason.SHARED_ADDRESS, 1.0), service=withdrawn)
    return replace(deletion, service=withdrawn).plus(reported)


def _withdrawal(snapshot: ServiceSnapshot) -> ServiceChange:
    """Return the change that makes kube-vip withdraw the address, if this controller let it announce that address."""
    service = snapshot.service
    if not _announced_by_us(snapshot):
        return ServiceChange()
    shown = kube_vip.Announcement.of(service)
    # kube-vip writes the address to the status. A Service of another class can have another one there by now.
    is_stale = of_other_class(service) and shown.status == (shown.address,)
    return ServiceChange(annotations=kube_vip.withdraw(service), ingress=() if is_stale else None)


def _announced_by_us(snapshot: ServiceSnapshot) -> bool:
    """Return whether kube-vip announces the address for this controller.

    It may announce a Service of another class for its other controller. The address of a former secondary is in no load
    balancer of its own, and the load balancer of any Service can have been deleted just before.
    """
    service, own, shown = snapshot.service, snapshot.match.own, kube_vip.Announcement.of(snapshot.service)
    if not of_other_class(service) or shown.withdrawn or was_secondary(service):
        return True
    if not own:
        return service.ready_condition is not None
    return not allocated_addresses(own).isdisjoint({*shown.status, shown.address})


def plan_deletion(snapshot: ServiceSnapshot, left: Iterable[LoadBalancer]) -> Desired:
    """Return the next step of the deletion of load balancers that are not being deleted yet."""
    forced, late = snapshot.waited >= DELETION_PATIENCE, snapshot.waited >= REPORT_DELETION_AFTER
    writes = [DeleteLoadBalancer(one) if forced else deletion_of(one) for one in left]
    write = next((one for one in writes if one is not None), None)
    if isinstance(write, DeleteLoadBalancer):
        return Desired(Wait(WaitReason.ALLOCATING), events=(_DELETING,), then=write)
    text = (
        "Harvester has not finished recording the address of the load balancer; a deletion now would lose the address. "
        "Check that harvester-load-balancer in namespace harvester-system runs. It is deleted in any case after "
        f"{DELETION_PATIENCE:.0f} s"
    )
    outcome = Wait(WaitReason.ALLOCATING, (DELETION_PATIENCE if late else REPORT_DELETION_AFTER) - snapshot.waited)
    pending = EventMessage("Warning", names.Reason.DELETION_PENDING, text)
    return Desired(outcome, pending if late else None, then=write)


def plan_replacement(snapshot: ServiceSnapshot, load_balancer: LoadBalancer, wanted: str, body: Document) -> Desired:
    """Return how a load balancer is replaced by ``body``, of the ``wanted`` workload type.

    Nothing is withdrawn before Harvester has accepted the new one in a dry run. One patch pins the IP pool, so that
    Harvester allocates the same address again, and withdraws the address.
    """
    service, request = snapshot.service, snapshot.request
    deletion = plan_deletion(snapshot, (load_balancer,))
    if not isinstance(deletion.then, DeleteLoadBalancer):
        return deletion
    pool = load_balancer.allocated_pool if load_balancer.spec.ipam == "pool" else ""
    pinned = {names.IP_POOL: pool} if pool and not request.ip_pool else {}
    prepared = ServiceChange(annotations={**pinned, **kube_vip.withdraw(service)}, finalizer=True)
    # A Service that is withdrawn already has no address to keep.
    check = body if wanted != "vm" or service_patch(service, prepared) else None
    held = {*service.addresses, load_balancer.allocated_ip, load_balancer.address}
    secondaries = map(kube_vip.Announcement.of, managed_secondaries(snapshot))
    if any(held.intersection(one.status) for one in secondaries if one.read_address and not one.ignored):
        # They withdraw the address when they see that this Service has.
        return Desired(Wait(WaitReason.SHARED_ADDRESS, 5.0), service=prepared, check=check)
    text = (
        f"The load balancer is replaced by one of workload type {wanted}: it is deleted now and created again. Its "
        "address is kept if Harvester allows it"
    )
    events = (EventMessage("Normal", names.Reason.REPLACING, text),)
    return replace(deletion, outcome=Wait(WaitReason.OLD_LOAD_BALANCER), events=events, service=prepared, check=check)


def deletion_of(load_balancer: LoadBalancer) -> DeleteLoadBalancer | ChangeLoadBalancer | None:
    """Return the deletion of a load balancer, or the write that must precede it; None while Harvester must respond.

    A deletion while Harvester allocates an address loses the address. After a refusal Harvester may allocate at any
    moment. With the pool named in the status it allocates nothing more, fails to record what it is allocating just now,
    and releases that on deletion; but a deletion that arrives before that allocation releases nothing. Harvester
    processes one load balancer once at a time, so its response to the blocked pool shows that no allocation is in
    progress. Its conditions are cleared, so that the next one is its response. A pool that does not exist must not be
    named: Harvester would never remove its finalizer. If Harvester has found no pool, it is made to search once more,
    since its answer may be older than the request.
    """
    if not load_balancer.metadata.has_finalizer(names.LB_CONTROLLER_FINALIZER):
        return None
    pool = pool_of_last_attempt(load_balancer)
    if load_balancer.allocated_ip or (load_balancer.is_closed and load_balancer.ready):
        return DeleteLoadBalancer(load_balancer)
    if pool:
        blocked = {"allocatedAddress": {"ipPool": pool}, "conditions": None}
        return ChangeLoadBalancer(load_balancer.metadata.name, status=blocked)
    if pending_cause(load_balancer).patience:
        return None
    if load_balancer.metadata.annotation(names.LB_RECONCILE) is not None:
        return DeleteLoadBalancer(load_balancer)
    requested = {names.LB_RECONCILE: "true"}
    return ChangeLoadBalancer(load_balancer.metadata.name, annotations=requested, status={"conditions": None})


def users_of_address(snapshot: ServiceSnapshot) -> list[str]:
    """Return the keys of the Services that still have the address of this one, which its load balancers hold."""
    own, label = snapshot.match.own, primary_label(snapshot.service.metadata.key)
    if not own:
        return []
    held = {*snapshot.service.addresses, *allocated_addresses(own)}
    secondaries = (
        secondary
        for secondary in managed_secondaries(snapshot)
        if secondary.metadata.label(names.PRIMARY_SERVICE_LABEL) == label
    )
    return sorted(secondary.metadata.key for secondary in secondaries if _uses_address(secondary, held))


def managed_secondaries(snapshot: ServiceSnapshot) -> list[Service]:
    """Return those of the Services that name this one which the controller manages, or is removing.

    Others have no address from this controller. Tenants of other namespaces can write the label and the annotations.
    """
    return [secondary for secondary in snapshot.own_secondaries if is_managed(secondary, snapshot.cluster)]


def _uses_address(secondary: Service, held: Set[str]) -> bool:
    """Return whether a managed Service has one of the addresses."""
    meta = secondary.metadata
    # A Service that is being removed has the finalizer until its address is withdrawn.
    stays = meta.has_finalizer(names.SERVICE_FINALIZER) or (secondary.spec.type == "LoadBalancer" and not meta.deleting)
    if not stays:
        return False
    addresses = {*secondary.addresses}
    if secondary.ready_condition is not None or not of_other_class(secondary):
        # kube-vip announces the address in its annotation, also if another client changed the status.
        addresses.add(kube_vip.Announcement.of(secondary).address or "")
    return not held.isdisjoint(addresses)


def _released(snapshot: ServiceSnapshot, own: tuple[LoadBalancer, ...]) -> ServiceChange:
    """Return the last change: a Service that stays loses everything of this controller and nothing of others."""
    service, network = snapshot.service, snapshot.request.network
    ours = not of_other_class(service) or not allocated_addresses(own).isdisjoint(service.addresses)
    ingress = () if ours and service.metadata.has_finalizer(names.SERVICE_FINALIZER) else None
    if service.metadata.deleting:
        return ServiceChange(finalizer=False, ingress=ingress)
    device = (snapshot.network_devices or {}).get(network_of(own[0], network) if own else network, "")
    annotations = kube_vip.release(service, device=device, announced_by_us=_announced_by_us(snapshot))
    annotations |= kube_vip.NO_OWN_DEVICE if was_secondary(service) else {}
    labels = {names.PRIMARY_SERVICE_LABEL: None}
    return ServiceChange(annotations=annotations, labels=labels, finalizer=False, ingress=ingress)


def _still_announced(snapshot: ServiceSnapshot) -> EventMessage | None:
    """Return the Warning for an address that kube-vip does not withdraw: it ignores Services of another type."""
    service, found = snapshot.service, kube_vip.Announcement.of(snapshot.service)
    is_delegated = found.ignored and found.withdrawn
    if service.metadata.deleting or service.spec.type == "LoadBalancer" or is_delegated or found.node is None:
        return None
    # The API server empties the status with the type.
    allocated = allocated_addresses(snapshot.match.own)
    addresses = {*allocated, *found.status, found.address or ""} - {"", names.DHCP_ADDRESS}
    text = (
        "kube-vip does not withdraw an address when a Service is no longer of type LoadBalancer: "
        f"{', '.join(sorted(addresses)) or 'its address'} may stay up on node {found.node} until kube-vip restarts "
        f"there, while Harvester may allocate it to another Service. {kube_vip.RESTART}"
    )
    return EventMessage("Warning", names.Reason.STILL_ANNOUNCED, text, subject=found.node)
