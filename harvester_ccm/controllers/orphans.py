"""Load balancers without a Service: found by watching, deleted only when it is certain.

One is deleted when its mark says that this very cluster made it; when its Service does not exist or is not served by us
in the cache, for ``ORPHAN_GRACE`` seconds, and by a live request; when no Service shows its address; and when Harvester
will give the address back. Everything less certain is reported in the log, once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from harvester_ccm.config import OrphanPolicy
from harvester_ccm.controllers.lb_writes import BalancerWrites
from harvester_ccm.controllers.live_service import live_service
from harvester_ccm.controllers.runner import Runner
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import Done, Outcome, Wait
from harvester_ccm.plan.service.orphans import OrphanPlan, Suspicion, plan_orphan
from harvester_ccm.plan.service.ownership import address_in_use, service_key, service_uuid

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class SweepPolicy:
    """What happens to orphans."""

    orphans: OrphanPolicy
    period: float
    """Seconds between two looks at everything."""


@dataclass
class _Suspect:
    uid: str
    since: float
    reported: bool = False


class OrphanSweep:
    """Looks at every load balancer at start, when something changes, and once per period."""

    def __init__(
        self,
        guest: ApiClient,
        harvester: ApiClient,
        services: Informer[Service],
        load_balancers: Informer[LoadBalancer],
        *,
        cluster: ClusterIdentity,
        policy: SweepPolicy,
    ) -> None:
        self._guest = guest
        self._writes = BalancerWrites(harvester, load_balancers, cluster.namespace)
        self._services = services
        self._load_balancers = load_balancers
        self._cluster = cluster
        self._policy = policy
        self._suspects: dict[str, _Suspect] = {}
        self.deleted = 0
        """Orphans deleted so far."""
        self.runner = Runner("orphans", self.reconcile, workers=1)

    async def run(self) -> None:
        """Work until cancelled; returns at once when sweeping is off."""
        if self._policy.orphans is OrphanPolicy.OFF:
            return
        await self._services.wait_synced()
        await self._load_balancers.wait_synced()
        self._load_balancers.on_change(self._load_balancer_changed)
        self._services.on_change(self._service_changed)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.runner.run(), name="orphan worker")
            group.create_task(self._every_period(), name="orphan period")

    async def reconcile(self, key: str) -> Outcome:
        """Look at one load balancer."""
        load_balancer = self._load_balancers.get(key)
        if load_balancer is None:
            self._suspects.pop(key, None)
            return Done()
        suspect = self._suspect(key, load_balancer)
        plan = self._plan(load_balancer, self._service_of(load_balancer), suspect.since)
        if not plan.suspicious:
            self._suspects.pop(key, None)
            return Done()
        if plan.detail and not suspect.reported:
            suspect.reported = True
            made_for = service_uuid(load_balancer) if service_key(load_balancer) == "/" else service_key(load_balancer)
            log.warning("load balancer without service", lb=key, service=made_for, detail=plan.detail)
        if not plan.delete or self._policy.orphans is not OrphanPolicy.DELETE:
            return Wait("orphan", plan.look_again)
        if not self._plan(load_balancer, await live_service(self._guest, load_balancer), suspect.since).delete:
            # The cache is behind; the Service controller decides.
            return Wait("service", self._policy.period)
        return await self._delete(load_balancer)

    def _plan(self, load_balancer: LoadBalancer, service: Service | None, since: float) -> OrphanPlan:
        shown = (*self._services.all(), *((service,) if service is not None else ()))
        suspicion = Suspicion(
            age=asyncio.get_running_loop().time() - since,
            caches_current=self._services.problem is None and self._load_balancers.problem is None,
            address_in_use=address_in_use(load_balancer, shown),
        )
        return plan_orphan(load_balancer, service, self._cluster, suspicion)

    async def _delete(self, load_balancer: LoadBalancer) -> Outcome:
        meta = load_balancer.metadata
        if not await self._writes.delete(meta.name, meta.uid):
            return Done()
        self.deleted += 1
        log.info("orphaned load balancer deleted", lb=meta.key, service=service_key(load_balancer))
        return Done()

    def _service_of(self, load_balancer: LoadBalancer) -> Service | None:
        """Return the Service that the labels name, or without labels the one whose UID an earlier provider noted."""
        key, uid = service_key(load_balancer), service_uuid(load_balancer)
        if key != "/" or not uid:
            return self._services.get(key)
        return next((one for one in self._services.all() if one.metadata.uid == uid), None)

    def _suspect(self, key: str, load_balancer: LoadBalancer) -> _Suspect:
        suspect = self._suspects.get(key)
        if suspect is None or suspect.uid != load_balancer.metadata.uid:
            now = asyncio.get_running_loop().time()
            suspect = self._suspects[key] = _Suspect(load_balancer.metadata.uid, now)
        return suspect

    async def _every_period(self) -> None:
        while True:
            for load_balancer in self._load_balancers.all():
                self.runner.enqueue(load_balancer.metadata.key)
            await asyncio.sleep(self._policy.period)

    def _load_balancer_changed(self, _old: LoadBalancer | None, new: LoadBalancer | None) -> None:
        if new is not None and self._service_of(new) is None:
            self.runner.enqueue(new.metadata.key)

    def _service_changed(self, old: Service | None, new: Service | None) -> None:
        if old is None or new is not None:
            return
        for load_balancer in self._load_balancers.all():
            if service_key(load_balancer) == old.metadata.key:
                self.runner.enqueue(load_balancer.metadata.key)
