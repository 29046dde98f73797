"""Services that share an address: looked at one after the other, and nobody else waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from harvester_ccm.controllers.service import (
    ServiceCaches,
    ServiceController,
)
from harvester_ccm.controllers.vms import VMCache
from harvester_ccm.kube.events import EventRecorder
from harvester_ccm.kube.informer import Informer, Selection
from harvester_ccm.model.core import CONFIG_MAPS, NODES, SERVICES
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.names import LB_CONTROLLER_FINALIZER, PRIMARY_SERVICE, PRIMARY_SERVICE_LABEL
from harvester_ccm.plan.node.vms import NODE_INDEXES, VM_INDEXES, VMI_INDEXES
from harvester_ccm.plan.service.snapshot import LOAD_BALANCER_INDEXES, SERVICE_INDEXES
from tests.worlds.builders import ADDRESS, CLUSTER, DELETED_AT, LB_NAME, allocated, served, service
from tests.worlds.clock import jumping_time, until
from tests.worlds.memory_server import Call, Document, MemoryClient, MemoryServer

SERVICE, BALANCER = "v1/services", "loadbalancer.harvesterhci.io/v1beta1/loadbalancers"
SLOW = 10.0
WORKERS = 16
LB_PATH = f"{LOAD_BALANCERS.path(CLUSTER.namespace)}/{LB_NAME}"
SHARERS_OF_ONE = [f"share-{number:02}" for number in range(30)]


def document(item: Any) -> Document:
    """Return an object as a server stores it."""
    plain: Document = msgspec.json.decode(msgspec.json.encode(item))
    plain.pop("source", None)
    return plain


class SharedAddressWorld:
    """The Service controller on two API servers in memory; Harvester gives addresses."""

    def __init__(self) -> None:
        self.guest, self.harvester = MemoryServer(), MemoryServer(prompt=[LB_CONTROLLER_FINALIZER])
        guest = MemoryClient(self.guest, cluster="guest")
        harvester = MemoryClient(self.harvester, cluster="harvester", namespace=CLUSTER.namespace)
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
        self.recorder = EventRecorder(guest, host="test")
        self.controller = ServiceController(
            guest,
            harvester,
            self.caches,
            recorder=self.recorder,
            cluster=CLUSTER,
            workers=WORKERS,
        )

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Run everything for the time of the block."""
        caches, vms = self.caches, self.caches.vms
        informers = (caches.services, caches.load_balancers, vms.nodes, vms.vms, vms.vmis, caches.config_maps)
        async with asyncio.TaskGroup() as group:
            work = [informer.run() for informer in informers]
            work += [self.recorder.run(), self.controller.run(), self._give_addresses()]
            tasks = [group.create_task(one, name="world") for one in work]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    async def _give_addresses(self) -> None:
        given = 100
        while True:
            for key, stored in list(self.harvester.objects.get(BALANCER, {}).items()):
                if not stored.get("status"):
                    given += 1
                    address = {"ip": f"192.168.100.{given}", "ipPool": "vlan100"}
                    status = {"allocatedAddress": address, "conditions": [{"type": "Ready", "status": "True"}]}
                    metadata = {"finalizers": [LB_CONTROLLER_FINALIZER]}
                    self.harvester.change(BALANCER, key, {"metadata": metadata, "status": status})
            await asyncio.sleep(0.05)

    def address(self, name: str) -> str:
        """Return the address that a Service shows."""
        stored = self.guest.objects[SERVICE].get(f"shop/{name}", {})
        ingress = stored.get("status", {}).get("loadBalancer", {}).get("ingress") or [{}]
        return str(ingress[0].get("ip", ""))

    def slow_down(self, server: MemoryServer, verb: str, path: str) -> None:
        """Have the requests take long from now on that have the path in them."""
        usual = server.delay
        server.delay = lambda call: SLOW if call.verb == verb and path in call.path else usual(call)

    def under_way(self, server: MemoryServer, verb: str, path: str) -> Callable[[], int]:
        """Return what tells how many such requests have come and are not answered yet."""

        def is_one(call: Call) -> bool:
            return call.verb == verb and path in call.path

        return lambda: sum(is_one(call) and call.at > asyncio.get_running_loop().time() - SLOW for call in server.calls)

    def writes(self, server: MemoryServer, path: str) -> list[str]:
        """Return the writes with the path in them, in order."""
        writes = (call for call in server.calls if call.verb not in {"GET", "WATCH"} and path in call.path)
        return [f"{call.verb} {call.path}" for call in writes]


