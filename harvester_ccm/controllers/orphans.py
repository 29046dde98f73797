"""Deletes load balancers whose Service does not exist any more, following the one rule for such deletions.

The caches have shown the orphan for a grace period; no Service shows its address; a live request confirms that its
Service does not exist, in a guest cluster that is still the same one; the DELETE carries UID and resourceVersion.
Deletions are seconds apart, so that an administrator can stop them. Every other orphan is logged once.
"""

from contextlib import suppress
from typing import Final

import structlog
from msgspec import Struct, field

from harvester_ccm.config import OrphanPolicy, ServiceSettings
from harvester_ccm.controllers.service_writes import BalancerWrites
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.errors import NotFound
from harvester_ccm.kube.identity import ServerIdentity
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.object_state import ObjectStates
from harvester_ccm.kube.outcome import Done, Outcome, Wait
from harvester_ccm.kube.workqueue import WorkQueue
from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.plan.service.deletion import deletion_write
from harvester_ccm.plan.service.desired import ChangeLoadBalancer
from harvester_ccm.plan.service.load_balancer import changed_document
from harvester_ccm.plan.service.orphans import ORPHAN_GRACE_SECONDS, ORPHANED, deletion_obstacle, is_orphan, service_of
from harvester_ccm.plan.service.ownership import has_cluster_name, service_key
from harvester_ccm.plan.service.snapshot import BY_SERVICE

RETRY_SECONDS: Final = 30.0
"""Interval at which an orphan that cannot be deleted yet is checked again; its own changes are seen at once."""
DELETION_PAUSE: Final = 3.0
"""Minimum time between two deletions."""

log = structlog.get_logger(__name__)


class _Candidate(Struct):
    """State of an orphan."""

    since: float = field(default_factory=loop_time)
    reported: bool = False


class OrphanCollector:
    """Reports or deletes orphans, as ``--orphaned-load-balancer-policy`` says."""

    def __init__(
        self,
        guest: ServerIdentity,
        harvester: ApiClient,
        services: Informer[Service],
        load_balancers: Informer[LoadBalancer],
        *,
        cluster: ClusterIdentity,
        settings: ServiceSettings,
    ) -> None:
        """``services`` has the index BY_ADDRESS, ``load_balancers`` has BY_SERVICE."""
        self._guest = guest
        self._writes = BalancerWrites(harvester, load_balancers, cluster.namespace)
        self._services = services
        self._load_balancers = load_balancers
        self._cluster = cluster
        self._settings = settings
        self._candidates = ObjectStates(_Candidate)
        self._next_deletion = 0.0
        self.deleted = 0
        """Load balancers deleted so far."""
        self.queue = WorkQueue(
            "orphans", self.reconcile, workers=1, resync=self._keys, resync_seconds=settings.orphan_period
        )
        if settings.orphan_policy is not OrphanPolicy.OFF:
            services.on_change(self._service_changed)
            load_balancers.on_change(self._load_balancer_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._services.wait_synced()
        await self._load_balancers.wait_synced()
        self.queue.enqueue_background(self._keys())
        await self.queue.run()

    async def reconcile(self, key: str) -> Outcome:
        """Check one load balancer, and delete it if it is an orphan."""
        load_balancer = self._load_balancers.get(key)
        if load_balancer is None or not self._is_orphan_now(load_balancer):
            self._candidates.forget(key)
            return Done()
        candidate, now = self._candidates.of(load_balancer), loop_time()
        if now < candidate.since + ORPHAN_GRACE_SECONDS:
            return Wait("orphan", candidate.since + ORPHAN_GRACE_SECONDS - now)
        obstacle = deletion_obstacle(load_balancer, self._services, self._load_balancers)
        if not candidate.reported:
            candidate.reported, detail = True, obstacle or ORPHANED
            log.warning("orphaned load balancer found", lb=key, service=service_key(load_balancer), detail=detail)
        if self._settings.orphan_policy is not OrphanPolicy.DELETE:
            return Wait("orphan")
        if obstacle or now < self._next_deletion:
            return Wait("orphan", RETRY_SECONDS if obstacle else self._next_deletion - now)
        namespace, _, name = service_key(load_balancer).partition("/")
        service = None
        with suppress(NotFound):
            service = await self._guest.client.get(SERVICES, name, namespace=namespace)
        # Another cluster responds with a 404 for every Service.
        await self._guest.confirm()
        if not self._is_orphan(load_balancer, service):
            return Wait("orphan", self._settings.orphan_period)
        await self._end(load_balancer)
        return Done()

    def _is_orphan_now(self, load_balancer: LoadBalancer) -> bool:
        """Return whether a load balancer is an orphan by the caches."""
        # To find the Service of one without labels, all Services are looked at.
        if not has_cluster_name(load_balancer, self._cluster):
            return False
        return self._is_orphan(load_balancer, service_of(load_balancer, self._services))

    def _is_orphan(self, load_balancer: LoadBalancer, service: Service | None) -> bool:
        return is_orphan(load_balancer, service, self._cluster)

    async def _end(self, load_balancer: LoadBalancer) -> None:
        """Delete a load balancer, or first send the write without which the deletion would lose the address."""
        meta, write = load_balancer.metadata, deletion_write(load_balancer)
        if isinstance(write, ChangeLoadBalancer):
            await self._writes.replace(load_balancer, changed_document(load_balancer, write))
            return
        self._next_deletion = loop_time() + DELETION_PAUSE
        await self._writes.delete(load_balancer)
        self.deleted += 1
        log.info("orphaned load balancer deleted", lb=meta.key, service=service_key(load_balancer))

    def _keys(self) -> list[str]:
        off = self._settings.orphan_policy is OrphanPolicy.OFF
        return [] if off else [one.metadata.key for one in self._load_balancers.all()]

    def _service_changed(self, old: Service | None, new: Service | None) -> None:
        if old is None or new is None or old.metadata.uid != new.metadata.uid:
            for item in filter(None, (old, new)):
                for load_balancer in self._load_balancers.by_index(BY_SERVICE, item.metadata.key):
                    self.queue.enqueue(load_balancer.metadata.key)

    def _load_balancer_changed(self, old: LoadBalancer | None, new: LoadBalancer | None) -> None:
        for item in filter(None, (new, old)):
            if self._is_orphan_now(item):
                self.queue.enqueue(item.metadata.key)
