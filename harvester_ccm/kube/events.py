"""Event recorder: writes Events in the background and drops repeated ones.

Plans emit an Event for every state that holds, at every reconcile. The recorder writes an equal Event on an object
once, until one hour has passed since its last repetition. Resyncs are more frequent, so an Event for a persistent state
is written once in the life of the process. Every object has a token bucket (25 Events, then one per five minutes), the
queue is bounded, and an Event that the API server rejects is dropped: Events never delay a Service.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import Final

import structlog
from msgspec import Struct
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from harvester_ccm.errors import CCMError, ServerError, Throttled, Unreachable
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.flowcontrol import TokenBucket, loop_time, wall_time
from harvester_ccm.model.core import EVENTS
from harvester_ccm.model.meta import ObjectT, Resource
from harvester_ccm.model.outcome import EventMessage, EventType
from harvester_ccm.redaction import one_line, redact_text

QUEUE_LENGTH: Final = 1000
REPEAT_SECONDS: Final = 3600.0
"""Time since the last repetition of an Event after which it is written again; also the API server's default TTL."""
MAX_TRACKED: Final = 20_000
"""Maximum number of Events whose last repetition is tracked."""
MAX_BUCKETS: Final = 4096
"""Maximum number of objects with a token bucket."""
TRIES: Final = 5
"""Attempts to write an Event while the API server is unavailable: enough for a restart of the server."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 10.0
"""First and longest delay in seconds between two attempts."""
BURST: Final = 25
REFILL_SECONDS: Final = 300.0

log = structlog.get_logger(__name__)


class ObjectReference(Struct, frozen=True):
    """Reference to the object that an Event concerns."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, resource: Resource[ObjectT], item: ObjectT) -> ObjectReference:
        """Return the reference to an object of a resource type."""
        meta = item.metadata
        return cls(resource.api_version, resource.kind, meta.namespace, meta.name, meta.uid)

    @property
    def event_namespace(self) -> str:
        """Namespace of its Events; ``default`` for cluster-scoped objects."""
        return self.namespace or "default"


class _QueuedEvent(Struct, frozen=True, gc=False):
    reference: ObjectReference
    type: EventType
    reason: str
    message: str
    component: str


class EventRecorder:
    """Writes this controller's Events to the guest cluster while ``run`` is running."""

    def __init__(self, client: ApiClient, *, host: str) -> None:
        self._client = client
        self._host = host
        self._queue: asyncio.Queue[_QueuedEvent] = asyncio.Queue(QUEUE_LENGTH)
        self._current: _QueuedEvent | None = None
        """The Event that is being written; left for ``flush`` if ``run`` is cancelled."""
        self._last_seen: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        """Loop time of the last repetition by UID, reason and subject, the least recent first."""
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        """Token buckets by the UID of the object."""
        self.dropped = 0
        """Events that were not written: queue full, token bucket empty, or rejected."""

    def emit(self, resource: Resource[ObjectT], item: ObjectT, event: EventMessage, *, component: str) -> None:
        """Queue an Event about an object and log it, unless an equal one was emitted in the last hour."""
        key = (item.metadata.uid, event.reason, event.subject or event.message)
        if self._is_repeated(key):
            return
        reference = ObjectReference.of(resource, item)
        if not self.record(reference, event.type, event.reason, event.message, component=component):
            # Not emitted: the next reconcile tries again.
            del self._last_seen[key]
            return
        level = log.warning if event.type == "Warning" else log.debug
        about = {resource.kind.lower(): item.metadata.key}
        level("event emitted", **about, reason=str(event.reason), detail=event.message)

    def record(
        self, reference: ObjectReference, event_type: EventType, reason: str, message: str, *, component: str
    ) -> bool:
        """Queue an Event; return False if the limit of the object or of the queue drops it.

        Credentials are redacted and line ends removed, because the message can quote a server or a proxy.
        """
        now = loop_time()
        bucket = self._buckets.setdefault(reference.uid, TokenBucket(BURST, REFILL_SECONDS))
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        if bucket.delay(now) or self._queue.full():
            self.dropped += 1
            return False
        bucket.take(now)
        self._queue.put_nowait(_QueuedEvent(reference, event_type, reason, one_line(redact_text(message)), component))
        return True

    def _is_repeated(self, key: tuple[str, str, str]) -> bool:
        """Record that an Event was emitted; return whether an equal one was emitted in the last hour."""
        now = loop_time()
        last = self._last_seen.get(key)
        self._last_seen[key] = now
        self._last_seen.move_to_end(key)
        if len(self._last_seen) > MAX_TRACKED:
            self._last_seen.popitem(last=False)
        return last is not None and now - last < REPEAT_SECONDS

    async def run(self) -> None:
        """Write queued Events until cancelled."""
        while True:
            await self._write_next(tries=TRIES)

    async def flush(self) -> None:
        """Write the Events that are queued now, at shutdown. The caller sets a timeout."""
        for _ in range(self._queue.qsize() + (self._current is not None)):
            await self._write_next(tries=1)

    async def _write_next(self, *, tries: int) -> None:
        if self._current is None:
            self._current = await self._queue.get()
        retrying = AsyncRetrying(
            retry=retry_if_exception_type((Unreachable, ServerError, Throttled)),
            stop=stop_after_attempt(tries),
            wait=wait_exponential_jitter(multiplier=FIRST_PAUSE, max=LONGEST_PAUSE, jitter=FIRST_PAUSE),
            reraise=True,
        )
        try:
            await retrying(self._write, self._current)
        except CCMError as error:
            self.dropped += 1
            reason = self._current.reason
            log.debug("event not written", reason=reason, error=str(error), request_id=error.request_id)
        self._current = None

    async def _write(self, event: _QueuedEvent) -> None:
        reference, now = event.reference, wall_time()
        name = f"{reference.name}.{time.time_ns():x}"
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": reference.event_namespace},
            "involvedObject": {
                "apiVersion": reference.api_version,
                "kind": reference.kind,
                "name": reference.name,
                "uid": reference.uid,
                **({"namespace": reference.namespace} if reference.namespace else {}),
            },
            "type": event.type,
            "reason": event.reason,
            "message": event.message[:1024],
            "source": {"component": event.component, "host": self._host},
            "reportingComponent": event.component,
            "reportingInstance": self._host,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
        }
        await self._client.create(EVENTS, body, namespace=reference.event_namespace)
