"""A snapshot of everything that the plan of one Service depends on.

``observe`` reads a ``ServiceStore``: the caches of the controllers, or the complete lists of a command. It decides once
who owns the load balancers, whether the Service is managed and what it requests. ``ServiceState`` is the only state
that is kept from one reconcile to the next.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import Final, Protocol

from msgspec import Struct, field

from harvester_ccm.errors import CCMError, Forbidden
from harvester_ccm.model.core import ConfigMap, Node, Service, parse_provider_id
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer, VirtualMachine
from harvester_ccm.model.meta import Store
from harvester_ccm.names import DHCP_ADDRESS, NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE
from harvester_ccm.plan.service.kube_vip import Announcement
from harvester_ccm.plan.service.ownership import (
    LoadBalancerMatch,
    allocated_addresses,
    goes_by,
    load_balancer_name,
    marked_ours,
    match_load_balancer,
    name_for,
    service_key,
)
from harvester_ccm.plan.service.ranking import Ranking, Rankings
from harvester_ccm.plan.service.request import Request, network_devices, read_request
from harvester_ccm.plan.service.scope import BY_PRIMARY, Scope, is_served, primaries_of, scope_of, was_secondary
from harvester_ccm.plan.service.virtual_ips import VIRTUAL_IP, virtual_ips_of_load_balancer, virtual_ips_of_service

BY_SERVICE: Final = "service"
"""Index of load balancers by the Service that their labels name, or by its UID (Go provider before 0.2)."""
BY_ADDRESS: Final = "address"
"""Index of load balancers by the address that Harvester has allocated, and of Services by those in their status."""


Backends = tuple[str, ...] | None
"""The VMs of the nodes that may get traffic; None until the VMs are listed: the backends are left as they are then."""


class ServiceStore(Protocol):
    """Services and everything that they depend on."""

    @property
    def services(self) -> Store[Service]:
        """With SERVICE_INDEXES."""

    @property
    def rankings(self) -> Rankings:
        """Of these Services, for each primary."""

    @property
    def load_balancers(self) -> Store[LoadBalancer]:
        """With LOAD_BALANCER_INDEXES."""

    @property
    def config_maps(self) -> Store[ConfigMap]:
        """Holds the network mapping."""

    @property
    def backends(self) -> Backends:
        """The nodes that may get traffic."""

    @property
    def nodes(self) -> Store[Node]:
        """The Nodes of the guest cluster."""

    @property
    def vms(self) -> Store[VirtualMachine]:
        """The VMs in the namespace of the load balancers."""


SERVICE_INDEXES: Final[Mapping[str, Callable[[Service], Iterable[str]]]] = {
    BY_PRIMARY: primaries_of,
    BY_ADDRESS: lambda service: set(service.addresses),
    VIRTUAL_IP: virtual_ips_of_service,
}
LOAD_BALANCER_INDEXES: Final[Mapping[str, Callable[[LoadBalancer], Iterable[str]]]] = {
    BY_SERVICE: lambda one: {service_key(one)} - {""},
    BY_ADDRESS: lambda one: {one.allocated_ip} - {"", DHCP_ADDRESS},
    VIRTUAL_IP: virtual_ips_of_load_balancer,
}


class ServiceState(Struct, gc=False):
    """The state of one Service that is kept between reconciles; it is lost at a restart without harm."""

    phase: tuple[object, ...] | None = None
    """As in the snapshot; None before the first reconcile."""
    since: float = 0.0
    """When the phase began, in seconds of the monotonic clock."""
    touch_at: float | None = None
    """When an EndpointSlice of the Service is touched; None if that is not necessary."""

    def follow(self, snapshot: "ServiceSnapshot", now: float) -> None:
        """Update the state from a snapshot at the monotonic time ``now``."""
        condition = snapshot.service.ready_condition
        was_unready = condition is not None and condition.status == "False"
        if self.phase is None and was_unready and Announcement.of(snapshot.service).read_address:
            # An earlier process may have announced the address without the touch of the endpoints that follows.
            self.touch_at = now
        if self.phase != snapshot.phase:
            self.phase, self.since = snapshot.phase, now


class ServiceSnapshot(Struct, frozen=True, dict=True):
    """Everything that the plan of one Service depends on."""

    service: Service
    cluster: ClusterIdentity
    match: LoadBalancerMatch
    """The load balancers with the Service's labels or name, and their owners."""
    scope: Scope
    """Whether the Service is managed."""
    request: Request
    """Its annotations and fields."""
    backends: Backends
    """The nodes that may get traffic."""
    holders: tuple[LoadBalancer, ...] = ()
    """Load balancers of other Services with an address of this one or of its load balancers."""
    primary: Service | None = None
    """The Service whose address this one shares, if it names one that exists."""
    primary_allocated: frozenset[str] = frozenset()
    """Addresses of the primary's load balancers."""
    ranking_of_primary: Ranking = Ranking()
    """Which Services may use the address of the primary that this one names."""
    own_ranking: Ranking = Ranking()
    """Which Services may use the address of this one."""
    own_secondaries: tuple[Service, ...] = ()
    """Services that name this Service as their primary, or last had its address."""
    secondary_in_progress: bool = False
    """Whether one of these is being reconciled now."""
    network_devices: Mapping[str, str] | None = field(default_factory=dict)
    """Network to device of the nodes; None until the ConfigMap with the mapping has been looked up."""
    harvester_known: bool = True
    """Whether Harvester's load balancers have been listed; before that, the absence of one means nothing."""
    harvester_problem: CCMError | None = None
    """Why they cannot be read now."""
    our_harvester: bool | None = True
    """Whether a load balancer can be created in this Harvester, without those of the Service; ``is_our_harvester``."""
    wall_time: str = ""
    """The time in the format of the API, for the condition."""
    remembered: ServiceState = field(default_factory=ServiceState)
    now: float = 0.0
    """The time of the snapshot, in seconds of the monotonic clock."""

    @property
    def waited(self) -> float:
        """Seconds since the Service entered its phase."""
        return self.now - self.remembered.since

    @cached_property
    def unallocated_address(self) -> str:
        """The address in the status that no load balancer of the Service has; empty if none exists."""
        shown = self.service.addresses[:1]
        held = allocated_addresses(self.match.own)
        return "" if held.intersection({*shown, DHCP_ADDRESS}) else "".join(shown)

    @cached_property
    def retained_address(self) -> str:
        """That address, if the Service requests it and Harvester has allocated none; empty otherwise.

        kube-vip announces it until Harvester allocates an address, as with the Go provider. An address of another load
        balancer is no request.
        """
        address, ignored = self.unallocated_address, Announcement.of(self.service).ignored
        if ignored or address != self.request.address or allocated_addresses(self.match.own):
            return ""
        return "" if self.allocated_to_others(address) else address

    def allocated_to_others(self, address: str) -> tuple[LoadBalancer, ...]:
        """Return the load balancers of other Services to which Harvester has allocated an address."""
        return tuple(one for one in self.holders if one.allocated_ip == address and not one.metadata.deleting)

    @property
    def phase(self) -> tuple[object, ...]:
        """The facts whose change restarts the time that the Service waits."""
        lb, request = self.match.lb, self.request
        if lb is None:
            return self.scope.leaving, request.primary, self.primary is not None
        state = lb.metadata.deleting, bool(lb.allocated_ip), bool(lb.address)
        # A replacement restarts the time until Harvester has recorded the address.
        return (self.scope.leaving, lb.metadata.uid, *state, request.workload_type, request.primary)


