"""What becomes of a load balancer whose Service was seen to go, although our finalizer should have held it.

An API server that has begun to delete an object without finalizers does not see one that is added meanwhile: the
Service goes, and its load balancer is left. What is not certain here is left to the sweep, which has time.
"""

from __future__ import annotations

from enum import Enum

from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import LB_OWNER, LB_SERVICE_UID
from harvester_ccm.plan.service.cleanup import safe_to_delete
from harvester_ccm.plan.service.ownership import match_load_balancer
from harvester_ccm.plan.service.selection import scope_of


class Departure(Enum):
    """What to do with the load balancer."""

    KEEP = "keep"
    """It is not ours, or a Service has it."""
    WAIT = "wait"
    """Deleting it now would lose its address, or take it from a Service that shares it."""
    DELETE = "delete"


def plan_departure(
    load_balancer: LoadBalancer,
    present: Service | None,
    cluster: ClusterIdentity,
    *,
    address_in_use: bool,
) -> Departure:
    """Return what to do with the load balancer of a Service that was seen to go.

    ``present`` is the Service that has its name now, ``address_in_use`` whether any Service shows its address.
    """
    meta = load_balancer.metadata
    if meta.deleting or not cluster.uid or meta.annotation(LB_OWNER) != cluster.uid:
        return Departure.KEEP
    if present is not None and _has(present, load_balancer, cluster):
        return Departure.KEEP
    if address_in_use or not safe_to_delete(load_balancer):
        return Departure.WAIT
    return Departure.DELETE


def _has(service: Service, load_balancer: LoadBalancer, cluster: ClusterIdentity) -> bool:
    """Return whether the load balancer is a Service's own, or is taken over by a new one that we serve."""
    if service.metadata.uid == load_balancer.metadata.annotation(LB_SERVICE_UID):
        return True
    owned = match_load_balancer((load_balancer,), service, cluster).lb is not None
    return scope_of(service, cluster, owned=owned).ours
