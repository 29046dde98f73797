"""Nodes that join: from the moment a VM has its address until its Node can be used, and what that costs.

Nodes are registered first, their VMs start after that, and addresses come later still, as in a cluster that is being
made. Addresses come over some seconds, and once all at the same moment, which only a restart of all guest agents would
do. Every case runs ROUNDS times, and the numbers are those of the round with the lowest p95: other work on the machine
only ever makes a round slower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.arena import CLUSTER, PATIENCE, Arena, Traffic
from benchmarks.audit import count_of, tally
from benchmarks.follower import Follower
from benchmarks.result import Measurement, Section, percentile
from devenv.background import Background
from devenv.harvester.machines import Machine, Machines
from devenv.kubelets import Kubelet, Kubelets
from devenv.stage import VM_NAMESPACE
from harvester_ccm.model import core
from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import INSTANCES, VirtualMachineInstance
from harvester_ccm.names import UNINITIALIZED_TAINT, ZONE

JOIN_MS: Final = 200.0
FOLLOW_MS: Final = 1000.0
WRITES_EACH: Final = 4
WORKERS: Final = 32
"""The program's default of --concurrent-node-syncs."""
SPREAD_SECONDS: Final = 5.0
"""Over so long the VMs get their addresses."""
NODES: Final = 50
ROUNDS: Final = 3


@dataclass(frozen=True)
class _Round:
    """Nodes that joined once."""

    times: Sequence[float]
    """Milliseconds from the address to no taint, of each."""
    traffic: Traffic
    alone: float | None
    """Milliseconds for as many patches without the program, where that was measured."""


