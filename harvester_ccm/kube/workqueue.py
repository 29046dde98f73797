"""Work queue of a controller: which key to reconcile next, and when to retry it.

As in client-go, a key is queued at most once and never reconciled by two workers at the same time; a key that is
enqueued during its reconcile is reconciled again afterwards. There are two lanes. The urgent lane holds keys whose
objects changed or whose timer expired. The background lane holds keys of a resync, which is a safety net against
missed events, and keys of a change that concerns many objects; its keys are reconciled while the urgent lane is empty.
In each lane the namespaces take turns: whoever changes thousands of objects in one namespace does not delay the others.

A reconcile never sleeps: it returns an outcome or raises an error, and only this module turns that into a retry.

The module also has the clock, the backoff and the rate limit of writes that all of ``kube`` and the controllers share.
Two controllers that insist on different values of one field write forever, each as fast as the API server responds. One
limit per object covers every write that this controller sends on its behalf: to the Service and its load balancer, or
to the Node. It needs neither the field nor the other writer: a burst of writes is always allowed, so ordinary
operation never waits. Afterwards each interval permits one write, and the writes that complete what it began: those of
a field that this round has not written with the same value. So the object has its last state after one interval, and
another controller that reverts a field causes one write of it per interval. A write that must not be the last one for
an interval, because others belong to it, waits for a new round, which has room for all of them.
"""

import asyncio
import random
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar

import structlog
from tenacity import wait_exponential_jitter

from harvester_ccm.errors import CCMError, ClusterReplaced, Conflict, normalized_message
from harvester_ccm.model.meta import Object
from harvester_ccm.model.outcome import Outcome, Refused, Wait

BACKOFF_SECONDS: Final = 0.5
MAX_BACKOFF_SECONDS: Final = 30.0
"""First and longest delay after failures."""
CONFLICT_SECONDS: Final = 0.02
"""First delay after a conflict: the watch has usually delivered the newer object by then."""
WRITE_BURST: Final = 20
"""Maximum number of writes for one object without a pause; a Service takes four from its creation to its address."""
WRITE_INTERVAL_SECONDS: Final = 30.0
"""Time between two rounds of writes for an object whose burst is used up."""
WRITES_OF_A_ROUND: Final = 12
"""Maximum number of writes of one round. That many belong together for a Service that gets a cluster load balancer with
DHCP in place of one for VMs, until it has its lease."""
WRITE_LIMIT: Final = (
    f"after {WRITE_BURST} writes in a short time, each field is written with the same value only every "
    f"{WRITE_INTERVAL_SECONDS:.0f} s"
)
"""The limit in words, for Events."""
MAX_OBJECTS: Final = 4096
"""Maximum number of objects with a token bucket."""
RESYNC_SECONDS: Final = 600.0
"""Interval between two resyncs; shorter than the time for which the recorder drops a repeated Event."""
RESYNC_JITTER: Final = 0.2
"""Share of the interval by which it varies, so that the queues of a process do not resync at the same time."""

T = TypeVar("T")

log = structlog.get_logger(__name__)

Reconcile = Callable[[str], Awaitable[Outcome]]


def loop_time() -> float:
    """Return the monotonic time of the running event loop, in seconds. Tests advance it."""
    return asyncio.get_running_loop().time()


def wall_time() -> str:
    """Return the wall time in the format of the Kubernetes API."""
    return time_text(datetime.now(UTC))


