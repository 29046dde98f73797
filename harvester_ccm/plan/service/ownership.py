"""Whose load balancer is it: the one rule set for its name, and for adopting, refusing and sweeping.

A load balancer carries labels (cluster, Service namespace, Service name) and, since this program writes them, the UID
of the cluster and of the Service. Labels alone may be those of another cluster of the same name, and
marks alone those of a copy of this cluster: ours is what has both.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from enum import Enum, StrEnum
from typing import Final

from msgspec import Struct

from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import (
    DEFAULT_CLUSTER_NAME,
    DHCP_ADDRESS,
    LB_CLUSTER,
    LB_OWNER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    LB_SERVICE_UID,
    LB_SERVICE_UUID,
    Reason,
)

BASE_LENGTH: Final = 55
"""Bytes of the readable part; with the digits of the checksum a name has at most 63."""
CHECKSUM_LENGTH: Final = 8

_DNS_1035_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def allocated_addresses(load_balancers: Iterable[LoadBalancer]) -> frozenset[str]:
    """Return the addresses that Harvester has allocated to these load balancers, and its word for one from DHCP."""
    return frozenset(address for one in load_balancers for address in (one.allocated_ip, one.address) if address)


class Owner(Enum):
    """Who owns a load balancer, seen from one Service."""

    OURS = "ours"
    FOREIGN = "foreign"
    OTHER_NAME = "other name"
    """Made by this very cluster under another name, or by one that is a copy of it; it is not touched."""
    UNKNOWN = "unknown"
    """Nothing proves it either way; it is not touched."""


class Ownership(Struct, frozen=True):
    """Who owns a load balancer, and the evidence."""

    owner: Owner
    because: str


class Verdict(StrEnum):
    """What a load balancer is to a Service."""

    CLAIMED = "claimed"
    """It serves the Service."""
    DUPLICATE = "duplicate"
    """Certainly left over; deleted."""
    SPARE = "spare"
    """Ours too, but not certain enough to be deleted; left alone."""
    FOREIGN = "foreign"
    """Another cluster's."""
    OTHER_NAME = "other name"
    """Of another name of this cluster: a copy of it, or this one before it was renamed; left alone."""
    UNKNOWN = "unknown"
    """Nothing proves whose it is; left alone."""


class LoadBalancerCandidate(Struct, frozen=True):
    """A load balancer that carries the Service's labels or name."""

    load_balancer: LoadBalancer
    verdict: Verdict
    because: str

    @property
    def name(self) -> str:
        """Name of the load balancer."""
        return self.load_balancer.metadata.name


class LoadBalancerMatch(Struct, frozen=True):
    """The load balancer of a Service, and the others that carry its labels or name."""

    expected_name: str
    """The name that a new one gets."""
    lb: LoadBalancer | None = None
    """The one that serves the Service."""
    duplicates: tuple[LoadBalancer, ...] = ()
    """Further ones that are certainly ours: left behind by an interrupted rename or a restored Service."""
    foreign: tuple[LoadBalancer, ...] = ()
    """Marked by another cluster, although they carry our cluster name or the expected name."""
    other_name: tuple[LoadBalancer, ...] = ()
    """This cluster's by mark or UID, and of another cluster name."""
    candidates: tuple[LoadBalancerCandidate, ...] = ()
    """All that were judged, the one that serves the Service first."""

    @property
    def judged(self) -> dict[str, LoadBalancer]:
        """All of them, by name."""
        return {one.name: one.load_balancer for one in self.candidates}

    @property
    def own(self) -> tuple[LoadBalancer, ...]:
        """All that go when the Service goes."""
        return self.duplicates if self.lb is None else (self.lb, *self.duplicates)


def load_balancer_name(cluster: str, namespace: str, name: str, uid: str) -> str:
    """Return the name of a Service's load balancer.

    It must never change: Harvester remembers addresses by the name of the load balancer, so another name is another
    address.

    The checksum covers the uncut readable part and the Service's UID. A cluster name that is no DNS-1035 label gets an
    ``a`` in front; nothing else is repaired.
    """
    if len(cluster) > 63 or not _DNS_1035_LABEL.fullmatch(cluster):
        cluster = f"a{cluster}"
    base = f"{cluster}-{namespace}-{name}-".encode()
    checksum = zlib.crc32(base + uid.encode())
    return base[:BASE_LENGTH].decode("utf-8", "ignore") + f"{checksum:0{CHECKSUM_LENGTH}x}"


