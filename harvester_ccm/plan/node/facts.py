"""Facts about the addresses of a Node: its annotations and the report about its VM, each parsed once."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, Protocol

from msgspec import Struct
from msgspec.json import decode

from harvester_ccm.config import NodeSettings
from harvester_ccm.kube.errors import UNREADABLE
from harvester_ccm.model.core import Node, special_use
from harvester_ccm.model.event import EventMessage
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.names import ADDITIONAL_INTERNAL_IPS, PROVIDED_NODE_IP
from harvester_ccm.netip import IPAddress, IPNetwork, RangeSet, address_in, parse_range, plain_address
from harvester_ccm.plan.node.messages import invalid_annotation
from harvester_ccm.plan.node.patch import was_initialized
from harvester_ccm.plan.node.vms import full_network, internal_ips_of, reported_addresses

_MASQUERADE: Final = "10.0.2.0/24"
_MASQUERADE_IPV6: Final = "fd10:0:2::/120"
"""The ranges in which KubeVirt's masquerade gives every VM the same address, unless the VM specifies others."""


class VirtualIPs(Protocol):
    """The addresses of load balancers, which guest agents report and which are not addresses of Nodes."""

    @property
    def listed(self) -> bool:
        """Whether Services and load balancers were listed, or cannot be listed: a Node must not wait forever."""

    def owner(self, address: str) -> str:
        """Return the object that has the address; empty if it is no virtual IP."""


class Holder(Struct, frozen=True):
    """Another Node that has an address as its InternalIP, and whose VM runs."""

    node: str
    """Name of the Node."""
    vm: str
    """Namespace and name of its VM."""


class AddressFacts(Struct, frozen=True):
    """Everything that the rules for addresses depend on."""

    node: Node
    vmi: VirtualMachineInstance
    settings: NodeSettings
    missing_for: Mapping[IPAddress, float]
    """Seconds for which each address has been in ``AddressPlan.missing``."""
    provided: tuple[IPAddress, ...]
    """Addresses of the kubelet, at most one of each family."""
    present: tuple[IPAddress, ...]
    """InternalIPs of an initialized Node."""
    reported: Mapping[str, Mapping[IPAddress, None]]
    """Usable addresses by interface of the VM, in the order of its networks."""
    unusable: Mapping[str, str]
    """Reported addresses that are not usable, with the reason."""
    candidates: Mapping[str, str]
    """Interfaces whose addresses can be published, with their networks: those in VM networks, or with
    ``--management-network`` only those in that one."""
    pod_ranges: tuple[IPNetwork, ...]
    """The ranges of the VM's addresses behind the pod network, if it has an interface there."""
    holders: Mapping[str, Holder]
    """Other Nodes that have addresses of the VM, of the kubelet or of the Node, by address."""
    additional: RangeSet
    """Addresses and ranges in the annotation for additional internal IPs."""
    invalid: tuple[EventMessage, ...]
    """Events about annotations that are ignored."""

    def is_overdue(self, address: IPAddress) -> bool:
        """Return whether an address has been missing for so long that it is replaced or used."""
        return self.missing_for.get(address, 0.0) >= self.settings.address_grace_seconds

    def is_allowed(self, address: IPAddress) -> bool:
        """Return whether the flags allow the address as InternalIP."""
        if self.settings.node_ip_cidrs:
            return is_inside(address, self.settings.node_ip_cidrs)
        return not is_inside(address, self.settings.exclude_ranges)

    def holder_of(self, address: IPAddress) -> Holder | None:
        """Return the other Node that has the address. Many VMs have one address behind the pod network."""
        holder = self.holders.get(str(address))
        if holder is None or self.is_behind_pod_network(address):
            return None
        return holder

    def is_taken(self, address: IPAddress) -> bool:
        """Return whether another Node has the address, so that this one must not get it."""
        return self.holder_of(address) is not None and address not in self.present

    def is_usable(self, address: IPAddress) -> bool:
        """Return whether the address of the kubelet can become the InternalIP."""
        return not self.is_behind_pod_network(address) and not self.is_taken(address)

    def is_behind_pod_network(self, address: IPAddress) -> bool:
        """Return whether the VM has the address behind the pod network: no other node reaches it there."""
        attached = self.vmi.spec.multus_networks
        interfaces = [name for name, addresses in self.reported.items() if address in addresses]
        if any(name in attached for name in interfaces):
            return False
        # KubeVirt does not report the address that the guest has in the range.
        return bool(interfaces) or is_inside(address, self.pod_ranges)


