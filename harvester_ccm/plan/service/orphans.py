"""Whether a load balancer without a Service is deleted: only when nothing is left to doubt."""

from __future__ import annotations

from dataclasses import dataclass

from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.plan.service.cleanup import safe_to_delete
from harvester_ccm.plan.service.ownership import ORPHAN_GRACE, Orphan, orphan_state

LOOK_AGAIN = 30.0
"""Seconds until a load balancer that cannot be deleted yet is looked at again."""


@dataclass(frozen=True)
class Suspicion:
    """What is known besides the objects themselves."""

    age: float
    """Seconds for which the load balancer has looked orphaned."""
    caches_current: bool
    """Whether both clusters can be read at the moment."""
    address_in_use: bool
    """Whether some Service shows its address in its status."""


@dataclass(frozen=True)
class OrphanPlan:
    """What to do with a load balancer."""

    suspicious: bool = False
    delete: bool = False
    detail: str = ""
    """Why it is suspicious, or why it is not deleted yet, for the log; empty while it is too early to say anything."""
    look_again: float | None = None


def plan_orphan(
    load_balancer: LoadBalancer,
    service: Service | None,
    cluster: ClusterIdentity,
    suspicion: Suspicion,
) -> OrphanPlan:
    """Return what to do with a load balancer; ``service`` is the one that its labels name, if it exists."""
    match orphan_state(load_balancer, service, cluster):
        case Orphan.NO:
            return OrphanPlan()
        case Orphan.LIKELY:
            detail = (
                "it carries this cluster's name but no owner mark, so it may be another cluster's; delete it by hand "
                "if it is not"
            )
            return OrphanPlan(suspicious=True, detail=detail)
        case Orphan.CERTAIN:
            if suspicion.age < ORPHAN_GRACE:
                return OrphanPlan(suspicious=True, look_again=ORPHAN_GRACE - suspicion.age)
            doubt = _doubt(load_balancer, suspicion)
            if doubt:
                return OrphanPlan(suspicious=True, detail=doubt, look_again=LOOK_AGAIN)
            return OrphanPlan(
                suspicious=True,
                delete=True,
                detail="made by this cluster for a Service that is gone or not served by it",
            )


def _doubt(load_balancer: LoadBalancer, suspicion: Suspicion) -> str:
    if not suspicion.caches_current:
        return "not deleted while one of the clusters cannot be read"
    if suspicion.address_in_use:
        return "not deleted while a Service shows its address"
    if not safe_to_delete(load_balancer):
        return "not deleted until Harvester has booked or refused its address"
    return ""
