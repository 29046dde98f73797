"""What there is to tell about Services and load balancers, out of the caches.

Only Services without an address are remembered; everything else is read when metrics are asked for.
"""

from __future__ import annotations

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
from harvester_ccm.telemetry import catalogue
from harvester_ccm.telemetry.metrics import Samples, Telemetry

SERVICE_QUEUE: Final = "service"
"""Name of the queue of Services, in the framework too."""


DISPUTES: Final = (WaitReason.OTHER_CLUSTER_NAME, WaitReason.FOREIGN_LOAD_BALANCER, WaitReason.NEW_HARVESTER)
"""What a Service waits for whose load balancer carries a label or mark that is not ours, or is not to be seen."""


class ServiceMetrics:
    """Follows which Services have no address, and since when. What it tells is shown while this process leads."""

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
        self._pending: dict[str, float] = {}
        services.on_change(self._service_changed)
        telemetry.read_at_scrape(catalogue.LOAD_BALANCERS, self._states, only_leading=True)
        telemetry.read_at_scrape(catalogue.SERVICES_PENDING, self._reasons, only_leading=True)
        telemetry.read_at_scrape(catalogue.SERVICES_DISPUTED, self._disputed, only_leading=True)
        telemetry.read_at_scrape(catalogue.PENDING_LONGEST, self._longest, only_leading=True)

    def _reason(self, key: str) -> tuple[str]:
        return (self._queue.reason(key) or WaitReason.QUEUED,)

    def _reasons(self) -> Samples:
        return Counter(map(self._reason, self._pending))

    def _disputed(self) -> Samples:
        reasons = Counter(self._queue.reason(one.metadata.key) for one in self._services.all())
        return {(reason,): reasons[reason] for reason in DISPUTES}

    def _longest(self) -> Samples:
        now = self._telemetry.wall_clock()
        longest: dict[tuple[str, ...], float] = {}
        for key, since in self._pending.items():
            reason = self._reason(key)
            longest[reason] = max(longest.get(reason, 0.0), now - since)
        return longest

    def _states(self) -> Samples:
        ours = (one for one in self._load_balancers.all() if one.metadata.label(LB_CLUSTER) == self._cluster.name)
        return Counter((self._state(one), one.spec.ipam or "pool", one.spec.workload_type or "vm") for one in ours)

    def _state(self, load_balancer: LoadBalancer) -> str:
        if self._services.synced and self._services.get(service_key(load_balancer)) is None:
            return "orphan"
        return state_of(load_balancer)

    def _service_changed(self, old: Service | None, new: Service | None) -> None:
        item = new or old
        if item is None:
            return
        key, now = item.metadata.key, self._telemetry.wall_clock()
        if new is not None and not new.addresses and wants_load_balancer(new, self._cluster):
            # One that was there before this process waits since it was made, as far as anybody knows.
            since = now if old is not None else min(now, new.metadata.created or now)
            self._pending.setdefault(key, since)
            return
        waited_since = self._pending.pop(key, None)
        if waited_since is not None and new is not None and new.addresses and self._telemetry.leading:
            self._telemetry.pending_seconds.observe(now - waited_since)


def state_of(load_balancer: LoadBalancer) -> str:
    """Return the state of a load balancer in one word: ready, pending, unhealthy or deleting."""
    if load_balancer.metadata.deleting:
        return "deleting"
    condition = load_balancer.ready
    if condition is not None and condition.status == "True":
        return "ready"
    return "unhealthy" if load_balancer.allocated_ip else "pending"


def follow_new_nodes(telemetry: Telemetry, nodes: Informer[Node]) -> None:
    """Measure the age of Nodes at their first sight and when they are initialised, while this process leads."""

    def changed(old: Node | None, new: Node | None) -> None:
        created = new.metadata.created if new is not None else None
        if new is None or created is None or not telemetry.leading:
            return
        age, waits = max(0.0, telemetry.wall_clock() - created), bool(uninitialized_taints(new))
        if old is None and waits:
            telemetry.node_init_seconds.observe(age)
        elif old is not None and not waits and uninitialized_taints(old):
            telemetry.taint_seconds.observe(age)

    nodes.on_change(changed)
