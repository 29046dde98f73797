"""An API server in memory: lists, watches, and writes with their preconditions and finalizers.

The one that all worlds of the tests stand on. ``MemoryServer`` alone takes no time and needs no loop: a test calls it
as the server's own code would. ``MemoryClient`` is the product's client with such a server in the place of the network;
its requests take time, fail and hang as a test likes. No sockets and no threads, so in a loop whose time jumps an hour
takes seconds. It knows no schema, no rights and no admission: what depends on those is tested on the real servers.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import re
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from harvester_ccm.errors import Answer, CCMError, Unreachable, WatchSilent, error_from_answer
from harvester_ccm.kube.client import STRATEGIC_PATCH, ApiClient
from harvester_ccm.kube.collection import Unread, WatchEvent
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.fence import WriteFence
from harvester_ccm.kube.tokens import FixedToken
from harvester_ccm.model.meta import Object, Resource
from tests.worlds.builders import DELETED_AT
from tests.worlds.merge_patch import Strategic, merged, merged_strategically

T = TypeVar("T")
Document = dict[str, Any]
Where = Resource[Any] | str
"""A collection: its resource, or the name that it is stored by (``group/version/plural``)."""
Watch = asyncio.Queue[tuple[str, Document] | CCMError | None]
"""What a watch still has to deliver; None ends it."""

REQUEST_SECONDS: Final = 10.0
_PATH: Final = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+/[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?"
)


class Call(NamedTuple):
    """A request as it came; watches have the verb WATCH."""

    verb: str
    path: str
    at: float
    body: Any = None

    @property
    def is_write(self) -> bool:
        """Whether it asks for a change."""
        return self.verb not in {"GET", "WATCH"}


class Place(NamedTuple):
    """What a path means."""

    collection: str
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> str:
        """``namespace/name`` or name."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


Fault = Callable[[Call], CCMError | None]
"""What a request is answered with; None lets it pass."""


def refused(status: int, reason: str, message: str, *, about: str = "") -> CCMError:
    """Return the error for an answer with this status, about the object that was asked for."""
    return error_from_answer(Answer(status, reason, message, "test", about))


def page() -> CCMError:
    """Return the error for the page of something without a route, be it an API server or what stands before one."""
    return refused(404, "", "404 page not found")


