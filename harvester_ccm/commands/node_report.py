"""One Node explained: which VM it is and why, its addresses, what would be written now, what it waits for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.inventory import ListedNodes
from harvester_ccm.commands.rehearsal import AFTER_WRITE, merge, request_text
from harvester_ccm.config import LIFECYCLE_CONTROLLER, NODE_CONTROLLER, Settings
from harvester_ccm.model.core import NODES, Node
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.plan.node.addresses import AddressVerdict, plan_addresses
from harvester_ccm.plan.node.decision import NodePlan, observe, plan_node
from harvester_ccm.plan.node.existence import LiveGet, power
from harvester_ccm.plan.node.lifecycle import (
    AbsenceCount,
    LifecycleMemory,
    LifecyclePlan,
    observe_lifecycle,
    plan_lifecycle,
)
from harvester_ccm.plan.node.match import Match
from harvester_ccm.plan.node.patch import NodeRequest, patch_request, uninitialized_taints
from harvester_ccm.plan.node.vms import VM, agent_connected, phase

Document = dict[str, object]
_SWITCHED_OFF: Final = f"{NODE_CONTROLLER} is switched off by --controllers"
_NOT_REMEMBERED: Final = "what the running program remembers of the Node's VM is not known here"


@dataclass(frozen=True)
class NodeReport:
    """The explanation of one Node."""

    node: Node
    match: Match
    addresses: tuple[AddressVerdict, ...]
    plan: NodePlan
    lifecycle: LifecyclePlan
    existence: str
    """What is certain about the VM's existence, and by which answer."""
    steps: tuple[Document, ...]
    confirmations: int
    """How many times the VM must be certainly gone before the Node is deleted."""
    assumptions: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """Problems: it waits, something is odd about it, or its VM is gone."""
        notes = (*self.plan.notes, *((self.lifecycle.note,) if self.lifecycle.note else ()))
        warned = any(note.type == "Warning" for note in notes)
        return EXIT_PROBLEMS if warned or self.plan.waiting or self.lifecycle.deletion else EXIT_OK

    def document(self) -> Document:
        """Return the explanation for scripts; docs/reference/commands.md describes it."""
        vm, waiting = self.match.vm, self.plan.waiting
        return {
            "node": self.node.metadata.name,
            "initialised": not uninitialized_taints(self.node),
            "machine": _vm_document(self.match, vm) if vm else None,
            "sighting": self.existence,
            "notKept": self.plan.left_alone or None,
            "addresses": [_address_document(one) for one in self.addresses],
            "steps": list(self.steps),
            "waitsFor": _note_document(waiting) if waiting else None,
            "remarks": [_note_document(note) for note in self.plan.remarks],
            "assumptions": list(self.assumptions),
        }

    def text(self) -> Document:
        """Return the explanation for people: what the objects say, and each request in one line."""
        node = self.node
        state = "waits for its initialisation" if uninitialized_taints(node) else "initialised"
        steps = [request_text(step, {}) for step in self.steps]
        if self.lifecycle.deletion is not None:
            times = f"once its VM has been certainly gone {self.confirmations} times with some seconds in between"
            steps = [f"{text}, {times}" if text.startswith("delete ") else text for text in steps]
        return {
            "node": node.metadata.name,
            "state": f"{state}, Ready {node.ready}, provider ID {node.spec.provider_id or 'none'}",
            "Virtual machine": list(_vm_sentences(self)),
            "Left as it is": self.plan.left_alone,
            "addresses": [
                {
                    "type": one.kind or "dropped",
                    "address": one.address,
                    "interface": one.interface,
                    "network": one.network,
                    "reason": one.because,
                }
                for one in self.addresses
            ],
            "What would be done now": steps or "nothing",
            "It waits": self.plan.waiting.message if self.plan.waiting else "",
            "Seen, and not told to anybody": [event.message for event in self.plan.remarks],
            "Supposed, because nothing says otherwise": list(self.assumptions),
        }


