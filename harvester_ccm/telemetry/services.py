"""Metrics of Services, load balancers and Nodes, computed from the caches while this process is the leader.

Gauges by reason always have the reason ``queued``, and load balancers every state, so that no query is empty.
"""

import time
from collections import Counter

from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.core import Node, Service
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.model.outcome import WaitReason
from harvester_ccm.names import LB_CLUSTER
from harvester_ccm.plan.node.patch import uninitialized_taints
from harvester_ccm.plan.service.ownership import service_key
from harvester_ccm.plan.service.scope import wants_load_balancer
from harvester_ccm.telemetry.metrics import Labels, Telemetry


def measure_services(telemetry: Telemetry, services: Informer[Service], cluster: ClusterIdentity) -> None:
    """Show Services that wait, by reason, and measure how long each waits for its address."""
    metrics = telemetry.metrics
    pending_since: dict[str, float] = {}

    def changed(old: Service | None, new: Service | None) -> None:
        item, now = new or old, time.time()
        key = item.metadata.key if item is not None else ""
        if new is not None and not new.addresses and wants_load_balancer(new, cluster):
            # A Service that this process did not see before has waited since its creation.
            pending_since.setdefault(key, now if old is not None else min(now, new.metadata.created or now))
        elif (since := pending_since.pop(key, None)) is not None and new and new.addresses and telemetry.leading:
            metrics.pending_seconds.observe(now - since)

    def read() -> None:
        managed = [one.metadata.key for one in services.all() if wants_load_balancer(one, cluster)]
        # A Service with an address can wait, too.
        found = {key: telemetry.reason("service", key) for key in managed}
        reasons = {key: reason for key, reason in found.items() if reason}
        longest: dict[Labels, float] = {(WaitReason.QUEUED,): 0.0}
        for key, since in pending_since.items():
            labels = (reasons.setdefault(key, WaitReason.QUEUED),)
            longest[labels] = max(longest.get(labels, 0.0), time.time() - since)
        metrics.services.set(len(managed) if telemetry.leading else 0)
        telemetry.show(metrics.services_pending, _count(reasons))
        telemetry.show(metrics.pending_longest, longest)

    services.on_change(changed)
    telemetry.before_scrape(read)


def measure_load_balancers(
    telemetry: Telemetry,
    load_balancers: Informer[LoadBalancer],
    services: Informer[Service],
    cluster: ClusterIdentity,
) -> None:
    """Show the load balancers of this cluster by state."""

    def read() -> None:
        states: Counter[Labels] = Counter(
            {(state, "pool", "cluster"): 0 for state in ("ready", "pending", "unhealthy", "deleting", "orphan")}
        )
        for one in load_balancers.all():
            if one.metadata.label(LB_CLUSTER) == cluster.name:
                is_orphan = services.synced and services.get(service_key(one)) is None
                state = "orphan" if is_orphan else _state_of(one)
                states[state, one.spec.ipam or "pool", one.spec.workload_type or "vm"] += 1
        telemetry.show(telemetry.metrics.load_balancers, states)

    telemetry.before_scrape(read)


def _state_of(load_balancer: LoadBalancer) -> str:
    """Return the state of a load balancer whose Service exists."""
    if load_balancer.metadata.deleting:
        return "deleting"
    condition = load_balancer.ready
    if condition is not None and condition.status == "True":
        return "ready"
    return "unhealthy" if load_balancer.allocated_ip else "pending"


def measure_nodes(telemetry: Telemetry, nodes: Informer[Node]) -> None:
    """Show Nodes that are not initialized, by reason, and measure the age of each when it is initialized."""
    metrics = telemetry.metrics

    def changed(old: Node | None, new: Node | None) -> None:
        created = new.metadata.created if new is not None and not uninitialized_taints(new) else None
        if created is not None and old is not None and uninitialized_taints(old) and telemetry.leading:
            metrics.taint_seconds.observe(max(0.0, time.time() - created))

    def read() -> None:
        waiting = [one.metadata.name for one in nodes.all() if uninitialized_taints(one) and not one.metadata.deleting]
        reasons = {name: telemetry.reason("node", name) or WaitReason.QUEUED for name in waiting}
        telemetry.show(metrics.nodes_pending, _count(reasons))

    nodes.on_change(changed)
    telemetry.before_scrape(read)


def _count(reasons: dict[str, str]) -> Counter[Labels]:
    """Return the number of objects by reason."""
    found: Counter[Labels] = Counter({(WaitReason.QUEUED,): 0})
    found.update((reason,) for reason in reasons.values())
    return found
