"""Metrics of Services, load balancers and Nodes, from the caches, while this process is the leader."""

from __future__ import annotations

import time
from collections import Counter
from typing import Final

from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Node, Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import WaitReason
from harvester_ccm.names import LB_CLUSTER
from harvester_ccm.plan.node.patch import uninitialized_taints
from harvester_ccm.plan.service.ownership import service_key
from harvester_ccm.plan.service.selection import wants_load_balancer
from harvester_ccm.telemetry.metrics import Telemetry, show

SERVICE_QUEUE: Final = "service"
"""Name of the queue of Services, as in the framework."""
DISPUTES: Final = (WaitReason.OTHER_CLUSTER_NAME, WaitReason.FOREIGN_LOAD_BALANCER, WaitReason.NEW_HARVESTER)
"""Reasons of Services whose load balancer belongs to another cluster or is not in this Harvester."""


class ServiceMetrics:
    """Follows which Services have no address and since when; the other values are read at each scrape."""

    def __init__(
        self,
        telemetry: Telemetry,
        services: Informer[Service],
        load_balancers: Informer[LoadBalancer],
        cluster: ClusterIdentity,
    ) -> None:
        self._telemetry = telemetry
        self._services = services
        self._load_balancers = load_balancers
        self._cluster = cluster
        self._queue = telemetry.queue(SERVICE_QUEUE)
        self._pending_since: dict[str, float] = {}
        services.on_change(self._service_changed)
        telemetry.before_scrape(self._read)

    def _read(self) -> None:
        metrics, leading = self._telemetry.metrics, self._telemetry.leading
        load_balancers = self._load_balancers.all() if leading else ()
        ours = (one for one in load_balancers if one.metadata.label(LB_CLUSTER) == self._cluster.name)
        states = ((self._state(one), one.spec.ipam or "pool", one.spec.workload_type or "vm") for one in ours)
        show(metrics.load_balancers, Counter(states))
        pending: dict[tuple[str], list[float]] = {}
        for key, since in self._pending_since.items() if leading else ():
            pending.setdefault((self._queue.reason(key) or WaitReason.QUEUED,), []).append(time.time() - since)
        show(metrics.services_pending, {reason: len(times) for reason, times in pending.items()})
        show(metrics.pending_longest, {reason: max(times) for reason, times in pending.items()})
        reasons = Counter(self._queue.reason(one.metadata.key) for one in self._services.all())
        show(metrics.services_disputed, {(reason,): reasons[reason] for reason in DISPUTES} if leading else {})

    def _state(self, load_balancer: LoadBalancer) -> str:
        if self._services.synced and self._services.get(service_key(load_balancer)) is None:
            return "orphan"
        return state_of(load_balancer)

    def _service_changed(self, old: Service | None, new: Service | None) -> None:
        item, now = new or old, time.time()
        if item is None:
            return
        if new is not None and not new.addresses and wants_load_balancer(new, self._cluster):
            # A Service that this process did not see before has waited since its creation.
            since = now if old is not None else min(now, new.metadata.created or now)
            self._pending_since.setdefault(item.metadata.key, since)
            return
        since = self._pending_since.pop(item.metadata.key, now)
        if since < now and new is not None and new.addresses and self._telemetry.leading:
            self._telemetry.metrics.pending_seconds.observe(now - since)


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
