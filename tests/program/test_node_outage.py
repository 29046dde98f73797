"""A quarter of an hour without a usable Harvester, while no Node is Ready: no Node changes, no Event is repeated."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from harvester_ccm.kube.errors import KubeError, Unreachable
from harvester_ccm.plan.node.match import unreadable
from tests.support.clock import jumping_time, until
from tests.support.memory_server import Call, Document, refused
from tests.support.node_world import VM, VMI, NodeWorld, initialised, joined, machine

SECONDS = 900.0
"""Duration of the outage: longer than the longest backoff, and than a deletion takes that nothing blocks."""
VMS = [machine(f"w{number}", zone="zone-a") for number in range(4)]
LATE = machine("late")
"""Joins during the outage; its VM is created afterwards."""


class Outage:
    """Begins and ends an outage of Harvester."""

    def __init__(self, error: KubeError | None, *, event: str = "HarvesterUnavailable") -> None:
        """``event``: the reason of the Event on a Node that joins during the outage."""
        self._error = error
        self.event = event

    def begin(self, scene: NodeWorld) -> None:
        """Fail every request, and end the watches."""
        server = scene.harvester_server
        server.fault = self._fail
        server.break_watches()

    def end(self, scene: NodeWorld) -> None:
        scene.harvester_server.fault = None

    def _fail(self, _call: Call) -> KubeError | None:
        return self._error


class Hanging(Outage):
    """Connections stay open without a response."""

    def begin(self, scene: NodeWorld) -> None:
        scene.harvester_server.hanging = True

    def end(self, scene: NodeWorld) -> None:
        scene.harvester_server.hanging = False
        scene.harvester_server.break_watches()


class WrongNamespace(Outage):
    """The credential leads to a namespace without VMs: lists are empty, and a GET of a VM is a 404."""

    def __init__(self) -> None:
        super().__init__(None, event="VMNotFound")
        self._hidden: dict[str, dict[str, Document]] = {}
        self._reset: set[str] = set()

    def begin(self, scene: NodeWorld) -> None:
        server = scene.harvester_server
        self._hidden = {collection: dict(server.objects[collection]) for collection in (VM, VMI)}
        for collection in (VM, VMI):
            server.objects[collection].clear()
        server.version += 1
        self._reset = {call.path for call in server.calls if call.verb == "WATCH"}
        server.fault = self._fail
        server.break_watches()

    def _fail(self, call: Call) -> KubeError | None:
        """End every watch once, so that its collection is listed again."""
        if call.verb != "WATCH" or call.path not in self._reset:
            return None
        self._reset.remove(call.path)
        return refused(410, "Expired", "too old resource version")

    def end(self, scene: NodeWorld) -> None:
        scene.harvester_server.fault = None
        for collection, objects in self._hidden.items():
            for document in objects.values():
                scene.harvester_server.put(collection, document)


class Deleted(WrongNamespace):
    """The VMs are deleted while they are watched."""

    def begin(self, scene: NodeWorld) -> None:
        server = scene.harvester_server
        self._hidden = {collection: dict(server.objects[collection]) for collection in (VM, VMI)}
        for collection in (VM, VMI):
            for key in list(server.objects[collection]):
                server.remove(collection, key)


OUTAGES: dict[str, Callable[[], Outage]] = {
    "401": lambda: Outage(refused(401, "Unauthorized", "Unauthorized")),
    "403": lambda: Outage(refused(403, "Forbidden", "virtualmachines.kubevirt.io is forbidden")),
    "404 of the type": lambda: Outage(refused(404, "NotFound", "the server could not find the requested resource")),
    "404 of a proxy": lambda: Outage(refused(404, "", "404 page not found")),
    "500": lambda: Outage(refused(500, "InternalError", "etcdserver: request timed out")),
    "429": lambda: Outage(refused(429, "TooManyRequests", "too many requests")),
    "timeouts": lambda: Outage(Unreachable("no answer within 10 s")),
    "hanging": lambda: Hanging(None),
    "wrong namespace": WrongNamespace,
    "all VMs deleted": Deleted,
}


async def _pass_outage(scene: NodeWorld, outage: Outage) -> None:
    """Let a Node join while the outage lasts, and end it."""
    for vm in VMS:
        scene.say_ready(vm.name, "Unknown")
    await asyncio.sleep(60)
    scene.join(LATE.name, system_uuid=LATE.system_uuid)
    await asyncio.sleep(SECONDS - 60)
    assert scene.taints(LATE.name) == ["uninitialized"]
    assert scene.told(LATE.name)[-1] == outage.event
    outage.end(scene)
    for vm in VMS:
        scene.say_ready(vm.name, "True")
    await until(lambda: unreadable(scene.caches) is None and len(scene.caches.vms) == len(VMS), seconds=300)
    scene.boot(LATE, "10.0.0.99")
    await initialised(scene, [LATE.name], 300)


@pytest.mark.parametrize("kind", OUTAGES)
@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
@pytest.mark.guarantee("The Node of an existing VM is never deleted")
@jumping_time
async def test_outage_changes_no_node(kind: str, *, restart: bool) -> None:
    outage, scene = OUTAGES[kind](), NodeWorld()
    async with scene.live():
        await joined(scene, VMS)
        await asyncio.sleep(30)
        before = {vm.name: scene.addresses(vm.name) for vm in VMS}
        if not restart:
            outage.begin(scene)
            await _pass_outage(scene, outage)
    if restart:
        scene = NodeWorld(after=scene)
        outage.begin(scene)
        async with scene.live():
            await _pass_outage(scene, outage)
    assert scene.names() == {vm.name for vm in (*VMS, LATE)}
    assert all(call.verb != "DELETE" for call in scene.guest_server.calls)
    assert {vm.name: scene.addresses(vm.name) for vm in VMS} == before
    assert all(scene.taints(vm.name) == [] for vm in VMS)
    for vm in VMS:
        events = Counter(scene.told(vm.name))
        assert max(events.values()) == 1, "an Event counts its repetitions"
