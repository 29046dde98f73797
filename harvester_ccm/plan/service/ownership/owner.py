"""The owner of a load balancer: this cluster, another cluster, or not proven.

A load balancer has labels (cluster, namespace and name of the Service) and, if this controller created it, annotations
with the UIDs of the cluster and of the Service. Another cluster of the same name writes the same labels, and a clone of
this cluster the same annotations. So only a load balancer with both belongs to this cluster.
"""

import re
import shlex
import zlib
from collections.abc import Iterable, Iterator
from enum import StrEnum, auto

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm import names
from harvester_ccm.model.core import Service
from harvester_ccm.model.event import EventMessage
from harvester_ccm.model.harvester import LOAD_BALANCERS, ClusterIdentity, LoadBalancer
from harvester_ccm.names import Reason

_DNS_1035_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


class Owner(StrEnum):
    """The owner of a load balancer, from the point of view of one Service."""

    OURS = "ours"
    FOREIGN = "foreign"
    """Another cluster, or a cluster of another name with the UID of this one: a clone, or this one before a rename."""
    UNPROVEN = "unproven"


class Mark(StrEnum):
    """The owner of a load balancer by its owner annotation."""

    OURS = auto()
    FOREIGN = auto()
    NONE = auto()
    """There is no annotation, as with the Go provider, or the UID of this cluster is not known."""


class Candidate(Struct, frozen=True):
    """A load balancer that may be the one of a Service, because it has its labels or its name; and who owns it."""

    load_balancer: LoadBalancer
    owner: Owner
    reason: str
    """Why it has this owner."""
    remedy: str = ""
    """What a user can do if the owner should be this Service; empty if nothing helps."""
    command: str = ""
    """The command for it, for Harvester."""

    def conflicts_with(self, service: Service, expected_name: str) -> bool:
        """Return whether it has the name or the address that the Service would get."""
        return self.load_balancer.metadata.name == expected_name or shows_address(service, self.load_balancer)


class LoadBalancerMatch(Struct, frozen=True):
    """The load balancer of a Service, and the others with its labels or its name."""

    expected_name: str
    """The name that a new one gets."""
    load_balancer: LoadBalancer | None = None
    """The one that serves the Service."""
    duplicates: tuple[LoadBalancer, ...] = ()
    """Further ones with the owner annotation of this cluster, left by an interrupted rename or a restored Service."""
    foreign: tuple[Candidate, ...] = ()
    """Load balancers of other clusters that have this cluster's name in the label, or conflict with the Service."""
    candidates: tuple[Candidate, ...] = ()
    """All load balancers that may be the one of the Service, first the one that serves it."""

    @property
    def own_load_balancers(self) -> tuple[LoadBalancer, ...]:
        """The load balancers that are deleted with the Service."""
        return self.duplicates if self.load_balancer is None else (self.load_balancer, *self.duplicates)

    @property
    def given(self) -> frozenset[str]:
        """The addresses that Harvester has given to the load balancer of the Service, ``0.0.0.0`` for one from DHCP.

        Harvester announces the address in the status of a VM load balancer. On a cluster load balancer, this controller
        wrote that address, as a copy.
        """
        if self.load_balancer is None:
            return frozenset()
        is_vm = self.load_balancer.spec.workload_type == "vm"
        announced = self.load_balancer.address if is_vm else ""
        return frozenset({self.load_balancer.allocated_ip, announced} - {""})

    @property
    def own_undeleted(self) -> tuple[LoadBalancer, ...]:
        """The own load balancers that are not being deleted yet."""
        return tuple(load_balancer for load_balancer in self.own_load_balancers if not load_balancer.metadata.deleting)


