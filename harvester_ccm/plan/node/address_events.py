"""Events about the addresses of a Node that are not published, or not yet."""

from collections.abc import Iterable

from harvester_ccm.model.event import EventMessage, abbreviate
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.names import NodeReason
from harvester_ccm.netip import IPAddress
from harvester_ccm.plan.node.facts import AddressFacts
from harvester_ccm.plan.node.interface import Interface
from harvester_ccm.plan.node.messages import warning


def network_defaulted(facts: AddressFacts, interface: Interface) -> EventMessage:
    """Return the Event for a Node whose interface was selected by nothing but its place among several."""
    names = list(facts.candidates)
    return warning(NodeReason.NETWORK_DEFAULTED, nic=interface.name, nics=names, network=interface.network)


def no_vm_network(facts: AddressFacts) -> EventMessage:
    """Return the Event for a VM without an interface in a VM network, or in that of --management-network."""
    flag = facts.settings.management_network or ""
    network = "a VM network"
    if flag:
        network = f"--management-network {flag}"
    attached = list(facts.vmi.spec.multus_networks.values())
    return _warning(facts.vmi, NodeReason.NO_VM_NETWORK, flag, network=network, attached=attached)


def internal_ip_not_reported(facts: AddressFacts) -> EventMessage:
    """Return the Event for a Node with several interfaces, none of which reports the InternalIP."""
    names = ", ".join(map(str, facts.present))
    families = {address.version for address in facts.present}
    reported = {name: facts.reported[name] for name in facts.candidates}
    if not any(address.version in families for addresses in reported.values() for address in addresses):
        return no_address(facts, facts.candidates.values())
    seen = "; ".join(f"{name} has {_listed(addresses)}" for name, addresses in reported.items())
    state = f"No interface of the VM reports {names} ({seen}). The Node keeps its addresses until one does"
    return warning(NodeReason.NO_INTERNAL_IP, names, state=state)


def no_address(facts: AddressFacts, networks: Iterable[str]) -> EventMessage:
    """Return the Event for a VM that reports no usable address on these networks."""
    unusable = "".join(f"; {address} is unusable ({reason})" for address, reason in facts.unusable.items())
    unusable = f"{unusable}{_on_other_devices(facts)}"
    return _warning(facts.vmi, NodeReason.NO_ADDRESS, network=list(networks), unusable=unusable)


def none_in_cidr(facts: AddressFacts, interface: Interface) -> EventMessage:
    """Return the Event for a VM whose addresses are all outside --node-ip-cidr."""
    seen = _listed(facts.reported[interface.name])
    ranges = ", ".join(map(str, facts.settings.node_ip_cidrs))
    state = f"None of the VM's addresses on interface {interface.name} ({seen}) is inside --node-ip-cidr {ranges}"
    return warning(NodeReason.NO_INTERNAL_IP, ranges, state=state)


def node_ip_unusable(facts: AddressFacts, interface: Interface, unusable: Iterable[IPAddress]) -> EventMessage:
    """Return the Event about addresses of the kubelet that are not published, or not yet."""
    for address in unusable:
        if facts.is_behind_pod_network(address):
            effect = "The Node keeps its InternalIP" if facts.present else "It is not used, and the Node waits"
            return in_pod_network(facts, address, effect)
    return node_ip_not_reported(facts, interface)


def node_ip_not_reported(facts: AddressFacts, interface: Interface) -> EventMessage:
    """Return the Event for addresses of the kubelet that the selected interface does not report."""
    missing = [address for address in facts.provided if address not in interface.own]
    others = sorted({interface.elsewhere[address] for address in missing if address in interface.elsewhere})
    return _warning(
        facts.vmi,
        NodeReason.NODE_IP_NOT_REPORTED,
        str(missing),
        addresses=missing,
        network=interface.network,
        own=list(facts.reported.get(interface.name, ())),
        elsewhere=f". It is on interface {', '.join(others)}" if others else _on_other_devices(facts),
    )


def in_pod_network(facts: AddressFacts, address: IPAddress, effect: str) -> EventMessage:
    """Return the Event for an address behind Harvester's pod network; ``effect`` is what follows for the Node."""
    reported = [other for name in facts.candidates for other in facts.reported[name]]
    reachable = [str(other) for other in reported if other.version == address.version]
    choices = "one in a VM network, to which the VM must be attached"
    if reachable:
        choices = abbreviate(reachable)
    return warning(
        NodeReason.NODE_IP_IN_POD_NETWORK,
        str(address),
        vm=facts.vmi.metadata.key,
        address=address,
        effect=effect,
        choices=choices,
    )


def _listed(addresses: Iterable[IPAddress]) -> str:
    return ", ".join(map(str, addresses)) or "none"


def _on_other_devices(facts: AddressFacts) -> str:
    """Return a sentence about a bridge or a bond in the guest that has the MAC address of a NIC of the VM."""
    macs = {interface.mac for interface in facts.vmi.interfaces if interface.name in facts.candidates} - {""}
    found = [
        f"{interface.addresses[0]} on {interface.interface_name}"
        for interface in facts.vmi.interfaces
        if not interface.name and interface.mac in macs and interface.addresses
    ]
    if not found:
        return ""
    return f". It reports {abbreviate(found)}, a device over this NIC: name the address with the kubelet's --node-ip"


def _warning(vmi: VirtualMachineInstance, reason: NodeReason, subject: str = "", **fields: object) -> EventMessage:
    """Return a Warning that names the VM and gives advice about its guest agent."""
    advice = "the VM configures this interface" if vmi.has_agent else "qemu-guest-agent runs in the VM"
    return warning(reason, subject, vm=vmi.metadata.key, advice=f"Check that {advice}", **fields)