def time_text(time: datetime) -> str:
    """Return a time in the format of the Kubernetes API, such as ``2026-01-31T12:00:00Z``."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pause_after(error: BaseException | None, failures: int, *, growth: float = 2.0) -> float:
    """Return the delay in seconds after the n-th failure in a row.

    It is the server's Retry-After, or else grows exponentially by the factor ``growth``, with jitter.
    """
    if isinstance(error, CCMError) and error.retry_after is not None:
        return error.retry_after
    first = CONFLICT_SECONDS if isinstance(error, Conflict) else BACKOFF_SECONDS
    # A much larger exponent would overflow a float.
    return min(MAX_BACKOFF_SECONDS, first * (growth ** min(failures - 1, 64) + random.random()))


IN_PLACE_DELAYS: Final = wait_exponential_jitter(
    multiplier=BACKOFF_SECONDS, max=MAX_BACKOFF_SECONDS, jitter=BACKOFF_SECONDS
)
"""Delays of the calls that tenacity repeats in place, outside of a reconcile."""


class _Bucket:
    """The token bucket of an object."""

    def __init__(self) -> None:
        self.full_at = 0.0
        """Loop time at which it is full again."""
        self.writes = 0
        """Writes of the present round, which began when a token was left."""
        self.round: set[tuple[str, int]] = set()
        """The fields of these writes, each with a hash of its value."""
        self.fields: Counter[str] = Counter()
        """How often each field was written since the bucket was full."""


class WriteRateLimiter:
    """Token bucket for each object: ``burst`` writes, then one round of writes per ``interval`` seconds."""

    def __init__(self, burst: int = WRITE_BURST, interval: float = WRITE_INTERVAL_SECONDS) -> None:
        self._burst = burst
        self._interval = interval
        self._buckets: dict[str, _Bucket] = {}
        """By UID, the least recently used first."""

    def delay(self, uid: str, fields: Mapping[str, str] = {}, *, writes: int = 1, terminating: bool = False) -> float:
        """Return the seconds until a write is allowed for the object with this UID.

        ``fields`` are its fields, as messages name them, with their new values. ``writes`` is the number of writes that
        belong together: this one, and others after it, each with a field or a value of its own. More than one begin
        with a new round, which has room for ``WRITES_OF_A_ROUND``. A terminating object never waits: its finalizer must
        not stay because of earlier writes.
        """
        bucket = self._buckets.get(uid)
        if terminating or bucket is None:
            return 0.0
        if writes == 1 and self._completes_round(bucket, fields):
            return 0.0
        return max(0.0, self._until_token(bucket))

    def record(self, uid: str, fields: Mapping[str, str] = {}) -> None:
        """Count one write of these fields for the object."""
        bucket, now = self._buckets.pop(uid, None) or _Bucket(), loop_time()
        self._buckets[uid] = bucket
        if bucket.full_at <= now:
            bucket.fields.clear()
        if self._until_token(bucket) <= 0:
            bucket.round.clear()
            bucket.writes = 0
            # Only the first write of a round takes a token. Later ones, of which some come after many seconds, do not
            # delay the next round: the last of many changes would wait longer than one interval.
            bucket.full_at = max(now, bucket.full_at) + self._interval
        bucket.writes += 1
        bucket.round.update(_hashed(fields))
        bucket.fields.update(fields.keys())
        if len(self._buckets) > MAX_OBJECTS:
            del self._buckets[next(iter(self._buckets))]

    def repeated(self, uid: str, fields: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the fields of the object that were written most often since its bucket was full, sorted.

        They are all fields with at least half as many writes as the first one; without any, ``fields``, those of the
        write that has to wait.
        """
        bucket = self._buckets.get(uid)
        if bucket is None or not bucket.fields:
            return tuple(sorted(fields))
        most = max(bucket.fields.values())
        return tuple(sorted(name for name, writes in bucket.fields.items() if 2 * writes >= most))

    def _until_token(self, bucket: _Bucket) -> float:
        """Return the seconds until a token is there; not positive if there is one."""
        return bucket.full_at - loop_time() - (self._burst - 1) * self._interval

    def _completes_round(self, bucket: _Bucket, fields: Mapping[str, str]) -> bool:
        """Return whether a write belongs to the present round: it has a field or a value that is new there."""
        return bucket.writes < WRITES_OF_A_ROUND and not _hashed(fields) <= bucket.round


def _hashed(fields: Mapping[str, str]) -> set[tuple[str, int]]:
    """Return the fields with hashes of their values, which can be long."""
    return {(name, hash(value)) for name, value in fields.items()}


