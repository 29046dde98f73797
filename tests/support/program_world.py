"""The whole program in memory: guest clusters, each with its program, on one Harvester that allocates addresses.

Each program is assembled like the real one, with its flags; only the network, the leader election and the clock are
not real. A day takes seconds with ``jumping_time``.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from harvester_ccm.app import Application
from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.kube.builtin import NAMESPACES
from harvester_ccm.kube.errors import KubeError, Unreachable
from harvester_ccm.kube.fence import WriteFence
from harvester_ccm.kube.objects import Resource
from harvester_ccm.kube.reload import CredentialReloader
from harvester_ccm.model.core import ENDPOINT_SLICES, NODES, SERVICES, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.names import DHCP_ADDRESS, LB_CONTROLLER_FINALIZER, LOAD_BALANCER_READY
from harvester_ccm.telemetry.metrics import Telemetry
from tests.support.builders import CLUSTER, endpoint_slice, service
from tests.support.memory_server import Call, Document, MemoryClient, MemoryServer, Where, document_of, name_of

Server = TypeVar("Server", bound=MemoryServer)
AWAY: Final = Unreachable("connection refused")
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
    """Allocates addresses: each load balancer gets its own, and the same one if it is created again.

    DHCP is left to kube-vip; the address of a VM load balancer is in use at once.
    """

    def __init__(self) -> None:
        super().__init__(prompt=[LB_CONTROLLER_FINALIZER])
        self._addresses: dict[str, str] = {}
        self.first = 1
        """Number of the first address."""
        self.seconds = 0.05
        """Seconds until an address is allocated."""
        self.paused = False
        """Whether no address is allocated."""

    def create(self, collection: Where, body: Document) -> Document:
        """Store a new object; a load balancer gets its address later."""
        created = super().create(collection, body)
        if name_of(collection) == name_of(LOAD_BALANCERS):
            key = f"{created['metadata']['namespace']}/{created['metadata']['name']}"
            asyncio.get_running_loop().call_later(self.seconds, self._allocate, key)
        return created

    def _allocate(self, key: str) -> None:
        if self.paused:
            asyncio.get_running_loop().call_later(1.0, self._allocate, key)
        elif key in self.of(LOAD_BALANCERS):
            spec, number = self.of(LOAD_BALANCERS)[key]["spec"], len(self._addresses) + self.first
            address = self._addresses.setdefault(key, f"10.0.{number // 250}.{1 + number % 250}")
            allocated = {"ip": DHCP_ADDRESS if spec["ipam"] == "dhcp" else address, "ipPool": "lan"}
            status: Document = {"allocatedAddress": allocated, "conditions": [{"type": "Ready", "status": "True"}]}
            if spec["workloadType"] == "vm":
                status |= {"address": address, "backendServers": ["10.1.0.1"]}
            metadata = {"finalizers": [LB_CONTROLLER_FINALIZER]}
            self.change(LOAD_BALANCERS, key, {"metadata": metadata, "status": status})


class Program:
    """harvester-ccm with one guest cluster."""

    def __init__(
        self,
        guest: MemoryServer,
        harvester: MemoryServer,
        name: str,
        *flags: str,
        namespace: str = CLUSTER.namespace,
    ) -> None:
        """``namespace`` is the one of the cloud-config."""
        self.guest = guest
        self.harvester = harvester
        self.fence = WriteFence()
        self.client = MemoryClient(guest, cluster="guest", fence=self.fence)
        self.telemetry = Telemetry("test")
        self.reloaders: list[CredentialReloader] = []
        self._harvester_client = MemoryClient(harvester, cluster="harvester", namespace=namespace, fence=self.fence)
        # No kube-vip runs, unless the test plays it. The first mention of a controller counts, the last of other flags.
        self._flags = ("--announcer=other", *flags, *FLAGS, f"--cluster-name={name}")
        self.exit_code: int | None = None
        """Set when it has ended."""

    async def run(self) -> None:
        settings = build_settings(parse_command_line(self._flags), {})
        application = Application(
            settings,
            self.client,
            self._harvester_client,
            fence=self.fence,
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

    async def until_crash(self, writes: int) -> None:
        """Run it until it has sent this many writes; the response to the last one is lost."""
        task = asyncio.create_task(self.run())
        left = writes

        def lost(call: Call) -> KubeError | None:
            nonlocal left
            left -= call.is_write and "/events" not in call.path
            if left > 0:
                return None
            for server in (self.guest, self.harvester):
                server.fault = lambda _call: AWAY
            task.cancel()
            return AWAY

        self.guest.lost = self.harvester.lost = lost
        await asyncio.wait([task], timeout=60)
        for server in (self.guest, self.harvester):
            server.fault, server.lost = None, lambda _call: None
        task.cancel()
        await asyncio.wait([task])

    def create(self, *names: str) -> None:
        """Create Services of type LoadBalancer."""
        for name in names:
            self.put(service(name, uid=f"uid-of-{name}"))

    def put(self, item: Service) -> None:
        self.guest.put(SERVICES, document_of(item))

    def put_slice(self, name: str = "web", *, is_filled: bool = True) -> None:
        """Write the EndpointSlice of a Service, with a Pod on node-1 unless it is empty."""
        endpoint = {"addresses": ["10.42.0.7"], "nodeName": "node-1", "conditions": {"ready": True, "serving": True}}
        endpoints = [endpoint] if is_filled else []
        self.guest.put(ENDPOINT_SLICES, document_of(endpoint_slice(f"{name}-a", *endpoints, of=name)))

    def change(self, name: str = "web", **patch: Any) -> None:
        self.guest.change(SERVICES, f"shop/{name}", patch)

    def service(self, name: str = "web") -> Document:
        return self.guest.of(SERVICES)[f"shop/{name}"]

    def annotations(self, name: str = "web") -> dict[str, str]:
        return dict(self.service(name)["metadata"].get("annotations") or {})

    def condition(self, name: str = "web") -> Document:
        """Return the condition of a Service; empty if it has none."""
        found = self.service(name).get("status", {}).get("conditions") or ()
        return dict(next((one for one in found if one["type"] == LOAD_BALANCER_READY), {}))

    def address(self, name: str = "web") -> str:
        """Return the address in the status of a Service; empty if it has none."""
        ingress = self.service(name).get("status", {}).get("loadBalancer", {}).get("ingress") or [{}]
        return str(ingress[0].get("ip", ""))

    def warnings(self, name: str = "web") -> list[str]:
        """Return the messages of the Warning Events of an object."""
        events = self.guest.events()
        return [one["message"] for one in events if one["type"] == "Warning" and one["involvedObject"]["name"] == name]

    def reasons(self, kind: str = "Warning") -> list[str]:
        """Return ``name: reason`` of the Events of a type."""
        events = [one for one in self.guest.events() if one["type"] == kind]
        return [f"{one['involvedObject']['name']}: {one['reason']}" for one in events]


def demo_program(*flags: str) -> tuple[MemoryServer, Harvester, Program]:
    """Return a guest cluster, a Harvester, and the program of cluster ``demo`` between them."""
    guest, harvester = guest_server(), Harvester()
    return guest, harvester, Program(guest, harvester, CLUSTER.name, *flags)


def with_nodes(guest: MemoryServer, count: int = 3) -> MemoryServer:
    """Add initialized Nodes to a cluster."""
    for number in range(count):
        spec = {"providerID": f"harvester://vm-{number}"}
        guest.put(NODES, {"metadata": {"name": f"node-{number}"}, "spec": spec})
    return guest


def with_machines(harvester: Server, count: int = 3) -> Server:
    """Add the VMs of these Nodes to a Harvester."""
    for number in range(count):
        metadata = {"name": f"machine-{number}", "namespace": CLUSTER.namespace, "uid": f"vm-{number}"}
        harvester.put(VIRTUAL_MACHINES, {"metadata": metadata})
    return harvester


def copy_of(guest: MemoryServer) -> MemoryServer:
    """Return a clone of a cluster, or the cluster that a snapshot was restored to."""
    copy = MemoryServer()
    copy.version = guest.version
    copy.objects = {name: dict(stored) for name, stored in guest.objects.items()}
    return copy


def destructive(calls: Sequence[Call]) -> list[str]:
    return [f"{one.verb} {one.path.rpartition('/')[2]}" for one in calls if one.verb in {"PUT", "DELETE"}]


def by_name(server: MemoryServer, resource: Resource[Any]) -> dict[str, Document]:
    return {one["metadata"]["name"]: one for one in server.items(resource)}
