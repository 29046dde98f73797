"""Informer: an indexed store that follows one collection by list and watch, as in client-go.

* A watch that worked and then ended is opened again at once, from its last resource version.
* After any other end of a watch the collection is listed again, with backoff: an API server that was away might have
  been restored from a backup, and would then accept a future version and send nothing.
* The collection is also listed every 30 to 60 minutes, because a proxy can lose watch events without an error.
* A 404 that names an object removes it. If the watch does not report the deletion soon, the collection is listed.
* After a Conflict the object is read, because the watch may have lost its last change.
* A response that contradicts what the watch has delivered shows that the API server was restored from a backup, or that
  the watch has lost a change: the collection is listed.
* If watching is forbidden, the collection is listed every minute.

Errors never end an informer. ``problem`` is the current error, and the store keeps its objects meanwhile.

A list replaces the whole store. Between two lists, resource versions decide: a watch event or the response to a request
never replaces a newer object. A list that was slow can bring back an older object for the milliseconds until the watch
delivers the newer one; writes that are planned on it fail by their preconditions.
"""

import asyncio
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Final

import structlog

from harvester_ccm.kube.backoff import pause_after
from harvester_ccm.kube.client import MERGE_PATCH, ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.documents import Page, Unread, WatchEvent
from harvester_ccm.kube.errors import (
    Conflict,
    Forbidden,
    Gone,
    KubeError,
    NotFound,
    UnexpectedAnswer,
    Unreachable,
    WatchSilent,
)
from harvester_ccm.kube.objects import ObjectT, Resource
from harvester_ccm.kube.store import Store

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
CONFIRMATION_SECONDS: Final = 30.0
"""Time in which the watch must report a deletion that a 404 has shown; else it lost the event, and perhaps others."""
POLL_SECONDS: Final = 60.0
"""Interval between two lists if watching is forbidden."""
LOGGED_OBJECTS: Final = 10
"""Objects of a list that could not be decoded that are logged by name."""
BACKOFF_GROWTH: Final = 1.08
"""The delay grows by less than a tenth of the time that the API server has been unavailable."""

log = structlog.get_logger(__name__)


