"""Events about the addresses of a Node that are not published, or not yet."""

from collections.abc import Iterable

from harvester_ccm.model.event import EventMessage, abbreviate
from harvester_ccm.names import NodeReason
from harvester_ccm.netip import IPAddress
from harvester_ccm.plan.node.facts import AddressFacts
from harvester_ccm.plan.node.interface import NodeInterface
from harvester_ccm.plan.node.messages import listed


def network_defaulted(facts: AddressFacts, interface: NodeInterface) -> EventMessage:
    """Return the Event for a Node whose interface was selected by nothing but its place among several."""
    cause = (
        f"The VM has several network interfaces ({listed(facts.candidates)}); the addresses of {interface.name!r} in "
        f"network {interface.network} are used"
    )
    return EventMessage("Warning", NodeReason.NETWORK_DEFAULTED, cause, "Name the network with --management-network")


def no_vm_network(facts: AddressFacts) -> EventMessage:
    """Return the Event for a VM without an interface in a VM network, or in that of --management-network."""
    flag = facts.settings.management_network or ""
    network = "a VM network"
    if flag:
        network = f"--management-network {flag}"
    cause = (
        f"VM {facts.vmi.metadata.key} has no interface in {network}; its VM networks: "
        f"{listed(facts.vmi.spec.multus_networks.values())}. Harvester's own management (pod) network does not count, "
        "because its addresses change"
    )
    remedy = "Attach the VM to a VM network, or correct --management-network"
    return EventMessage("Warning", NodeReason.NO_VM_NETWORK, cause, remedy, subject=flag)


def internal_ip_not_reported(facts: AddressFacts) -> EventMessage:
    """Return the Event for a Node with several interfaces, none of which reports the InternalIP."""
    names = ", ".join(map(str, facts.present))
    families = {address.version for address in facts.present}
    reported = {name: facts.reported[name] for name in facts.candidates}
    if not any(address.version in families for addresses in reported.values() for address in addresses):
        return no_address(facts, facts.candidates.values())
    seen = "; ".join(f"{name} has {listed(addresses)}" for name, addresses in reported.items())
    state = f"No interface of the VM reports {names} ({seen}). The Node keeps its addresses until one does"
    return _no_internal_ip(state, names)


def no_address(facts: AddressFacts, networks: Iterable[str]) -> EventMessage:
    """Return the Event for a VM that reports no usable address on these networks."""
    unusable = "".join(f"; {address} is unusable ({reason})" for address, reason in facts.unusable.items())
    cause = (
        f"VM {facts.vmi.metadata.key} has no address yet on network {listed(networks)}{unusable}"
        f"{_on_other_devices(facts)}"
    )
    return EventMessage("Warning", NodeReason.NO_ADDRESS, cause, _advice(facts))


def none_in_cidr(facts: AddressFacts, interface: NodeInterface) -> EventMessage:
    """Return the Event for a VM whose addresses are all outside --node-ip-cidr."""
    seen = listed(facts.reported[interface.name])
    ranges = ", ".join(map(str, facts.settings.node_ip_cidrs))
    state = f"None of the VM's addresses on interface {interface.name} ({seen}) is inside --node-ip-cidr {ranges}"
    return _no_internal_ip(state, ranges)


def _no_internal_ip(cause: str, subject: str) -> EventMessage:
    remedy = "Correct the address, --node-ip-cidr, --management-network or the kubelet's --node-ip"
    return EventMessage("Warning", NodeReason.NO_INTERNAL_IP, cause, remedy, subject=subject)


def node_ip_unusable(facts: AddressFacts, interface: NodeInterface, unusable: Iterable[IPAddress]) -> EventMessage:
    """Return the Event about addresses of the kubelet that are not published, or not yet."""
    for address in unusable:
        if facts.is_behind_pod_network(address):
            effect = "The Node keeps its InternalIP" if facts.present else "It is not used, and the Node waits"
            return in_pod_network(facts, address, effect)
    return node_ip_not_reported(facts, interface)


def node_ip_not_reported(facts: AddressFacts, interface: NodeInterface) -> EventMessage:
    """Return the Event for addresses of the kubelet that the selected interface does not report."""
    missing = [address for address in facts.provided if address not in interface.own]
    others = sorted({interface.elsewhere[address] for address in missing if address in interface.elsewhere})
    elsewhere = f". It is on interface {', '.join(others)}" if others else _on_other_devices(facts)
    own = listed(facts.reported.get(interface.name, ()))
    cause = (
        f"The VM does not report the kubelet's --node-ip {listed(missing)} on network {interface.network} (reported: "
        f"{own}){elsewhere}. A new Node uses it after 60 s; an initialized Node keeps its InternalIP while the VM "
        "reports that"
    )
    remedy = f"{_advice(facts)}, or correct --node-ip, the address of the VM or --management-network"
    return EventMessage("Warning", NodeReason.NODE_IP_NOT_REPORTED, cause, remedy, subject=str(missing))


def in_pod_network(facts: AddressFacts, address: IPAddress, effect: str) -> EventMessage:
    """Return the Event for an address behind Harvester's pod network; ``effect`` is what follows for the Node."""
    reported = [other for name in facts.candidates for other in facts.reported[name]]
    reachable = [str(other) for other in reported if other.version == address.version]
    choices = "one in a VM network, to which the VM must be attached"
    if reachable:
        choices = abbreviate(reachable)
    cause = (
        f"VM {facts.vmi.metadata.key} has {address} behind Harvester's management (pod) network: other nodes cannot "
        f"reach it there, and it is the same on every VM or changes with each start. {effect}"
    )
    remedy = f"Set the kubelet's --node-ip (RKE2, K3s: node-ip) to {choices}, and restart the kubelet"
    return EventMessage("Warning", NodeReason.NODE_IP_IN_POD_NETWORK, cause, remedy, subject=str(address))


def _on_other_devices(facts: AddressFacts) -> str:
    """Return a sentence about a bridge or a bond in the guest that has the MAC address of a NIC of the VM."""
    macs = {interface.mac for interface in facts.vmi.interfaces if interface.name in facts.candidates}
    found = [
        f"{interface.addresses[0]} on {interface.interface_name}"
        for interface in facts.vmi.interfaces
        if not interface.name and interface.mac in macs
    ]
    if not found:
        return ""
    return f". It reports {abbreviate(found)}, a device over this NIC: name the address with the kubelet's --node-ip"


def _advice(facts: AddressFacts) -> str:
    if facts.vmi.has_agent:
        return "Check that the VM configures this interface"
    return "Check that qemu-guest-agent runs in the VM"
