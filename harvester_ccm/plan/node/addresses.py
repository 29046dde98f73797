"""Addresses of a Node, from what Harvester reports about its VM; ``docs/concepts/nodes.md`` has the rules.

The rules of ``interface`` select one interface of the VM, and those of ``internal_ip`` the InternalIP of each family.
The other addresses of the interface become ExternalIPs, and the host name follows. For a valid report of a VM with one
interface the result is that of the Go provider, except that one invalid address is ignored (there, the whole report),
and that without an InternalIP nothing is published (there, the host name replaces all addresses).
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from harvester_ccm.model.core import NodeAddress
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import ADDITIONAL_INTERNAL_IPS, NodeReason
from harvester_ccm.netip import IPAddress
from harvester_ccm.plan.node.address_events import (
    in_pod_network,
    internal_ip_not_reported,
    network_defaulted,
    no_address,
    no_vm_network,
    node_ip_not_reported,
    node_ip_unusable,
    none_in_cidr,
)
from harvester_ccm.plan.node.facts import AddressFacts, Holder, is_inside
from harvester_ccm.plan.node.interface import NodeInterface, pod_network_only, select_interface
from harvester_ccm.plan.node.internal_ip import Choice, choose_internal_ip


class NodeConflict(Struct, frozen=True):
    """Another Node that has the InternalIP or the VM of a Node, too."""

    other: str
    """Name of the other Node."""
    event: EventMessage
    """The Event for both Nodes."""


class AddressPlan(Struct, frozen=True):
    """The addresses to publish."""

    addresses: tuple[NodeAddress, ...] = ()
    """All addresses, the host name last. Empty: the addresses of the Node stay as they are."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why each address is published with its type, or why it is not published."""
    problem: EventMessage | None = None
    """Why nothing is published; set if and only if ``addresses`` is empty."""
    events: tuple[EventMessage, ...] = ()
    missing: frozenset[IPAddress] = frozenset()
    """Addresses that the VM should report and does not, and that are replaced or used after some time."""
    conflicts: tuple[NodeConflict, ...] = ()
    """Other Nodes with an InternalIP of this one, or with an address that this one therefore does not get."""


def plan_addresses(facts: AddressFacts) -> AddressPlan:
    """Return the addresses to publish."""
    plan = _plan(facts)
    conflicts = (*_conflicts(facts, facts.present), *plan.conflicts)
    events = [*facts.invalid, *plan.events, *_kept_in_pod_network(facts, plan)]
    events += [conflict.event for conflict in conflicts if conflict.event != plan.problem]
    return replace(plan, events=tuple(events), conflicts=conflicts)


def _plan(facts: AddressFacts) -> AddressPlan:
    if not facts.candidates:
        # If a VM is in the pod network only, its kubelet can name an address of a device that Harvester does not know.
        if facts.settings.management_network or not facts.provided:
            return AddressPlan(problem=no_vm_network(facts))
        return _plan_interface(facts, pod_network_only(facts))
    interface = select_interface(facts)
    if interface is None:
        return AddressPlan(problem=internal_ip_not_reported(facts), reasons=facts.unusable)
    plan = _plan_interface(facts, interface)
    if _is_guess(facts):
        return replace(plan, events=(network_defaulted(facts, interface), *plan.events))
    return plan