def with_primary() -> SharedAddressWorld:
    """Return a world with a primary that has its address."""
    world = SharedAddressWorld()
    world.guest.put(SERVICE, document(served()))
    world.harvester.put(BALANCER, document(allocated()))
    return world


@jumping_time
async def test_one_of_two_secondaries_with_one_port_has_the_address_when_they_are_reconciled_at_once() -> None:
    world = with_primary()
    ask: Any = {"annotations": {PRIMARY_SERVICE: "shop/web"}, "ports": [{"port": 9}]}
    async with world.live():
        await asyncio.sleep(1)
        world.slow_down(world.guest, "PATCH", "/services/newer")
        world.guest.put(SERVICE, document(service("newer", uid="2", created="2026-01-02T00:00:00Z", **ask)))
        await asyncio.sleep(1)
        world.guest.put(SERVICE, document(service("older", uid="1", created="2026-01-01T00:00:00Z", **ask)))
        await asyncio.sleep(100)
        assert (world.address("newer"), world.address("older")) == ("", ADDRESS)
        reasons = [event["reason"] for event in world.guest.events() if event["involvedObject"]["name"] == "newer"]
        assert "AddressSharingRejected" in reasons


@jumping_time
async def test_users_are_looked_for_once_more_after_the_withdrawal() -> None:
    """What another process of the program had begun when it lost the Lease comes to an end."""
    world = with_primary()
    async with world.live():
        await asyncio.sleep(1)
        world.slow_down(world.guest, "PATCH", "/services/web")
        world.guest.change(SERVICE, "shop/web", {"metadata": {"deletionTimestamp": DELETED_AT}})
        await asyncio.sleep(1)
        shares: Any = {"annotations": {PRIMARY_SERVICE: "shop/web"}, "labels": {PRIMARY_SERVICE_LABEL: "shop.web"}}
        world.guest.put(SERVICE, document(served("other", uid="2", ports=[{"port": 9}], **shares)))
        await asyncio.sleep(100)
        assert world.writes(world.harvester, "/loadbalancers/") == []
        told = [event["reason"] for event in world.guest.events() if event["involvedObject"]["name"] == "web"]
        assert told == ["DeletingLoadBalancer", "DeletionPending"]
        world.guest.remove(SERVICE, "shop/other")
        await until(lambda: "shop/web" not in world.guest.objects[SERVICE], seconds=100)
    assert world.writes(world.harvester, "/loadbalancers/") == [f"DELETE {LB_PATH}"]


@jumping_time
async def test_the_deletion_of_a_primary_waits_for_the_patch_of_a_secondary() -> None:
    world = with_primary()
    async with world.live():
        await asyncio.sleep(1)
        world.slow_down(world.guest, "PATCH", "/services/other")
        other = service("other", uid="2", annotations={PRIMARY_SERVICE: "shop/web"}, ports=[{"port": 9}])
        world.guest.put(SERVICE, document(other))
        await asyncio.sleep(1)
        world.guest.change(SERVICE, "shop/web", {"metadata": {"deletionTimestamp": DELETED_AT}})
        await asyncio.sleep(3 * SLOW)
        assert world.address("other") == ADDRESS
        assert world.writes(world.harvester, "/loadbalancers/") == [], "the secondary has the address now"
