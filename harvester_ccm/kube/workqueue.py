"""Work queue of a controller: which key to reconcile next, and when to retry it.

As in client-go, a key is queued at most once and never reconciled by two workers at the same time; a key that is
enqueued during its reconcile is reconciled again afterwards. There are two lanes. The urgent lane holds keys whose
objects changed or whose timer expired. The background lane holds keys of a resync, which is a safety net against
missed events, and keys of a change that concerns many objects; its keys are reconciled while the urgent lane is empty.
In each lane the namespaces take turns: thousands of changed objects in one namespace do not delay other namespaces.

A reconcile never sleeps: it returns an outcome or raises an error, and only this module turns that into a retry.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import structlog

from harvester_ccm.kube.backoff import BACKOFF_SECONDS, pause_after
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.errors import ClusterReplaced, KubeError, normalized_message
from harvester_ccm.kube.fence import NotLeading
from harvester_ccm.kube.outcome import Outcome
from harvester_ccm.kube.turns import NamespaceTurns

RESYNC_SECONDS: Final = 600.0
"""Interval between two resyncs; shorter than the time for which the recorder drops a repeated Event."""
RESYNC_JITTER: Final = 0.2
"""Share of the interval by which it varies, so that the queues of a process do not resync at the same time."""

log = structlog.get_logger(__name__)

Reconcile = Callable[[str], Awaitable[Outcome]]


class WorkQueue:
    """Runs ``reconcile`` for every enqueued key."""

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        workers: int,
        resync: Callable[[], Iterable[str]] = tuple,
        resync_seconds: float = RESYNC_SECONDS,
    ) -> None:
        """``resync`` returns the keys to reconcile once per interval; none by default."""
        self.name = name
        self._reconcile = reconcile
        self._workers = workers
        self._resync_keys = resync
        self._resync_seconds = resync_seconds
        self.adds = 0
        self.retries = 0
        """Numbers of keys that were queued, and of failed reconciles."""
        self.waited: Callable[[float], object] = lambda _seconds: None
        self.worked: Callable[[float], object] = lambda _seconds: None
        """Called with the time that a key was queued, and the time of its reconcile."""
        self.reasons: dict[str, str] = {}
        """Why a key is not ready since its last reconcile: the reason of its outcome, or the class of the error."""
        self._urgent = NamespaceTurns()
        self._background = NamespaceTurns()
        """The two lanes; a key is in one of them at most."""
        self._queued_at: dict[str, float] = {}
        """Loop time at which each of these keys was queued."""
        self._changed = asyncio.Event()
        """Set when a key was enqueued or finished."""
        self._active: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._failures: dict[str, int] = {}
        self._logged: dict[str, str] = {}
        """Number of failures of each key since its last success, and the message of the last one that was logged."""

    @property
    def depth(self) -> int:
        """Number of queued keys."""
        return len(self._urgent) + len(self._background)

    def is_active(self, key: str) -> bool:
        """Return whether a worker reconciles the key now."""
        return key in self._active

    def failures(self, key: str) -> int:
        """Return the number of failures of the key since its last success."""
        return self._failures.get(key, 0)

    def enqueue(self, key: str) -> None:
        """Reconcile the key as soon as a worker is free."""
        if key in self._urgent:
            return
        if key in self._background:
            self._background.remove(key)
        self._add(key, self._urgent)

    def enqueue_background(self, keys: Iterable[str]) -> None:
        """Reconcile the keys when no other key is queued."""
        for key in keys:
            if key not in self._queued_at:
                self._add(key, self._background)

    def enqueue_after(self, key: str, seconds: float) -> None:
        """Reconcile the key in ``seconds``, or earlier if it is enqueued before."""
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        timer = self._timers.get(key)
        if timer is None or timer.when() > at:
            self._cancel_timer(key)
            self._timers[key] = loop.call_at(at, self._timer_expired, key)

    async def run(self) -> None:
        """Reconcile keys until cancelled. Raises ClusterReplaced."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._resync(), name=f"{self.name}-resync")
            for number in range(self._workers):
                group.create_task(self._work(), name=f"{self.name}-{number}")

    def _add(self, key: str, lane: NamespaceTurns) -> None:
        lane.add(key)
        if key not in self._queued_at:
            self.adds += 1
            self._queued_at[key] = loop_time()
        self._changed.set()

    def _timer_expired(self, key: str) -> None:
        del self._timers[key]
        self.enqueue(key)

    def _cancel_timer(self, key: str) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(self._resync_seconds * random.uniform(1 - RESYNC_JITTER, 1))
            self.enqueue_background(self._resync_keys())

    async def _take(self) -> str:
        """Remove the next key that no other worker reconciles from its lane and return it."""
        while True:
            for lane in (self._urgent, self._background):
                key = lane.first(without=self._active)
                if key is not None:
                    lane.take(key)
                    self.waited(loop_time() - self._queued_at.pop(key))
                    return key
            self._changed.clear()
            await self._changed.wait()

    async def _work(self) -> None:
        while True:
            key = await self._take()
            self._cancel_timer(key)
            self._active.add(key)
            started = loop_time()
            try:
                await self._process(key)
            finally:
                self._active.discard(key)
                self.worked(loop_time() - started)
                self._changed.set()
            # Reconciles without a request would otherwise run in a row and delay the Lease and the watches.
            await asyncio.sleep(0)

    async def _process(self, key: str) -> None:
        try:
            outcome = await self._reconcile(key)
        except ClusterReplaced:
            raise
        except NotLeading:
            # No failure: this process ends, unless it leads again at once.
            self.enqueue_after(key, BACKOFF_SECONDS)
        except KubeError as error:
            self._failed(key, error)
        except Exception as error:  # a bug that one object triggers must not stop the others
            log.exception("unexpected error in reconcile", controller=self.name, key=key)
            self._failed(key, error)
        else:
            self._succeeded(key, outcome)

    def _succeeded(self, key: str, outcome: Outcome) -> None:
        self.reasons.pop(key, None)
        if outcome.reason:
            self.reasons[key] = outcome.reason
        if outcome.at_most is not None:
            self.enqueue_after(key, outcome.at_most)
        self._failures.pop(key, None)
        if self._logged.pop(key, None) is not None:
            log.info("reconcile recovered", controller=self.name, key=key)

    def _failed(self, key: str, error: Exception) -> None:
        self.retries += 1
        self.reasons[key] = type(error).__name__
        self._failures[key] = self.failures(key) + 1
        delay = pause_after(error, self._failures[key])
        message = normalized_message(str(error))
        # An outage lasts for many retries: log a failure once until its message changes. A few conflicts are normal.
        if delay >= BACKOFF_SECONDS and message != self._logged.get(key):
            self._logged[key] = message
            log.warning("reconcile failed", controller=self.name, key=key, error=str(error), retry_in=round(delay, 1))
        self.enqueue_after(key, delay)
