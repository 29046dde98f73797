"""An address that several Services share: which of them may, and what is done for one that does, a secondary.

Which may is decided from what is stored on the Services alone, so all of them come to the same answer whatever the
order of events. A primary has an address of its own; its secondaries have no load balancer and may not use its ports or
each other's. Among secondaries the one that is served with a port on this address has it; else those already served on
this address come first, then the older ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Service
from harvester_ccm.model.outcome import Done, EventMessage, Outcome, Refused, Wait, WaitReason
from harvester_ccm.names import (
    DHCP_ADDRESS,
    IPAM,
    NETWORK,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    SERVICE_FINALIZER,
    Reason,
)
from harvester_ccm.plan.service.cleanup import deletion, users_of_address, wait_for_booking, withdrawal
from harvester_ccm.plan.service.kube_vip import (
    NO_OWN_DEVICE,
    WITHDRAWN,
    Announcement,
    announce_like,
    device_of_primary,
    hold,
    virtual_ip_ingress,
)
from harvester_ccm.plan.service.request import (
    ignored_on_secondary,
    invalid,
    network_annotation,
    normal_network,
    primary_reference,
    unsupported,
)
from harvester_ccm.plan.service.selection import (
    is_served_by_us,
    primary_label,
    was_secondary,
)
from harvester_ccm.plan.service.situation import Situation
from harvester_ccm.plan.service.steps import (
    ChangeService,
    ServiceChange,
    ServicePlan,
    announced_again,
    change_service,
    emit,
    hand_to_harvester,
)

PRIMARY_PATIENCE: Final = 60.0
"""Seconds for which a primary may have no address before those that share it are told."""
Port = tuple[str, int]
"""Protocol and number."""


class Sharing(Struct, frozen=True):
    """Whether a secondary may use its primary's address."""

    address: str = ""
    """The shared address, when it may and there is one."""
    refusal: EventMessage | None = None
    """Why not, where the user has to do something about it."""
    outranked: bool = False
    """Whether a port is another secondary's: both may not be on the address, so this one leaves it."""
    servable: bool = True
    """Whether the Service may have an address of this kind at all."""


class Clash(Struct, frozen=True):
    """A port that a Service wants is taken."""

    because: str
    outranked: bool = False
    """Whether another secondary has it, not the primary."""


def plan_secondary(situation: Situation, keep: ServicePlan | None) -> ServicePlan:
    """Return what to do for a Service that names a primary.

    ``keep`` is how a load balancer that it had before it did is kept until the other address can be used.
    """
    service, primary, own = situation.service, situation.primary, situation.match.own
    sharing = _share_now(situation)
    if primary is None or not sharing.address:
        return (keep or _plan_without_address(situation, sharing)).after(*emit(sharing.refusal))
    users = users_of_address(situation)
    if users:
        text = (
            f"The address cannot be shared with {primary.metadata.key} yet: this Service keeps its own, because "
            f"{', '.join(users)} shares it. Name {primary.metadata.key} as primary there, too"
        )
        refusal = emit(EventMessage("Warning", Reason.SHARING_REFUSED, text))
        return ServicePlan((*refusal, *(keep.steps if keep else ())), Wait(WaitReason.SECONDARIES))
    ignored = ignored_on_secondary(service, situation.request, primary, vm=Announcement.of(primary).ignored)
    device = device_of_primary(primary, service, sharing.address)
    events = emit(ignored, device, situation.request.unknown)
    changes = Announcement.of(service).address != sharing.address
    withdrawn = withdrawal(service) if own and changes else ()
    booking = wait_for_booking(situation, own)
    if booking is not None:
        return booking.after(*events, *withdrawn)
    ensured = None if service.addresses == (sharing.address,) else _ensured(service, primary, sharing.address)
    steps = (*withdrawn, *deletion(own), *_attached(service, primary, sharing.address), *emit(ensured))
    plan, found = ServicePlan((*events, *steps), Done()), Announcement.of(primary)
    return plan if found.ignored or found.withdrawn else announced_again(plan, situation, sharing.address)


def plan_leaving(service: Service) -> ServicePlan:
    """Return the plan by which a former secondary gives up the shared address, before it gets one of its own."""
    annotations = {**WITHDRAWN, **(NO_OWN_DEVICE if was_secondary(service) else {})}
    change = ServiceChange(annotations=annotations, labels={PRIMARY_SERVICE_LABEL: None}, ingress=())
    return ServicePlan(change_service(service, change), Wait(WaitReason.LEAVING_PRIMARY))


