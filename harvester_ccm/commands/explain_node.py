"""``explain node``: which VM it is and why, its addresses, what would be written now, what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.call import Call
from harvester_ccm.commands.clusters import Clusters, ask, open_clusters, read_inventory
from harvester_ccm.commands.inventory import Inventory, ListedNodes
from harvester_ccm.commands.render import Document
from harvester_ccm.commands.targets import Target
from harvester_ccm.commands.writes import event, is_warning, step_text, warnings_of, write
from harvester_ccm.config import LIFECYCLE_CONTROLLER, NODE_CONTROLLER, Settings
from harvester_ccm.errors import CCMError
from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import GUEST_OS_INFO, VIRTUAL_MACHINES, VirtualMachineInstance
from harvester_ccm.plan.node.decision import NodePlan, NodeView, observe, plan_node
from harvester_ccm.plan.node.lifecycle import LifecyclePlan, is_absent, observe_lifecycle, plan_lifecycle, power
from harvester_ccm.plan.node.match import Match, find_vm, needs_hostname
from harvester_ccm.plan.node.patch import NodeRequest, uninitialized_taints
from harvester_ccm.plan.node.vms import all_vms, has_queryable_guest

GUEST_AGENTS_ASKED: Final = 50
"""At most so many guest agents are asked for their host name to find the VM of one Node."""


async def explain_node(call: Call, target: Target) -> NodeReport:
    """Return the explanation of a Node."""
    settings = call.settings
    async with open_clusters(settings, call.environment) as clusters:
        inventory = await read_inventory(clusters, services=False)
        node = inventory.node(target.name)
        if node is None:
            raise CCMError(f"there is no Node {target.name} in this cluster")
        store = inventory.node_store(settings)
        if settings.nodes.asks_guests and needs_hostname(node, find_vm(store, node)):
            store = ListedNodes(await _with_hostnames(store, clusters), store.cluster)
        return report_node(node, store, settings, absent=await _is_vm_absent(node, store, settings, clusters))


async def _with_hostnames(store: ListedNodes, clusters: Clusters) -> Inventory:
    """Return the inventory with guests' host names, where only they can tell which VM the Node is."""
    asked = [vm.vmi for vm in all_vms(store) if vm.vmi and has_queryable_guest(store, vm)][:GUEST_AGENTS_ASKED]
    answers = await asyncio.gather(*(_ask_hostname(clusters, one) for one in asked))
    known = {one.metadata.name: hostname for one, hostname in zip(asked, answers, strict=True) if hostname}
    silent = [one.metadata.name for one in asked if one.metadata.name not in known]
    found = replace(store.inventory, hostnames=known)
    return found.assuming(f"host names of guests are not known: {', '.join(silent)}" if silent else "")


async def _ask_hostname(clusters: Clusters, vmi: VirtualMachineInstance) -> str:
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


_SWITCHED_OFF: Final = f"{NODE_CONTROLLER} is switched off by --controllers"
_NOT_REMEMBERED: Final = "the name under which the controller saw the VM of the Node is unknown here"


class NodeReport(Struct, frozen=True):
    """The explanation of one Node."""

    view: NodeView
    plan: NodePlan
    lifecycle: LifecyclePlan
    existence: str
    """``present``, ``absent`` (confirmed by a live GET) or ``unknown``."""
    steps: tuple[Document, ...]
    assumptions: tuple[str, ...]
    blind: bool = False
    """Whether Harvester's VMs could not be read: that none is found says nothing then."""

    @property
    def exit_code(self) -> int:
        """Problems: it waits, something is odd about it, its VM is gone, or Harvester could not be asked."""
        warned = any(is_warning(step) for step in self.steps)
        return EXIT_PROBLEMS if warned or self.plan.waiting or _deletes(self.lifecycle) or self.blind else EXIT_OK

    def document(self) -> Document:
        """Return the explanation for scripts; docs/reference/commands.md describes it."""
        node, waiting = self.view.node, self.plan.waiting
        return {
            "node": node.metadata.name,
            "initialised": not uninitialized_taints(node),
            "machine": _vm_document(self.view.match),
            "vmExistence": self.existence,
            "skipReason": self.plan.skip_reason or None,
            "addresses": list(self._addresses()),
            "steps": list(self.steps),
            "waitsFor": event(waiting) if waiting else None,
            "addressProblem": event(problem) if (problem := self.plan.addresses.problem) else None,
            "assumptions": list(self.assumptions),
        }

    def _addresses(self) -> Iterator[dict[str, str | None]]:
        """Yield the published addresses in their order, then the others."""
        plan = self.plan.addresses
        published = {one.address: one.type for one in plan.addresses}
        for address in dict.fromkeys((*published, *plan.reasons)):
            yield {"type": published.get(address), "address": address, "reason": plan.reasons.get(address)}

    def text(self) -> Document:
        """Return the explanation for people: what the objects say, and each write in one line."""
        node, confirmations = self.view.node, self.view.settings.deletion_confirmations
        state = "waits for its initialisation" if uninitialized_taints(node) else "initialised"
        steps = [step_text(step) for step in self.steps if not is_warning(step)]
        waiting = self.plan.waiting.message if self.plan.waiting else ""
        problems = warnings_of(self.steps)
        address_problem = self.plan.addresses.problem.message if self.plan.addresses.problem else ""
        if _deletes(self.lifecycle):
            times = f"once its VM has been certainly gone {confirmations} times with some seconds in between"
            steps = [f"{text}, {times}" if text.startswith("delete ") else text for text in steps]
        return {
            "node": node.metadata.name,
            "state": f"{state}, Ready {node.ready}, provider ID {node.spec.provider_id or 'none'}",
            "Virtual machine": list(_vm_sentences(self)),
            "Left as it is": self.plan.skip_reason,
            "addresses": [{**one, "type": one["type"] or "dropped"} for one in self._addresses()],
            "Problem": problems if len(problems) > 1 else "".join(problems),
            "What would be done now": steps or "nothing",
            "It waits": "" if any(waiting in problem for problem in problems) else waiting,
            "Addresses stay": address_problem if not waiting and address_problem not in problems else "",
            "Assumed": list(self.assumptions),
        }


