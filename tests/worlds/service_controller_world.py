"""A Service controller between two API servers in memory: what it writes, tells and wakes is on record.

The seam is ``ApiClient``: informers, runner and plans are the real ones. A test changes objects through ``put`` and
``drop``, which the caches see at once unless they are told to lag.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from harvester_ccm.controllers.service import (
    ServiceCaches,
    ServiceController,
)
from harvester_ccm.errors import AlreadyExists, Answer, CCMError, Conflict, NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.collection import Page, WatchEvent
from harvester_ccm.kube.events import EventRecorder, ObjectReference
from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.core import CONFIG_MAPS, NODES, SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS, VIRTUAL_MACHINES, LoadBalancer
from harvester_ccm.model.meta import Object, ObjectT, Resource
from harvester_ccm.plan.service.situation import LOAD_BALANCER_INDEXES, SERVICE_INDEXES
from tests.worlds.builders import CLASS_ONLY, CLUSTER

Document = dict[str, Any]


def _answer(status: int, reason: str, request: str) -> Answer:
    return Answer(status, reason, f"{reason}: {request}", request)


@dataclass
class Server:
    """One API server: objects by plural and key, every write on record, and faults to come."""

    cluster: str
    stored: dict[tuple[str, str], Document] = field(default_factory=dict)
    informers: dict[str, Informer[Any]] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    faults: list[CCMError] = field(default_factory=list)
    """Raised by the next writes, one each."""
    lagging: bool = False
    """Whether the caches do not see what happens."""
    unserved: str = ""
    """Version of load balancers that there is not."""
    version: int = 100
    namespace: str = CLUSTER.namespace

    def put(self, resource: Resource[Any], item: Object | Document) -> None:
        """Store an object as somebody else would."""
        document = item if isinstance(item, dict) else msgspec.json.decode(msgspec.json.encode(item), type=Document)
        document.pop("source", None)
        meta = document["metadata"]
        self._store(resource, f"{meta.get('namespace', '')}/{meta['name']}".strip("/"), document)

    def drop(self, resource: Resource[Any], key: str) -> None:
        """Remove an object as somebody else would."""
        self._remove(resource, key)

    async def list(self, resource: Resource[ObjectT], **_: object) -> Page[ObjectT]:
        """Return all objects."""
        mine = [self._read(resource, one) for (plural, _), one in self.stored.items() if plural == resource.plural]
        return Page(tuple(mine), str(self.version))

    async def get(self, resource: Resource[ObjectT], name: str, *, namespace: str | None = None) -> ObjectT:
        """Return one object."""
        if resource.plural == "loadbalancers" and resource.version == self.unserved:
            raise NotFound(_answer(404, "", f"GET {name}"))
        found = self.stored.get((resource.plural, f"{namespace}/{name}"))
        if found is None:
            raise NotFound(_answer(404, "NotFound", f"GET {name}"))
        return self._read(resource, found)

    async def create(self, resource: Resource[ObjectT], body: Mapping[str, Any], *, namespace: str) -> ObjectT:
        """Create an object."""
        name = body["metadata"]["name"]
        self._record(f"POST {name}")
        if (resource.plural, f"{namespace}/{name}") in self.stored:
            raise AlreadyExists(_answer(409, "AlreadyExists", f"POST {name}"))
        document = msgspec.json.decode(msgspec.json.encode(body))
        document["metadata"]["uid"] = f"uid-of-{name}"
        return self._store(resource, f"{namespace}/{name}", document)

    async def replace(
        self, resource: Resource[ObjectT], name: str, body: Mapping[str, Any], *, namespace: str
    ) -> ObjectT:
        """Write a whole object."""
        self._record(f"PUT {name}")
        stored = self.stored.get((resource.plural, f"{namespace}/{name}"))
        if stored is None:
            raise NotFound(_answer(404, "NotFound", f"PUT {name}"))
        if stored["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise Conflict(_answer(409, "Conflict", f"PUT {name}"))
        return self._store(resource, f"{namespace}/{name}", dict(body))

    async def merge_patch(
        self, resource: Resource[ObjectT], name: str, body: Document, *, namespace: str, subresource: str
    ) -> ObjectT:
        """Change fields of an object; one that is being deleted goes with its last finalizer."""
        self._record(f"PATCH {name}/{subresource} {msgspec.json.encode(body).decode()}")
        key = f"{namespace}/{name}"
        stored = self.stored.get((resource.plural, key))
        if stored is None:
            raise NotFound(_answer(404, "NotFound", f"PATCH {name}"))
        expected = body.get("metadata", {}).get("resourceVersion")
        if expected not in {None, stored["metadata"]["resourceVersion"]}:
            raise Conflict(_answer(409, "Conflict", f"PATCH {name}"))
        document = msgspec.json.decode(msgspec.json.encode(stored))
        _merge(document, body)
        if document["metadata"].get("deletionTimestamp") and not document["metadata"].get("finalizers"):
            self._remove(resource, key)
            return self._read(resource, document)
        return self._store(resource, key, document)

    async def delete(self, resource: Resource[Any], name: str, *, namespace: str, uid: str) -> None:
        """Delete an object at once."""
        self._record(f"DELETE {name}")
        stored = self.stored.get((resource.plural, f"{namespace}/{name}"))
        if stored is None:
            raise NotFound(_answer(404, "NotFound", f"DELETE {name}"))
        if stored["metadata"]["uid"] != uid:
            raise Conflict(_answer(409, "Conflict", f"DELETE {name}"))
        self._remove(resource, f"{namespace}/{name}")

    def _record(self, write: str) -> None:
        self.writes.append(write)
        if self.faults:
            raise self.faults.pop(0)

    def _store(self, resource: Resource[ObjectT], key: str, document: Document) -> ObjectT:
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        self.stored[resource.plural, key] = document
        item = self._read(resource, document)
        self._show(resource, "MODIFIED", item)
        return item

    def _remove(self, resource: Resource[Any], key: str) -> None:
        self.version += 1
        document = self.stored.pop((resource.plural, key))
        document["metadata"]["resourceVersion"] = str(self.version)
        self._show(resource, "DELETED", self._read(resource, document))

    def _show(self, resource: Resource[Any], what: Any, item: Any) -> None:
        informer = self.informers.get(resource.plural)
        if informer is not None and informer.synced and not self.lagging:
            informer._apply(WatchEvent(what, item, str(self.version)))

    @staticmethod
    def _read(resource: Resource[ObjectT], document: Document) -> ObjectT:
        return resource.decode(msgspec.json.encode(document))


def _merge(target: Document, patch: Document) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


class Recorder:
    """Takes the Events."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.texts: list[str] = []

    def record(self, reference: ObjectReference, kind: str, reason: str, message: str, *, component: str) -> None:
        """Note an Event."""
        assert component == "service-controller"
        self.told.append(f"{reference.name}: {kind} {reason}")
        self.texts.append(message)