def _plan_without_address(situation: Situation, sharing: Sharing) -> ServicePlan:
    """Return the plan while the address may not be shared or is not there; a change of the others wakes us."""
    service, primary = situation.service, situation.primary
    told, outcome = _waiting(situation, sharing)
    if (was_secondary(service) or service.addresses) and (sharing.outranked or not _is_held_for(situation)):
        # Nobody holds the address for it. Or both would be on one port, and where its traffic goes would be chance.
        return ServicePlan((*emit(_taken(situation)), *plan_leaving(service).steps), outcome)
    # While the primary's load balancer is being replaced nobody may announce the address.
    withdrawn = service.addresses and primary is not None and Announcement.of(primary).withdrawn
    # What is refused for good does not get the mark of a Service that is served or about to be.
    finalizer = True if sharing.servable else None
    change = ServiceChange(annotations=WITHDRAWN if withdrawn else hold(service), finalizer=finalizer)
    return ServicePlan((*emit(told), *change_service(service, change)), outcome)


def _waiting(situation: Situation, sharing: Sharing) -> tuple[EventMessage | None, Outcome]:
    """Return what a Service waits for that has no address to share, and what to tell it beside a refusal."""
    service, primary, refusal = situation.service, situation.primary, sharing.refusal
    if not sharing.servable:
        return None, Refused(WaitReason.NOT_SERVABLE)
    if refusal is not None and refusal.reason is Reason.INVALID_ANNOTATION:
        return None, Refused(WaitReason.NOT_SHARABLE)
    if refusal is not None:
        # A change of the others may mend it, so the Service goes on waiting.
        return None, Wait(WaitReason.NOT_SHARABLE)
    if primary is None or service.addresses:
        return None, Wait(WaitReason.PRIMARY)
    if situation.waited < PRIMARY_PATIENCE:
        return None, Wait(WaitReason.PRIMARY, PRIMARY_PATIENCE - situation.waited)
    text = (
        f"Service {primary.metadata.key}, whose address this Service shares, has none from Harvester yet: its own "
        "Events say why. This Service follows by itself; to have an address of its own, remove annotation "
        f"{PRIMARY_SERVICE}"
    )
    return EventMessage("Warning", Reason.ADDRESS_PENDING, text), Wait(WaitReason.PRIMARY)


def _is_held_for(situation: Situation) -> bool:
    """Return whether the primary that the Service names, and was last served with, holds the address it has.

    Its load balancer does, whatever becomes of the primary. While that is not there, or has no address, the primary has
    to be one that gets it back, and not to show another address, and nobody else may hold it. One that asks for the
    address itself may keep it, whatever Harvester gave.
    """
    service, primary, allocated = situation.service, situation.primary, situation.primary_allocated
    if primary is None or service.metadata.label(PRIMARY_SERVICE_LABEL) != primary_label(primary.metadata.key):
        return False
    found = Announcement.of(primary)
    kept = primary.addresses == service.addresses and not {found.specified, found.requested}.isdisjoint(found.status)
    # With an address from DHCP, Harvester names none: the one that the primary shows is it.
    shown = primary.addresses[:1] in ((), service.addresses[:1])
    if allocated and not kept:
        return not allocated.isdisjoint(service.addresses) or (shown and DHCP_ADDRESS in allocated)
    if not kept and any(map(situation.booked_for_others, service.addresses)):
        return False
    gets_it_back = allocated is None or is_served_by_us(primary, situation.cluster)
    return gets_it_back and primary.metadata.has_finalizer(SERVICE_FINALIZER) and shown


def _taken(situation: Situation) -> EventMessage | None:
    """Return what to tell a Service that loses its address because somebody else holds it; None if nobody does."""
    service, primary = situation.service, situation.primary
    taken = [address for address in service.addresses if situation.booked_for_others(address)]
    if primary is None or not taken:
        return None
    text = (
        f"Address {taken[0]} was withdrawn, because Harvester has given it to another load balancer since that of "
        f"{primary.metadata.key} is gone. The Service follows as soon as {primary.metadata.key} has an address again"
    )
    return EventMessage("Warning", Reason.ADDRESS_NOT_BOOKED, text)


