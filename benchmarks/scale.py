"""Many Nodes: what a large cluster costs while it is initialised, at rest, while VMs move and while pods come and go.

Objects have about the size of real ones: Nodes list images, VMIs carry about as much as KubeVirt writes, and a guest
agent reports a device for each pod. Kubelets report their status as often as real ones do when nothing changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from benchmarks.arena import CLUSTER, LEASE, PATIENCE, Arena, Traffic
from benchmarks.audit import count_of, tally
from benchmarks.follower import Follower
from benchmarks.machine import resident_bytes
from benchmarks.result import Measurement, Section
from devenv.background import Background
from devenv.harvester.machines import Machine, Machines, instance_document, interfaces_of, machine_document
from devenv.harvester.records import INSTANCES, MACHINES
from devenv.kubelets import DOCUMENTS, Kubelet, node_document
from devenv.stage import VM_NAMESPACE
from devenv.watch import Document
from harvester_ccm.model.core import NODES, Lease
from harvester_ccm.names import UNINITIALIZED_TAINT, ZONE

MIB: Final = 2**20
MINUTE: Final = 60.0
STATUS_SECONDS: Final = 300.0
"""A kubelet reports a status in which nothing changed once in so long."""
POD_DEVICES: Final = 60
"""On each VM."""
UPDATES_A_SECOND: Final = 20
MIGRATIONS: Final = 50
CONNECTIONS: Final = 32
IMAGES: Final = 50
PADDING: Final = {"bench.example.com/padding": "x" * 4000}

MEMORY_MIB: Final = 90.0
STEADY_SECONDS: Final = 0.5
CHURN_PERCENT: Final = 2.0
RENEWAL_SECONDS: Final = 4.0
"""A Lease is renewed every two seconds; a renewal that waits for other work is late."""
WRITES_EACH: Final = 4
RESTART_REQUESTS: Final = 14


@dataclass(frozen=True)
class _Cost:
    """What something cost the program."""

    seconds: float
    """How long it took."""
    processor: float
    """Seconds of processor time."""
    renewal: float
    """Longest time in seconds between two renewals of the Lease."""
    traffic: Traffic
    memory: float
    """Resident MiB at the end."""


class Crowd:
    """The Nodes, their VMs, and what happens to them."""

    def __init__(self, arena: Arena, count: int) -> None:
        self._arena = arena
        self._machines = Machines(arena.harvester)
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._pods = 0
        self._renewed: list[float] = []
        self.vms = [Machine(f"crowd-{number:04}", cluster=CLUSTER, zone="zone-a") for number in range(count)]
        self.nodes = Follower(arena.guest, NODES, "", check=lambda: None)
        arena.leases.informer.on_change(self._lease_changed)

    async def build(self) -> None:
        """Register the Nodes and start the VMs."""
        await self._each(self._add(vm) for vm in self.vms)

    async def initialised(self) -> None:
        """Return once no Node has the taint any more."""

        def done() -> bool:
            nodes = self.nodes.all()
            tainted = any(taint.key == UNINITIALIZED_TAINT for node in nodes for taint in node.spec.taints)
            return len(nodes) >= len(self.vms) and not tainted

        await self.nodes.until(done, within=PATIENCE, what=f"initialisation of {len(self.vms)} Nodes")

    async def rest(self) -> None:
        """Let a minute pass in which only kubelets report."""
        reports = int(len(self.vms) * MINUTE / STATUS_SECONDS)
        await self._paced(reports, lambda number: self._heartbeat(self.vms[number], number), within=MINUTE)

    async def migrate(self) -> None:
        """Move VMs to hosts in another zone, all at once, and return when their Nodes have its label."""
        moved = self.vms[:MIGRATIONS]
        await self._each(self._move(vm) for vm in moved)

        def shown() -> bool:
            nodes = (self.nodes.informer.get(vm.name) for vm in moved)
            return all(node is not None and node.metadata.label(ZONE) == "zone-b" for node in nodes)

        await self.nodes.until(shown, within=PATIENCE, what="zone-b")

    async def start_pods(self) -> None:
        """Have every guest agent report a device for each of its pods."""
        await self._each(self._report_pods(number) for number in range(len(self.vms)))

    async def churn(self) -> None:
        """Let a minute pass in which a pod starts, and another one ends, in one guest after the other."""
        await self._paced(int(MINUTE * UPDATES_A_SECOND), self._report_pods, within=MINUTE)

    async def cost(self, work: Callable[[], Awaitable[None]]) -> _Cost:
        """Return what some work cost the program."""
        loop, arena = asyncio.get_running_loop(), self._arena
        mark, before, began = await arena.idle_mark(), arena.usage().program, loop.time()
        await work()
        ended, processor = loop.time(), arena.usage().program - before
        times = [began, *(at for at in self._renewed if began < at < ended), ended]
        renewal = max(later - earlier for earlier, later in pairwise(times))
        traffic = await arena.settled(mark)
        return _Cost(ended - began, processor, renewal, traffic, resident_bytes(arena.program.pid) / MIB)

    async def _add(self, vm: Machine) -> None:
        harvester, number = self._arena.harvester, self.vms.index(vm)
        node = node_document(Kubelet(vm.name, system_uuid=vm.system_uuid))
        names = [f"registry.example.com/library/image-{number}:v1.0" for number in range(IMAGES)]
        node["status"]["images"] = [{"names": [name], "sizeBytes": 10**8} for name in names]
        await self._arena.guest.create(DOCUMENTS, node)
        for records, document in (
            (MACHINES, machine_document(vm)),
            (INSTANCES, instance_document(vm, _address(number))),
        ):
            document["metadata"]["annotations"] = {**document["metadata"].get("annotations", {}), **PADDING}
            await harvester.create(records, document, namespace=VM_NAMESPACE)
        running = {"status": {"created": True, "ready": True, "printableStatus": "Running"}}
        await harvester.merge_patch(MACHINES, vm.name, running, namespace=VM_NAMESPACE)

    async def _heartbeat(self, vm: Machine, number: int) -> None:
        at = f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}Z"
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": at}
        body = {"status": {"conditions": [condition]}}
        await self._arena.guest.merge_patch(NODES, vm.name, body, subresource="status")

    async def _move(self, vm: Machine) -> None:
        await self._machines.begin_migration(vm, "harvester-2")
        patch = {"metadata": {"annotations": {ZONE: "zone-b"}}}
        await self._arena.harvester.merge_patch(INSTANCES, vm.name, patch, namespace=VM_NAMESPACE)
        await self._machines.finish_migration(vm, "harvester-2")

    async def _report_pods(self, number: int) -> None:
        vm = self.vms[number % len(self.vms)]
        self._pods += 1
        newest = range(self._pods, self._pods + POD_DEVICES)
        devices: list[Document] = [
            {"interfaceName": f"cali{pod:011x}", "ipAddress": "fe80::ecee:eeff:feee:eeee", "mac": "ee:ee:ee:ee:ee:ee"}
            for pod in newest
        ]
        interfaces = [*interfaces_of(vm, _address(number % len(self.vms))), *devices]
        body = {"status": {"interfaces": interfaces}}
        await self._arena.harvester.merge_patch(INSTANCES, vm.name, body, namespace=VM_NAMESPACE)

    async def _each(self, works: Iterable[Awaitable[None]]) -> None:
        async def one(work: Awaitable[None]) -> None:
            async with self._slots:
                await work

        await asyncio.gather(*(one(work) for work in works))

    async def _paced(self, count: int, act: Callable[[int], Awaitable[None]], *, within: float) -> None:
        """Act ``count`` times, evenly in so many seconds, and return at their end."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                await asyncio.sleep(began + within * number / count - loop.time())
                group.create_task(self._each([act(number)]), name=f"update-{number}")
            await asyncio.sleep(began + within - loop.time())

    def _lease_changed(self, old: Lease | None, new: Lease | None) -> None:
        if new is not None and new.metadata.key == LEASE and (old is None or old.spec != new.spec):
            self._renewed.append(asyncio.get_running_loop().time())


