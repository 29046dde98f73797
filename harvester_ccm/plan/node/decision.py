"""What to do for one Node: initialise it, or keep it as its VM is.

A Node with the uninitialized taint is written in two steps: its addresses, then provider ID and labels together with
the removal of the taint. So whoever sees the Node without the taint sees all of it, at the price of two requests.
Nothing is written before everything is known, so a Node is never left half done by a missing answer; until then the
plan says what it waits for. Differences from the Go framework, which removes the taint before it writes addresses:

* A Node whose VM has no usable address, or does not run, stays tainted. Go lets workloads on it.
* Addresses, zone and region of an initialised Node follow the VM at every look; Go puts the taint back to that end.
* Namespace and name of the VM are recorded on the Node, so that after a restart the very VM can be asked for
  (``existence``). It comes with what is written anyway, and only while the provider ID shows that it is this VM.
* The network of the addresses is recorded on the Node, so that it is not guessed again (``interfaces``).
* The provider ID is written once, and only together with the initialisation, as in Go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from harvester_ccm.config import NodeSettings
from harvester_ccm.errors import CCMError, Forbidden, NotServed
from harvester_ccm.model.core import Node, NodeAddress, format_provider_id, parse_provider_id
from harvester_ccm.model.lister import Lister
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import MACHINE_RECORD, NODE_NETWORK_RECORD, NodeReason
from harvester_ccm.netip import IPAddress
from harvester_ccm.plan.node import messages as events
from harvester_ccm.plan.node.addresses import AddressPlan, plan_addresses
from harvester_ccm.plan.node.interfaces import DroppedAddress
from harvester_ccm.plan.node.match import Match, find_vm, unreadable
from harvester_ccm.plan.node.patch import (
    MetadataChange,
    NodePatch,
    addresses_patch,
    identity_patch,
    uninitialized_taints,
    was_initialised,
)
from harvester_ccm.plan.node.topology import topology_labels
from harvester_ccm.plan.node.vms import VM, NodeStore

_EMITTED_AFTER_INIT: Final = frozenset(
    {
        NodeReason.VM_AMBIGUOUS,
        NodeReason.VM_OF_OTHER_CLUSTER,
        NodeReason.VM_OF_OTHER_MACHINE,
        NodeReason.VM_OF_OTHER_NODE,
        NodeReason.VM_IN_OTHER_NAMESPACE,
        NodeReason.VM_REPLACED,
        NodeReason.NO_PROVIDER_ID,
        NodeReason.NO_MANAGEMENT_NETWORK,
        NodeReason.NO_INTERNAL_IP,
        NodeReason.EXCLUDED_ADDRESS_USED,
        NodeReason.PROVIDED_IP_INVALID,
        NodeReason.PROVIDED_IP_NOT_FOUND,
        NodeReason.ADDITIONAL_IPS_INVALID,
        NodeReason.TOPOLOGY_INVALID,
    }
)
"""What somebody has to correct. The rest (no VM, no address for a moment, Harvester away) happens to Nodes that are
well, and to Nodes that are no VMs at all; it is told only of Nodes without an InternalIP."""

_TOLD_WHEN_WRITTEN: Final = frozenset({NodeReason.NETWORK_GUESSED, NodeReason.PROVIDED_IP_TRUSTED})
"""Emitted once for each Node: when the network is recorded, and when the Node is initialised."""


class VirtualIPs(Struct, frozen=True):
    """The addresses of load balancers: they appear on the VMs' interfaces and are no node addresses."""

    addresses: Mapping[IPAddress, str] = field(default_factory=dict)
    """Each with what has it."""
    complete: bool = True
    """Whether all that can be read was read; load balancers that may not be read do not count."""
    source: str = ""
    """What has not been read; empty when all was."""
    problem: CCMError | None = None
    """Why it cannot be read at the moment."""


class NodeView(Struct, frozen=True):
    """All that the decision depends on."""

    node: Node
    match: Match
    settings: NodeSettings
    virtual_ips: VirtualIPs = VirtualIPs()
    unreadable: EventMessage | None = None
    """Why VMs or VMIs cannot be read at the moment; what was read before may be known nevertheless."""
    waited: Mapping[IPAddress, float] = field(default_factory=dict)
    """Seconds for which the plans before this one awaited each address."""


