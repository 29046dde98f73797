"""Load balancers of Services that were seen to go without a clean-up: deleted at once, not after the sweep's grace.

Remembers the UIDs of deleted Services for a while, so that a load balancer whose creation was answered late is found,
too. One is deleted when it carries such a UID and the mark of this cluster, and a live request says that its Service
does not exist any more. What cannot be decided so is left to the sweep.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from harvester_ccm.controllers.lb_writes import BalancerWrites
from harvester_ccm.controllers.live_service import live_service
from harvester_ccm.controllers.runner import Runner
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import Done, Outcome, Wait
from harvester_ccm.names import LB_SERVICE_UID
from harvester_ccm.plan.service.departure import Departure, plan_departure
from harvester_ccm.plan.service.ownership import address_in_use, service_key

MEMORY_SECONDS: Final = 600.0
"""How long a deleted Service is remembered: longer than any request to Harvester is under way."""
WORKERS: Final = 4
LOOK_AGAIN: Final = 10.0
"""Seconds until a load balancer that cannot be deleted yet is looked at again; a change of it comes earlier."""

log = structlog.get_logger(__name__)


class Departures:
    """Deletes what Services leave behind that went although they carried our finalizer."""

    def __init__(
        self,
        guest: ApiClient,
        harvester: ApiClient,
        services: Informer[Service],
        load_balancers: Informer[LoadBalancer],
        *,
        cluster: ClusterIdentity,
        index: str,
    ) -> None:
        """Build it; ``index`` is the one of ``load_balancers`` by the key of the Service."""
        self._guest = guest
        self._writes = BalancerWrites(harvester, load_balancers, cluster.namespace)
        self._services = services
        self._load_balancers = load_balancers
        self._cluster = cluster
        self._index = index
        self._gone: dict[str, float] = {}
        """When the Service with each UID went."""
        self._left: set[str] = set()
        """Keys of load balancers that are still to be decided about."""
        self.runner = Runner("departures", self.reconcile, workers=WORKERS)
        services.on_change(self._service_changed)
        load_balancers.on_change(self._load_balancer_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.runner.run()

    async def reconcile(self, key: str) -> Outcome:
        """Look at one load balancer."""
        load_balancer = self._load_balancers.get(key)
        if load_balancer is None or not self._is_without_service(load_balancer):
            self._left.discard(key)
            return Done()
        decision = self._decide(load_balancer, self._services.get(service_key(load_balancer)))
        if decision is Departure.DELETE:
            decision = self._decide(load_balancer, await live_service(self._guest, load_balancer))
        if decision is Departure.WAIT:
            return Wait("departure", LOOK_AGAIN)
        if decision is Departure.DELETE:
            await self._delete(load_balancer)
        self._left.discard(key)
        return Done()

    def _decide(self, load_balancer: LoadBalancer, present: Service | None) -> Departure:
        in_use = address_in_use(load_balancer, self._services.all())
        return plan_departure(load_balancer, present, self._cluster, address_in_use=in_use)

    async def _delete(self, load_balancer: LoadBalancer) -> None:
        meta = load_balancer.metadata
        if await self._writes.delete(meta.name, meta.uid):
            log.info("load balancer of a lost service deleted", lb=meta.name, service=service_key(load_balancer))

    def _is_without_service(self, load_balancer: LoadBalancer) -> bool:
        """Return whether the Service that it was made for was seen to go, not too long ago."""
        since = self._gone.get(load_balancer.metadata.annotation(LB_SERVICE_UID) or "")
        return since is not None and asyncio.get_running_loop().time() - since < MEMORY_SECONDS

    def _service_changed(self, old: Service | None, new: Service | None) -> None:
        if old is None or (new is not None and new.metadata.uid == old.metadata.uid):
            return
        self._remember(old)
        if old.metadata.deleting:
            # It waited for its clean-up, which has deleted what the cache still shows.
            return
        for load_balancer in self._load_balancers.by_index(self._index, old.metadata.key):
            self._suspect(load_balancer)

    def _remember(self, service: Service) -> None:
        now = asyncio.get_running_loop().time()
        # In the order in which they went: the first ones are the oldest.
        for uid, since in list(self._gone.items()):
            if now - since < MEMORY_SECONDS:
                break
            del self._gone[uid]
        self._gone[service.metadata.uid] = now

    def _load_balancer_changed(self, old: LoadBalancer | None, new: LoadBalancer | None) -> None:
        if new is not None and (old is None or new.metadata.key in self._left):
            self._suspect(new)

    def _suspect(self, load_balancer: LoadBalancer) -> None:
        if self._is_without_service(load_balancer):
            self._left.add(load_balancer.metadata.key)
            self.runner.enqueue(load_balancer.metadata.key)
