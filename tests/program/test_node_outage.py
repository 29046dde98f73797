"""An hour without a usable Harvester, while no Node is Ready: no Node changes, and Events do not repeat."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from devenv.harvester.machines import Machine
from harvester_ccm.kube.backoff import MAX_BACKOFF_SECONDS
from harvester_ccm.kube.errors import KubeError, Unreachable
from harvester_ccm.plan.node.match import unreadable
from tests.support.clock import jumping_time, until
from tests.support.memory_server import Call, Document, placed, refused
from tests.support.node_world import VM, VMI, NodeWorld, initialised, joined, machine

HOUR = 3600.0
QUARTER = 900.0
"""Longer than the longest backoff, and than a deletion takes that nothing blocks."""
MAX_GETS = 100
"""Maximum number of GET requests for one VM in an hour."""
SHORT_INTERVALS = 60
"""Lists and watches of a collection until its backoff has the maximum."""
LATE = machine("late")
"""Joins during the outage; its VM is created afterwards."""


@pytest.fixture(scope="module")
def seconds(thorough: bool) -> float:
    """Return the duration of the outage."""
    return HOUR if thorough else QUARTER


@pytest.fixture(scope="module")
def vms(thorough: bool) -> list[Machine]:
    """Return the VMs of the cluster."""
    return [machine(f"w{number}", zone="zone-a") for number in range(10 if thorough else 4)]


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
        """End the outage."""
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


def expected_events(kind: str, count: int, *, restart: bool) -> dict[str, int]:
    """Return the number of Events of each reason, from the begin of the outage until the recovery."""
    match kind:
        case "wrong namespace" | "all VMs deleted":
            return {"NodeDeletionBlocked": count, "VMNotFound": 1, "Synced": 1}
        case "hanging" if not restart:
            # The lists are known to be stale once the watches time out. Until then, all VMs run.
            return {"KubeletNotReporting": count, "VMNotFound": 1, "HarvesterUnavailable": 1, "Synced": 1}
        case "403" if not restart:
            # The lists are repeated after the first forbidden watch. Until then, all VMs run.
            return {"KubeletNotReporting": count, "HarvesterUnavailable": 1, "Synced": 1}
        case _:
            return {"HarvesterUnavailable": 1, "Synced": 1}


async def _pass_outage(
    scene: NodeWorld, outage: Outage, vms: list[Machine], seconds: float, *, begun: bool = False
) -> None:
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
    assert scene.told(LATE.name)[-1] == outage.event
    scene.outage = (start, loop.time())
    outage.end(scene)
    for vm in vms:
        scene.say_ready(vm.name, "True")
    await until(lambda: unreadable(scene.caches) is None and len(scene.caches.vms) == len(vms), seconds=300)
    scene.report(vms[0], "10.9.9.9")
    scene.boot(LATE, "10.0.0.99")
    await initialised(scene, [LATE.name], 300)
    await until(lambda: "InternalIP 10.9.9.9" in scene.addresses("w0"), seconds=300, what="refresh after the outage")
    await until(lambda: "InternalIPChanged" in scene.told("w0"), seconds=300, what="the Event about it")


@pytest.mark.parametrize("kind", OUTAGES)
@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
@jumping_time
async def test_outage_of_an_hour_changes_no_node(
    kind: str, vms: list[Machine], seconds: float, *, restart: bool
) -> None:
    outage, scene = OUTAGES[kind](), NodeWorld()
    async with scene.live():
        await joined(scene, vms)
        await asyncio.sleep(30)
        addresses = {vm.name: scene.addresses(vm.name) for vm in vms}
        before = Counter(scene.told())
        if not restart:
            await _pass_outage(scene, outage, vms, seconds)
    if restart:
        scene = NodeWorld(after=scene)
        outage.begin(scene)
        async with scene.live():
            await _pass_outage(scene, outage, vms, seconds, begun=True)
    assert scene.names() == {vm.name for vm in (*vms, LATE)}
    assert all(call.verb != "DELETE" for call in scene.guest_server.calls)
    changed = {"w0": ["InternalIP 10.9.9.9", "Hostname w0"]}
    assert {vm.name: scene.addresses(vm.name) for vm in vms} == {**addresses, **changed}
    assert all(scene.taints(vm.name) == [] for vm in vms)
    start, end = scene.outage
    requests = [call for call in scene.harvester_server.calls if start <= call.at <= end]
    gets = sum(bool(placed(call.path).name) for call in requests)
    assert gets < MAX_GETS * len(vms) * seconds / HOUR, "GET requests for VMs"
    assert len(requests) - gets < 3 * (seconds / MAX_BACKOFF_SECONDS + SHORT_INTERVALS), "lists and watches"
    events = Counter(scene.told()) - before
    if kind == "403":
        # Each missing permission is reported, and one can be granted before the other.
        events -= Counter(HarvesterUnavailable=int(events["HarvesterUnavailable"] == 2))
    assert events == {**expected_events(kind, len(vms), restart=restart), "InternalIPChanged": 1}


@jumping_time
async def test_vms_that_exist_only_now_and_then_delete_no_node(vms: list[Machine]) -> None:
    scene = NodeWorld()
    async with scene.live():
        await joined(scene, vms)
        for vm in vms:
            scene.say_ready(vm.name, "Unknown")
        for _ in range(10):
            outage = Deleted()
            outage.begin(scene)
            await asyncio.sleep(180)
            outage.end(scene)
            await asyncio.sleep(180)
        assert scene.names() == {vm.name for vm in vms}
        assert all(scene.taints(vm.name) == [] for vm in vms)
        events = Counter(scene.told("w0"))
    # Between the deletions, the VM runs.
    expected = {"Synced": 1, "NodeDeletionBlocked": 1, "KubeletNotReporting": 1}
    assert events == expected, "one Event that counts its repetitions"
