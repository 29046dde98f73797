"""Metrics of Services, load balancers and Nodes, from the caches, while this process is the leader."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Final

from prometheus_client import Gauge

from harvester_ccm.config import ClusterIdentity
from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.core import Node, Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import WaitReason
from harvester_ccm.names import LB_CLUSTER
from harvester_ccm.plan.node.patch import uninitialized_taints
from harvester_ccm.plan.service.ownership import service_key
from harvester_ccm.plan.service.scope import wants_load_balancer
from harvester_ccm.telemetry.metrics import Telemetry, show

SERVICE_QUEUE: Final = "service"
"""Name of the queue of Services, as in the framework."""
DISPUTES: Final = (WaitReason.FOREIGN_LOAD_BALANCER, WaitReason.NEW_HARVESTER)
"""Reasons of Services whose load balancer belongs to another cluster or is not in this Harvester."""


def follow_services(
    telemetry: Telemetry,
    services: Informer[Service],
    load_balancers: Informer[LoadBalancer],
    cluster: ClusterIdentity,
) -> None:
    """Show load balancers by state, and Services without an address by reason."""
    metrics, queue = telemetry.metrics, telemetry.queue(SERVICE_QUEUE)
    pending_since: dict[str, float] = {}

    def changed(old: Service | None, new: Service | None) -> None:
        item, now = new or old, time.time()
        key = item.metadata.key if item is not None else ""
        if new is not None and not new.addresses and wants_load_balancer(new, cluster):
            # A Service that this process did not see before has waited since its creation.
            pending_since.setdefault(key, now if old is not None else min(now, new.metadata.created or now))
        elif (since := pending_since.pop(key, None)) is not None and new and new.addresses and telemetry.leading:
            metrics.pending_seconds.observe(now - since)

    def state(load_balancer: LoadBalancer) -> str:
        is_orphan = services.synced and services.get(service_key(load_balancer)) is None
        return "orphan" if is_orphan else state_of(load_balancer)

    def read() -> None:
        ours = [one for one in load_balancers.all() if one.metadata.label(LB_CLUSTER) == cluster.name]
        states: Counter[tuple[str, ...]] = Counter(
            (state(one), one.spec.ipam or "pool", one.spec.workload_type or "vm") for one in ours
        )
        pending: dict[str, list[float]] = {}
        for key, since in pending_since.items():
            pending.setdefault(queue.reason(key) or WaitReason.QUEUED, []).append(time.time() - since)
        reasons = Counter(queue.reason(one.metadata.key) for one in services.all())
        values: Mapping[Gauge, Mapping[tuple[str, ...], float]] = {
            metrics.load_balancers: states,
            metrics.services_pending: {(reason,): len(times) for reason, times in pending.items()},
            metrics.pending_longest: {(reason,): max(times) for reason, times in pending.items()},
            metrics.services_disputed: {(reason,): reasons[reason] for reason in DISPUTES},
        }
        for gauge, samples in values.items():
            show(gauge, samples if telemetry.leading else {})

    services.on_change(changed)
    telemetry.before_scrape(read)


def state_of(load_balancer: LoadBalancer) -> str:
    """Return the state of a load balancer in one word: ready, pending, unhealthy or deleting."""
    if load_balancer.metadata.deleting:
        return "deleting"
    condition = load_balancer.ready
    if condition is not None and condition.status == "True":
        return "ready"
    return "unhealthy" if load_balancer.allocated_ip else "pending"


def follow_new_nodes(telemetry: Telemetry, nodes: Informer[Node]) -> None:
    """Measure the age of Nodes when they are first seen and when they are initialized."""

    def changed(old: Node | None, new: Node | None) -> None:
        created = new.metadata.created if new is not None else None
        if new is None or created is None or not telemetry.leading:
            return
        age, waits = max(0.0, time.time() - created), bool(uninitialized_taints(new))
        if old is None and waits:
            telemetry.metrics.node_init_seconds.observe(age)
        elif old is not None and not waits and uninitialized_taints(old):
            telemetry.metrics.taint_seconds.observe(age)

    nodes.on_change(changed)
