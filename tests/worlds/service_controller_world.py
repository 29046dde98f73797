"""A Service controller between two API servers in memory: what it writes, tells and wakes is on record.

Clients, informers, runner and plans are the real ones. A test changes objects on the servers and asks for one
reconcile after the other; the caches have always caught up by then, unless their server is told to lag.
"""

from __future__ import annotations

import asyncio
from typing import Any

from harvester_ccm.controllers.service import (
    ServiceCaches,
    ServiceController,
)
from harvester_ccm.controllers.vms import VMCache
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.events import EventRecorder, ObjectReference
from harvester_ccm.kube.informer import Informer, Selection
from harvester_ccm.model.core import CONFIG_MAPS, NODES, SERVICES
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.model.outcome import Done, EventType, Outcome
from harvester_ccm.names import LB_CONTROLLER_FINALIZER
from harvester_ccm.plan.node.vms import NODE_INDEXES, VM_INDEXES, VMI_INDEXES
from harvester_ccm.plan.service.snapshot import LOAD_BALANCER_INDEXES, SERVICE_INDEXES
from tests.worlds.builders import CLASS_ONLY, CLUSTER
from tests.worlds.memory_server import Call, MemoryClient, MemoryServer
from tests.worlds.waiting import wait_for


class Recorder(EventRecorder):
    """Takes the Events."""

    def __init__(self, client: ApiClient) -> None:
        super().__init__(client, host="test")
        self.told: list[str] = []
        self.texts: list[str] = []

    def record(
        self, reference: ObjectReference, event_type: EventType, reason: str, message: str, *, component: str
    ) -> bool:
        """Note an Event."""
        assert component == "service-controller"
        self.told.append(f"{reference.name}: {event_type} {reason}")
        self.texts.append(message)
        return True


class HandDrivenController(ServiceController):
    """Works on a Service when a test says so; of what its queue hands out it only takes a note."""

    woken: list[str]
    at_work = False
    """Whether it works on what its queue hands out, too."""

    async def reconcile(self, key: str) -> Outcome:
        """Note that the queue has handed out a key."""
        self.woken.append(key)
        return await self.work_on(key) if self.at_work else Done()

    async def work_on(self, key: str) -> Outcome:
        """Bring one Service nearer to what it should be."""
        return await super().reconcile(key)


class ServiceControllerWorld:
    """Two servers in memory and the controller; Harvester takes its finalizer off at once."""

    def __init__(self, *, class_only: bool = False) -> None:
        self.guest, self.harvester = MemoryServer(), MemoryServer(prompt=[LB_CONTROLLER_FINALIZER])
        """Of writes to Harvester."""
        guest = MemoryClient(self.guest, cluster="guest")
        harvester = MemoryClient(self.harvester, cluster="harvester", namespace=CLUSTER.namespace)
        for server in (self.guest, self.harvester):
            server.delay = lambda _call: 0.0
        self.recorder = Recorder(guest)
        vms = Selection(CLUSTER.namespace)
        self.caches = ServiceCaches(
            services=Informer(guest, SERVICES, indexes=SERVICE_INDEXES),
            load_balancers=Informer(harvester, LOAD_BALANCERS, vms, indexes=LOAD_BALANCER_INDEXES),
            vms=VMCache(
                Informer(guest, NODES, indexes=NODE_INDEXES),
                Informer(harvester, VIRTUAL_MACHINES, vms, indexes=VM_INDEXES),
                Informer(harvester, INSTANCES, vms, indexes=VMI_INDEXES),
                CLUSTER,
            ),
            config_maps=Informer(guest, CONFIG_MAPS),
        )
        self.controller = HandDrivenController(
            guest,
            harvester,
            self.caches,
            recorder=self.recorder,
            cluster=CLASS_ONLY if class_only else CLUSTER,
            workers=1,
        )
        self.woken = self.controller.woken = []
        """What the queue has handed out."""
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, *unread: str) -> None:
        """Fill the caches and keep them up to date until the test ends, but not those of the resources named."""
        self._tasks.append(asyncio.create_task(self.controller.queue.run(), name="queue"))
        caches, vms = self.caches, self.caches.vms
        for informer in (
            caches.services, caches.load_balancers, vms.nodes, vms.vms, vms.vmis, caches.config_maps
        ):  # fmt: skip
            if informer.resource.plural not in unread:
                await self.read(informer)
        await self.settle()
        self.woken.clear()

    async def read(self, informer: Informer[Any]) -> None:
        """Fill a cache, or let it fail to be filled, and keep it up to date until the test ends."""
        changed = asyncio.Event()
        informer.on_state(changed.set)
        self._tasks.append(asyncio.create_task(informer.run(), name=informer.name))
        await changed.wait()
        await self.settle()

    async def settle(self) -> None:
        """Return when the caches have caught up and the queue has handed out what that woke."""
        await self.guest.delivered()
        await self.harvester.delivered()
        await wait_for(lambda: self.controller.backends_timer is None, what="the reading of the backends")
        # Its one worker gives the others a turn after each key.
        for _ in range(len(self.controller.queue._urgent) + len(self.controller.queue._background) + 1):
            await asyncio.sleep(0)

    async def reconcile(self, key: str) -> Outcome:
        """Let the caches catch up and bring one Service nearer to what it should be."""
        await self.settle()
        return await self.controller.work_on(key)

    def writes(self) -> list[str]:
        """Return and forget what was written: first in the guest, then in Harvester."""
        made = [_shown(call) for call in (*self.guest.calls, *self.harvester.calls) if call.is_write]
        self.guest.calls.clear()
        self.harvester.calls.clear()
        return made

    def told(self) -> list[str]:
        """Return and forget what was told."""
        told = list(self.recorder.told)
        self.recorder.told.clear()
        return told


def _shown(call: Call) -> str:
    """Return a write without the way to its collection: ``PATCH web/status``."""
    if call.verb == "POST":
        return f"POST {call.body['metadata']['name']}"
    _, _, path = call.path.partition("/namespaces/")
    return f"{call.verb} {'/'.join(path.split('/')[2:])}"
