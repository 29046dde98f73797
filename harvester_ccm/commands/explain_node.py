"""``explain node``: its VM, its addresses with the reason for each, the Events that hold, and the next writes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.call import Call
from harvester_ccm.commands.clusters import Clusters, ask, open_clusters, read_inventory
from harvester_ccm.commands.diff import diff, event, plain, write
from harvester_ccm.commands.inventory import ListedNodes
from harvester_ccm.commands.render import Document
from harvester_ccm.config import LIFECYCLE_CONTROLLER, NODE_CONTROLLER, Settings
from harvester_ccm.errors import CCMError
from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import GUEST_OS_INFO, VIRTUAL_MACHINES, VirtualMachineInstance
from harvester_ccm.plan.node.addresses import AddressPlan
from harvester_ccm.plan.node.decision import NodePlan, observe, plan_node
from harvester_ccm.plan.node.lifecycle import LifecyclePlan, is_absent, observe_lifecycle, plan_lifecycle, power
from harvester_ccm.plan.node.match import Match, find_vm, needs_hostname
from harvester_ccm.plan.node.patch import uninitialized_taints
from harvester_ccm.plan.node.vms import all_vms, has_queryable_guest

GUEST_AGENTS_QUERIED: Final = 50
"""Maximum number of guest agents that are queried for their host name to find the VM of one Node."""


async def explain_node(call: Call, name: str) -> tuple[Document, int]:
    """Return the explanation of a Node, and the exit code. Raises CCMError if it cannot be read."""
    settings = call.settings
    async with open_clusters(settings, call.environment) as clusters:
        inventory = await read_inventory(clusters)
        node = next((one for one in inventory.nodes if one.metadata.name == name), None)
        if node is None:
            raise CCMError(f"there is no Node {name} in this cluster")
        store = inventory.node_store(settings)
        if settings.nodes.asks_guests and needs_hostname(node, find_vm(store, node)):
            hostnames = await _hostnames(store, clusters)
            store = ListedNodes(replace(inventory, hostnames=hostnames), store.cluster)
        return _explained(node, store, settings, absent=await _is_vm_absent(node, store, settings, clusters))


async def _hostnames(store: ListedNodes, clusters: Clusters) -> dict[str, str]:
    """Return VM names with the host names of their guests, which alone can tell which VM the Node is."""
    queried = [vm.vmi for vm in all_vms(store) if vm.vmi and has_queryable_guest(store, vm)][:GUEST_AGENTS_QUERIED]
    answers = await asyncio.gather(*(_hostname(clusters, one) for one in queried))
    return {one.metadata.name: hostname for one, hostname in zip(queried, answers, strict=True) if hostname}


async def _hostname(clusters: Clusters, vmi: VirtualMachineInstance) -> str:
    meta = vmi.metadata
    question = clusters.harvester.get(GUEST_OS_INFO, meta.name, namespace=meta.namespace, subresource="guestosinfo")
    asked = await ask(question)
    return asked.answer.hostname if asked.answer else ""


async def _is_vm_absent(node: Node, store: ListedNodes, settings: Settings, clusters: Clusters) -> bool:
    """Return whether a live GET confirms that the VM of a Node is gone."""
    view = observe_lifecycle(store, node, settings.nodes)
    if not (view.has_lost_vm and view.vm_name):
        return False
    asked = await ask(clusters.harvester.get(VIRTUAL_MACHINES, view.vm_name, namespace=store.cluster.namespace))
    return is_absent(asked.error, view.vm_name)


def _explained(node: Node, store: ListedNodes, settings: Settings, *, absent: bool) -> tuple[Document, int]:
    """Return the explanation; ``absent``: a live GET did not find the VM."""
    nodes, controllers, inventory = settings.nodes, settings.controllers, store.inventory
    view = observe(store, node, virtual_ips=store.virtual_ips, settings=nodes)
    switched_off = NodePlan(skip_reason=f"{NODE_CONTROLLER} is switched off by --controllers")
    plan = plan_node(view) if NODE_CONTROLLER in controllers else switched_off
    # As if all confirmations had been made.
    life = observe_lifecycle(store, node, nodes, absences=max(nodes.deletion_confirmations, 2) if absent else 0)
    lifecycle = plan_lifecycle(life) if LIFECYCLE_CONTROLLER in controllers else LifecyclePlan()
    events = [one for one in (*plan.events, *plan.emitted, lifecycle.event) if one is not None]
    unnamed = life.has_lost_vm and not life.vm_name
    document = {
        "node": node.metadata.name,
        "initialized": not uninitialized_taints(node),
        "ready": node.ready,
        "providerId": node.spec.provider_id,
        "vm": _vm(view.match),
        "vmExistence": "present" if view.match.vm is not None else "absent" if absent else "unknown",
        "skipReason": plan.skip_reason,
        "addresses": list(_addresses(plan.addresses)),
        "addressProblem": plan.addresses.problem.message if plan.addresses.problem else "",
        "events": [event(one) for one in dict.fromkeys(events)],
        "nextWrites": list(_writes(node, plan, lifecycle, nodes.deletion_confirmations)),
        "notes": [*inventory.notes, *(["the Node has no record of the name of its VM"] if unnamed else [])],
    }
    is_deleted = lifecycle.request is not None and lifecycle.request.method == "DELETE"
    has_warning = any(one.type == "Warning" for one in events)
    unread = VIRTUAL_MACHINES.plural in inventory.problems
    return document, EXIT_PROBLEMS if has_warning or plan.waiting or is_deleted or unread else EXIT_OK


def _addresses(plan: AddressPlan) -> Iterator[Document]:
    """Yield the published addresses in their order, then the others."""
    published = {one.address: one.type for one in plan.addresses}
    for address in dict.fromkeys((*published, *plan.reasons)):
        yield {"type": published.get(address, "dropped"), "address": address, "reason": plan.reasons.get(address, "")}


def _writes(node: Node, plan: NodePlan, lifecycle: LifecyclePlan, confirmations: int) -> Iterator[Document]:
    before = plain(node)
    for request in (plan.request, lifecycle.request):
        if request is None:
            continue
        if request.method == "PATCH":
            yield write(f"patch Node {request.name}", diff(before, request.body))
        else:
            yield write(f"delete Node {request.name}, after {confirmations} live GETs did not find its VM")


def _vm(match: Match) -> Document | None:
    vm = match.vm
    if vm is None:
        return None
    status = vm.object.status.printable_status
    return {
        "name": vm.object.metadata.key,
        "uid": vm.uid,
        "foundBy": str(match.by or ""),
        "status": status,
        "host": vm.vmi.status.node_name if vm.vmi else "",
        "power": power(vm).value,
        "guestAgent": "connected" if vm.vmi and vm.vmi.has_agent else "not connected",
    }