def load_balancer_name(cluster: str, namespace: str, name: str, uid: str) -> str:
    """Return the name of a Service's load balancer.

    It must never change: Harvester remembers addresses by the name of the load balancer, so another name is another
    address. The checksum covers the uncut readable part and the Service's UID; with its eight digits a name has at most
    63 bytes. A cluster name that is no DNS-1035 label gets an ``a`` in front; nothing else is repaired.
    """
    if len(cluster) > 63 or not _DNS_1035_LABEL.fullmatch(cluster):
        cluster = f"a{cluster}"
    base = f"{cluster}-{namespace}-{name}-".encode()
    checksum = zlib.crc32(base + uid.encode())
    return base[:55].decode("utf-8", "ignore") + f"{checksum:08x}"


def name_for(service: Service, cluster: ClusterIdentity) -> str:
    """Return the name that a new load balancer of the Service gets."""
    meta = service.metadata
    return load_balancer_name(cluster.name, meta.namespace, meta.name, meta.uid)


def allocated_addresses(load_balancers: Iterable[LoadBalancer]) -> frozenset[str]:
    """Return the addresses of these load balancers, including ``0.0.0.0`` for one from DHCP."""
    addresses: set[str] = set()
    for load_balancer in load_balancers:
        addresses.update((load_balancer.allocated_ip, load_balancer.address))
    return frozenset(addresses - {""})


def shows_address(service: Service, load_balancer: LoadBalancer) -> bool:
    """Return whether the Service has the address of the load balancer in its status."""
    addresses = allocated_addresses((load_balancer,)) - {names.DHCP_ADDRESS}
    return not addresses.isdisjoint(service.addresses)


def has_cluster_name(load_balancer: LoadBalancer, cluster: ClusterIdentity) -> bool:
    """Return whether the label of the load balancer is this cluster's name, or a former one."""
    return load_balancer.metadata.label(names.LB_CLUSTER) in cluster.names


def may_be_of_cluster(load_balancer: LoadBalancer, cluster: ClusterIdentity) -> bool:
    """Return whether a load balancer has this cluster's name, and no mark of another cluster."""
    return has_cluster_name(load_balancer, cluster) and mark_of(load_balancer, cluster) is not Mark.FOREIGN


def mark_of(load_balancer: LoadBalancer, cluster: ClusterIdentity) -> Mark:
    """Return the owner by the owner annotation."""
    annotated = load_balancer.metadata.annotation(names.LB_OWNER)
    if not annotated or not cluster.uid:
        return Mark.NONE
    return Mark.OURS if annotated == cluster.uid else Mark.FOREIGN


def candidate_of(load_balancer: LoadBalancer, service: Service, cluster: ClusterIdentity) -> Candidate:
    """Return the owner of a load balancer and the reason.

    The label must have this cluster's name: a clone has the same UIDs. Then an owner annotation decides. Without one
    (created by the Go provider) the name is a proof, because its checksum covers the UID of the Service; otherwise only
    that the Service has its address.
    """
    label = load_balancer.metadata.label(names.LB_CLUSTER)
    if mark_of(load_balancer, cluster) is Mark.FOREIGN:
        annotated = load_balancer.metadata.annotation(names.LB_OWNER)
        reason = f"annotation {names.LB_OWNER} is {annotated}, and this cluster is {cluster.uid}"
        return Candidate(load_balancer, Owner.FOREIGN, reason)
    proof = next(_proofs(load_balancer, service, cluster), None)
    if proof is None:
        return Candidate(load_balancer, Owner.UNPROVEN, _unproven_reason(load_balancer, cluster))
    if label is None or label in cluster.names:
        return Candidate(load_balancer, Owner.OURS, proof)
    return _under_another_name(load_balancer, cluster, label)


def _under_another_name(load_balancer: LoadBalancer, cluster: ClusterIdentity, label: str) -> Candidate:
    """Return the owner of a load balancer with the UIDs of this cluster and another cluster name in its label."""
    reason = f"it belongs to this cluster under the name {label!r}, and this cluster is called {cluster.name!r}"
    remedy = (
        f"If the cluster was renamed, start the controller with --former-cluster-names={label}. If another client has "
        f"changed label {names.LB_CLUSTER} in Harvester, set it back. If this cluster is a clone of one that still "
        "exists (or a restored snapshot), clear status.loadBalancer of the Service, which then gets an address of its "
        "own"
    )
    return Candidate(load_balancer, Owner.FOREIGN, reason, remedy)