def report_node(node: Node, store: ListedNodes, settings: Settings, *, live_get: LiveGet | None) -> NodeReport:
    """Return the explanation: the plans are those that the running program would make."""
    inventory, nodes = store.inventory, settings.nodes
    view = observe(store, node, virtual_ips=store.virtual_ips, settings=nodes)
    plan = plan_node(view) if NODE_CONTROLLER in settings.controllers else NodePlan(left_alone=_SWITCHED_OFF)
    sent, after = _rehearsed(node, plan)
    # As if the VM of the Node had been missing often enough already.
    confirmed = AbsenceCount(node.metadata.uid, node.spec.provider_id, nodes.deletion_confirmations, -math.inf)
    life = observe_lifecycle(store, after, nodes, LifecycleMemory(absences=confirmed), live_get=live_get, now=0.0)
    lifecycle = plan_lifecycle(life) if LIFECYCLE_CONTROLLER in settings.controllers else LifecyclePlan()
    vmi = view.match.vm.vmi if view.match.vm else None
    taken = view.virtual_ips.addresses
    verdicts = plan_addresses(node, vmi, settings=nodes, virtual_ips=taken).verdicts if vmi else ()
    return NodeReport(
        node=node,
        match=view.match,
        addresses=verdicts,
        plan=plan,
        lifecycle=lifecycle,
        existence=f"{life.existence.existence.value}: {life.existence.detail}",
        steps=(*sent, *_life_requests(after, lifecycle), *_events(plan, lifecycle)),
        confirmations=nodes.deletion_confirmations,
        assumptions=(*inventory.assumptions, *([_NOT_REMEMBERED] if life.existence.unprovable else [])),
    )


def _rehearsed(node: Node, plan: NodePlan) -> tuple[list[Document], Node]:
    """Return the requests of a plan, each made on what the one before it leaves, and the Node that is left."""
    sent = []
    for patch in plan.patches:
        request = patch_request(node, patch)
        if request is not None:
            sent.append(_request_document(request))
            node = _patched(node, request.body)
    return sent, node


def _life_requests(node: Node, plan: LifecyclePlan) -> Iterator[Document]:
    taints = patch_request(node, plan.taints) if plan.taints is not None else None
    if taints is not None:
        yield _request_document(taints)
    if plan.deletion is not None:
        yield _request_document(plan.deletion.request())


def _events(plan: NodePlan, lifecycle: LifecyclePlan) -> Iterator[Document]:
    for note in (plan.done, *plan.notes, lifecycle.note):
        if note is not None:
            yield {"event": _note_document(note)}


def _request_document(request: NodeRequest) -> Document:
    if request.method == "DELETE":
        return {"node": {"name": request.name, "delete": dict(request.body)}}
    return {"node": {"name": request.name, "subresource": request.subresource, "patch": dict(request.body)}}


def _patched(node: Node, body: Mapping[str, object]) -> Node:
    merged = merge(cast("Document", msgspec.to_builtins(node)), body)
    merged = merge(merged, {"metadata": {"resourceVersion": AFTER_WRITE}})
    return NODES.decode(msgspec.json.encode(merged))


def _note_document(note: EventMessage) -> Document:
    return {"type": note.type, "reason": str(note.reason), "message": note.message}


def _address_document(verdict: AddressVerdict) -> Document:
    return {
        "address": verdict.address,
        "interface": verdict.interface or None,
        "network": verdict.network or None,
        "kept": bool(verdict.kind),
        "type": verdict.kind or None,
        "reason": verdict.because,
    }


def _vm_document(match: Match, vm: VM) -> Document:
    return {
        "name": vm.name,
        "namespace": vm.object.metadata.namespace,
        "uid": vm.uid,
        "foundBy": str(match.by) if match.by else None,
        "phase": phase(vm.vmi) or None,
        "power": power(vm).value,
    }


def _vm_sentences(report: NodeReport) -> Iterator[str]:
    vm, match = report.match.vm, report.match
    if vm is None:
        yield match.problem.message if match.problem else "none"
        yield f"the VM is {report.existence}"
        return
    yield f"{vm.object.metadata.key}, found by {match.by}, UID {vm.uid}"
    status = vm.object.status.printable_status if vm.object.status else ""
    host = vm.vmi.status.node_name if vm.vmi and vm.vmi.status else ""
    agent = "answers" if vm.vmi and agent_connected(vm.vmi) else "does not answer"
    where = f" on host {host}" if host else ""
    yield f"status {status or 'unknown'}{where}, switched {power(vm).value}, guest agent {agent}"
