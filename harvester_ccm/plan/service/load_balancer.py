"""The LoadBalancer object of a Service, field by field, and the changes that an existing one needs.

In a VM load balancer every Service port is mapped to its node port on every VM of the cluster that may get traffic.
Harvester finds the VMs by their labels; before 1.2 it was given addresses. What is written of both is a matter of its
``Capabilities``.

Written once, at creation: ``ipam`` and the pool selection annotations (Harvester's webhook overwrites namespace and
project at every write, so comparing them later would write for ever). Fixed once there is an address: the pool and the
network. Kept up to date: labels, the cluster annotation, the management network, the ownership marks,
``status.address`` of cluster load balancers, and listeners, backends and health check of VM load balancers. Everything
else is left as it was read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Node, Service, is_of_other_provider
from harvester_ccm.model.harvester import SINCE_1_2, Capabilities, HealthCheck, Listener, LoadBalancer
from harvester_ccm.names import (
    DESCRIPTION,
    EXCLUDE_NODE_LABEL,
    IP_POOL,
    LB_ASKED_AGAIN,
    LB_CLUSTER,
    LB_CONTROLLER_FINALIZER,
    LB_MANAGEMENT_NETWORK,
    LB_OWNER,
    LB_REQUESTED_NETWORK,
    LB_SELECT_CLUSTER,
    LB_SELECT_NAMESPACE,
    LB_SELECT_NETWORK,
    LB_SELECT_PROJECT,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    LB_SERVICE_UID,
    MOVING,
    NETWORK,
    POOL_NAMESPACE,
    PROJECT,
    VM_NAME,
)
from harvester_ccm.netip import ipv4_text
from harvester_ccm.plan.service.request import normal_network

Document = dict[str, object]

NO_BACKEND: Final = "no-node-of-this-cluster"
"""Stands for an empty backend list: Harvester keeps the old backends when the list itself is empty."""
AUTOSCALER_TAINT: Final = "ToBeDeletedByClusterAutoscaler"
"""Put on nodes that the cluster autoscaler is about to remove."""
_POOL_CHOICE: Final = frozenset(
    {LB_MANAGEMENT_NETWORK, LB_SELECT_CLUSTER, LB_SELECT_NAMESPACE, LB_SELECT_NETWORK, LB_SELECT_PROJECT}
)
"""Annotations by which Harvester chooses a pool."""


@dataclass(frozen=True)
class LoadBalancerChange:
    """Fields of an existing LoadBalancer that must be written; None in a map removes the key."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    spec: Mapping[str, object] = field(default_factory=dict)
    address: str | None = None
    """New ``status.address``; None leaves it."""
    closing_pool: str = ""
    """Pool to be named in the place of an address: Harvester books none any more then, and gives back what it has
    booked there when the load balancer is deleted. What it said before is dropped: the next word is its answer."""
    ask_again: bool = False
    """Whether what Harvester said of an address is dropped, so that it looks for one once more."""

    @property
    def empty(self) -> bool:
        """Whether nothing has to be written."""
        return self == LoadBalancerChange()


@dataclass(frozen=True, slots=True)
class Former:
    """What is known of a load balancer that is gone, for the one that takes its place and is to get its address."""

    name: str
    pool: str = ""
    ipam: str = ""
    network: str | None = None
    """As it was asked for; None when that is not known."""
    cluster: str = ""
    """Name of the cluster that is moving it; empty while none is."""


def former_of(load_balancer: LoadBalancer) -> Former:
    """Return what has to be known of a load balancer to put another one in its place; its address fixes its network."""
    meta = load_balancer.metadata
    network = meta.annotation(LB_REQUESTED_NETWORK) if load_balancer.allocated_ip else None
    return Former(meta.name, load_balancer.allocated_pool, load_balancer.spec.ipam, network)


