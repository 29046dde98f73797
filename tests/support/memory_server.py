"""An API server in memory: lists, watches, and writes with preconditions and finalizers.

A test calls ``MemoryServer`` directly, without an event loop. ``MemoryClient`` is the product's client with such a
server instead of the network; its requests take time, fail and hang as a test specifies. Schemas, permissions and
admission are tested on real API servers.
"""

import asyncio
import copy
import itertools
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from harvester_ccm.kube.client import REQUEST_TIMEOUT, STRATEGIC_PATCH, ApiClient, Request
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.documents import WatchEvent
from harvester_ccm.kube.errors import (
    WRITE_TIMEOUT,
    Answer,
    KubeError,
    NoResponse,
    TimedOut,
    Unreachable,
    WatchSilent,
    error_from_answer,
)
from harvester_ccm.kube.fence import WriteFence
from harvester_ccm.kube.objects import Object, Resource
from harvester_ccm.kube.tokens import TokenSource
from harvester_ccm.model.harvester import LoadBalancer
from tests.support.builders import DELETED_AT
from tests.support.merge_patch import Strategic, merged, merged_strategically

T = TypeVar("T")
Document = dict[str, Any]
Where = Resource[Any] | str
"""A collection: its resource, or its name (``group/version/plural``)."""
Line = tuple[str, Document] | KubeError | None
"""A line of a watch: a change, the error that breaks it, or None at its end."""

BOOKMARK_SECONDS: Final = 60.0
"""Interval of the bookmarks of a watch."""
_WITH_STATUS: Final = frozenset({"v1/services", "v1/nodes"})
"""Collections with the subresource status."""
_PATH: Final = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+/[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?"
)


class Call(NamedTuple):
    """A request; watches have the verb WATCH, and questions about permissions REVIEW."""

    verb: str
    path: str
    at: float
    body: Any = None
    by: str = ""
    """Name of the client."""

    @property
    def is_write(self) -> bool:
        return self.verb not in {"GET", "WATCH", "REVIEW"}


class Place(NamedTuple):
    """The parts of a path."""

    collection: str
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


Fault = Callable[[Call], KubeError | None]
"""The error for a request; None for no error."""


def refused(status: int, reason: str, message: str, *, about: str = "") -> KubeError:
    """Return the error for a response with this status, whose details name the object ``about``."""
    return error_from_answer(Answer(status, reason, message, about))


def page() -> KubeError:
    return refused(404, "", "404 page not found")


@dataclass(eq=False)
class Watch:
    """An open watch, and the lines that are not delivered yet."""

    place: Place
    fields: str
    by: str
    after: int
    """The resourceVersion of its request: only later changes are delivered."""
    lines: asyncio.Queue[Line] = field(default_factory=asyncio.Queue)
    delayed: deque[tuple[str, Document]] = field(default_factory=deque)
    """Delayed lines, in order."""
    delayed_until: float = 0.0
    """Loop time at which the last of them is delivered."""
    silent: bool = False
    """Whether the connection is dead, which neither side has noticed."""

    def wants(self, document: Document) -> bool:
        """Return whether a change of the object is delivered."""
        meta = document["metadata"]
        is_later = int(meta["resourceVersion"]) > self.after
        return is_later and self.place.namespace in {"", meta.get("namespace")} and selects(self.fields, meta)


def _no_rules(_by: str) -> list[Document]:
    return []


def _no_denial(_call: Call) -> KubeError | None:
    return None


@dataclass
class Permissions:
    """What clients may do, as far as a test limits it."""

    rules: Callable[[str], list[Document]] = _no_rules
    """The rules of a client (``by``), which are the answer to its review."""
    denies: Fault = _no_denial
    """The error of a request that a client may not send."""


