"""Whole programs in memory: guest clusters with a program each, on one Harvester that gives addresses.

Each program is put together as the real one is, with its flags; only the network, the election of a leader and the
clock are not real. A day takes seconds with ``jumping_time``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from harvester_ccm.app import Application
from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.kube.client import WriteFence
from harvester_ccm.kube.reload import CredentialReloader
from harvester_ccm.model.core import NAMESPACES, SERVICES, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.model.meta import Resource
from harvester_ccm.names import LB_CONTROLLER_FINALIZER
from harvester_ccm.telemetry.metrics import Telemetry
from tests.worlds.builders import CLUSTER, service
from tests.worlds.memory_server import Call, Document, MemoryClient, MemoryServer, Where, document_of, name_of

FLAGS: Final = (
    "--cloud-config=/none",
    "--leader-elect=false",
    "--secure-port=0",
    "--controllers=service-lb-controller",
)


def guest_server(uid: str = CLUSTER.uid) -> MemoryServer:
    """Return a guest cluster whose kube-system namespace has this UID."""
    server = MemoryServer()
    server.put(NAMESPACES, {"metadata": {"name": "kube-system", "uid": uid}})
    return server


class Harvester(MemoryServer):
    """Gives each load balancer an address of its own; one that is made again under its name gets the same."""

    def __init__(self) -> None:
        super().__init__(prompt=[LB_CONTROLLER_FINALIZER])
        self._given: dict[str, str] = {}
        self.first = 1
        """Number of the first address; one that has another has none of the same addresses."""

    def create(self, collection: Where, body: Document) -> Document:
        """Store a new object; a load balancer gets its address a moment later."""
        created = super().create(collection, body)
        if name_of(collection) == name_of(LOAD_BALANCERS):
            key = f"{created['metadata']['namespace']}/{created['metadata']['name']}"
            asyncio.get_running_loop().call_later(0.05, self._give_address, key)
        return created

    def _give_address(self, key: str) -> None:
        if key in self.of(LOAD_BALANCERS):
            number = len(self._given) + self.first
            address = self._given.setdefault(key, f"10.0.{number // 250}.{1 + number % 250}")
            allocated = {"ip": address, "ipPool": "lan"}
            status = {"allocatedAddress": allocated, "conditions": [{"type": "Ready", "status": "True"}]}
            metadata = {"finalizers": [LB_CONTROLLER_FINALIZER]}
            self.change(LOAD_BALANCERS, key, {"metadata": metadata, "status": status})


class Program:
    """The program of one guest cluster."""

    def __init__(
        self,
        guest: MemoryServer,
        harvester: MemoryServer,
        name: str,
        *words: str,
        namespace: str = CLUSTER.namespace,
    ) -> None:
        """``words`` are further flags; ``namespace`` is that of the cloud-config."""
        self.guest = guest
        self.client = MemoryClient(guest, cluster="guest")
        self.telemetry = Telemetry("test")
        self.reloaders: list[CredentialReloader] = []
        self._harvester = MemoryClient(harvester, cluster="harvester", namespace=namespace)
        # The first mention of a controller counts.
        self._flags = (*words, *FLAGS, f"--cluster-name={name}")
        self.exit_code: int | None = None
        """What it ended with."""
        self.application: Application | None = None
        """What runs, once it does."""

    async def run(self) -> None:
        """Run it until it ends."""
        settings = build_settings(parse_command_line(self._flags), {})
        application = self.application = Application(
            settings,
            self.client,
            self._harvester,
            fence=WriteFence(),
            reloaders=self.reloaders,
            telemetry=self.telemetry,
        )
        self.exit_code = await application.run()

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Run it for the time of the block."""
        task = asyncio.create_task(self.run(), name="program")
        try:
            yield
        finally:
            ended = task.done()
            task.cancel()
            done, _ = await asyncio.wait([task])
            if ended:
                done.pop().result()

    def create(self, *names: str) -> None:
        """Create Services of type LoadBalancer."""
        for name in names:
            self.put(service(name, uid=f"uid-of-{name}"))

    def put(self, item: Service) -> None:
        """Store a Service."""
        self.guest.put(SERVICES, document_of(item))

    def service(self, name: str) -> Document:
        """Return a Service as it is stored."""
        return self.guest.of(SERVICES)[f"shop/{name}"]

    def address(self, name: str) -> str:
        """Return the address that a Service shows; empty for none."""
        ingress = self.service(name).get("status", {}).get("loadBalancer", {}).get("ingress") or [{}]
        return str(ingress[0].get("ip", ""))

    def warnings(self, name: str) -> list[str]:
        """Return the texts of the Warning Events about a Service."""
        events = self.guest.events()
        return [one["message"] for one in events if one["type"] == "Warning" and one["involvedObject"]["name"] == name]

    def told(self) -> list[str]:
        """Return the reasons of the Warning Events, with the Services that they are about."""
        warnings = [one for one in self.guest.events() if one["type"] == "Warning"]
        return [f"{one['involvedObject']['name']}: {one['reason']}" for one in warnings]


def copy_of(guest: MemoryServer) -> MemoryServer:
    """Return a cluster with all that is in this one: a clone, or a snapshot that was restored."""
    copy = MemoryServer()
    copy.version = guest.version
    copy.objects = {name: dict(stored) for name, stored in guest.objects.items()}
    return copy


def destructive(calls: Sequence[Call]) -> list[str]:
    """Return the replacements and deletions of load balancers among the requests."""
    return [f"{one.verb} {one.path.rpartition('/')[2]}" for one in calls if one.verb in {"PUT", "DELETE"}]


def by_name(server: MemoryServer, resource: Resource[Any]) -> dict[str, Document]:
    """Return the objects of a collection by their names."""
    return {one["metadata"]["name"]: one for one in server.items(resource)}