def new_load_balancer(
    service: Service,
    name: str,
    cluster: ClusterIdentity,
    *,
    spec: Mapping[str, object],
    network: str | None = None,
    capabilities: Capabilities = SINCE_1_2,
) -> Document:
    """Return the object to create with this ``spec``; ``network`` holds instead of the one that the Service names.

    It has the finalizer of Harvester's controller from the start. Otherwise that adds it in a write of its own, which
    every other writer of the object may meet; that is a third of its writes, of which it has five a second. That
    Harvester has recorded anything is not to be read from the finalizer then.
    """
    if network is None:
        network = service.metadata.annotation(NETWORK) or ""
    annotations = {
        LB_SELECT_NETWORK: normal_network(network),
        LB_REQUESTED_NETWORK: network,
        LB_SELECT_PROJECT: service.metadata.annotation(PROJECT) or "",
        LB_SELECT_NAMESPACE: service.metadata.annotation(POOL_NAMESPACE) or "",
        **_kept_annotations(service, cluster),
    }
    body = {
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "labels": load_balancer_labels(service, cluster),
            "annotations": {key: value for key, value in annotations.items() if value is not None},
            **({"finalizers": [LB_CONTROLLER_FINALIZER]} if capabilities.has_ip_pools else {}),
        },
        "spec": {key: value for key, value in {**_description(service), **spec}.items() if value not in (None, "")},
    }
    return capabilities.encode(body)


def _description(service: Service) -> Document:
    """Return the field by which a load balancer has the description that its Service asks for."""
    text = service.metadata.annotation(DESCRIPTION)
    return {"description": text} if text else {}


def described(document: Document, service: Service, cluster: ClusterIdentity) -> Document:
    """Return a load balancer as it is written, with a description that says whose it is.

    Harvester's pages show it in their lists. What somebody else wrote there stays, and it is no reason for a write.
    """
    spec, whose = cast("Document", document["spec"]), f"{service.metadata.key} of cluster "
    written = str(spec.get("description") or "")
    if _description(service) or (written and not written.startswith(whose)):
        return document
    return {**document, "spec": {**spec, "description": f"{whose}{cluster.name}"}}


def network_of(current: LoadBalancer, wanted: str) -> str:
    """Return the network of a load balancer in normal form: the one it was made with is fixed once it has an address.

    ``wanted`` is what the Service asks for now; it holds until then, and for a load balancer that does not say.
    """
    made_with = current.metadata.annotation(LB_REQUESTED_NETWORK)
    return normal_network(made_with) if current.allocated_ip and made_with is not None else wanted


def load_balancer_change(
    current: LoadBalancer,
    service: Service,
    cluster: ClusterIdentity,
    *,
    address: str | None = None,
    spec: Mapping[str, object] | None = None,
) -> LoadBalancerChange:
    """Return what differs between an existing load balancer and what the Service needs.

    ``address`` is the address in use, or None while it is not known (then the old one stays). ``spec`` holds the
    fields that must have these values; None among them means absent.
    """
    meta = current.metadata
    annotations = _kept_annotations(service, cluster)
    if not searches_elsewhere(current, service):
        annotations[LB_ASKED_AGAIN] = None
    wanted = current.capabilities.encode_spec({**_description(service), **(spec or {})})
    present = cast("Document", current.document().get("spec") or {}) if wanted else {}
    return LoadBalancerChange(
        labels={k: v for k, v in load_balancer_labels(service, cluster).items() if meta.label(k) != v},
        annotations={k: v for k, v in annotations.items() if meta.annotation(k) != v},
        spec={k: v for k, v in wanted.items() if not _agrees(k, present.get(k), v)},
        address=address if address and address != current.address else None,
    )


