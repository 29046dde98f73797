"""Plans of a Service that names a primary, or did: the primary has the load balancer, the Service uses its address."""

from typing import Final

from msgspec.structs import replace

from harvester_ccm import names
from harvester_ccm.model.core import Service
from harvester_ccm.model.event import EventMessage, abbreviate
from harvester_ccm.names import BLOCKING_REASONS, Reason
from harvester_ccm.plan.service.allocation.deletion import deletion_in
from harvester_ccm.plan.service.announcing.device import changed_device
from harvester_ccm.plan.service.announcing.seen import Seen, read_seen
from harvester_ccm.plan.service.announcing.sequence import HOLD, LEAVE, Goal, Wish
from harvester_ccm.plan.service.desired import (
    Desired,
    Finalizer,
    not_ready,
    virtual_ip_ingress,
    waits_at_most,
    waits_for,
)
from harvester_ccm.plan.service.ineffective import ignored_on_secondary
from harvester_ccm.plan.service.load_balancer.refused import refused_ports_warning
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.request import requested_network
from harvester_ccm.plan.service.scope import is_in_scope, primary_label, was_secondary
from harvester_ccm.plan.service.sharing.permission import Sharing, sharing_of
from harvester_ccm.plan.service.sharing.ranking import MAX_SHARED_PORTS
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.verdict import Ready
from harvester_ccm.plan.service.waiting import without_addresses

PRIMARY_GRACE_SECONDS: Final = 60.0
"""Time for which a primary may have no address before its secondaries get an Event."""


def plan_sharing(snapshot: ServiceSnapshot) -> Desired:
    """Announce and publish the primary's address, after the Service's own load balancer is deleted."""
    address = sharing_of(snapshot).address
    service = snapshot.service
    primary = snapshot.existing_primary
    of_primary = read_seen(primary)
    events = _warnings(snapshot, primary, of_primary, address)
    if snapshot.match.own_undeleted:
        return _plan_own_deletion(snapshot, address).with_events(*events)
    desired = Desired(
        Ready((address,), f"The load balancer has address {address}"),
        _like_primary(snapshot, of_primary, address),
        annotations=_copied_annotations(service, primary),
        labels={names.PRIMARY_SERVICE_LABEL: primary_label(primary.metadata.key)},
        finalizer=Finalizer.ADD,
        ingress=virtual_ip_ingress(address, service),
        events=(*events, _ensured(snapshot, primary, address)),
    )
    not_served = _ports_not_served(snapshot) if of_primary.is_held else None
    if not_served is not None:
        return replace(desired, verdict=not_ready(not_served, snapshot), events=events)
    if _is_announced(snapshot, of_primary, address):
        return desired
    return replace(desired, verdict=waits_for(Reason.SHARED_ADDRESS_PENDING), events=events)


def _ports_not_served(snapshot: ServiceSnapshot) -> EventMessage | None:
    """Return the Warning about ports without a listener on the VM load balancer of the primary, or None."""
    ports = snapshot.service.spec.ports
    shared = snapshot.ranking_of_primary.shared_ports
    left_out = [port for port in ports if port not in shared] if len(shared) >= MAX_SHARED_PORTS else []
    if not left_out:
        return refused_ports_warning(snapshot.service, snapshot.refused_of_primary)
    listed = abbreviate([f"{port.port}/{port.protocol}" for port in left_out])
    cause = (
        f"Ports {listed} are not served: the Services that share this address have more than "
        f"{MAX_SHARED_PORTS:,} ports, the limit of a load balancer"
    )
    return EventMessage("Warning", Reason.SHARING_REJECTED, cause, "Remove ports, or name another primary")


def _is_announced(snapshot: ServiceSnapshot, of_primary: Seen, address: str) -> bool:
    """Return whether the address of the primary is announced, by kube-vip or by Harvester."""
    return address == snapshot.primary_served if of_primary.is_held else not of_primary.is_withdrawn


def _like_primary(snapshot: ServiceSnapshot, of_primary: Seen, address: str) -> Wish:
    """Return the wish to announce the address in the same way as for the primary.

    kube-vip announces it for each of the Services.
    """
    if of_primary.is_held:
        delegated = address if address == snapshot.primary_served else ""
        return Wish(Goal.HOLD, delegated, device="", had_address=True)
    if of_primary.is_withdrawn:
        return Wish(Goal.HOLD, device=of_primary.device or "", had_address=True)
    return Wish(Goal.ANNOUNCE, address, device=of_primary.device or "", had_address=was_secondary(snapshot.service))


def _copied_annotations(service: Service, primary: Service) -> dict[str, str | None]:
    """Return the network of the primary, if the Service names none.

    What a user wrote stays. The Go provider removes ``ipam``, and a GitOps tool writes it again and again.
    """
    network = primary.metadata.annotation(names.NETWORK)
    return {names.NETWORK: network} if network and not requested_network(service) else {}