def name_for(service: Service, cluster: ClusterIdentity) -> str:
    """Return the name that a new load balancer of the Service gets."""
    meta = service.metadata
    return load_balancer_name(cluster.name, meta.namespace, meta.name, meta.uid)


def goes_by(load_balancer: LoadBalancer, cluster: ClusterIdentity) -> bool:
    """Return whether the load balancer carries our cluster name, or one that this cluster had before."""
    return load_balancer.metadata.label(LB_CLUSTER) in cluster.names


def marked_ours(load_balancer: LoadBalancer, cluster: ClusterIdentity) -> bool | None:
    """Return whether the owner mark is this cluster's; None without a mark, and while our own UID is not known."""
    mark = load_balancer.metadata.annotation(LB_OWNER)
    return mark == cluster.uid if mark and cluster.uid else None


def seems_ours(load_balancer: LoadBalancer, cluster: ClusterIdentity) -> bool:
    """Return whether a load balancer carries our cluster name and not the mark of another cluster."""
    return goes_by(load_balancer, cluster) and marked_ours(load_balancer, cluster) is not False


def shows_address(service: Service, load_balancer: LoadBalancer) -> bool:
    """Return whether the Service shows the address of the load balancer."""
    return not (allocated_addresses((load_balancer,)) - {DHCP_ADDRESS}).isdisjoint(service.addresses)


def owner_of(load_balancer: LoadBalancer, service: Service, cluster: ClusterIdentity) -> Ownership:
    """Return whether the load balancer is the Service's, and why.

    It has to carry our name: a copy of this cluster, or the one that it is a copy of, has the same mark and Services of
    the same UIDs. Then a mark decides. Without one (made by the Go provider) the name proves it, because its checksum
    covers the UID of the Service; after that only that the Service shows its address.
    """
    meta, target = load_balancer.metadata, service.metadata
    mark, label = meta.annotation(LB_OWNER), meta.label(LB_CLUSTER)
    marked = marked_ours(load_balancer, cluster)
    if marked is False:
        return Ownership(
            Owner.FOREIGN,
            f"annotation {LB_OWNER} is {mark}, and this cluster is {cluster.uid}",
        )
    made_under = _made_under(load_balancer, service, (*cluster.names, *({label} if label is not None else ())))
    uid = next((key for key in (LB_SERVICE_UID, LB_SERVICE_UUID) if meta.annotation(key) == target.uid), None)
    if label is not None and label not in cluster.names:
        if uid is None and made_under is None and not marked:
            return Ownership(Owner.UNKNOWN, _unproven(load_balancer, service, cluster))
        return Ownership(Owner.OTHER_NAME, f"{_other_name(label, cluster)}: {_remedies(label, service)}")
    former = f"its name is made from this Service, its UID and {made_under!r}, a former name of this cluster"
    shown = not mark and label not in (None, "", DEFAULT_CLUSTER_NAME) and shows_address(service, load_balancer)
    proofs = (
        (label is not None and marked, "its owner mark is this cluster's"),
        (label is not None and uid is not None, f"annotation {uid} is this Service's UID"),
        (made_under == cluster.name, "its name is made from this cluster, this Service and its UID"),
        (made_under is not None, former),
        (shown, f"the Service shows its address, and label {LB_CLUSTER} is {label!r}, a name of this cluster's own"),
    )
    proof = next((text for holds, text in proofs if holds), None)
    if proof is None:
        return Ownership(Owner.UNKNOWN, _unproven(load_balancer, service, cluster))
    return Ownership(Owner.OURS, proof)


def _made_under(load_balancer: LoadBalancer, service: Service, names: Iterable[str]) -> str | None:
    """Return the cluster name from which, with the Service and its UID, the name of the load balancer is made."""
    meta = service.metadata
    made = ((name, load_balancer_name(name, meta.namespace, meta.name, meta.uid)) for name in names)
    return next((name for name, full in made if full == load_balancer.metadata.name), None)