def _plan_interface(facts: AddressFacts, interface: NodeInterface) -> AddressPlan:
    choices = [choose_internal_ip(facts, interface, version) for version in (4, 6)]
    missing = frozenset(choice.missing for choice in choices if choice.missing is not None)
    chosen = {choice.address: choice for choice in choices if choice.address is not None}
    reasons = {**facts.unusable, **_reasons_elsewhere(interface), **_reasons_taken(facts, interface)}
    if _is_kubelet_contradicted(facts, interface):
        return AddressPlan(problem=node_ip_not_reported(facts, interface), reasons=reasons)
    conflicts = _conflicts(facts, _wanted_and_taken(facts, interface, chosen))
    problem = _problem(facts, interface, chosen, conflicts)
    if problem is not None:
        return AddressPlan(problem=problem, reasons=reasons, missing=missing, conflicts=conflicts)
    published, published_reasons = _publish(facts, interface, _in_families_of_kubelet(facts, chosen))
    known = {*interface.own, *facts.present}
    unknown = [address for address in facts.provided if address not in known and not facts.is_taken(address)]
    plan = AddressPlan(published, {**reasons, **published_reasons}, missing=missing, conflicts=conflicts)
    if not unknown:
        return plan
    return replace(plan, events=(node_ip_unusable(facts, interface, unknown),))


def _is_kubelet_contradicted(facts: AddressFacts, interface: NodeInterface) -> bool:
    """Return whether the kubelet names an address in another VM network: one of the two must be corrected."""
    attached = facts.vmi.spec.multus_networks
    return any(interface.elsewhere.get(address) in attached for address in facts.provided)


def _wanted_and_taken(
    facts: AddressFacts, interface: NodeInterface, chosen: Mapping[IPAddress, Choice]
) -> list[IPAddress]:
    """Return the addresses that the Node would get if no other Node had them."""
    if facts.provided:
        return [address for address in facts.provided if facts.is_taken(address)]
    # A family with an InternalIP that the VM reports needs no other address.
    served = {address.version for address in chosen if address in interface.own or address in interface.elsewhere}
    return [address for address in interface.taken if address.version not in served]


def _conflicts(facts: AddressFacts, addresses: Iterable[IPAddress]) -> tuple[NodeConflict, ...]:
    conflicts = []
    for address in addresses:
        holder = facts.holder_of(address)
        if holder is not None:
            conflicts.append(_conflict(facts, address, holder))
    return tuple(conflicts)


def _conflict(facts: AddressFacts, address: IPAddress, holder: Holder) -> NodeConflict:
    """Return the conflict about an address. The Event has one text for both Nodes."""
    vms = {facts.node.metadata.name: facts.vmi.metadata.key, holder.node: holder.vm}
    names = sorted(vms)
    subject = f"{address} of {' and '.join(names)}"
    nodes = " and ".join(f"{name} (VM {vms[name]})" for name in names)
    cause = (
        f"Nodes {nodes} have the address {address}, and both VMs run. A Node that was initialized with it keeps it, "
        "and no other Node gets it"
    )
    remedy = (
        "Give one of the Nodes another address: check --node-ip of the kubelets, static addresses, DHCP, and machine "
        "IDs that were cloned with an image. If a Node is not used any more, stop its VM"
    )
    event = EventMessage("Warning", NodeReason.INTERNAL_IP_IN_USE, cause, remedy, subject=subject)
    return NodeConflict(holder.node, event)


def _problem(
    facts: AddressFacts, interface: NodeInterface, chosen: Mapping[IPAddress, Choice], conflicts: Sequence[NodeConflict]
) -> EventMessage | None:
    """Return why no address can be published. A new Node with a conflict is not initialized."""
    has_internal_ip = bool(facts.present and chosen)
    if conflicts and not has_internal_ip:
        return conflicts[0].event
    awaited = [address for address in facts.provided if address not in chosen]
    if awaited and not has_internal_ip:
        return node_ip_unusable(facts, interface, awaited)
    is_silent = interface.name and not facts.reported[interface.name]
    if is_silent and (facts.present or not chosen):
        return no_address(facts, [interface.network])
    if not chosen:
        return none_in_cidr(facts, interface)
    return None


def _in_families_of_kubelet(facts: AddressFacts, chosen: Mapping[IPAddress, Choice]) -> Mapping[IPAddress, Choice]:
    """Return the InternalIPs without those of families that a kubelet does not name, as in the Go provider."""
    if not any(address in chosen for address in facts.provided):
        return chosen
    versions = {address.version for address in facts.provided}
    return {address: choice for address, choice in chosen.items() if address.version in versions}


