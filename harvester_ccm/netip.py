"""IP addresses and prefixes as the Go provider reads them, so that no value changes its meaning.

The grammar is the one of Go's ``net/netip``: no leading zeros in IPv4 octets or prefix lengths, no blanks, no IPv4
short forms, no netmasks. An IPv6 zone is allowed in an address and forbidden in a prefix. Host bits in a prefix are
allowed. An IPv4-mapped IPv6 address stays IPv6.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
REMEMBERED: Final = 4096
"""Texts whose addresses are kept: machines report the same ones again and again, and reading one takes microseconds."""

LONGEST_REMEMBERED: Final = 64
"""Characters of those: no address has more than 45, and no interface that is its zone more than 15. A guest agent may
report a zone of any length."""


def ipv4_text(text: str) -> str:
    """Return the IPv4 address that a text is, or an empty one.

    >>> ipv4_text(" 10.0.0.7 "), ipv4_text("fd00::1")
    ('10.0.0.7', '')
    """
    try:
        return str(ipaddress.IPv4Address(text.strip()))
    except ValueError:
        return ""


def plain_address(text: str) -> IPAddress:
    """Return the address without a zone, an IPv4-mapped one as IPv4. Raises ValueError.

    >>> plain_address("::ffff:10.0.0.1"), plain_address("FD00::1%eth0")
    (IPv4Address('10.0.0.1'), IPv6Address('fd00::1'))
    """
    return (_remembered if len(text) <= LONGEST_REMEMBERED else _plain)(text)


def _plain(text: str) -> IPAddress:
    address = unmapped(ipaddress.ip_address(text))
    return ipaddress.IPv6Address(int(address)) if address.version == 6 else address


_remembered = lru_cache(REMEMBERED)(_plain)


def unmapped(address: IPAddress) -> IPAddress:
    """Return an IPv4-mapped IPv6 address as the IPv4 address that it carries, any other as it is."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def unmapped_range(network: IPNetwork) -> IPNetwork:
    """Return a range of IPv4-mapped IPv6 addresses as the IPv4 range that it carries, any other as it is.

    >>> unmapped_range(ipaddress.ip_network("::ffff:10.44.0.0/112"))
    IPv4Network('10.44.0.0/16')
    """
    address = unmapped(network.network_address)
    return _network(address, network.prefixlen - network.max_prefixlen + address.max_prefixlen)


def parse_prefix(text: str) -> tuple[IPAddress, IPNetwork]:
    """Return the address before the slash as it was written, and the range it stands for. Raises ValueError.

    >>> parse_prefix("10.0.0.7/8")
    (IPv4Address('10.0.0.7'), IPv4Network('10.0.0.0/8'))
    """
    head, slash, bits = text.rpartition("/")
    if not slash:
        raise ValueError(f"{text!r} has no prefix length")
    address = ipaddress.ip_address(head)
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        raise ValueError(f"{text!r} has a zone, which a prefix cannot have")
    digits = bits.isascii() and bits.isdigit() and (bits == "0" or bits[0] != "0")
    if not digits or len(bits) > 3 or int(bits) > address.max_prefixlen:
        raise ValueError(f"{text!r} has no valid prefix length")
    return address, _network(address, int(bits))


def parse_range(text: str) -> tuple[IPAddress, IPNetwork]:
    """Return the written address and its range for a prefix or a single address. Raises ValueError.

    A single address is the range that holds only itself; its zone is dropped there.
    """
    try:
        return parse_prefix(text)
    except ValueError:
        address = ipaddress.ip_address(text)
        return address, _network(address, address.max_prefixlen)


def _network(address: IPAddress, bits: int) -> IPNetwork:
    if isinstance(address, ipaddress.IPv4Address):
        return ipaddress.IPv4Network((int(address), bits), strict=False)
    return ipaddress.IPv6Network((int(address), bits), strict=False)