def read_facts(
    node: Node,
    vmi: VirtualMachineInstance,
    *,
    settings: NodeSettings,
    virtual_ips: VirtualIPs,
    holders: Mapping[str, Holder],
    missing_for: Mapping[IPAddress, float],
) -> AddressFacts:
    provided, invalid_provided = _read_provided(node, settings)
    additional, invalid_additional = _read_additional(node, settings)
    present = _present_internal_ips(node)
    kept = {*provided, *present}
    unusable: dict[str, str] = {}
    reported: dict[str, dict[IPAddress, None]] = {}
    for network in vmi.spec.networks or ():
        addresses = _usable_addresses(reported_addresses(vmi, network.name), unusable)
        # A load balancer cannot take the address of the kubelet or of the Node.
        owners = {address: virtual_ips.owner(str(address)) for address in addresses if address not in kept}
        unusable.update({str(address): f"virtual IP of {owner}" for address, owner in owners.items() if owner})
        reported[network.name] = dict.fromkeys(address for address in addresses if not owners.get(address))
    return AddressFacts(
        node=node,
        vmi=vmi,
        settings=settings,
        missing_for=missing_for,
        provided=provided,
        present=present,
        reported=reported,
        unusable=unusable,
        candidates=_candidates(vmi, settings),
        pod_ranges=_pod_ranges(vmi),
        holders=holders,
        additional=additional,
        invalid=(*invalid_provided, *invalid_additional),
    )


def addresses_of(node: Node, vmi: VirtualMachineInstance) -> Iterator[str]:
    """Yield the addresses that a Node has or can get, in their usual form: of its VM, its kubelet and its status."""
    texts = [address for interface in vmi.interfaces for address in interface.addresses]
    texts += (node.metadata.annotation(PROVIDED_NODE_IP) or "").split(",")
    for text in texts:
        address = address_in(text.strip())
        # A text that is no address is never used.
        if address is not None:
            yield str(address)
    yield from internal_ips_of(node)


def _candidates(vmi: VirtualMachineInstance, settings: NodeSettings) -> dict[str, str]:
    attached = vmi.spec.multus_networks
    if not settings.management_network:
        return attached
    wanted = settings.management_network
    return {interface: network for interface, network in attached.items() if full_network(network, vmi) == wanted}


def _pod_ranges(vmi: VirtualMachineInstance) -> tuple[IPNetwork, ...]:
    ranges: list[IPNetwork] = []
    for network in vmi.spec.networks or ():
        if network.pod is None:
            continue
        for text in (network.pod.vm_network_cidr or _MASQUERADE, network.pod.vm_ipv6_network_cidr or _MASQUERADE_IPV6):
            # KubeVirt refuses a VM with an invalid range.
            with suppress(ValueError):
                ranges.append(parse_range(text))
    return tuple(ranges)


def _read_provided(node: Node, settings: NodeSettings) -> tuple[tuple[IPAddress, ...], tuple[EventMessage, ...]]:
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
    families = {address.version for address in addresses}
    is_one_per_family = len(families) == len(addresses) > 0
    if is_one_per_family and not any(special_use(str(address)) for address in addresses):
        return addresses, ()
    expected = "an IP address, or an IPv4 and an IPv6 address (correct the kubelet's --node-ip)"
    return (), (invalid_annotation(PROVIDED_NODE_IP, value, expected),)


def _read_additional(node: Node, settings: NodeSettings) -> tuple[RangeSet, tuple[EventMessage, ...]]:
    """Return the addresses and ranges in the annotation, and an Event if it is invalid."""
    value = node.metadata.long_annotation(ADDITIONAL_INTERNAL_IPS)
    if value in {None, "", "null"} or not settings.use_provided_node_ip:
        return RangeSet(()), ()
    try:
        texts = decode(value or "", type=list[str])
        return RangeSet(parse_range(text.strip()) for text in texts), ()
    except UNREADABLE as error:
        expected = f'a JSON list of IP addresses such as ["10.0.0.5"] ({error})'
        return RangeSet(()), (invalid_annotation(ADDITIONAL_INTERNAL_IPS, value or "", expected),)


def _present_internal_ips(node: Node) -> tuple[IPAddress, ...]:
    """Return the InternalIPs of an initialized Node. Before, they are the first guess of the kubelet."""
    if not was_initialized(node):
        return ()
    return _usable_addresses(node.internal_ips, {})


def _usable_addresses(texts: Iterable[str], unusable: dict[str, str]) -> tuple[IPAddress, ...]:
    """Return the usable addresses without repetitions; add the others to ``unusable`` with the reason."""
    usable: dict[IPAddress, None] = {}
    for text in texts:
        address = address_in(text)
        if address is None:
            unusable[text] = "not an IP address"
            continue
        reason = special_use(str(address))
        if reason:
            unusable[text] = reason
        else:
            usable[address] = None
    return tuple(usable)


def is_inside(address: IPAddress, ranges: Iterable[IPNetwork]) -> bool:
    """Return whether one of the ranges contains the address."""
    return any(address in network for network in ranges)