def observe(store: ServiceStore, service: Service, cluster: ClusterIdentity) -> ServiceSnapshot:
    """Return the snapshot of a Service, without its state and the time."""
    load_balancers = _candidates(store, service, cluster)
    match = match_load_balancer(load_balancers, service, cluster)
    request = read_request(service, had_condition=_had_condition(service, match.lb))
    key, primary = service.metadata.key, request.primary
    named = store.services.get(primary) if primary else None
    config_maps = store.config_maps
    mapping = config_maps.get(f"{NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME}")
    # The ranking is needed only by a Service that stays: thousands that share one address can be deleted at once.
    scope = scope_of(service, cluster, owned=match.lb is not None)
    addresses = sorted({*service.addresses, *(one.allocated_ip for one in load_balancers)})
    have_address = [one for address in addresses for one in store.load_balancers.by_index(BY_ADDRESS, address)]
    return ServiceSnapshot(
        service=service,
        cluster=cluster,
        match=match,
        scope=scope,
        request=request,
        holders=tuple(one for one in have_address if one not in load_balancers),
        primary=named,
        primary_allocated=allocated_addresses(_candidates(store, named, cluster)) if named else frozenset(),
        ranking_of_primary=store.rankings.of(primary) if primary and scope.requested else Ranking(),
        own_ranking=store.rankings.of(key) if scope.requested else Ranking(),
        own_secondaries=tuple(one for one in store.services.by_index(BY_PRIMARY, key) if one.metadata.key != key),
        backends=store.backends,
        network_devices=network_devices(mapping) if config_maps.synced or config_maps.problem is not None else None,
        # A load balancer that cannot be decoded exists, although it is not in the cache.
        harvester_known=store.load_balancers.synced
        and f"{cluster.namespace}/{match.expected_name}" not in store.load_balancers.unread,
        harvester_problem=store.load_balancers.problem,
        our_harvester=not _may_create(request, match.lb) or is_our_harvester(store, cluster, without=match.own),
    )