def _attached(service: Service, primary: Service, address: str) -> tuple[ChangeService, ...]:
    """Return the steps that give the Service the primary's address, announced like the primary's."""
    first = hand_to_harvester(service) if Announcement.of(primary).ignored else ()
    network = network_annotation(primary)
    copied = {} if network_annotation(service).strip() or not network else {NETWORK: network}
    change = ServiceChange(
        annotations={**announce_like(primary, service, address), **copied, IPAM: None},
        labels={PRIMARY_SERVICE_LABEL: primary_label(primary.metadata.key)},
        finalizer=True,
        ingress=virtual_ip_ingress(address, service),
    )
    return (*first, *change_service(service, change))


def _ensured(service: Service, primary: Service, address: str) -> EventMessage:
    shared = f"shared with {primary.metadata.key}"
    if service.addresses:
        text = f"The address changed from {service.addresses[0]} to {address}, {shared}"
        return EventMessage("Warning", Reason.ADDRESS_CHANGED, text)
    text = f"Ensured load balancer, address {address} {shared}"
    return EventMessage("Normal", Reason.ENSURED, text)


def _share_now(situation: Situation) -> Sharing:
    """Return whether the Service may share the address, and have it now.

    The address must be from Harvester: kube-vip may show on the primary what its user asked for.
    """
    service, primary, allocated = situation.service, situation.primary, situation.primary_allocated
    refusal = unsupported(service, vm=False, new=situation.is_new)
    if refusal is not None:
        return Sharing(refusal=refusal, servable=False)
    sharing = share(service, primary, situation.secondaries_of_primary, situation.cluster)
    if primary is None or (allocated is not None and allocated.isdisjoint({sharing.address, DHCP_ADDRESS})):
        return replace(sharing, address="", refusal=sharing.refusal or _not_booked(service, primary))
    if not sharing.address:
        return sharing
    refusal = unsupported(service, vm=Announcement.of(primary).ignored)
    return sharing if refusal is None else Sharing(refusal=refusal, servable=False)


def _not_booked(service: Service, primary: Service | None) -> EventMessage | None:
    """Return what to tell a Service whose primary has an address that will not be shared; None if it shares it."""
    if primary is None or service.addresses == primary.addresses:
        return None
    found = Announcement.of(primary)
    if {found.specified, found.requested}.isdisjoint(primary.addresses):
        return None
    return _refusal(
        f"Service {primary.metadata.key} keeps address {', '.join(primary.addresses)}, which no load balancer of "
        "Harvester gave; its own Events say what to do. Until then, name another primary, or none"
    )


def share(
    service: Service, primary: Service | None, secondaries: Iterable[Service], cluster: ClusterIdentity
) -> Sharing:
    """Return whether ``service`` may share the address of ``primary``, the one it names (None: not found)."""
    reference = primary_reference(service) or ""
    namespace, _, name = reference.partition("/")
    if not (namespace and name) or "/" in name:
        return Sharing(refusal=invalid(PRIMARY_SERVICE, reference, "namespace/name of a Service of type LoadBalancer"))
    why = _obstacle(service, primary, reference, cluster)
    if primary is None or why:
        return Sharing(refusal=_refusal(why))
    clash = port_clashes(primary, (*secondaries, service), cluster).get(service.metadata.key)
    if clash is not None:
        return Sharing(refusal=_refusal(clash.because), outranked=clash.outranked)
    return Sharing(address=primary.addresses[0]) if primary.addresses else Sharing()


def _obstacle(service: Service, primary: Service | None, reference: str, cluster: ClusterIdentity) -> str:
    """Return why the primary itself cannot be one for this Service; empty when it can."""
    if primary is None:
        return f"Service {reference} does not exist. Create it, or correct annotation {PRIMARY_SERVICE}"
    if primary.metadata.key == service.metadata.key:
        return f"It names itself as its primary. Remove annotation {PRIMARY_SERVICE}"
    further = primary_reference(primary)
    if further is not None:
        return f"Service {reference} itself shares the address of {further}. Name {further} as primary instead"
    if primary.metadata.deleting:
        return f"Service {reference} is being deleted. Name another primary, or give this Service its own address"
    if not is_served_by_us(primary, cluster):
        return f"Service {reference} has no load balancer of Harvester. Its type must be LoadBalancer"
    return _network_clash(service, primary)