def report_node(node: Node, store: ListedNodes, settings: Settings, *, absent: bool) -> NodeReport:
    """Return the explanation: the plans are those of the controller. ``absent``: a live GET did not find the VM."""
    inventory, nodes = store.inventory, settings.nodes
    view = observe(store, node, virtual_ips=store.virtual_ips, settings=nodes)
    plan = plan_node(view) if NODE_CONTROLLER in settings.controllers else NodePlan(skip_reason=_SWITCHED_OFF)
    # As if all confirmations had been made.
    life = observe_lifecycle(store, node, nodes, absences=max(nodes.deletion_confirmations, 2) if absent else 0)
    lifecycle = plan_lifecycle(life) if LIFECYCLE_CONTROLLER in settings.controllers else LifecyclePlan()
    writes = [_write(one) for one in (plan.request, lifecycle.request) if one is not None]
    events = (*plan.emitted, *plan.events, lifecycle.event)
    told: list[Document] = [{"event": event(one)} for one in events if one is not None]
    return NodeReport(
        view=view,
        plan=plan,
        lifecycle=lifecycle,
        existence="present" if view.match.vm is not None else "absent" if absent else "unknown",
        steps=(*writes, *told),
        assumptions=(*inventory.assumptions, *([_NOT_REMEMBERED] if life.has_lost_vm and not life.vm_name else [])),
        blind=VIRTUAL_MACHINES.plural in inventory.problems,
    )


def _deletes(plan: LifecyclePlan) -> bool:
    return plan.request is not None and plan.request.method == "DELETE"


def _write(request: NodeRequest) -> Document:
    body = request.body if request.method == "PATCH" else {}
    return write(request.method.lower(), "Node", request.name, body)


def _vm_document(match: Match) -> Document | None:
    vm = match.vm
    if vm is None:
        return None
    return {
        "name": vm.name,
        "namespace": vm.object.metadata.namespace,
        "uid": vm.uid,
        "foundBy": str(match.by) if match.by else None,
        "phase": (vm.vmi.phase if vm.vmi else "") or None,
        "power": power(vm).value,
    }


def _vm_sentences(report: NodeReport) -> Iterator[str]:
    match, vm = report.view.match, report.view.match.vm
    if vm is None:
        said = [*warnings_of(report.steps), report.plan.waiting.message if report.plan.waiting else ""]
        why = match.problem.message if match.problem else ""
        found = "not known, because Harvester's VMs could not be read" if report.blind else "none found"
        yield f"{found}: {why}" if why and not any(why in one for one in said) else found
        yield f"the VM is {report.existence}"
        return
    yield f"{vm.object.metadata.key}, found by {match.by}, UID {vm.uid}"
    status = vm.object.status.printable_status if vm.object.status else ""
    host = vm.vmi.status.node_name if vm.vmi and vm.vmi.status else ""
    agent = "answers" if vm.vmi and vm.vmi.has_agent else "does not answer"
    where = f" on host {host}" if host else ""
    yield f"status {status or 'unknown'}{where}, switched {power(vm).value}, guest agent {agent}"