class ServiceControllerWorld:
    """The controller with both servers; ``start`` fills the caches as the informers would."""

    def __init__(self, *, class_only: bool = False, balancers: Resource[LoadBalancer] = LOAD_BALANCERS) -> None:
        self.guest = Server("guest")
        self.harvester = Server("harvester")
        self.recorder = Recorder()
        guest, harvester = cast("ApiClient", self.guest), cast("ApiClient", self.harvester)
        self.caches = ServiceCaches(
            services=Informer(guest, SERVICES, indexes=SERVICE_INDEXES),
            load_balancers=Informer(harvester, balancers, indexes=LOAD_BALANCER_INDEXES),
            nodes=Informer(guest, NODES),
            machines=Informer(harvester, VIRTUAL_MACHINES),
            config_maps=Informer(guest, CONFIG_MAPS),
        )
        self.guest.informers = {
            "services": self.caches.services,
            "nodes": self.caches.nodes,
            "configmaps": self.caches.config_maps,
        }
        self.harvester.informers = {
            "loadbalancers": self.caches.load_balancers,
            "virtualmachines": self.caches.machines,
        }
        self.harvester.unserved = "v1beta1" if balancers != LOAD_BALANCERS else ""
        self.controller = ServiceController(
            guest,
            harvester,
            self.caches,
            recorder=cast("EventRecorder", self.recorder),
            cluster=CLASS_ONLY if class_only else CLUSTER,
            workers=1,
        )
        self.woken: list[str] = []

    async def start(self, *unsynced: str) -> None:
        """List everything but the collections named."""
        for informer in (*self.guest.informers.items(), *self.harvester.informers.items()):
            if informer[0] not in unsynced:
                await informer[1]._list()
        self.watch_queue()

    def watch_queue(self) -> None:
        """Note which keys are enqueued, from now on."""
        self.woken.clear()
        vars(self.controller.runner)["enqueue"] = self.woken.append

    def writes(self) -> list[str]:
        """Return and forget what was written, without the documents."""
        made = [write.split(" {")[0] for write in (*self.guest.writes, *self.harvester.writes)]
        self.guest.writes.clear()
        self.harvester.writes.clear()
        return made

    def told(self) -> list[str]:
        """Return and forget what was told."""
        told = list(self.recorder.told)
        self.recorder.told.clear()
        return told
