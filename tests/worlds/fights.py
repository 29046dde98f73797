"""The whole program in memory beside somebody who undoes what it writes, and what it sends meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from devenv.harvester.machines import Machine, instance_document, machine_document
from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES
from harvester_ccm.model.core import CONFIG_MAPS, NODES, SERVICES
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.names import (
    LB_SELECT_CLUSTER,
    LB_SERVICE_NAME,
    NAD_MAPPING_NAME,
    NAD_MAPPING_NAMESPACE,
    UNINITIALIZED_TAINT,
    ZONE,
)
from tests.worlds.background import running
from tests.worlds.builders import CLUSTER
from tests.worlds.memory_server import Call, Document, MemoryServer, Where
from tests.worlds.program_world import Harvester, Program, guest_server

MINUTE: Final = 60.0
SERVICE: Final = "shop/web"
NODE: Final = "w1"
NODE_ADDRESSES: Final = ("10.9.0.1", "fd00::1")


class Arena:
    """One guest with a Service that is served and a Node that is initialised, on one Harvester."""

    def __init__(self) -> None:
        self.guest = guest_server()
        self.harvester = Harvester()
        self.program = Program(self.guest, self.harvester, CLUSTER.name, "--controllers=*")
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
        self.program.create("web")

    @property
    def calls(self) -> list[Call]:
        """All requests of the program, on both servers; the watches do not count."""
        both = sorted((*self.guest.calls, *self.harvester.calls), key=lambda one: one.at)
        return [one for one in both if one.verb != "WATCH"]

    def load_balancer(self) -> Document | None:
        """Return the load balancer of the Service."""
        own = (
            one for one in self.harvester.items(LOAD_BALANCERS) if one["metadata"]["labels"][LB_SERVICE_NAME] == "web"
        )
        return next(own, None)

    @asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """Run the program for the time of the block, which begins when all is served."""
        async with self.program.live():
            await asyncio.sleep(5 * MINUTE)
            yield

    def shown(self) -> Document:
        """Return what users see: the Node's status, and whether the Service has the address of its load balancer."""
        found = self.load_balancer()
        given = found["status"]["allocatedAddress"]["ip"] if found else ""
        served = self.program.address("web") == self.address_annotation() == given
        return {
            "node": self.guest.of(NODES)[NODE]["status"],
            "labels": self.guest.of(NODES)[NODE]["metadata"]["labels"],
            "served": served,
        }

    def address_annotation(self) -> str | None:
        """Return what kube-vip is told to announce."""
        found: str | None = self.program.service("web")["metadata"]["annotations"].get(KUBE_VIP_ADDRESSES)
        return found

    def is_announced(self) -> bool:
        """Return whether somebody announces the address: kube-vip where it is told to, or Harvester."""
        found = self.load_balancer()
        return bool(self.address_annotation()) or (found is not None and found["spec"]["workloadType"] == "vm")

    def overwrite(self, server: MemoryServer, where: Where, key: str, patch: Document, manager: str) -> None:
        """Write as somebody else, where there is something to change."""
        stored = server.of(where).get(key)
        if stored is None or server.change(where, key, patch) == stored:
            return
        fields = {f"f:{part}": _managed(content) for part, content in patch.items()}
        entry = {"manager": manager, "operation": "Update", "time": "2026-11-21T09:00:00Z", "fieldsV1": fields}
        server.change(where, key, {"metadata": {"managedFields": [entry]}})

    def told(self, name: str, reason: str) -> list[tuple[int, str]]:
        """Return how often, and in which words, an object was said to have something; one pair for each Event."""
        told = [one for one in self.guest.events() if one["involvedObject"]["name"] == name]
        return [(one["count"], one["message"]) for one in told if one["reason"] == reason]


def _managed(content: object) -> Document:
    return {f"f:{key}": _managed(value) for key, value in content.items()} if isinstance(content, dict) else {}


@dataclass(frozen=True)
class Fight:
    """Somebody who undoes something of one object again and again."""

    every: float
    """Seconds."""
    attack: Callable[[Arena], None]
    about: str
    """Name of the object that the Warning is on; empty where only the log tells."""
    field: str
    """What the Warning names."""
    manager: str = ""
    """Who the Warning names."""


