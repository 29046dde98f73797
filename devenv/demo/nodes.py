"""New nodes: why they wait, and what they are once their VMs have addresses."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from devenv.demo.play import Play, expect
from devenv.demo.tables import aligned
from devenv.harvester.machines import Machine, Machines, machine_document
from devenv.harvester.records import INSTANCES, MACHINES
from devenv.kubelets import Kubelet, Kubelets
from devenv.stage import VM_NAMESPACE, until
from harvester_ccm.model.core import Node
from harvester_ccm.names import UNINITIALIZED_TAINT, ZONE, NodeReason

VMS: Final = tuple(Machine(f"node-{number}", zone=f"rack-{number}", region="home") for number in (1, 2, 3))
ADDRESSES: Final = ("192.0.2.1", "192.0.2.2", "192.0.2.3")
INITIALISED_SECONDS: Final = 60.0
TOLD_SECONDS: Final = 60.0


class _Event(msgspec.Struct):
    type: str
    reason: str
    message: str


async def initialise_nodes(play: Play) -> None:
    """Let three nodes join whose VMs have no addresses yet, show why they wait, and see them initialised."""
    voice, machines = play.voice, Machines(play.stage.host)
    voice.headline("Three kubelets register their nodes; their VMs run, and have no addresses yet")
    await asyncio.gather(*(_join(play, vm) for vm in VMS))
    await until(lambda: _reason_is_told(play, VMS[0].name), within=TOLD_SECONDS, what="Event about a waiting node")
    await _show_nodes(play)
    await _show_events(play, VMS[0].name)

    voice.headline("The guest agents report addresses")
    started = voice.elapsed
    await asyncio.gather(*(machines.report(vm, address) for vm, address in zip(VMS, ADDRESSES, strict=True)))
    await until(lambda: _all_initialised(play), within=INITIALISED_SECONDS, what="nodes without the taint")
    voice.say(f"all three are initialised {voice.elapsed - started:.2f} s later")
    await _show_nodes(play)
    nodes = await play.stage.nodes()
    for vm, address in zip(VMS, ADDRESSES, strict=True):
        shown = {entry.address for entry in nodes[vm.name].status.addresses if entry.type == "InternalIP"}
        expect(shown == {address}, f"{vm.name} has the internal addresses {', '.join(sorted(shown)) or 'none'}")


async def move_node(play: Play) -> None:
    """Migrate the VM of a node to a host in another zone and see the label follow."""
    voice, machines, vm = play.voice, Machines(play.stage.host), VMS[0]
    voice.headline(f"{vm.name} moves to a host in another zone: a live migration of its VM")
    await machines.begin_migration(vm, "harvester-2")
    await _move(play, vm)
    started = voice.elapsed
    await machines.finish_migration(vm, "harvester-2")
    await until(lambda: _is_in(play, vm.name, "rack-9"), within=INITIALISED_SECONDS, what="the new zone")
    voice.say(f"its Node has the label {ZONE}=rack-9 {voice.elapsed - started:.2f} s later")


async def _join(play: Play, vm: Machine) -> None:
    await play.stage.host.create(MACHINES, machine_document(vm), namespace=VM_NAMESPACE)
    await Machines(play.stage.host).start(vm)
    await Kubelets(play.stage.guest).register(Kubelet(vm.name, system_uuid=vm.system_uuid))


async def _reason_is_told(play: Play, name: str) -> bool:
    return any(event.reason == NodeReason.NO_ADDRESS for event in await _events(play, name))


async def _events(play: Play, name: str) -> list[_Event]:
    return [msgspec.convert(event, _Event) for event in await play.stage.events("Node", name)]


async def _show_events(play: Play, name: str) -> None:
    play.voice.command(f"kubectl events --for node/{name}")
    for event in await _events(play, name):
        head = f"{event.type:9}{event.reason:14}"
        play.voice.say(head + event.message, hang=len(head))


async def _show_nodes(play: Play) -> None:
    play.voice.command("kubectl get nodes -o custom-columns=...")
    nodes = await play.stage.nodes()
    rows = [["NAME", "PROVIDER-ID", "INTERNAL-IP", "ZONE", "INITIALISED"]]
    play.voice.show(aligned(rows + [_row(nodes[name]) for name in sorted(nodes)]))


def _row(node: Node) -> list[str]:
    addresses = [entry.address for entry in node.status.addresses if entry.type == "InternalIP"]
    return [
        node.metadata.name,
        node.spec.provider_id or "<none>",
        ",".join(addresses) or "<none>",
        node.metadata.label(ZONE) or "<none>",
        "no" if _is_tainted(node) else "yes",
    ]


def _is_tainted(node: Node) -> bool:
    return any(taint.key == UNINITIALIZED_TAINT for taint in node.spec.taints)


async def _all_initialised(play: Play) -> bool:
    return not any(_is_tainted(node) for node in (await play.stage.nodes()).values())


async def _is_in(play: Play, name: str, zone: str) -> bool:
    node = (await play.stage.nodes()).get(name)
    return node is not None and node.metadata.label(ZONE) == zone


async def _move(play: Play, vm: Machine) -> None:
    """Copy the zone of the new host to the VM's instance, as Harvester does during a migration."""
    patch = {"metadata": {"annotations": {ZONE: "rack-9"}}}
    await play.stage.host.merge_patch(INSTANCES, vm.name, patch, namespace=VM_NAMESPACE)
