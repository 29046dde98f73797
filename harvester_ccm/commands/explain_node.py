"""``explain node``: one Node, from the clusters or from files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from harvester_ccm.commands.call import FILENAME, NAMESPACE, Call, expect_arguments, refuse
from harvester_ccm.commands.clusters import Clusters, ask, open_clusters, read_inventory
from harvester_ccm.commands.files import read_files
from harvester_ccm.commands.inventory import Inventory, ListedNodes
from harvester_ccm.commands.node_report import NodeReport, report_node
from harvester_ccm.config import Settings
from harvester_ccm.errors import CCMError
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Node, parse_provider_id
from harvester_ccm.model.harvester import (
    GUEST_OS_INFO,
    VIRTUAL_MACHINES,
    VirtualMachine,
    VirtualMachineInstance,
)
from harvester_ccm.model.meta import ObjectMeta
from harvester_ccm.plan.node.existence import LiveGet, vm_to_get
from harvester_ccm.plan.node.match import match_vm, wants_hostname
from harvester_ccm.plan.node.vms import may_be_asked

GUEST_AGENTS_ASKED: Final = 50
"""At most so many guest agents are asked for their host name to find the VM of one Node."""


def explain_node(call: Call) -> int:
    """Explain a Node and return the exit code."""
    files = call.flags.words(FILENAME.name)
    if files:
        report = _from_files(call, files)
    else:
        (name,) = expect_arguments(call, ["NAME"], skip=1)
        report = asyncio.run(_from_clusters(call, name))
    call.output.answer(report.document(), text=report.text())
    return report.exit_code


async def _from_clusters(call: Call, name: str) -> NodeReport:
    async with open_clusters(call.settings, call.environment) as clusters:
        inventory = await read_inventory(clusters)
        node = inventory.node(name)
        if node is None:
            raise CCMError(f"there is no Node {name} in this cluster")
        return await report_live(node, inventory, clusters, call.settings)


async def report_live(node: Node, inventory: Inventory, clusters: Clusters, settings: Settings) -> NodeReport:
    """Return the explanation of a Node out of what was read, and of what Harvester has to be asked for besides."""
    store = ListedNodes(inventory, ClusterIdentity.of(settings, clusters.harvester.namespace))
    if wants_hostname(node, match_vm(store, node)):
        store = ListedNodes(await _with_hostnames(store, clusters), store.cluster)
    return report_node(node, store, settings, live_get=await _get_vm(node, store, clusters))


async def _with_hostnames(store: ListedNodes, clusters: Clusters) -> Inventory:
    """Return the inventory with guests' host names, where only they can tell which VM the Node is."""
    index = store.index()
    askable = [one.vmi for one in index.by_name.values() if one.vmi is not None and may_be_asked(one, index)]
    asked = askable[:GUEST_AGENTS_ASKED]
    answers = await asyncio.gather(*(_ask_hostname(clusters, one) for one in asked))
    known = {one.metadata.name: hostname for one, hostname in zip(asked, answers, strict=True) if hostname}
    silent = [one.metadata.name for one in asked if one.metadata.name not in known]
    found = replace(store.inventory, hostnames=known)
    return found.assuming(f"host names of guests are not known: {', '.join(silent)}" if silent else "")


async def _ask_hostname(clusters: Clusters, instance: VirtualMachineInstance) -> str:
    meta = instance.metadata
    question = clusters.harvester.get(GUEST_OS_INFO, meta.name, namespace=meta.namespace, subresource="guestosinfo")
    asked = await ask(question)
    return asked.answer.hostname if asked.answer else ""


async def _get_vm(node: Node, store: ListedNodes, clusters: Clusters) -> LiveGet | None:
    """Return the live answer about the VM of a Node that is not ready, where the lists do not have it."""
    name = vm_to_get(store, node, match_vm(store, node), None)
    if name is None:
        return None
    asked = await ask(clusters.harvester.get(VIRTUAL_MACHINES, name, namespace=store.cluster.namespace))
    return LiveGet(name, asked.answer, asked.error)


def _from_files(call: Call, files: tuple[str, ...]) -> NodeReport:
    contents = read_files(files, namespace=call.flags.text(NAMESPACE.name))
    node, choice = _chosen(call, contents.inventory)
    inventory = with_stand_ins(contents.inventory).assuming(choice, *_missing(call, contents.inventory))
    cluster = ClusterIdentity.of(call.settings, contents.namespace)
    return report_node(node, ListedNodes(inventory, cluster), call.settings, live_get=None)


def with_stand_ins(inventory: Inventory) -> Inventory:
    """Return the inventory with a VM for every instance that has none; it gets the UID that its Node names."""
    present = {one.metadata.name for one in inventory.machines}
    missing = [one for one in inventory.instances if one.metadata.name not in present]
    if not missing:
        return inventory
    names = ", ".join(one.metadata.name for one in missing)
    made = tuple(_stand_in(one, inventory) for one in missing)
    sentence = f"a VM of the same name for VirtualMachineInstance {names}; its UID is not known"
    return replace(inventory, machines=(*inventory.machines, *made)).assuming(sentence)


def _stand_in(instance: VirtualMachineInstance, inventory: Inventory) -> VirtualMachine:
    meta = instance.metadata
    node = inventory.node(meta.name)
    uid = parse_provider_id(node.spec.provider_id) if node else None
    return VirtualMachine(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=uid or f"uid-of-vm-{meta.name}",
            labels=meta.labels,
        )
    )


def _chosen(call: Call, inventory: Inventory) -> tuple[Node, str]:
    """Return the Node to explain, and how it was chosen where the files leave a choice."""
    names = [one.metadata.name for one in inventory.nodes]
    if call.arguments[1:]:
        (name,) = expect_arguments(call, ["NAME"], skip=1)
        named = inventory.node(name)
        if named is None:
            raise refuse(f"Node {name} is not in the files; there are: {', '.join(names) or 'none'}")
        return named, ""
    if not inventory.nodes:
        raise refuse("there is no Node in the files")
    others = f"Node {names[0]} is meant, the first one; name another as argument: {', '.join(names[1:])}"
    return inventory.nodes[0], others if len(names) > 1 else ""


def _missing(call: Call, inventory: Inventory) -> Iterator[str]:
    """Yield what the files leave out and the plan depends on."""
    yield from call.settings.warnings
    if not inventory.services and not inventory.load_balancers:
        yield "no address is a virtual IP: neither Services nor load balancers are in the files"
    if len(inventory.nodes) == 1:
        yield "this is the only Node of the cluster: no other one is in the files"
    yield "host names of guests are not known: only the running program asks guest agents"
