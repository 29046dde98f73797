"""A watch that loses the event of a deletion: the 404 of the first request about the object is enough."""

import asyncio

import pytest

from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from tests.support.builders import CLUSTER
from tests.support.clock import jumping_time
from tests.support.memory_server import MemoryServer
from tests.support.node_world import NODE, NodeWorld, joined, machines
from tests.support.program_world import Harvester, Program, guest_server


def remove_silently(server: MemoryServer, collection: str, key: str) -> None:
    """Remove an object in a way that no watch reports."""
    server.watch_drops = lambda _watch, _kind: True
    server.remove(collection, key)
    server.watch_drops = lambda _watch, _kind: False


@jumping_time
async def test_service_that_is_gone_is_patched_once() -> None:
    guest, harvester = guest_server(), Harvester()
    program = Program(guest, harvester, "demo")
    async with program.live():
        program.create("web", "api")
        await asyncio.sleep(10)
        (key,) = [key for key, lb in harvester.of(LOAD_BALANCERS).items() if "web" in lb["metadata"]["name"]]
        remove_silently(guest, "v1/services", "shop/web")
        guest.calls.clear()
        # Another address must be written to the Service.
        harvester.change(LOAD_BALANCERS, key, {"status": {"allocatedAddress": {"ip": "10.0.9.9"}}})
        await asyncio.sleep(1200)
        assert len(guest.writes("/services/web")) == 1
        assert [one for one in program.reasons() if "Conflict" in one] == []
        assert program.address("api")
        # The list that follows finds what else the watch lost.
        assert len([call for call in guest.calls if call.verb == "GET" and call.path == SERVICES.path()]) == 1


@pytest.mark.parametrize("change", ["ports", "deletion"])
@jumping_time
async def test_load_balancer_that_is_gone_is_created_again_or_not_missed(change: str) -> None:
    guest, harvester = guest_server(), Harvester()
    program = Program(guest, harvester, "demo", "--orphaned-load-balancer-policy=off")
    async with program.live():
        program.create("web")
        await asyncio.sleep(10)
        (key,) = harvester.of(LOAD_BALANCERS)
        remove_silently(harvester, "loadbalancer.harvesterhci.io/v1beta1/loadbalancers", key)
        harvester.calls.clear()
        if change == "ports":
            program.change("web", metadata={"annotations": {"cloudprovider.harvesterhci.io/description": "new"}})
            program.change("web", spec={"ports": [{"name": "new", "port": 8443, "nodePort": 30001, "protocol": "TCP"}]})
        else:
            guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(1200)
    writes = [one.split()[0] for one in harvester.writes(CLUSTER.namespace)]
    if change == "ports":
        assert writes.count("PUT") <= 2, writes
        assert key in harvester.of(LOAD_BALANCERS)
        assert "web: FieldConflict" not in program.reasons()
    else:
        assert writes == ["DELETE"]
        assert "shop/web" not in guest.of(SERVICES)


@pytest.mark.parametrize("change", ["addresses", "not ready"])
@jumping_time
async def test_node_that_is_gone_is_written_once(change: str) -> None:
    scene = NodeWorld()
    async with scene.live():
        (vm, _) = await joined(scene, machines(2))
        if change == "not ready":
            scene.say_ready(vm.name, "Unknown")
            await asyncio.sleep(10)
        remove_silently(scene.guest_server, NODE, vm.name)
        scene.guest_server.calls.clear()
        if change == "addresses":
            scene.report(vm, "10.0.0.77")
        else:
            scene.destroy(vm)
        await asyncio.sleep(1200)
        writes = [write for write in scene.node_writes() if write.split("/")[4] == vm.name]
        assert len(writes) == 1, writes
        assert "FieldConflict" not in scene.told(vm.name)