def _publish(
    facts: AddressFacts, interface: NodeInterface, chosen: Mapping[IPAddress, Choice]
) -> tuple[tuple[NodeAddress, ...], dict[str, str]]:
    reported = {**dict.fromkeys(interface.own, interface.name), **_published_elsewhere(facts, interface)}
    reasons: dict[str, str] = {}
    published: list[NodeAddress] = []
    for address in dict.fromkeys((*reported, *chosen)):
        text = str(address)
        if address in chosen:
            reasons[text] = chosen[address].reason
            published.append(NodeAddress(type="InternalIP", address=text))
            continue
        hidden = _hidden_reason(facts, address)
        reasons[text] = hidden or f"another address of interface {reported[address]}"
        if not hidden:
            published.append(NodeAddress(type="ExternalIP", address=text))
    ordered = _in_order(facts, published)
    hostname = NodeAddress(type="Hostname", address=facts.node.metadata.name)
    reasons[hostname.address] = "name of the Node"
    return (*ordered, hostname), reasons


def _hidden_reason(facts: AddressFacts, address: IPAddress) -> str:
    """Return why an address does not become an ExternalIP; empty if it does."""
    if is_inside(address, facts.settings.exclude_ranges):
        return "excluded by --node-exclude-ip-ranges"
    if address in facts.additional:
        return f"named by annotation {ADDITIONAL_INTERNAL_IPS}"
    return ""


def _in_order(facts: AddressFacts, published: Sequence[NodeAddress]) -> list[NodeAddress]:
    """Return the addresses with the primary family first: that of the annotation, or else the present one."""
    order = [str(address) for address in facts.provided]
    if facts.present:
        order += [entry.address for entry in facts.node.status.addresses]
    places: dict[str, int] = {}
    for place, address in enumerate(order):
        places.setdefault(address, place)
    return sorted(published, key=lambda entry: places.get(entry.address, len(order)))


def _published_elsewhere(facts: AddressFacts, interface: NodeInterface) -> dict[IPAddress, str]:
    """Return the ExternalIPs of the Node that the VM reports on another interface.

    Go providers before 0.2.6 publish the addresses of all interfaces.
    """
    if facts.settings.management_network or not facts.present:
        return {}
    shown = {entry.address for entry in facts.node.status.addresses if entry.type == "ExternalIP"}
    return {address: other for address, other in interface.elsewhere.items() if str(address) in shown}


def _reasons_elsewhere(interface: NodeInterface) -> dict[str, str]:
    return {
        str(address): f"on interface {other}, and not on {interface.name}"
        for address, other in interface.elsewhere.items()
    }


def _reasons_taken(facts: AddressFacts, interface: NodeInterface) -> dict[str, str]:
    holders = {address: facts.holder_of(address) for address in interface.taken}
    return {str(address): f"InternalIP of Node {holder.node}" for address, holder in holders.items() if holder}


def _is_guess(facts: AddressFacts) -> bool:
    """Return whether nothing but the order of several interfaces selects one."""
    is_named = facts.settings.management_network or facts.settings.node_ip_cidrs or facts.provided
    return len(facts.candidates) > 1 and not is_named


def _kept_in_pod_network(facts: AddressFacts, plan: AddressPlan) -> list[EventMessage]:
    """Return the Events about InternalIPs behind the pod network that an initialized Node keeps."""
    if plan.problem is not None and plan.problem.reason is NodeReason.NODE_IP_IN_POD_NETWORK:
        return []
    kept = facts.present
    if plan.addresses:
        published = {entry.address for entry in plan.addresses}
        kept = tuple(address for address in facts.present if str(address) in published)
    effect = "It is the InternalIP of this Node, which keeps it until the VM reports another one in a VM network"
    return [in_pod_network(facts, address, effect) for address in kept if facts.is_behind_pod_network(address)]
