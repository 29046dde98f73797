"""Events about the address of a Service."""

from harvester_ccm import names
from harvester_ccm.model.event import EventMessage, abbreviate, quoted
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.allocation.address_pools import GRANT
from harvester_ccm.plan.service.announcing.seen import ADDRESS_ANNOTATION
from harvester_ccm.plan.service.load_balancer.specification import has_moved
from harvester_ccm.plan.service.messages import record_entry_command
from harvester_ccm.plan.service.ownership.owner import Mark, allocated_addresses, mark_of, service_key
from harvester_ccm.plan.service.request import Ipam
from harvester_ccm.plan.service.snapshot import ServiceSnapshot


def address_events(
    snapshot: ServiceSnapshot, load_balancer: LoadBalancer, address: str
) -> tuple[EventMessage | None, ...]:
    """Return the Events about the address of a Service."""
    return (
        not_as_requested(snapshot, address),
        _restored(snapshot, address),
        address_event(snapshot, load_balancer, address),
        allocated_twice(snapshot, load_balancer),
    )


def address_event(snapshot: ServiceSnapshot, load_balancer: LoadBalancer, address: str) -> EventMessage | None:
    """Return the Event about a new address, a changed one, or one that another load balancer has got again."""
    if not address:
        return None
    # The status may be another program's. A provider copies the lease, or without a record all that it publishes.
    former = load_balancer.address
    if snapshot.record is not None and snapshot.record.address != names.DHCP_ADDRESS:
        former = snapshot.record.address
    if former not in {"", names.DHCP_ADDRESS, address}:
        return _changed(load_balancer, former, address)
    if snapshot.service.addresses and not _is_recreated(snapshot, load_balancer, address):
        return None
    backends = ", ".join(sorted(load_balancer.backends))
    suffix = f", backends {backends}" if backends else ""
    return EventMessage("Normal", Reason.ENSURED, f"Ensured load balancer, address {address}{suffix}")


def _changed(load_balancer: LoadBalancer, former: str, address: str) -> EventMessage:
    cause = f"The address changed from {former} to {address}"
    if former != load_balancer.address or not has_moved(load_balancer):
        return EventMessage("Warning", Reason.ADDRESS_CHANGED, cause)
    cause = (
        f"{cause}: Harvester has chosen IP pool {quoted(load_balancer.allocated_pool)} for it, as Harvester before 1.4 "
        "does again at each change of a load balancer that names no pool"
    )
    remedy = (
        f"The load balancer names this pool from now on, so the address stays. Prevent it for other Services: name the "
        f"pool of their address in annotation {names.IP_POOL}, which is possible at any time"
    )
    return EventMessage("Warning", Reason.ADDRESS_CHANGED, cause, remedy)


def _is_recreated(snapshot: ServiceSnapshot, load_balancer: LoadBalancer, address: str) -> bool:
    """Return whether the load balancer is new although the Service has its address already."""
    is_known = address in {load_balancer.address, snapshot.seen.address_annotation}
    return not is_known or load_balancer.metadata.annotation(names.LB_UPDATE_AFTER_CREATE) is not None


def _restored(snapshot: ServiceSnapshot, address: str) -> EventMessage | None:
    """Return the Warning for an address annotation that another client changed on a published Service, or None."""
    record = snapshot.record
    address_annotation = snapshot.seen.address_annotation
    if record is None or not record.is_published or address_annotation in {None, "", record.address}:
        return None
    cause = f"was changed to {address_annotation!r} and is restored to {address}, the address from Harvester"
    remedy = (
        "Remove it from the manifest. A new Service requests an address with spec.loadBalancerIP, and names its IP "
        f"pool in annotation {names.IP_POOL}"
    )
    place = f"Annotation {ADDRESS_ANNOTATION}"
    return EventMessage("Warning", Reason.ANNOTATION_RESTORED, cause, remedy, place=place)


def not_as_requested(snapshot: ServiceSnapshot, address: str) -> EventMessage | None:
    """Return the Warning about an address that differs from the requested one, or None."""
    requested = snapshot.request.address
    if not requested or not address or requested == address:
        return None
    if not snapshot.pool_rights.are_known:
        # The remedy depends on them.
        return None
    cause = f"Not as requested: address {requested} is requested and {address} was allocated, because "
    cause += _chosen_by(snapshot, requested)
    remedy = f"To have {requested}, {_way_to_address(snapshot)}"
    holders = snapshot.allocated_to_others(requested)
    if holders:
        cause = f"{cause}. Load balancer {holders[0].metadata.name} has {requested}"
        remedy = _way_to_held_address(snapshot, holders[0])
    if snapshot.request.ipam is Ipam.DHCP:
        remedy = f"{remedy} without annotation {names.IPAM}"
    return EventMessage("Warning", Reason.ADDRESS_NOT_AS_REQUESTED, cause, remedy)