class Informer(Store[ObjectT]):
    """A store that follows one collection while ``run`` is running."""

    def __init__(
        self,
        client: ApiClient,
        resource: Resource[ObjectT],
        *,
        namespace: str | None = None,
        field_selector: str = "",
        indexes: Mapping[str, Callable[[ObjectT], Iterable[str]]] = {},
    ) -> None:
        super().__init__(indexes=indexes)
        self._client = client
        self.resource = resource
        self._namespace = namespace
        self._params = {"fieldSelector": field_selector} if field_selector else {}
        self._state_callbacks: list[Callable[[], None]] = []
        self._failures = 0
        """Errors in a row since the last working watch."""
        self._synced = asyncio.Event()
        self._relist: asyncio.Timeout | None = None
        """Ends the present watch when the next list is due; None while none is open."""
        self._relist_due = 0.0
        """Loop time of the next list if every deletion is reported."""
        self._unreported: set[str] = set()
        """Keys of objects that a 404 removed and whose deletion the watch has not reported."""
        self.version = 0
        """Resource version of the last list or watch event: the watch has delivered everything up to it."""
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

    def observe(self, item: ObjectT) -> None:
        """Store an object from a response, so that the next plan is not based on the one before it."""
        meta = item.metadata
        current = self._objects.get(meta.key)
        if _is_removed(item):
            self.remove(meta.key, meta.uid)
        elif current is not None and _version(item) > _version(current):
            # Also if the watch is beyond this version already: then it has lost the change.
            self._put(item)
        # The watch has already delivered everything up to its version, including a deletion of this object.
        elif _version(item) > self.version:
            self._put(item)

    def observe_current(self, known: ObjectT, current: ObjectT) -> None:
        """Store the response to a read or a patch of an object of which ``known`` was in the store before.

        The response has the last version, so an older one, or another object of the same version, contradicts the
        store. The response to the removal of the last finalizer has the version before.
        """
        if current == known or _is_later(current, _version(known)) or _is_removed(current):
            self.observe(current)
        else:
            self._go_back_to(current)

    def observe_missing(self, found: ObjectT, seen: int) -> None:
        """Store the response to a read or the creation of an object that was not in the store before.

        ``seen`` is ``version`` before the request. The watch had delivered everything up to it, so an object that is
        not newer contradicts the store.
        """
        if _is_later(found, seen):
            self.observe(found)
        else:
            self._go_back_to(found)

    def _go_back_to(self, item: ObjectT) -> None:
        """Store a response that contradicts the store, and list the collection at once.

        The API server was restored from a backup without an error on the watch, which waits for a future version now,
        or the watch has lost a change.
        """
        log.warning("response contradicts the watch", collection=self.name, name=item.metadata.key)
        self._list_at(loop_time())
        self._notify(*self._set(item.metadata.key, item))

    def remove(self, key: str, uid: str) -> None:
        """Remove the object with this UID, which a response says is gone."""
        current = self._objects.get(key)
        if current is not None and current.metadata.uid == uid:
            self._notify(*self._set(key, None))

    def not_found(self, item: ObjectT, error: NotFound) -> None:
        """Remove an object that a request did not find; the watch normally reports the deletion at the same time.

        Only a Status about this object or its namespace counts, and another object that has the key now stays. An event
        that the watch delivers late brings the object back until the next request or list.
        """
        meta = item.metadata
        current = self._objects.get(meta.key)
        if current is None or current.metadata.uid != meta.uid:
            return
        if error.answer.about not in {meta.name, meta.namespace}:
            return
        if not self._unreported:
            self._list_at(loop_time() + CONFIRMATION_SECONDS)
        self._unreported.add(meta.key)
        self.remove(meta.key, meta.uid)

    async def refresh(self, item: ObjectT) -> None:
        """Read an object whose write was a Conflict: if the watch has lost its last change, every further one would be.

        Errors are ignored; the next Conflict is the next occasion.
        """
        meta = item.metadata
        try:
            live = await self._client.get(self.resource, meta.name, namespace=meta.namespace or None)
        except NotFound as error:
            self.not_found(item, error)
        except KubeError as error:
            log.debug("object not read", collection=self.name, name=meta.key, error=str(error))
        else:
            self.observe_current(item, live)

    async def patch(
        self,
        item: ObjectT,
        body: Mapping[str, object],
        *,
        subresource: str | None = None,
        content_type: str = MERGE_PATCH,
    ) -> ObjectT:
        """Patch an object of the store, and store the response. Raises Conflict if it is gone or has changed."""
        meta = item.metadata
        try:
            written = await self._client.merge_patch(
                self.resource,
                meta.name,
                body,
                namespace=meta.namespace or None,
                subresource=subresource,
                content_type=content_type,
            )
        except NotFound as error:
            self.not_found(item, error)
            raise Conflict(error.answer) from error
        except Conflict:
            await self.refresh(item)
            raise
        self.observe_current(item, written)
        return written

    async def delete(self, item: ObjectT) -> bool:
        """Delete an object in this version; False if it was gone already. Raises Conflict if it has changed."""
        meta = item.metadata
        try:
            held = await self._client.delete(
                self.resource, meta.name, namespace=meta.namespace or None, uid=meta.uid, version=meta.resource_version
            )
        except NotFound as error:
            self.not_found(item, error)
            return False
        except Conflict:
            await self.refresh(item)
            raise
        if held is None:
            self.remove(meta.key, meta.uid)
        else:
            self.observe(held)
        return True

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
                        log.warning("watch forbidden", collection=self.name, seconds=POLL_SECONDS)
                    watch_forbidden = True
                    await asyncio.sleep(POLL_SECONDS)
            except KubeError as error:
                # Expired versions are normal.
                if not isinstance(error, Gone):
                    self._set_problem(error)
                self._failures += 1
                await asyncio.sleep(pause_after(error, self._failures, growth=BACKOFF_GROWTH))

    async def _list(self) -> str:
        """Replace the store; return the resource version of the list."""
        page = await self._client.list(self.resource, namespace=self._namespace, params=self._params)
        self.last_contact = loop_time()
        self._replace_all(page)
        self._set_problem(None)
        if not self.synced:
            self._synced.set()
            log.debug("collection synced", collection=self.name, objects=len(self))
            self._state_changed()
        return page.resource_version

    async def _follow(self, version: str) -> None:
        """Watch from this version until the next list is due. Raises KubeError if a watch did not work."""
        self._relist_due = loop_time() + random.uniform(*RELIST_SECONDS)
        try:
            async with asyncio.timeout_at(self._relist_due) as self._relist:
                while True:
                    version = await self._watch(version)
                    self._failures = 0
                    await asyncio.sleep(RECONNECT_SECONDS)
        except TimeoutError:
            if self._unreported:
                log.warning("watch lost a deletion", collection=self.name, name=min(self._unreported))
        finally:
            self._relist = None

    async def _watch(self, version: str) -> str:
        """Watch until a working watch ends; return the version to continue from. Raises KubeError if none worked."""
        params = {
            **self._params,
            "resourceVersion": version,
            "timeoutSeconds": str(int(random.uniform(*WATCH_SECONDS))),
        }
        watch = self._client.watch(self.resource, namespace=self._namespace, params=params, silence=SILENCE_SECONDS)
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

    def _replace_all(self, page: Page[ObjectT]) -> None:
        """Store a list and call the callbacks."""
        listed = {item.metadata.key: item for item in page.items}
        # An object that could not be decoded exists: keep its last version that could.
        removed = [key for key in self._objects if key not in listed and key not in page.unread]
        changed = [key for key, item in listed.items() if self._objects.get(key) != item]
        self.version = _number(page.resource_version)
        self._unreported.clear()
        self._log_skipped([unread for key, unread in page.unread.items() if key not in self.unread])
        self.unread = dict(page.unread)
        # A callback must not see a half-filled store.
        changes = [self._set(key, listed.get(key)) for key in (*removed, *changed)]
        for old, new in changes:
            self._notify(old, new)

    def _apply(self, event: WatchEvent[ObjectT]) -> None:
        """Store the change that a watch event describes."""
        version = _number(event.resource_version)
        self.version = max(self.version, version)
        if event.unread is not None:
            self._apply_unread(event.unread, event.type, version)
        elif event.object is not None:
            key = event.object.metadata.key
            self.unread.pop(key, None)
            if event.type == "DELETED":
                self._drop(key, version)
            else:
                self._put(event.object)

    def _apply_unread(self, unread: Unread, change: str, version: int) -> None:
        """Record an object that could not be decoded; its last version that could be stays."""
        if change == "DELETED":
            self.unread.pop(unread.key, None)
            self._drop(unread.key, version)
            return
        if unread.key not in self.unread:
            self._log_skipped([unread])
        self.unread[unread.key] = unread

    def _drop(self, key: str, version: int) -> None:
        """Remove an object whose deletion has this version, unless it was created again since."""
        if key in self._unreported:
            self._unreported.discard(key)
            if not self._unreported:
                self._list_at(self._relist_due)
        current = self._objects.get(key)
        if current is not None and _version(current) <= version:
            self._notify(*self._set(key, None))

    def _list_at(self, due: float) -> None:
        """List at this loop time, unless another list is due before or has begun."""
        if self._relist is not None and not self._relist.expired():
            self._relist.reschedule(min(due, self._relist_due))

    def _log_skipped(self, skipped: Sequence[Unread]) -> None:
        """Log objects that could not be decoded: each once until it can be or is gone, however often it changes."""
        for unread in skipped[:LOGGED_OBJECTS]:
            log.warning("object not decoded", collection=self.name, name=unread.key, error=unread.fault)
        if len(skipped) > LOGGED_OBJECTS:
            log.warning("more objects not decoded", collection=self.name, objects=len(skipped) - LOGGED_OBJECTS)

    def _put(self, item: ObjectT) -> None:
        current = self._objects.get(item.metadata.key)
        if current is None or not _version(current) >= _version(item) > 0:
            self._notify(*self._set(item.metadata.key, item))

    def _set_problem(self, problem: KubeError | None) -> None:
        if problem is not None:
            # The frames of its traceback would keep the response that caused it, for as long as it is the problem.
            problem.with_traceback(None)
            problem.__cause__ = problem.__context__ = None
        before, self.problem = self.problem, problem
        if type(before) is type(problem):
            return
        if problem is None:
            log.info("list and watch recovered", collection=self.name)
        else:
            log.warning("list or watch failed", collection=self.name, error=str(problem))
        self._state_changed()

    def _state_changed(self) -> None:
        for callback in self._state_callbacks:
            callback()


def _version(item: ObjectT) -> int:
    return _number(item.metadata.resource_version)


def _is_removed(item: ObjectT) -> bool:
    """Return whether the API server has removed an object with its last finalizer."""
    return item.metadata.deleting and not item.metadata.finalizers


def _is_later(item: ObjectT, version: int) -> bool:
    """Return whether an object is later than a version; one without a comparable version counts as later."""
    return not 0 < _version(item) <= version


def _number(version: str) -> int:
    # Resource versions of one API server are comparable integers of 64 bits (KEP-5504). With any other format, each
    # event is newer.
    return int(version) if version.isdecimal() else 0
