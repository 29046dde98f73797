"""Why a load balancer is, or is not, the one of a Service: the verdict of ``plan.ownership`` with its evidence.

The verdict is always the plan's; the evidence names the facts that the plan's rules look at, in their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import LB_CLUSTER, LB_OWNER, LB_SERVICE_UID, LB_SERVICE_UUID
from harvester_ccm.plan.service.load_balancer_name import load_balancer_name
from harvester_ccm.plan.service.ownership import Owner, claim, name_for, owner_of, service_key


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
    UNKNOWN = "unknown"
    """Nothing proves whose it is; left alone."""


@dataclass(frozen=True)
class Candidate:
    """A load balancer that carries the Service's labels or name."""

    load_balancer: LoadBalancer
    verdict: Verdict
    because: str

    @property
    def name(self) -> str:
        """Name of the load balancer."""
        return self.load_balancer.metadata.name


def judge(load_balancers: Iterable[LoadBalancer], service: Service, cluster: ClusterIdentity) -> tuple[Candidate, ...]:
    """Return the verdict about each load balancer, the claimed one first."""
    present = tuple(load_balancers)
    found = claim(present, service, cluster)
    duplicates = {one.metadata.uid for one in found.duplicates}
    judged = []
    for one in present:
        owner = owner_of(one, service, cluster)
        evidence = _evidence(one, service, cluster, owner)
        if found.chosen is not None and one.metadata.uid == found.chosen.metadata.uid:
            judged.append(Candidate(one, Verdict.CLAIMED, evidence))
        elif one.metadata.uid in duplicates:
            judged.append(Candidate(one, Verdict.DUPLICATE, f"{evidence}; another one serves the Service"))
        elif owner is Owner.OURS:
            text = f"{evidence}; another one serves the Service, and without this cluster's mark it is not deleted"
            judged.append(Candidate(one, Verdict.SPARE, text))
        else:
            judged.append(Candidate(one, Verdict(owner.value), evidence))
    return tuple(sorted(judged, key=lambda one: one.verdict is not Verdict.CLAIMED))


def _evidence(one: LoadBalancer, service: Service, cluster: ClusterIdentity, owner: Owner) -> str:
    match owner:
        case Owner.OURS:
            return _proof(one, service, cluster)
        case Owner.FOREIGN:
            mark = one.metadata.annotation(LB_OWNER)
            return (
                f"annotation {LB_OWNER} is {mark}, and this cluster is {cluster.uid}; if that cluster no longer exists "
                "(this one was set up anew), adopt it with --force"
            )
        case Owner.UNKNOWN:
            return _doubt(one, service, cluster)


def _proof(one: LoadBalancer, service: Service, cluster: ClusterIdentity) -> str:
    meta, target = one.metadata, service.metadata
    if cluster.uid and meta.annotation(LB_OWNER) == cluster.uid:
        return f"annotation {LB_OWNER} is this cluster's"
    if meta.annotation(LB_SERVICE_UID) == target.uid:
        return f"annotation {LB_SERVICE_UID} is this Service's UID"
    if meta.annotation(LB_SERVICE_UUID) == target.uid:
        return f"annotation {LB_SERVICE_UUID} is this Service's UID"
    if meta.name == name_for(service, cluster):
        return "its name is made from this cluster, this Service and its UID"
    before = meta.label(LB_CLUSTER)
    if before is not None and meta.name == load_balancer_name(before, target.namespace, target.name, target.uid):
        return (
            f"its name is made from this Service, its UID and cluster name {before!r}: the cluster was renamed, and "
            "the load balancer keeps name and address"
        )
    return f"label {LB_CLUSTER} is {cluster.name!r}, a name of this cluster's own, and no other cluster has marked it"


def _doubt(one: LoadBalancer, service: Service, cluster: ClusterIdentity) -> str:
    meta = one.metadata
    made_for = meta.label(LB_CLUSTER)
    if service_key(one) != service.metadata.key:
        return f"its labels say that it serves {service_key(one)}"
    if meta.annotation(LB_OWNER):
        return (
            "it has the mark of a cluster, and whether that is this one is not known, because the UID of namespace "
            "kube-system is not"
        )
    command = f"harvester-ccm adopt {service.metadata.key} {meta.name}"
    if not cluster.named:
        return (
            f"it was made for a Service of this name with another UID, by a cluster called {made_for!r}; "
            f"{cluster.name!r} is no cluster's own name, so that may be another cluster. If it is this one: {command}"
        )
    return (
        f"it was made for a Service of this name with another UID, by a cluster called {made_for!r}, and this one is "
        f"{cluster.name!r}. If that is an earlier name of this cluster: {command}"
    )
