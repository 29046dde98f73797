"""The order of a Node's addresses: that of the annotation of the kubelet's address, else the present one."""

from __future__ import annotations

from collections.abc import Sequence

from harvester_ccm.model.core import Node, NodeAddress
from harvester_ccm.names import PROVIDED_NODE_IP
from harvester_ccm.netip import IPAddress, plain_address
from harvester_ccm.plan.node.interfaces import plain_text


def arranged(node: Node, addresses: tuple[NodeAddress, ...]) -> tuple[NodeAddress, ...]:
    """Return the addresses as the framework arranges them, unless that would lose an InternalIP.

    The framework looks at the annotation whatever the flags say. With the annotation switched off it can name
    addresses that are not the InternalIPs; there Go loses one, or never initialises the Node.
    """
    value = node.metadata.annotation(PROVIDED_NODE_IP)
    if value is None:
        return addresses
    try:
        arranged = prefer_provided(addresses, parse_provided_node_ip(value))
    except ValueError:
        return addresses
    lost = [address for address in addresses if address.type == "InternalIP" and address not in arranged]
    return addresses if lost else arranged


def in_present_order(wanted: Sequence[NodeAddress], present: Sequence[NodeAddress]) -> tuple[NodeAddress, ...]:
    """Return the wanted addresses with those that are present already in their present order.

    New ones stay where the report has them. So a report in another order changes nothing.
    """
    order = iter([address for address in dict.fromkeys(present) if address in wanted])
    return tuple(next(order) if address in present else address for address in wanted)


def parse_provided_node_ip(value: str) -> tuple[IPAddress, ...]:
    """Return the addresses in their order. Raises ValueError with a sentence for the owner of the Node.

    Blanks around an address are accepted; Go's framework refuses them.
    """
    try:
        addresses = tuple(plain_address(part.strip()) for part in value.split(","))
    except ValueError as error:
        raise ValueError(f"is {value!r}, expected an IP address or an IPv4 and an IPv6 address: {error}") from None
    if len({address.version for address in addresses}) < len(addresses):
        raise ValueError(f"is {value!r}, expected at most one address of each family")
    if any(address.is_unspecified for address in addresses):
        raise ValueError(f"is {value!r}, expected addresses other than 0.0.0.0 and ::")
    return addresses


def prefer_provided(addresses: Sequence[NodeAddress], provided: Sequence[IPAddress]) -> tuple[NodeAddress, ...]:
    """Return the addresses as the cloud-provider framework arranges them for the annotation.

    The provided addresses come first, in the annotation's order; other addresses of a type that one of them has go
    away; all others follow in their order. Raises ValueError when a provided address is not among the addresses.
    """
    first: list[NodeAddress] = []
    for wanted in provided:
        equal = [address for address in addresses if plain_text(address.address) == str(wanted)]
        if not equal:
            raise ValueError(f"{wanted} is not an address of the VM")
        first += equal
    enforced = {address.type for address in first}
    return (*first, *(address for address in addresses if address.type not in enforced))