def _other_name(label: str, cluster: ClusterIdentity) -> str:
    return f"it belongs to this cluster under the name {label!r}, and this cluster is called {cluster.name!r}"


def _remedies(label: str, service: Service) -> str:
    """Return what to do about a load balancer of another name of this cluster, which it has in its label."""
    meta = service.metadata
    return (
        f"if the cluster was renamed, start the program with --former-cluster-name={label}. "
        "If it is a copy of a cluster that goes on (a clone, a restored snapshot), give the Service an address of its "
        "own: kubectl patch service "
        f"-n {meta.namespace} {meta.name} --subresource=status --type=merge "
        """-p '{"status":{"loadBalancer":null}}'"""
    )


def _unproven(one: LoadBalancer, service: Service, cluster: ClusterIdentity) -> str:
    """Return why nothing proves whose the load balancer is."""
    meta, label = one.metadata, one.metadata.label(LB_CLUSTER)
    if service_key(one) != service.metadata.key:
        return f"its labels say that it serves {service_key(one)}"
    if label is None:
        return f"it has no label {LB_CLUSTER}"
    if meta.annotation(LB_OWNER):
        return (
            "it has the mark of a cluster, and whether that is this one is not known, because the UID of namespace "
            "kube-system is not"
        )
    made = f"it was made for a Service of this name with another UID, by a cluster called {label!r}"
    if label in (DEFAULT_CLUSTER_NAME, ""):
        return f"{made}, which is no cluster's own name, so that may be another cluster"
    if goes_by(one, cluster):
        return f"{made}, and the Service does not show its address, so that may be another cluster of this name"
    return f"{made}, and this one is {cluster.name!r}"


def _adoption(
    one: LoadBalancer, owner: Owner, lb: LoadBalancer | None, service: Service, cluster: ClusterIdentity
) -> str:
    """Return how a user makes a load balancer the Service's own, with the command last so that it can be pasted.

    ``lb`` is the load balancer that the Service has. Empty if the load balancer cannot become the Service's.
    """
    if owner not in (Owner.FOREIGN, Owner.UNKNOWN) or service_key(one) != service.metadata.key or not cluster.uid:
        return ""
    target = f"-n {one.metadata.namespace} {LOAD_BALANCERS.plural}.{LOAD_BALANCERS.group} {one.metadata.name}"
    condition = "it is this cluster's" if owner is Owner.UNKNOWN else "that cluster no longer exists"
    # Of two load balancers of one Service the controller keeps the one in use.
    first = f"stop the controller, delete load balancer {lb.metadata.name} in Harvester, " if lb else ""
    return (
        f". If {condition}, {first}run in Harvester: kubectl annotate --overwrite {target} "
        f"{LB_OWNER}={cluster.uid} {LB_SERVICE_UID}={service.metadata.uid} && "
        f"kubectl label --overwrite {target} {LB_CLUSTER}={cluster.name}"
    )


def match_load_balancer(
    load_balancers: Iterable[LoadBalancer], service: Service, cluster: ClusterIdentity
) -> LoadBalancerMatch:
    """Return which of the load balancers with the Service's labels or name serves it, and what the others are."""
    expected = name_for(service, cluster)
    judged = [(one, owner_of(one, service, cluster)) for one in load_balancers]
    ours = [one for one, found in judged if found.owner is Owner.OURS]
    ours.sort(key=lambda one: _preference(one, service, expected))
    lb = ours[0] if ours else None
    duplicates = tuple(one for one in ours[1:] if marked_ours(one, cluster))
    candidates = [
        _candidate(one, found, lb, duplicates, _adoption(one, found.owner, lb, service, cluster))
        for one, found in judged
    ]
    # Clusters of other names may well have a Service of this name.
    foreign = tuple(
        one
        for one, found in judged
        if found.owner is Owner.FOREIGN and (goes_by(one, cluster) or one.metadata.name == expected)
    )
    other_name = tuple(one for one, found in judged if found.owner is Owner.OTHER_NAME)
    candidates.sort(key=lambda one: one.verdict is not Verdict.CLAIMED)
    return LoadBalancerMatch(expected, lb, duplicates, foreign, other_name, tuple(candidates))


