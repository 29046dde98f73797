"""A snapshot of everything that the plan of one Service depends on.

``observe`` reads a ``ServiceStore``: the caches of the controllers, or the complete lists of a command. It reads every
annotation and message of another program once, and decides who owns the load balancers, whether the Service is managed
and what it requests. ``ServiceState`` is what is remembered of the Service itself from one reconcile to the next; the
queue, the creation gate and the limits of writes and Events remember when.
"""

import math
from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct, field

from harvester_ccm.kube.errors import KubeError
from harvester_ccm.model.core import Service, special_use
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.names import (
    ANNOUNCED_AS,
    DHCP_ADDRESS,
    NAD_MAPPING_NAME,
    NAD_MAPPING_NAMESPACE,
    VM_NAME,
)
from harvester_ccm.netip import address_in
from harvester_ccm.plan.service.allocation.address_pools import ObservedPool, PoolRights, RefusedSeed
from harvester_ccm.plan.service.allocation.state import Allocation, read_allocation
from harvester_ccm.plan.service.announcing.endpoints import Endpoints
from harvester_ccm.plan.service.announcing.record import Record, Step, read_record
from harvester_ccm.plan.service.announcing.seen import Seen, read_seen
from harvester_ccm.plan.service.announcing.sequence import Next, Timers, Wish, leases_of, next_step
from harvester_ccm.plan.service.load_balancer.refused import Ports, Refused
from harvester_ccm.plan.service.ownership.owner import (
    Candidate,
    LoadBalancerMatch,
    allocated_addresses,
    match_load_balancer,
    name_for,
)
from harvester_ccm.plan.service.ownership.right_harvester import HarvesterCheck, check_harvester
from harvester_ccm.plan.service.request import Ipam, Request, WorkloadType, network_devices, read_request
from harvester_ccm.plan.service.scope import BY_PRIMARY, Role, Scope, scope_of, was_served
from harvester_ccm.plan.service.sharing.ranking import Ranking
from harvester_ccm.plan.service.store import BY_ADDRESS, BY_CLUSTER_IP, BY_SERVICE, Backends, ServiceStore


class ServiceState(Struct, gc=False):
    """The state of one Service that is kept between reconciles: timers, and what an API server does not store."""

    phase: str = ""
    """The phase of the last plan; empty before the first reconcile."""
    since: float = 0.0
    """When the phase began, in seconds of the monotonic clock."""
    record: str = ""
    """The record on the Service at the last reconcile, as it is written there."""
    record_since: float = 0.0
    """When this process saw it first, in seconds of the monotonic clock."""
    touches: int = 0
    """How often the endpoints were touched since then."""
    touched_at: float = 0.0
    """When they were touched last, in seconds of the monotonic clock."""
    is_touch_refused: bool = False
    """Whether the last touch was not permitted."""
    not_stored: dict[str, object] = field(default_factory=dict)
    """Fields of the load balancer that Harvester did not store, with the value that was sent: it is not sent again."""
    refused: Refused = Refused()
    """The listeners that Harvester rejected, and that are left out of the load balancer."""
    endpoints: Endpoints = Endpoints()
    """The endpoints of the Service, if they were read since then."""
    refused_seed: RefusedSeed | None = None
    """The request of an address that Harvester did not permit. It is not sent again by this process."""

    def see_record(self, service: Service, now: float) -> None:
        """Restart the counts at the monotonic time ``now`` if the record on the Service has changed."""
        record = service.metadata.annotation(ANNOUNCED_AS) or ""
        if self.record == record and self.phase:
            return
        self.record = record
        self.record_since = now
        self.touches = 0
        self.endpoints = Endpoints()

    def count_touch(self, now: float, *, is_permitted: bool) -> None:
        """Count a touch at the monotonic time ``now``, also one that is not permitted: the next one follows later."""
        self.touches += 1
        self.touched_at = now
        self.is_touch_refused = not is_permitted

    def enter(self, phase: str, now: float) -> None:
        """Record the phase of a plan at the monotonic time ``now``."""
        if self.phase != phase:
            self.phase = phase
            self.since = now

    def wait_again(self, now: float) -> None:
        """Restart the waiting time: Harvester begins again with a load balancer that was changed."""
        self.since = now


