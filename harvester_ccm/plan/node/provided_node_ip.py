"""The annotation ``alpha.kubernetes.io/provided-node-ip``: the address, or one per family, the kubelet was given."""

from __future__ import annotations

from collections.abc import Sequence

from harvester_ccm.model.core import NodeAddress
from harvester_ccm.netip import IPAddress, plain_address


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
        equal = [address for address in addresses if _is(address, wanted)]
        if not equal:
            raise ValueError(f"{wanted} is not an address of the VM")
        first += equal
    enforced = {address.type for address in first}
    return (*first, *(address for address in addresses if address.type not in enforced))


def _is(address: NodeAddress, wanted: IPAddress) -> bool:
    try:
        return plain_address(address.address) == wanted
    except ValueError:
        return False