def _candidate(
    one: LoadBalancer, found: Ownership, lb: LoadBalancer | None, duplicates: tuple[LoadBalancer, ...], adoption: str
) -> LoadBalancerCandidate:
    if one is lb:
        return LoadBalancerCandidate(one, Verdict.CLAIMED, found.because)
    if found.owner is not Owner.OURS:
        return LoadBalancerCandidate(one, Verdict(found.owner.value), f"{found.because}{adoption}")
    because = f"{found.because}; another one serves the Service"
    if any(one is duplicate for duplicate in duplicates):
        return LoadBalancerCandidate(one, Verdict.DUPLICATE, because)
    return LoadBalancerCandidate(one, Verdict.SPARE, f"{because}, and without this cluster's mark it is not deleted")


def _preference(one: LoadBalancer, service: Service, expected: str) -> tuple[bool, bool, bool, str]:
    """Return the sort key: alive, holding the address in use, having the current name, then oldest name."""
    in_use = bool(service.addresses) and service.addresses[0] in (one.allocated_ip, one.address)
    return (one.metadata.deleting, not in_use, one.metadata.name != expected, one.metadata.name)


def adoption_note(load_balancer: LoadBalancer, service: Service, cluster: ClusterIdentity) -> EventMessage | None:
    """Return what to tell when a load balancer made under other circumstances starts to serve the Service."""
    meta = load_balancer.metadata
    before = meta.label(LB_CLUSTER)
    if before is not None and before != cluster.name:
        text = f"Load balancer {meta.name}, made for cluster name {before!r}, goes on serving under {cluster.name!r}"
        return EventMessage("Normal", Reason.ADOPTED, text)
    made_for = meta.annotation(LB_SERVICE_UID) or meta.annotation(LB_SERVICE_UUID)
    if made_for is None and meta.name == name_for(service, cluster):
        return None
    if made_for != service.metadata.uid:
        text = f"Load balancer {meta.name}, made for an earlier Service of this name, goes on serving with its address"
        return EventMessage("Normal", Reason.ADOPTED, text)
    return None


def foreign_note(load_balancer: LoadBalancer, cluster: ClusterIdentity) -> EventMessage:
    """Return what to tell about another cluster's load balancer that carries the labels of our Service."""
    name, label = load_balancer.metadata.name, load_balancer.metadata.label(LB_CLUSTER)
    text = (
        f"Load balancer {name} in namespace {cluster.namespace} of Harvester carries the name of this Service but "
        f"belongs to another cluster, also called {label!r}. It is left alone. Give each cluster its own "
        "--cluster-name; if that cluster does not exist any more, delete the load balancer in Harvester"
    )
    return EventMessage("Warning", Reason.FOREIGN_LOAD_BALANCER, text)


def other_name_note(label: str, name: str, service: Service, cluster: ClusterIdentity) -> EventMessage:
    """Return what to tell about a load balancer in use that is this cluster's under another name, its ``label``."""
    relabelled = ", which somebody has given it" if name == name_for(service, cluster) else ""
    text = (
        f"Load balancer {name} in namespace {cluster.namespace} of Harvester is left alone, and so is this Service: "
        f"{_other_name(label, cluster)}{relabelled}. "
    )
    remedies = _remedies(label, service)
    text += f"{remedies[0].upper()}{remedies[1:]}"
    return EventMessage("Warning", Reason.FOREIGN_LOAD_BALANCER, text)


def service_key(load_balancer: LoadBalancer) -> str:
    """Return the ``namespace/name`` of the Service that the labels name."""
    meta = load_balancer.metadata
    return f"{meta.label(LB_SERVICE_NAMESPACE) or ''}/{meta.label(LB_SERVICE_NAME) or ''}"


def service_uuid(load_balancer: LoadBalancer) -> str:
    """Return the UID of the Service that a provider before 0.2 made the load balancer for, or nothing.

    Those did not write the labels by which ``service_key`` tells.
    """
    return load_balancer.metadata.annotation(LB_SERVICE_UUID) or ""


def made_for(load_balancer: LoadBalancer) -> str:
    """Return for people whose a load balancer is: the Service that the labels name, or the UID without labels."""
    key = service_key(load_balancer)
    return key if key != "/" else service_uuid(load_balancer)
