"""What is known about one Service: observed once, in one way, for the running program, its commands and its tests.

``observe`` reads a ``ServiceStore``: caches that follow the clusters, or complete lists. Whose load balancer there is,
whether the Service is ours, and what it asks for are judged here, once; plans read the answers. ``ServiceState`` is
what is remembered of a Service from one look to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Final, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from harvester_ccm.errors import CCMError
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import ConfigMap, Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.lister import Listed, Lister
from harvester_ccm.names import (
    DHCP_ADDRESS,
    NAD_MAPPING_NAME,
    NAD_MAPPING_NAMESPACE,
    SERVICE_FINALIZER,
)
from harvester_ccm.plan.service.backends import Backends
from harvester_ccm.plan.service.kube_vip import Announcement
from harvester_ccm.plan.service.messages import NOT_PROCESSED, PendingCause, pending_cause
from harvester_ccm.plan.service.ownership import (
    LoadBalancerMatch,
    allocated_addresses,
    match_load_balancer,
    name_for,
    service_key,
    service_uuid,
)
from harvester_ccm.plan.service.request import (
    Request,
    network_devices,
    primary_reference,
    read_request,
)
from harvester_ccm.plan.service.scope import (
    Scope,
    is_served_by_us,
    primaries_of,
    scope_of,
)

BY_PRIMARY: Final = "primary"
"""Index of Services by the primary that they name, and by the one whose address they were last served with."""
BY_SERVICE: Final = "service"
"""Index of load balancers by the key of the Service that their labels name, and by the UID of an earlier provider."""
BY_ADDRESS: Final = "address"
"""Index of load balancers by the address that Harvester has allocated, and of Services by those in their status."""


class ServiceStore(Protocol):
    """All that is known of Services and what they depend on."""

    @property
    def services(self) -> Lister[Service]:
        """With the indexes BY_PRIMARY and BY_ADDRESS."""

    @property
    def load_balancers(self) -> Lister[LoadBalancer]:
        """With the indexes BY_SERVICE and BY_ADDRESS."""

    @property
    def config_maps(self) -> Lister[ConfigMap]:
        """Holds the network mapping."""

    @property
    def backends(self) -> Backends:
        """The nodes that may get traffic."""

    def is_our_harvester(self, cluster: ClusterIdentity) -> bool | None:
        """Return the same as ``selection.is_our_harvester``."""


def service_index(load_balancer: LoadBalancer) -> Iterable[str]:
    """Return what names the Service of a load balancer, for the index BY_SERVICE."""
    return {service_key(load_balancer), service_uuid(load_balancer)} - {""}


def address_index(load_balancer: LoadBalancer) -> Iterable[str]:
    """Return the address that is allocated to a load balancer, for the index BY_ADDRESS."""
    return {load_balancer.allocated_ip} - {"", DHCP_ADDRESS}


SERVICE_INDEXES: Final[Mapping[str, Callable[[Service], Iterable[str]]]] = {
    BY_PRIMARY: primaries_of,
    BY_ADDRESS: lambda service: set(service.addresses),
}
LOAD_BALANCER_INDEXES: Final[Mapping[str, Callable[[LoadBalancer], Iterable[str]]]] = {
    BY_SERVICE: service_index,
    BY_ADDRESS: address_index,
}


class ListedStore(Struct, frozen=True):
    """A ``ServiceStore`` of complete lists."""

    services: Listed[Service]
    load_balancers: Listed[LoadBalancer]
    config_maps: Listed[ConfigMap]
    backends: Backends
    our_harvester: bool | None = True

    def is_our_harvester(self, cluster: ClusterIdentity) -> bool | None:
        """Return the same as ``selection.is_our_harvester``."""
        return self.our_harvester


class ServiceState(Struct, gc=False):
    """What is remembered of one Service between two looks; lost at a restart without harm. Times are of one clock."""

    uid: str = ""
    """Of the Service; a new one of the same name starts anew."""
    phase: str = ""
    since: float = 0.0
    """When the phase began."""
    touch_at: float | None = None
    """When its endpoints are to be touched; None when they need not be."""


class Situation(Struct, frozen=True, dict=True):
    """All that is known about one Service and what it depends on."""

    service: Service
    cluster: ClusterIdentity
    match: LoadBalancerMatch
    """Whose the load balancers are that carry the Service's labels or name."""
    scope: Scope
    """Whether the Service is ours, and in what way."""
    request: Request
    """What it asks for."""
    backends: Backends
    """The nodes that may get traffic."""
    holders: tuple[LoadBalancer, ...] = ()
    """The other ones that hold an address that the Service shows or that they hold for it."""
    primary: Service | None = None
    """The Service whose address this one shares, if it names one that exists."""
    primary_allocated: frozenset[str] | None = None
    """Addresses that Harvester has allocated for that Service; None while that is not known."""
    secondaries_of_primary: tuple[Service, ...] = ()
    """The Services that name the primary of this one, or this one itself where it names none; in the cache's order."""
    own_secondaries: tuple[Service, ...] = ()
    """Services that name this Service as their primary, or last had its address."""
    secondary_in_progress: bool = False
    """Whether one of these is being reconciled now."""
    node_addresses: tuple[str, ...] = ()
    """Of the nodes in the network that the Service asks for or, where none reports any there, in all networks."""
    network_devices: Mapping[str, str] | None = None
    """Network to device in the nodes; None while there is none."""
    mapping_known: bool = True
    """Whether that was looked up; before that, nothing is said about it."""
    harvester_known: bool = True
    """Whether Harvester's load balancers have been listed; before that, none found means nothing."""
    harvester_problem: CCMError | None = None
    our_harvester: bool | None = True
    """Whether a load balancer can be created in this Harvester, as of ``is_our_harvester``; True if there is one."""
    wall_time: str = ""
    """The time of day, as the API writes it; of every other time it is only known how long ago it was."""
    remembered: ServiceState = field(default_factory=ServiceState)
    now: float = 0.0
    """The time of the look, by the clock of what is remembered."""

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever done to serve the Service.

        Our finalizer comes before all of that and stays as long as the Service is ours, also when somebody empties its
        status, or we withdraw an address that another one got. What other annotations say may be its user's wish.
        """
        return not self.service.addresses and not self.service.metadata.has_finalizer(SERVICE_FINALIZER)

    @property
    def waited(self) -> float:
        """Seconds since the Service entered its present phase."""
        return self.now - self.remembered.since

    @cached_property
    def pending(self) -> PendingCause:
        """Why the Service has no address; asked for only while it has none."""
        return NOT_PROCESSED if self.match.lb is None else pending_cause(self.match.lb)

    @cached_property
    def unbooked(self) -> str:
        """The address that the Service shows and no load balancer of its own holds; empty when there is none."""
        shown = self.service.addresses[:1]
        held = allocated_addresses(self.match.own)
        return "" if held.intersection({*shown, DHCP_ADDRESS}) else "".join(shown)

    @cached_property
    def kept(self) -> str:
        """That address, if the Service asks for it and Harvester has given it none; empty otherwise.

        kube-vip announces it, and goes on until Harvester gives an address, as under the Go provider. What stands in
        kube-vip's annotation is the user's word until our condition is on the Service. An address that another load
        balancer holds is nobody's to ask for.
        """
        address, found = self.unbooked, Announcement.of(self.service)
        asked = {found.specified, found.requested, found.address if self.service.ready_condition is None else ""}
        if found.ignored or address not in asked or allocated_addresses(self.match.own):
            return ""
        return "" if self.booked_for_others(address) else address

    def booked_for_others(self, address: str) -> tuple[LoadBalancer, ...]:
        """Return the load balancers of other Services that hold an address, by Harvester's word."""
        return tuple(one for one in self.holders if one.allocated_ip == address and not one.metadata.deleting)

    @property
    def phase(self) -> str:
        """Words for the state that the Service is in; ``waited`` counts from their last change."""
        words = ["leaving" if self.scope.leaving else "wanted"]
        lb = self.match.lb
        if lb is not None:
            meta = lb.metadata
            has = ("deleting", meta.deleting), ("allocated", bool(lb.allocated_ip)), ("announced", bool(lb.address))
            words += [meta.uid, *(word for word, holds in has if holds)]
            # A deletion has its own patience, in which Harvester may meet others as often as it likes.
            words += ["contended"] if not self.scope.leaving and lb.contended else []
            # A replacement waits anew for what Harvester may be booking.
            words.append(f"as {self.request.workload_type} of {self.request.primary}")
        elif self.request.primary is not None:
            words += ["shares", *self._awaited_primary()]
        return " ".join(words)

    def _awaited_primary(self) -> tuple[str, ...]:
        """Return words for what is waited for of the primary: nobody waits for it before it can have an address."""
        primary = self.primary
        if primary is None or self.service.addresses:
            return ()
        asks = is_served_by_us(primary, self.cluster) and primary_reference(primary) is None
        has = ("asks", asks), ("addressed", bool(primary.addresses))
        return primary.metadata.uid, *(word for word, holds in has if holds)


