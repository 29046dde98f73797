"""The table of what ``status`` and ``preflight`` look at besides the plans: each row finds one kind of fault.

A plan is about one object that this controller writes. These faults are beside that: whose load balancers there are,
what happens after an address was published, and when the credentials end.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from msgspec import Struct

from harvester_ccm.commands.clusters import TITLES, ClusterStore
from harvester_ccm.commands.notes import PlannedNode
from harvester_ccm.commands.states import Line, ObjectStatus, State, StatusReason, seconds_between
from harvester_ccm.config import SERVICE_CONTROLLER, Announcer, Settings
from harvester_ccm.kube.builtin import Lease
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.holder import program_of_holder
from harvester_ccm.kube.tokens import fixed_token, token_claims
from harvester_ccm.model.core import Node, Service
from harvester_ccm.model.event import abbreviate, quoted
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.names import (
    IP_POOL,
    LB_CLUSTER,
    LB_REQUESTED_NETWORK,
    LB_SELECT_NETWORK,
    LEASE_HOLDER,
    PRIMARY_SERVICE,
    SERVICE_ANNOTATIONS,
    VM_CLUSTER,
    NodeReason,
)
from harvester_ccm.netip import IPNetwork, address_in, common_network, ipv4_ranges
from harvester_ccm.plan.node.facts import is_inside
from harvester_ccm.plan.node.match import find_vm
from harvester_ccm.plan.node.vms import VM, Membership, NodeNetworks, all_vms, networks_of, own_vmis
from harvester_ccm.plan.service.allocation.deletion import deletion_remedy
from harvester_ccm.plan.service.announcing.endpoints import Reading
from harvester_ccm.plan.service.announcing.seen import read_seen
from harvester_ccm.plan.service.ownership.orphans import (
    ORPHAN_GRACE_SECONDS,
    ORPHANED,
    deletion_obstacle,
    is_orphan,
    service_of,
)
from harvester_ccm.plan.service.ownership.owner import Mark, mark_of, service_key
from harvester_ccm.plan.service.ownership.virtual_ips import VIRTUAL_IP
from harvester_ccm.plan.service.scope import is_in_scope, primaries_of, was_served
from harvester_ccm.redaction import sanitize
from harvester_ccm.remedies import credential_hint

SOON: Final = timedelta(days=7)
"""A token that expires within this time is a problem: it has to be renewed in time."""
DELETION_SECONDS: Final = 60.0
"""Time after which a load balancer that is being deleted is a problem: Harvester usually needs a second."""
_SETTINGS: Final = tuple(key for key in SERVICE_ANNOTATIONS if key != PRIMARY_SERVICE)
"""Keys that are settings as annotations, and nothing as labels."""
_NODE_ADDRESS_FIX: Final = (
    "End the program that writes it, usually ServiceLB of K3s: start K3s with --disable=servicelb on every server. "
    "Until then kube-vip can remove the address from the node. Afterwards restart the nodes that cannot be reached"
)
_LEFT_FIX: Final = (
    "A kube-vip that died leaves addresses like these: see 'Addresses that kube-vip left' on the page about disaster "
    "recovery. An address that someone else gave to the node, such as that of the control plane, can stay"
)
_ON_SEVERAL_FIX: Final = (
    "kube-vip announces an address on one node, so the others do it by mistake if this does not end within a minute: "
    "see 'Addresses that kube-vip left' on the page about disaster recovery"
)
_SHOWN_TYPES: Final = frozenset({"InternalIP", "ExternalIP"})
"""Types of the addresses of a Node that other programs write to the status of a Service."""
_REPEATED_ADDRESS_FIX: Final = (
    "Traffic for one can reach the other. Delete the Service that is not needed, or what another controller left on "
    "it: spec.externalIPs, the class or annotation of that controller, and the address in the status"
)
OTHER_CLUSTER_NAME: Final = "OtherClusterName"
"""Reason of a --cluster-name that is not that on the VMs of the Nodes."""
HELD_SECONDS: Final = 60.0
"""Time without a renewal after which nobody holds a Lease: longer than its duration, as clocks differ."""
JOINED_SECONDS: Final = 600.0
"""Time after which a VM that runs has joined the cluster: installations can take several minutes."""
_NO_NODE: Final = "It runs with the label of this cluster and is no Node, so it gets no pods and no traffic"
_NO_NODE_FIX: Final = (
    "If its Node was deleted, restart its kubelet, which registers it again. If it never joined, its kubelet or agent "
    "has the reason in its log"
)
KUBE_VIP_LOCK: Final = "plndr-svcs-lock"
"""The Lease with which kube-vip elects the node that announces all Services."""
_KEEP_ORPHAN: Final = (
    f"The controller deletes it when this has held for {ORPHAN_GRACE_SECONDS:.0f} s, unless it runs with "
    "--orphaned-load-balancer-policy=report. To keep its address, for example after an older etcd was restored, set "
    "that flag and create the Service again"
)
_OVERLAP_FIX: Final = (
    "The IP pool {pool} contains addresses of a DHCP server, or static ones: give the VM another address, or exclude "
    "the range of the pool from DHCP"
)
_INSIDE_FIX: Final = (
    "Addresses of a pool must be free addresses of the network of the nodes. In Harvester create a pool with such a "
    f"range, name it in annotation {IP_POOL} of the Services, delete them and create them again"
)
_UNREACHABLE: Final = "Addresses there may not be reachable"
_NODE_NETWORK_FIX: Final = (
    "Set the kubelet's --node-ip (RKE2, K3s: node-ip) to the address in {network}, or --management-network={network} "
    "of this controller"
)
_SUBNET_FIX: Final = (
    "kube-vip with ARP announces an address only in the networks of the VMs: give the VMs an interface in the network "
    f"of that pool, or name another one in annotation {IP_POOL}, delete the Service and create it again. With BGP and "
    "a route to it, this is right"
)
_POOL_NETWORK_FIX: Final = (
    "Set --management-network={network}, or name a pool of that network in annotation "
    f"{IP_POOL}; then delete the Service and create it again"
)
_SAME_NAME_FIX: Final = (
    "If that cluster exists, give one of the two another --cluster-name. If this cluster was restored and took its "
    "place, explain svc/NAME prints the command that adopts the load balancer of a Service. If it no longer exists, "
    "cleanup --cluster-uid deletes what it left"
)
_SAME_UID_FIX: Final = (
    "If this cluster had that name, start the controller with --former-cluster-names=NAME: it keeps those of its "
    "Services and deletes the others. If a clone of this cluster has that name, they are right"
)
NO_ENDPOINT: Final = "The Service has no endpoint any more, and since version 1.2 kube-vip withdraws the address then"
_UNSERVED: Final = "None of its endpoints is ready, so nothing answers at the address"
_UNSERVED_FIX: Final = "Check its Pods: readiness probe, log and events"
NO_ENDPOINT_FIX: Final = "Check its Pods and its selector, or without a selector its EndpointSlice"


class CheckInputs(Struct, frozen=True, dict=True):
    """What the checks look at."""

    store: ClusterStore
    settings: Settings
    clients: Sequence[ApiClient]
    """Those with a credential of the controller."""
    nodes: Sequence[PlannedNode]

    @cached_property
    def vms(self) -> dict[str, VM]:
        """The VM of each Node whose VM is known, by the name of the Node."""
        found = {node.metadata.name: find_vm(self.store, node).vm for node in self.store.nodes.all()}
        return {name: vm for name, vm in found.items() if vm is not None}

    @cached_property
    def held_leases(self) -> dict[str, Lease]:
        """The Leases that this program holds and renews, by name."""
        held = {}
        for lease in self.store.leases:
            age = seconds_between(lease.spec.renew_time, self.store.taken)
            if age is not None and abs(age) <= HELD_SECONDS and program_of_holder(lease, LEASE_HOLDER):
                held[lease.metadata.name] = lease
        return held


class Fault(Struct, frozen=True):
    """Something that is wrong with an object."""

    name: str
    """Kind and name of the object."""
    cause: str
    """What is wrong, without a full stop."""
    fix: str
    """What to do, without a full stop; empty if nobody has to do anything."""
    state: State = State.DEGRADED
    since: str = ""
    namespace: str = ""
    """That of the Service that it is about; empty if it is about none."""


class Check(Struct, frozen=True):
    """A row of the table."""

    reason: str
    """What the faults are called."""
    find: Callable[[CheckInputs], Iterator[Fault]]
    is_about_services: bool = True
    """Whether the Service controller has to be enabled for it."""
    is_hint: bool = False
    """Whether another program wrote what it goes by: a note of ``status``, never a problem."""


def _orphans(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield load balancers of this cluster without a Service."""
    store = inputs.store
    for load_balancer in store.load_balancers.all():
        if not is_orphan(load_balancer, service_of(load_balancer, store.services), store.cluster):
            continue
        key = service_key(load_balancer)
        kept = deletion_obstacle(load_balancer, store.services, store.load_balancers)
        cause = f"Service {key} does not exist: {kept or ORPHANED}"
        yield _of_load_balancer(load_balancer, cause, "" if kept else _KEEP_ORPHAN, State.ORPHANED)


