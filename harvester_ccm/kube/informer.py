"""A live copy of a collection: list, watch, and list again when the watch cannot go on.

Guarantees: objects are delivered to the callbacks in the order of the server's versions; an older version never
replaces a newer one; an object missing from a new list is delivered as deleted; a callback never sees a half-filled
store: a list is taken in whole before anything is told (``synced`` is set then). A watch that is silent for longer
than ``SILENCE`` is given up and the collection is listed. Where watching is forbidden the collection is listed again
and again, slower and slower, and that is said once. A server that was restored from a backup counts its versions anew
from an older one; its list then replaces everything. So does a list in another version of the API.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Generic

import structlog

from harvester_ccm.errors import ApiError, CCMError, Forbidden, Gone, NotServed, WatchSilent
from harvester_ccm.kube.backoff import pause_after
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.collection import Page, WatchEvent
from harvester_ccm.model.meta import ObjectT, Resource

SILENCE: Final = 150.0
"""Seconds without a line after which a watch is dead; servers send a bookmark about every minute."""
WATCH_MINUTES: Final = (5.0, 10.0)
"""A watch asks the server to end it after a random time in this range."""
SECOND_CHOICE_SECONDS: Final = 20.0
"""The same where the collection is read in another version than the first choice, which is asked for after each."""
RECONNECT_SECONDS: Final = 0.2
"""Pause between a watch that ended and the next one."""
POLL_SECONDS: Final = (10.0, 60.0)
"""First and longest pause between two lists where watching is forbidden."""
SETTLED_SECONDS: Final = 15.0
"""After so long without a failure the next one counts as the first again."""
REFUSALS: Final = 3
"""So many refused watches in a row lead to a new list: the server may not know the version any more."""

Change = Callable[[ObjectT | None, ObjectT | None], None]
"""Called with (old, new); old is None for a new object, new is None for a deleted one."""
Choose = Callable[[CCMError | None], Awaitable[Resource[ObjectT]]]
"""Returns the version of the resource to read; called with the error when reading it as it is was refused, and with
None before every list and after every watch. Must not raise."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class InformerTiming:
    """How long an informer waits, in seconds."""

    silence: float = SILENCE
    watch: tuple[float, float] = (60 * WATCH_MINUTES[0], 60 * WATCH_MINUTES[1])
    second_choice_watch: float = SECOND_CHOICE_SECONDS
    reconnect: float = RECONNECT_SECONDS
    poll: tuple[float, float] = POLL_SECONDS
    settled: float = SETTLED_SECONDS
    pause_after: Callable[[CCMError, int], float] = pause_after
    """What is waited after a failure, the n-th in a row."""


USUAL_TIMING: Final = InformerTiming()


@dataclass(frozen=True)
class Selection:
    """Which part of a collection an informer holds."""

    namespace: str | None = None
    field_selector: str = ""
    label_selector: str = ""

    def params(self) -> dict[str, str]:
        """Return the query parameters of the selection."""
        pairs = {"fieldSelector": self.field_selector, "labelSelector": self.label_selector}
        return {key: value for key, value in pairs.items() if value}


