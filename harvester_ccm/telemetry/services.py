"""What there is to tell about Services and load balancers, out of the caches.

Only Services without an address are remembered; everything else is read when metrics are asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import WaitReason
from harvester_ccm.names import LB_CLUSTER
from harvester_ccm.plan.service.ownership import service_key
from harvester_ccm.plan.service.selection import wants_load_balancer
from harvester_ccm.telemetry.creation import created_at


@dataclass(frozen=True)
class Reporting:
    """What the report needs besides the caches."""

    cluster: ClusterIdentity
    leading: Callable[[], bool]
    """Whether this process works; others have nothing to tell."""
    served: Callable[[float], None]
    """Called with the seconds that a Service waited, when it got its address."""
    clock: Callable[[], float]
    """Seconds since the epoch."""


class ServiceReport:
    """Follows which Services have no address, and since when."""

    def __init__(
        self, services: Informer[Service], load_balancers: Informer[LoadBalancer], reporting: Reporting
    ) -> None:
        self._services = services
        self._load_balancers = load_balancers
        self._reporting = reporting
        self._pending: dict[str, float] = {}
        services.on_change(self._service_changed)

    def pending(self, reason_of: Callable[[str], str]) -> Mapping[tuple[str, ...], float]:
        """Return the number of Services without an address by reason; ``reason_of`` gets a key, "" is unknown."""
        if not self._reporting.leading():
            return {}
        return Counter((reason_of(key) or WaitReason.QUEUED,) for key in self._pending)

    def longest(self, reason_of: Callable[[str], str]) -> Mapping[tuple[str, ...], float]:
        """Return for how many seconds the one that waits longest has waited, by reason."""
        if not self._reporting.leading():
            return {}
        now = self._reporting.clock()
        longest: dict[tuple[str, ...], float] = {}
        for key, since in self._pending.items():
            reason = (reason_of(key) or WaitReason.QUEUED,)
            longest[reason] = max(longest.get(reason, 0.0), now - since)
        return longest

    def load_balancers(self) -> Mapping[tuple[str, ...], float]:
        """Return the number of load balancers of this cluster by state, way of addressing and workload type."""
        if not self._reporting.leading():
            return {}
        ours = (one for one in self._load_balancers.all() if self._is_ours(one))
        return Counter((self._state(one), one.spec.ipam or "pool", one.spec.workload_type or "vm") for one in ours)

    def _is_ours(self, load_balancer: LoadBalancer) -> bool:
        return load_balancer.metadata.label(LB_CLUSTER) == self._reporting.cluster.name

    def _state(self, load_balancer: LoadBalancer) -> str:
        if self._services.synced and self._services.get(service_key(load_balancer)) is None:
            return "orphan"
        return state_of(load_balancer)

    def _service_changed(self, old: Service | None, new: Service | None) -> None:
        item = new or old
        if item is None:
            return
        key, now = item.metadata.key, self._reporting.clock()
        if new is not None and self._is_pending(new):
            # One that was there before this process waits since it was made, as far as anybody knows.
            since = now if old is not None else min(now, created_at(new) or now)
            self._pending.setdefault(key, since)
            return
        waited_since = self._pending.pop(key, None)
        if waited_since is not None and new is not None and new.addresses and self._reporting.leading():
            self._reporting.served(now - waited_since)

    def _is_pending(self, service: Service) -> bool:
        return not service.addresses and wants_load_balancer(service, self._reporting.cluster)


def state_of(load_balancer: LoadBalancer) -> str:
    """Return the state of a load balancer in one word: ready, pending, unhealthy or deleting."""
    if load_balancer.metadata.deleting:
        return "deleting"
    condition = load_balancer.ready
    is_ready = condition is not None and condition.status == "True"
    if not load_balancer.capabilities.has_ip_pools and not load_balancer.address:
        # Harvester before 1.2 calls it ready all the same.
        return "pending"
    if is_ready:
        return "ready"
    return "pending" if load_balancer.awaits_allocation else "unhealthy"
