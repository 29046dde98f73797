"""Addresses of a Node, from what Harvester reports about its VM.

For a well-formed report the result is the Go provider's: the same addresses, types and order, arranged for the
annotation of the kubelet's address as the cloud-provider framework does. Differences, each for a known fault:

* Without ``--management-network`` the interface is chosen by evidence, and what was chosen is recorded on the Node
  (``interfaces.management_nic``). Go takes the first interface. What an initialised Node has of other interfaces, that
  in the pod network too, stays, without that flag, for as long as the VM has it.
* Nothing is published that has no InternalIP. The Go provider then replaces all addresses by the host name.
* A known InternalIP stays while the report has no address of its family that may replace it, and for
  ``NodeSettings.address_patience`` more (``awaited``): guest agents report nothing, IPv6 only, or a virtual IP only,
  for moments. With ``--management-network`` it does not stay when the VM has it in another of its networks.
* On an initialised Node the present InternalIP is kept while it is among the candidates, and addresses keep their
  order. On a new Node the order of the report decides, as in Go.
* The annotation ``alpha.kubernetes.io/provided-node-ip`` is compared as addresses, may be a pair, and is passed over
  with a note where it is unreadable. An address in it that the VM does not report is waited for as long, and then used
  all the same: a kubelet only names what its host has. Go waits without end. Until then a new Node waits, and no
  other address of the family becomes the InternalIP; one that is the InternalIP already, and reported, stays. An
  address that the VM has in another network than the one that counts stops everything: a new Node waits, and an
  initialised one keeps its addresses. A VM in the pod network alone has what the kubelet was given.
* ``--node-exclude-ip-ranges`` hides ExternalIPs in every mode, in Go only together with ``--node-ip-cidr``. An
  InternalIP that a range or the annotation chose is never hidden (as in Go). Where just the first address of a family
  would be taken, an excluded one is passed over, and is taken with a note when the VM has no other of that family.
* Addresses of load balancers are no addresses of the Node, except the kubelet's address and the present InternalIP:
  whoever creates a Service must not be able to take them from a Node.
* ``additional-internal-ips`` may hold ranges, and is compared as addresses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from harvester_ccm.config import NodeSettings
from harvester_ccm.model.core import Node, NodeAddress
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import ADDITIONAL_INTERNAL_IPS, NODE_NETWORK_RECORD, PROVIDED_NODE_IP
from harvester_ccm.netip import IPAddress, IPNetwork, parse_range, unmapped_range
from harvester_ccm.plan.node import messages as events
from harvester_ccm.plan.node.arrangement import arranged, in_present_order, parse_provided_node_ip
from harvester_ccm.plan.node.awaited import Awaited, awaited_addresses
from harvester_ccm.plan.node.interfaces import (
    DroppedAddress,
    DropReason,
    NetworkEvidence,
    Nic,
    addresses_elsewhere,
    management_nic,
    plain_text,
    read_addresses,
    reported_addresses,
)
from harvester_ccm.plan.node.internal_ip import Candidates, Choice, InternalIPRules, choose_internal_ips
from harvester_ccm.plan.node.patch import was_initialised

_HiddenRanges = Mapping[DropReason, tuple[IPNetwork, ...]]


class AddressVerdict(Struct, frozen=True):
    """What becomes of one address."""

    address: str
    interface: str
    """Name of the VM's interface; empty when none reports the address."""
    network: str
    kind: str
    """``InternalIP``, ``ExternalIP`` or ``Hostname``; empty when it is not published."""
    because: str


