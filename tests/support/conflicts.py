"""The whole program next to another controller that keeps changing the same fields."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from devenv.harvester.machines import Machine, instance_document, machine_document
from harvester_ccm.model.core import CONFIG_MAPS, NODES, SERVICES
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.names import (
    KUBE_VIP_ADDRESSES,
    LB_SELECT_CLUSTER,
    LB_SERVICE_NAME,
    NAD_MAPPING_KEY,
    NAD_MAPPING_NAME,
    NAD_MAPPING_NAMESPACE,
    SHUTDOWN_TAINT,
    UNINITIALIZED_TAINT,
    ZONE,
)
from tests.support.background import running
from tests.support.builders import CLUSTER
from tests.support.memory_server import Call, Document, MemoryServer, Where
from tests.support.program_world import Harvester, Program, guest_server

MINUTE: Final = 60.0
SERVICE: Final = "shop/web"
NODE: Final = "w1"
NODE_ADDRESSES: Final = ("10.9.0.1", "fd00::1")


class ConflictWorld(Program):
    """A cluster with a Service and a Node."""

    def __init__(self) -> None:
        super().__init__(guest_server(), Harvester(), CLUSTER.name, "--controllers=*")
        vm = Machine(NODE, CLUSTER.namespace, CLUSTER.name, zone="zone-1")
        self.harvester.put(VIRTUAL_MACHINES, machine_document(vm))
        instance = instance_document(vm, NODE_ADDRESSES[0])
        instance["status"]["interfaces"][0]["ipAddresses"] = list(NODE_ADDRESSES)
        self.harvester.put(INSTANCES, instance)
        self.guest.put(
            NODES,
            {
                "metadata": {"name": NODE},
                "spec": {"taints": [{"key": UNINITIALIZED_TAINT, "value": "true", "effect": "NoSchedule"}]},
                "status": {
                    "addresses": [{"type": "Hostname", "address": NODE}],
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "nodeInfo": {"systemUUID": vm.system_uuid},
                },
            },
        )
        self.create("web")

    @property
    def calls(self) -> list[Call]:
        """All requests except watches, to both servers."""
        both = sorted((*self.guest.calls, *self.harvester.calls), key=lambda one: one.at)
        return [one for one in both if one.verb != "WATCH"]

    def load_balancer(self) -> Document | None:
        own = (
            one for one in self.harvester.items(LOAD_BALANCERS) if one["metadata"]["labels"][LB_SERVICE_NAME] == "web"
        )
        return next(own, None)

    @asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """Run the controller for the time of the block, which begins when nothing changes any more."""
        async with self.live():
            await asyncio.sleep(5 * MINUTE)
            yield

    def state(self) -> Document:
        """Return status and labels of the Node, and whether the Service has the address of its load balancer."""
        found = self.load_balancer()
        allocated = found["status"]["allocatedAddress"]["ip"] if found else ""
        return {
            "node": self.guest.of(NODES)[NODE]["status"],
            "labels": self.guest.of(NODES)[NODE]["metadata"]["labels"],
            "has address": self.address() == self.address_annotation() == allocated,
        }

    def address_annotation(self) -> str | None:
        return self.annotations().get(KUBE_VIP_ADDRESSES)

    def overwrite(self, server: MemoryServer, where: Where, key: str, patch: Document) -> None:
        """Change an object as another controller, if it exists."""
        if key in server.of(where):
            server.change(where, key, patch)

    def events(self, name: str, reason: str) -> list[str]:
        found = [one for one in self.guest.events() if one["involvedObject"]["name"] == name]
        return [one["message"] for one in found if one["reason"] == reason]

    def writes(self) -> list[Call]:
        """Return the writes to Services, load balancers, Nodes and ConfigMaps."""
        return [one for one in self.calls if one.is_write and "/events" not in one.path]


@dataclass(frozen=True)
class FieldConflict:
    """Another controller that changes an object repeatedly."""

    every: float
    """Seconds between two changes."""
    change: Callable[[ConflictWorld], None]
    field: str
    """What the Event names as overwritten."""
    about: str = "web"
    """Name of the object that gets the Event."""


def _service(patch: Document) -> Callable[[ConflictWorld], None]:
    return lambda world: world.overwrite(world.guest, SERVICES, SERVICE, patch)


def _node(patch: Document) -> Callable[[ConflictWorld], None]:
    return lambda world: world.overwrite(world.guest, NODES, NODE, patch)


def _relabel_load_balancer(world: ConflictWorld) -> None:
    if found := world.load_balancer():
        key = f"{CLUSTER.namespace}/{found['metadata']['name']}"
        patch = {"metadata": {"annotations": {LB_SELECT_CLUSTER: "other"}}}
        world.overwrite(world.harvester, LOAD_BALANCERS, key, patch)


def _delete_load_balancer(world: ConflictWorld) -> None:
    if found := world.load_balancer():
        world.harvester.remove(LOAD_BALANCERS, f"{CLUSTER.namespace}/{found['metadata']['name']}")


def _rewrite_mapping(world: ConflictWorld) -> None:
    key = f"{NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME}"
    world.overwrite(world.guest, CONFIG_MAPS, key, {"data": {NAD_MAPPING_KEY: "{}"}})


_ADDRESS_FIELD: Final = f"annotation {KUBE_VIP_ADDRESSES}"
STRIPPED_ANNOTATION: Final = FieldConflict(
    0.2, _service({"metadata": {"annotations": {KUBE_VIP_ADDRESSES: None}}}), _ADDRESS_FIELD
)
OTHER_ANNOTATION: Final = FieldConflict(
    0.2, _service({"metadata": {"annotations": {KUBE_VIP_ADDRESSES: "192.168.1.50"}}}), _ADDRESS_FIELD
)
OTHER_STATUS: Final = FieldConflict(
    0.05, _service({"status": {"loadBalancer": {"ingress": [{"ip": "192.168.1.5"}]}}}), "status.loadBalancer"
)
KUBELET_ADDRESSES: Final = {
    "status": {
        "addresses": [{"type": "InternalIP", "address": NODE_ADDRESSES[0]}, {"type": "Hostname", "address": NODE}]
    }
}
SHUT_DOWN: Final = {"spec": {"taints": [{"key": SHUTDOWN_TAINT, "effect": "NoSchedule"}]}}
CONFLICTS: Final = {
    "another load balancer controller writes the status": OTHER_STATUS,
    "a GitOps tool writes another address annotation": OTHER_ANNOTATION,
    "a GitOps tool removes the address annotation": STRIPPED_ANNOTATION,
    "another cluster relabels the load balancer": FieldConflict(
        0.2, _relabel_load_balancer, f"annotation {LB_SELECT_CLUSTER} of load balancer demo-shop-web-"
    ),
    "an administrator deletes the load balancer": FieldConflict(
        0.2, _delete_load_balancer, "load balancer demo-shop-web-"
    ),
    "another controller sets the zone of the Node": FieldConflict(
        0.05, _node({"metadata": {"labels": {ZONE: "rack-7"}}}), f"label {ZONE}", NODE
    ),
    "the kubelet writes the addresses of the Node": FieldConflict(
        0.05, _node(KUBELET_ADDRESSES), "status.addresses", NODE
    ),
    "another controller taints the Node as shut down": FieldConflict(0.05, _node(SHUT_DOWN), "spec.taints", NODE),
    "a GitOps tool rewrites the network mapping": FieldConflict(
        0.2, _rewrite_mapping, f"its key {NAD_MAPPING_KEY}", NAD_MAPPING_NAME
    ),
}


@asynccontextmanager
async def conflicting(world: ConflictWorld, conflict: FieldConflict) -> AsyncIterator[None]:
    """Let the other controller change the object for the time of the block."""

    async def change() -> None:
        while True:
            conflict.change(world)
            await asyncio.sleep(conflict.every)

    async with running(change()):
        yield
