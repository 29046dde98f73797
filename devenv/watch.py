"""Copies of an API server's objects as plain JSON documents, kept by list and watch.

For the emulators: they rewrite whole objects and must not lose a field, so they work on documents rather than on typed
views. Every event reaches every
subscriber in the server's order. A lost watch is taken up again with a new list; what changed meanwhile is delivered as
the difference.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeAlias

import structlog

from harvester_ccm.errors import CCMError
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.meta import Resource, decoder

Document: TypeAlias = dict[str, Any]
"""A JSON object of an API server; its shape is the server's matter."""

Subscriber = Callable[[Document | None, Document | None], None]
"""Called with (before, after): before is None for a new object, after is None for one that is gone."""

SILENCE: Final = 150.0
"""Seconds without a line after which a watch is given up; servers send a bookmark about every minute."""
WATCH_SECONDS: Final = 600
"""After which a server ends a watch."""
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
    """Return the annotations; empty when there are none. Not to be changed."""
    return document["metadata"].get("annotations") or {}


def labels_of(document: Document) -> dict[str, str]:
    """Return the labels; empty when there are none. Not to be changed."""
    return document["metadata"].get("labels") or {}


class Mirror:
    """A live copy of one collection. Documents in it belong to the copy: copy before changing."""

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
        """Have every change delivered to ``subscriber``, which must neither block nor raise."""
        self._subscribers.append(subscriber)

    def note(self, document: Document) -> None:
        """Take the answer to an own write into the copy, unless the watch is already further. Subscribers see it."""
        if _version(document) > self._seen:
            self._put(document)

    async def wait_synced(self) -> None:
        """Return when the first list is in."""
        await self._synced.wait()

    def forget(self) -> None:
        """Know nothing any more, as a process that starts anew; subscribers are not told. Not while ``run`` runs."""
        self._objects.clear()
        self._synced.clear()
        self._seen = 0

    async def run(self) -> None:
        """Follow the collection until cancelled."""
        while True:
            try:
                await self._list_and_follow()
            except CCMError as error:
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
        """Take in a list: of a server that was restored from a backup, what is newer than it says is of a lost past."""
        listed = int(version or 0)
        rewound, self._seen = listed < self._seen, listed
        names = {key_of(item) for item in items}
        for item in items:
            before = self._objects.get(key_of(item))
            if before is not None and before != item and (rewound or _version(before) <= listed):
                self._store(item)
            else:
                self._put(item)
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