def searches_elsewhere(current: LoadBalancer, service: Service) -> bool:
    """Return whether Harvester looks for an address in another pool or network than the Service asks for now.

    One made by a provider before 0.2.7 does not say which network was asked for. One that takes the place of another
    looks where that one had its address.
    """
    meta = service.metadata
    if not current.awaits_allocation or meta.annotation(MOVING) is not None:
        return False
    pool = (meta.annotation(IP_POOL) or "").strip() if current.spec.ipam == "pool" else current.spec.ip_pool
    network = current.metadata.annotation(LB_REQUESTED_NETWORK)
    return current.spec.ip_pool != pool or network not in (None, meta.annotation(NETWORK) or "")


def _agrees(key: str, present: object, wanted: object) -> bool:
    """Return whether a field has the wanted value; parts of it that only a newer Harvester knows do not count."""
    if key == "listeners" and isinstance(present, list) and isinstance(wanted, list):
        return len(present) == len(wanted) and all(map(_covers, present, wanted))
    return _covers(present, wanted) if key == "healthCheck" and wanted is not None else present == wanted


def _covers(present: object, wanted: object) -> bool:
    if isinstance(present, dict) and isinstance(wanted, dict):
        return present.items() >= wanted.items()
    return present == wanted


def changed_document(current: LoadBalancer, change: LoadBalancerChange) -> Document:
    """Return the whole object with the change made; unknown fields and the resource version stay.

    What Harvester said of a load balancer without an address goes when it has to look for one elsewhere: it was said of
    the other pool, and whoever deletes the load balancer must not believe that nothing is booked.
    """
    document = current.document()
    metadata = cast("Document", document["metadata"])
    labels = cast("Document", metadata.get("labels") or {})
    annotations = {**cast("Document", metadata.get("annotations") or {}), **change.annotations}
    spec = {**cast("Document", document.get("spec") or {}), **change.spec}
    metadata["labels"] = {**labels, **change.labels}
    metadata["annotations"] = {key: value for key, value in annotations.items() if value is not None}
    document["spec"] = {key: value for key, value in spec.items() if value is not None}
    status = cast("Document", document.get("status") or {})
    unsaid = {key: value for key, value in status.items() if key != "conditions"}
    if change.address is not None:
        document["status"] = {**status, "address": change.address}
    elif change.closing_pool:
        document["status"] = {**unsaid, "allocatedAddress": {"ipPool": change.closing_pool}}
    elif current.awaits_allocation and (change.ask_again or not _POOL_CHOICE.isdisjoint(change.annotations)):
        document["status"] = unsaid
    return document


def load_balancer_labels(service: Service, cluster: ClusterIdentity) -> dict[str, str]:
    """Return the labels by which the load balancer and its Service are found."""
    return {
        LB_CLUSTER: cluster.name,
        LB_SERVICE_NAMESPACE: service.metadata.namespace,
        LB_SERVICE_NAME: service.metadata.name,
    }


def _kept_annotations(service: Service, cluster: ClusterIdentity) -> dict[str, str | None]:
    kept: dict[str, str | None] = {
        LB_SELECT_CLUSTER: cluster.name,
        LB_MANAGEMENT_NETWORK: cluster.management_network or None,
        LB_SERVICE_UID: service.metadata.uid,
    }
    if cluster.uid:
        kept[LB_OWNER] = cluster.uid
    return kept


def takes_traffic(node: Node) -> bool:
    """Return whether load balancers may send traffic to the node.

    The exclusion label counts with any value that is not a written-out false; readiness, roles and cordons do not
    matter (they are what health checks and endpoints are for).
    """
    if node.metadata.deleting:
        return False
    if any(taint.key == AUTOSCALER_TAINT for taint in node.spec.taints):
        return False
    excluded = node.metadata.label(EXCLUDE_NODE_LABEL)
    return excluded is None or excluded in {"0", "f", "F", "false", "FALSE", "False"}


