"""IP addresses and ranges as the Go provider reads them, so that no value changes its meaning.

The grammar is the one of Go's ``net/netip``: no leading zeros in IPv4 octets or prefix lengths, no blanks, no IPv4
short forms, no netmasks. An IPv6 zone is allowed in an address and forbidden in a prefix. Host bits in a prefix are
allowed. An IPv4-mapped IPv6 address counts as the IPv4 address that it contains.
"""

import ipaddress
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Final

MAX_ADDRESS: Final = 64
"""Characters of the longest IP address, with the name of a network device as its zone."""
_ANYWHERE: Final = ipaddress.IPv4Network("0.0.0.0/0")
_WIDEST: Final = 12
"""Prefix length of the largest range of cluster IPs."""
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@lru_cache(4096)
def plain_address(text: str) -> IPAddress:
    """Return the address without a zone. VMs report the same ones again and again. Raises ValueError.

    >>> plain_address("::ffff:10.0.0.1"), plain_address("FD00::1%eth0")
    (IPv4Address('10.0.0.1'), IPv6Address('fd00::1'))
    """
    # The zone of an IPv6 address can have any length, and results are kept by their text. Errors are not.
    if len(text) > MAX_ADDRESS:
        raise ValueError(f"{text[:MAX_ADDRESS]!r} is too long for an address")
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv4Address):
        return address
    return address.ipv4_mapped or ipaddress.IPv6Address(int(address))


def address_in(text: str) -> IPAddress | None:
    """Return the address that a text is, without a zone; None for any other text.

    >>> address_in("::ffff:10.0.0.1"), address_in("web.example.org")
    (IPv4Address('10.0.0.1'), None)
    """
    try:
        return plain_address(text)
    except ValueError:
        return None


def parse_range(text: str) -> IPNetwork:
    """Return the range of a prefix, or of a single address. Raises ValueError.

    >>> parse_range("10.0.0.7/8"), parse_range("fd00::1%eth0"), parse_range("::ffff:10.44.0.0/112")
    (IPv4Network('10.0.0.0/8'), IPv6Network('fd00::1/128'), IPv4Network('10.44.0.0/16'))
    """
    head, slash, length = text.rpartition("/")
    if slash and ("%" in head or not re.fullmatch("0|[1-9][0-9]{0,2}", length)):
        raise ValueError(f"{text!r} is not a prefix")
    address = ipaddress.ip_address(head or text)
    bits = int(length) if slash else address.max_prefixlen
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped and bits >= 96:
        address = address.ipv4_mapped
        bits -= 96
    if isinstance(address, ipaddress.IPv4Address):
        return ipaddress.IPv4Network((int(address), bits), strict=False)
    return ipaddress.IPv6Network((int(address), bits), strict=False)


def ipv4_ranges(texts: Iterable[str]) -> list[ipaddress.IPv4Network]:
    """Return the IPv4 addresses and ranges among texts."""
    ranges: list[ipaddress.IPv4Network] = []
    for text in texts:
        with suppress(ValueError):
            network = parse_range(text)
            if isinstance(network, ipaddress.IPv4Network):
                ranges.append(network)
    return ranges


def common_network(texts: Iterable[str]) -> list[ipaddress.IPv4Network]:
    """Return the smallest IPv4 network with all these addresses and ranges; none if they are not of one cluster.

    Kubernetes allocates from one range, of at most 20 bits for Services. The result is a part of that range.

    >>> common_network(["10.43.0.1", "10.43.0.10", "fd00::1"]), common_network(["10.43.0.1", "172.16.0.1"])
    ([IPv4Network('10.43.0.0/28')], [])
    """
    first, *others = ipv4_ranges(texts) or [_ANYWHERE]
    while not all(other.subnet_of(first) for other in others):
        first = first.supernet()
    return [first] if first.prefixlen >= _WIDEST else []


class RangeSet:
    """Ranges in which an address is found in the same time, however many ranges there are."""

    def __init__(self, ranges: Iterable[IPNetwork]) -> None:
        self._prefixes: dict[tuple[int, int], set[int]] = {}
        """IP version and number of bits behind the prefix to the prefixes."""
        for network in ranges:
            rest = network.max_prefixlen - network.prefixlen
            self._prefixes.setdefault((network.version, rest), set()).add(int(network.network_address) >> rest)

    def __contains__(self, address: IPAddress) -> bool:
        """Return whether one of the ranges contains the address.

        >>> plain_address("10.0.0.7") in RangeSet([parse_range("10.0.0.0/24")])
        True
        """
        return any(
            version == address.version and int(address) >> rest in prefixes
            for (version, rest), prefixes in self._prefixes.items()
        )