class NodePlan(Struct, frozen=True):
    """What to write, in this order, and what to say."""

    patches: tuple[NodePatch, ...] = ()
    """Make the request of each with ``patch_request``, of the Node that the one before returned; stop at the first
    that fails."""
    done: EventMessage | None = None
    """Event for when everything was applied: the Node is initialised."""
    waiting: EventMessage | None = None
    """Why the initialisation cannot be done yet; also among the notes. A VM or VMI event is the wake-up."""
    notes: tuple[EventMessage, ...] = ()
    """Emitted as Events."""
    remarks: tuple[EventMessage, ...] = ()
    """For the log only."""
    dropped: tuple[DroppedAddress, ...] = ()
    """Addresses that are not published and why, for the log at ``--v=4``."""
    left_alone: str = ""
    """Why nothing at all is decided; empty when it is."""
    awaited: Mapping[IPAddress, float] = field(default_factory=dict)
    """Addresses that are awaited, with the seconds so far: their counting goes on until the next plan."""
    recheck_after: float | None = None
    """Seconds after which one of them was awaited for long enough."""


def virtual_ips_of(
    addresses: Mapping[IPAddress, str], services: Lister[object], load_balancers: Lister[object]
) -> VirtualIPs:
    """Return the addresses together with how far they can be relied on."""
    unread = {
        name: one.problem
        for name, one in (("Load balancers in Harvester", load_balancers), ("Services", services))
        if not one.synced and not isinstance(one.problem, NotServed)
    }
    source = next((name for name, problem in unread.items() if problem is not None), next(iter(unread), ""))
    complete = all(isinstance(problem, Forbidden) for problem in unread.values())
    return VirtualIPs(addresses, complete, source, unread.get(source))


def observe(
    store: NodeStore,
    node: Node,
    *,
    virtual_ips: VirtualIPs,
    settings: NodeSettings,
    waited: Mapping[IPAddress, float] = MappingProxyType({}),
) -> NodeView:
    """Return what is known about a Node."""
    return NodeView(node, find_vm(store, node), settings, virtual_ips, unreadable(store), waited)


def plan_node(view: NodeView) -> NodePlan:
    """Return the plan for the Node. Applying it and planning again gives a plan without patches."""
    left_alone = _left_alone(view)
    if left_alone:
        note = view.match.problem or events.virtual_ips_unread(view.virtual_ips.source, None)
        return NodePlan(left_alone=left_alone, notes=(note,) if _waits_to_join(view.node) else ())
    vm = view.match.vm
    if vm is None:
        return _waiting(view, AddressPlan(problem=view.match.problem))
    if vm.vmi is None and view.unreadable is not None:
        # That the VM does not run would be a guess while its VMI cannot be read.
        return _waiting(view, AddressPlan(problem=view.unreadable))
    addresses = (
        AddressPlan(problem=events.not_running(vm))
        if vm.vmi is None
        else plan_addresses(
            view.node, vm.vmi, settings=view.settings, virtual_ips=view.virtual_ips.addresses, waited=view.waited
        )
    )
    if not addresses.addresses and not was_initialised(view.node):
        return _waiting(view, addresses)
    return _writing(view, vm, addresses)


def _waits_to_join(node: Node) -> bool:
    return bool(uninitialized_taints(node)) and not node.metadata.deleting


def _left_alone(view: NodeView) -> str:
    known = view.virtual_ips
    if view.node.metadata.deleting:
        return "the Node is being deleted"
    # A new Node must not wait for ever for load balancers that cannot be read.
    if known.complete or (known.problem is not None and uninitialized_taints(view.node)):
        return ""
    why = f"cannot be read: {known.problem}" if known.problem is not None else "have not been read yet"
    return f"nothing is decided while the addresses of load balancers {why}"


def _waiting(view: NodeView, addresses: AddressPlan) -> NodePlan:
    problem = addresses.problem if uninitialized_taints(view.node) else None
    return replace(_telling(view, _notes(view, addresses), addresses), waiting=problem)