class ServiceSnapshot(Struct, frozen=True, dict=True):
    """Everything that the plan of one Service depends on."""

    service: Service
    cluster: ClusterIdentity
    seen: Seen
    """What kube-vip can read on the Service and has written there."""
    record: Record | None
    """What this controller did last to have an address announced; None if nothing shows it."""
    match: LoadBalancerMatch
    """The load balancers with the Service's labels or name, and their owners."""
    scope: Scope
    """Whether the Service is managed."""
    request: Request
    """Its annotations and fields."""
    backends: Backends
    """The nodes that may get traffic."""
    has_labelled_backend: bool = False
    """Whether one of them runs with the label by which Harvester finds it; only looked up while it reports a problem of
    a VM load balancer."""
    other_load_balancers: tuple[LoadBalancer, ...] = ()
    """Load balancers of other Services with an address of this Service, or of its load balancers."""
    pool_rights: PoolRights = PoolRights()
    """The IP pools in which an address can be requested."""
    pool: ObservedPool | None = None
    """The pool of the requested address; None until it is read."""
    holder_of_requested: str = ""
    """What else has the requested address, in a sentence; empty if nothing has. Only a Service without a load balancer
    needs it."""
    holders_of_new: Mapping[str, str] = field(default_factory=dict)
    """What else has an address that the Service has got and that is not published yet, in a sentence."""
    shows_held_address: bool = False
    """Whether kube-vip can read an address on it that a Node, an API server or the cluster has, or a host name."""
    primary: Service | None = None
    """The Service whose address this one shares, if it names one that exists."""
    primary_allocated: frozenset[str] = frozenset()
    """Addresses of the primary: the one that Harvester has allocated to its own load balancer, and the lease beside
    ``0.0.0.0``. Load balancers of others with its name say nothing about its address."""
    primary_served: str = ""
    """The address in the status of its load balancer: Harvester announces the address of a VM load balancer when it has
    written it there. Empty without one."""
    ranking_of_primary: Ranking = Ranking()
    """Which Services may use the address of the primary that this one names."""
    refused_of_primary: Ports = frozenset()
    """Listeners that Harvester rejected of the load balancer of the primary."""
    own_ranking: Ranking = Ranking()
    """Which Services may use the address of this one."""
    own_secondaries: tuple[Service, ...] = ()
    """Services that name this Service as their primary, or last had its address."""
    secondary_in_progress: bool = False
    """Whether one of these is being reconciled now: the patch by which it begins to share may be on its way."""
    network_devices: Mapping[str, str] | None = field(default_factory=dict)
    """Network to device of the nodes; None until the ConfigMap with the mapping has been looked up."""
    last_announced_at: float = -math.inf
    """When kube-vip last wrote a receipt on any Service without one, in seconds of the monotonic clock."""
    harvester_known: bool = True
    """Whether Harvester's load balancers have been listed; before that, the absence of one means nothing."""
    harvester_problem: KubeError | None = None
    """Why they cannot be read now."""
    machines_problem: KubeError | None = None
    """Why the VMs or their instances cannot be listed, which have not been listed yet."""
    harvester_check: HarvesterCheck = HarvesterCheck.OURS
    """Whether a load balancer can be created in this Harvester, without those of the Service."""
    wall_time: str = ""
    """The time in the format of the API, for the condition."""
    remembered: ServiceState = field(default_factory=ServiceState)
    now: float = 0.0
    """The time of the snapshot, in seconds of the monotonic clock."""

    def waited(self, phase: str) -> float:
        """Return the seconds since the Service entered this phase; 0 if it was in another one before."""
        return self.now - self.remembered.since if self.remembered.phase == phase else 0.0

    @property
    def timers(self) -> Timers:
        """What this process remembers of the announcement."""
        remembered = self.remembered
        since_touch = self.now - max(remembered.touched_at, remembered.record_since)
        return Timers(self.now - remembered.record_since, remembered.touches, since_touch, remembered.is_touch_refused)

    def step_towards(self, wish: Wish) -> Next:
        """Return the next step of announcing towards a wish."""
        return next_step(self.seen, self.record, wish, self.timers, self.cluster.announcer)

    @property
    def name_conflict(self) -> Candidate | None:
        """The load balancer of another cluster that has the name or the address which this Service would get."""
        for candidate in self.match.foreign:
            if candidate.conflicts_with(self.service, self.match.expected_name):
                return candidate
        return None

    @property
    def is_leaving(self) -> bool:
        """Whether the Service is removed from Harvester."""
        return self.scope.role is Role.REMOVE

    @property
    def load_balancer(self) -> LoadBalancer:
        """The load balancer that serves the Service, in the phases that have one. Raises LookupError in others."""
        if self.match.load_balancer is None:
            raise LookupError(f"Service {self.service.metadata.key} has no load balancer")
        return self.match.load_balancer

    @property
    def existing_primary(self) -> Service:
        """The primary that the Service names. Raises LookupError if there is none."""
        if self.primary is None:
            raise LookupError(f"Service {self.service.metadata.key} names no primary that exists")
        return self.primary

    @cached_property
    def allocation(self) -> Allocation:
        """Why the load balancer has no address. Raises LookupError without one."""
        return read_allocation(self.load_balancer)

    @property
    def has_had_address(self) -> bool:
        """Whether the Service has had an address of a load balancer before, from this controller or another one."""
        return was_served(self.service) if self.record is None else bool(self.record.address)

    @property
    def keeps_address(self) -> bool:
        """Whether the Service keeps the address that it shows while it waits: this controller has published it."""
        record = self.record
        if record is None:
            return False
        if record.is_published:
            return self.seen.address_annotation == record.address
        is_delegated = record.step is Step.DELEGATED and record.address in self.service.addresses
        return is_delegated and self.request.ipam is not Ipam.DHCP

    @property
    def shown_address(self) -> str:
        """The first address in the status; empty without one."""
        return next(iter(self.service.addresses), "")

    @property
    def leases(self) -> tuple[str, ...]:
        """The addresses that kube-vip has leased by DHCP for the Service."""
        load_balancer = self.match.load_balancer
        recorded = "" if load_balancer is None else load_balancer.address
        return leases_of(self.seen, self.record, recorded=recorded)

    @cached_property
    def taken_address(self) -> str:
        """The address that the Service shows and that Harvester has given to another load balancer; empty if none."""
        if allocated_addresses(self.match.own_load_balancers):
            return ""
        published = self.record.address if self.record is not None and self.record.is_published else ""
        for address in (*self.service.addresses, published):
            if self.allocated_to_others(address):
                return address
        return ""

    def allocated_to_others(self, address: str) -> tuple[LoadBalancer, ...]:
        """Return the load balancers of other Services to which Harvester has allocated an address."""
        return tuple(
            holder
            for holder in self.other_load_balancers
            if holder.allocated_ip == address and not holder.metadata.deleting
        )

    @property
    def wants_switch(self) -> bool:
        """Whether the Service requests another workload type than its load balancer has."""
        load_balancer = self.match.load_balancer
        wanted = self.request.workload_type
        return load_balancer is not None and wanted not in {WorkloadType.ANY, load_balancer.spec.workload_type}