def kubectl_arguments(namespace: str, name: str) -> str:
    """Return the arguments of kubectl that name a load balancer."""
    return f"-n {namespace} {LOAD_BALANCERS.plural}.{LOAD_BALANCERS.group} {name}"


def _proofs(load_balancer: LoadBalancer, service: Service, cluster: ClusterIdentity) -> Iterator[str]:
    """Yield the proofs that a load balancer belongs to the Service, apart from the cluster name in its label.

    The strongest comes first.
    """
    yield from _proofs_by_annotation(load_balancer, service, cluster)
    yield from _proofs_by_name(load_balancer, service, cluster)
    yield from _proofs_by_address(load_balancer, service, cluster)


def _proofs_by_annotation(load_balancer: LoadBalancer, service: Service, cluster: ClusterIdentity) -> Iterator[str]:
    meta = load_balancer.metadata
    if meta.label(names.LB_CLUSTER) is None:
        return
    if mark_of(load_balancer, cluster) is Mark.OURS:
        yield "its owner annotation is this cluster's UID"
    for key in (names.LB_SERVICE_UID, names.LB_SERVICE_UUID):
        if meta.annotation(key) == service.metadata.uid:
            yield f"annotation {key} is this Service's UID"


def _proofs_by_name(load_balancer: LoadBalancer, service: Service, cluster: ClusterIdentity) -> Iterator[str]:
    owner = service.metadata
    label = load_balancer.metadata.label(names.LB_CLUSTER)
    for cluster_name in (*cluster.names, cluster.name if label is None else label):
        if load_balancer.metadata.name == load_balancer_name(cluster_name, owner.namespace, owner.name, owner.uid):
            yield f"its name is made from this Service, its UID and cluster name {cluster_name!r}"


def _proofs_by_address(load_balancer: LoadBalancer, service: Service, cluster: ClusterIdentity) -> Iterator[str]:
    """Yield the proof for a load balancer of the Go provider: it has no owner annotation."""
    label = load_balancer.metadata.label(names.LB_CLUSTER)
    has_unique_name = label in cluster.names and label not in ("", names.DEFAULT_CLUSTER_NAME)
    if not has_unique_name or load_balancer.metadata.annotation(names.LB_OWNER):
        return
    if shows_address(service, load_balancer):
        yield f"the Service has its address, and label {names.LB_CLUSTER} is {label!r}, a name of this cluster's own"


def _unproven_reason(load_balancer: LoadBalancer, cluster: ClusterIdentity) -> str:
    label = load_balancer.metadata.label(names.LB_CLUSTER)
    if label is None:
        return f"it has no label {names.LB_CLUSTER}"
    if load_balancer.metadata.annotation(names.LB_OWNER):
        return "it has an owner annotation, and the UID of this cluster (namespace kube-system) is not known"
    text = f"it was created for a Service of this name with another UID, by a cluster called {label!r}"
    if has_cluster_name(load_balancer, cluster):
        return f"{text}: that may be another cluster of this name"
    return f"{text}, and this one is {cluster.name!r}"


def _with_adoption(
    candidate: Candidate, current: LoadBalancer | None, service: Service, cluster: ClusterIdentity
) -> Candidate:
    """Return the candidate with the way in which a user has the load balancer adopted, if that is possible.

    ``current`` is the load balancer that the Service has: of two of them, the controller keeps the one in use.
    """
    load_balancer = candidate.load_balancer
    is_foreign = mark_of(load_balancer, cluster) is Mark.FOREIGN
    is_adoptable = candidate.owner is Owner.UNPROVEN or is_foreign
    if not is_adoptable or service_key(load_balancer) != service.metadata.key or not cluster.uid:
        return candidate
    target = kubectl_arguments(load_balancer.metadata.namespace, load_balancer.metadata.name)
    condition = "it is this cluster's" if candidate.owner is Owner.UNPROVEN else "that cluster no longer exists"
    first = ""
    if current is not None:
        first = f"stop the controller, delete load balancer {current.metadata.name} in Harvester, and "
    # The label is last, because only with it the load balancer belongs to this cluster.
    command = (
        f"kubectl annotate --overwrite {target} {names.LB_OWNER}={cluster.uid} "
        f"{names.LB_SERVICE_UID}={service.metadata.uid} && "
        f"kubectl label --overwrite {target} {names.LB_CLUSTER}={shlex.quote(cluster.name)}"
    )
    return replace(candidate, remedy=f"If {condition}, {first}adopt it in Harvester", command=command)