def _chosen_by(snapshot: ServiceSnapshot, requested: str) -> str:
    load_balancer = snapshot.match.load_balancer
    if load_balancer is not None and load_balancer.spec.ipam == "dhcp":
        return "the load balancer has its address from a DHCP server"
    if snapshot.pool_rights.permit(snapshot.request.ip_pool):
        return f"{requested} could not be had then, or was requested later. A Service keeps the address that it has"
    return "Harvester chooses the address itself"


def _way_to_address(snapshot: ServiceSnapshot) -> str:
    """Return how the Service gets the requested address: it has to be created again in any case."""
    rights, again = snapshot.pool_rights, "delete this Service and create it again"
    if rights.permit(snapshot.request.ip_pool):
        return f"{again} when that is free"
    if rights.names:
        pools = abbreviate(sorted(rights.names))
        return f"name the IP pool with it in annotation {names.IP_POOL} (requests are possible in {pools}), {again}"
    if rights.are_all:
        return f"name the IP pool with it in annotation {names.IP_POOL}, {again}"
    return (
        f"have Harvester's administrator permit requests in the IP pool that contains it ({GRANT}), or make a pool "
        f"with only that address if none contains it. Then name the pool in annotation {names.IP_POOL}, {again}"
    )


def _way_to_held_address(snapshot: ServiceSnapshot, holder: LoadBalancer) -> str:
    """Return how the Service gets an address that the load balancer of another Service has: it shares it."""
    key = service_key(holder)
    if "/" not in key or mark_of(holder, snapshot.cluster) is Mark.FOREIGN:
        return "Request another address"
    return f"To share that address, set annotation {names.PRIMARY_SERVICE} to {key}; otherwise request another address"


def not_allocated(snapshot: ServiceSnapshot) -> EventMessage | None:
    """Return the Warning about the address of a Service that no load balancer of it has, or None.

    With DHCP there is none: the plan itself clears an address that is not the lease.
    """
    address = snapshot.shown_address
    allocated = allocated_addresses(snapshot.match.own_load_balancers)
    if not address or address in allocated or names.DHCP_ADDRESS in allocated:
        return None
    cause = (
        f"Address {address} stays announced, but it is not allocated to this Service in Harvester and may be given to "
        "another one"
    )
    remedy = (
        "To have it allocated, create an IP pool with that single address and a selector for this cluster, if no pool "
        "contains it. If one does, it is allocated only to a Service that is created again"
    )
    return EventMessage("Warning", Reason.ADDRESS_NOT_ALLOCATED, cause, remedy)


def allocated_twice(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> EventMessage | None:
    """Return the Warning about an address that Harvester allocated to another load balancer as well, or None.

    Harvester can lose the record of an address that is in use and allocate it again. Nothing is withdrawn for that: the
    Services may well work.
    """
    twins = _twins(snapshot, load_balancer)
    if not twins:
        return None
    address = load_balancer.allocated_ip
    others = abbreviate([twin.metadata.name for twin in twins])
    cause = (
        f"Harvester has allocated address {address} twice: to {load_balancer.metadata.name} and to "
        f"{others}. Traffic for one of them can reach the other"
    )
    oldest = min((load_balancer, *twins), key=_age).metadata
    remedy = (
        f"Delete the Service of the other load balancer than {oldest.name}, the oldest. Then record that one in the "
        "pool with the kubeconfig of Harvester, and create the Service again to get another address"
    )
    command = record_entry_command(load_balancer.allocated_pool, address, oldest.key)
    return EventMessage("Warning", Reason.ADDRESS_NOT_ALLOCATED, cause, remedy, command)


def allocated_before(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> EventMessage | None:
    """Return the Warning of ``allocated_twice`` if another load balancer with the address is older, or None.

    Clients of its Service were there first.
    """
    has_older_twin = any(_age(twin) < _age(load_balancer) for twin in _twins(snapshot, load_balancer))
    return allocated_twice(snapshot, load_balancer) if has_older_twin else None


def _twins(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> list[LoadBalancer]:
    """Return the load balancers of others with the same address of the same pool; other pools may be other networks."""
    holders = snapshot.allocated_to_others(load_balancer.allocated_ip)
    return [holder for holder in holders if holder.allocated_pool == load_balancer.allocated_pool]


def _age(load_balancer: LoadBalancer) -> tuple[str, str]:
    """Return a sort key: the oldest load balancer is first, and of one second any one."""
    meta = load_balancer.metadata
    return meta.creation_timestamp or "", meta.uid