def _writing(view: NodeView, vm: VM, addresses: AddressPlan) -> NodePlan:
    node = view.node
    tainted = bool(uninitialized_taints(node))
    labels, invalid = topology_labels(node, vm.vmi, follow=view.settings.vmi_controller)
    unidentified = () if tainted or node.spec.provider_id else (events.no_provider_id(vm),)
    notes = (*_notes(view, addresses), *unidentified, *invalid)
    provider_id = format_provider_id(vm.uid) if tainted and not node.spec.provider_id else None
    change = _with_records(view, vm, addresses, MetadataChange(labels, {}))
    told = tuple(
        note
        for note in notes
        if (note.reason is NodeReason.NETWORK_GUESSED and NODE_NETWORK_RECORD in change.annotations)
        or (note.reason is NodeReason.PROVIDED_IP_TRUSTED and tainted)
    )
    known = view.virtual_ips
    if tainted and known.problem is not None:
        told = (*told, events.virtual_ips_unread(known.source, known.problem))
    patches = (
        addresses_patch(node, addresses.addresses, told=_internal_ip_change(node, addresses))
        if addresses.addresses
        else None,
        identity_patch(node, provider_id, change, told=told, initialised=tainted),
    )
    return replace(
        _telling(view, notes, addresses),
        patches=tuple(patch for patch in patches if patch is not None),
        done=EventMessage("Normal", NodeReason.SYNCED, "Node synced successfully") if tainted else None,
    )


def _notes(view: NodeView, addresses: AddressPlan) -> tuple[EventMessage, ...]:
    return tuple(note for note in (addresses.problem, view.match.event, *addresses.notes) if note is not None)


def _internal_ips(addresses: Iterable[NodeAddress]) -> tuple[str, ...]:
    return tuple(one.address for one in addresses if one.type == "InternalIP")


def _internal_ip_change(node: Node, plan: AddressPlan) -> tuple[EventMessage, ...]:
    """Return what to tell of the InternalIPs, whose change cuts whatever talks to an initialised Node."""
    before, after = _internal_ips(node.status.addresses), _internal_ips(plan.addresses)
    if not was_initialised(node) or set(before) == set(after):
        return ()
    why = {address: plan.reasons[address] for address in after if address not in before}
    verdicts = {one.address: one.because for one in plan.verdicts}
    lost = {one: verdicts.get(one, "the VM does not report it") for one in before if one not in after}
    return (events.internal_ip_changed(before, after, {**why, **lost}),)


def _telling(view: NodeView, notes: Sequence[EventMessage], addresses: AddressPlan) -> NodePlan:
    """Return a plan that writes nothing, with what is emitted and what is only logged."""
    node = view.node
    reachable = view.match.unmanaged or _internal_ips(node.status.addresses)
    held = [note for note in notes if note.reason not in _TOLD_WHEN_WRITTEN]
    everything = uninitialized_taints(node) or not reachable
    emitted = tuple(note for note in held if everything or note.reason in _EMITTED_AFTER_INIT)
    remarks = tuple(note for note in notes if note not in emitted)
    patience = view.settings.address_patience
    left = [patience - seconds for seconds in addresses.awaited.values() if seconds < patience]
    return NodePlan(
        notes=emitted,
        remarks=remarks,
        dropped=addresses.dropped,
        awaited=addresses.awaited,
        recheck_after=min(left, default=None),
    )


def _with_records(view: NodeView, vm: VM, addresses: AddressPlan, change: MetadataChange) -> MetadataChange:
    """Return the change together with the records of the VM and of the network, where they are due.

    They come with what is written anyway. A network that was guessed among several is worth a write of its own: while
    the guest agent does not report it, nothing else shows that the addresses of another network are not the Node's.
    """
    node, nic = view.node, addresses.nic
    written = uninitialized_taints(node) or change.labels or change.annotations
    records = {}
    if written and (not node.spec.provider_id or parse_provider_id(node.spec.provider_id) == vm.uid):
        records[MACHINE_RECORD] = vm.object.metadata.key
    if addresses.addresses and nic and (written or nic.guessed_among):
        records[NODE_NETWORK_RECORD] = nic.network
    due = {key: value for key, value in records.items() if node.metadata.annotation(key) != value}
    return replace(change, annotations={**change.annotations, **due})