def observe(store: ServiceStore, service: Service, cluster: ClusterIdentity) -> ServiceSnapshot:
    """Return the snapshot of a Service, without its state and the time."""
    seen = read_seen(service)
    record = read_record(service)
    load_balancers = _candidates(store, service, cluster)
    match = match_load_balancer(load_balancers, service, cluster)
    request = read_request(service, seen)
    key = service.metadata.key
    requested = _obtainable_request(store, request, match)
    primary = None
    ranking_of_primary = Ranking()
    if request.primary:
        primary = store.services.get(request.primary)
        ranking_of_primary = store.rankings.of(request.primary)
    primary_allocated: frozenset[str] = frozenset()
    primary_served = ""
    if primary is not None:
        of_primary = match_load_balancer(_candidates(store, primary, cluster), primary, cluster)
        primary_allocated = _addresses_of_primary(store, primary, of_primary)
        primary_served = "" if of_primary.load_balancer is None else of_primary.load_balancer.address
    return ServiceSnapshot(
        service=service,
        cluster=cluster,
        seen=seen,
        record=record,
        match=match,
        scope=scope_of(service, cluster, has_load_balancer=match.load_balancer is not None),
        request=request,
        other_load_balancers=_other_load_balancers(store, seen, load_balancers, request.address),
        pool_rights=store.pool_rights,
        holder_of_requested=_holder_of(store, requested) or _other_service_with(store, requested, key),
        holders_of_new=_holders_of_new(store, seen, record, match.given | primary_allocated),
        shows_held_address=_shows_held_address(store, seen, match.given | primary_allocated),
        primary=primary,
        primary_allocated=primary_allocated,
        primary_served=primary_served,
        ranking_of_primary=ranking_of_primary,
        own_ranking=store.rankings.of(key),
        own_secondaries=tuple(
            secondary for secondary in store.services.by_index(BY_PRIMARY, key) if secondary.metadata.key != key
        ),
        backends=store.backends,
        has_labelled_backend=_has_labelled_backend(store, match.load_balancer),
        network_devices=_network_devices(store),
        last_announced_at=store.last_announced_at,
        harvester_known=_is_harvester_known(store, f"{cluster.namespace}/{match.expected_name}"),
        harvester_problem=store.load_balancers.problem,
        machines_problem=_machines_problem(store),
        harvester_check=_harvester_check(store, cluster, match, request),
    )


