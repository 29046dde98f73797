"""One Node explained: which VM it is and why, its addresses, what would be written now, what it waits for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.address_report import AddressVerdict, report_addresses
from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.commands.rehearsal import AFTER_WRITE, merge
from harvester_ccm.commands.render import Output
from harvester_ccm.config import LIFECYCLE_CONTROLLER, NODE_CONTROLLER, Settings
from harvester_ccm.errors import Forbidden, NotFound
from harvester_ccm.model.core import NODES, Node
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.plan.node.decision import NodePlan, NodeView, plan_node
from harvester_ccm.plan.node.existence import (
    ClusterCheck,
    LiveGet,
    VMExistence,
    absence_doubt,
    check_cluster,
    judge_existence,
    power,
    proven_name,
)
from harvester_ccm.plan.node.lifecycle import (
    AbsenceCount,
    LifecyclePlan,
    LifecycleView,
    plan_lifecycle,
)
from harvester_ccm.plan.node.match import Match, find_vm
from harvester_ccm.plan.node.node_note import NodeNote, harvester_note
from harvester_ccm.plan.node.patch import taint_removal, uninitialized_taints
from harvester_ccm.plan.node.vms import (
    VM,
    GuestCluster,
    VMIndex,
    agent_connected,
    claims_of,
    index_vms,
    phase,
)
from harvester_ccm.plan.service.kube_vip import virtual_ips

Document = dict[str, object]
_NOT_REMEMBERED: Final = "what the running program remembers of the Node's VM is not known here"


@dataclass(frozen=True)
class NodeReport:
    """The explanation of one Node."""

    node: Node
    match: Match
    not_kept: str
    """Why addresses and labels are left as they are; empty when they are not."""
    addresses: tuple[AddressVerdict, ...]
    plan: NodePlan
    lifecycle: LifecyclePlan
    sighting: str
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
        machine, waiting = self.match.vm, self.plan.waiting
        return {
            "node": self.node.metadata.name,
            "initialised": not uninitialized_taints(self.node),
            "machine": _machine_document(self.match, machine) if machine else None,
            "sighting": self.sighting,
            "notKept": self.not_kept or None,
            "addresses": [one.document() for one in self.addresses],
            "steps": list(self.steps),
            "waitsFor": _note_document(waiting) if waiting else None,
            "remarks": [_note_document(note) for note in self.plan.remarks],
            "assumptions": list(self.assumptions),
        }


def report_node(
    node: Node,
    inventory: Inventory,
    *,
    cluster: GuestCluster,
    settings: Settings,
    probe: LiveGet | None,
) -> NodeReport:
    """Return the explanation: the plans are those that the running program would make."""
    index = vm_index(inventory, cluster)
    match = match_of(node, index, inventory)
    taken = virtual_ips(inventory.services, inventory.load_balancers)
    not_kept = _why_not_kept(node, inventory, settings)
    view = NodeView(node, match, settings.nodes, virtual_ips=taken)
    plan = NodePlan() if not_kept else plan_node(view)
    instance = match.vm.vmi if match.vm else None
    verdicts = report_addresses(node, instance, settings=settings.nodes, virtual_ips=taken).verdicts if instance else ()
    sighting = judge_existence(node, match, probe, absence_doubt(node, proven_name(node, None), inventory.unread))
    lifecycle = _lifecycle(node, sighting, check_cluster(inventory.nodes, index), settings)
    return NodeReport(
        node=node,
        match=match,
        not_kept=not_kept,
        addresses=verdicts,
        plan=plan,
        lifecycle=lifecycle,
        sighting=f"{sighting.existence.value}: {sighting.detail}",
        steps=tuple(_steps(node, plan, lifecycle)),
        confirmations=max(settings.nodes.deletion_confirmations, 2),
        assumptions=(*inventory.assumptions, *([_NOT_REMEMBERED] if sighting.doubtful else [])),
    )


def _why_not_kept(node: Node, inventory: Inventory, settings: Settings) -> str:
    """Return why addresses and labels of the Node are left as they are; empty when they are not."""
    if node.metadata.deleting:
        return "the Node is being deleted"
    if NODE_CONTROLLER not in settings.controllers:
        return f"{NODE_CONTROLLER} is switched off by --controllers"
    problem = inventory.problems.get(LOAD_BALANCERS.plural)
    if problem is None or isinstance(problem, Forbidden | NotFound) or uninitialized_taints(node):
        return ""
    return f"nothing is decided while the addresses of load balancers cannot be read: {problem}"


def _lifecycle(node: Node, sighting: VMExistence, survey: ClusterCheck, settings: Settings) -> LifecyclePlan:
    """Return what becomes of the Node, as if its VM had been missing often enough already."""
    if LIFECYCLE_CONTROLLER not in settings.controllers:
        return LifecyclePlan()
    nodes = settings.nodes
    confirmed = AbsenceCount(
        node.metadata.uid, node.spec.provider_id, max(nodes.deletion_confirmations, 2), float("-inf")
    )
    return plan_lifecycle(LifecycleView(node, sighting, survey, nodes, 0.0, confirmed))


def vm_index(inventory: Inventory, cluster: GuestCluster) -> VMIndex:
    """Return the VMs as the running program joins them."""
    return index_vms(
        inventory.machines,
        inventory.instances,
        cluster=cluster,
        hostnames=inventory.hostnames,
        claims=claims_of(inventory.nodes),
        synced=not (inventory.problems.keys() & {VIRTUAL_MACHINES.plural, INSTANCES.plural}),
    )


def match_of(node: Node, index: VMIndex, inventory: Inventory) -> Match:
    """Return the Node's VM; while Harvester cannot be read, that is the reason why there is none."""
    match = find_vm(node, index)
    if match.vm is not None and match.vm.vmi is not None:
        return match
    for resource in (VIRTUAL_MACHINES, INSTANCES):
        error = inventory.problems.get(resource.plural)
        if error is not None:
            action = f"list {resource.kind}s"
            return Match(problem=harvester_note(error, action=action, namespace=index.cluster.namespace))
    return match