class AddressPlan(Struct, frozen=True):
    """The addresses to publish."""

    addresses: tuple[NodeAddress, ...] = ()
    """All of them, the Hostname last. Empty: there is nothing to publish, leave the Node's as they are."""
    dropped: tuple[DroppedAddress, ...] = ()
    """Reported addresses that are not published, with the reason, for the log."""
    problem: EventMessage | None = None
    """Why there is nothing to publish; set exactly when ``addresses`` is empty."""
    notes: tuple[EventMessage, ...] = ()
    """Oddities that did not prevent a result."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Each address to publish and why it is what it is."""
    verdicts: tuple[AddressVerdict, ...] = ()
    """Every address that is published or reported, on any interface; the published ones first, in their order."""
    nic: Nic | None = None
    """The interface that they are read from; None: the VM has none that counts."""
    awaited: Mapping[IPAddress, float] = field(default_factory=dict)
    """Addresses that the VM should report and does not, or those that it reports while it is not known which of them
    takes the place of an InternalIP, each with the seconds for which that matters already: they are ``waited`` of the
    next plan."""


def plan_addresses(
    node: Node,
    vmi: VirtualMachineInstance,
    *,
    settings: NodeSettings,
    virtual_ips: Mapping[IPAddress, str] = MappingProxyType({}),
    waited: Mapping[IPAddress, float] = MappingProxyType({}),
) -> AddressPlan:
    """Return what to publish as the Node's addresses.

    ``virtual_ips`` are the addresses of load balancers, each with what has it; all of them must be known. ``waited``
    has the seconds for which the plans before this one awaited an address.
    """
    provided, notes = _provided(node, settings)
    present = _present_internal_ips(node)
    virtual_ips = {ip: owner for ip, owner in virtual_ips.items() if ip not in (*provided, *present)}
    recorded = node.metadata.annotation(NODE_NETWORK_RECORD) or ""
    evidence = NetworkEvidence(settings.management_network, provided, present, recorded, settings.node_ip_cidrs)
    nic = management_nic(vmi, evidence)
    if nic is None and (evidence.asked or not provided):
        plan = AddressPlan(problem=events.no_network(vmi, settings.management_network), notes=tuple(notes))
    else:
        plan = _plan_on(nic, _Seen(node, vmi, evidence, settings, virtual_ips, waited))
        guessed = [events.guessed_network(nic)] if nic is not None and nic.guessed_among else []
        plan = replace(plan, notes=(*guessed, *notes, *plan.notes))
    return replace(plan, nic=nic, verdicts=_verdicts(vmi, nic, plan))


class _Seen(Struct, frozen=True):
    """What addresses are chosen from."""

    node: Node
    vmi: VirtualMachineInstance
    evidence: NetworkEvidence
    settings: NodeSettings
    virtual_ips: Mapping[IPAddress, str]
    """Addresses of load balancers that are not the Node's, each with what has it."""
    waited: Mapping[IPAddress, float]


class _Report(Struct, frozen=True):
    """What the VM reports, as far as that can be an address of the Node."""

    nic: Nic | None
    """None: the VM is in no network that it could report of."""
    addresses: tuple[IPAddress, ...]
    dropped: tuple[DroppedAddress, ...]
    elsewhere: Mapping[IPAddress, str]
    """Addresses on other interfaces, each with the name of one."""