def _warnings(
    snapshot: ServiceSnapshot, primary: Service, of_primary: Seen, address: str
) -> tuple[EventMessage | None, ...]:
    ignored = ignored_on_secondary(snapshot.service, snapshot.request, primary, is_vm=of_primary.is_held)
    device = None
    if of_primary.device and not of_primary.is_held:
        device = changed_device(snapshot.seen, address, of_primary.device)
    return ignored, device, snapshot.request.unknown_annotations


def _plan_own_deletion(snapshot: ServiceSnapshot, address: str) -> Desired:
    """Delete the load balancers that the Service had of its own."""
    record = snapshot.record
    has_shared_address = record is not None and record.is_published and record.address == address
    wish = LEAVE if has_shared_address else HOLD
    return replace(deletion_in(Phase.SHARING, snapshot, snapshot.match.own_undeleted), wish=wish)


def _ensured(snapshot: ServiceSnapshot, primary: Service, address: str) -> EventMessage | None:
    shown = snapshot.service.addresses
    if shown == (address,):
        return None
    shared = f"{address} shared with {primary.metadata.key}"
    if not shown:
        return EventMessage("Normal", Reason.ENSURED, f"Ensured load balancer, address {shared}")
    return EventMessage("Warning", Reason.ADDRESS_CHANGED, f"The address changed from {shown[0]} to {shared}")


def plan_sharing_pending(snapshot: ServiceSnapshot) -> Desired:
    """Wait while the address may not be shared or does not exist."""
    sharing = sharing_of(snapshot)
    waits = _waiting(snapshot, sharing)
    has_address = was_secondary(snapshot.service) or bool(snapshot.service.addresses)
    if has_address and (sharing.gives_up or not _keeps_address(snapshot)):
        return _given_up(snapshot, waits)
    # A Service that can never be served does not get the finalizer.
    is_blocked = sharing.refusal is not None and sharing.refusal.reason in BLOCKING_REASONS
    desired = waits if is_blocked else replace(waits, finalizer=Finalizer.ADD)
    # Otherwise the primary keeps the address, and so does this Service.
    is_held = _is_primary_withdrawn(snapshot) or not snapshot.service.addresses
    return replace(desired, wish=HOLD) if is_held else desired


def _waiting(snapshot: ServiceSnapshot, sharing: Sharing) -> Desired:
    if sharing.refusal is not None:
        return Desired(not_ready(sharing.refusal, snapshot))
    warning = EventMessage(
        "Warning",
        Reason.SHARED_ADDRESS_PENDING,
        f"Service {snapshot.existing_primary.metadata.key}, whose address this Service shares, has none from Harvester "
        "or DHCP yet: see its Events",
        f"To have an address of its own, remove annotation {names.PRIMARY_SERVICE}",
    )
    waits = waits_at_most(PRIMARY_GRACE_SECONDS, warning, snapshot, Phase.SHARING_PENDING)
    if waits.is_reported or not snapshot.service.addresses:
        return waits
    # kube-vip goes on announcing an address that it reads; an address that Harvester announced for the primary is
    # announced by nobody.
    return replace(waits, verdict=replace(waits.verdict, changes_condition=not snapshot.seen.read_address))


def _is_primary_withdrawn(snapshot: ServiceSnapshot) -> bool:
    """Return whether the load balancer of the primary is being replaced: no Service may announce the address then."""
    return snapshot.primary is not None and read_seen(snapshot.primary).is_withdrawn


def _keeps_address(snapshot: ServiceSnapshot) -> bool:
    """Return whether the Service keeps the address of its primary, for which none can be shared at the moment.

    The primary gets its address again, unless it shows another one, or has withdrawn it because another load balancer
    has it.
    """
    service = snapshot.service
    primary = snapshot.primary
    if primary is None or service.metadata.label(names.PRIMARY_SERVICE_LABEL) != primary_label(primary.metadata.key):
        return False
    if not snapshot.primary_allocated.isdisjoint(service.addresses):
        return True
    if names.DHCP_ADDRESS in snapshot.primary_allocated:
        # The next lease of the primary may be another address.
        return False
    if not primary.addresses and snapshot.taken_address:
        return False
    if primary.addresses and primary.addresses[:1] != service.addresses[:1]:
        return False
    return is_in_scope(primary, snapshot.cluster)


def _given_up(snapshot: ServiceSnapshot, waits: Desired) -> Desired:
    device = "" if was_secondary(snapshot.service) else None
    return replace(
        waits,
        wish=Wish(Goal.HOLD, device=device, had_address=True),
        labels={names.PRIMARY_SERVICE_LABEL: None},
        ingress=without_addresses(snapshot),
    )
