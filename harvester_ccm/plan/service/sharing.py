"""Sharing an address: which Service may use another one's, decided from what is stored on the Services alone.

So all of them come to the same answer whatever the order of events. A primary has an address of its own; its
secondaries may not use its ports or each other's. Among secondaries the one that is served with a port on this address
has it; else those already served on this address come first, then the older ones.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Service
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import PRIMARY_SERVICE, PRIMARY_SERVICE_LABEL, SERVICE_FINALIZER, Reason
from harvester_ccm.plan.service.request import invalid, primary_reference
from harvester_ccm.plan.service.selection import wants_load_balancer

MAX_LABEL = 63

Port = tuple[str, int]
"""Protocol and number."""


@dataclass(frozen=True)
class Sharing:
    """Whether a secondary may use its primary's address."""

    address: str = ""
    """The shared address, when it may and there is one."""
    note: EventMessage | None = None
    """Why not, for the user."""
    waiting: bool = False
    """Whether the obstacle is expected to pass by itself."""
    outranked: bool = False
    """Whether a port is another secondary's: both may not be on the address, so this one leaves it."""


@dataclass(frozen=True)
class Clash:
    """Why a port that a Service wants is taken."""

    text: str
    outranked: bool = False
    """Whether another secondary has it, not the primary."""


def share(service: Service, primary: Service | None, sharers: Iterable[Service], cluster: ClusterIdentity) -> Sharing:
    """Return whether ``service`` may share the address of ``primary``, the one it names (None: not found)."""
    reference = primary_reference(service) or ""
    namespace, slash, name = reference.partition("/")
    if not (namespace and slash and name) or "/" in name:
        return Sharing(note=invalid(PRIMARY_SERVICE, reference, "namespace/name of a Service of type LoadBalancer"))
    why = _obstacle(service, primary, reference, cluster)
    if primary is None or why:
        return _refuse(why)
    clash = port_clashes(primary, (service, *sharers), cluster).get(service.metadata.key)
    if clash is not None:
        return replace(_refuse(clash.text), outranked=clash.outranked)
    return Sharing(address=primary.addresses[0]) if primary.addresses else Sharing(waiting=True)


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
    if not _is_served_by_us(primary, cluster):
        return f"Service {reference} has no load balancer of Harvester. Its type must be LoadBalancer"
    return ""


def _is_served_by_us(service: Service, cluster: ClusterIdentity) -> bool:
    # Whether a load balancer exists is not known here; our finalizer stands for it.
    owned = service.metadata.has_finalizer(SERVICE_FINALIZER)
    return wants_load_balancer(service, cluster, owned=owned)


def _refuse(why: str) -> Sharing:
    return Sharing(note=EventMessage("Warning", Reason.SHARING_REFUSED, f"The address cannot be shared. {why}"))


def port_clashes(primary: Service, sharers: Iterable[Service], cluster: ClusterIdentity) -> dict[str, Clash | None]:
    """Return for each Service that wants the primary's address the clash of its ports with others', or None.

    TCP and UDP of one number are different ports. A port belongs to the Service that is served with it on this address
    already, so an edit of another one cannot take it away; after that the rank decides.
    """
    label = primary_label(primary.metadata.key)
    served = (one for one in sharers if _is_served_by_us(one, cluster))
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


def approved(primary: Service, sharers: Iterable[Service], cluster: ClusterIdentity) -> tuple[Service, ...]:
    """Return the Services that may share the primary's address, in the order in which they were accepted."""
    by_key = {one.metadata.key: one for one in sharers}
    clashes = port_clashes(primary, by_key.values(), cluster)
    return tuple(by_key[key] for key, clash in clashes.items() if clash is None)


def _rank(service: Service, label: str) -> tuple[bool, str, str]:
    meta = service.metadata
    return (meta.label(PRIMARY_SERVICE_LABEL) != label, meta.creation_timestamp or "", meta.key)


def primary_label(primary_key: str) -> str:
    """Return the value of the label that marks a secondary; where it would be too long, a checksum ends it."""
    value = primary_key.replace("/", ".", 1)
    return value if len(value) <= MAX_LABEL else f"{value[: MAX_LABEL - 9]}-{zlib.crc32(value.encode()):08x}"


def labelled_primary(service: Service) -> str | None:
    """Return the ``namespace/name`` of the Service whose address this one was last served with, or None.

    A shortened label says nothing here. A namespace has no dots in its name.
    """
    label = service.metadata.label(PRIMARY_SERVICE_LABEL) or ""
    return label.replace(".", "/", 1) or None