def _status(arena: Arena) -> None:
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "192.168.1.5"}]}}}
    arena.overwrite(arena.guest, SERVICES, SERVICE, status, "servicelb")


def _annotation(value: str | None) -> Callable[[Arena], None]:
    patch = {"metadata": {"annotations": {KUBE_VIP_ADDRESSES: value}}}
    return lambda arena: arena.overwrite(arena.guest, SERVICES, SERVICE, patch, "argocd")


def _balancer(patch: Document) -> Callable[[Arena], None]:
    def attack(arena: Arena) -> None:
        found = arena.load_balancer()
        if found is not None:
            key = f"{CLUSTER.namespace}/{found['metadata']['name']}"
            arena.overwrite(arena.harvester, LOAD_BALANCERS, key, patch, "other-ccm")

    return attack


def _delete_balancer(arena: Arena) -> None:
    found = arena.load_balancer()
    if found is not None:
        arena.harvester.remove(LOAD_BALANCERS, f"{CLUSTER.namespace}/{found['metadata']['name']}")


def _node(patch: Document, manager: str) -> Callable[[Arena], None]:
    return lambda arena: arena.overwrite(arena.guest, NODES, NODE, patch, manager)


def _prune_mapping(arena: Arena) -> None:
    key = f"{NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME}"
    if key in arena.guest.of(CONFIG_MAPS):
        arena.guest.remove(CONFIG_MAPS, key)


_KUBELET: Final = {
    "status": {
        "addresses": [{"type": "InternalIP", "address": NODE_ADDRESSES[0]}, {"type": "Hostname", "address": NODE}]
    }
}

strip_annotation: Final = _annotation(None)
BY_STATUS: Final = Fight(0.05, _status, "web", "status.loadBalancer", "servicelb")
BY_ANNOTATION: Final = Fight(
    0.2, _annotation("192.168.1.50"), "web", f"annotation {KUBE_VIP_ADDRESSES} is '192.168.1.50'", "argocd"
)
FIGHTS: Final = {
    "another load balancer controller writes the status, 50 ms": BY_STATUS,
    "GitOps applies its own annotation, 0.2 s": BY_ANNOTATION,
    "GitOps strips the annotation, 0.2 s": Fight(
        0.2, strip_annotation, "web", f"annotation {KUBE_VIP_ADDRESSES} is not there", "argocd"
    ),
    "an annotation of the load balancer is rewritten, 0.2 s": Fight(
        0.2,
        _balancer({"metadata": {"annotations": {LB_SELECT_CLUSTER: "other"}}}),
        "web",
        f"annotation {LB_SELECT_CLUSTER} is 'other'",
        "other-ccm",
    ),
    "the load balancer is deleted in Harvester, 0.2 s": Fight(0.2, _delete_balancer, "web", "is not there"),
    "another labeller insists on the zone, 50 ms": Fight(
        0.05,
        _node({"metadata": {"labels": {ZONE: "rack-7"}}}, "labeller"),
        NODE,
        f"label {ZONE} is 'rack-7'",
        "labeller",
    ),
    "GitOps prunes the network mapping, 0.2 s": Fight(0.2, _prune_mapping, "", ""),
    "a kubelet writes its own addresses, 50 ms": Fight(0.05, _node(_KUBELET, "kubelet"), NODE, "addresses", "kubelet"),
    "a kubelet writes its own addresses, 10 s": Fight(10.0, _node(_KUBELET, "kubelet"), NODE, "addresses", "kubelet"),
}


async def calls_per_minute(arena: Arena, fight: Fight | None, minutes: int) -> list[list[Call]]:
    """Return what the running program asks for in each minute of a fight, or of rest."""
    minute = []
    async with running(_go_on(arena, fight)):
        for _ in range(minutes):
            before = len(arena.calls)
            await asyncio.sleep(MINUTE)
            minute.append(arena.calls[before:])
    return minute


async def _go_on(arena: Arena, fight: Fight | None) -> None:
    while fight is not None:
        fight.attack(arena)
        await asyncio.sleep(fight.every)
    await asyncio.Event().wait()
