"""An hour without a usable Harvester, all Nodes not ready: nothing is lost, nothing is said twice, and then it goes on.

On API servers in memory and a clock that jumps; the same faults are injected for seconds into real connections in
the end-to-end tests.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from devenv.harvester.machines import Machine
from harvester_ccm.errors import CCMError, Unreachable
from harvester_ccm.kube.workqueue import MAX_BACKOFF_SECONDS
from harvester_ccm.plan.node.match import unreadable
from tests.worlds.clock import JumpingLoop, jumping_time, until
from tests.worlds.memory_server import Call, Document, placed, refused
from tests.worlds.node_world import VM, VMI, NodeWorld, initialised, machine

HOUR = 3600.0
QUARTER = 900.0
"""Long enough for every pause to be as long as it gets, and for a deletion that nothing holds."""
MOST_QUESTIONS = 100
"""So often Harvester may be asked for one VM in an hour."""
SHORT_PAUSES = 60
"""So many tries it takes until the pauses of one of the three collections are as long as they get."""
LATE = machine("late")
"""Joins in the middle of it; its VM is seen afterwards."""


@pytest.fixture(scope="module")
def seconds(thorough: bool) -> float:
    """How long Harvester is not to be used."""
    return HOUR if thorough else QUARTER


@pytest.fixture(scope="module")
def vms(thorough: bool) -> list[Machine]:
    """The VMs of a cluster: as many as it takes for one to be lost in the crowd, where there is time for it."""
    return [machine(f"w{number}", zone="zone-a") for number in range(10 if thorough else 4)]


class Outage:
    """Breaks Harvester and mends it."""

    def __init__(self, error: CCMError | None, *, told: str = "HarvesterUnavailable") -> None:
        """``told``: the Event on a Node that joins in the middle of it."""
        self._error = error
        self.told = told

    def begin(self, scene: NodeWorld) -> None:
        """Every request fails from now on, running watches end."""
        server = scene.harvester_server
        server.fault = self._fail
        server.break_watches()

    def end(self, scene: NodeWorld) -> None:
        """All is well again."""
        scene.harvester_server.fault = None

    def _fail(self, _call: Call) -> CCMError | None:
        return self._error


class Hanging(Outage):
    """Connections stay open and nothing is answered."""

    def begin(self, scene: NodeWorld) -> None:
        scene.harvester_server.hanging = True

    def end(self, scene: NodeWorld) -> None:
        scene.harvester_server.hanging = False
        scene.harvester_server.break_watches()


class WrongNamespace(Outage):
    """The credential works in a namespace without VMs: lists are empty, a VM is a plain 404."""

    def __init__(self) -> None:
        super().__init__(None, told="VMNotFound")
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

    def _fail(self, call: Call) -> CCMError | None:
        """Every watch starts with a new list, once."""
        if call.verb != "WATCH" or call.path not in self._reset:
            return None
        self._reset.remove(call.path)
        return refused(410, "Expired", "too old resource version")

    def end(self, scene: NodeWorld) -> None:
        scene.harvester_server.fault = None
        for collection, objects in self._hidden.items():
            for document in objects.values():
                scene.harvester_server.put(collection, document)


class GoneForGood(WrongNamespace):
    """The same, seen as deletions by a watch that goes on."""

    def begin(self, scene: NodeWorld) -> None:
        server = scene.harvester_server
        self._hidden = {collection: dict(server.objects[collection]) for collection in (VM, VMI)}
        for collection in (VM, VMI):
            for key in list(server.objects[collection]):
                server.remove(collection, key)


OUTAGES: dict[str, Callable[[], Outage]] = {
    "401": lambda: Outage(refused(401, "Unauthorized", "Unauthorized")),
    "403": lambda: Outage(
        refused(403, "Forbidden", "virtualmachines.kubevirt.io is forbidden"), told="HarvesterForbidden"
    ),
    "404 of the type": lambda: Outage(refused(404, "NotFound", "the server could not find the requested resource")),
    "404 of a proxy": lambda: Outage(refused(404, "", "404 page not found")),
    "500": lambda: Outage(refused(500, "InternalError", "etcdserver: request timed out")),
    "429": lambda: Outage(refused(429, "TooManyRequests", "too many requests")),
    "timeouts": lambda: Outage(Unreachable("no answer within 10 s")),
    "hanging": lambda: Hanging(None),
    "wrong namespace": WrongNamespace,
    "all VMs deleted": GoneForGood,
}


@pytest.mark.parametrize("kind", OUTAGES)
@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted in it"])
def test_an_hour_of_it(
    kind: str, restart: bool, vms: list[Machine], seconds: float, record_property: Callable[[str, object], None]
) -> None:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        events, requests = runner.run(_hour(OUTAGES[kind](), vms, seconds, restart=restart))
    record_property("events", events.total())
    record_property("requests", requests)
    sys.stdout.write(f"{kind}, restarted: {restart}: Events {events}, {requests} requests to Harvester\n")
    # Each right that is missing is told, and one may be granted again some moments before the other.
    again = events.get("HarvesterForbidden", 0) == 2
    events -= Counter(HarvesterForbidden=int(again))
    assert events == {**expected_events(kind, len(vms), restart=restart), "InternalIPChanged": 1}


def expected_events(kind: str, count: int, *, restart: bool) -> dict[str, int]:
    """Return how many Events of each reason all Nodes get, from the begin of the hour until all is well again."""
    match kind:
        case "403":
            return {"HarvesterForbidden": 1, "Synced": 1}
        case "wrong namespace" | "all VMs deleted":
            return {"NodeDeletionBlocked": count, "VMNotFound": 1, "Synced": 1}
        case "hanging" if not restart:
            # Nothing tells at first that the lists are old: a watch is given up after a time of silence.
            return {"VMNotFound": 1, "HarvesterUnavailable": 1, "Synced": 1}
        case _:
            return {"HarvesterUnavailable": 1, "Synced": 1}


async def _hour(outage: Outage, vms: list[Machine], seconds: float, *, restart: bool) -> tuple[Counter[str], int]:
    """Return how many Events of each reason were written and how many requests Harvester got."""
    scene = NodeWorld()
    before = scene
    async with scene.live():
        for number, vm in enumerate(vms):
            scene.boot(vm, f"10.0.0.{number + 1}")
            scene.join(vm.name, system_uuid=vm.system_uuid)
        await initialised(scene, [vm.name for vm in vms])
        await asyncio.sleep(30)
        addresses = {vm.name: scene.addresses(vm.name) for vm in vms}
        told = Counter(scene.told())
        if not restart:
            await _suffer(scene, outage, vms, seconds)
    if restart:
        scene = NodeWorld()
        for side in ("guest", "harvester"):
            server = getattr(before, f"{side}_server")
            setattr(scene, f"{side}_server", server)
            getattr(scene, side).server = server
        outage.begin(scene)
        async with scene.live():
            await _suffer(scene, outage, vms, seconds, begun=True)
    assert scene.names() == {vm.name for vm in (*vms, LATE)}
    assert all(call.verb != "DELETE" for call in scene.guest_server.calls)
    assert {vm.name: scene.addresses(vm.name) for vm in vms} == {
        **addresses,
        "w0": ["InternalIP 10.9.9.9", "Hostname w0"],
    }
    assert all(scene.taints(vm.name) == [] for vm in vms)
    start, end = scene.outage
    hour = [call for call in scene.harvester_server.calls if start <= call.at <= end]
    single = sum(bool(placed(call.path).name) for call in hour)
    assert single < MOST_QUESTIONS * len(vms) * seconds / HOUR, "Harvester is not hammered with questions about VMs"
    assert len(hour) - single < 3 * (seconds / MAX_BACKOFF_SECONDS + SHORT_PAUSES), "nor with lists and watches"
    return Counter(scene.told()) - told, len(hour)


async def _suffer(scene: NodeWorld, outage: Outage, vms: list[Machine], seconds: float, *, begun: bool = False) -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    if not begun:
        outage.begin(scene)
    for vm in vms:
        scene.say_ready(vm.name, "Unknown")
    await asyncio.sleep(60)
    scene.join(LATE.name, system_uuid=LATE.system_uuid)
    await asyncio.sleep(seconds - 60)
    assert scene.taints(LATE.name) == ["uninitialized"]
    assert scene.told(LATE.name)[-1] == outage.told
    scene.outage = (start, loop.time())
    outage.end(scene)
    for vm in vms:
        scene.say_ready(vm.name, "True")
    await until(lambda: unreadable(scene.vms) is None and len(scene.machines) == len(vms), seconds=300)
    scene.report(vms[0], "10.9.9.9")
    scene.boot(LATE, "10.0.0.99")
    await initialised(scene, [LATE.name], 300)
    await until(lambda: "InternalIP 10.9.9.9" in scene.addresses("w0"), seconds=300, what="refresh after the outage")
    await until(lambda: "InternalIPChanged" in scene.told("w0"), seconds=300, what="the Event about it")


@jumping_time
async def test_an_hour_in_which_harvester_shows_its_vms_now_and_then(vms: list[Machine]) -> None:
    scene = NodeWorld()
    async with scene.live():
        for number, vm in enumerate(vms):
            scene.boot(vm, f"10.0.0.{number + 1}")
            scene.join(vm.name, system_uuid=vm.system_uuid)
        await initialised(scene, [vm.name for vm in vms])
        for vm in vms:
            scene.say_ready(vm.name, "Unknown")
        for _ in range(10):
            outage = GoneForGood()
            outage.begin(scene)
            await asyncio.sleep(180)
            outage.end(scene)
            await asyncio.sleep(180)
        assert scene.names() == {vm.name for vm in vms}
        assert all(scene.taints(vm.name) == [] for vm in vms)
        told = Counter(scene.told("w0"))
    assert told == {"Synced": 1, "NodeDeletionBlocked": 1}, "one Event that counts its repetitions"