def _plan_on(nic: Nic | None, seen: _Seen) -> AddressPlan:
    """Read, wait, choose, publish: the first of these that cannot be done says why there is nothing to publish."""
    report, settings = _read(nic, seen), seen.settings
    if nic is not None and nic.undecided_among:
        return replace(_undecided(nic, seen), dropped=report.dropped)
    contradiction = _contradiction(report, seen)
    if contradiction is not None:
        return AddressPlan((), report.dropped, contradiction)
    present = seen.evidence.present
    awaited = awaited_addresses(
        seen.evidence,
        report.addresses,
        report.elsewhere,
        waited=seen.waited,
        patience=settings.address_patience,
    )
    nothing = AddressPlan((), report.dropped, awaited=awaited.seconds)
    missing = _missing(report, awaited, present, seen.vmi)
    if missing is not None:
        return replace(nothing, problem=missing)
    candidates = Candidates(
        report.addresses, awaited.kept, (*awaited.stand_ins, *awaited.trusted), nic.name if nic else ""
    )
    rules = InternalIPRules(
        provided=seen.evidence.provided,
        cidrs=settings.node_ip_cidrs,
        excluded=settings.exclude_ranges,
        present=frozenset(present),
        reserved=frozenset(address.version for address in awaited.pending),
    )
    choice = choose_internal_ips(candidates, rules)
    if not choice.internal:
        return replace(nothing, problem=_no_internal_ip(report, seen))
    hidden, hidden_notes = _hidden(seen.node, settings, choice)
    others = {} if settings.management_network else _published_elsewhere(seen, report)
    plan = _publish(seen.node, candidates, choice, hidden, others)
    return replace(
        plan,
        dropped=(*report.dropped, *plan.dropped),
        notes=(*_choice_notes(choice, awaited, report, seen), *hidden_notes),
        awaited=awaited.seconds,
    )


def _read(nic: Nic | None, seen: _Seen) -> _Report:
    texts = reported_addresses(seen.vmi, nic.name) if nic else ()
    addresses, dropped = read_addresses(texts, seen.virtual_ips)
    return _Report(nic, addresses, dropped, addresses_elsewhere(seen.vmi, nic) if nic else {})


def _undecided(nic: Nic, seen: _Seen) -> AddressPlan:
    """Return the plan while no interface reports the InternalIP and several may have it: the Node keeps its addresses.

    A guest agent that is silent says nothing. One that goes on reporting other addresses of the family does: the
    InternalIP is gone, and which of them is to follow it nobody but the user knows. The time is that of those others,
    so that it does not count for the InternalIP once one interface has it.
    """
    present, vmi = seen.evidence.present, seen.vmi
    families = {address.version for address in present}
    reported = {
        name: read_addresses(reported_addresses(vmi, name), seen.virtual_ips)[0] for name in nic.undecided_among
    }
    others = {name: [one for one in usable if one.version in families] for name, usable in reported.items()}
    waited = {address: seen.waited.get(address, 0.0) for usable in others.values() for address in usable}
    gone = any(seconds >= seen.settings.address_patience for seconds in waited.values())
    problem = events.no_longer_reported(present, vmi, others) if gone else events.unreported(present, vmi)
    return AddressPlan(problem=problem, awaited=waited)


def _contradiction(report: _Report, seen: _Seen) -> EventMessage | None:
    """Return why the interface is the wrong one."""
    nic, elsewhere, networks = report.nic, report.elsewhere, seen.vmi.spec.multus_networks
    unreported = [address for address in seen.evidence.provided if address not in report.addresses]
    misplaced = [address for address in unreported if elsewhere.get(address) in networks]
    return events.provided_elsewhere(misplaced, elsewhere, nic) if nic and misplaced else None


def _missing(
    report: _Report, awaited: Awaited, present: Sequence[IPAddress], vmi: VirtualMachineInstance
) -> EventMessage | None:
    """Return what the Node waits for; one that has an InternalIP only does while nothing is reported."""
    if awaited.pending and not present:
        return events.provided_awaited(awaited.pending, vmi, report.nic, report.addresses)
    if report.nic and not report.addresses and (present or not awaited.trusted):
        return events.no_address(vmi, report.nic, report.dropped)
    return None


def _no_internal_ip(report: _Report, seen: _Seen) -> EventMessage:
    if report.nic is None:
        return events.no_network(seen.vmi, seen.settings.management_network)
    return events.no_internal_ip(report.nic, report.addresses, seen.settings.node_ip_cidrs)


