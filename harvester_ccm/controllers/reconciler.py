"""The one shape of all controllers: observe, plan, send, until a plan has no write.

A controller supplies three functions. ``observe`` returns the snapshot of an object: the facts in the caches, and what
must be asked live. ``plan`` decides, without a request, and returns at most one write. ``send`` sends that write; the
response is in the cache when it returns, so the next plan is based on it. The queue, the rate limit of each object, the
resync and the emission of Events are here.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct, field

from harvester_ccm.controllers.caches import Caches
from harvester_ccm.kube.events import EventRecorder
from harvester_ccm.kube.fence import WriteFence
from harvester_ccm.kube.objects import Object, Resource
from harvester_ccm.kube.outcome import Outcome
from harvester_ccm.kube.workqueue import RESYNC_SECONDS, WorkQueue
from harvester_ccm.kube.write_limit import WriteRateLimiter
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import Reason


class QueueName(StrEnum):
    """The controllers by the names of their queues, which are labels of metrics."""

    SERVICE = "service"
    ORPHANS = "orphans"
    NODE = "node"
    NODE_LIFECYCLE = "node_lifecycle"
    NETWORK_MAPPING = "network_mapping"


class Plan(Protocol):
    """What every plan has."""

    @property
    def write(self) -> object | None:
        """The one write; None if nothing is left to write, or nothing can be written now."""


SnapshotT = TypeVar("SnapshotT")
PlanT = TypeVar("PlanT", bound=Plan)


class Shared(Struct, frozen=True):
    """The objects that all controllers of a process share."""

    caches: Caches
    recorder: EventRecorder
    limiter: WriteRateLimiter = field(default_factory=WriteRateLimiter)
    """Limits the writes of all controllers for each object."""
    fence: WriteFence = field(default_factory=WriteFence)
    """Says whether this process leads."""


class LimitedWrite(Struct, frozen=True):
    """What the rate limit has to know of a write."""

    uid: str
    """UID of the object whose writes are counted: a Service also for those to its load balancer."""
    fields: Collection[str] = ()
    """The fields of the write, as messages name them."""
    is_urgent: bool = False
    """Whether it never waits: the object is being deleted, or the write removes what belongs to another one."""


class Reconciler(ABC, Generic[SnapshotT, PlanT]):
    """Keeps each object of one kind in its desired state."""

    def __init__(
        self,
        name: QueueName,
        shared: Shared,
        *,
        resource: Resource[Any],
        component: str,
        workers: int,
        resync_seconds: float = RESYNC_SECONDS,
    ) -> None:
        """``resource`` is the kind of the objects that get Events, and ``component`` the source of these."""
        self.name = name
        self.caches = shared.caches
        self.limiter = shared.limiter
        self.queue = WorkQueue(name, self.reconcile, workers=workers, resync=self.keys, resync_seconds=resync_seconds)
        self._recorder = shared.recorder
        self._fence = shared.fence
        self._resource = resource
        self._component = component

    @abstractmethod
    async def wait_synced(self) -> None:
        """Return when the caches are listed without which nothing can be decided."""

    @abstractmethod
    def keys(self) -> Iterable[str]:
        """Return the keys of all objects, for the start and for each resync."""

    @abstractmethod
    async def observe(self, key: str) -> SnapshotT | None:
        """Return the snapshot of an object; None if nothing is to be done about it. Raises KubeError."""

    @abstractmethod
    def plan(self, snapshot: SnapshotT) -> PlanT:
        """Return the plan of an object."""

    @abstractmethod
    async def send(self, write: Any, plan: PlanT, snapshot: SnapshotT) -> Outcome | None:
        """Send the write of a plan; return the outcome, or None if the object is to be planned again.

        Raises KubeError, after the Event about it was emitted.
        """

    @abstractmethod
    async def settle(self, plan: PlanT, snapshot: SnapshotT) -> Outcome | None:
        """Return the outcome of a plan without a write, or None if the object is to be planned again."""

    @abstractmethod
    def limited(self, write: Any, snapshot: SnapshotT) -> LimitedWrite:
        """Return what the rate limit has to know of the write of a plan."""

    @abstractmethod
    def report_conflict(self, fields: list[str], snapshot: SnapshotT) -> None:
        """Report that the rate limit delays a write of these fields."""

    def emit_planned(self, plan: PlanT, snapshot: SnapshotT, *, is_sent_now: bool) -> None:
        """Emit the Events of a plan. ``is_sent_now`` tells that the rate limit does not delay its write."""

    def wake(self, keys: Iterable[str]) -> None:
        """Enqueue objects that have changed."""
        for key in keys:
            self.queue.enqueue(key)

    def enqueue_all(self) -> None:
        """Enqueue all objects at the start."""
        self.queue.enqueue_background(self.keys())

    async def run(self) -> None:
        """Work until cancelled."""
        await self.wait_synced()
        self.enqueue_all()
        await self.queue.run()

    async def reconcile(self, key: str) -> Outcome:
        """Bring one object to its desired state, one write after another. Raises KubeError."""
        outcome: Outcome | None = None
        while outcome is None:
            outcome = await self._step(key)
        return outcome

    def emit(self, item: Object, *events: EventMessage) -> None:
        """Emit Events about an object."""
        for event in events:
            self._recorder.emit(self._resource, item, event, component=self._component)

    async def _step(self, key: str) -> Outcome | None:
        """Observe, plan and send once; return the outcome, or None if the object is to be planned again.

        Raises NotLeading: only the leader decides, also about Events, which need no Lease.
        """
        snapshot = await self.observe(key)
        if snapshot is None:
            return Outcome()
        self._fence.check()
        plan = self.plan(snapshot)
        write = plan.write
        if write is None:
            self.emit_planned(plan, snapshot, is_sent_now=True)
            return await self.settle(plan, snapshot)
        limited = self.limited(write, snapshot)
        delay = self.limiter.delay(limited.uid, is_urgent=limited.is_urgent)
        self.emit_planned(plan, snapshot, is_sent_now=delay <= 0)
        if delay > 0:
            self.report_conflict(self.limiter.fields(limited.uid), snapshot)
            return Outcome(Reason.FIELD_CONFLICT, delay)
        outcome = await self.send(write, plan, snapshot)
        self.limiter.record(limited.uid, limited.fields)
        return outcome