def why_no_backend(nodes: Collection[Node]) -> str:
    """Return why none of these nodes gets traffic, in a sentence; it holds only when none does.

    >>> why_no_backend([])
    'This cluster has no Node yet, so nobody can get traffic'
    """
    if not nodes:
        return "This cluster has no Node yet, so nobody can get traffic"
    going = sum(1 for node in nodes if node.metadata.deleting)
    excluded = sum(1 for node in nodes if not node.metadata.deleting and not takes_traffic(node))
    unknown = len(nodes) - going - excluded
    counts = (
        (excluded, f"are excluded (label {EXCLUDE_NODE_LABEL}, or taint {AUTOSCALER_TAINT})"),
        (going, "are being deleted"),
        (unknown, "have no VM that is known for certain"),
    )
    why = ", ".join(f"{count} {words}" for count, words in counts if count)
    return f"None of the {len(nodes)} Nodes of this cluster gets traffic: {why}"


def backend_names(nodes: Iterable[Node], vm_names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the VMs behind the nodes that take traffic, sorted.

    ``vm_names`` are of the nodes whose VM is known: a VM that merely has a node's name may be another cluster's.
    """
    names = (vm_names.get(node.metadata.name) for node in nodes if takes_traffic(node))
    return tuple(sorted({name for name in names if name is not None}))


def backend_addresses(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return the IPv4 InternalIPs of the nodes that take traffic, in the order of their names.

    Harvester before 1.2 puts them into an EndpointSlice of IPv4 addresses, which takes no other ones. Nodes of another
    provider do not count.
    """
    ours = (node for node in nodes if takes_traffic(node) and not is_of_other_provider(node.spec.provider_id))
    chosen = sorted(ours, key=lambda node: node.metadata.name)
    internal = (entry.address for node in chosen for entry in node.status.addresses if entry.type == "InternalIP")
    return tuple(dict.fromkeys(address for address in internal if ipv4_text(address)))


def listeners(service: Service, secondaries: Iterable[Service]) -> tuple[Listener, ...]:
    """Return one listener per port of the Service and of the Services that share its address.

    Ports without a node port (not yet allocated) are left out. Names are unique DNS labels.
    """
    made: dict[tuple[str, int], Listener] = {}
    used: set[str] = set()
    for owner in (service, *secondaries):
        for port in owner.spec.ports:
            if not port.node_port or (port.protocol, port.port) in made:
                continue
            wish = port.name if port.name and owner is service else f"{port.protocol.lower()}-{port.port}"
            name = _unused(wish, used)
            used.add(name)
            listener = Listener(name=name, port=port.port, protocol=port.protocol, backend_port=port.node_port)
            made[port.protocol, port.port] = listener
    return tuple(made.values())


def _unused(wish: str, used: set[str]) -> str:
    name, number = wish, 2
    while name in used:
        name, number = f"{wish[:58]}-{number}", number + 1
    return name


def selector(backends: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the label selector for these VMs; never an empty list."""
    return {VM_NAME: backends or (NO_BACKEND,)}


def vm_spec(
    front: tuple[Listener, ...],
    *,
    names: tuple[str, ...],
    addresses: tuple[str, ...],
    check: HealthCheck | None,
) -> Document:
    """Return the fields of ``spec`` that follow the Service and the nodes.

    ``names`` are those of the nodes' VMs, ``addresses`` those of the nodes.
    """
    return {
        "listeners": _listener_documents(front),
        "backendServerSelector": {key: list(values) for key, values in selector(names).items()},
        "backendServers": list(addresses),
        "healthCheck": None if check is None else health_check_document(check),
    }


def _listener_documents(front: tuple[Listener, ...]) -> list[Document]:
    return [
        {"name": one.name, "port": one.port, "protocol": one.protocol, "backendPort": one.backend_port} for one in front
    ]


def health_check_document(check: HealthCheck) -> Document:
    """Return ``spec.healthCheck``."""
    return {
        "port": check.port,
        "successThreshold": check.success_threshold,
        "failureThreshold": check.failure_threshold,
        "periodSeconds": check.period_seconds,
        "timeoutSeconds": check.timeout_seconds,
    }
