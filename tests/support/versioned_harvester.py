"""The whole program in memory next to a Harvester of any version: its emulated controllers and webhook.

The number of a version is one of ``devenv.harvester.versions``; the VMs are of a kind of ``devenv.harvester.machines``.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from devenv.harvester.emulator import EVERYBODY, HarvesterEmulator, Substitutes
from devenv.harvester.machines import Kind, Machine, instance_document, machine_document
from devenv.harvester.probes import Check
from devenv.harvester.queue import FAST
from devenv.harvester.records import INSTANCES, MACHINES, NAMESPACES, POOLS
from devenv.harvester.webhook import NETWORKS
from harvester_ccm.model.core import NODES, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS
from tests.devenv.harvester_server import HarvesterServer, webhook_of
from tests.support.builders import CLUSTER
from tests.support.memory_server import Document, MemoryClient
from tests.support.program_world import Program, guest_server

FIRST: Final = "vms/first"
SECOND: Final = "vms/second"
"""Two networks of the VMs."""
SUBNETS: Final = {FIRST: "10.1.0.0/24", SECOND: "10.2.0.0/24"}
LAN: Final = "10.1.0.0/24"
LEASES: Final = ("10.3.0.10", "10.3.0.99")
CACHE_SECONDS: Final = 0.1
"""After which the caches of Harvester have a change."""


class World(Program):
    """A guest cluster with its program, on a Harvester of a version."""

    harvester: HarvesterServer

    def __init__(self, *flags: str) -> None:
        server = HarvesterServer()
        server.put(NAMESPACES, {"metadata": {"name": CLUSTER.namespace}})
        super().__init__(guest_server(), server, CLUSTER.name, *flags)
        self.healthy = True
        """Whether backends accept connections."""
        self.rng = random.Random("versions")

    @asynccontextmanager
    async def on(self, number: str, **more: Any) -> AsyncIterator[HarvesterEmulator]:
        """Run the Harvester of this version for the time of the block."""
        client = MemoryClient(self.harvester, cluster="harvester", name="emulator")
        emulator = HarvesterEmulator(
            client,
            pace=FAST,
            webhook=False,
            version=number,
            collection_seconds=0.3,
            substitutes=Substitutes(self.rng.choice, self._connects),
            **{"dhcp_range": LEASES, **more},
        )
        async with webhook_of(self.harvester, number), emulator:
            yield emulator

    @asynccontextmanager
    async def serving(self, number: str, wanted: Service, *, seconds: float = 60) -> AsyncIterator[None]:
        """Run this version, with pool ``lan``, and the program, which has had this Service for some time."""
        async with self.on(number):
            self.put_pool("lan", LAN)
            async with self.live_with(wanted, seconds=seconds):
                yield

    @asynccontextmanager
    async def live_with(self, wanted: Service, *, seconds: float = 60) -> AsyncIterator[None]:
        """Run the program, which has had this Service for some time."""
        self.put(wanted)
        async with self.live():
            await asyncio.sleep(seconds)
            yield

    async def _connects(self, _address: str, _check: Check) -> bool:
        return self.healthy

    def put_pool(self, name: str, subnet: str, *, network: str = "", **selector: Any) -> None:
        """Create a pool, for everybody if nothing else is said."""
        chosen: Document = {**(selector or EVERYBODY), **({"network": network} if network else {})}
        self.put_document(
            POOLS, {"metadata": {"name": name}, "spec": {"ranges": [{"subnet": subnet}], "selector": chosen}}
        )

    async def put_networks(self) -> None:
        """Create two networks, and a pool for each, named like it."""
        for network, subnet in SUBNETS.items():
            namespace, _, name = network.partition("/")
            metadata = {"name": name, "namespace": namespace}
            self.put_document(NETWORKS, {"metadata": metadata, "spec": {"config": "{}"}})
            await asyncio.sleep(CACHE_SECONDS)
            scope = [{"project": "*", "namespace": "*", "guestCluster": CLUSTER.name}]
            self.put_pool(name, subnet, network=network, scope=scope)

    def put_document(self, resource: Any, document: Document) -> Document:
        return self.harvester.create(resource, {"apiVersion": resource.api_version, "kind": resource.kind, **document})

    def put_machine(self, machine: Machine, *addresses: str) -> None:
        """Start a VM, with its Node."""
        stored = self.harvester.put(MACHINES, machine_document(machine))
        self.harvester.put(INSTANCES, instance_document(machine, *addresses))
        spec = {"providerID": f"harvester://{stored['metadata']['uid']}"}
        node = {
            "metadata": {"name": machine.name},
            "spec": spec,
            "status": {"nodeInfo": {"systemUUID": machine.system_uuid}},
        }
        self.guest.put(NODES, node)

    def stop_machine(self, machine: Machine) -> None:
        self.harvester.remove(INSTANCES, f"{machine.namespace}/{machine.name}")

    @property
    def balancer(self) -> Document:
        (found,) = self.harvester.items(LOAD_BALANCERS)
        return found

    def books(self, pool: str) -> Mapping[str, str]:
        status: Document = self.harvester.of(POOLS)[pool].get("status") or {}
        return status.get("allocated") or {}


def machine_of(kind: Kind, number: int, *networks: str) -> Machine:
    """Return a VM of this cluster, in the pod network unless networks are given."""
    return Machine.of_kind(kind, number, CLUSTER.name, namespace=CLUSTER.namespace, networks=networks or ("",))


def world_with_machines(*numbers: int, kind: Kind = Kind.RANCHER) -> World:
    """Return a world with these VMs of one kind."""
    world = World()
    for number in numbers:
        world.put_machine(machine_of(kind, number), f"192.0.2.{number}")
    return world
