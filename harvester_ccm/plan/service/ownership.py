"""Whose load balancer is it: the one rule set for adopting, refusing and sweeping.

A load balancer carries labels (cluster, Service namespace, Service name) and, since this program writes them, the UID
of the cluster and of the Service. Labels alone may be those of another cluster of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import (
    DHCP_ADDRESS,
    LB_CLUSTER,
    LB_OWNER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    LB_SERVICE_UID,
    LB_SERVICE_UUID,
    SERVICE_FINALIZER,
    Reason,
)
from harvester_ccm.plan.service.load_balancer_name import load_balancer_name
from harvester_ccm.plan.service.selection import wants_load_balancer

ORPHAN_GRACE: Final = 30.0
"""Seconds for which a load balancer must look orphaned before it is deleted."""


def given_addresses(load_balancers: Iterable[LoadBalancer]) -> frozenset[str]:
    """Return the addresses that Harvester has given to these load balancers, and its word for one from DHCP."""
    return frozenset(address for one in load_balancers for address in (one.allocated_ip, one.address) if address)


def address_in_use(load_balancer: LoadBalancer, services: Iterable[Service]) -> bool:
    """Return whether one of the Services shows the address of the load balancer."""
    addresses = given_addresses((load_balancer,)) - {DHCP_ADDRESS}
    return any(not addresses.isdisjoint(service.addresses) for service in services)


class Owner(Enum):
    """Who owns a load balancer, seen from one Service."""

    OURS = "ours"
    FOREIGN = "foreign"
    UNKNOWN = "unknown"
    """Nothing proves it either way; it is not touched."""


@dataclass(frozen=True)
class Claim:
    """The load balancer of a Service, and the others that carry its labels."""

    chosen: LoadBalancer | None
    duplicates: tuple[LoadBalancer, ...] = ()
    """Further ones that are certainly ours: left behind by an interrupted rename or a restored Service."""
    foreign: tuple[LoadBalancer, ...] = ()
    """Marked by another cluster, although they carry our cluster name."""


def name_for(service: Service, cluster: ClusterIdentity) -> str:
    """Return the name that a new load balancer of the Service gets."""
    meta = service.metadata
    return load_balancer_name(cluster.name, meta.namespace, meta.name, meta.uid)


def owner_of(load_balancer: LoadBalancer, service: Service, cluster: ClusterIdentity) -> Owner:
    """Return whether the load balancer is the Service's.

    A mark decides. Without one (made by the Go provider) the name proves it, because its checksum covers the UID of
    the Service; after that only the label of a cluster name that is somebody's own.
    """
    meta = load_balancer.metadata
    mark = meta.annotation(LB_OWNER)
    if mark and cluster.uid:
        return Owner.OURS if mark == cluster.uid else Owner.FOREIGN
    if service.metadata.uid in (meta.annotation(LB_SERVICE_UID), meta.annotation(LB_SERVICE_UUID)):
        return Owner.OURS
    label = meta.label(LB_CLUSTER)
    made_for = {label if label is not None else cluster.name, cluster.name}
    target = service.metadata
    if any(meta.name == load_balancer_name(n, target.namespace, target.name, target.uid) for n in made_for):
        return Owner.OURS
    return Owner.OURS if not mark and cluster.named and label == cluster.name else Owner.UNKNOWN


def claim(load_balancers: Iterable[LoadBalancer], service: Service, cluster: ClusterIdentity) -> Claim:
    """Return which of the load balancers with the Service's labels serves it."""
    ours, foreign = [], []
    for one in load_balancers:
        match owner_of(one, service, cluster):
            case Owner.OURS:
                ours.append(one)
            case Owner.FOREIGN:
                # Clusters of other names may well have a Service of this name.
                if one.metadata.label(LB_CLUSTER) == cluster.name or one.metadata.name == name_for(service, cluster):
                    foreign.append(one)
            case Owner.UNKNOWN:
                pass
    if not ours:
        return Claim(None, foreign=tuple(foreign))
    ours.sort(key=lambda one: _preference(one, service, cluster))
    rest = [one for one in ours[1:] if cluster.uid and one.metadata.annotation(LB_OWNER) == cluster.uid]
    return Claim(ours[0], tuple(rest), tuple(foreign))


def _preference(one: LoadBalancer, service: Service, cluster: ClusterIdentity) -> tuple[bool, bool, bool, str]:
    """Return the sort key: alive, holding the address in use, having the current name, then oldest name."""
    in_use = bool(service.addresses) and service.addresses[0] in (one.allocated_ip, one.address)
    return (
        one.metadata.deleting,
        not in_use,
        one.metadata.name != name_for(service, cluster),
        one.metadata.name,
    )


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


def service_key(load_balancer: LoadBalancer) -> str:
    """Return the ``namespace/name`` of the Service that the labels name."""
    meta = load_balancer.metadata
    return f"{meta.label(LB_SERVICE_NAMESPACE) or ''}/{meta.label(LB_SERVICE_NAME) or ''}"


def service_uuid(load_balancer: LoadBalancer) -> str:
    """Return the UID of the Service that a provider before 0.2 made the load balancer for, or nothing.

    Those did not write the labels by which ``service_key`` tells.
    """
    return load_balancer.metadata.annotation(LB_SERVICE_UUID) or ""


class Orphan(Enum):
    """What a load balancer is to the sweep."""

    NO = "no"
    CERTAIN = "certain"
    """Marked as ours, and its Service does not exist or is not served by it."""
    LIKELY = "likely"
    """Carries our cluster name and no mark; reported, never deleted."""


def orphan_state(load_balancer: LoadBalancer, service: Service | None, cluster: ClusterIdentity) -> Orphan:
    """Return whether the load balancer is left over; ``service`` is the one it was made for, if there is one.

    A Service that still holds our finalizer is never orphaned from here: its own clean-up does it in order.
    """
    meta = load_balancer.metadata
    labelled = bool(meta.label(LB_SERVICE_NAME) and meta.label(LB_SERVICE_NAMESPACE))
    if meta.deleting or not (labelled or service_uuid(load_balancer)):
        return Orphan.NO
    if service is not None and (
        service.metadata.has_finalizer(SERVICE_FINALIZER) or wants_load_balancer(service, cluster, owned=True)
    ):
        return Orphan.NO
    mark = meta.annotation(LB_OWNER)
    if mark and cluster.uid and labelled:
        return Orphan.CERTAIN if mark == cluster.uid else Orphan.NO
    named = meta.label(LB_CLUSTER) == cluster.name and cluster.named
    return Orphan.LIKELY if named and not mark else Orphan.NO
