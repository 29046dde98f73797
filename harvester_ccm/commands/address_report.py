"""The addresses of a Node one by one: published as what, or not, and why.

What is published is always what ``plan_addresses`` says; the reasons name the rule of the plan that fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Final

from harvester_ccm.config import NodeSettings
from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import Interface, VirtualMachineInstance
from harvester_ccm.names import PROVIDED_NODE_IP
from harvester_ccm.netip import IPAddress, plain_address
from harvester_ccm.plan.node.addresses import AddressPlan, parse_provided_node_ip, plan_addresses
from harvester_ccm.plan.node.interfaces import (
    DropReason,
    Nic,
    management_nic,
    reported_addresses,
)
from harvester_ccm.plan.node.patch import was_initialised

HOSTNAME: Final = "Hostname"
INTERNAL: Final = "InternalIP"


@dataclass(frozen=True)
class AddressVerdict:
    """One address."""

    address: str
    interface: str
    """Name of the VM's interface; empty when none reports the address."""
    network: str
    kind: str
    """``InternalIP``, ``ExternalIP`` or ``Hostname``; empty when it is not published."""
    because: str

    def document(self) -> dict[str, object]:
        """Return the verdict for scripts; ``type`` is null for an address that is dropped."""
        return {
            "address": self.address,
            "interface": self.interface or None,
            "network": self.network or None,
            "kept": bool(self.kind),
            "type": self.kind or None,
            "reason": self.because,
        }


@dataclass(frozen=True)
class AddressReport:
    """All addresses of a Node, the published ones first."""

    plan: AddressPlan
    verdicts: tuple[AddressVerdict, ...]


def report_addresses(
    node: Node, instance: VirtualMachineInstance, *, settings: NodeSettings, virtual_ips: Set[IPAddress]
) -> AddressReport:
    """Return the verdict on every address that the VM reports, and on what is published without being reported."""
    plan = plan_addresses(node, instance, settings=settings, virtual_ips=virtual_ips)
    nic = management_nic(instance, settings.management_network)
    judge = _Judge(node, plan, settings, nic)
    verdicts = [*judge.reported(instance), *_elsewhere(instance, nic, settings)]
    shown = {verdict.address for verdict in verdicts if verdict.kind}
    verdicts += [judge.unreported(a.address, a.type) for a in plan.addresses if a.address not in shown]
    order = {(a.type, a.address): number for number, a in enumerate(plan.addresses)}
    verdicts.sort(key=lambda verdict: order.get((verdict.kind, verdict.address), len(order)))
    return AddressReport(plan, tuple(verdicts))


class _Judge:
    """Reasons for the addresses of the interface that counts."""

    def __init__(self, node: Node, plan: AddressPlan, settings: NodeSettings, nic: Nic | None) -> None:
        self._node = node
        self._plan = plan
        self._settings = settings
        self._nic = nic
        self._kinds = {a.address: a.type for a in plan.addresses if a.type != HOSTNAME}
        self._provided = _provided(node, settings)
        self._present = {a.address for a in node.status.addresses if a.type == INTERNAL}

    def reported(self, instance: VirtualMachineInstance) -> Iterator[AddressVerdict]:
        """Yield a verdict on each address that is reported for the interface."""
        nic = self._nic
        if nic is None:
            return
        dropped = {one.address: one.reason for one in self._plan.dropped if one.reason is not DropReason.DUPLICATE}
        seen: set[str] = set()
        for text in reported_addresses(instance, nic):
            plain = _canonical(text)
            if plain in seen:
                yield AddressVerdict(text, nic.name, nic.network, "", str(DropReason.DUPLICATE))
            elif plain in self._kinds:
                yield AddressVerdict(plain, nic.name, nic.network, self._kinds[plain], self._why_kept(plain, nic))
            else:
                reason = dropped.get(text) or dropped.get(plain)
                yield AddressVerdict(text, nic.name, nic.network, "", str(reason) if reason else self._why_not())
            seen.add(plain)

    def unreported(self, address: str, kind: str) -> AddressVerdict:
        """Return the verdict on an address that is published although no interface reports it."""
        if kind == HOSTNAME:
            return AddressVerdict(address, "", "", kind, "name of the Node")
        if address in self._provided and address not in self._present:
            why = f"annotation {PROVIDED_NODE_IP} names it, and the VM reports no address for the moment"
        else:
            why = "is the InternalIP already, and the VM reports no other that may replace it"
        return AddressVerdict(address, "", self._nic.network if self._nic else "", kind, why)

    def _why_kept(self, address: str, nic: Nic) -> str:
        if self._kinds[address] != INTERNAL:
            return f"another address of interface {nic.name}"
        if address in self._provided:
            return f"annotation {PROVIDED_NODE_IP} names it"
        plain = plain_address(address)
        inside = [str(one) for one in self._settings.node_ip_cidrs if plain in one]
        if inside:
            return f"inside --node-ip-cidr {inside[0]}"
        if was_initialised(self._node) and address in self._present:
            return "is the InternalIP already, and the VM still has it"
        passed = any(plain.version == one.version for one in self._settings.exclude_ranges)
        rule = " that is not excluded" if passed else ""
        return f"first IPv{plain.version} address of interface {nic.name}{rule}"

    def _why_not(self) -> str:
        if self._plan.addresses:
            return f"the cloud-provider rule for annotation {PROVIDED_NODE_IP}: no other address of the type it names"
        return "nothing is published: no address of the VM may be the InternalIP"


def _elsewhere(instance: VirtualMachineInstance, nic: Nic | None, settings: NodeSettings) -> Iterator[AddressVerdict]:
    """Yield a verdict on the addresses of the interfaces that do not count."""
    networks = instance.spec.multus_networks
    chosen = (
        f"--management-network {settings.management_network}" if settings.management_network else "the first interface"
    )
    why = f"addresses are read from {nic.name} ({chosen})" if nic else "no interface of the VM counts"
    passed = False
    for entry in (instance.status.interfaces if instance.status else None) or ():
        if nic is not None and entry.name == nic.name and not passed:
            passed = True
            continue
        for text in _texts(entry):
            name = entry.name or entry.interface_name
            yield AddressVerdict(text, name, networks.get(entry.name, ""), "", f"on another interface: {why}")


def _texts(entry: Interface) -> tuple[str, ...]:
    return entry.ip_addresses or ((entry.ip_address,) if entry.ip_address else ())


def _canonical(text: str) -> str:
    try:
        return str(plain_address(text))
    except ValueError:
        return text


def _provided(node: Node, settings: NodeSettings) -> frozenset[str]:
    value = node.metadata.annotation(PROVIDED_NODE_IP)
    if value is None or not settings.use_provided_node_ip:
        return frozenset()
    try:
        return frozenset(str(address) for address in parse_provided_node_ip(value))
    except ValueError:
        return frozenset()
