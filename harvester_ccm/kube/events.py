"""Event recorder: writes Events in the background and drops repeated ones.

A controller emits an Event for every state that holds, at every reconcile. The recorder writes an equal one on an
object once. A Warning that still holds is written again before the API server deletes it, so that the object always
shows what is wrong. Every object has a token bucket (25 Events, then one per five minutes), the queue is bounded, and
an Event that the API server rejects is dropped: Events never delay a reconcile. Namespaces take turns, and if the queue
is full, the namespace with the most Events loses one.
"""

import asyncio
import math
import time
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal, Protocol

import structlog

from harvester_ccm.kube.backoff import repeat
from harvester_ccm.kube.builtin import EVENTS
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time, wall_time
from harvester_ccm.kube.errors import AlreadyExists, KubeError, NotServed, ServerError, Throttled, Unreachable
from harvester_ccm.kube.objects import ObjectMeta, ObjectT, Resource
from harvester_ccm.kube.turns import NamespaceTurns
from harvester_ccm.kube.write_limit import WriteRateLimiter

QUEUE_LENGTH: Final = 1000
REPEAT_SECONDS: Final = 2700.0
"""Time after which an equal Event is written again: since the last one was written for a Warning, since it was emitted
for others. The API server keeps an Event for one hour by default."""
MAX_TRACKED: Final = 20_000
"""Maximum number of Events whose last repetition is tracked."""
TRIES: Final = 6
"""Attempts to write an Event while the API server, or a proxy in front of it, has no answer: enough for a restart."""
_NO_ANSWER: Final = (Unreachable, NotServed, ServerError, Throttled)
"""Errors that say nothing about the Event."""
BURST: Final = 25
REFILL_SECONDS: Final = 300.0

MAX_NAME: Final = 253
"""Characters of the name of an object."""

_Key = tuple[str, str, int]
"""UID of the object, reason and subject: what makes two Events equal."""

log = structlog.get_logger(__name__)


class EventContent(Protocol):
    """What an Event says."""

    @property
    def type(self) -> Literal["Normal", "Warning"]:
        """``Normal`` or ``Warning``."""

    @property
    def reason(self) -> str:
        """A word in CamelCase."""

    @property
    def message(self) -> str:
        """The text: of limited length, with neither credentials nor line ends."""

    @property
    def subject(self) -> str:
        """Events on one object with the same reason and subject are equal; empty if the message decides."""


class _Waiting:
    """The Events that wait to be written, in the order of their turns."""

    def __init__(self) -> None:
        self._turns = NamespaceTurns()
        self._events: dict[str, dict[str, Any]] = {}
        """By namespace and name."""
        self._added = asyncio.Event()

    def __len__(self) -> int:
        return len(self._events)

    def make_room(self, namespace: str) -> bool:
        """Drop the newest Event of the namespace with the most, unless that is the given one; return whether it did."""
        key = self._turns.newest_of_most(namespace)
        if key is None:
            return False
        self._turns.remove(key)
        del self._events[key]
        return True

    def put(self, event: dict[str, Any]) -> None:
        """Let an Event wait for its turn."""
        meta = event["metadata"]
        key = f"{meta['namespace']}/{meta['name']}"
        self._turns.add(key)
        self._events[key] = event
        self._added.set()

    async def get(self) -> dict[str, Any]:
        """Remove the Event whose turn it is and return it, as soon as there is one."""
        while True:
            key = self._turns.first()
            if key is not None:
                self._turns.take(key)
                return self._events.pop(key)
            self._added.clear()
            await self._added.wait()


class EventRecorder:
    """Writes Events while ``run`` is running."""

    def __init__(self, client: ApiClient, *, host: str) -> None:
        self._client = client
        self._host = host
        self._waiting = _Waiting()
        self._last_seen: dict[_Key, float] = {}
        """Loop time from which the repetitions of an Event count, the least recent first."""
        self._limiter = WriteRateLimiter(BURST, REFILL_SECONDS)
        self.dropped = 0
        """Events that were not written: queue full, too many for one object, or rejected."""

    def emit(self, resource: Resource[ObjectT], item: ObjectT, event: EventContent, *, component: str) -> None:
        """Queue an Event about an object and log it, unless it is a repetition."""
        meta = item.metadata
        # A hash, because users who write the object decide on the length of the text.
        key = (meta.uid, str(event.reason), hash(event.subject or event.message))
        if self._is_repeated(key, event):
            return
        if self._limiter.delay(meta.uid) or not self._has_room(meta.namespace or "default"):
            # Not tracked: the next reconcile tries again.
            self.dropped += 1
            return
        self._track(key)
        self._limiter.record(meta.uid)
        self._waiting.put(self._document(resource, meta, event, component))
        level = log.warning if event.type == "Warning" else log.debug
        about = {resource.kind.lower(): meta.key}
        level("event emitted", **about, reason=str(event.reason), detail=event.message)

    def _has_room(self, namespace: str) -> bool:
        """Return whether an Event of a namespace can be queued, perhaps instead of one of a namespace with more."""
        if len(self._waiting) < QUEUE_LENGTH:
            return True
        has_room = self._waiting.make_room(namespace)
        self.dropped += has_room
        return has_room

    def _is_repeated(self, key: _Key, event: EventContent) -> bool:
        """Return whether an equal Event is not to be written yet. What is no Warning begins its time again."""
        last = self._last_seen.get(key, -math.inf)
        if loop_time() - last >= REPEAT_SECONDS:
            return False
        if event.type != "Warning":
            self._track(key)
        return True

    def _track(self, key: _Key) -> None:
        self._last_seen.pop(key, None)
        self._last_seen[key] = loop_time()
        if len(self._last_seen) > MAX_TRACKED:
            del self._last_seen[next(iter(self._last_seen))]

    def _document(
        self, resource: Resource[ObjectT], meta: ObjectMeta, event: EventContent, component: str
    ) -> dict[str, Any]:
        """Return the Event as it is written."""
        now = wall_time()
        return {
            "metadata": {"name": _name_of_event(meta.name), "namespace": meta.namespace or "default"},
            "involvedObject": {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
            },
            "type": event.type,
            "reason": event.reason,
            "message": event.message,
            "source": {"component": component, "host": self._host},
            "reportingComponent": component,
            "reportingInstance": self._host,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
        }

    async def run(self) -> None:
        """Write queued Events until cancelled."""
        while True:
            await self._write(await self._waiting.get(), tries=TRIES)

    async def flush(self) -> None:
        """Write the Events that are queued now, at shutdown. The caller sets a timeout."""
        for _ in range(len(self._waiting)):
            await self._write(await self._waiting.get(), tries=1)

    async def _write(self, body: dict[str, Any], *, tries: int) -> None:
        try:
            await repeat(partial(self._create, body), on=_NO_ANSWER, attempts=tries)
        except KubeError as error:
            self.dropped += 1
            log.debug("event not written", reason=body["reason"], error=str(error))

    async def _create(self, body: dict[str, Any]) -> None:
        # A repetition whose first response was lost has the same name.
        with suppress(AlreadyExists):
            await self._client.create(EVENTS, body, namespace=body["metadata"]["namespace"])


def _name_of_event(name: str) -> str:
    """Return a new name for an Event about an object; a name has at most 253 characters, and none ends in a separator.

    >>> len(_name_of_event("x" * 253)) <= 253
    True
    """
    suffix = f".{time.time_ns():x}"
    return name[: MAX_NAME - len(suffix)].rstrip(".-") + suffix