class MemoryServer:
    """The stored objects, the watches and every request."""

    def __init__(self, *, prompt: Collection[str] = (), uids: str = "uid") -> None:
        """``prompt``: finalizers that are removed as soon as an object is deleted; ``uids``: prefix of the UIDs."""
        self.objects: dict[str, dict[str, Document]] = {}
        """Stored objects by collection (``group/version/plural``) and ``namespace/name`` or name."""
        self.calls: list[Call] = []
        self.fault: Fault | None = None
        self.faults: list[KubeError] = []
        """Errors for the next writes, one each."""
        self.delay: Callable[[Call], float] = lambda _call: 0.002
        """Seconds until a request is processed."""
        self.way_back: Callable[[Call], float] = lambda _call: 0.0
        """Seconds from then until the response."""
        self.lost: Fault = lambda _call: None
        """The error instead of the response to a processed request."""
        self.watch_lag: Callable[[Watch], float] = lambda _watch: 0.0
        """Seconds until a change is delivered to a watch; the order stays."""
        self.watch_drops: Callable[[Watch, str], bool] = lambda _watch, _kind: False
        """Whether a change of this kind (``ADDED``, ``MODIFIED``, ``DELETED``) is never delivered."""
        self.clock: Callable[[], str] | None = None
        """The wall clock."""
        self.compacted = 0
        """No watch can continue from a version before this one."""
        self.on_change: list[Callable[[str, str, Document], None]] = []
        """Called with collection, kind and object of every change."""
        self.on_sent: list[Callable[[Call], None]] = []
        """Called with every request as it is sent."""
        self.on_arrived: list[Callable[[Call], None]] = []
        """Called with every request before it is processed."""
        self.on_answered: list[Callable[[Call, KubeError | None], None]] = []
        """Called with every request after it was processed, and the error if it was rejected."""
        self.hanging = False
        """Whether no request gets a response, and watches deliver nothing."""
        self.lagging = False
        """Whether watches deliver nothing until ``catch_up``."""
        self._undelivered: list[tuple[str, str, Document]] = []
        self.deaf_to: Callable[[Call], bool] = lambda _call: False
        """PATCH and PUT requests that have no effect: the response is the unchanged object."""
        self.answers: dict[str, Document] = {}
        """Responses to GET requests by path, for subresources."""
        self.permissions = Permissions()
        self.version = 100
        self._prompt = frozenset(prompt)
        self._uids = (f"{uids}-{number}" for number in itertools.count(1))
        self._history: list[tuple[int, str, str, Document]] = []
        self._life = 0
        """Number of calls of ``rewind``."""
        self._pages: dict[str, tuple[list[Document], int]] = {}
        """Rest and version of a list, by its continue token."""
        self.watches: list[Watch] = []

    # Without the rules of an API server.

    def put(self, collection: Where, item: Object | Document) -> Document:
        """Store an object as it is, and deliver the change."""
        document = document_of(item)
        meta = document["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
        stored = self.of(collection)
        self.version += 1
        kind = "MODIFIED" if key in stored else "ADDED"
        if "uid" not in meta:
            meta["uid"] = next(self._uids)
        stored[key] = document = {**document, "metadata": {**meta, "resourceVersion": str(self.version)}}
        self._changed(name_of(collection), kind, document)
        return document

    def remove(self, collection: Where, key: str) -> Document:
        """Remove an object in spite of its finalizers; return it."""
        gone = self.of(collection).pop(key)
        self.version += 1
        last = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
        self._changed(name_of(collection), "DELETED", last)
        return last

    def of(self, collection: Where) -> dict[str, Document]:
        return self.objects.setdefault(name_of(collection), {})

    def events(self) -> list[Document]:
        return list(self.of("v1/events").values())

    # With the rules of an API server.

    def get(self, collection: Where, key: str) -> Document:
        """Return an object. Raises NotFound."""
        found = self.of(collection).get(key)
        if found is None:
            prefix, _, plural = name_of(collection).rpartition("/")
            kind = f"{plural}.{prefix.partition('/')[0]}" if "/" in prefix else plural
            name = key.rpartition("/")[2]
            raise refused(404, "NotFound", f'{kind} "{name}" not found', about=name)
        return found

    def items(self, collection: Where, namespace: str = "") -> list[Document]:
        stored = self.of(collection).values()
        return [one for one in stored if namespace in {"", one["metadata"].get("namespace")}]

    def create(self, collection: Where, body: Document) -> Document:
        """Store a new object. Raises AlreadyExists."""
        meta = body["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
        if key in self.of(collection):
            raise refused(409, "AlreadyExists", f"{key} already exists")
        created = copy.deepcopy(body)
        if self.clock is not None:
            created["metadata"]["creationTimestamp"] = self.clock()
        return self.put(collection, created)

    def replace(self, collection: Where, key: str, body: Document) -> Document:
        """Replace an object. Raises NotFound, Conflict for another version or UID."""
        found = self.get(collection, key)
        self._check_version(found, body)
        uid = found["metadata"]["uid"]
        if body["metadata"].get("uid", uid) != uid:
            raise refused(409, "Conflict", "Precondition failed: uid")
        return self._settled(collection, key, copy.deepcopy(body))

    def change(self, collection: Where, key: str, patch: Mapping[str, Any]) -> Document:
        """Apply a merge patch, which can be without effect. Raises NotFound, Conflict, Invalid."""
        found = self.get(collection, key)
        self._check_version(found, patch)
        uid = found["metadata"]["uid"]
        if (patch.get("metadata") or {}).get("uid", uid) != uid:
            what = f'{found.get("kind", "object")} "{found["metadata"]["name"]}"'
            why = f'metadata.uid: Invalid value: "{uid}": field is immutable'
            raise refused(422, "Invalid", f"{what} is invalid: {why}")
        wanted = merged_strategically(found, patch) if isinstance(patch, Strategic) else merged(found, patch)
        return found if wanted == found else self._settled(collection, key, wanted)

    def delete(self, collection: Where, key: str, preconditions: Mapping[str, str] | None = None) -> None:
        """Delete an object, or set its deletion timestamp if it has finalizers. Raises NotFound, Conflict."""
        meta = self.get(collection, key)["metadata"]
        for one, value in (preconditions or {}).items():
            if meta[one] != value:
                raise refused(409, "Conflict", f"Precondition failed: {one}")
        held = [one for one in meta.get("finalizers") or () if one not in self._prompt]
        if not held:
            self.remove(collection, key)
        elif not meta.get("deletionTimestamp"):
            at = self.clock() if self.clock else DELETED_AT
            self.change(collection, key, {"metadata": {"deletionTimestamp": at, "finalizers": held}})

    def _settled(self, collection: Where, key: str, document: Document) -> Document:
        """Store a changed object, or delete it without its last finalizer; then the response has the old version."""
        meta = document["metadata"]
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            before = self.get(collection, key)["metadata"]["resourceVersion"]
            self.of(collection)[key] = document
            self.remove(collection, key)
            return {**document, "metadata": {**meta, "resourceVersion": before}}
        return self.put(collection, document)

    @staticmethod
    def _check_version(found: Document, body: Mapping[str, Any]) -> None:
        version = found["metadata"]["resourceVersion"]
        if ((body.get("metadata") or {}).get("resourceVersion") or version) != version:
            raise refused(409, "Conflict", "the object has been modified")

    # Over a network.

    def writes(self, path: str = "") -> list[str]:
        """Return the writes whose path contains ``path``, as ``PATCH /api/v1/…``."""
        return [f"{call.verb} {call.path}" for call in self.calls if call.is_write and path in call.path]

    def catch_up(self) -> None:
        """Deliver what was not delivered while ``lagging``, and end that."""
        self.lagging, undelivered = False, self._undelivered
        self._undelivered = []
        for collection, kind, document in undelivered:
            self._deliver(collection, kind, document)

    def break_watches(self, error: KubeError | None = None, *, by: str = "") -> None:
        """End every watch, or those of one client; with an error, break them."""
        for watch in self.watches:
            if by in {"", watch.by}:
                watch.lines.put_nowait(error)

    def compact(self) -> None:
        """Forget all changes: watches can continue from now only, and begun lists not at all."""
        self.compacted = self.version
        self._pages.clear()

    def restore(self, backup: "MemoryServer") -> None:
        """Restore the objects of another server; the watches deliver nothing."""
        self.objects, self.version = copy.deepcopy(backup.objects), backup.version
        self._history.clear()

    async def lose_changes(self, collection: Where, key: str) -> None:
        """Change an object a hundred times, and restore the state of before.

        The watches have delivered the changes. They end without an error, and begin again at a version to come.
        """
        backup = MemoryServer()
        backup.restore(self)
        for number in range(100):
            self.change(collection, key, {"metadata": {"labels": {"number": str(number)}}})
        await asyncio.sleep(1)
        self.restore(backup)
        self.break_watches()
        await asyncio.sleep(1)

    def rewind(self, version: int) -> None:
        """Restore the objects of a version, as from a backup: connections break, requests in flight fail.

        ``on_change`` is not called.
        """
        self._history = [change for change in self._history if change[0] <= version]
        self.objects, self.version, self.compacted = {}, version, min(self.compacted, version)
        for _, collection, kind, document in self._history:
            stored, meta = self.of(collection), document["metadata"]
            key = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
            if kind == "DELETED":
                stored.pop(key, None)
            else:
                stored[key] = document
        self._pages.clear()
        self._life += 1
        self.break_watches(Unreachable("connection reset by peer"))

    async def serve(
        self, verb: str, path: str, body: Any, params: Mapping[str, str] | None = None, *, by: str = ""
    ) -> Document:
        """Return the response to a request. Raises the errors of the client."""
        verb = "REVIEW" if path.endswith("reviews") else verb
        call = Call(verb, path, asyncio.get_running_loop().time(), body, by)
        self.calls.append(call)
        for sent in self.on_sent:
            sent(call)
        life = self._life
        await self._fail(call)
        self._check_life(life)
        answer = self._processed(call, params or {})
        if back := self.way_back(call):
            await asyncio.sleep(back)
        self._check_life(life)
        if (error := self.lost(call)) is not None:
            raise error
        return answer

    def _processed(self, call: Call, params: Mapping[str, str]) -> Document:
        for arrived in self.on_arrived:
            arrived(call)
        error: KubeError | None = None
        try:
            return self._carry_out(call, params)
        except KubeError as rejection:
            error = rejection
            raise
        finally:
            for answered in self.on_answered:
                answered(call, error)

    def _check_life(self, life: int) -> None:
        if life != self._life:
            raise Unreachable("connection reset by peer")

    def _carry_out(self, call: Call, params: Mapping[str, str]) -> Document:
        if call.verb == "GET" and call.path in self.answers:
            return self.answers[call.path]
        if call.verb == "REVIEW":
            return {"status": {"resourceRules": self.permissions.rules(call.by), "nonResourceRules": []}}
        if (denial := self.permissions.denies(call)) is not None:
            raise denial
        place, body = placed(call.path), call.body
        if call.verb == "GET":
            return self._read(place, params)
        if call.verb == "POST":
            return self._created(place, body, dry_run="dryRun" in params)
        if call.verb == "DELETE":
            self.delete(place.collection, place.key, (body or {}).get("preconditions"))
            left = self.of(place.collection).get(place.key)
            return {"kind": "Status", "status": "Success"} if left is None else left
        if self.deaf_to(call):
            return self.get(place.collection, place.key)
        write = self.change if call.verb == "PATCH" else self.replace
        return write(place.collection, place.key, self._part(place, body, whole=call.verb == "PUT"))

    def _created(self, place: Place, body: Document, *, dry_run: bool) -> Document:
        document: Document = merged(body, {"metadata": {"namespace": place.namespace or None}})
        exists = f"{place.namespace}/{body['metadata'].get('name')}" in self.of(place.collection)
        return document if dry_run and not exists else self.create(place.collection, document)

    def _part(self, place: Place, body: Document, *, whole: bool) -> Document:
        """Return the part of a write that has an effect: the status only with its subresource."""
        if place.collection not in _WITH_STATUS:
            return body
        stored = self.of(place.collection).get(place.key) or {}
        if whole:
            kept = {"status"} if not place.subresource else set(stored) - {"metadata", "status"}
            return {**body, **{key: stored[key] for key in kept if key in stored}}
        kept = {"status"} if not place.subresource else set(body) - {"metadata", "status"}
        part = {key: value for key, value in body.items() if key not in kept}
        return Strategic(part) if isinstance(body, Strategic) else part

    def _read(self, place: Place, params: Mapping[str, str]) -> Document:
        if place.subresource:
            raise refused(409, "Conflict", "VMI does not have guest agent connected")
        if place.name:
            return self.get(place.collection, place.key)
        return self._page(place, params)

    def _page(self, place: Place, params: Mapping[str, str]) -> Document:
        """Return a page of a list; all pages have the version of the first."""
        token, limit = params.get("continue", ""), int(params.get("limit", "0"))
        if token and token not in self._pages:
            raise refused(410, "Expired", "The provided continue parameter is too old")
        if token:
            items, version = self._pages.pop(token)
        else:
            fields, labels = params.get("fieldSelector", ""), params.get("labelSelector", "")
            found = self.items(place.collection, place.namespace)
            chosen = [one for one in found if selects(fields, one["metadata"]) and has_labels(labels, one)]
            items, version = chosen, self.version
        metadata = {"resourceVersion": str(version)}
        if limit and len(items) > limit:
            items, rest = items[:limit], items[limit:]
            metadata["continue"] = f"{version}-{len(rest)}-{place.collection}"
            self._pages[metadata["continue"]] = (rest, version)
        return {"metadata": metadata, "items": items}

    async def _fail(self, call: Call) -> None:
        if self.hanging:
            fenced = call.is_write and "/leases" not in call.path
            limit = WRITE_TIMEOUT if fenced else REQUEST_TIMEOUT
            await asyncio.sleep(limit)
            raise (NoResponse if fenced else TimedOut)(f"no answer within {limit:g} s ({call.verb} {call.path})")
        error = self.fault(call) if self.fault else None
        if call.is_write and self.faults:
            error = self.faults.pop(0)
        await asyncio.sleep(self.delay(call))
        if error is not None:
            raise error

    async def watch(
        self, path: str, params: Mapping[str, str], silence: float, *, by: str = ""
    ) -> AsyncGenerator[tuple[str, Document], None]:
        """Yield a bookmark when the watch is accepted, then the changes of a collection after a version.

        Raises WatchSilent after ``silence`` seconds without a line, Gone if the version is forgotten.
        """
        loop = asyncio.get_running_loop()
        call = Call("WATCH", path, loop.time(), by=by)
        self.calls.append(call)
        version = int(params["resourceVersion"])
        watch = Watch(placed(path), params.get("fieldSelector", ""), by, version)
        if version < self.compacted:
            await self._fail(call)
            raise refused(410, "Expired", f"too old resource version: {version} ({self.compacted})")
        for number, collection, kind, document in self._history:
            if number > version and collection == watch.place.collection and watch.wants(document):
                watch.lines.put_nowait((kind, document))
        self.watches.append(watch)
        timers = [loop.call_later(BOOKMARK_SECONDS, self._bookmark, watch)]
        if "timeoutSeconds" in params:
            timers.append(loop.call_later(float(params["timeoutSeconds"]), watch.lines.put_nowait, None))
        try:
            await self._fail(call)
            yield "BOOKMARK", {}
            while (line := await self._next(watch, silence)) is not None:
                if isinstance(line, KubeError):
                    raise line
                yield line
                watch.lines.task_done()
        finally:
            self.watches.remove(watch)
            for timer in timers:
                timer.cancel()

    def _bookmark(self, watch: Watch) -> None:
        if watch in self.watches:
            if self.version >= watch.after:
                self._send(watch, ("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}}))
            asyncio.get_running_loop().call_later(BOOKMARK_SECONDS, self._bookmark, watch)

    async def _next(self, watch: Watch, silence: float) -> Line:
        while True:
            try:
                async with asyncio.timeout(silence):
                    return await watch.lines.get()
            except TimeoutError:
                raise WatchSilent(f"watch silent for {silence:g} s") from None

    def _changed(self, collection: str, kind: str, document: Document) -> None:
        self._history.append((self.version, collection, kind, document))
        for callback in self.on_change:
            callback(collection, kind, document)
        if self.lagging:
            self._undelivered.append((collection, kind, document))
        else:
            self._deliver(collection, kind, document)

    def _deliver(self, collection: str, kind: str, document: Document) -> None:
        for watch in self.watches:
            is_later = int(document["metadata"]["resourceVersion"]) > watch.after
            is_wanted = watch.place.collection == collection and watch.wants(document)
            # After a restore, an API server sends nothing to a watch that began at a version of the time before.
            if is_later and is_wanted and not self.watch_drops(watch, kind):
                self._send(watch, (kind, document))

    def _send(self, watch: Watch, line: tuple[str, Document]) -> None:
        """Deliver a line after those that are delayed."""
        if self.hanging or watch.silent:
            return
        lag = self.watch_lag(watch)
        if not lag and not watch.delayed_until:
            watch.lines.put_nowait(line)
            return
        loop = asyncio.get_running_loop()
        watch.delayed_until = max(watch.delayed_until, loop.time() + lag)
        watch.delayed.append(line)
        loop.call_at(watch.delayed_until, self._arrive, watch)

    @staticmethod
    def _arrive(watch: Watch) -> None:
        line = watch.delayed.popleft()
        if not watch.silent:
            watch.lines.put_nowait(line)


class MemoryClient(ApiClient):
    """The product's client, with a server in memory instead of the network."""

    def __init__(
        self,
        server: MemoryServer,
        *,
        cluster: str,
        namespace: str = "",
        fence: WriteFence | None = None,
        name: str = "",
        page_objects: int = ApiClient.page_objects,
    ) -> None:
        credentials = Credentials("memory", namespace, None, TokenSource(None))
        super().__init__(credentials, cluster=cluster, fence=fence)
        self.page_objects = page_objects
        self.server = server
        self.name = name

    async def _exchange(self, request: Request, limit: float) -> bytes:
        body = None if request.data is None else msgspec.json.decode(request.data)
        body = Strategic(body) if request.content_type == STRATEGIC_PATCH and body is not None else body
        if request.fenced:
            # As the sockets of the client do.
            self._fence.check()
        response = await self.server.serve(request.method, request.path, body, request.params, by=self.name)
        return msgspec.json.encode(response)

    async def watch(
        self, resource: Resource[T], *, namespace: str | None = None, params: Mapping[str, str], silence: float
    ) -> AsyncGenerator[WatchEvent[T], None]:
        lines = self.server.watch(resource.path(namespace), params, silence, by=self.name)
        async with aclosing(lines):
            async for kind, document in lines:
                yield self._event(resource, msgspec.json.encode({"type": kind, "object": document}))


def placed(path: str) -> Place:
    found = _PATH.fullmatch(path)
    assert found is not None, path
    prefix = found["core"] or found["group"]
    return Place(f"{prefix}/{found['plural']}", found["namespace"] or "", found["name"] or "", found["sub"] or "")


def selects(fields: str, metadata: Document) -> bool:
    """Return whether a field selector, empty or for the name, selects an object."""
    return not fields or fields == f"metadata.name={metadata['name']}"


def has_labels(selector: str, document: Document) -> bool:
    """Return whether a label selector, empty or for one label, selects an object."""
    key, _, value = selector.partition("=")
    return not selector or (document["metadata"].get("labels") or {}).get(key) == value


def name_of(collection: Where) -> str:
    return f"{collection.api_version}/{collection.plural}" if isinstance(collection, Resource) else collection


def document_of(item: Object | Document) -> Document:
    if isinstance(item, dict):
        return item
    shown = item.document() if isinstance(item, LoadBalancer) else item
    document: Document = msgspec.json.decode(msgspec.json.encode(shown))
    return document