def _has_labelled_backend(store: ServiceStore, load_balancer: LoadBalancer | None) -> bool:
    """Return whether a backend of a VM load balancer that is not ready runs and has its label."""
    backends = store.backends
    if not backends or load_balancer is None or load_balancer.spec.workload_type != "vm":
        return False
    if load_balancer.ready is None or load_balancer.ready.status == "True":
        return False
    return any(vmi.metadata.label(VM_NAME) in backends for vmi in store.vmis.all() if not vmi.metadata.deleting)


def _candidates(store: ServiceStore, service: Service, cluster: ClusterIdentity) -> tuple[LoadBalancer, ...]:
    """Return the load balancers with the Service's labels, UID or name."""
    meta = service.metadata
    by_index = store.load_balancers.by_index
    labelled = (*by_index(BY_SERVICE, meta.key), *by_index(BY_SERVICE, meta.uid))
    named = store.load_balancers.get(f"{cluster.namespace}/{name_for(service, cluster)}")
    return labelled if named is None or named in labelled else (*labelled, named)


def _addresses_of_primary(store: ServiceStore, primary: Service, match: LoadBalancerMatch) -> frozenset[str]:
    """Return the addresses of a primary, and ``0.0.0.0`` if one is from DHCP."""
    load_balancer = match.load_balancer
    if load_balancer is None or DHCP_ADDRESS not in match.given:
        return match.given
    leases = leases_of(read_seen(primary), read_record(primary), recorded=load_balancer.address)
    # Tenants can write kube-vip's annotations.
    return match.given.union(lease for lease in leases if not store.load_balancers.by_index(BY_ADDRESS, lease))


def _obtainable_request(store: ServiceStore, request: Request, match: LoadBalancerMatch) -> str:
    """Return the address that the Service can still request in its pool; empty if it can request none.

    Only for such a Service, all Nodes and load balancers are searched.
    """
    if match.load_balancer is not None:
        return ""
    return request.address if store.pool_rights.permit(request.ip_pool) else ""


def _holders_of_new(
    store: ServiceStore, seen: Seen, record: Record | None, addresses: frozenset[str]
) -> Mapping[str, str]:
    """Return what else has one of the addresses that a Service has got, without one that is published already."""
    if DHCP_ADDRESS in addresses:
        addresses = addresses.union(leases_of(seen, record, recorded=""))
    published = set(seen.status)
    if record is not None:
        published = {record.address} if record.is_shown else set()
    holders = {address: _holder_of(store, address) for address in sorted(addresses - {DHCP_ADDRESS} - published)}
    return {address: holder for address, holder in holders.items() if holder}