async def run_scale(arena: Arena, count: int) -> AsyncIterator[Section]:
    """Run all that is about many Nodes; the program is started in it."""
    crowd = Crowd(arena, count)
    following = Background("crowd", [crowd.nodes.run])
    await following.start([crowd.nodes.informer.wait_synced], within=PATIENCE)
    try:
        await crowd.build()
        yield await _initialise(arena, crowd)
        yield _at_rest(await crowd.cost(crowd.rest))
        yield _migrations(await crowd.cost(crowd.migrate))
        await crowd.start_pods()
        yield _churn(await crowd.cost(crowd.churn), count)
        yield await _restart(arena, crowd)
    finally:
        await following.stop()


async def _initialise(arena: Arena, crowd: Crowd) -> Section:
    count, loop = len(crowd.vms), asyncio.get_running_loop()
    mark, began = arena.mark(), loop.time()
    leading = await arena.start_program()
    await crowd.initialised()
    seconds, traffic = loop.time() - began, await arena.settled(mark)
    writes = sum(1 for one in traffic.guest if one.verb in {"create", "update", "patch"})
    return Section(
        f"{count} Nodes are initialised when the program starts",
        [
            Measurement("from start to leading", leading, "s"),
            Measurement("from start to the last Node without its taint", seconds, "s"),
            Measurement("GET to Harvester for each", count_of(traffic.harvester, verb="get") / count, target=0),
            Measurement("writes to the guest for each, Events included", writes / count, target=WRITES_EACH),
            Measurement("processor time of the program, until idle", arena.usage().program, "s"),
            Measurement("peak memory", arena.program.peak_memory() / MIB, "MiB", MEMORY_MIB),
        ],
        _requests(traffic),
    )


