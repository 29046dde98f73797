"""The plan for one Node: initialize it, or keep it like its VM.

A new Node has the uninitialized taint. First its addresses are written, then provider ID, labels and annotation
together with the removal of the taint, which the Go framework removes first: a Node without the taint is complete.
Before everything is known, nothing is written, and the plan says what the Node waits for.

Namespace and name of the VM are recorded on the Node with another change, so that Harvester can be queried for the VM
after a restart (``lifecycle``). The provider ID is written only at the initialization, as in the Go framework.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from harvester_ccm.config import NodeSettings
from harvester_ccm.model.core import PROVIDER_SCHEME, Node
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import UNINITIALIZED_TAINT, VM_ANNOTATION, NodeReason
from harvester_ccm.netip import IPAddress
from harvester_ccm.plan.node.addresses import AddressPlan, NodeConflict, plan_addresses
from harvester_ccm.plan.node.facts import Holder, VirtualIPs, addresses_of, read_facts
from harvester_ccm.plan.node.match import Match, find_vm, unreadable
from harvester_ccm.plan.node.messages import listed
from harvester_ccm.plan.node.patch import (
    NodePatch,
    addresses_patch,
    metadata_patch,
    topology_labels,
    uninitialized_taints,
    was_initialized,
)
from harvester_ccm.plan.node.power import not_running
from harvester_ccm.plan.node.vms import INTERNAL_IP, VM, NodeStore

_TRANSIENT: Final = frozenset(
    {
        NodeReason.VM_NOT_FOUND,
        NodeReason.VM_NOT_RUNNING,
        NodeReason.NO_ADDRESS,
        NodeReason.PROVIDER_MISMATCH,
        NodeReason.HARVESTER_UNAVAILABLE,
    }
)
"""Reasons that also concern Nodes that work, and Nodes that are no VMs. They are emitted for Nodes without an
InternalIP."""


class NodeSnapshot(Struct, frozen=True):
    """Everything that the decision depends on."""

    node: Node
    match: Match
    settings: NodeSettings
    virtual_ips: VirtualIPs
    unreadable: EventMessage | None = None
    """Why VMs or VMIs cannot be read now; the caches can contain older ones."""
    missing_for: Mapping[IPAddress, float] = field(default_factory=dict)
    """Seconds for which each address has been missing (``AddressPlan``)."""
    holders: Mapping[str, Holder] = field(default_factory=dict)
    """Other Nodes that have addresses of this one, by address."""


class NodePlan(Struct, frozen=True):
    """At most one write, with its reasons."""

    write: NodePatch | None = None
    events_after_write: tuple[EventMessage, ...] = ()
    """Events for after the write."""
    waiting: EventMessage | None = None
    """Why the Node cannot be initialized yet; also one of the events."""
    events: tuple[EventMessage, ...] = ()
    """Events for what holds now."""
    conflicts: tuple[NodeConflict, ...] = ()
    """Other Nodes with the VM or an address of this one; their Events are also for the other Node."""
    addresses: AddressPlan = AddressPlan()
    skip_reason: str = ""
    """Why nothing is decided; empty if something is."""
    requeue_after: float | None = None
    """Seconds after which a missing address is replaced."""


def observe(
    store: NodeStore,
    node: Node,
    *,
    virtual_ips: VirtualIPs,
    settings: NodeSettings,
    missing_for: Mapping[IPAddress, float] | None = None,
) -> NodeSnapshot:
    """Return the snapshot of a Node."""
    match = find_vm(store, node)
    holders: dict[str, Holder] = {}
    if match.vm is not None and match.vm.vmi is not None:
        holders = _holders_of(store, node, addresses_of(node, match.vm.vmi))
    return NodeSnapshot(node, match, settings, virtual_ips, unreadable(store), missing_for or {}, holders)


def _holders_of(store: NodeStore, node: Node, addresses: Iterable[str]) -> dict[str, Holder]:
    """Return the other Nodes that have one of the addresses as their InternalIP, and whose VMs run."""
    holders: dict[str, Holder] = {}
    for address in dict.fromkeys(addresses):
        for other in sorted(store.nodes.by_index(INTERNAL_IP, address), key=lambda other: other.metadata.name):
            vm = find_vm(store, other).vm
            if other.metadata.name != node.metadata.name and vm is not None and vm.is_running:
                holders.setdefault(address, Holder(other.metadata.name, vm.object.metadata.key))
    return holders


def plan_node(snapshot: NodeSnapshot) -> NodePlan:
    """Return the plan for a Node. A new plan after its write has the next write, or none."""
    if snapshot.node.metadata.deleting:
        return NodePlan(skip_reason="the Node is being deleted")
    if not snapshot.virtual_ips.listed:
        return NodePlan(skip_reason="the addresses of load balancers have not been listed yet")
    vm = snapshot.match.vm
    if vm is None:
        return _waiting(snapshot, AddressPlan(problem=snapshot.match.problem), ())
    if vm.vmi is None:
        return _plan_without_instance(snapshot, vm)
    if snapshot.match.runs_other_machine:
        return _plan_with_vm(snapshot, vm, AddressPlan(problem=snapshot.match.event))
    facts = read_facts(
        snapshot.node,
        vm.vmi,
        settings=snapshot.settings,
        virtual_ips=snapshot.virtual_ips,
        missing_for=snapshot.missing_for,
        holders=snapshot.holders,
    )
    return _plan_with_vm(snapshot, vm, plan_addresses(facts))


def _plan_without_instance(snapshot: NodeSnapshot, vm: VM) -> NodePlan:
    """Return the plan for a Node whose VM has no VMI in the cache: it does not run, or VMIs cannot be read."""
    if snapshot.unreadable is not None:
        _, invalid = _topology(snapshot, vm)
        return _waiting(snapshot, AddressPlan(problem=snapshot.unreadable), invalid)
    return _plan_with_vm(snapshot, vm, AddressPlan(problem=not_running(vm, "it has no address yet")))


def _plan_with_vm(snapshot: NodeSnapshot, vm: VM, addresses: AddressPlan) -> NodePlan:
    """Return the plan for a Node with a VM: first its addresses are written, then everything else."""
    node = snapshot.node
    labels, invalid = _topology(snapshot, vm)
    plan = _waiting(snapshot, addresses, invalid)
    if addresses.addresses:
        patch = addresses_patch(node, addresses.addresses)
        if patch is not None:
            return replace(plan, write=patch, events_after_write=_internal_ip_change(node, addresses), waiting=None)
    elif not was_initialized(node):
        return plan
    if uninitialized_taints(node):
        patch = _initialization(node, vm, labels)
        return replace(plan, write=patch, events_after_write=_initialized(addresses), waiting=None)
    annotations: Mapping[str, str] = {}
    if labels:
        # The record alone is no reason for a write.
        annotations = _record(node, vm)
    return replace(plan, write=metadata_patch(node, labels=labels, annotations=annotations), waiting=None)


def _initialization(node: Node, vm: VM, labels: Mapping[str, str]) -> NodePatch | None:
    """Return the patch that completes the initialization: provider ID, labels, record, and no taint."""
    provider_id = f"{PROVIDER_SCHEME}{vm.uid}"
    if node.spec.provider_id:
        # It cannot be changed.
        provider_id = ""
    return metadata_patch(node, labels=labels, annotations=_record(node, vm), provider_id=provider_id)


def _topology(snapshot: NodeSnapshot, vm: VM) -> tuple[dict[str, str], tuple[EventMessage, ...]]:
    labels, invalid = topology_labels(snapshot.node, vm.vmi, follow=snapshot.settings.vmi_controller)
    if uninitialized_taints(snapshot.node) or snapshot.node.spec.provider_id:
        return labels, invalid
    return labels, (_no_provider_id(vm), *invalid)


def _no_provider_id(vm: VM) -> EventMessage:
    cause = (
        f"This Node is VM {vm.object.metadata.key} and has no provider ID, because it joined without the taint "
        f"{UNINITIALIZED_TAINT}. Its addresses and labels follow the VM, but it is not deleted with it"
    )
    remedy = "Run its kubelet with --cloud-provider=external, delete the Node and restart the kubelet"
    return EventMessage("Warning", NodeReason.NO_PROVIDER_ID, cause, remedy)


def _initialized(addresses: AddressPlan) -> tuple[EventMessage, ...]:
    """Return the Events for the end of the initialization; a guess is emitted only once for each Node."""
    guesses = [event for event in addresses.events if event.reason is NodeReason.NETWORK_DEFAULTED]
    return (*guesses, EventMessage("Normal", NodeReason.SYNCED, "Node synced successfully"))


def _waiting(snapshot: NodeSnapshot, addresses: AddressPlan, more: Iterable[EventMessage]) -> NodePlan:
    events = dict.fromkeys([addresses.problem, snapshot.match.event, *addresses.events, *more])
    hidden = _hidden_reasons(snapshot)
    waiting = None
    if uninitialized_taints(snapshot.node):
        waiting = addresses.problem
    conflicts = list(addresses.conflicts)
    about_vm = snapshot.match.problem or snapshot.match.event
    if snapshot.match.rival and about_vm is not None:
        conflicts.append(NodeConflict(snapshot.match.rival, about_vm))
    return NodePlan(
        conflicts=tuple(conflicts),
        waiting=waiting,
        events=tuple(event for event in events if event is not None and event.reason not in hidden),
        addresses=addresses,
        requeue_after=_next_deadline(snapshot, addresses),
    )


def _hidden_reasons(snapshot: NodeSnapshot) -> frozenset[NodeReason]:
    hidden = frozenset({NodeReason.NETWORK_DEFAULTED})
    if uninitialized_taints(snapshot.node):
        return hidden
    if snapshot.match.unmanaged or snapshot.node.internal_ips:
        return hidden | _TRANSIENT
    return hidden


def _next_deadline(snapshot: NodeSnapshot, addresses: AddressPlan) -> float | None:
    """Return the seconds until a missing address is replaced or used; None if none is missing."""
    grace = snapshot.settings.address_grace_seconds
    left = [grace - snapshot.missing_for.get(address, 0.0) for address in addresses.missing]
    return min((seconds for seconds in left if seconds > 0), default=None)


def _internal_ip_change(node: Node, plan: AddressPlan) -> tuple[EventMessage, ...]:
    """Return the Event for a change of the InternalIP, which interrupts connections to an initialized Node."""
    before = node.internal_ips
    after = [entry.address for entry in plan.addresses if entry.type == "InternalIP"]
    if not was_initialized(node) or set(before) == set(after):
        return ()
    changed = sorted(set(before) ^ set(after))
    reasons = [f"{address}: {plan.reasons.get(address, 'not reported by the VM')}" for address in changed]
    cause = f"InternalIP changes from {listed(before)} to {listed(after)} ({listed(reasons)})"
    return (EventMessage("Warning", NodeReason.INTERNAL_IP_CHANGED, cause, subject=",".join(after)),)


def _record(node: Node, vm: VM) -> dict[str, str]:
    """Return the annotation with the name of the VM if the Node lacks it."""
    record = vm.object.metadata.key
    if node.metadata.annotation(VM_ANNOTATION) == record:
        return {}
    return {VM_ANNOTATION: record}
