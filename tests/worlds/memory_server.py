"""An API server in memory, for tests in a loop whose time jumps: lists, watches, writes with their preconditions.

No network and no threads, so an hour takes seconds. It knows no schema, no rights and no admission: what depends on
those is tested on the real servers. Faults are a function from request to error.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from harvester_ccm.errors import Answer, CCMError, Unreachable, WatchSilent, error_from_answer
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.collection import Unread, WatchEvent
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.fence import WriteFence
from harvester_ccm.kube.tokens import FixedToken
from harvester_ccm.model.meta import Resource

T = TypeVar("T")
Document = dict[str, Any]
Watch = asyncio.Queue[tuple[str, Document] | None]
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


def refused(status: int, reason: str, message: str) -> CCMError:
    """Return the error for an answer with this status."""
    return error_from_answer(Answer(status, reason, message, "test"))


class MemoryServer:
    """The stored objects, who watches them, and every request that came."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Document]] = {}
        self.calls: list[Call] = []
        self.fault: Fault | None = None
        self.delay: Callable[[Call], float] = lambda _call: 0.002
        """Seconds that a request takes; a real server takes its time too."""
        self.hanging = False
        """Whether no request is answered at all, and watches say nothing."""
        self.answers: dict[str, Document] = {}
        """Answers to GETs of subresources, by path."""
        self.version = 100
        self._uids = itertools.count(1)
        self._history: list[tuple[int, str, str, Document]] = []
        self._watchers: list[tuple[str, Watch]] = []

    def break_watches(self) -> None:
        """End every watch, as a server that goes away."""
        for _, queue in self._watchers:
            queue.put_nowait(None)

    def put(self, collection: str, document: Document) -> Document:
        """Store an object as it is, new or changed, and tell the watchers."""
        meta = document["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
        stored = self.objects.setdefault(collection, {})
        self.version += 1
        kind = "MODIFIED" if key in stored else "ADDED"
        meta.setdefault("uid", f"uid-{next(self._uids)}")
        stored[key] = document = {**document, "metadata": {**meta, "resourceVersion": str(self.version)}}
        self._tell(collection, kind, document)
        return document

    def change(self, collection: str, key: str, patch: Mapping[str, Any]) -> Document:
        """Apply a merge patch to a stored object."""
        return self.put(collection, merged(self.objects[collection][key], patch))

    def remove(self, collection: str, key: str) -> None:
        """Delete an object."""
        gone = self.objects[collection].pop(key)
        self.version += 1
        meta = {**gone["metadata"], "resourceVersion": str(self.version)}
        self._tell(collection, "DELETED", {**gone, "metadata": meta})

    def events(self) -> list[Document]:
        """Return the Events that were written."""
        return list(self.objects.get("v1/events", {}).values())

    async def serve(self, verb: str, path: str, body: Any) -> Document:
        """Answer one request. Raises what a client would."""
        call = Call(verb, path, asyncio.get_running_loop().time())
        self.calls.append(call)
        await self._fail(call)
        place = placed(path)
        if verb == "GET":
            return self._get(place, path)
        if verb == "POST":
            return self._create(place, body)
        return self._change(verb, place, body or {})

    def _get(self, place: Place, path: str) -> Document:
        if place.subresource:
            return self._answer(path)
        return self._found(place) if place.name else self._list(place)

    def _change(self, verb: str, place: Place, body: Document) -> Document:
        if verb == "PATCH":
            return self._patch(place, body)
        if verb == "DELETE":
            return self._delete(place, body)
        self._found(place)
        return self.put(place.collection, body)

    async def _fail(self, call: Call) -> None:
        if self.hanging:
            await asyncio.sleep(REQUEST_SECONDS)
            raise Unreachable(f"no answer within {REQUEST_SECONDS:g} s ({call.verb} {call.path})")
        error = self.fault(call) if self.fault else None
        await asyncio.sleep(self.delay(call))
        if error is not None:
            raise error

    async def watch(self, path: str, version: int, silence: float) -> AsyncGenerator[tuple[str, Document], None]:
        """Yield a bookmark when the watch is accepted, then the changes of a collection after a version.

        Raises WatchSilent when the server has been hanging for ``silence`` seconds.
        """
        call = Call("WATCH", path, asyncio.get_running_loop().time())
        self.calls.append(call)
        await self._fail(call)
        place = placed(path)
        queue: Watch = asyncio.Queue()
        for number, collection, kind, document in self._history:
            if number > version and collection == place.collection:
                queue.put_nowait((kind, document))
        watcher = (place.collection, queue)
        self._watchers.append(watcher)
        try:
            yield "BOOKMARK", {}
            while (event := await self._next(queue, silence)) is not None:
                if not place.namespace or event[1]["metadata"].get("namespace") == place.namespace:
                    yield event
        finally:
            self._watchers.remove(watcher)

    async def _next(self, queue: Watch, silence: float) -> tuple[str, Document] | None:
        while True:
            try:
                async with asyncio.timeout(silence):
                    return await queue.get()
            except TimeoutError:
                if self.hanging:
                    raise WatchSilent(f"watch silent for {silence:g} s") from None

    def _tell(self, collection: str, kind: str, document: Document) -> None:
        self._history.append((self.version, collection, kind, document))
        for watched, queue in self._watchers:
            if watched == collection and not self.hanging:
                queue.put_nowait((kind, document))

    def _answer(self, path: str) -> Document:
        if path not in self.answers:
            raise refused(409, "Conflict", "VMI does not have guest agent connected")
        return self.answers[path]

    def _found(self, place: Place) -> Document:
        found = self.objects.get(place.collection, {}).get(place.key)
        if found is None:
            group = place.collection.rpartition("/")[2]
            kind = f"{group}.{place.collection.partition('/')[0]}" if place.collection.count("/") > 1 else group
            raise refused(404, "NotFound", f'{kind} "{place.name}" not found')
        return found

    def _list(self, place: Place) -> Document:
        items = self.objects.get(place.collection, {}).values()
        chosen = [o for o in items if not place.namespace or o["metadata"].get("namespace") == place.namespace]
        return {"metadata": {"resourceVersion": str(self.version)}, "items": chosen}

    def _create(self, place: Place, body: Document) -> Document:
        key = place._replace(name=body["metadata"]["name"]).key
        if key in self.objects.get(place.collection, {}):
            raise refused(409, "AlreadyExists", f"{key} already exists")
        return self.put(place.collection, copy.deepcopy(body))

    def _patch(self, place: Place, body: Document) -> Document:
        found = self._found(place)
        meta = body.get("metadata") or {}
        version = found["metadata"]["resourceVersion"]
        if meta.get("resourceVersion", version) != version:
            raise refused(409, "Conflict", "the object has been modified")
        if meta.get("uid", found["metadata"]["uid"]) != found["metadata"]["uid"]:
            raise refused(422, "Invalid", "metadata.uid: Invalid value: field is immutable")
        wanted = merged(found, body)
        return found if wanted == found else self.put(place.collection, wanted)

    def _delete(self, place: Place, body: Document) -> Document:
        meta = self._found(place)["metadata"]
        for field, value in (body.get("preconditions") or {}).items():
            if meta[field] != value:
                raise refused(409, "Conflict", f"Precondition failed: {field}")
        self.remove(place.collection, place.key)
        return {"kind": "Status", "status": "Success"}


class MemoryClient(ApiClient):
    """The product's client, with a server in memory in the place of the network."""

    def __init__(
        self, server: MemoryServer, *, cluster: str, namespace: str = "", fence: WriteFence | None = None
    ) -> None:
        credentials = Credentials("memory", namespace, None, FixedToken(None))
        super().__init__(credentials, cluster=cluster, fence=fence)
        self.server = server

    async def _exchange(
        self, method: str, path: str, *, params: Mapping[str, str] | None, data: tuple[bytes, str] | None
    ) -> bytes:
        """Answer from memory."""
        del params
        body = None if data is None else msgspec.json.decode(data[0])
        return msgspec.json.encode(await self.server.serve(method, path, body))

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


def merged(document: Any, patch: Any) -> Any:
    """Return the document after a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(document) if isinstance(document, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