def _choice_notes(choice: Choice, awaited: Awaited, report: _Report, seen: _Seen) -> list[EventMessage]:
    """Return what the owner of the Node should know about the choice."""
    notes = []
    vmi, nic, reported = seen.vmi, report.nic, report.addresses
    passed_over = [one for one in seen.evidence.provided if one not in (*choice.internal, *awaited.pending)]
    if awaited.pending:
        notes.append(events.provided_awaited(awaited.pending, vmi, nic, reported))
    if passed_over:
        notes.append(events.provided_missing(passed_over, reported, nic))
    trusted = [address for address in awaited.trusted if address in choice.internal]
    if trusted:
        notes.append(events.provided_trusted(trusted, vmi, nic, reported))
    if choice.despite_exclusion:
        notes.append(events.excluded_used(choice.despite_exclusion))
    return notes


def _provided(node: Node, settings: NodeSettings) -> tuple[tuple[IPAddress, ...], list[EventMessage]]:
    value = node.metadata.annotation(PROVIDED_NODE_IP)
    if value is None or not settings.use_provided_node_ip:
        return (), []
    try:
        return parse_provided_node_ip(value), []
    except ValueError as error:
        return (), [events.invalid_provided(value, str(error))]


def _present_internal_ips(node: Node) -> tuple[IPAddress, ...]:
    """Return the InternalIPs to prefer: those of an initialised Node, because the kubelet's first guess is none."""
    if not was_initialised(node):
        return ()
    return read_addresses((a.address for a in node.status.addresses if a.type == "InternalIP"), {})[0]


def _published_elsewhere(seen: _Seen, report: _Report) -> dict[IPAddress, str]:
    """Return the ExternalIPs of an initialised Node that the VM has on another interface, with its name.

    Go providers before 0.2.6 publish the addresses of all interfaces.
    """
    node, elsewhere = seen.node, report.elsewhere
    texts = [a.address for a in node.status.addresses if a.type == "ExternalIP" and was_initialised(node)]
    published = read_addresses(texts, seen.virtual_ips)[0]
    return {address: elsewhere[address] for address in published if address in elsewhere}


def _hidden(node: Node, settings: NodeSettings, choice: Choice) -> tuple[_HiddenRanges, list[EventMessage]]:
    """Return the ranges that ExternalIPs are hidden in. Chosen by range, additional internal IPs are not looked at."""
    hidden: _HiddenRanges = {DropReason.EXCLUDED: settings.exclude_ranges}
    value = node.metadata.annotation(ADDITIONAL_INTERNAL_IPS)
    by_range = bool(settings.node_ip_cidrs) and not choice.by_annotation
    if not value or by_range or not settings.use_provided_node_ip:
        return hidden, []
    ranges, cause = _additional_internal_ips(value)
    notes = [events.invalid_additional(value, cause)] if cause else []
    return {**hidden, DropReason.ADDITIONAL: ranges}, notes


def _additional_internal_ips(value: str) -> tuple[tuple[IPNetwork, ...], str]:
    """Return the ranges in the annotation, and what is wrong with it, empty when nothing is."""
    try:
        texts = json.loads(value)
    except ValueError as error:
        return (), str(error)
    except RecursionError:
        return (), "nested too deep"
    if texts is None:
        return (), ""
    if not isinstance(texts, list):
        return (), "not a list"
    ranges: list[IPNetwork] = []
    bad: list[str] = []
    for text in texts:
        word = "a list" if isinstance(text, list | dict) else str(text)
        try:
            ranges.append(unmapped_range(parse_range(word.strip())[1]))
        except ValueError:
            bad.append(word)
    return tuple(ranges), f"no IP addresses: {', '.join(bad)}" if bad else ""