def _may_create(request: Request, load_balancer: LoadBalancer | None) -> bool:
    """Return whether the Service may get a new load balancer: all load balancers may have to be looked at before."""
    if request.primary is not None:
        return False
    return load_balancer is None or request.workload_type not in {None, load_balancer.spec.workload_type}


def _had_condition(service: Service, load_balancer: LoadBalancer | None) -> bool:
    """Return whether the Service has this controller's condition, or another client must have removed it.

    Only a Service that the Go provider served has an address without the condition. That provider writes no description
    to its load balancers.
    """
    if service.ready_condition is not None:
        return True
    return is_served(service) and load_balancer is not None and bool(load_balancer.spec.description)


def is_our_harvester(
    store: ServiceStore, cluster: ClusterIdentity, *, without: Iterable[LoadBalancer] = ()
) -> bool | None:
    """Return whether load balancers can be created in this Harvester and namespace; None until the VMs are listed.

    In another Harvester or namespace, every Service would get another address. Two independent signs are necessary to
    conclude that: it has no load balancer of this cluster, although Services have addresses, and no VM of a Node.
    Either alone is normal: all load balancers were deleted, or all VMs were replaced.
    The load balancers ``without`` which the question is asked are those that a replacement deletes first.

    An object that cannot be decoded counts as present by what is known of it: a load balancer by the name that the one
    of a Service has, a VM by its UID. Those of others say nothing, so nobody else's object ends this protection.
    """
    load_balancers, vms = store.load_balancers, store.vms
    if cluster.new_harvester or not load_balancers.synced:
        return True
    excluded = {load_balancer.metadata.uid for load_balancer in without}
    if _has_load_balancer(store, cluster, excluded) or _has_unread_load_balancer(store, cluster, excluded):
        return True
    named = {uid for node in store.nodes.all() if (uid := parse_provider_id(node.spec.provider_id))}
    not_readable = not vms.synced and isinstance(vms.problem, Forbidden)
    if not named or not_readable:
        return True
    present = {vm.metadata.uid for vm in vms.all()} | {unread.uid for unread in vms.unread.values()}
    if not named.isdisjoint(present):
        return True
    with_address = (service for service in store.services.all() if is_served(service) and not was_secondary(service))
    if not any(scope_of(service, cluster, owned=False).requested for service in with_address):
        return True
    return False if vms.synced else None


def _has_load_balancer(store: ServiceStore, cluster: ClusterIdentity, excluded: Collection[str]) -> bool:
    """Return whether a load balancer shows that it belongs to this cluster; those with an excluded UID do not count."""
    for load_balancer in store.load_balancers.all():
        if load_balancer.metadata.uid in excluded:
            continue
        marked = marked_ours(load_balancer, cluster)
        if marked:
            return True
        # Without an owner annotation (Go provider), one counts that has the cluster's name and that of a Service.
        if marked is None and goes_by(load_balancer, cluster) and store.services.get(service_key(load_balancer)):
            return True
    return False


def _has_unread_load_balancer(store: ServiceStore, cluster: ClusterIdentity, excluded: Collection[str]) -> bool:
    """Return whether a load balancer that cannot be decoded has the name of the one of a Service with an address."""
    # Names start with the one of the cluster. Without one of these, the Services need not be searched for every plan.
    starts = tuple(f"{cluster.namespace}/{letter}{name[:50]}" for name in cluster.names for letter in ("", "a"))
    keys = {
        unread.key
        for unread in store.load_balancers.unread.values()
        if unread.key.startswith(starts) and unread.uid not in excluded
    }
    if not keys:
        return False
    for service in filter(is_served, store.services.all()):
        meta = service.metadata
        for cluster_name in cluster.names:
            name = load_balancer_name(cluster_name, meta.namespace, meta.name, meta.uid)
            if f"{cluster.namespace}/{name}" in keys:
                return True
    return False


def _candidates(store: ServiceStore, service: Service, cluster: ClusterIdentity) -> tuple[LoadBalancer, ...]:
    """Return the load balancers with the Service's labels, UID or name."""
    meta, by_index = service.metadata, store.load_balancers.by_index
    found = (*by_index(BY_SERVICE, meta.key), *by_index(BY_SERVICE, meta.uid))
    named = store.load_balancers.get(f"{cluster.namespace}/{name_for(service, cluster)}")
    return found if named is None or named in found else (*found, named)
