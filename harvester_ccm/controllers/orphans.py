"""The controller of load balancers whose Service does not exist any more, following the one rule for such deletions.

The caches have shown the orphan for a grace period; no Service shows its address; a live request confirms that its
Service does not exist, in a guest cluster that is still the same one; the DELETE carries UID and resourceVersion.
Deletions are seconds apart, so that an administrator can stop them. Every other orphan is logged once.
"""

from contextlib import suppress
from typing import Final

import structlog
from msgspec import Struct, field

from harvester_ccm.config import OrphanPolicy, ServiceSettings
from harvester_ccm.controllers.concerned import is_orphan_in
from harvester_ccm.controllers.reconciler import LimitedWrite, QueueName, Reconciler, Shared
from harvester_ccm.controllers.service_writes import BalancerWrites, written_fields
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.errors import NotFound
from harvester_ccm.kube.identity import ServerIdentity
from harvester_ccm.kube.object_state import ObjectStates
from harvester_ccm.kube.outcome import Outcome
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.plan.service.allocation.deletion import deletion_write
from harvester_ccm.plan.service.desired import ChangeLoadBalancer, DeleteLoadBalancer
from harvester_ccm.plan.service.ownership.orphans import ORPHAN_GRACE_SECONDS, ORPHANED, deletion_obstacle, is_orphan
from harvester_ccm.plan.service.ownership.owner import service_key

RETRY_SECONDS: Final = 30.0
"""Interval at which an orphan that cannot be deleted yet is checked again; its own changes are seen at once."""
DELETION_PAUSE: Final = 3.0
"""Minimum time between two deletions."""

log = structlog.get_logger(__name__)


class _OrphanState(Struct):
    """In-memory state of an orphan; a restart begins its grace period again."""

    since: float = field(default_factory=loop_time)
    """Loop time since when the caches show it."""
    reported: bool = False


class OrphanSnapshot(Struct, frozen=True):
    """Everything that the decision about an orphan depends on."""

    load_balancer: LoadBalancer
    state: _OrphanState
    grace_left: float
    """Seconds for which the caches must show it before anything is done."""
    pause_left: float
    """Seconds until the next load balancer may be deleted."""
    obstacle: str
    """Why it must not be deleted now; empty if it can be."""


class OrphanPlan(Struct, frozen=True):
    """At most one write."""

    write: ChangeLoadBalancer | DeleteLoadBalancer | None = None
    """A change without which the deletion would lose the address, or the deletion."""
    report: str = ""
    """What is logged about it, once; empty if nothing is."""
    look_again_after: float | None = None
    """Seconds after which it is planned again; None: when something changes."""


class OrphanController(Reconciler[OrphanSnapshot, OrphanPlan]):
    """Reports or deletes orphans, as ``--orphaned-load-balancer-policy`` says."""

    def __init__(
        self, shared: Shared, guest: ServerIdentity, harvester: ApiClient, *, settings: ServiceSettings
    ) -> None:
        super().__init__(
            QueueName.ORPHANS,
            shared,
            resource=LOAD_BALANCERS,
            component="",
            workers=1,
            resync_seconds=settings.orphan_period,
        )
        self._guest = guest
        self._writes = BalancerWrites(harvester, self.caches.load_balancers, self.caches.cluster.namespace)
        self._settings = settings
        self._states = ObjectStates(_OrphanState)
        self._next_deletion = 0.0
        """Loop time before which no load balancer is deleted."""
        self.deleted = 0
        """Load balancers deleted so far."""

    async def wait_synced(self) -> None:
        """Return when Services and load balancers are listed: before, the absence of one means nothing."""
        await self.caches.services.wait_synced()
        await self.caches.load_balancers.wait_synced()

    def keys(self) -> list[str]:
        return [load_balancer.metadata.key for load_balancer in self.caches.load_balancers.all()]

    async def observe(self, key: str) -> OrphanSnapshot | None:
        """Return the snapshot of an orphan; None if the load balancer is none."""
        load_balancer = self.caches.load_balancers.get(key)
        if load_balancer is None or not is_orphan_in(self.caches, load_balancer):
            self._states.forget(key)
            return None
        state = self._states.of(load_balancer)
        now = loop_time()
        return OrphanSnapshot(
            load_balancer,
            state,
            grace_left=max(0.0, state.since + ORPHAN_GRACE_SECONDS - now),
            pause_left=max(0.0, self._next_deletion - now),
            obstacle=deletion_obstacle(load_balancer, self.caches.services, self.caches.load_balancers),
        )

    def plan(self, snapshot: OrphanSnapshot) -> OrphanPlan:
        if snapshot.grace_left > 0:
            return OrphanPlan(look_again_after=snapshot.grace_left)
        report = snapshot.obstacle or ORPHANED
        if self._settings.orphan_policy is not OrphanPolicy.DELETE:
            return OrphanPlan(report=report)
        if snapshot.obstacle:
            return OrphanPlan(report=report, look_again_after=RETRY_SECONDS)
        if snapshot.pause_left > 0:
            return OrphanPlan(report=report, look_again_after=snapshot.pause_left)
        return OrphanPlan(deletion_write(snapshot.load_balancer), report)

    def emit_planned(self, plan: OrphanPlan, snapshot: OrphanSnapshot, *, is_sent_now: bool) -> None:
        """Log an orphan once. Harvester grants no Events, and the guest cluster has no object for one."""
        if not plan.report or snapshot.state.reported:
            return
        snapshot.state.reported = True
        load_balancer = snapshot.load_balancer
        log.warning(
            "orphaned load balancer found",
            lb=load_balancer.metadata.key,
            service=service_key(load_balancer),
            detail=plan.report,
        )

    async def settle(self, plan: OrphanPlan, _snapshot: OrphanSnapshot) -> Outcome:
        return Outcome("orphan", plan.look_again_after)

    def limited(self, write: ChangeLoadBalancer | DeleteLoadBalancer, snapshot: OrphanSnapshot) -> LimitedWrite:
        return LimitedWrite(snapshot.load_balancer.metadata.uid, written_fields(write))

    def report_conflict(self, fields: list[str], snapshot: OrphanSnapshot) -> None:
        log.warning("orphaned load balancer not deleted", lb=snapshot.load_balancer.metadata.key, reverted=fields)

    async def send(
        self, write: ChangeLoadBalancer | DeleteLoadBalancer, _plan: OrphanPlan, snapshot: OrphanSnapshot
    ) -> Outcome | None:
        """Confirm that the load balancer is an orphan, and send the write of the plan."""
        load_balancer = snapshot.load_balancer
        if not await self._is_confirmed(load_balancer):
            return Outcome("orphan", self._settings.orphan_period)
        if isinstance(write, ChangeLoadBalancer):
            await self._writes.change(load_balancer, write)
            return None
        self._next_deletion = loop_time() + DELETION_PAUSE
        await self.caches.load_balancers.delete(load_balancer)
        self.deleted += 1
        log.info("orphaned load balancer deleted", lb=load_balancer.metadata.key, service=service_key(load_balancer))
        return Outcome()

    async def _is_confirmed(self, load_balancer: LoadBalancer) -> bool:
        """Return whether a live request confirms that a load balancer is an orphan. Raises ClusterReplaced."""
        namespace, _, name = service_key(load_balancer).partition("/")
        service = None
        with suppress(NotFound):
            service = await self._guest.client.get(SERVICES, name, namespace=namespace)
        # Another cluster responds with a 404 for every Service.
        await self._guest.confirm()
        return is_orphan(load_balancer, service, self.caches.cluster)