def match_load_balancer(
    load_balancers: Iterable[LoadBalancer], service: Service, cluster: ClusterIdentity
) -> LoadBalancerMatch:
    """Return which of the load balancers with the Service's labels or name serves it, and who owns the others."""
    expected_name = name_for(service, cluster)
    candidates = [candidate_of(load_balancer, service, cluster) for load_balancer in load_balancers]
    candidates.sort(key=lambda candidate: _preference(candidate, service, expected_name))
    ours = [candidate.load_balancer for candidate in candidates if candidate.owner is Owner.OURS]
    current = ours[0] if ours else None
    # Without the owner annotation of this cluster, one is not certain enough for a deletion.
    duplicates = [duplicate for duplicate in ours[1:] if mark_of(duplicate, cluster) is Mark.OURS]
    candidates = [_with_adoption(candidate, current, service, cluster) for candidate in candidates]
    foreign = [candidate for candidate in candidates if _concerns(candidate, service, cluster, expected_name)]
    return LoadBalancerMatch(expected_name, current, tuple(duplicates), tuple(foreign), tuple(candidates))


def _concerns(candidate: Candidate, service: Service, cluster: ClusterIdentity, expected_name: str) -> bool:
    """Return whether a load balancer of another owner concerns the Service.

    A Service of another cluster can have the same name.
    """
    if candidate.owner is not Owner.FOREIGN:
        return False
    return has_cluster_name(candidate.load_balancer, cluster) or candidate.conflicts_with(service, expected_name)


class _Preference(Struct, frozen=True, order=True):
    """Sort key of candidates: the one that serves the Service comes first."""

    is_not_ours: bool
    is_deleting: bool
    has_other_address: bool
    has_other_name: bool
    name: str


def _preference(candidate: Candidate, service: Service, expected_name: str) -> _Preference:
    load_balancer = candidate.load_balancer
    name = candidate.load_balancer.metadata.name
    held = (load_balancer.allocated_ip, load_balancer.address)
    is_in_use = bool(service.addresses) and service.addresses[0] in held
    return _Preference(
        is_not_ours=candidate.owner is not Owner.OURS,
        is_deleting=load_balancer.metadata.deleting,
        has_other_address=not is_in_use,
        has_other_name=name != expected_name,
        name=name,
    )


def foreign_warning(candidate: Candidate) -> EventMessage:
    """Return the Warning about a load balancer of another cluster."""
    meta = candidate.load_balancer.metadata
    cause = (
        f"Load balancer {meta.name} in namespace {meta.namespace} of Harvester has the name, the labels or the address "
        f"of this Service, but another owner, and is not changed: {candidate.reason}"
    )
    return EventMessage("Warning", Reason.OWNERSHIP_CONFLICT, cause, candidate.remedy, candidate.command)


def service_key(load_balancer: LoadBalancer) -> str:
    """Return the ``namespace/name`` of the Service that the labels name, or without labels its UID.

    The Go provider before 0.2 wrote no labels but an annotation with the UID.
    """
    meta = load_balancer.metadata
    namespace = meta.label(names.LB_SERVICE_NAMESPACE)
    name = meta.label(names.LB_SERVICE_NAME)
    return f"{namespace}/{name}" if namespace and name else meta.annotation(names.LB_SERVICE_UUID) or ""