def _steps(node: Node, plan: NodePlan, lifecycle: LifecyclePlan) -> Iterator[Document]:
    """Yield the requests and Events in their order; each write is made on what the one before it leaves."""
    name = node.metadata.name
    for write in plan.writes:
        yield _patch(name, write.body, write.subresource)
        node = _patched(node, write.body)
    removal = taint_removal(node) if plan.remove_taint else None
    if removal is not None:
        yield _patch(name, removal.body, None)
    if lifecycle.taints is not None:
        yield _patch(name, lifecycle.taints.body, None)
    if lifecycle.deletion is not None:
        yield {"node": {"name": name, "delete": dict(lifecycle.deletion.options())}}
    told = (plan.done, *plan.notes, lifecycle.note)
    for note in told:
        if note is not None:
            yield {"event": _note_document(note)}


def _patch(name: str, body: Mapping[str, object], subresource: str | None) -> Document:
    return {"node": {"name": name, "subresource": subresource, "patch": dict(body)}}


def _patched(node: Node, body: Mapping[str, object]) -> Node:
    merged = merge(cast("Document", msgspec.to_builtins(node)), body)
    merged = merge(merged, {"metadata": {"resourceVersion": AFTER_WRITE}})
    return NODES.decode(msgspec.json.encode(merged))


def _note_document(note: NodeNote) -> Document:
    return {"type": note.type, "reason": str(note.reason), "message": note.message}


def _machine_document(match: Match, machine: VM) -> Document:
    return {
        "name": machine.name,
        "namespace": machine.object.metadata.namespace,
        "uid": machine.uid,
        "foundBy": str(match.by) if match.by else None,
        "phase": phase(machine.vmi) or None,
        "power": power(machine).value,
    }


def print_report(report: NodeReport, output: Output) -> None:
    """Print the explanation for people."""
    node = report.node
    output.line(f"Node {node.metadata.name}")
    state = "waits for its initialisation" if uninitialized_taints(node) else "initialised"
    output.entry(f"{state}, Ready {node.ready}, provider ID {node.spec.provider_id or 'none'}")
    output.section("Virtual machine", list(_machine_sentences(report)))
    if report.not_kept:
        output.section("Left as it is", [report.not_kept])
    shown = report.addresses
    if shown:
        output.line("\nAddresses")
        rows = [["TYPE", "ADDRESS", "INTERFACE", "NETWORK", "REASON"]]
        rows += [
            [one.kind or "dropped", one.address, one.interface, one.network, one.because] for one in report.addresses
        ]
        output.table(rows)
    steps = [_step_text(step, report) for step in report.steps]
    output.section("What would be done now", steps or ["nothing"], numbered=bool(steps))
    if report.plan.waiting is not None:
        output.section("It waits", [report.plan.waiting.message])
    output.section("Seen, and not told to anybody", [note.message for note in report.plan.remarks])
    output.section("Supposed, because nothing says otherwise", report.assumptions, mark="- ")


def _machine_sentences(report: NodeReport) -> Iterator[str]:
    machine, match = report.match.vm, report.match
    if machine is None:
        yield match.problem.message if match.problem else "none"
        yield f"the VM is {report.sighting}"
        return
    yield f"{machine.object.metadata.key}, found by {match.by}, UID {machine.uid}"
    status = machine.object.status.printable_status if machine.object.status else ""
    host = machine.vmi.status.node_name if machine.vmi and machine.vmi.status else ""
    agent = "answers" if machine.vmi and agent_connected(machine.vmi) else "does not answer"
    where = f" on host {host}" if host else ""
    yield f"status {status or 'unknown'}{where}, switched {power(machine).value}, guest agent {agent}"


def _step_text(step: Mapping[str, object], report: NodeReport) -> str:
    event, write = step.get("event"), step.get("node")
    if isinstance(event, dict):
        return f"tell the user ({event['type']} {event['reason']}): {event['message']}"
    if not isinstance(write, dict):
        return ""
    if "delete" in write:
        times = report.confirmations
        return f"delete the Node, once its VM has been certainly gone {times} times with some seconds in between"
    target = f"the status of Node {write['name']}" if write["subresource"] else f"Node {write['name']}"
    return f"patch {target}: {json.dumps(write['patch'], separators=(',', ':'), ensure_ascii=False)}"