def observe(store: ServiceStore, service: Service, cluster: ClusterIdentity) -> Situation:
    """Return what is known about a Service now, but for what is remembered of it."""
    request = read_request(service)
    key, primary = service.metadata.key, request.primary
    named = store.services.get(primary) if primary else None
    mapping = store.config_maps.get(f"{NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME}")
    load_balancers = _candidates(store, service, cluster)
    match = match_load_balancer(load_balancers, service, cluster)
    shares_with = store.services.by_index(BY_PRIMARY, primary or key)
    return Situation(
        service=service,
        cluster=cluster,
        match=match,
        scope=scope_of(service, cluster, owned=match.lb is not None),
        request=request,
        holders=_holders(store, service, load_balancers),
        primary=named,
        primary_allocated=_allocated(store, named, cluster) if named is not None else None,
        secondaries_of_primary=tuple(one for one in shares_with if primary_reference(one) == (primary or key)),
        own_secondaries=tuple(one for one in store.services.by_index(BY_PRIMARY, key) if one.metadata.key != key),
        backends=store.backends,
        node_addresses=_node_addresses(store, request.network),
        network_devices=network_devices(mapping),
        mapping_known=store.config_maps.synced or store.config_maps.problem is not None,
        # One that cannot be decoded exists: nothing follows from its absence in the cache.
        harvester_known=store.load_balancers.synced
        and f"{cluster.namespace}/{match.expected_name}" not in store.load_balancers.unread,
        harvester_problem=store.load_balancers.problem,
        our_harvester=match.lb is not None or store.is_our_harvester(cluster),
    )