def _publish(
    node: Node, candidates: Candidates, choice: Choice, hidden: _HiddenRanges, others: Mapping[IPAddress, str]
) -> AddressPlan:
    published: list[NodeAddress] = []
    dropped: list[DroppedAddress] = []
    reasons = {str(address): because for address, because in choice.reasons.items()}
    unreported = (*candidates.awaited, *candidates.stand_ins)
    kept = tuple(address for address in unreported if address in choice.internal)
    for address in dict.fromkeys((*candidates.reported, *kept, *others)):
        if address in choice.internal:
            published.append(NodeAddress(type="InternalIP", address=str(address)))
            continue
        reason = next((r for r, ranges in hidden.items() if any(address in entry for entry in ranges)), None)
        if reason is None:
            published.append(NodeAddress(type="ExternalIP", address=str(address)))
            interface = candidates.interface if address in candidates.reported else others[address]
            reasons[str(address)] = f"another address of interface {interface}"
        else:
            dropped.append(DroppedAddress(str(address), reason))
    published.append(NodeAddress(type="Hostname", address=node.metadata.name))
    reasons[node.metadata.name] = "name of the Node"
    addresses = arranged(node, tuple(published))
    if was_initialised(node):
        addresses = in_present_order(addresses, node.status.addresses)
    return AddressPlan(addresses, tuple(dropped), reasons=reasons)


def _verdicts(vmi: VirtualMachineInstance, nic: Nic | None, plan: AddressPlan) -> tuple[AddressVerdict, ...]:
    network = nic.network if nic else ""
    kinds = {address.address: address.type for address in plan.addresses}
    verdicts = list(_reported(vmi, nic, kinds, plan) if nic else ())
    shown = {verdict.address for verdict in verdicts}
    verdicts += _elsewhere(vmi, nic, {one: kind for one, kind in kinds.items() if one not in shown}, plan)
    shown |= {verdict.address for verdict in verdicts}
    for address, kind in kinds.items():
        if address not in shown:
            where = "" if kind == "Hostname" else network
            verdicts.append(AddressVerdict(address, "", where, kind, plan.reasons[address]))
    order = {pair: number for number, pair in enumerate(kinds.items())}
    return tuple(sorted(verdicts, key=lambda verdict: order.get((verdict.address, verdict.kind), len(order))))


def _reported(
    vmi: VirtualMachineInstance, nic: Nic, kinds: Mapping[str, str], plan: AddressPlan
) -> Iterator[AddressVerdict]:
    """Yield a verdict on each address that is reported for the interface that counts."""
    dropped = {one.address: str(one.reason) for one in plan.dropped if one.reason is not DropReason.DUPLICATE}
    lost = f"the cloud-provider rule for annotation {PROVIDED_NODE_IP}: no other address of the type it names"
    unpublished = lost if plan.addresses else "nothing is published: no address of the VM may be the InternalIP"
    seen: set[str] = set()
    for text in reported_addresses(vmi, nic.name):
        plain = plain_text(text)
        if plain in seen:
            yield AddressVerdict(text, nic.name, nic.network, "", str(DropReason.DUPLICATE))
        elif plain in kinds:
            yield AddressVerdict(plain, nic.name, nic.network, kinds[plain], plan.reasons[plain])
        else:
            because = dropped.get(text) or dropped.get(plain) or unpublished
            yield AddressVerdict(text, nic.name, nic.network, "", because)
        seen.add(plain)


def _elsewhere(
    vmi: VirtualMachineInstance, nic: Nic | None, kinds: dict[str, str], plan: AddressPlan
) -> Iterator[AddressVerdict]:
    """Yield a verdict on the addresses of the other interfaces; ``kinds`` are of those that are published."""
    networks = vmi.spec.multus_networks
    why = f"addresses are read from {nic.name} ({nic.because})" if nic else "no interface of the VM counts"
    counts = next((entry for entry in vmi.interfaces if nic is not None and entry.name == nic.name), None)
    for entry in vmi.interfaces:
        if entry is counts:
            continue
        for text in entry.addresses:
            name = entry.name or entry.interface_name
            plain = plain_text(text)
            kind = kinds.pop(plain, "")
            because = plan.reasons[plain] if kind else f"on another interface: {why}"
            yield AddressVerdict(plain if kind else text, name, networks.get(entry.name, ""), kind, because)