class Joining:
    """Nodes on their way into the cluster."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._machines, self._kubelets = Machines(arena.harvester), Kubelets(arena.guest)
        self._addressed: dict[str, float] = {}
        self._usable: dict[str, float] = {}
        self.nodes = Follower(arena.guest, core.NODES, "", check=self._check)
        self.instances = Follower(arena.harvester, INSTANCES, VM_NAMESPACE, check=self._check)
        self.nodes.informer.on_change(self._node_changed)
        self.instances.informer.on_change(self._instance_changed)

    async def join(self, vms: Sequence[Machine], *, spread: float) -> tuple[list[float], Traffic]:
        """Let Nodes join; return the milliseconds from address to no taint for each, and what the program asked for."""
        await asyncio.gather(*(self._register(vm) for vm in vms))
        mark = await self._arena.idle_mark()
        await asyncio.gather(*(self._report(vm, number, spread / len(vms)) for number, vm in enumerate(vms)))
        names = {vm.name for vm in vms}
        await self.nodes.until(lambda: names <= self._usable.keys(), within=PATIENCE, what="Nodes without the taint")
        traffic = await self._arena.settled(mark)
        return [(self._usable[name] - self._addressed[name]) * 1000 for name in sorted(names)], traffic

    async def patch_alone(self, vms: Sequence[Machine]) -> float:
        """Return the milliseconds that two patches of each Node take, sent as many at once as the program sends."""
        slots = asyncio.Semaphore(WORKERS)
        guest = self._arena.guest

        async def patch(name: str) -> None:
            async with slots:
                await guest.merge_patch(core.NODES, name, {"status": {"phase": "Running"}}, subresource="status")
                await guest.merge_patch(core.NODES, name, {"metadata": {"labels": {"benchmark": "alone"}}})

        began = asyncio.get_running_loop().time()
        await asyncio.gather(*(patch(vm.name) for vm in vms))
        return (asyncio.get_running_loop().time() - began) * 1000

    async def readdress(self, vm: Machine, address: str) -> float:
        """Let the guest agent report another address; return the seconds until the Node shows it."""

        def shown() -> bool:
            node = self.nodes.informer.get(vm.name)
            return node is not None and any(entry.address == address for entry in node.status.addresses)

        await self._machines.report(vm, address)
        began = asyncio.get_running_loop().time()
        await self.nodes.until(shown, within=PATIENCE, what=f"address {address}")
        return asyncio.get_running_loop().time() - began

    async def move(self, vm: Machine, zone: str) -> float:
        """Migrate the VM to a host in another zone; return the seconds from the end until the Node has the label."""

        def shown() -> bool:
            node = self.nodes.informer.get(vm.name)
            return node is not None and node.metadata.label(ZONE) == zone

        await self._machines.begin_migration(vm, "harvester-2")
        patch = {"metadata": {"annotations": {ZONE: zone}}}
        await self._arena.harvester.merge_patch(INSTANCES, vm.name, patch, namespace=VM_NAMESPACE)
        await self._machines.finish_migration(vm, "harvester-2")
        began = asyncio.get_running_loop().time()
        await self.nodes.until(shown, within=PATIENCE, what=f"zone {zone}")
        return asyncio.get_running_loop().time() - began

    async def leave(self, vms: Sequence[Machine]) -> None:
        """Remove the Nodes and their VMs."""
        for vm in vms:
            await self._kubelets.remove(vm.name)
            await self._machines.delete(vm)

    async def _register(self, vm: Machine) -> None:
        await self._kubelets.register(Kubelet(vm.name, system_uuid=vm.system_uuid))
        await self._machines.create(vm)

    async def _report(self, vm: Machine, number: int, pause: float) -> None:
        await asyncio.sleep(number * pause)
        await self._machines.report(vm, f"198.19.{number // 250 + 1}.{number % 250 + 1}")

    def _node_changed(self, _old: Node | None, new: Node | None) -> None:
        if new is not None and all(taint.key != UNINITIALIZED_TAINT for taint in new.spec.taints):
            self._usable.setdefault(new.metadata.name, asyncio.get_running_loop().time())

    def _instance_changed(self, _old: VirtualMachineInstance | None, new: VirtualMachineInstance | None) -> None:
        interfaces = new.status.interfaces if new is not None and new.status is not None else None
        if new is not None and any(nic.ip_address for nic in interfaces or ()):
            self._addressed.setdefault(new.metadata.name, asyncio.get_running_loop().time())

    def _check(self) -> None:
        assert self._arena.program.pid


async def join_nodes(arena: Arena, count: int = NODES) -> list[Section]:
    """Let one Node join, then ``count``, then as many at the same moment. The program must be running."""
    joining = Joining(arena)
    following = Background("joining", [joining.nodes.run, joining.instances.run])
    ready = [joining.nodes.informer.wait_synced, joining.instances.informer.wait_synced]
    await following.start(ready, within=PATIENCE)
    try:
        return [
            await _measure(joining, 1, 0.0, title="One Node joins"),
            await _measure(joining, count, SPREAD_SECONDS, title=f"{count} Nodes join within {SPREAD_SECONDS:g} s"),
            await _measure(joining, count, 0.0, title=f"{count} Nodes whose VMs get their addresses at one moment"),
            await _follow(joining, count),
        ]
    finally:
        await following.stop()


async def _measure(joining: Joining, count: int, spread: float, *, title: str) -> Section:
    rounds = [await _round(joining, count, spread, number=number) for number in range(ROUNDS)]
    best = min(rounds, key=lambda one: percentile(one.times, 0.95))
    slowest = max(percentile(one.times, 0.95) for one in rounds)
    traffic, writes = best.traffic, sum(1 for one in best.traffic.guest if one.verb in {"create", "update", "patch"})
    measurements = [
        Measurement("address known to taint gone, p50", percentile(best.times, 0.5), "ms"),
        Measurement("address known to taint gone, p95", percentile(best.times, 0.95), "ms", JOIN_MS),
        Measurement("slowest Node", max(best.times), "ms"),
        Measurement("p95 of the slowest round", slowest, "ms"),
        Measurement("writes to the guest for each, Events included", writes / count, target=WRITES_EACH),
        Measurement("GET to Harvester for each", count_of(traffic.harvester, verb="get") / count, target=0),
    ]
    if best.alone is not None:
        measurements.append(Measurement("as many patches of the Nodes, API server alone", best.alone, "ms"))
    remarks = (f"Harvester: {tally(traffic.harvester)}", f"guest: {tally(traffic.guest)}")
    return Section(f"{title} (fastest of {ROUNDS} rounds)", measurements, remarks)


async def _follow(joining: Joining, count: int) -> Section:
    """Change the VMs of initialised Nodes, one after the other."""
    vms = [Machine(f"follow-{index}", cluster=CLUSTER, zone="zone-a") for index in range(count)]
    await joining.join(vms, spread=0.0)
    addresses = [await joining.readdress(vm, f"198.19.9.{number + 1}") * 1000 for number, vm in enumerate(vms)]
    zones = [await joining.move(vm, "zone-b") * 1000 for vm in vms]
    await joining.leave(vms)
    return Section(
        f"A change of the VM reaches its Node ({count} one after the other)",
        [
            Measurement("address, p95", percentile(addresses, 0.95), "ms", FOLLOW_MS),
            Measurement("address, slowest", max(addresses), "ms"),
            Measurement("zone, at the end of a migration, p95", percentile(zones, 0.95), "ms", FOLLOW_MS),
            Measurement("zone, slowest", max(zones), "ms"),
        ],
    )


async def _round(joining: Joining, count: int, spread: float, *, number: int) -> _Round:
    prefix = f"join-{count}-{spread:g}-{number}"
    vms = [Machine(f"{prefix}-{index}", cluster=CLUSTER, zone="zone-a") for index in range(count)]
    times, traffic = await joining.join(vms, spread=spread)
    alone = await joining.patch_alone(vms) if count > 1 and not spread else None
    await joining.leave(vms)
    return _Round(times, traffic, alone)