def _holder_of(store: ServiceStore, address: str) -> str:
    """Return what else has an address, in a sentence; empty if nothing has, or without an address.

    What only a claim shows does not count: a tenant writes the annotations of Services, and the report of a VM also has
    what kube-vip has bound to it.
    """
    if not address:
        return ""
    special = special_use(address)
    if special:
        return f"it is {special}"
    if address in store.api_servers:
        return "an API server of the kubeconfigs has it"
    for node in store.nodes.all():
        if node.has_address("InternalIP", address):
            return f"Node {node.metadata.name} has it"
    for service in store.services.by_index(BY_CLUSTER_IP, address):
        return f"Service {service.metadata.key} has it as cluster IP"
    return ""


def _other_service_with(store: ServiceStore, address: str, key: str) -> str:
    """Return another Service than ``key`` that shows an address, in a sentence.

    Harvester may have lost its load balancer, which is created again and gets the address again.
    """
    for service in store.services.by_index(BY_ADDRESS, address):
        if service.metadata.key != key and not service.metadata.deleting:
            return f"Service {service.metadata.key} has it"
    return ""


def addresses_read(seen: Seen) -> frozenset[str]:
    """Return the addresses that can be read on a Service: those for kube-vip, and those in the status for kube-proxy.

    kube-vip announces each address of a list.
    """
    listed = {_as_read(text.strip()) for text in seen.read_address.split(",")}
    return frozenset({*listed, *seen.status} - {""})


def _as_read(text: str) -> str:
    """Return an address as kube-vip reads it: an IPv4 address in the form of an IPv6 address is that IPv4 address."""
    address = address_in(text)
    return text if address is None else str(address)


def _shows_held_address(store: ServiceStore, seen: Seen, own: frozenset[str]) -> bool:
    """Return whether kube-vip can read an address that a Node, an API server or the cluster has, or a host name.

    A host name can stand for any address.
    """
    others = addresses_read(seen) - own - set(seen.leases) - {DHCP_ADDRESS}
    return any(address_in(text) is None or _holder_of(store, text) for text in others)


def _other_load_balancers(
    store: ServiceStore, seen: Seen, own: tuple[LoadBalancer, ...], requested: str
) -> tuple[LoadBalancer, ...]:
    """Return the load balancers of other Services with an address of this one, in the order of the addresses."""
    allocated = {load_balancer.allocated_ip for load_balancer in own}
    addresses = {*addresses_read(seen), *seen.lease_annotation, *allocated, requested}
    holders: list[LoadBalancer] = []
    for address in sorted(addresses):
        holders.extend(store.load_balancers.by_index(BY_ADDRESS, address))
    return tuple(holder for holder in holders if holder not in own)


def _network_devices(store: ServiceStore) -> Mapping[str, str] | None:
    config_maps = store.config_maps
    if not config_maps.synced and config_maps.problem is None:
        return None
    return network_devices(config_maps.get(f"{NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME}"))


def _is_harvester_known(store: ServiceStore, expected_key: str) -> bool:
    # A load balancer that cannot be decoded exists, although it is not in the cache.
    return store.load_balancers.synced and expected_key not in store.load_balancers.unread


def _machines_problem(store: ServiceStore) -> KubeError | None:
    problems = [machines.problem for machines in (store.vms, store.vmis) if not machines.synced]
    return next((problem for problem in problems if problem is not None), None)


def _harvester_check(
    store: ServiceStore, cluster: ClusterIdentity, match: LoadBalancerMatch, request: Request
) -> HarvesterCheck:
    """Return whether a load balancer can be created, if the Service may get a new one."""
    if request.primary:
        return HarvesterCheck.OURS
    load_balancer = match.load_balancer
    if load_balancer is not None and request.workload_type in {WorkloadType.ANY, load_balancer.spec.workload_type}:
        return HarvesterCheck.OURS
    return check_harvester(store, cluster, besides=match.own_load_balancers)