def _of_load_balancer(
    load_balancer: LoadBalancer, cause: str, fix: str, state: State = State.DEGRADED, since: str = ""
) -> Fault:
    name = f"LoadBalancer {load_balancer.metadata.name}"
    return Fault(name, cause, fix, state, since, namespace=service_key(load_balancer).partition("/")[0])


def _node_addresses(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield the managed Services that show the address of a Node which no load balancer has.

    kube-vip takes such an address for one that it must announce, and can remove it from the device of the node.
    """
    nodes = _nodes_by_address(inputs.store)
    for service in inputs.store.services.all():
        shown = [address for address in service.addresses if address in nodes]
        if not shown or not is_in_scope(service, inputs.store.cluster):
            continue
        for address in shown:
            if not inputs.store.load_balancers.by_index(VIRTUAL_IP, address):
                names = abbreviate(nodes[address])
                cause = f"Address {address} in the status is that of Node {names}, and no load balancer has it"
                yield _of_service(service, cause, _NODE_ADDRESS_FIX)


def _nodes_by_address(store: ClusterStore) -> dict[str, list[str]]:
    """Return the sorted names of the Nodes by their addresses that other programs write to Services."""
    names: dict[str, list[str]] = {}
    for node in store.nodes.all():
        for entry in node.status.addresses:
            if entry.type in _SHOWN_TYPES:
                names.setdefault(entry.address, []).append(node.metadata.name)
    return {address: sorted(those) for address, those in names.items()}


def _left_addresses(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield the addresses on the VMs of Nodes that nobody has, and those of Services on several VMs.

    A kube-vip that is killed or panics leaves the addresses that it announced on its node, also after their Services
    are deleted. Harvester can allocate such an address again, and then two nodes answer for it. The guest agents of the
    VMs report the addresses, up to a minute late.
    """
    store = inputs.store
    own = {entry.address for node in store.nodes.all() for entry in node.status.addresses} | store.api_servers
    of_services = {address for service in store.services.all() for address in service.addresses}
    unknown: list[str] = []
    repeated: list[str] = []
    for address, vms in sorted(_vms_by_address(store).items()):
        text = f"{address} ({abbreviate(sorted(vms))})"
        if address in own:
            continue
        if address not in of_services and not store.virtual_ips.owner(address):
            unknown.append(text)
        elif len(vms) > 1:
            repeated.append(text)
    if unknown:
        cause = f"Addresses that no Node, Service or load balancer has: {abbreviate(unknown)}"
        yield Fault("VMs", cause, _LEFT_FIX, State.NONE)
    if repeated:
        cause = f"Several report the address of a Service: {abbreviate(repeated)}"
        yield Fault("VMs", cause, _ON_SEVERAL_FIX, State.NONE)


def _vms_by_address(store: ClusterStore) -> dict[str, set[str]]:
    """Return the names of the VMs of Nodes by the IPv4 addresses that a device has besides its own, the first."""
    names: dict[str, set[str]] = {}
    for instance in own_vmis(store):
        for interface in instance.interfaces:
            # Load balancers have no IPv6 address, and each device has some.
            _own, *added = [address for address in interface.addresses if ":" not in address] or [""]
            for address in added:
                names.setdefault(address, set()).add(instance.metadata.name)
    return names


def _of_service(service: Service, cause: str, fix: str) -> Fault:
    return Fault(f"Service {service.metadata.key}", cause, fix, namespace=service.metadata.namespace)


def _labels_as_settings(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield the Services with a setting of this controller as a label, where nothing reads it."""
    for service in inputs.store.services.all():
        if service.spec.type != "LoadBalancer" or not is_in_scope(service, inputs.store.cluster):
            continue
        meta = service.metadata
        keys = [key for key in _SETTINGS if meta.label(key) is not None and meta.annotation(key) is None]
        if keys:
            cause = f"Labels have no effect on the load balancer: {abbreviate(keys)}"
            yield _of_service(service, cause, "Settings are annotations: write them there, and remove the labels")


def _repeated_addresses(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield the Services that show one address, if this controller serves one of them and none shares it."""
    for address, services in _services_by_address(inputs.store).items():
        has_own = any(is_in_scope(service, inputs.store.cluster) for service in services)
        load_balancers = list(inputs.store.load_balancers.by_index(VIRTUAL_IP, address))
        # The plans say that Harvester has allocated an address twice.
        if len(services) == 1 or not has_own or len(load_balancers) > 1:
            continue
        for service in services:
            others = abbreviate(sorted(other.metadata.key for other in services if other is not service))
            cause = f"Address {address} is shown by Service {others} as well, in its status or spec.externalIPs"
            yield _of_service(service, cause, _REPEATED_ADDRESS_FIX)


def _services_by_address(store: ClusterStore) -> dict[str, list[Service]]:
    """Return the Services by the addresses that they show, but those of Nodes: ServiceLB writes these to each Service.

    A Service that shares the address of a primary is left out, because it has a plan.
    """
    of_nodes = _nodes_by_address(store).keys()
    services: dict[str, list[Service]] = {}
    for service in store.services.all():
        if primaries_of(service):
            continue
        for address in {*service.addresses, *service.spec.external_ips} - of_nodes:
            services.setdefault(address, []).append(service)
    return services


def _other_owners(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield the load balancers with the name of this cluster and the UID of another one, and vice versa."""
    cluster = inputs.store.cluster
    with_name: list[str] = []
    with_uid: list[str] = []
    for load_balancer in inputs.store.load_balancers.all():
        name = load_balancer.metadata.name
        label = load_balancer.metadata.label(LB_CLUSTER) or ""
        mark = mark_of(load_balancer, cluster)
        if label == cluster.name and mark is Mark.FOREIGN:
            with_name.append(name)
        elif label not in ("", *cluster.names) and mark is Mark.OURS:
            with_uid.append(f"{name} ({label})")
    if with_name:
        others = abbreviate(sorted(with_name))
        cause = f"Load balancers in Harvester have this name and the UID of another cluster: {others}"
        yield Fault(f"Cluster {cluster.name}", cause, _SAME_NAME_FIX, State.NONE)
    if with_uid:
        others = abbreviate(sorted(with_uid))
        cause = f"Load balancers in Harvester have the UID of this cluster and another cluster name: {others}"
        yield Fault(f"Cluster {cluster.name}", cause, _SAME_UID_FIX, State.NONE)


def _second_controllers(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield the other Leases that this program holds: two controllers with two Leases write at the same time."""
    if len(inputs.held_leases) < 2:
        return
    for name, lease in inputs.held_leases.items():
        if name != inputs.settings.leader_election.name:
            cause = f"{lease.spec.holder_identity} holds this Lease, so a second controller writes at the same time"
            fix = (
                "Stop one of the two, or start both with the same --leader-elect-resource-name: flags and pods of the "
                "controllers show which is which"
            )
            yield Fault(f"Lease {lease.metadata.key}", cause, fix, State.NONE)


def _other_lease(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield the Lease of the only controller, if the command looks at another one."""
    if len(inputs.held_leases) != 1 or inputs.settings.leader_election.name in inputs.held_leases:
        return
    for name, lease in inputs.held_leases.items():
        cause = f"{lease.spec.holder_identity} leads with this Lease, and the command looks at another one"
        fix = f"Repeat the command with --leader-elect-resource-name={name}"
        yield Fault(f"Lease {lease.metadata.key}", cause, fix, State.NONE)


def _silent_kube_vip(inputs: CheckInputs) -> str:
    """Return the node that holds the Lease of kube-vip and does not renew it, by the clocks of other holders.

    kube-vip elects a node for each Service instead if it is told to; then this Lease is an old one.
    """
    leases = {lease.metadata.name: lease.spec for lease in inputs.store.leases}
    held = leases.get(KUBE_VIP_LOCK)
    if held is None or any(name.startswith("kubevip-") for name in leases):
        return ""
    newest = max(spec.renew_time or "" for spec in leases.values())
    age = seconds_between(held.renew_time, datetime.fromisoformat(newest)) if newest else None
    return held.holder_identity or "" if age is not None and age > HELD_SECONDS else ""


def _announcing_nodes(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield the Services whose announcing node, as kube-vip noted it, does not exist or is not Ready."""
    if not len(inputs.store.nodes):
        # As in the demo: kube-vip runs somewhere else.
        return
    silent = _silent_kube_vip(inputs)
    for service in inputs.store.services.all():
        name = _announcing_node(service, inputs.store.cluster)
        if not name:
            continue
        node = inputs.store.nodes.get(name) or _node_with_hostname(inputs.store, name)
        if node is None:
            what = "that Node does not exist"
        elif node.ready != "True":
            what = "that Node is not Ready"
        elif name == silent:
            what = f"kube-vip there has not renewed its Lease {KUBE_VIP_LOCK} for more than {HELD_SECONDS:.0f} s"
        else:
            continue
        cause = f"kube-vip has noted that Node {name} announces the address, and {what}"
        fix = (
            "If this lasts for more than a minute, it is probably announced by none: check that kube-vip Pods run on "
            "other nodes, and restart them"
        )
        yield _of_service(service, cause, fix)


def _node_with_hostname(store: ClusterStore, name: str) -> Node | None:
    """Return the Node with this host name, which old versions of kube-vip note; None without one."""
    return next((node for node in store.nodes.all() if node.has_address("Hostname", name)), None)


def _without_endpoint(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield the Services that a node announced, and that have no endpoint any more; those that none did have a plan."""
    store = inputs.store
    for service in store.services.all():
        endpoints = store.endpoints.get(service.metadata.key)
        is_missing = endpoints is not None and endpoints.reading is Reading.MISSING
        if is_missing and _announcing_node(service, store.cluster):
            yield _of_service(service, NO_ENDPOINT, NO_ENDPOINT_FIX)
        elif service.metadata.key in store.unserved:
            yield _of_service(service, _UNSERVED, _UNSERVED_FIX)


def _announcing_node(service: Service, cluster: ClusterIdentity) -> str:
    """Return the node that kube-vip has noted for the present address of a Service; empty if there is none."""
    if cluster.announcer is Announcer.OTHER or not was_served(service) or not is_in_scope(service, cluster):
        return ""
    note = read_seen(service)
    return note.node if note.status and note.read_address and not note.is_held else ""


def _cluster_names(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield the cluster name if the VMs of the Nodes have the label of another cluster, and none has this one."""
    name = inputs.store.cluster.name
    labels = {vm.cluster_label for vm in inputs.vms.values()} - {""}
    if not labels or name in labels:
        return
    others = sorted(labels)
    cause = f"--cluster-name is {name!r} and the VMs of the Nodes have label {VM_CLUSTER}={abbreviate(others)}"
    fix = (
        f"Set --cluster-name={others[0]} (chart: global.cattle.clusterName). Load balancers that this cluster has "
        f"made under {name!r} keep their addresses with --former-cluster-names={name}, see explain service"
    )
    yield Fault(f"Cluster {name}", cause, fix, State.NONE)


def _guessed_networks(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield the Nodes whose network is a guess, whose Event is emitted only once for each."""
    for node, plan, _ in inputs.nodes:
        for event in plan.addresses.events:
            if event.reason is NodeReason.NETWORK_DEFAULTED:
                yield Fault(f"Node {node.metadata.name}", event.prose, "", State.NONE)


def _of_other_vms(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield the load balancers with the address of a VM that is no Node; one of a Node is not published at all."""
    store = inputs.store
    nodes = {vm.object.metadata.key for vm in inputs.vms.values()}
    others = (instance for instance in store.vmis.all() if instance.metadata.key not in nodes)
    found = (
        (instance.metadata.name, address)
        for instance in others
        for interface in instance.interfaces
        for address in interface.addresses[:1]
    )
    for name, address in found:
        for load_balancer in store.load_balancers.by_index(VIRTUAL_IP, address):
            cause = f"VM {name} has address {address} as well"
            fix = _OVERLAP_FIX.format(pool=quoted(load_balancer.allocated_pool))
            yield _of_load_balancer(load_balancer, cause, fix)


def _vms_without_node(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield the VMs that are labelled for this cluster and have run for a while, and that are no Node."""
    store = inputs.store
    nodes = {vm.object.metadata.key for vm in inputs.vms.values()}
    for vm in all_vms(store):
        if vm.membership is not Membership.OWN or vm.object.metadata.key in nodes:
            continue
        if vm.vmi is None or not vm.is_running:
            continue
        if (seconds_between(vm.vmi.metadata.creation_timestamp, store.taken) or 0.0) >= JOINED_SECONDS:
            yield Fault(f"VM {vm.name}", _NO_NODE, _NO_NODE_FIX, State.NONE)


def _inside_cluster(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield the IP pools with an address inside a network of this cluster, for which the nodes have routes or rules."""
    store = inputs.store
    cluster_ips = (address for service in store.services.all() for address in service.spec.cluster_ips)
    services = ipv4_ranges(store.service_cidrs) or common_network(cluster_ips)
    pods = common_network(text for node in store.nodes.all() for text in node.spec.pod_cidrs)
    for kind, networks in {"Pods": pods, "Services (cluster IPs)": services}.items():
        ranges = abbreviate(list(map(str, networks)))
        for pool, addresses in _allocated_inside(store, networks).items():
            cause = f"Addresses inside the network of {kind} of this cluster, {ranges}: {abbreviate(sorted(addresses))}"
            yield Fault(f"IP pool {pool}", cause, _INSIDE_FIX)


def _allocated_inside(store: ClusterStore, networks: Sequence[IPNetwork]) -> dict[str, list[str]]:
    """Return the addresses inside the networks that load balancers have, by their pools."""
    inside: dict[str, list[str]] = {}
    for load_balancer in store.own_load_balancers():
        address = address_in(load_balancer.allocated_ip)
        if address is not None and is_inside(address, networks):
            inside.setdefault(load_balancer.allocated_pool, []).append(load_balancer.allocated_ip)
    return inside


def _networks_of_nodes(inputs: CheckInputs) -> tuple[dict[str, NodeNetworks], str]:
    """Return the VM networks of each Node, and the one in which most of them have their InternalIP."""
    known: dict[str, NodeNetworks] = {}
    for node, _, _ in inputs.nodes:
        name = node.metadata.name
        networks = networks_of(node, inputs.vms[name]) if name in inputs.vms else None
        if networks is not None:
            known[name] = networks
    numbers = Counter(networks.used for networks in known.values())
    return known, max(numbers, key=numbers.__getitem__, default="")


def _nodes_elsewhere(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield the Nodes whose InternalIP is not in the network of most Nodes, although their VM is in it."""
    by_node, usual = _networks_of_nodes(inputs)
    for node, networks in sorted(by_node.items()):
        if networks.used != usual and usual in networks.attached:
            cause = (
                f"Its InternalIP is in network {networks.used}, that of most Nodes in {usual}, and its VM is in both. "
                f"{_UNREACHABLE}"
            )
            yield Fault(f"Node {node}", cause, _NODE_NETWORK_FIX.format(network=usual), State.NONE)


def _pools_elsewhere(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield the load balancers whose pool Harvester chose for a network in which no Node has its InternalIP."""
    store = inputs.store
    by_node, usual = _networks_of_nodes(inputs)
    used = {networks.used for networks in by_node.values()}
    if not used or store.cluster.management_network:
        return
    for load_balancer in store.own_load_balancers():
        chosen = load_balancer.metadata.annotation(LB_SELECT_NETWORK) or ""
        is_requested = load_balancer.spec.ip_pool or load_balancer.metadata.annotation(LB_REQUESTED_NETWORK)
        if chosen and chosen not in used and not is_requested:
            cause = (
                f"Harvester chose IP pool {load_balancer.allocated_pool} for network {chosen}, that of the first "
                f"interface of a VM, and the Nodes have their InternalIPs in {usual}. {_UNREACHABLE}"
            )
            yield _of_load_balancer(load_balancer, cause, _POOL_NETWORK_FIX.format(network=usual))


def _subnets_elsewhere(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield the load balancers of a requested pool in whose subnet no VM of a Node has an address.

    A range can be a small part of its network, so 24 bits are compared at most.
    """
    texts = {text for instance in own_vmis(inputs.store) for nic in instance.interfaces for text in nic.addresses}
    addresses = [address for address in map(address_in, sorted(texts)) if address is not None]
    for load_balancer in inputs.store.own_load_balancers():
        subnet = load_balancer.subnet
        if not load_balancer.spec.ip_pool or subnet is None or not addresses:
            continue
        network = subnet.supernet(new_prefix=min(subnet.prefixlen, 24))
        if not any(address in network for address in addresses):
            known = abbreviate(list(map(str, addresses)))
            cause = (
                f"Address {load_balancer.allocated_ip} of IP pool {load_balancer.allocated_pool} is in {network}, and "
                f"no VM of a Node has an address there: {known}. {_UNREACHABLE}"
            )
            yield _of_load_balancer(load_balancer, cause, _SUBNET_FIX)


def _ending_credentials(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield the tokens and client certificates that expire soon."""
    for client in inputs.clients:
        credentials = client.credentials
        end = credentials.expiry
        # The server rejects one that has expired, and that is the problem then.
        if end is None or not timedelta() < end - inputs.store.taken <= SOON:
            continue
        title = TITLES[client.cluster]
        what = "client certificate" if credentials.certificate else "token"
        cause = f"The {what} for {title} expires on {end:%Y-%m-%d %H:%M} UTC"
        _, account = token_claims(fixed_token(credentials.token))
        fix = credential_hint(client.cluster, account)
        yield Fault(title.removeprefix("the ").capitalize(), cause, fix, State.NONE)


def _not_ready(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield the load balancers with an address, for kube-vip, that Harvester reports as not ready."""
    for load_balancer in inputs.store.own_load_balancers():
        condition = load_balancer.ready
        if (
            load_balancer.spec.workload_type == "vm"
            or not load_balancer.allocated_ip
            or load_balancer.metadata.deleting
        ):
            continue
        if condition is not None and condition.status == "False":
            cause = (
                f"Harvester reports that the load balancer is not ready, although it has address "
                f"{load_balancer.allocated_ip}: {sanitize(condition.message) or 'no cause'}"
            )
            fix = (
                "Check that its IP pool exists, and the log of harvester-load-balancer in namespace harvester-system "
                "of Harvester"
            )
            yield _of_load_balancer(load_balancer, cause, fix)


def _hanging_deletions(inputs: CheckInputs) -> Iterator[Fault]:
    """Yield the load balancers that Harvester does not remove. A Service that waits for one has its own row."""
    for load_balancer in inputs.store.own_load_balancers():
        began = load_balancer.metadata.deletion_timestamp
        if (seconds_between(began, inputs.store.taken) or 0.0) < DELETION_SECONDS:
            continue
        if inputs.store.services.get(service_key(load_balancer)) is None:
            cause = "The load balancer is still being deleted in Harvester"
            yield _of_load_balancer(load_balancer, cause, deletion_remedy(load_balancer), State.DELETING, began or "")


def faults_in(inputs: CheckInputs, namespace: str, *, hints: bool) -> Iterator[Line]:
    """Yield what the checks find about Services in a namespace (all for an empty one), and about everything else.

    ``hints``: those checks or the others.
    """
    of_services = SERVICE_CONTROLLER in inputs.settings.controllers
    for check in CHECKS:
        if check.is_hint is not hints or (check.is_about_services and not of_services):
            continue
        for fault in check.find(inputs):
            if not (namespace and fault.namespace) or namespace == fault.namespace:
                text = ". ".join(filter(None, (fault.cause, fault.fix)))
                yield fault.name, ObjectStatus(fault.state, fault.since, (StatusReason(check.reason, text),))


CHECKS: Final = (
    Check("TokenExpires", _ending_credentials, is_about_services=False),
    Check("SecondController", _second_controllers, is_about_services=False),
    Check("OtherLease", _other_lease, is_about_services=False),
    Check(OTHER_CLUSTER_NAME, _cluster_names, is_about_services=False),
    Check("ClusterNameInUse", _other_owners, is_hint=True),
    Check("Orphaned", _orphans),
    Check("NodeAddressPublished", _node_addresses),
    Check("AddressInClusterNetwork", _inside_cluster),
    Check("AddressInUse", _of_other_vms),
    Check("VMWithoutNode", _vms_without_node, is_about_services=False, is_hint=True),
    Check("SettingsIgnored", _labels_as_settings),
    Check("AddressShownTwice", _repeated_addresses),
    Check("AnnouncingNodeLost", _announcing_nodes, is_hint=True),
    Check("NoEndpoints", _without_endpoint, is_hint=True),
    Check("LoadBalancerNotReady", _not_ready),
    Check("LoadBalancerDeleting", _hanging_deletions),
    Check(NodeReason.NETWORK_DEFAULTED, _guessed_networks, is_about_services=False, is_hint=True),
    Check("OtherNetwork", _nodes_elsewhere, is_about_services=False, is_hint=True),
    Check("OtherNetwork", _pools_elsewhere, is_hint=True),
    Check("OtherNetwork", _subnets_elsewhere, is_hint=True),
    Check("LeftAddresses", _left_addresses, is_about_services=False, is_hint=True),
)
"""All checks of the contents of both clusters."""
