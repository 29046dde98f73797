"""The owner of a load balancer: this cluster, another cluster, or not proven.

A load balancer has labels (cluster, namespace and name of the Service) and, if this controller created it, annotations
with the UIDs of the cluster and of the Service. Labels alone may be those of another cluster of the same name, and
annotations alone those of a clone of this cluster: a load balancer of this cluster has both.
"""

import re
import shlex
import zlib
from collections.abc import Iterable, Iterator
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm import names
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, ClusterIdentity, LoadBalancer
from harvester_ccm.model.outcome import EventMessage

_DNS_1035_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


class Owner(StrEnum):
    """The owner of a load balancer, from the point of view of one Service."""

    OURS = "ours"
    FOREIGN = "foreign"
    """Another cluster, or a cluster of another name with the UID of this one: a clone, or this one before a rename."""
    UNPROVEN = "unproven"


class Claim(Struct, frozen=True):
    """A load balancer with the labels or the name of a Service, and its owner."""

    lb: LoadBalancer
    owner: Owner
    because: str
    remedy: str = ""
    """What a user can do if the owner should be this Service; empty if nothing helps."""
    command: str = ""
    """The command for it, for Harvester."""

    def conflicts(self, service: Service, expected_name: str) -> bool:
        """Return whether it has the name or the address that the Service would get."""
        return self.lb.metadata.name == expected_name or shows_address(service, self.lb)


class LoadBalancerMatch(Struct, frozen=True):
    """The load balancer of a Service, and the others with its labels or its name."""

    expected_name: str
    """The name that a new one gets."""
    lb: LoadBalancer | None = None
    """The one that serves the Service."""
    duplicates: tuple[LoadBalancer, ...] = ()
    """Others with the owner annotation of this cluster, left by an interrupted rename or a restored Service."""
    foreign: tuple[Claim, ...] = ()
    """Those of other clusters that have this cluster's name in the label, or conflict with the Service."""
    claims: tuple[Claim, ...] = ()
    """All of them, the one that serves the Service first."""

    @property
    def own(self) -> tuple[LoadBalancer, ...]:
        """All that are deleted with the Service."""
        return self.duplicates if self.lb is None else (self.lb, *self.duplicates)

    @property
    def left(self) -> tuple[LoadBalancer, ...]:
        """Those of them that are not being deleted yet."""
        return tuple(one for one in self.own if not one.metadata.deleting)


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
    return frozenset(address for one in load_balancers for address in (one.allocated_ip, one.address) if address)


def shows_address(service: Service, load_balancer: LoadBalancer) -> bool:
    """Return whether the Service has the address of the load balancer in its status."""
    return not (allocated_addresses((load_balancer,)) - {names.DHCP_ADDRESS}).isdisjoint(service.addresses)


def goes_by(load_balancer: LoadBalancer, cluster: ClusterIdentity) -> bool:
    """Return whether the label of the load balancer is this cluster's name, or a former one."""
    return load_balancer.metadata.label(names.LB_CLUSTER) in cluster.names


def marked_ours(load_balancer: LoadBalancer, cluster: ClusterIdentity) -> bool | None:
    """Return whether the owner annotation is this cluster's UID; None without it, or if the UID is not known."""
    mark = load_balancer.metadata.annotation(names.LB_OWNER)
    return mark == cluster.uid if mark and cluster.uid else None


def claim_of(one: LoadBalancer, service: Service, cluster: ClusterIdentity) -> Claim:
    """Return the owner of a load balancer and the reason.

    The label must have this cluster's name: a clone has the same UIDs. Then an owner annotation decides. Without one
    (created by the Go provider) the name is a proof, because its checksum covers the UID of the Service; otherwise only
    that the Service has its address.
    """
    label = one.metadata.label(names.LB_CLUSTER)
    if marked_ours(one, cluster) is False:
        owner = one.metadata.annotation(names.LB_OWNER)
        return Claim(one, Owner.FOREIGN, f"annotation {names.LB_OWNER} is {owner}, and this cluster is {cluster.uid}")
    proof = next(_proofs(one, service, cluster), None)
    if proof is None:
        return Claim(one, Owner.UNPROVEN, _unproven(one, cluster))
    if label is None or label in cluster.names:
        return Claim(one, Owner.OURS, proof)
    because = f"it belongs to this cluster under the name {label!r}, and this cluster is called {cluster.name!r}"
    remedy = (
        f"If the cluster was renamed, start the controller with --former-cluster-name={label}. If it is a clone of a "
        "cluster that still exists (or a restored snapshot), clear status.loadBalancer of the Service, which then gets "
        "an address of its own"
    )
    return Claim(one, Owner.FOREIGN, because, remedy)