class Informer(Generic[ObjectT]):
    """Cache of one collection with change callbacks and indexes."""

    def __init__(
        self,
        client: ApiClient,
        resource: Resource[ObjectT],
        selection: Selection | None = None,
        *,
        indexes: Mapping[str, Callable[[ObjectT], Iterable[str]]] | None = None,
        choose: Choose[ObjectT] | None = None,
        timing: InformerTiming = USUAL_TIMING,
    ) -> None:
        """``resource`` is the first choice; ``choose`` may name another version of it later."""
        self._client = client
        self._first_choice = self._resource = resource
        self._choose = choose
        self._is_other_version = False
        self._selection = selection or Selection()
        self._objects: dict[str, ObjectT] = {}
        self._indexers = dict(indexes or {})
        self._indexes: dict[str, dict[str, dict[str, None]]] = {name: {} for name in self._indexers}
        self._callbacks: list[Change[ObjectT]] = []
        self._state_callbacks: list[Callable[[], None]] = []
        self._rewind_callbacks: list[Callable[[], None]] = []
        self._seen = 0
        self._timing = timing
        self._setbacks = _Setbacks(timing)
        self._poll_seconds = 0.0
        self._synced = asyncio.Event()
        self.unread: frozenset[str] = frozenset()
        """Keys of objects that could not be decoded: that the store lacks them does not mean that they are gone."""
        self.problem: CCMError | None = None
        """Why the collection cannot be read at the moment; None while all is well."""
        self.restarts = 0
        """How often a watch was ended or lost since the start."""
        self.last_contact = float("-inf")
        """Loop time of the last sign of life of the server."""

    @property
    def name(self) -> str:
        """``cluster/resource``, for logs and metrics."""
        return f"{self._client.cluster}/{self._resource.plural}"

    @property
    def resource(self) -> Resource[ObjectT]:
        """What is read, in the version that was chosen."""
        return self._resource

    @property
    def synced(self) -> bool:
        """Whether the store was filled at least once."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return when the store is filled for the first time."""
        await self._synced.wait()

    def on_change(self, callback: Change[ObjectT]) -> None:
        """Have every change delivered to ``callback``, which must not block or raise."""
        self._callbacks.append(callback)

    def on_state(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called when ``synced`` or ``problem`` changes."""
        self._state_callbacks.append(callback)

    def on_rewind(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called when the server went back to older data, before the changes are delivered."""
        self._rewind_callbacks.append(callback)

    def get(self, key: str) -> ObjectT | None:
        """Return the object with this ``namespace/name`` or name."""
        return self._objects.get(key)

    def all(self) -> tuple[ObjectT, ...]:
        """Return all objects."""
        return tuple(self._objects.values())

    def by_index(self, index: str, value: str) -> tuple[ObjectT, ...]:
        """Return the objects for which the index function named ``value``."""
        return tuple(self._objects[key] for key in self._indexes[index].get(value, ()))

    def __len__(self) -> int:
        return len(self._objects)

    def observe(self, item: ObjectT) -> None:
        """Take the answer to a write of ours into the store, so that nothing is decided on what it replaced."""
        if _version(item) > self._seen:
            self._put(item)

    async def run(self) -> None:
        """Keep the store up to date until cancelled."""
        while True:
            try:
                await self._follow(await self._list())
            except Gone as error:
                log.debug("watch version too old", collection=self.name)
                pause = self._setbacks.pause(error)
                # Once is in order; a server that loses every version at once must not be asked without pause.
                if self._setbacks.count > 1:
                    await asyncio.sleep(pause)
            except CCMError as error:
                self._set_problem(error)
                await asyncio.sleep(self._setbacks.pause(error))

    async def _list(self) -> str:
        """Fill the store; return the version it has."""
        await self._chose_otherwise(None)
        try:
            page = await self._read_page()
        except NotServed as error:
            if not await self._chose_otherwise(error):
                raise
            page = await self._read_page()
        self.unread = page.unread
        self._replace_all(page.items, page.resource_version)
        first, switched = not self.synced, self._is_other_version
        self._is_other_version = False
        self._set_problem(None)
        self._synced.set()
        if first:
            log.debug("collection synced", collection=self.name, objects=len(self._objects))
        if first or switched:
            self._changed_state()
        return page.resource_version

    async def _read_page(self) -> Page[ObjectT]:
        return await self._client.list(
            self._resource, namespace=self._selection.namespace, params=self._selection.params()
        )

    async def _chose_otherwise(self, error: CCMError | None) -> bool:
        """Return whether the collection is to be read in another version from now on; it has to be listed then."""
        if self._choose is None:
            return False
        chosen = await self._choose(error)
        if chosen == self._resource:
            return False
        self._resource, self._is_other_version = chosen, True
        return True

    async def _follow(self, version: str) -> None:
        """Apply changes after ``version``, over lost connections too, until a new list is needed."""
        while True:
            try:
                async with aclosing(self._watch_once(version)) as events:
                    async for event in events:
                        self._poll_seconds = 0.0
                        self._set_problem(None)
                        version = event.resource_version or version
                        self._apply(event)
                # A server that ends every watch at once must not be asked without pause.
                await asyncio.sleep(self._timing.reconnect)
            except Gone:
                raise
            except Forbidden:
                version = await self._poll()
            except CCMError as error:
                self._set_problem(error)
                await asyncio.sleep(self._setbacks.pause(error))
                # A server that went back to older data accepts a version of its future and then sends nothing.
                if isinstance(error, WatchSilent) or (_is_refusal(error) and self._setbacks.count >= REFUSALS):
                    return
            self.restarts += 1
            if await self._chose_otherwise(None):
                return

    async def _poll(self) -> str:
        """List, at first at once and then after growing pauses, and return the version."""
        await asyncio.sleep(self._poll_seconds)
        # A list that is forbidden too means that all access is lost, which must be known at once.
        version = await self._list()
        if not self._poll_seconds:
            log.warning("watch forbidden, listing instead", collection=self.name)
        shortest, longest = self._timing.poll
        self._poll_seconds = min(max(shortest, self._poll_seconds * 2), longest)
        return version

    def _watch_once(self, version: str) -> AsyncGenerator[WatchEvent[ObjectT], None]:
        seconds = int(random.uniform(*self._timing.watch))
        if self._resource != self._first_choice:
            seconds = int(self._timing.second_choice_watch)
        params = {**self._selection.params(), "resourceVersion": version, "timeoutSeconds": str(seconds)}
        silence = self._timing.silence
        return self._client.watch(self._resource, namespace=self._selection.namespace, params=params, silence=silence)

    def _apply(self, event: WatchEvent[ObjectT]) -> None:
        self.last_contact = asyncio.get_running_loop().time()
        self._seen = max(self._seen, _number(event.resource_version))
        key = event.unread if event.object is None else event.object.metadata.key
        if not key:
            return
        self.unread -= {key}
        if event.type == "DELETED":
            current = self._objects.get(key)
            if current is not None and _version(current) <= _number(event.resource_version):
                self._deliver(self._store(key, None))
        elif event.object is None:
            self.unread |= {key}
        else:
            self._put(event.object)

    def _replace_all(self, items: Iterable[ObjectT], version: str) -> None:
        self.last_contact = asyncio.get_running_loop().time()
        listed = _number(version)
        rewound = listed < self._seen
        if rewound:
            log.warning("server went back to older data", collection=self.name, version=version)
            for callback in self._rewind_callbacks:
                callback()
        self._seen = listed
        changes: list[tuple[ObjectT | None, ObjectT | None]] = []
        present = set()
        for item in items:
            key = item.metadata.key
            present.add(key)
            old = self._objects.get(key)
            if (
                old is None
                or _supersedes(item, old)
                or (rewound and _version(item) != _version(old))
                or (self._is_other_version and item != old)
            ):
                changes.append(self._store(key, item))
        for key, old in list(self._objects.items()):
            if key not in present and (rewound or _version(old) <= listed):
                changes.append(self._store(key, None))
        for change in changes:
            self._deliver(change)

    def _put(self, item: ObjectT) -> None:
        old = self._objects.get(item.metadata.key)
        if old is None or _supersedes(item, old):
            self._deliver(self._store(item.metadata.key, item))

    def _store(self, key: str, new: ObjectT | None) -> tuple[ObjectT | None, ObjectT | None]:
        """Put an object into the store, or take it out; return the change that has to be delivered."""
        old = self._objects.get(key)
        for name, values_of in self._indexers.items():
            index = self._indexes[name]
            for value in values_of(old) if old is not None else ():
                keys = index.get(value, {})
                keys.pop(key, None)
                if not keys:
                    index.pop(value, None)
            for value in values_of(new) if new is not None else ():
                index.setdefault(value, {})[key] = None
        if new is not None:
            self._objects[key] = new
        else:
            del self._objects[key]
        return old, new

    def _deliver(self, change: tuple[ObjectT | None, ObjectT | None]) -> None:
        for callback in self._callbacks:
            callback(*change)

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
        self._changed_state()

    def _changed_state(self) -> None:
        for callback in self._state_callbacks:
            callback()


class _Setbacks:
    """Failures in a row, and the pauses that they cost."""

    def __init__(self, timing: InformerTiming) -> None:
        self.count = 0
        self._timing = timing
        self._until = float("-inf")

    def pause(self, error: CCMError) -> float:
        """Count a failure and return the seconds to wait."""
        now = asyncio.get_running_loop().time()
        self.count = self.count + 1 if now < self._until + self._timing.settled else 1
        seconds = self._timing.pause_after(error, self.count)
        self._until = now + seconds
        return seconds


def _is_refusal(error: CCMError) -> bool:
    """Return whether the server read the request and will not serve it, rather than being busy or away."""
    return isinstance(error, ApiError) and error.answer.status != 429


def _supersedes(new: ObjectT, old: ObjectT) -> bool:
    return not _version(old) >= _version(new) > 0


def _version(item: ObjectT) -> int:
    return _number(item.metadata.resource_version)


def _number(version: str) -> int:
    # Versions of one server are comparable numbers (KEP-5504); with any others every event counts as new.
    return int(version) if version.isdecimal() else 0
