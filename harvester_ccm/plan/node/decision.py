"""What to do for one Node: initialise it, or keep it as its VM is.

A Node with the uninitialized taint is written in two steps: its addresses, then provider ID and labels together with
the removal of the taint. So whoever sees the Node without the taint sees all of it, at the price of two requests.
Nothing is written before everything is known, so a Node is never left half done by a missing answer; until then the
plan says what it waits for. Differences from the Go framework, which removes the taint before it writes addresses:

* A Node whose VM has no usable address, or does not run, stays tainted. Go lets workloads on it.
* Addresses, zone and region of an initialised Node follow the VM at every look; Go puts the taint back to that end.
* The VM's name is recorded on the Node, so that after a restart the very VM can be asked for (``existence``). It
  comes with what is written anyway, and only while the provider ID shows that it is this VM.
* The provider ID is written once, and only together with the initialisation, as in Go.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Final

from harvester_ccm.config import NodeSettings
from harvester_ccm.model.core import Node, format_provider_id, parse_provider_id
from harvester_ccm.names import MACHINE_RECORD, NodeReason
from harvester_ccm.netip import IPAddress
from harvester_ccm.plan.node.addresses import AddressPlan, plan_addresses
from harvester_ccm.plan.node.events import not_running
from harvester_ccm.plan.node.interfaces import DroppedAddress
from harvester_ccm.plan.node.match import Match
from harvester_ccm.plan.node.node_note import NodeNote
from harvester_ccm.plan.node.patch import (
    MetadataChange,
    NodePatch,
    addresses_patch,
    identity_patch,
    taint_removal,
    uninitialized_taints,
    was_initialised,
)
from harvester_ccm.plan.node.topology import plan_topology
from harvester_ccm.plan.node.vms import VM

_TOLD_AFTER_INIT: Final = frozenset(
    {
        NodeReason.VM_REPLACED,
        NodeReason.VM_AMBIGUOUS,
        NodeReason.NO_MANAGEMENT_NETWORK,
        NodeReason.NETWORK_GUESSED,
        NodeReason.NO_INTERNAL_IP,
        NodeReason.EXCLUDED_ADDRESS_USED,
        NodeReason.PROVIDED_IP_INVALID,
        NodeReason.PROVIDED_IP_NOT_FOUND,
        NodeReason.ADDITIONAL_IPS_INVALID,
        NodeReason.TOPOLOGY_INVALID,
    }
)
"""What somebody has to correct. The rest (no VM, no address for a moment, Harvester away) happens to Nodes that are
well, and to Nodes that are no VMs at all."""


@dataclass(frozen=True)
class NodeView:
    """All that the decision depends on."""

    node: Node
    match: Match
    """The Node's VM; or ``Match(problem=harvester_note(...))`` when Harvester could not be asked."""
    settings: NodeSettings
    virtual_ips: Set[IPAddress] = frozenset()
    """Addresses of load balancers; complete, so Services and LBs must be read before."""


@dataclass(frozen=True)
class NodePlan:
    """What to write, in this order, and what to say."""

    writes: tuple[NodePatch, ...] = ()
    """Apply each before the next; stop at the first that fails."""
    remove_taint: bool = False
    """Apply ``first``, then ``last`` of the Node that the last write returned (without writes: of the view's)."""
    done: NodeNote | None = None
    """Event for when everything was applied."""
    waiting: NodeNote | None = None
    """Why the initialisation cannot be done yet; also among the notes. A VM or VMI event is the wake-up."""
    notes: tuple[NodeNote, ...] = ()
    """To be told as Events, through ``node_note.news``."""
    remarks: tuple[NodeNote, ...] = ()
    """For the log only."""
    dropped: tuple[DroppedAddress, ...] = ()
    """Addresses that are not published and why, for the log at ``--v=4``."""

    @property
    def first(self) -> tuple[NodePatch, ...]:
        """The writes that go by themselves."""
        if not self.remove_taint:
            return self.writes
        return tuple(write for write in self.writes if write.subresource is not None)

    def last(self, node: Node) -> NodePatch | None:
        """Return the write that removes the taint and brings all else that the Node itself needs; None for neither."""
        if not self.remove_taint:
            return None
        return taint_removal(node, next((write for write in self.writes if write.subresource is None), None))


def plan_node(view: NodeView) -> NodePlan:
    """Return the plan for the Node. Applying it and planning again gives a plan without writes."""
    vm = view.match.vm
    if vm is None:
        return _waiting(view, AddressPlan(problem=view.match.problem))
    addresses = _addresses(view, vm)
    if uninitialized_taints(view.node) and not addresses.addresses and not was_initialised(view.node):
        return _waiting(view, addresses)
    return _writing(view, vm, addresses)


def _addresses(view: NodeView, vm: VM) -> AddressPlan:
    if vm.vmi is None:
        return AddressPlan(problem=not_running(vm))
    return plan_addresses(view.node, vm.vmi, settings=view.settings, virtual_ips=view.virtual_ips)


def _waiting(view: NodeView, addresses: AddressPlan) -> NodePlan:
    problem = addresses.problem
    notes = (*((problem,) if problem else ()), *_match_notes(view.match), *addresses.notes)
    tainted = bool(uninitialized_taints(view.node))
    told, remarks = _sorted_out(notes, tainted=tainted)
    return NodePlan(waiting=problem if tainted else None, notes=told, remarks=remarks, dropped=addresses.dropped)


def _writing(view: NodeView, vm: VM, addresses: AddressPlan) -> NodePlan:
    node = view.node
    tainted = bool(uninitialized_taints(node))
    topology = plan_topology(node, vm.vmi, follow=view.settings.vmi_controller)
    provider_id = format_provider_id(vm.uid) if tainted and not node.spec.provider_id else None
    writes = (
        addresses_patch(node, addresses.addresses) if addresses.addresses else None,
        identity_patch(node, provider_id, _with_record(node, vm, topology.change)),
    )
    problems = (addresses.problem,) if addresses.problem else ()
    told, remarks = _sorted_out(
        (*problems, *_match_notes(view.match), *addresses.notes, *topology.notes), tainted=tainted
    )
    return NodePlan(
        writes=tuple(write for write in writes if write is not None),
        remove_taint=tainted,
        done=NodeNote(NodeReason.SYNCED, "Node synced successfully", type="Normal") if tainted else None,
        notes=told,
        remarks=remarks,
        dropped=addresses.dropped,
    )


def _with_record(node: Node, vm: VM, change: MetadataChange) -> MetadataChange:
    """Return the change together with the record of the VM's name, where something is written anyway."""
    written = uninitialized_taints(node) or change.labels or change.annotations
    proven = not node.spec.provider_id or parse_provider_id(node.spec.provider_id) == vm.uid
    if not written or not proven or node.metadata.annotation(MACHINE_RECORD) == vm.name:
        return change
    return replace(change, annotations={**change.annotations, MACHINE_RECORD: vm.name})


def _match_notes(match: Match) -> tuple[NodeNote, ...]:
    return (match.note,) if match.note else ()


def _sorted_out(notes: tuple[NodeNote, ...], *, tainted: bool) -> tuple[tuple[NodeNote, ...], tuple[NodeNote, ...]]:
    """Return what is told and what is only logged."""
    told = tuple(note for note in notes if tainted or note.reason in _TOLD_AFTER_INIT)
    return told, tuple(note for note in notes if note not in told)