def _allocated(store: ServiceStore, service: Service, cluster: ClusterIdentity) -> frozenset[str] | None:
    """Return the addresses that Harvester has allocated for a Service; None while that is not known."""
    return allocated_addresses(_candidates(store, service, cluster)) if store.load_balancers.synced else None


def _candidates(store: ServiceStore, service: Service, cluster: ClusterIdentity) -> tuple[LoadBalancer, ...]:
    """Return the load balancers that carry the Service's labels or UID, and the one that has its name."""
    key, uid = service.metadata.key, service.metadata.uid
    found = store.load_balancers.by_index(BY_SERVICE, key)
    found += tuple(one for one in store.load_balancers.by_index(BY_SERVICE, uid) if service_key(one) != key)
    named = store.load_balancers.get(f"{cluster.namespace}/{name_for(service, cluster)}")
    return found if named is None or named in found else (*found, named)


def _node_addresses(store: ServiceStore, network: str) -> tuple[str, ...]:
    """Return the addresses of nodes by which a pool for a network is judged, without those of load balancers."""
    networks = store.backends.networks if network else {}
    reported = networks.get(network) or [address for addresses in networks.values() for address in addresses]
    listed = store.services, store.load_balancers
    return tuple(one for one in reported if not any(of.by_index(BY_ADDRESS, one) for of in listed))


def _holders(store: ServiceStore, service: Service, own: tuple[LoadBalancer, ...]) -> tuple[LoadBalancer, ...]:
    """Return the other load balancers that hold an address of the Service or of those that carry its labels."""
    addresses = {*service.addresses, *(one.allocated_ip for one in own)}
    found = (one for address in sorted(addresses) for one in store.load_balancers.by_index(BY_ADDRESS, address))
    return tuple(one for one in found if one not in own)


class ServiceStates:
    """What is remembered of all Services, by key. ``now`` is the time of a look, of a clock that only goes forward."""

    def __init__(self) -> None:
        self._states: dict[str, ServiceState] = {}

    def follow(self, situation: Situation, now: float) -> ServiceState:
        """Return the state of a Service as it is now."""
        meta = situation.service.metadata
        state = self._states.get(meta.key)
        if state is None or state.uid != meta.uid:
            # An earlier process may have announced the address, and not have touched the endpoints.
            said, told = situation.service.ready_condition, Announcement.of(situation.service).told
            touch_at = now if told and said is not None and said.status == "False" else None
            state = ServiceState(meta.uid, situation.phase, now, touch_at)
        if state.phase != situation.phase:
            state = replace(state, phase=situation.phase, since=now)
        self._states[meta.key] = state
        return state

    def forget(self, key: str) -> None:
        """Drop what is remembered of a Service that is gone."""
        self._states.pop(key, None)
