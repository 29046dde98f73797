"""Metrics of Services, load balancers and Nodes, from the caches, while this process is the leader.

Gauges by reason always have the reason ``Queued``, and load balancers every state, so that no query is empty.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from harvester_ccm.controllers.caches import Caches
from harvester_ccm.controllers.concerned import is_orphan_in
from harvester_ccm.controllers.reconciler import QueueName
from harvester_ccm.model.core import Node, Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import SHUTDOWN_TAINT, Reason
from harvester_ccm.plan.node.patch import uninitialized_taints
from harvester_ccm.plan.service.ownership.owner import has_cluster_name
from harvester_ccm.plan.service.scope import is_in_scope
from harvester_ccm.telemetry.metrics import Labels, Reading, Telemetry

_ORPHANED: Final = "orphaned"
_STATES: Final = ("ready", "pending", "unhealthy", "deleting", _ORPHANED)


class ServiceMetrics:
    """Counts Services that wait, by reason, and measures how long each waits for its address."""

    def __init__(self, telemetry: Telemetry, caches: Caches) -> None:
        self._telemetry = telemetry
        self._caches = caches
        self._pending_since: dict[str, float] = {}
        """Wall time since when a Service has no address, by its key."""
        caches.services.on_change(self._changed)
        telemetry.add_leader_reader(self._read)

    def _changed(self, old: Service | None, new: Service | None) -> None:
        service = new or old
        if service is None:
            return
        key = service.metadata.key
        now = time.time()
        if new is not None and not new.addresses and is_in_scope(new, self._caches.cluster):
            since = now
            if old is None and new.metadata.created is not None:
                # A Service that this process did not see before has waited since its creation.
                since = min(now, new.metadata.created)
            self._pending_since.setdefault(key, since)
            return
        pending_since = self._pending_since.pop(key, None)
        if pending_since is None or new is None or not new.addresses:
            return
        if self._telemetry.leading:
            self._telemetry.metrics.provisioning_seconds.observe(now - pending_since)

    def _read(self) -> Iterator[Reading]:
        cluster = self._caches.cluster
        managed = [service.metadata.key for service in self._caches.services.all() if is_in_scope(service, cluster)]
        reasons: dict[str, str] = {}
        for key in managed:
            # A Service with an address can wait as well.
            reason = self._telemetry.reason(QueueName.SERVICE, key)
            if reason:
                reasons[key] = reason
        now = time.time()
        longest: dict[Labels, float] = {(Reason.QUEUED,): 0.0}
        for key, since in self._pending_since.items():
            labels = (reasons.setdefault(key, Reason.QUEUED),)
            longest[labels] = max(longest.get(labels, 0.0), now - since)
        metrics = self._telemetry.metrics
        yield metrics.services, {(): float(len(managed))}
        yield metrics.services_pending, _count(reasons)
        yield metrics.oldest_pending, longest


class LoadBalancerMetrics:
    """Counts the load balancers of this cluster by state."""

    def __init__(self, telemetry: Telemetry, caches: Caches) -> None:
        self._metrics = telemetry.metrics
        self._caches = caches
        telemetry.add_leader_reader(self._read)

    def _read(self) -> Iterator[Reading]:
        states: Counter[Labels] = Counter({(state, "pool", "cluster"): 0 for state in _STATES})
        for load_balancer in self._caches.load_balancers.all():
            if has_cluster_name(load_balancer, self._caches.cluster):
                spec = load_balancer.spec
                states[self._state_of(load_balancer), spec.ipam or "pool", spec.workload_type] += 1
        yield self._metrics.load_balancers, states

    def _state_of(self, load_balancer: LoadBalancer) -> str:
        if self._caches.services.synced and is_orphan_in(self._caches, load_balancer):
            return _ORPHANED
        if load_balancer.metadata.deleting:
            return "deleting"
        condition = load_balancer.ready
        if condition is not None and condition.status == "True":
            return "ready"
        if load_balancer.allocated_ip:
            return "unhealthy"
        return "pending"


class NodeMetrics:
    """Counts Nodes that are not initialized, by reason, and those that are shut down.

    The age of each is measured when it is initialized.
    """

    def __init__(self, telemetry: Telemetry, caches: Caches) -> None:
        self._telemetry = telemetry
        self._nodes = caches.nodes
        caches.nodes.on_change(self._changed)
        telemetry.add_leader_reader(self._read)

    def _changed(self, old: Node | None, new: Node | None) -> None:
        if old is None or new is None or not self._telemetry.leading:
            return
        is_initialized_now = uninitialized_taints(old) and not uninitialized_taints(new)
        created = new.metadata.created
        if is_initialized_now and created is not None:
            self._telemetry.metrics.taint_seconds.observe(max(0.0, time.time() - created))

    def _read(self) -> Iterator[Reading]:
        reasons: dict[str, str] = {}
        for node in self._nodes.all():
            if uninitialized_taints(node) and not node.metadata.deleting:
                name = node.metadata.name
                reasons[name] = self._telemetry.reason(QueueName.NODE, name) or Reason.QUEUED
        yield self._telemetry.metrics.nodes_pending, _count(reasons)
        stopped = [node for node in self._nodes.all() if is_shut_down(node)]
        yield self._telemetry.metrics.nodes_shut_down, {(): float(len(stopped))}


def is_shut_down(node: Node) -> bool:
    """Return whether a Node has the taint of a stopped VM."""
    return any(taint.key == SHUTDOWN_TAINT for taint in node.spec.taints)


def _count(reasons: Mapping[str, str]) -> Counter[Labels]:
    """Return the number of objects by reason."""
    numbers: Counter[Labels] = Counter({(Reason.QUEUED,): 0})
    numbers.update((reason,) for reason in reasons.values())
    return numbers
