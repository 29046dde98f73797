"""A watch that loses the event of a change, or a restore: the first write about the object is enough to notice it."""

import asyncio
from collections.abc import Mapping
from typing import Any

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
from tests.support.program_world import Harvester, Program, guest_server

CHANGED = {"metadata": {"labels": {"team": "web"}}}


def change_silently(server: MemoryServer, collection: Any, key: str, patch: Mapping[str, Any]) -> None:
    """Change an object in a way that no watch reports."""
    server.watch_drops = lambda _watch, _kind: True
    server.change(collection, key, patch)
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
    guest, harvester = guest_server(), Harvester()
    program = Program(guest, harvester, "demo", "--orphaned-load-balancer-policy=off")
    async with program.live():
        program.create("web", "api")
        await asyncio.sleep(10)
        key = key_of(harvester, "web")
        change_silently(harvester, LOAD_BALANCERS, key, CHANGED)
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
    guest, harvester = guest_server(), Harvester()
    program = Program(guest, harvester, "demo")
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
    guest, harvester = guest_server(), Harvester()
    program = Program(guest, harvester, "demo")
    async with program.live():
        program.create("web", "api")
        await asyncio.sleep(10)

        def change_during_the_deletion(call: Call, _error: KubeError | None) -> None:
            if call.verb != "DELETE":
                return
            change_silently(guest, SERVICES, "shop/web", CHANGED)
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
    guest, harvester = guest_server(), Harvester()
    program = Program(guest, harvester, "demo")
    async with program.live():
        program.create("web")
        await asyncio.sleep(10)
        recreated: Document = document_of(service("web", uid="another"))
        guest.watch_drops = lambda _watch, _kind: True
        guest.remove(SERVICES, "shop/web")
        guest.put(SERVICES, recreated)
        guest.watch_drops = lambda _watch, _kind: False
        harvester.change(LOAD_BALANCERS, key_of(harvester, "web"), {"status": {"allocatedAddress": {"ip": "10.0.9.9"}}})
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
        change_silently(scene.guest_server, NODE, vm.name, CHANGED)
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
