"""Orphans: load balancers of this cluster whose Service does not exist any more.

A Service can be deleted before the controller has put its finalizer on it, or while the request that creates its load
balancer has not been answered. No finalizer then requests the deletion of the load balancer.
"""

from typing import Final

from harvester_ccm import names
from harvester_ccm.kube.store import Store
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.plan.service.allocation.deletion import deletion_write
from harvester_ccm.plan.service.ownership.owner import (
    Mark,
    allocated_addresses,
    has_cluster_name,
    mark_of,
    service_key,
    shows_address,
)
from harvester_ccm.plan.service.scope import scope_of
from harvester_ccm.plan.service.store import BY_ADDRESS

ORPHAN_GRACE_SECONDS: Final = 30.0
"""Time for which the caches must show an orphan before it is deleted."""
ORPHANED: Final = "created by this cluster for a Service that no longer exists, or that it does not serve"
_UNMARKED: Final = (
    "it carries this cluster's name but no owner mark, so it may be another cluster's; delete it by hand if it is not"
)


def service_of(load_balancer: LoadBalancer, services: Store[Service]) -> Service | None:
    """Return the Service that the labels name, or without labels the one whose UID an earlier provider wrote."""
    key = service_key(load_balancer)
    if "/" in key:
        return services.get(key)
    return next((service for service in services.all() if service.metadata.uid == key), None)


def is_orphan(load_balancer: LoadBalancer, service: Service | None, cluster: ClusterIdentity) -> bool:
    """Return whether a load balancer is an orphan; ``service`` is the Service that its labels name, if it exists.

    Without an owner annotation, only the cluster name in the label shows that.
    """
    meta = load_balancer.metadata
    key = service_key(load_balancer)
    if meta.deleting or not key or not has_cluster_name(load_balancer, cluster):
        return False
    if service is not None and _is_used(load_balancer, service, cluster):
        return False
    if meta.annotation(names.LB_OWNER):
        return "/" in key and mark_of(load_balancer, cluster) is Mark.OURS
    return meta.label(names.LB_CLUSTER) not in ("", names.DEFAULT_CLUSTER_NAME)


def _is_used(load_balancer: LoadBalancer, service: Service, cluster: ClusterIdentity) -> bool:
    """Return whether an existing Service uses the load balancer, adopts it, or deletes it in its own removal."""
    if shows_address(service, load_balancer):
        return True
    return scope_of(service, cluster, has_load_balancer=True).is_managed


def deletion_obstacle(
    load_balancer: LoadBalancer, services: Store[Service], load_balancers: Store[LoadBalancer]
) -> str:
    """Return why an orphan must not be deleted now; empty if it can be. ``services`` has the index BY_ADDRESS."""
    if not load_balancer.metadata.annotation(names.LB_OWNER):
        return _UNMARKED
    if any(not cache.synced or cache.problem is not None for cache in (services, load_balancers)):
        return "not deleted while one of the clusters cannot be read"
    addresses = allocated_addresses((load_balancer,)) - {names.DHCP_ADDRESS}
    if any(services.by_index(BY_ADDRESS, address) for address in addresses):
        return "not deleted while a Service shows its address"
    if deletion_write(load_balancer) is None:
        return "not deleted until Harvester has allocated or refused its address"
    return ""
