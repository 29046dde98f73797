"""Events for people: written in the background, never in the way of real work.

The same message on the same object is one Event whose count grows. Every object has a budget (25 at once, then one per
five minutes), the queue is bounded, and an Event that the server refuses, or that cannot be written after a few tries,
is dropped: a lost Event must never hold up a Service.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Final

import structlog
from msgspec import Struct

from harvester_ccm.errors import CCMError, NotFound, ServerError, Throttled, Unreachable
from harvester_ccm.kube.backoff import Allowance, backoff
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.core import EVENTS
from harvester_ccm.model.meta import ObjectT, Resource
from harvester_ccm.model.outcome import EventMessage, EventType
from harvester_ccm.redaction import one_line, redact_text

QUEUE_LENGTH: Final = 1000
REMEMBERED: Final = 1024
"""Distinct Events whose name is kept in order to count repetitions."""
BUDGETS: Final = 4096
"""Objects whose budget is kept."""
TRIES: Final = 5
"""How often an Event is tried while the server is away or busy: it survives a restart of the server."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 10.0
"""Pauses in seconds between two tries."""
BURST: Final = 25
REFILL_SECONDS: Final = 300.0

log = structlog.get_logger(__name__)


class ObjectReference(Struct, frozen=True):
    """The object that an Event is about."""

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
        """Namespace in which its Events live; ``default`` for cluster-scoped objects."""
        return self.namespace or "default"


_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class _Key(Struct, frozen=True, gc=False):
    reference: ObjectReference
    type: EventType
    reason: str
    message: str
    component: str


def in_words(reason: str) -> str:
    """Return the reason of an Event as the message of a log line.

    >>> in_words("AddressPending"), in_words("VMNotFound"), in_words("InternalIPChanged")
    ('address pending', 'VM not found', 'internal IP changed')
    """
    words = _WORD.findall(reason)
    return " ".join(word if len(word) > 1 and word.isupper() else word.lower() for word in words)


class EventRecorder:
    """Writes Events of this program to the guest cluster. ``run`` must be running for anything to be written."""

    def __init__(self, client: ApiClient, *, host: str, first_pause: float = FIRST_PAUSE) -> None:
        self._client = client
        self._first_pause = first_pause
        self._host = host
        self._queue: asyncio.Queue[_Key] = asyncio.Queue(QUEUE_LENGTH)
        self._current: _Key | None = None
        self._written: OrderedDict[_Key, tuple[str, int]] = OrderedDict()
        """Name and count of the Events that were written last."""
        self._budgets: OrderedDict[ObjectReference, Allowance] = OrderedDict()
        self.dropped = 0
        """Events that were not written: queue full, budget used up, or refused."""

    def record(
        self, reference: ObjectReference, event_type: EventType, reason: str, message: str, *, component: str
    ) -> float:
        """Have an Event written soon; returns at once.

        Return 0, or the seconds after which the object may have one more: then the Event is dropped. What looks like a
        credential is taken out of the message: it may hold the words of a server or of what stands in between, which
        stay on its line, too.
        """
        budget, now = self._budgets.get(reference), asyncio.get_running_loop().time()
        if budget is None:
            budget = self._budgets[reference] = Allowance(BURST, REFILL_SECONDS)
            if len(self._budgets) > BUDGETS:
                self._budgets.popitem(last=False)
        later = budget.turn_in(now) or (LONGEST_PAUSE if self._queue.full() else 0.0)
        if later:
            self.dropped += 1
            return later
        budget.take(now)
        self._queue.put_nowait(_Key(reference, event_type, reason, one_line(redact_text(message)), component))
        return 0.0

    def emit(self, resource: Resource[ObjectT], item: ObjectT, event: EventMessage, *, component: str) -> float:
        """Have an Event about an object written soon, and log it; returns at once, and what ``record`` does."""
        reference = ObjectReference.of(resource, item)
        later = self.record(reference, event.type, event.reason, event.message, component=component)
        if not later:
            level = log.warning if event.type == "Warning" else log.debug
            about = {resource.kind.lower(): item.metadata.key}
            level(in_words(event.reason), **about, reason=str(event.reason), detail=event.message)
        return later

    async def run(self) -> None:
        """Write queued Events until cancelled."""
        while True:
            await self._write_next(tries=TRIES)

    async def flush(self) -> None:
        """Write what is queued at this moment; for shutdown, when ``run`` has ended, with a time limit around it."""
        for _ in range(self._queue.qsize() + (self._current is not None)):
            await self._write_next(tries=1)

    async def _write_next(self, *, tries: int) -> None:
        # What is being written when run is cancelled is left for the flush.
        if self._current is None:
            self._current = await self._queue.get()
        key = self._current
        for number in range(1, tries + 1):
            try:
                await self._write(key)
                break
            except (Unreachable, ServerError, Throttled) as error:
                if number == tries:
                    self._drop(key, error)
                else:
                    await asyncio.sleep(backoff(number, first=self._first_pause, longest=LONGEST_PAUSE))
            except CCMError as error:
                self._drop(key, error)
                break
        self._current = None

    def _drop(self, key: _Key, error: CCMError) -> None:
        self.dropped += 1
        log.debug("event not written", reason=key.reason, error=str(error), request_id=error.request_id)

    async def _write(self, key: _Key) -> None:
        if key in self._written:
            name, count = self._written[key]
            patch = {"count": count + 1, "lastTimestamp": wall_time()}
            try:
                await self._client.merge_patch(EVENTS, name, patch, namespace=key.reference.event_namespace)
            except NotFound:
                del self._written[key]
            else:
                self._written[key] = name, count + 1
                self._written.move_to_end(key)
                return
        await self._create(key)

    async def _create(self, key: _Key) -> None:
        reference, now = key.reference, wall_time()
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
            "type": key.type,
            "reason": key.reason,
            "message": key.message[:1024],
            "source": {"component": key.component, "host": self._host},
            "reportingComponent": key.component,
            "reportingInstance": self._host,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
        }
        await self._client.create(EVENTS, body, namespace=reference.event_namespace)
        self._written[key] = name, 1
        if len(self._written) > REMEMBERED:
            self._written.popitem(last=False)


def wall_time() -> str:
    """Return the time of day as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
