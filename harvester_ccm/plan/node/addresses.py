"""Addresses of a Node, from what Harvester reports about its VM.

The addresses of one interface are published: one InternalIP of each family, the others as ExternalIP, then the host
name. For a valid report of a VM with one interface the result is that of the Go provider. Differences:

* The interface is the one with the kubelet's address (annotation ``alpha.kubernetes.io/provided-node-ip``), the one
  with the InternalIP, the first with an address inside ``--node-ip-cidr``, or the first one. With
  ``--management-network`` only interfaces in that network count. The Go provider uses the first interface.
* The InternalIP of an initialized Node stays while the VM reports it and the flags allow it. If the VM does not report
  it, it is replaced after ``NodeSettings.address_grace_seconds`` in which the VM reported another address of that
  family: a guest agent can omit an address for some seconds, or report a virtual IP only. If the VM has several
  interfaces, only ``--management-network`` or ``--node-ip-cidr`` can select the one of the replacement; otherwise the
  InternalIP stays.
* The kubelet's address replaces the InternalIP immediately when the VM reports it. If the VM does not report it, it is
  used after the same time, because a kubelet only names an address of its host; the Go provider waits forever. Until
  then a new Node waits, and an initialized Node keeps its InternalIP.
* Without an InternalIP nothing is published. The Go provider then replaces all addresses by the host name.
* Without ``--management-network``, an ExternalIP of an initialized Node stays while the VM reports it on any interface.
* Virtual IPs of load balancers are not published, except the kubelet's address and the present InternalIP: a Service
  must not be able to take an address from a Node.
* ``--node-exclude-ip-ranges`` and the annotation for additional internal IPs hide ExternalIPs in every mode. An
  excluded address becomes the InternalIP only if the VM has no other of its family.
* One invalid address is ignored; the Go provider ignores the whole report. IPv4-mapped addresses become IPv4, and zones
  are removed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct, field
from msgspec.json import decode
from msgspec.structs import replace

from harvester_ccm.config import NodeSettings
from harvester_ccm.errors import UNREADABLE
from harvester_ccm.model.core import Node, NodeAddress
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import ADDITIONAL_INTERNAL_IPS, PROVIDED_NODE_IP, NodeReason
from harvester_ccm.netip import IPAddress, IPNetwork, parse_range, plain_address
from harvester_ccm.plan.node.messages import invalid_annotation, warning
from harvester_ccm.plan.node.patch import was_initialized
from harvester_ccm.plan.node.vms import full_network, reported_addresses

_UNUSABLE: Final = ("unspecified", "loopback", "link_local", "multicast")
_BROADCAST: Final = plain_address("255.255.255.255")
_NAMED: Final = f"named by annotation {PROVIDED_NODE_IP}"
_KEPT: Final = "present InternalIP, which the VM does not report now"


class VirtualIPs(Protocol):
    """The addresses of load balancers, which guest agents report and which are not addresses of Nodes."""

    @property
    def listed(self) -> bool:
        """Whether Services and load balancers were listed, or cannot be listed: a Node must not wait forever."""

    def owner(self, address: str) -> str:
        """Return the object that has the address; empty if it is no virtual IP."""


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


class _Inputs(Struct, frozen=True):
    node: Node
    vmi: VirtualMachineInstance
    settings: NodeSettings
    missing_for: Mapping[IPAddress, float]
    """Seconds for which each address has been in ``AddressPlan.missing``."""
    provided: tuple[IPAddress, ...]
    """Addresses of the kubelet, at most one of each family."""
    present: tuple[IPAddress, ...]
    """InternalIPs of an initialized Node."""
    reported: Mapping[str, tuple[IPAddress, ...]]
    """Interface in a network of the VM to its usable addresses, in the order of the networks."""
    dropped: Mapping[str, str]
    """Reported addresses that are not usable, with the reason."""

    def is_overdue(self, address: IPAddress) -> bool:
        return self.missing_for.get(address, 0.0) >= self.settings.address_grace_seconds

    def is_allowed(self, address: IPAddress) -> bool:
        """Return whether the flags allow the address as InternalIP."""
        if self.settings.node_ip_cidrs:
            return _is_inside(address, self.settings.node_ip_cidrs)
        return not _is_inside(address, self.settings.exclude_ranges)


class _Choice(Struct, frozen=True):
    """The InternalIP of one family, and why."""

    address: IPAddress | None = None
    reason: str = ""
    missing: tuple[IPAddress, ...] = ()


def plan_addresses(
    node: Node,
    vmi: VirtualMachineInstance,
    *,
    settings: NodeSettings,
    virtual_ips: VirtualIPs,
    missing_for: Mapping[IPAddress, float],
) -> AddressPlan:
    """Return the addresses to publish.

    ``missing_for`` are the seconds for which earlier plans have returned an address as missing.
    """
    provided, invalid = _provided(node, settings)
    present = _present_internal_ips(node)
    dropped: dict[str, str] = {}
    reported: dict[str, tuple[IPAddress, ...]] = {}
    for name in (one.name for one in vmi.spec.networks or ()):
        usable = _usable(reported_addresses(vmi, name), dropped)
        owners = {one: virtual_ips.owner(str(one)) for one in usable if one not in (*provided, *present)}
        dropped |= {str(one): f"virtual IP of {owner}" for one, owner in owners.items() if owner}
        reported[name] = tuple(one for one in usable if not owners.get(one))
    inputs = _Inputs(node, vmi, settings, missing_for, provided, present, reported, dropped)
    nics = vmi.spec.multus_networks
    if settings.management_network:
        wanted = full_network(settings.management_network, vmi)
        nics = {name: network for name, network in nics.items() if full_network(network, vmi) == wanted}
    if not nics and (settings.management_network or not provided):
        flag = settings.management_network
        network = f"--management-network {flag}" if flag else "a VM network"
        attached = [*vmi.spec.multus_networks.values()]
        problem = _warning(vmi, NodeReason.NO_VM_NETWORK, flag or "", network=network, attached=attached)
        return AddressPlan(problem=problem, events=invalid)
    nic = _select_nic(inputs, nics) if nics else ""
    if nic is None:
        return AddressPlan(problem=_not_reported(inputs, nics), events=invalid, reasons=dropped)
    plan = _plan_nic(inputs, nic)
    is_guess = len(nics) > 1 and not (settings.management_network or settings.node_ip_cidrs or provided)
    guess = warning(NodeReason.NETWORK_DEFAULTED, nic=nic, nics=[*nics], network=nics.get(nic, ""))
    return replace(plan, events=(*((guess,) if is_guess else ()), *invalid, *plan.events))


def _select_nic(inputs: _Inputs, nics: Iterable[str]) -> str | None:
    """Return the interface whose addresses are published; None if it is unknown which one has the InternalIP."""
    for wanted in (*inputs.provided, *inputs.present):
        for nic in nics:
            if wanted in inputs.reported[nic]:
                return nic
    cidrs, names = inputs.settings.node_ip_cidrs, [*nics]
    inside = next((nic for nic in names if any(_is_inside(one, cidrs) for one in inputs.reported[nic])), None)
    return inside or (names[0] if not inputs.present or len(names) == 1 else None)


def _plan_nic(inputs: _Inputs, nic: str) -> AddressPlan:
    """Return the addresses of one interface; an empty name is a VM in the pod network only."""
    provided, vmi = inputs.provided, inputs.vmi
    own = inputs.reported.get(nic, ())
    elsewhere = {one: name for name, found in inputs.reported.items() if name != nic for one in found if one not in own}
    reasons = {
        **inputs.dropped,
        **{str(one): f"on interface {name}, and not on {nic}" for one, name in elsewhere.items()},
    }
    not_found = _provided_not_found(inputs, nic, own, elsewhere)
    # The kubelet and the network of the Node contradict each other: one of them must be corrected.
    if nic and any(elsewhere.get(one) in vmi.spec.multus_networks for one in provided):
        return AddressPlan(problem=not_found, reasons=reasons)
    choices = [_choose(inputs, family, own, elsewhere) for family in (4, 6)]
    missing = frozenset(one for choice in choices for one in choice.missing)
    chosen = {choice.address: choice.reason for choice in choices if choice.address is not None}
    problem = None
    if not inputs.present and any(one in missing and one not in chosen for one in provided):
        problem = not_found
    elif nic and not own and (inputs.present or not chosen):
        problem = _no_address(inputs, [nic])
    elif not chosen:
        seen, ranges = ", ".join(map(str, own)), ", ".join(map(str, inputs.settings.node_ip_cidrs))
        state = f"None of the VM's addresses on interface {nic} ({seen}) is inside --node-ip-cidr {ranges}"
        problem = warning(NodeReason.NO_INTERNAL_IP, ranges, state=state)
    if problem is not None:
        return AddressPlan(problem=problem, reasons=reasons, missing=missing)
    if any(one in chosen for one in provided):
        # As in the Go provider, a kubelet that names addresses has no InternalIP of another family.
        families = {one.version for one in provided}
        chosen = {address: reason for address, reason in chosen.items() if address.version in families}
    plan = _publish(inputs, {**dict.fromkeys(own, nic), **_published_elsewhere(inputs, elsewhere)}, chosen)
    is_known = all(one in (*own, *inputs.present) for one in provided)
    events = plan.events if is_known else (*plan.events, not_found)
    return replace(plan, reasons={**reasons, **plan.reasons}, events=events, missing=missing)


def _not_reported(inputs: _Inputs, nics: Iterable[str]) -> EventMessage:
    """Return the Event for an InternalIP that none of several interfaces reports, of which one can have it."""
    names, families = ", ".join(map(str, inputs.present)), {one.version for one in inputs.present}
    reported = {nic: inputs.reported[nic] for nic in nics}
    if not any(one.version in families for found in reported.values() for one in found):
        return _no_address(inputs, nics)
    seen = "; ".join(f"{nic} has {', '.join(map(str, found)) or 'none'}" for nic, found in reported.items())
    state = f"No interface of the VM reports {names} ({seen}). The Node keeps its addresses until one does"
    return warning(NodeReason.NO_INTERNAL_IP, names, state=state)


def _no_address(inputs: _Inputs, nics: Iterable[str]) -> EventMessage:
    networks = [inputs.vmi.spec.multus_networks[nic] for nic in nics]
    unusable = "".join(f"; {address} is unusable ({reason})" for address, reason in inputs.dropped.items())
    return _warning(inputs.vmi, NodeReason.NO_ADDRESS, network=networks, unusable=unusable)


def _provided_not_found(
    inputs: _Inputs, nic: str, own: Sequence[IPAddress], elsewhere: Mapping[IPAddress, str]
) -> EventMessage:
    missing = [one for one in inputs.provided if one not in own]
    others = sorted({elsewhere[one] for one in missing if one in elsewhere})
    network = inputs.vmi.spec.multus_networks.get(nic, "in Harvester's management (pod) network only")
    subject, reason = str(missing), NodeReason.NODE_IP_NOT_REPORTED
    return _warning(inputs.vmi, reason, subject, addresses=missing, network=network, own=[*own], others=others)


def _warning(vmi: VirtualMachineInstance, reason: NodeReason, subject: str = "", **fields: object) -> EventMessage:
    """Return a Warning that names the VM and gives advice about its guest agent."""
    advice = "the VM configures this interface" if vmi.has_agent else "qemu-guest-agent runs in the VM"
    return warning(reason, subject, vm=vmi.metadata.key, advice=f"Check that {advice}", **fields)


def _choose(inputs: _Inputs, family: int, own: Iterable[IPAddress], elsewhere: Mapping[IPAddress, str]) -> _Choice:
    """Return the InternalIP of one family. ``own`` are the addresses of the interface, ``elsewhere`` of the others."""
    own = [one for one in own if one.version == family]
    provided = next((one for one in inputs.provided if one.version == family), None)
    present = next((one for one in inputs.present if one.version == family), None)
    if provided is not None and provided in own:
        return _Choice(provided, _NAMED)
    # Without a flag that names one network, the InternalIP can be on another interface than that of the other family.
    stays = own if inputs.settings.management_network else [*own, *elsewhere]
    if present is not None and present in stays and inputs.is_allowed(present):
        return _Choice(present, "present InternalIP, which the VM reports")
    if provided is not None:
        overdue = _Choice(provided, f"{_NAMED}, although the VM does not report it", (provided,))
        return overdue if inputs.is_overdue(provided) else _Choice(present, _KEPT, (provided,))
    allowed = [one for one in own if inputs.is_allowed(one)]
    # Where the first address counts, an excluded one is better than none.
    pool = allowed or ([] if inputs.settings.node_ip_cidrs else own)
    if present is None or present in own or present in elsewhere or not inputs.is_allowed(present):
        return _first(inputs, pool, present)
    # Time counts only while the VM reports another address: a silent guest agent says nothing about this one.
    missing = (present,) if pool else ()
    is_replaced = pool and inputs.is_overdue(present)
    return replace(_first(inputs, pool), missing=missing) if is_replaced else _Choice(present, _KEPT, missing)


def _first(inputs: _Inputs, pool: Sequence[IPAddress], preferred: IPAddress | None = None) -> _Choice:
    if not pool:
        return _Choice()
    address = preferred if preferred is not None and preferred in pool else pool[0]
    cidr = next((one for one in inputs.settings.node_ip_cidrs if address in one), None)
    reason = f"first IPv{address.version} address inside --node-ip-cidr {cidr}"
    if cidr is None:
        suffix = "" if inputs.is_allowed(address) else ", excluded by --node-exclude-ip-ranges like all others"
        reason = f"first IPv{address.version} address of the interface{suffix}"
    return _Choice(address, reason)


def _published_elsewhere(inputs: _Inputs, elsewhere: Mapping[IPAddress, str]) -> dict[IPAddress, str]:
    """Return the ExternalIPs of the Node that the VM reports on another interface.

    Go providers before 0.2.6 publish the addresses of all interfaces.
    """
    shown = {one.address for one in inputs.node.status.addresses if one.type == "ExternalIP" and inputs.present}
    is_limited = bool(inputs.settings.management_network)
    return {} if is_limited else {one: name for one, name in elsewhere.items() if str(one) in shown}


def _publish(inputs: _Inputs, reported: Mapping[IPAddress, str], chosen: Mapping[IPAddress, str]) -> AddressPlan:
    """Return the plan with the addresses, their reasons, and the Events about the annotation that hides some.

    ``reported``: address to interface.
    """
    node, settings = inputs.node, inputs.settings
    additional, events = _additional_internal_ips(node, settings)
    reasons = {str(address): reason for address, reason in chosen.items()}
    published: list[NodeAddress] = []
    for address in dict.fromkeys((*reported, *chosen)):
        text = str(address)
        if address in chosen:
            published.append(NodeAddress(type="InternalIP", address=text))
        elif _is_inside(address, settings.exclude_ranges):
            reasons[text] = "excluded by --node-exclude-ip-ranges"
        elif _is_inside(address, additional):
            reasons[text] = f"named by annotation {ADDITIONAL_INTERNAL_IPS}"
        else:
            published.append(NodeAddress(type="ExternalIP", address=text))
            reasons[text] = f"another address of interface {reported[address]}"
    # The first InternalIP is the primary family: the order of the annotation, then the present one.
    order = [*map(str, inputs.provided), *(one.address for one in node.status.addresses if inputs.present)]
    published.sort(key=lambda one: order.index(one.address) if one.address in order else len(order))
    hostname = NodeAddress(type="Hostname", address=node.metadata.name)
    return AddressPlan((*published, hostname), {**reasons, hostname.address: "name of the Node"}, events=events)


def _provided(node: Node, settings: NodeSettings) -> tuple[tuple[IPAddress, ...], tuple[EventMessage, ...]]:
    """Return the addresses of the kubelet, and an Event if the annotation is invalid.

    Blanks around an address are accepted; the Go framework rejects them.
    """
    value = node.metadata.annotation(PROVIDED_NODE_IP)
    if value is None or not settings.use_provided_node_ip:
        return (), ()
    try:
        addresses = tuple(plain_address(part.strip()) for part in value.split(","))
    except ValueError:
        addresses = ()
    one_per_family = len({address.version for address in addresses}) == len(addresses) > 0
    if one_per_family and not any(address.is_unspecified for address in addresses):
        return addresses, ()
    expected = "an IP address, or an IPv4 and an IPv6 address (correct the kubelet's --node-ip)"
    return (), (invalid_annotation(PROVIDED_NODE_IP, value, expected),)


def _present_internal_ips(node: Node) -> tuple[IPAddress, ...]:
    """Return the InternalIPs of an initialized Node. Before, they are the first guess of the kubelet."""
    if not was_initialized(node):
        return ()
    return _usable((one.address for one in node.status.addresses if one.type == "InternalIP"), {})


def _additional_internal_ips(
    node: Node, settings: NodeSettings
) -> tuple[tuple[IPNetwork, ...], tuple[EventMessage, ...]]:
    """Return the addresses and ranges in the annotation, and an Event if it is invalid."""
    # A document of any length, which is only decoded; the Event cuts it.
    value = node.metadata.whole_annotation(ADDITIONAL_INTERNAL_IPS)
    if value is None or value in {"", "null"} or not settings.use_provided_node_ip:
        return (), ()
    try:
        return tuple(parse_range(text.strip()) for text in decode(value, type=list[str])), ()
    except UNREADABLE as error:
        expected = f'a JSON list of IP addresses such as ["10.0.0.5"] ({error})'
        return (), (invalid_annotation(ADDITIONAL_INTERNAL_IPS, value, expected),)


def _usable(texts: Iterable[str], dropped: dict[str, str]) -> tuple[IPAddress, ...]:
    """Return the usable addresses without repetitions; add the others to ``dropped`` with the reason."""
    usable: dict[IPAddress, None] = {}
    for text in texts:
        try:
            address = plain_address(text)
        except ValueError:
            dropped[text] = "not an IP address"
            continue
        if reason := next((kind for kind in _UNUSABLE if getattr(address, f"is_{kind}")), ""):
            dropped[text] = reason.replace("_", "-")
        elif address == _BROADCAST:
            dropped[text] = "broadcast"
        else:
            usable[address] = None
    return tuple(usable)


def _is_inside(address: IPAddress, ranges: Iterable[IPNetwork]) -> bool:
    return any(address in one for one in ranges)
