"""Rules for the flags that choose node addresses, with the error texts of the Go provider.

Operators meet these texts in logs and documentation of the provider that is replaced, so they stay as they were.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Sequence
from typing import Final

from harvester_ccm.errors import ConfigurationError
from harvester_ccm.flags.values import go_quote
from harvester_ccm.netip import IPAddress, IPNetwork, parse_range, unmapped, unmapped_range

_BROADCAST: Final = ipaddress.IPv4Address("255.255.255.255")
_LOCAL_MULTICAST: Final = ipaddress.IPv4Network("224.0.0.0/24")


def parse_management_network(value: str) -> str | None:
    """Return ``namespace/name``, None for an empty value. Raises ConfigurationError."""
    parts = value.split("/")
    prefix = "invalid configuration for --management-network: "
    if len(parts) > 2:
        name = go_quote(value)
        raise ConfigurationError([f"{prefix}network type managementNetwork name {name} has too many slashes"])
    if len(parts) == 2 and not all(parts):
        raise ConfigurationError(
            [f"{prefix}invalid network type managementNetwork format {go_quote(value)}, expected 'namespace/name'"]
        )
    if len(parts) == 2:
        return value
    return f"default/{value}" if value else None


def parse_node_ip_cidr(value: str) -> tuple[IPNetwork, ...]:
    """Return the ranges of the comma list, at most one per family. Raises ConfigurationError with all problems."""
    problems: list[str] = []
    networks: list[IPNetwork] = []
    for entry in _entries(value.split(",")):
        try:
            address, network = parse_range(entry)
        except ValueError:
            problems.append(f"invalid configuration for --node-ip-cidr: invalid CIDR or IP format {go_quote(entry)}")
            continue
        networks.append(unmapped_range(network))
        fault = _fault(address) or _split(address, networks[-1])
        if fault:
            problems.append(f"invalid configuration for --node-ip-cidr ({go_quote(entry)}): {fault}")
    families = Counter(network.version for network in networks)
    problems += [
        f"invalid configuration for --node-ip-cidr: multiple IPv{family} entries in {go_quote(value)}"
        for family in (4, 6)
        if families[family] > 1
    ]
    if problems:
        raise ConfigurationError(problems)
    return tuple(networks)


def parse_exclude_ranges(values: Sequence[str]) -> tuple[IPNetwork, ...]:
    """Return the ranges; any number, anywhere. Raises ConfigurationError with all problems."""
    problems: list[str] = []
    networks: list[IPNetwork] = []
    for entry in _entries(values):
        try:
            networks.append(unmapped_range(parse_range(entry)[1]))
        except ValueError:
            quoted = go_quote(entry)
            problems.append(
                f"invalid entry in --node-exclude-ip-ranges ({quoted}): invalid IP or CIDR format: {quoted}"
            )
    if problems:
        raise ConfigurationError(problems)
    return tuple(networks)


def _entries(values: Sequence[str]) -> list[str]:
    return [entry for value in values if (entry := value.strip())]


def _fault(address: IPAddress) -> str | None:
    """Say why an address cannot be a node's; an IPv4-mapped one is judged as the IPv4 address that it carries."""
    plain = unmapped(address)
    if plain.is_loopback:
        return "loopback addresses not allowed"
    if plain.is_link_local or _is_link_local_multicast(plain):
        return "link-local addresses not allowed"
    # Go does not see an IPv4-mapped 0.0.0.0 or 255.255.255.255 as special.
    if plain.is_multicast or address.is_unspecified:
        return "must be a valid unicast address"
    if address == _BROADCAST:
        return "broadcast address not allowed"
    return None


def _split(address: IPAddress, network: IPNetwork) -> str | None:
    """Say that a range is IPv4-mapped only in part: addresses are read as IPv4, so none could ever be inside."""
    if unmapped(address).version == network.version:
        return None
    return "the prefix of an IPv4-mapped range must be 96 or longer; write the IPv4 range"


def _is_link_local_multicast(address: IPAddress) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return address in _LOCAL_MULTICAST
    return (int(address) >> 112) & 0xFF0F == 0xFF02