def _network_clash(service: Service, primary: Service) -> str:
    """Return why the Service asks for another network than the address is in; empty when it asks for that or none."""
    asked, has = (normal_network(network_annotation(one)) for one in (service, primary))
    if not asked or asked == has:
        return ""
    where = f"{has!r} on Service" if has else "absent on Service"
    return (
        f"Annotation {NETWORK} is {asked!r} here and {where} {primary.metadata.key}. Remove it here, or name a primary "
        "in that network"
    )


def _refusal(why: str) -> EventMessage:
    return EventMessage("Warning", Reason.SHARING_REFUSED, f"The address cannot be shared. {why}")


class _Group(tuple[Service, ...]):
    """A primary and those that want its address, to be looked up by: one change makes all of them ask the same."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(tuple((one.metadata.uid, one.metadata.resource_version) for one in self))


def port_clashes(
    primary: Service, secondaries: Iterable[Service], cluster: ClusterIdentity
) -> Mapping[str, Clash | None]:
    """Return for each Service that wants the primary's address the clash of its ports with others', or None."""
    return _clashes(_Group((primary, *{one.metadata.key: one for one in secondaries}.values())), cluster)


@lru_cache(maxsize=64)
def _clashes(group: _Group, cluster: ClusterIdentity) -> Mapping[str, Clash | None]:
    """Return the clashes for the first of the group as the primary of the others.

    TCP and UDP of one number are different ports. A port belongs to the Service that is served with it on this address
    already, so an edit of another one cannot take it away; after that the rank decides.
    """
    primary, *secondaries = group
    label = primary_label(primary.metadata.key)
    served = (
        one
        for one in secondaries
        if is_served_by_us(one, cluster)
        and (one.metadata.label(PRIMARY_SERVICE_LABEL) == label or not _network_clash(one, primary))
    )
    ordered = sorted(served, key=lambda one: _rank(one, label))
    own = dict.fromkeys(_ports(primary), primary.metadata.key)
    holders: dict[Port, str] = {}
    for one in reversed(ordered):
        holders.update(dict.fromkeys(_held(one, primary), one.metadata.key))
    taken: dict[Port, str] = {}
    clashes: dict[str, Clash | None] = {}
    for one in ordered:
        key, ports = one.metadata.key, _ports(one)
        owners = {port: holders.get(port) or taken.get(port, key) for port in ports}
        others = {port: owner for port, owner in owners.items() if owner != key}
        by_other, by_primary = _first(ports, others), _first(ports, own)
        outranked = Clash(by_other, outranked=True) if by_other else None
        clashes[key] = outranked or (Clash(by_primary) if by_primary else None)
        # With a port of the primary it keeps what it has, as long as it is served.
        if not by_other and (not by_primary or one.metadata.label(PRIMARY_SERVICE_LABEL) == label):
            taken.update(dict.fromkeys(ports, key))
    return clashes


def _ports(service: Service) -> set[Port]:
    return {(port.protocol, port.port) for port in service.spec.ports}


def _held(service: Service, primary: Service) -> set[Port]:
    """Return the ports that a Service wants and is served with on the primary's address, by its status."""
    here = (entry for entry in service.status.load_balancer.ingress if entry.ip in primary.addresses)
    return _ports(service) & {(port.protocol, port.port) for entry in here for port in entry.ports}


def _first(ports: set[Port], owners: Mapping[Port, str]) -> str:
    """Return what to tell of the first of the ports that has an owner; empty when none has."""
    clashing = sorted(ports & owners.keys())
    if not clashing:
        return ""
    protocol, number = clashing[0]
    return (
        f"Port {number}/{protocol} is used on this address by Service {owners[clashing[0]]}. Choose another port, or "
        "another primary"
    )


def approved(primary: Service, secondaries: Iterable[Service], cluster: ClusterIdentity) -> tuple[Service, ...]:
    """Return the Services that may share the primary's address, in the order in which they were accepted."""
    by_key = {one.metadata.key: one for one in secondaries}
    clashes = port_clashes(primary, by_key.values(), cluster)
    return tuple(by_key[key] for key, clash in clashes.items() if clash is None)


def _rank(service: Service, label: str) -> tuple[bool, str]:
    """Return the place of a Service in the order. Of those created in one second, the first one in the cache is first:
    its patch may already be on the way when the other ones arrive.
    """
    meta = service.metadata
    return meta.label(PRIMARY_SERVICE_LABEL) != label, meta.creation_timestamp or ""
