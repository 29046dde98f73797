"""Load balancers without a Service: found by watching, deleted only when it is certain.

One is deleted when mark and name say that this very cluster made it; when its Service was seen to go without a
clean-up, or has not existed or not been served by us for a while; when a live request says the same, of a guest that is
still the one it was; when no Service shows its address; and when Harvester will give the address back. Everything less
certain is reported in the log, once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import structlog
from msgspec import Struct, field

from harvester_ccm.config import OrphanPolicy, ServiceSettings
from harvester_ccm.controllers.lb_api import BalancerWrites
from harvester_ccm.errors import NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.identity import GuestIdentity
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.object_state import ObjectStates
from harvester_ccm.kube.workqueue import WorkQueue
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import Done, Outcome, Wait
from harvester_ccm.names import LB_SERVICE_UID
from harvester_ccm.plan.service.load_balancer import changed_document
from harvester_ccm.plan.service.orphans import (
    DELETION_WINDOW,
    DELETIONS_AT_ONCE,
    OrphanPlan,
    Suspicion,
    deletion_turn,
    plan_orphan,
    service_of,
)
from harvester_ccm.plan.service.ownership import made_for, service_key
from harvester_ccm.plan.service.situation import BY_SERVICE

MEMORY_SECONDS: Final = 600.0
"""How long it is remembered that a Service went: longer than any request to Harvester is under way, so that a load
balancer whose creation was answered late is found, too."""

log = structlog.get_logger(__name__)


class _Gone(Struct, frozen=True, gc=False):
    """A Service that was seen to go."""

    at: float
    cleaned_up: frozenset[str]
    """UIDs of the load balancers that its clean-up has deleted, although the cache may still show them."""


class _Suspect(Struct):
    """A load balancer that looks left over."""

    since: float = field(default_factory=loop_time)
    reported: bool = False


class OrphanCollector:
    """Deletes what Services have left behind.

    Looks when a Service goes, whatever ``--orphan-lbs`` says; and unless that is off at every load balancer, at start,
    when something changes, and once per period.
    """

    def __init__(
        self,
        guest: GuestIdentity,
        harvester: ApiClient,
        services: Informer[Service],
        load_balancers: Informer[LoadBalancer],
        *,
        cluster: ClusterIdentity,
        settings: ServiceSettings,
    ) -> None:
        """Build it; ``load_balancers`` has the index BY_SERVICE."""
        self._guest = guest
        self._writes = BalancerWrites(harvester, load_balancers, cluster.namespace)
        self._services = services
        self._load_balancers = load_balancers
        self._cluster = cluster
        self._settings = settings
        self._sweeps = settings.orphan_lbs is not OrphanPolicy.OFF
        self._gone: dict[str, _Gone] = {}
        """By the UID of the Service."""
        self._suspects = ObjectStates(_Suspect)
        self._deletions: deque[float] = deque(maxlen=DELETIONS_AT_ONCE)
        """When the last ones were deleted."""
        self._braked = False
        self.deleted = 0
        """Load balancers deleted so far."""
        # One worker: load balancers are deleted one after the other.
        self.queue = WorkQueue(
            "orphans", self.reconcile, workers=1, resync=self._resync_keys, resync_seconds=settings.orphan_period
        )
        services.on_change(self._service_changed)
        load_balancers.on_change(self._load_balancer_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._services.wait_synced()
        await self._load_balancers.wait_synced()
        self.queue.enqueue_background(self._resync_keys())
        await self.queue.run()

    async def reconcile(self, key: str) -> Outcome:
        """Look at one load balancer."""
        load_balancer = self._load_balancers.get(key)
        if load_balancer is None:
            self._suspects.forget(key)
            return Done()
        suspect = self._suspects.of(load_balancer)
        plan = self._plan(load_balancer, service_of(load_balancer, self._services), suspect)
        if not plan.because:
            self._suspects.forget(key)
            return Done()
        if plan.report and not suspect.reported:
            suspect.reported = True
            log.warning("load balancer without service", lb=key, service=made_for(load_balancer), detail=plan.because)
        later = None
        if plan.delete:
            service = await self._get_service_uncached(load_balancer)
            # Another cluster would say of every Service that there is none.
            await self._guest.confirm()
            plan = self._plan(load_balancer, service, suspect)
            # If not deleted now, the cache is behind; the Service controller decides.
            later = self._settings.orphan_period
        if plan.braked and not self._braked:
            # Said once, until it is over.
            self._braked = True
            log.warning("more load balancers without a service than are deleted at once", detail=plan.because)
        if not plan.delete:
            return Wait("orphan", plan.look_again or later)
        if not plan.first.empty:
            document = changed_document(load_balancer, plan.first)
            await self._writes.replace(load_balancer.metadata.name, document)
            return Wait("orphan", later)
        await self._delete(load_balancer)
        return Done()

    def _plan(self, load_balancer: LoadBalancer, service: Service | None, suspect: _Suspect) -> OrphanPlan:
        suspicion = self._suspicion(load_balancer, suspect, service)
        return plan_orphan(load_balancer, service, self._cluster, suspicion, self._settings.orphan_lbs)

    def _suspicion(self, load_balancer: LoadBalancer, suspect: _Suspect, service: Service | None) -> Suspicion:
        """``service`` is one that the cache may not have yet."""
        now = loop_time()
        return Suspicion(
            age=now - suspect.since,
            seen_gone=self._seen_gone(load_balancer),
            caches_current=self._services.problem is None and self._load_balancers.problem is None,
            turn_in=deletion_turn(self._deletions, now),
            services=self._services_with(service),
        )

    def _services_with(self, service: Service | None) -> Iterator[Service]:
        """Yield all Services, and one that the cache may not have yet; few load balancers make a plan ask for them."""
        yield from self._services.all()
        if service is not None:
            yield service

    async def _delete(self, load_balancer: LoadBalancer) -> None:
        meta, service = load_balancer.metadata, service_key(load_balancer)
        now = loop_time()
        # A minute without any: the wave that was told of is over.
        self._braked &= bool(self._deletions) and now - self._deletions[-1] < DELETION_WINDOW
        self._deletions.append(now)
        await self._writes.delete(meta.name, meta.uid, meta.resource_version)
        self.deleted += 1
        if self._seen_gone(load_balancer):
            log.info("load balancer of a lost service deleted", lb=meta.name, service=service)
        else:
            log.info("orphaned load balancer deleted", lb=meta.key, service=service)

    def _seen_gone(self, load_balancer: LoadBalancer) -> bool:
        """Return whether its Service was seen to go, not too long ago, without a clean-up that has dealt with it."""
        meta = load_balancer.metadata
        gone = self._gone.get(meta.annotation(LB_SERVICE_UID) or "")
        if gone is None or meta.uid in gone.cleaned_up:
            return False
        return loop_time() - gone.at < MEMORY_SECONDS

    async def _get_service_uncached(self, load_balancer: LoadBalancer) -> Service | None:
        """Return the Service that the labels name. Raises CCMError: no answer but "not found" means none."""
        namespace, _, name = service_key(load_balancer).partition("/")
        try:
            return await self._guest.client.get(SERVICES, name, namespace=namespace)
        except NotFound:
            return None

    def _resync_keys(self) -> list[str]:
        return [one.metadata.key for one in self._load_balancers.all()] if self._sweeps else []

    def _service_changed(self, old: Service | None, new: Service | None) -> None:
        if old is None or (new is not None and new.metadata.uid == old.metadata.uid):
            return
        left = self._load_balancers.by_index(BY_SERVICE, old.metadata.key)
        self._remember(old, left)
        for load_balancer in left:
            self._consider(load_balancer)

    def _remember(self, service: Service, left: tuple[LoadBalancer, ...]) -> None:
        now = loop_time()
        # In the order in which they went: the first ones are the oldest.
        while self._gone and now - next(iter(self._gone.values())).at >= MEMORY_SECONDS:
            del self._gone[next(iter(self._gone))]
        # One that was being deleted has waited for its clean-up.
        cleaned_up = frozenset(one.metadata.uid for one in left) if service.metadata.deleting else frozenset[str]()
        self._gone[service.metadata.uid] = _Gone(now, cleaned_up)

    def _load_balancer_changed(self, old: LoadBalancer | None, new: LoadBalancer | None) -> None:
        if new is not None:
            self._consider(new)
        elif old is not None:
            self._suspects.forget(old.metadata.key)

    def _consider(self, load_balancer: LoadBalancer) -> None:
        """Have the load balancer looked at if it looks left over."""
        if self._seen_gone(load_balancer) or (self._sweeps and service_of(load_balancer, self._services) is None):
            self.queue.enqueue(load_balancer.metadata.key)