def _at_rest(cost: _Cost) -> Section:
    return Section(
        "A minute at rest",
        [
            Measurement("requests, without Lease and watches", cost.traffic.total, target=0),
            Measurement("processor time of the program", cost.processor, "s", STEADY_SECONDS),
            Measurement("resident memory", cost.memory, "MiB", MEMORY_MIB),
        ],
        _requests(cost.traffic),
    )


def _migrations(cost: _Cost) -> Section:
    return Section(
        f"{MIGRATIONS} VMs are moved at once to another zone",
        [
            Measurement("from the first move to the last label", cost.seconds, "s"),
            Measurement("requests for each", cost.traffic.total / MIGRATIONS, target=1),
            Measurement("processor time of the program", cost.processor, "s"),
        ],
        _requests(cost.traffic),
    )


def _churn(cost: _Cost, count: int) -> Section:
    return Section(
        f"A minute of pods: {UPDATES_A_SECOND} updates a second of {count} VMIs with {POD_DEVICES} devices each",
        [
            Measurement("updates a second", UPDATES_A_SECOND * MINUTE / cost.seconds),
            Measurement("requests, without Lease and watches", cost.traffic.total, target=0),
            Measurement("processor time of the program", cost.processor, "s"),
            Measurement("of a core", cost.processor / cost.seconds * 100, "%", CHURN_PERCENT),
            Measurement("longest time between two renewals of the Lease", cost.renewal, "s", RENEWAL_SECONDS),
            Measurement("resident memory", cost.memory, "MiB", MEMORY_MIB),
        ],
        _requests(cost.traffic),
    )


async def _restart(arena: Arena, crowd: Crowd) -> Section:
    await arena.stop_program()
    mark = arena.mark()
    leading = await arena.start_program()
    traffic = await arena.settled(mark)
    writes = [one for one in traffic.guest if one.resource.startswith("nodes") and one.verb != "list"]
    return Section(
        f"Restart with {len(crowd.vms)} Nodes",
        [
            Measurement("from start to leading", leading, "s"),
            Measurement("requests, without Lease and watches", traffic.total, target=RESTART_REQUESTS),
            Measurement("writes of Nodes", len(writes), target=0),
            Measurement("processor time of the program, until idle", arena.usage().program, "s"),
            Measurement("peak memory", arena.program.peak_memory() / MIB, "MiB", MEMORY_MIB),
        ],
        _requests(traffic),
    )


def _requests(traffic: Traffic) -> tuple[str, ...]:
    return f"Harvester: {tally(traffic.harvester)}", f"guest: {tally(traffic.guest)}"


def _address(number: int) -> str:
    return f"198.19.{number // 250 + 1}.{number % 250 + 1}"