def _proofs(one: LoadBalancer, service: Service, cluster: ClusterIdentity) -> Iterator[str]:
    """Yield the proofs that a load balancer belongs to the Service, apart from the cluster name in its label."""
    meta, of, label = one.metadata, service.metadata, one.metadata.label(names.LB_CLUSTER)
    if label is not None and marked_ours(one, cluster):
        yield "its owner annotation is this cluster's UID"
    for key in (names.LB_SERVICE_UID, names.LB_SERVICE_UUID):
        if label is not None and meta.annotation(key) == of.uid:
            yield f"annotation {key} is this Service's UID"
    for name in (*cluster.names, cluster.name if label is None else label):
        if meta.name == load_balancer_name(name, of.namespace, of.name, of.uid):
            yield f"its name is made from this Service, its UID and cluster name {name!r}"
    is_named = label in cluster.names and label not in ("", names.DEFAULT_CLUSTER_NAME)
    if is_named and not meta.annotation(names.LB_OWNER) and shows_address(service, one):
        yield f"the Service has its address, and label {names.LB_CLUSTER} is {label!r}, a name of this cluster's own"


def _unproven(one: LoadBalancer, cluster: ClusterIdentity) -> str:
    label = one.metadata.label(names.LB_CLUSTER)
    if label is None:
        return f"it has no label {names.LB_CLUSTER}"
    if one.metadata.annotation(names.LB_OWNER):
        return "it has an owner annotation, and the UID of this cluster (namespace kube-system) is not known"
    text = f"it was created for a Service of this name with another UID, by a cluster called {label!r}"
    doubt = ": that may be another cluster of this name"
    return f"{text}{doubt}" if goes_by(one, cluster) else f"{text}, and this one is {cluster.name!r}"


def _with_adoption(claim: Claim, lb: LoadBalancer | None, service: Service, cluster: ClusterIdentity) -> Claim:
    """Return the claim with the way in which a user makes the load balancer the Service's own, if that is possible.

    ``lb`` is the load balancer that the Service has: of two of them, the controller keeps the one in use.
    """
    one = claim.lb
    is_adoptable = claim.owner is Owner.UNPROVEN or marked_ours(one, cluster) is False
    if not is_adoptable or service_key(one) != service.metadata.key or not cluster.uid:
        return claim
    target = f"-n {one.metadata.namespace} {LOAD_BALANCERS.plural}.{LOAD_BALANCERS.group} {one.metadata.name}"
    condition = "it is this cluster's" if claim.owner is Owner.UNPROVEN else "that cluster no longer exists"
    first = f"stop the controller, delete load balancer {lb.metadata.name} in Harvester, and " if lb else ""
    # The label is last, because only with it the load balancer belongs to this cluster.
    command = (
        f"kubectl annotate --overwrite {target} {names.LB_OWNER}={cluster.uid} "
        f"{names.LB_SERVICE_UID}={service.metadata.uid} && "
        f"kubectl label --overwrite {target} {names.LB_CLUSTER}={shlex.quote(cluster.name)}"
    )
    return replace(claim, remedy=f"If {condition}, {first}adopt it in Harvester", command=command)


def match_load_balancer(
    load_balancers: Iterable[LoadBalancer], service: Service, cluster: ClusterIdentity
) -> LoadBalancerMatch:
    """Return which of the load balancers with the Service's labels or name serves it, and who owns the others."""
    expected = name_for(service, cluster)
    found = [claim_of(one, service, cluster) for one in load_balancers]
    found.sort(key=lambda claim: _preference(claim, service, expected))
    ours = [claim.lb for claim in found if claim.owner is Owner.OURS]
    lb = ours[0] if ours else None
    claims = tuple(_with_adoption(claim, lb, service, cluster) for claim in found)
    # Without the owner annotation of this cluster it is not certain enough for a deletion.
    duplicates = tuple(one for one in ours[1:] if marked_ours(one, cluster))
    others = (one for one in claims if one.owner is Owner.FOREIGN)
    # Clusters of other names may well have a Service of this name.
    foreign = tuple(one for one in others if goes_by(one.lb, cluster) or one.conflicts(service, expected))
    return LoadBalancerMatch(expected, lb, duplicates, foreign, claims)


def _preference(claim: Claim, service: Service, expected: str) -> tuple[bool, bool, bool, bool, str]:
    """Return the sort key: ours, not being deleted, with the address in use, with the current name, then by name."""
    one, name = claim.lb, claim.lb.metadata.name
    in_use = bool(service.addresses) and service.addresses[0] in (one.allocated_ip, one.address)
    return (claim.owner is not Owner.OURS, one.metadata.deleting, not in_use, name != expected, name)


def foreign_note(claim: Claim) -> EventMessage:
    """Return the Warning about a load balancer of another cluster."""
    cause = (
        f"Load balancer {claim.lb.metadata.name} in namespace {claim.lb.metadata.namespace} of Harvester has the name, "
        f"the labels or the address of this Service, but another owner, and is not changed: {claim.because}"
    )
    return EventMessage("Warning", names.Reason.OWNERSHIP_CONFLICT, cause, claim.remedy, claim.command)


def service_key(load_balancer: LoadBalancer) -> str:
    """Return the ``namespace/name`` of the Service that the labels name, or without labels its UID.

    The Go provider before 0.2 wrote no labels but an annotation with the UID.
    """
    meta = load_balancer.metadata
    namespace, name = meta.label(names.LB_SERVICE_NAMESPACE), meta.label(names.LB_SERVICE_NAME)
    return f"{namespace}/{name}" if namespace and name else meta.annotation(names.LB_SERVICE_UUID) or ""
