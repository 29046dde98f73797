"""Many Nodes: what a large cluster costs while it is initialized, at rest, and while pods come and go.

Objects have about the size of real ones: Nodes list images, VMIs have 4 KiB of other annotations, and each guest agent
reports a device for each pod. Kubelets report their status as often as real ones do when nothing changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from benchmarks.arena import CLUSTER, MIB, MINUTE, Arena
from benchmarks.table import Row
from devenv.background import Background
from devenv.harvester.machines import Machine, instance_document, interfaces_of, machine_document
from devenv.harvester.records import INSTANCES, MACHINES
from devenv.kubelets import DOCUMENTS, Kubelet, node_document
from devenv.process import cpu_seconds
from devenv.stage import VM_NAMESPACE
from devenv.watch import Document, Mirror
from harvester_ccm.model.core import NODES
from harvester_ccm.names import UNINITIALIZED_TAINT

STATUS_SECONDS: Final = 300.0
"""Interval at which a kubelet reports a status in which nothing changed."""
POD_DEVICES: Final = 60
"""On each VM."""
UPDATES: Final = 20
"""Updates of VMIs per second."""
WORKERS: Final = 32
"""The program's default of --concurrent-node-syncs."""
IMAGES: Final = [{"names": [f"registry.example.com/image-{number}:v1.0"], "sizeBytes": 10**8} for number in range(50)]
PADDING: Final = {"bench.example.com/padding": "x" * 4000}


class _Crowd:
    """The Nodes and their VMs."""

    def __init__(self, arena: Arena, count: int) -> None:
        self._arena = arena
        self._pods = 0
        self.vms = {f"crowd-{number:04}": Machine(f"crowd-{number:04}", cluster=CLUSTER) for number in range(count)}
        self.nodes = Mirror(arena.guest, DOCUMENTS)

    async def build(self) -> None:
        """Register the Nodes and start the VMs."""
        await self._arena.each(self._add, self.vms, at_once=WORKERS)

    def is_initialized(self) -> bool:
        """Return whether no Node has the taint."""
        nodes = [self.nodes.get(name) for name in self.vms]
        return all(node and not _is_tainted(node) for node in nodes)

    async def patch(self) -> None:
        """Send two patches for each Node, as many at once as the program sends."""

        async def patch(name: str) -> None:
            guest = self._arena.guest
            await guest.merge_patch(NODES, name, {"status": {"phase": "Running"}}, subresource="status")
            await guest.merge_patch(NODES, name, {"metadata": {"labels": {"benchmark": "alone"}}})

        await self._arena.each(patch, self.vms, at_once=WORKERS)

    async def rest(self) -> None:
        """Let a minute pass in which only kubelets report."""
        await self._paced(int(len(self.vms) * MINUTE / STATUS_SECONDS), self._heartbeat)

    async def churn(self) -> None:
        """Let a minute pass in which a pod starts, and another one ends, in one guest after the other."""
        await self._paced(int(MINUTE * UPDATES), self.report_pods)

    async def report_pods(self, number: int) -> None:
        """Let a guest agent report the device of a pod that it did not report before."""
        index = number % len(self.vms)
        vm = list(self.vms.values())[index]
        self._pods += 1
        devices: list[Document] = [
            {"interfaceName": f"cali{pod:011x}", "ipAddress": "fe80::ecee:eeff:feee:eeee", "mac": "ee:ee:ee:ee:ee:ee"}
            for pod in range(self._pods, self._pods + POD_DEVICES)
        ]
        body = {"status": {"interfaces": [*interfaces_of(vm, _address(index)), *devices]}}
        await self._arena.harvester.merge_patch(INSTANCES, vm.name, body, namespace=VM_NAMESPACE)

    async def _add(self, name: str) -> None:
        vm, number = self.vms[name], list(self.vms).index(name)
        node = node_document(Kubelet(name, system_uuid=vm.system_uuid))
        node["status"]["images"] = IMAGES
        await self._arena.guest.create(DOCUMENTS, node)
        machine, instance = machine_document(vm), instance_document(vm, _address(number))
        machine["status"] = {"created": True, "ready": True, "printableStatus": "Running"}
        for records, document in ((MACHINES, machine), (INSTANCES, instance)):
            document["metadata"]["annotations"] = PADDING
            await self._arena.harvester.create(records, document, namespace=VM_NAMESPACE)

    async def _heartbeat(self, number: int) -> None:
        at = f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}Z"
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": at}
        body = {"status": {"conditions": [condition]}}
        await self._arena.guest.merge_patch(NODES, f"crowd-{number:04}", body, subresource="status")

    async def _paced(self, count: int, act: Callable[[int], Awaitable[None]]) -> None:
        """Act ``count`` times, evenly in one minute."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                await asyncio.sleep(began + MINUTE * number / count - loop.time())
                group.create_task(_await(act(number)))
            await asyncio.sleep(began + MINUTE - loop.time())


async def measure(arena: Arena, count: int) -> AsyncIterator[Row]:
    """Measure all that concerns many Nodes. The program must not run; it runs at the end."""
    crowd, loop = _Crowd(arena, count), asyncio.get_running_loop()
    following = Background("nodes", [crowd.nodes.run])
    await following.start([crowd.nodes.wait_synced], within=MINUTE)
    try:
        await crowd.build()
        began = loop.time()
        await crowd.patch()
        alone = loop.time() - began
        began = loop.time()
        leading = await arena.start()
        await arena.until(crowd.is_initialized, "initialization of the Nodes")
        last = loop.time() - began - leading
        yield Row(f"{count} Nodes, from the start of the leader to the last one initialized", last, "s", alone)
        yield Row("  processor time of the program", cpu_seconds(arena.program.pid), "s")
        yield Row("  peak memory", arena.program.peak_memory() / MIB, "MiB")
        for row in await arena.minute(f"minute with {count} Nodes at rest", crowd.rest):
            yield row
        for number in range(count):
            await crowd.report_pods(number)
        title = f"minute with {UPDATES} updates per second of VMIs with {POD_DEVICES} pods each"
        for row in await arena.minute(title, crowd.churn):
            yield row
    finally:
        await following.stop()


async def _await(work: Awaitable[None]) -> None:
    await work


def _is_tainted(node: Document) -> bool:
    return any(taint["key"] == UNINITIALIZED_TAINT for taint in node["spec"].get("taints") or ())


def _address(number: int) -> str:
    return f"198.19.{number // 250 + 1}.{number % 250 + 1}"
