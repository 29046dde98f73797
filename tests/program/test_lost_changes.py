"""A watch that loses the event of a change, a restore or a deletion: the next request about the object notices it.

A write is enough to notice a change, and the 404 of the first request about the object to notice its deletion.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harvester_ccm.kube.errors import KubeError
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import DESCRIPTION, SERVICE_FINALIZER, Reason
from harvester_ccm.plan.service.messages import CONTROLLER_GRACE_SECONDS
from tests.support.builders import CLUSTER, service
from tests.support.clock import jumping_time
from tests.support.memory_server import Call, Document, MemoryServer, document_of
from tests.support.node_world import NODE, NodeWorld, joined, machines
from tests.support.program_world import Harvester, Program, demo_program

CHANGED = {"metadata": {"labels": {"team": "web"}}}
MOVED = {"status": {"allocatedAddress": {"ip": "10.0.9.9"}}}


@contextmanager
def silently(server: MemoryServer) -> Iterator[MemoryServer]:
    """Have no watch report the changes of the block."""
    server.watch_drops = lambda _watch, _kind: True
    yield server
    server.watch_drops = lambda _watch, _kind: False


def conflicts(program: Program) -> list[str]:
    """Return the Events about writes that conflict."""
    return [reason for reason in program.reasons() if "Conflict" in reason]


def key_of(harvester: Harvester, name: str) -> str:
    """Return the key of the load balancer of a Service."""
    (key,) = [key for key in harvester.of(LOAD_BALANCERS) if f"-{name}-" in key]
    return key


@pytest.mark.parametrize("later_event", [False, True])
@pytest.mark.parametrize("change", ["ports", "deletion"])
@jumping_time
async def test_load_balancer_whose_change_was_lost_is_written(change: str, later_event: bool) -> None:
    guest, harvester, program = demo_program("--orphaned-load-balancer-policy=off")
    async with program.live():
        program.create("web", "api")
        await asyncio.sleep(10)
        key = key_of(harvester, "web")
        with silently(harvester):
            harvester.change(LOAD_BALANCERS, key, CHANGED)
        if later_event:
            # The watch is beyond the version that it lost.
            harvester.change(LOAD_BALANCERS, key_of(harvester, "api"), CHANGED)
            await asyncio.sleep(1)
        harvester.calls.clear()
        if change == "ports":
            program.change("web", metadata={"annotations": {DESCRIPTION: "new"}})
        else:
            guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(60)
        assert conflicts(program) == []
        # A change is read before it is written; a deletion meets the Conflict.
        assert len(harvester.writes(CLUSTER.namespace)) == (1 if change == "ports" else 2)
        if change == "ports":
            assert "new" in str(harvester.of(LOAD_BALANCERS)[key]["spec"])
        else:
            assert key not in harvester.of(LOAD_BALANCERS)
            assert "shop/web" not in guest.of(SERVICES)


@jumping_time
async def test_address_that_a_silent_watch_does_not_report_is_read_before_harvester_is_accused() -> None:
    _, harvester, program = demo_program()
    async with program.live():
        # Nothing of this object arrives but its creation, as over a connection that is half open.
        harvester.watch_drops = lambda _watch, kind: kind == "MODIFIED"
        program.create("web")
        await asyncio.sleep(CONTROLLER_GRACE_SECONDS + 5)
        assert Reason.NOT_PROCESSED not in program.reasons()
        assert program.service("web")["status"]["loadBalancer"]["ingress"]


@pytest.mark.parametrize("later_event", [False, True])
@jumping_time
async def test_service_whose_change_was_lost_is_written(later_event: bool) -> None:
    guest, harvester, program = demo_program()
    async with program.live():
        program.create("web", "api")
        await asyncio.sleep(10)

        def change_during_the_deletion(call: Call, _error: KubeError | None) -> None:
            if call.verb != "DELETE":
                return
            with silently(guest):
                guest.change(SERVICES, "shop/web", CHANGED)
            if later_event:
                # The watch is beyond the version that it lost.
                program.change("api", **CHANGED)

        # The removal of the finalizer follows, with the version of the cache.
        harvester.on_answered.append(change_during_the_deletion)
        guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(60)
        assert conflicts(program) == []
        assert "shop/web" not in guest.of(SERVICES)


@jumping_time
async def test_service_that_was_recreated_silently_is_served() -> None:
    guest, harvester, program = demo_program()
    async with program.live():
        program.create("web")
        await asyncio.sleep(10)
        recreated: Document = document_of(service("web", uid="another"))
        with silently(guest):
            guest.remove(SERVICES, "shop/web")
            guest.put(SERVICES, recreated)
        harvester.change(LOAD_BALANCERS, key_of(harvester, "web"), MOVED)
        await asyncio.sleep(60)
        assert conflicts(program) == []
        assert SERVICE_FINALIZER in program.service("web")["metadata"].get("finalizers", ())


@pytest.mark.parametrize("later_event", [False, True])
@jumping_time
async def test_node_whose_change_was_lost_is_tainted_and_deleted(later_event: bool) -> None:
    scene = NodeWorld()
    async with scene.live():
        (vm, other) = await joined(scene, machines(2))
        scene.say_ready(vm.name, "Unknown")
        await asyncio.sleep(10)
        with silently(scene.guest_server) as server:
            server.change(NODE, vm.name, CHANGED)
        if later_event:
            scene.guest_server.change(NODE, other.name, CHANGED)
            await asyncio.sleep(1)
        scene.guest_server.calls.clear()
        scene.destroy(vm)
        await asyncio.sleep(900)
        writes = [write for write in scene.node_writes() if write.split("/")[4] == vm.name]
        assert len(writes) <= 3, writes
        assert vm.name not in scene.guest_server.of(NODE)
        assert "FieldConflict" not in scene.told(vm.name)


@jumping_time
async def test_service_that_is_gone_is_patched_once() -> None:
    guest, harvester, program = demo_program()
    async with program.live():
        program.create("web", "api")
        await asyncio.sleep(10)
        with silently(guest):
            guest.remove(SERVICES, "shop/web")
        guest.calls.clear()
        # Another address must be written to the Service.
        harvester.change(LOAD_BALANCERS, key_of(harvester, "web"), MOVED)
        await asyncio.sleep(1200)
        assert len(guest.writes("/services/web")) == 1
        assert conflicts(program) == []
        assert program.address("api")
        # The list that follows finds what else the watch lost.
        assert len([call for call in guest.calls if call.verb == "GET" and call.path == SERVICES.path()]) == 1


@pytest.mark.parametrize("change", ["ports", "deletion"])
@jumping_time
async def test_load_balancer_that_is_gone_is_created_again_or_not_missed(change: str) -> None:
    guest, harvester, program = demo_program("--orphaned-load-balancer-policy=off")
    async with program.live():
        program.create("web")
        await asyncio.sleep(10)
        (key,) = harvester.of(LOAD_BALANCERS)
        with silently(harvester):
            harvester.remove(LOAD_BALANCERS, key)
        harvester.calls.clear()
        if change == "ports":
            program.change("web", metadata={"annotations": {DESCRIPTION: "new"}})
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
        with silently(scene.guest_server) as server:
            server.remove(NODE, vm.name)
        scene.guest_server.calls.clear()
        if change == "addresses":
            scene.report(vm, "10.0.0.77")
        else:
            scene.destroy(vm)
        await asyncio.sleep(1200)
        writes = [write for write in scene.node_writes() if write.split("/")[4] == vm.name]
        assert len(writes) == 1, writes
        assert "FieldConflict" not in scene.told(vm.name)
