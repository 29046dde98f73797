"""Whether this is the Harvester and the namespace of the cluster, before a load balancer is created there.

In another one, every Service would get another address. Two independent signs must be missing to conclude that: a load
balancer of this cluster, although Services have addresses, and the VM of a Node. One alone is missing in normal
operation: all load balancers were deleted, or all VMs were replaced.
"""

from collections.abc import Collection
from enum import StrEnum, auto

from harvester_ccm.kube.errors import Forbidden
from harvester_ccm.model.core import parse_provider_id
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.plan.service.ownership.owner import Mark, has_cluster_name, mark_of, service_key
from harvester_ccm.plan.service.scope import is_in_scope, was_secondary, was_served
from harvester_ccm.plan.service.store import ServiceStore


class HarvesterCheck(StrEnum):
    """Whether a load balancer can be created in this Harvester and namespace."""

    OURS = auto()
    """It is the Harvester of this cluster, or there is no sign of the contrary."""
    MISMATCH = auto()
    """It has no load balancer of this cluster, although Services have addresses, and no VM of a Node."""
    UNKNOWN = auto()
    """The VMs are not listed yet."""


def check_harvester(
    store: ServiceStore, cluster: ClusterIdentity, *, besides: Collection[LoadBalancer] = ()
) -> HarvesterCheck:
    """Return whether load balancers can be created in this Harvester and namespace.

    ``besides`` are load balancers that do not count: a replacement deletes them before it creates another one.
    """
    if cluster.new_harvester or not store.load_balancers.synced:
        return HarvesterCheck.OURS
    if _has_our_load_balancer(store, cluster, besides) or _has_our_vm(store):
        return HarvesterCheck.OURS
    if not _has_address_to_lose(store, cluster):
        return HarvesterCheck.OURS
    return HarvesterCheck.MISMATCH if store.vms.synced else HarvesterCheck.UNKNOWN


def _has_our_load_balancer(store: ServiceStore, cluster: ClusterIdentity, besides: Collection[LoadBalancer]) -> bool:
    """Return whether a load balancer shows that it belongs to this cluster."""
    excluded = {load_balancer.metadata.uid for load_balancer in besides}
    for load_balancer in store.load_balancers.all():
        if load_balancer.metadata.uid in excluded:
            continue
        mark = mark_of(load_balancer, cluster)
        if mark is Mark.OURS:
            return True
        # A load balancer of the Go provider has no owner annotation: it counts with the names of cluster and Service.
        is_named = mark is Mark.NONE and has_cluster_name(load_balancer, cluster)
        if is_named and store.services.get(service_key(load_balancer)) is not None:
            return True
    return False


def _has_our_vm(store: ServiceStore) -> bool:
    """Return whether Harvester has a VM of a Node, or it is unknown: no Node names one, or VMs cannot be read.

    A VM that cannot be decoded exists.
    """
    vms = store.vms
    uids = {uid for node in store.nodes.all() if (uid := parse_provider_id(node.spec.provider_id))}
    is_forbidden = not vms.synced and isinstance(vms.problem, Forbidden)
    if not uids or is_forbidden:
        return True
    present = {vm.metadata.uid for vm in vms.all()}
    undecoded = {unread.uid for unread in vms.unread.values()}
    return not uids.isdisjoint(present | undecoded)


def _has_address_to_lose(store: ServiceStore, cluster: ClusterIdentity) -> bool:
    """Return whether a Service has an address from a load balancer of its own."""
    for service in store.services.all():
        if was_served(service) and not was_secondary(service) and is_in_scope(service, cluster):
            return True
    return False
