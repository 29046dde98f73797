"""The ranking of the Services that request one address: which of them may use it.

It follows from the stored Services alone, so the plans of all of them come to the same result. They are ranked: those
that already have the address first, then older ones. Each gets its ports unless the primary or a Service before it has
any of them. A Service that has the address keeps it: only new ones are rejected because the address has enough.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import is_
from typing import Final

from msgspec import Struct, field

from harvester_ccm import names
from harvester_ccm.kube.store import Store
from harvester_ccm.model.core import Service, ServicePort
from harvester_ccm.model.harvester import ClusterIdentity
from harvester_ccm.plan.service.announcing.seen import read_seen
from harvester_ccm.plan.service.request import is_in_network, primary_reference
from harvester_ccm.plan.service.scope import BY_PRIMARY, is_handled, is_in_scope, may_share, primaries_of, primary_label
from harvester_ccm.plan.service.supported import unsupported_reason

MAX_SHARING: Final = 500
"""Services that can share an address with its primary."""
MAX_SHARED_PORTS: Final = 2000
"""Ports that they can have together. Each is a listener of a VM load balancer: with tens of thousands, Harvester could
not store the load balancer any more, nor this controller read it."""


class Ranking(Struct, frozen=True):
    """Which Services may use the address of a primary."""

    clashes: Mapping[str, str] = field(default_factory=dict)
    """For each Service, by its key: which port another Service has, or what is used up; empty if neither."""
    shared_ports: tuple[ServicePort, ...] = ()
    """The ports of the Services that may use the address, in order of rank, as many as a load balancer can have; the
    ports of the primary are not among them."""


def rank(primary: Service, secondaries: Iterable[Service], cluster: ClusterIdentity) -> Ranking:
    """Return the ranking of the Services that name a primary, in the order of the cache.

    TCP and UDP of one number are different ports. Of the Services created in one second, the first one in the cache
    comes first: its patch may already be on the way when the others arrive.
    """
    has_address = _addressed(primary, secondaries)
    is_vm = is_announced_by_harvester(primary)
    used = dict.fromkeys(_ports_of(primary), primary.metadata.key)
    clashes: dict[str, str] = {}
    shared_ports: list[ServicePort] = []
    sharing = 0
    ranked = sorted(secondaries, key=lambda secondary: secondary.metadata.creation_timestamp or "")
    # Sorting is stable: within each half, the older one comes first.
    for secondary in sorted(ranked, key=lambda secondary: secondary.metadata.key not in has_address):
        key = secondary.metadata.key
        is_joining = key not in has_address
        if not _is_permitted(secondary, primary, cluster):
            continue
        if is_joining and not _is_fitting(secondary, primary, is_vm=is_vm):
            continue
        clash = _clash(secondary, used)
        if not clash and is_joining:
            clash = _used_up(sharing + 1, len(shared_ports) + len(secondary.spec.ports))
        clashes[key] = clash
        if clash:
            continue
        sharing += 1
        shared_ports.extend(secondary.spec.ports)
        used.update(dict.fromkeys(_ports_of(secondary), key))
    return Ranking(clashes, tuple(shared_ports[:MAX_SHARED_PORTS]))


def _addressed(primary: Service, secondaries: Iterable[Service]) -> frozenset[str]:
    """Return the keys of the Services that have the address of the primary.

    Tenants can write the label of their Services, but not the status: the label counts only with an address there,
    which may be any one while the primary has none.
    """
    label = primary_label(primary.metadata.key)
    labelled = (service for service in secondaries if service.metadata.label(names.PRIMARY_SERVICE_LABEL) == label)
    addresses = set(primary.addresses)
    return frozenset(
        service.metadata.key
        for service in labelled
        if service.addresses and not (addresses and addresses.isdisjoint(service.addresses))
    )


def _is_permitted(secondary: Service, primary: Service, cluster: ClusterIdentity) -> bool:
    return is_in_scope(secondary, cluster) and may_share(secondary, primary.metadata.key, cluster)


def _is_fitting(secondary: Service, primary: Service, *, is_vm: bool) -> bool:
    """Return whether the address can serve a new Service.

    A Service that has the address keeps it in any network, and although it requests another IP family now.
    """
    network = primary.metadata.annotation(names.NETWORK)
    if not is_in_network(secondary.metadata.annotation(names.NETWORK), network):
        return False
    return unsupported_reason(secondary, is_vm=is_vm) is None


def is_announced_by_harvester(primary: Service | None) -> bool:
    """Return whether Harvester announces the address of a primary; False if it has none."""
    return primary is not None and bool(primary.addresses) and read_seen(primary).is_held


def _clash(secondary: Service, used: Mapping[tuple[str, int], str]) -> str:
    """Return which port of the Service another one has; empty if none has."""
    clash = min((port for port in _ports_of(secondary) if port in used), default=None)
    if clash is None:
        return ""
    protocol, number = clash
    return f"Port {number}/{protocol} is used on this address by Service {used[clash]}"


def _used_up(sharing: int, ports: int) -> str:
    """Return that the address cannot be shared by so many Services, or with so many ports; empty if it can."""
    if sharing > MAX_SHARING:
        return f"{MAX_SHARING} Services share this address already, which is the limit"
    if ports > MAX_SHARED_PORTS:
        return f"The Services that share this address can have {MAX_SHARED_PORTS:,} ports, and would have more with it"
    return ""


def _ports_of(service: Service) -> set[tuple[str, int]]:
    """Return protocol and number of the ports."""
    return {(port.protocol, port.port) for port in service.spec.ports}


class _Known(Struct, frozen=True):
    """A ranking, and the Services that it was computed from."""

    services: tuple[Service, ...]
    ranking: Ranking


class Rankings:
    """The ranking for each primary, computed again only if one of its Services is another object than before.

    A tenant can have thousands of Services name one primary, and each of their plans reads the ranking.
    """

    def __init__(self, services: Store[Service], cluster: ClusterIdentity) -> None:
        """``services`` has the index BY_PRIMARY."""
        self._services = services
        self._cluster = cluster
        self._known: dict[str, _Known] = {}
        """By the key of the primary."""

    def of(self, primary_key: str) -> Ranking:
        """Return the ranking of the Services that name a primary; it is empty for a primary that does not exist."""
        primary = self._services.get(primary_key)
        family = self._services.by_index(BY_PRIMARY, primary_key)
        if primary is None or not family:
            self._known.pop(primary_key, None)
            return Ranking()
        services = (primary, *family)
        known = self._known.get(primary_key)
        if known is None or not _are_same(known.services, services):
            secondaries = [service for service in family if primary_reference(service) == primary_key]
            known = self._known[primary_key] = _Known(services, rank(primary, secondaries, self._cluster))
        return known.ranking


def _are_same(before: Sequence[Service], now: Sequence[Service]) -> bool:
    return len(before) == len(now) and all(map(is_, before, now))


def families_of_change(
    services: Store[Service], cluster: ClusterIdentity, old: Service | None, new: Service | None
) -> set[str]:
    """Return the keys of the primaries whose families a change of a Service concerns, also of missing ones.

    A family is a primary and the Services that name it or last had its address. No family is concerned if nothing has
    changed that the plan of another Service reads.
    """
    before = None if old is None else _read_by_others(old, cluster)
    after = None if new is None else _read_by_others(new, cluster)
    if before == after:
        return set()
    concerned: set[str] = set()
    for service in (old, new):
        if service is None:
            continue
        concerned.update(primaries_of(service))
        if services.by_index(BY_PRIMARY, service.metadata.key):
            concerned.add(service.metadata.key)
    return concerned


def _read_by_others(service: Service, cluster: ClusterIdentity) -> tuple[object, ...]:
    """Return everything that the plans of its primary and of its secondaries read of a Service."""
    meta = service.metadata
    seen = read_seen(service)
    state = (meta.uid, meta.creation_timestamp, meta.deleting, service.has_finalizer)
    scope = (is_in_scope(service, cluster), is_handled(service, cluster), service.ready_condition is None)
    shared = (primary_reference(service), meta.label(names.PRIMARY_SERVICE_LABEL), service.addresses)
    network = meta.annotation(names.NETWORK)
    return (*state, *scope, *shared, service.spec, network, seen.address_annotation, seen.ignored, seen.device)