class MemoryServer:
    """The stored objects, who watches them, and every request that came."""

    def __init__(self, *, prompt: Collection[str] = ()) -> None:
        """``prompt``: finalizers that somebody takes off as soon as an object is being deleted."""
        self.objects: dict[str, dict[str, Document]] = {}
        """Stored objects by collection (``group/version/plural``) and ``namespace/name`` or name."""
        self.calls: list[Call] = []
        self.fault: Fault | None = None
        self.faults: list[CCMError] = []
        """What the next writes are answered with, one each."""
        self.delay: Callable[[Call], float] = lambda _call: 0.002
        """Seconds that a request takes; a real server takes its time too."""
        self.hanging = False
        """Whether no request is answered at all, and watches say nothing."""
        self.lagging = False
        self._untold: list[tuple[str, str, Document]] = []
        """Whether watches say nothing of what happens, until ``catch_up``."""
        self.unserved: frozenset[str] = frozenset()
        """``group/version`` that there are not: the path is unknown."""
        self.deaf_to: Callable[[Call], bool] = lambda _call: False
        """Patches and replacements that are answered as if they had worked, with what was there before."""
        self.answers: dict[str, Document] = {}
        """Answers to GETs of subresources, by path."""
        self.version = 100
        self._prompt = frozenset(prompt)
        self._uids = itertools.count(1)
        self._history: list[tuple[int, str, str, Document]] = []
        self._watchers: list[tuple[str, Watch]] = []

    # By hand, whatever the rules.

    def put(self, collection: Where, item: Object | Document) -> Document:
        """Store an object as it is, new or changed, and tell the watchers."""
        document = document_of(item)
        meta = document["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
        stored = self.of(collection)
        self.version += 1
        kind = "MODIFIED" if key in stored else "ADDED"
        meta.setdefault("uid", f"uid-{next(self._uids)}")
        stored[key] = document = {**document, "metadata": {**meta, "resourceVersion": str(self.version)}}
        self._tell(name_of(collection), kind, document)
        return document

    def remove(self, collection: Where, key: str) -> Document:
        """Make an object disappear, whatever holds it; return the last of it."""
        gone = self.of(collection).pop(key)
        self.version += 1
        last = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
        self._tell(name_of(collection), "DELETED", last)
        return last

    def of(self, collection: Where) -> dict[str, Document]:
        """Return the stored objects of a collection."""
        return self.objects.setdefault(name_of(collection), {})

    def events(self) -> list[Document]:
        """Return the Events that were written."""
        return list(self.of("v1/events").values())

    # As a client may.

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
        """Return the objects of a namespace, or all."""
        stored = self.of(collection).values()
        return [one for one in stored if namespace in {"", one["metadata"].get("namespace")}]

    def create(self, collection: Where, body: Document) -> Document:
        """Store a new object. Raises AlreadyExists."""
        meta = body["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
        if key in self.of(collection):
            raise refused(409, "AlreadyExists", f"{key} already exists")
        return self.put(collection, copy.deepcopy(body))

    def replace(self, collection: Where, key: str, body: Document) -> Document:
        """Store a whole object in the place of another. Raises NotFound, Conflict for one of another version."""
        found = self.get(collection, key)
        self._check_version(found, body)
        return self._settled(collection, key, copy.deepcopy(body))

    def change(self, collection: Where, key: str, patch: Mapping[str, Any]) -> Document:
        """Apply a merge patch; one that changes nothing is no change. Raises NotFound, Conflict, Invalid."""
        found = self.get(collection, key)
        self._check_version(found, patch)
        uid = found["metadata"]["uid"]
        if (patch.get("metadata") or {}).get("uid", uid) != uid:
            raise refused(422, "Invalid", "metadata.uid: Invalid value: field is immutable")
        wanted = merged_strategically(found, patch) if isinstance(patch, Strategic) else merged(found, patch)
        return found if wanted == found else self._settled(collection, key, wanted)

    def delete(self, collection: Where, key: str, preconditions: Mapping[str, str] | None = None) -> None:
        """Delete an object, or mark it while finalizers hold it. Raises NotFound, Conflict for another one."""
        meta = self.get(collection, key)["metadata"]
        for field, value in (preconditions or {}).items():
            if meta[field] != value:
                raise refused(409, "Conflict", f"Precondition failed: {field}")
        held = [one for one in meta.get("finalizers") or () if one not in self._prompt]
        if not held:
            self.remove(collection, key)
        elif not meta.get("deletionTimestamp"):
            self.change(collection, key, {"metadata": {"deletionTimestamp": DELETED_AT, "finalizers": held}})

    def _settled(self, collection: Where, key: str, document: Document) -> Document:
        """Store a changed object, or let it go with the last finalizer that held it."""
        meta = document["metadata"]
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            self.of(collection)[key] = document
            return self.remove(collection, key)
        return self.put(collection, document)

    @staticmethod
    def _check_version(found: Document, body: Mapping[str, Any]) -> None:
        version = found["metadata"]["resourceVersion"]
        if ((body.get("metadata") or {}).get("resourceVersion") or version) != version:
            raise refused(409, "Conflict", "the object has been modified")

    # As a client does, over a network.

    def writes(self, path: str = "") -> list[str]:
        """Return the requests for a change that came so far, those with ``path`` in them, as ``PATCH /api/v1/…``."""
        return [f"{call.verb} {call.path}" for call in self.calls if call.is_write and path in call.path]

    async def delivered(self) -> None:
        """Return when those who watch have taken in all that was said to them."""
        for _, queue in list(self._watchers):
            await queue.join()

    def catch_up(self) -> None:
        """Lag no longer: tell those who watch what has happened meanwhile."""
        self.lagging, untold = False, self._untold
        self._untold = []
        for collection, kind, document in untold:
            self._deliver(collection, kind, document)

    def break_watches(self, error: CCMError | None = None) -> None:
        """End every watch, as a server that goes away; with an error, in the middle of the answer."""
        for _, queue in self._watchers:
            queue.put_nowait(error)

    def restore(self, backup: MemoryServer) -> None:
        """Go back to what another server holds, as after the restore of a backup; running watches say nothing."""
        self.objects, self.version = copy.deepcopy(backup.objects), backup.version
        self._history.clear()

    async def serve(self, verb: str, path: str, body: Any) -> Document:
        """Answer one request. Raises what a client would."""
        call = Call(verb, path, asyncio.get_running_loop().time(), body)
        self.calls.append(call)
        await self._fail(call)
        place = placed(path)
        if verb == "GET":
            return self._read(place, path)
        if verb == "POST":
            return self.create(place.collection, merged(body, {"metadata": {"namespace": place.namespace or None}}))
        if verb == "DELETE":
            self.delete(place.collection, place.key, (body or {}).get("preconditions"))
            return {"kind": "Status", "status": "Success"}
        if self.deaf_to(call):
            return self.get(place.collection, place.key)
        write = self.change if verb == "PATCH" else self.replace
        return write(place.collection, place.key, body)

    def _read(self, place: Place, path: str) -> Document:
        if place.subresource:
            if path not in self.answers:
                raise refused(409, "Conflict", "VMI does not have guest agent connected")
            return self.answers[path]
        if place.name:
            return self.get(place.collection, place.key)
        items = self.items(place.collection, place.namespace)
        return {"metadata": {"resourceVersion": str(self.version)}, "items": items}

    async def _fail(self, call: Call) -> None:
        if self.hanging:
            await asyncio.sleep(REQUEST_SECONDS)
            raise Unreachable(f"no answer within {REQUEST_SECONDS:g} s ({call.verb} {call.path})")
        error = self.fault(call) if self.fault else None
        if call.is_write and self.faults:
            error = self.faults.pop(0)
        if any(call.path.startswith(f"/apis/{version}/") for version in self.unserved):
            error = page()
        await asyncio.sleep(self.delay(call))
        if error is not None:
            raise error

    async def watch(self, path: str, version: int, silence: float) -> AsyncGenerator[tuple[str, Document], None]:
        """Yield a bookmark when the watch is accepted, then the changes of a collection after a version.

        Raises WatchSilent when the server has been hanging for ``silence`` seconds.
        """
        call = Call("WATCH", path, asyncio.get_running_loop().time())
        self.calls.append(call)
        place, queue = placed(path), Watch()
        for number, collection, kind, document in self._history:
            if number > version and collection == place.collection:
                queue.put_nowait((kind, document))
        watcher = (place.collection, queue)
        self._watchers.append(watcher)
        try:
            await self._fail(call)
            yield "BOOKMARK", {}
            while (event := await self._next(queue, silence)) is not None:
                if isinstance(event, CCMError):
                    raise event
                if place.namespace in {"", event[1]["metadata"].get("namespace")}:
                    yield event
                queue.task_done()
        finally:
            self._watchers.remove(watcher)

    async def _next(self, queue: Watch, silence: float) -> tuple[str, Document] | CCMError | None:
        while True:
            try:
                async with asyncio.timeout(silence):
                    return await queue.get()
            except TimeoutError:
                if self.hanging:
                    raise WatchSilent(f"watch silent for {silence:g} s") from None

    def _tell(self, collection: str, kind: str, document: Document) -> None:
        self._history.append((self.version, collection, kind, document))
        if self.lagging:
            self._untold.append((collection, kind, document))
        elif not self.hanging:
            self._deliver(collection, kind, document)

    def _deliver(self, collection: str, kind: str, document: Document) -> None:
        for watched, queue in self._watchers:
            if watched == collection:
                queue.put_nowait((kind, document))


class MemoryClient(ApiClient):
    """The product's client, with a server in memory in the place of the network."""

    def __init__(
        self, server: MemoryServer, *, cluster: str, namespace: str = "", fence: WriteFence | None = None
    ) -> None:
        credentials = Credentials("memory", namespace, None, FixedToken(None))
        super().__init__(credentials, cluster=cluster, fence=fence)
        self.server = server

    async def _exchange(
        self, method: str, path: str, *, params: Mapping[str, str] | None, data: bytes | None, content_type: str
    ) -> bytes:
        """Answer from memory."""
        body = None if data is None else msgspec.json.decode(data)
        body = Strategic(body) if content_type == STRATEGIC_PATCH and body is not None else body
        answer = await self.server.serve(method, path, body)
        key, selects, value = (params or {}).get("labelSelector", "").partition("=")
        if selects:
            items = [one for one in answer["items"] if (one["metadata"].get("labels") or {}).get(key) == value]
            answer = {**answer, "items": items}
        return msgspec.json.encode(answer)

    async def watch(
        self, resource: Resource[T], *, namespace: str | None = None, params: Mapping[str, str], silence: float
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Yield changes from memory."""
        version = int(params["resourceVersion"])
        async for kind, document in self.server.watch(resource.path(namespace), version, silence):
            if kind == "BOOKMARK":
                yield WatchEvent("BOOKMARK", None, "")
                continue
            at = document["metadata"]["resourceVersion"]
            item = self._decode(resource, msgspec.Raw(msgspec.json.encode(document)))
            if isinstance(item, Unread):
                yield WatchEvent("DELETED" if kind == "DELETED" else "MODIFIED", None, at, item.key)
                continue
            match kind:
                case "ADDED":
                    yield WatchEvent("ADDED", item, at)
                case "MODIFIED":
                    yield WatchEvent("MODIFIED", item, at)
                case _:
                    yield WatchEvent("DELETED", item, at)


def placed(path: str) -> Place:
    """Return what a path means."""
    found = _PATH.fullmatch(path)
    assert found is not None, path
    prefix = found["core"] or found["group"]
    return Place(f"{prefix}/{found['plural']}", found["namespace"] or "", found["name"] or "", found["sub"] or "")


def name_of(collection: Where) -> str:
    """Return the name that a collection is stored by."""
    return f"{collection.api_version}/{collection.plural}" if isinstance(collection, Resource) else collection


def document_of(item: Object | Document) -> Document:
    """Return an object as a server stores it."""
    if isinstance(item, dict):
        return item
    document: Document = msgspec.json.decode(msgspec.json.encode(item))
    document.pop("source", None)
    return document
