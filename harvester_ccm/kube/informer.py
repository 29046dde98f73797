"""Informer: an indexed store that follows one collection by list and watch, as in client-go.

* A watch that worked and then ended is opened again at once, from its last resource version.
* After any other end of a watch the collection is listed again, with backoff: an API server that was away might have
  been restored from a backup, and would then accept a future version and send nothing.
* The collection is also listed every 30 to 60 minutes, because a proxy can lose watch events without an error.
* If watching is forbidden, the collection is listed every minute.

Errors never end an informer. ``problem`` is the current error, and the store keeps its objects meanwhile.

A list replaces the whole store. Between two lists, resource versions decide: a watch event or the response to a write
never replaces a newer object. A list that was slow can bring back an older object for the milliseconds until the watch
delivers the newer one; writes that are planned on it fail by their preconditions.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from typing import Final, Generic

import structlog
from msgspec import Struct

from harvester_ccm.errors import CCMError, Forbidden, Gone, UnexpectedAnswer, Unreachable, WatchSilent
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.flowcontrol import loop_time, pause_after
from harvester_ccm.model.meta import ObjectT, Page, Resource, WatchEvent

SILENCE_SECONDS: Final = 150.0
"""Time without any line after which a watch counts as dead; API servers send a bookmark about every minute."""
WATCH_SECONDS: Final = (300.0, 600.0)
"""Range of the duration that a watch requests."""
RECONNECT_SECONDS: Final = 0.2
"""Delay between the end of a working watch and the next one."""
WORKED_SECONDS: Final = 0.5
"""Time after which an accepted watch counts as working; a watch that delivered a line counts before."""
RELIST_SECONDS: Final = (1800.0, 3600.0)
"""Range of the interval between two lists."""
POLL_SECONDS: Final = 60.0
"""Interval between two lists if watching is forbidden."""
BACKOFF_GROWTH: Final = 1.08
"""The delay grows by less than a tenth of the time that the API server has been unavailable."""

Change = Callable[[ObjectT | None, ObjectT | None], None]
"""Called with the old and the new object; None for the old one if it was created, for the new one if it was deleted."""

log = structlog.get_logger(__name__)


class Selection(Struct, frozen=True):
    """The part of a collection that an informer follows."""

    namespace: str | None = None
    field_selector: str = ""

    def params(self) -> dict[str, str]:
        """Return the query parameters of the selection."""
        return {"fieldSelector": self.field_selector} if self.field_selector else {}


class Store(Generic[ObjectT]):
    """Objects by key, with change callbacks and indexes."""

    def __init__(self, indexes: Mapping[str, Callable[[ObjectT], Iterable[str]]] | None = None) -> None:
        """``indexes`` maps the name of an index to the function that returns the values of an object in it."""
        self._objects: dict[str, ObjectT] = {}
        self._index_functions = dict(indexes or {})
        # Tuples: most values belong to one object, and a set for each of thousands would be larger than the objects.
        self._indexes: dict[str, dict[str, tuple[str, ...]]] = {name: {} for name in self._index_functions}
        self._callbacks: list[Change[ObjectT]] = []
        self._version = 0
        """Resource version of the last list or watch event."""
        self.unread: frozenset[str] = frozenset()
        """Keys of objects that could not be decoded. They exist although the store lacks them."""

    def on_change(self, callback: Change[ObjectT]) -> None:
        """Call ``callback`` for every change, after the store contains it. It must not block or raise."""
        self._callbacks.append(callback)

    def get(self, key: str) -> ObjectT | None:
        """Return the object with this ``namespace/name`` or name."""
        return self._objects.get(key)

    def all(self) -> tuple[ObjectT, ...]:
        """Return all objects."""
        return tuple(self._objects.values())

    def by_index(self, index: str, value: str) -> tuple[ObjectT, ...]:
        """Return the objects that have this value in the index."""
        return tuple(self._objects[key] for key in self._indexes[index].get(value, ()))

    def __len__(self) -> int:
        return len(self._objects)

    def observe(self, item: ObjectT) -> None:
        """Store the response to a write, so that the next plan is not based on the object before it."""
        meta = item.metadata
        if meta.deleting and not meta.finalizers:
            # The API server deletes an object with its last finalizer; the response still has the version before.
            self.remove(meta.key, meta.uid)
        # The watch has already delivered everything up to its version, including a deletion of this object.
        elif _version(item) > self._version:
            self._put(item)

    def remove(self, key: str, uid: str) -> None:
        """Remove the object with this UID, which a response says is gone."""
        current = self._objects.get(key)
        if current is not None and current.metadata.uid == uid:
            self._notify(*self._set(key, None))

    def _replace_all(self, page: Page[ObjectT]) -> None:
        """Store a list and call the callbacks."""
        listed = {item.metadata.key: item for item in page.items}
        # An object that could not be decoded exists: keep its last version that could.
        removed = [key for key in self._objects if key not in listed and key not in page.unread]
        changed = [key for key, item in listed.items() if self._objects.get(key) != item]
        self._version, self.unread = _number(page.resource_version), page.unread
        # A callback must not see a half-filled store.
        changes = [self._set(key, listed.get(key)) for key in (*removed, *changed)]
        for old, new in changes:
            self._notify(old, new)

    def _apply(self, event: WatchEvent[ObjectT]) -> None:
        """Store the change that a watch event describes."""
        version = _number(event.resource_version)
        self._version = max(self._version, version)
        key = event.unread if event.object is None else event.object.metadata.key
        if not key:
            return
        self.unread -= {key}
        current = self._objects.get(key)
        if event.type == "DELETED":
            if current is not None and _version(current) <= version:
                self._notify(*self._set(key, None))
        elif event.object is None:
            self.unread |= {key}
        else:
            self._put(event.object)

    def _put(self, item: ObjectT) -> None:
        current = self._objects.get(item.metadata.key)
        if current is None or not _version(current) >= _version(item) > 0:
            self._notify(*self._set(item.metadata.key, item))

    def _set(self, key: str, new: ObjectT | None) -> tuple[ObjectT | None, ObjectT | None]:
        """Store or remove an object and update the indexes; return the old and the new one."""
        old = self._objects.get(key)
        for name, values_of in self._index_functions.items():
            index = self._indexes[name]
            before = dict.fromkeys(values_of(old)) if old is not None else {}
            after = dict.fromkeys(values_of(new)) if new is not None else {}
            for value in before.keys() - after.keys():
                index[value] = tuple(other for other in index[value] if other != key)
                if not index[value]:
                    del index[value]
            for value in after.keys() - before.keys():
                index[value] = (*index.get(value, ()), key)
        if new is not None:
            self._objects[key] = new
        else:
            del self._objects[key]
        return old, new

    def _notify(self, old: ObjectT | None, new: ObjectT | None) -> None:
        for callback in self._callbacks:
            callback(old, new)


class Informer(Store[ObjectT]):
    """A store that follows one collection while ``run`` is running."""

    def __init__(
        self,
        client: ApiClient,
        resource: Resource[ObjectT],
        selection: Selection | None = None,
        *,
        indexes: Mapping[str, Callable[[ObjectT], Iterable[str]]] | None = None,
    ) -> None:
        super().__init__(indexes)
        self._client = client
        self.resource = resource
        self._selection = selection or Selection()
        self._state_callbacks: list[Callable[[], None]] = []
        self._failures = 0
        """Errors in a row since the last working watch."""
        self._synced = asyncio.Event()
        self.problem: CCMError | None = None
        """Why the collection cannot be read now; None if it can."""
        self.last_contact = float("-inf")
        """Loop time of the last list or watch event."""

    @property
    def name(self) -> str:
        """``cluster/resource``, for logs and metrics."""
        return f"{self._client.cluster}/{self.resource.plural}"

    @property
    def synced(self) -> bool:
        """Whether the collection was listed at least once."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return when the collection was listed for the first time."""
        await self._synced.wait()

    def on_state(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when ``synced`` or the kind of ``problem`` changes."""
        self._state_callbacks.append(callback)

    async def run(self) -> None:
        """Follow the collection until cancelled."""
        watch_forbidden = False
        while True:
            try:
                version = await self._list()
                try:
                    await self._follow(version)
                    watch_forbidden = False
                except Forbidden:
                    if not watch_forbidden:
                        log.warning("watch forbidden, listing instead", collection=self.name, seconds=POLL_SECONDS)
                    watch_forbidden = True
                    await asyncio.sleep(POLL_SECONDS)
            except Gone as error:
                # Expired versions are normal: list at once, and back off only if they expire again and again.
                log.debug("watch version too old", collection=self.name)
                delay = self._next_delay(error)
                await asyncio.sleep(delay if self._failures > 1 else 0)
            except CCMError as error:
                self._set_problem(error)
                await asyncio.sleep(self._next_delay(error))

    def _next_delay(self, error: CCMError) -> float:
        self._failures += 1
        return pause_after(error, self._failures, growth=BACKOFF_GROWTH)

    async def _list(self) -> str:
        """Replace the store; return the resource version of the list."""
        page = await self._client.list(
            self.resource, namespace=self._selection.namespace, params=self._selection.params()
        )
        self.last_contact = loop_time()
        self._replace_all(page)
        self._set_problem(None)
        if not self.synced:
            self._synced.set()
            log.debug("collection synced", collection=self.name, objects=len(self))
            self._state_changed()
        return page.resource_version

    async def _follow(self, version: str) -> None:
        """Watch from this version until the next list is due. Raises CCMError if a watch did not work."""
        with suppress(TimeoutError):
            async with asyncio.timeout(random.uniform(*RELIST_SECONDS)):
                while True:
                    version = await self._watch(version)
                    self._failures = 0
                    await asyncio.sleep(RECONNECT_SECONDS)

    async def _watch(self, version: str) -> str:
        """Watch until a working watch ends; return the version to continue from. Raises CCMError if it did not work."""
        params = {
            **self._selection.params(),
            "resourceVersion": version,
            "timeoutSeconds": str(int(random.uniform(*WATCH_SECONDS))),
        }
        watch = self._client.watch(
            self.resource, namespace=self._selection.namespace, params=params, silence=SILENCE_SECONDS
        )
        accepted_at, end = math.inf, Unreachable("the watch ended at once")
        try:
            async with aclosing(watch) as events:
                async for event in events:
                    self.last_contact = loop_time()
                    self._set_problem(None)
                    if event.resource_version:
                        version, accepted_at, self._failures = event.resource_version, -math.inf, 0
                        self._apply(event)
                    else:
                        accepted_at = loop_time()
        except Unreachable as error:
            # The next watch would meet a silent server, or an event that cannot be read, again.
            if isinstance(error, WatchSilent | UnexpectedAnswer):
                raise
            end = error
        if loop_time() - accepted_at < WORKED_SECONDS:
            raise end
        return version

    def _set_problem(self, problem: CCMError | None) -> None:
        before, self.problem = self.problem, problem
        if type(before) is type(problem):
            return
        if problem is None:
            log.info("collection readable again", collection=self.name)
        else:
            log.warning(
                "collection cannot be read", collection=self.name, error=str(problem), request_id=problem.request_id
            )
        self._state_changed()

    def _state_changed(self) -> None:
        for callback in self._state_callbacks:
            callback()


def _version(item: ObjectT) -> int:
    return _number(item.metadata.resource_version)


def _number(version: str) -> int:
    # Resource versions of one API server are comparable integers (KEP-5504). For any other format, each event is newer.
    return int(version) if version.isdecimal() else 0
