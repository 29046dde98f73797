"""Copies of an API server's objects as JSON documents, updated by list and watch.

The emulators write whole objects and must not lose a field, so they use documents instead of typed views. Every
subscriber gets every event in the order of the server. After an interrupted watch, the objects are listed again, and
the difference is delivered.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeAlias

import structlog

from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import KubeError
from harvester_ccm.kube.objects import Resource, decoder

Document: TypeAlias = dict[str, Any]
"""A JSON object of an API server."""

Subscriber = Callable[[Document | None, Document | None], None]
"""Called with (before, after): before is None for a new object, after is None for a deleted one."""

SILENCE: Final = 150.0
"""Timeout of a watch without a line, in seconds; servers send a bookmark about every minute."""
WATCH_SECONDS: Final = 600
"""Timeout of a watch at the server."""
RETRY_SECONDS: Final = 0.2

log = structlog.get_logger(__name__)


def documents(group: str, version: str, plural: str, *, kind: str, namespaced: bool = True) -> Resource[Document]:
    """Return a resource whose objects are read as documents."""
    return Resource(group, version, plural, kind, decoder(Document), namespaced=namespaced)


def key_of(document: Document) -> str:
    """Return ``namespace/name``, or the name of a cluster-scoped object."""
    metadata = document["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def annotations_of(document: Document) -> dict[str, str]:
    """Return the annotations, which must not be changed; empty if the object has none."""
    return document["metadata"].get("annotations") or {}


def labels_of(document: Document) -> dict[str, str]:
    """Return the labels, which must not be changed; empty if the object has none."""
    return document["metadata"].get("labels") or {}


def addresses_in(service: Document) -> tuple[str, ...]:
    """Return the addresses in the status of a Service."""
    ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress") or ()
    return tuple(entry["ip"] for entry in ingress if entry.get("ip"))


class Mirror:
    """A live copy of one collection. Copy its documents before changing them."""

    def __init__(self, client: ApiClient, resource: Resource[Document], *, namespace: str | None = None) -> None:
        """``namespace`` None means all namespaces."""
        self.client = client
        self.resource = resource
        self._namespace = namespace
        self._objects: dict[str, Document] = {}
        self._subscribers: list[Subscriber] = []
        self._synced = asyncio.Event()
        self._seen = 0

    def get(self, key: str) -> Document | None:
        """Return the object with this ``namespace/name`` or name."""
        return self._objects.get(key)

    def all(self, namespace: str | None = None) -> list[Document]:
        """Return the objects of one namespace, or all."""
        found = self._objects.values()
        return [o for o in found if namespace is None or o["metadata"].get("namespace") == namespace]

    def subscribe(self, subscriber: Subscriber) -> None:
        """Deliver every change to ``subscriber``, which must neither block nor raise."""
        self._subscribers.append(subscriber)

    def note(self, document: Document) -> None:
        """Store the response to an own write, unless the watch has a newer version. Subscribers get it."""
        if _version(document) > self._seen:
            self._put(document)

    async def wait_synced(self) -> None:
        """Return after the first list."""
        await self._synced.wait()

    async def run(self) -> None:
        """Follow the collection until cancelled."""
        while True:
            try:
                await self._list_and_follow()
            except KubeError as error:
                log.debug("mirror lost its watch", resource=self.resource.plural, error=str(error))
            await asyncio.sleep(RETRY_SECONDS)

    async def _list_and_follow(self) -> None:
        page = await self.client.list(self.resource, namespace=self._namespace)
        self._replace_all(page.items, page.resource_version)
        self._synced.set()
        params = {"resourceVersion": page.resource_version, "timeoutSeconds": str(WATCH_SECONDS)}
        watch = self.client.watch(self.resource, namespace=self._namespace, params=params, silence=SILENCE)
        async with aclosing(watch) as events:
            async for event in events:
                self._seen = max(self._seen, int(event.resource_version or 0))
                if event.object is None:
                    continue  # a bookmark
                if event.type == "DELETED":
                    self._remove(key_of(event.object))
                else:
                    self._put(event.object)

    def _replace_all(self, items: Sequence[Document], version: str) -> None:
        """Replace the copy by a list."""
        self._seen = max(self._seen, int(version or 0))
        for item in items:
            self._put(item)
        names = {key_of(item) for item in items}
        for key in [key for key in self._objects if key not in names]:
            self._remove(key)

    def _put(self, document: Document) -> None:
        before = self._objects.get(key_of(document))
        if before is None or _version(before) < _version(document):
            self._store(document)

    def _store(self, document: Document) -> None:
        key = key_of(document)
        before = self._objects.get(key)
        self._objects[key] = document
        for subscriber in self._subscribers:
            subscriber(before, document)

    def _remove(self, key: str) -> None:
        before = self._objects.pop(key, None)
        if before is not None:
            for subscriber in self._subscribers:
                subscriber(before, None)


def _version(document: Document) -> int:
    return int(document["metadata"].get("resourceVersion") or 0)