class NamespaceTurns:
    """Keys in the order of their turns: the namespaces in turn, and first come first served within a namespace.

    Every operation takes constant time.
    """

    def __init__(self) -> None:
        # Of an ordinary dict, the first key is found only behind the gaps of all that were removed before it.
        self._namespaces: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __contains__(self, key: str) -> bool:
        return key in self._namespaces.get(_namespace_of(key), ())

    def add(self, key: str) -> None:
        """Add a key behind the others of its namespace, unless it is there already."""
        keys = self._namespaces.setdefault(_namespace_of(key), OrderedDict())
        if key not in keys:
            keys[key] = None
            self._length += 1

    def first(self, *, without: Container[str] = ()) -> str | None:
        """Return the key whose turn it is, of those that are not in ``without``; None if none exists."""
        for keys in self._namespaces.values():
            for key in keys:
                if key not in without:
                    return key
        return None

    def remove(self, key: str) -> None:
        """Remove a key without a turn. Raises KeyError."""
        namespace = _namespace_of(key)
        keys = self._namespaces[namespace]
        del keys[key]
        self._length -= 1
        if not keys:
            del self._namespaces[namespace]

    def take(self, key: str) -> None:
        """Remove a key that had its turn: the other namespaces are next. Raises KeyError."""
        namespace = _namespace_of(key)
        self.remove(key)
        if namespace in self._namespaces:
            self._namespaces.move_to_end(namespace)

    def clear(self) -> None:
        """Remove all keys."""
        self._namespaces.clear()
        self._length = 0


def _namespace_of(key: str) -> str:
    """Return the namespace of an object by its key; empty for a cluster-scoped one."""
    return key.rpartition("/")[0]


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
        self._draining = False

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
        if self._draining or key in self._urgent:
            return
        if key in self._background:
            self._background.remove(key)
        self._add(key, self._urgent)

    def enqueue_background(self, keys: Iterable[str]) -> None:
        """Reconcile the keys when no other key is queued."""
        for key in keys:
            if not self._draining and key not in self._queued_at:
                self._add(key, self._background)

    def enqueue_after(self, key: str, seconds: float) -> None:
        """Reconcile the key in ``seconds``, or earlier if it is enqueued before."""
        if self._draining:
            return
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

    async def drain(self, seconds: float) -> None:
        """Accept no more keys, and wait at most ``seconds`` for the reconciles in progress."""
        self._draining = True
        self._urgent.clear()
        self._background.clear()
        self._queued_at.clear()
        for key in list(self._timers):
            self._cancel_timer(key)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._active:
                    self._changed.clear()
                    await self._changed.wait()

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
        except CCMError as error:
            self._failed(key, error)
        except Exception as error:  # a bug that one object triggers must not stop the others
            log.exception("unexpected error in reconcile", controller=self.name, key=key)
            self._failed(key, error)
        else:
            self._succeeded(key, outcome)

    def _succeeded(self, key: str, outcome: Outcome) -> None:
        if isinstance(outcome, Wait | Refused):
            self.reasons[key] = outcome.reason
        else:
            self.reasons.pop(key, None)
        if isinstance(outcome, Wait) and outcome.at_most is not None:
            self.enqueue_after(key, outcome.at_most)
        self._failures.pop(key, None)
        if self._logged.pop(key, None) is not None:
            log.info("reconcile recovered", controller=self.name, key=key)

    def _failed(self, key: str, error: Exception) -> None:
        self.retries += 1
        self.reasons[key] = type(error).__name__
        self._failures[key] = self.failures(key) + 1
        delay, message = pause_after(error, self._failures[key]), normalized_message(str(error))
        # An outage lasts for many retries: log a failure once until its message changes. A few conflicts are normal.
        if delay >= BACKOFF_SECONDS and message != self._logged.get(key):
            self._logged[key] = message
            log.warning("reconcile failed", controller=self.name, key=key, error=str(error), retry_in=round(delay, 1))
        self.enqueue_after(key, delay)


class ObjectStates(Generic[T]):
    """State by object key and UID: an object that is recreated under the same name starts with new state."""

    def __init__(self, new: Callable[[], T]) -> None:
        """``new`` returns the initial state of an object."""
        self._new = new
        self._states: dict[str, tuple[str, T]] = {}

    def of(self, item: Object) -> T:
        """Return the state of an object; created on first use."""
        key, uid = item.metadata.key, item.metadata.uid
        known = self._states.get(key)
        if known is None or known[0] != uid:
            known = self._states[key] = (uid, self._new())
        return known[1]

    def forget(self, key: str) -> None:
        """Drop the state of the object with this key."""
        self._states.pop(key, None)
