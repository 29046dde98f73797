"""The flags that choose node addresses: Go's address grammar, and the texts of the Go provider."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TypeVar

import pytest

from harvester_ccm.errors import ConfigurationError
from harvester_ccm.flags.ranges import parse_exclude_ranges, parse_management_network, parse_node_ip_cidr

T = TypeVar("T")


def problems(parse: Callable[[T], object], value: T) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as raised:
        parse(value)
    return raised.value.problems


@pytest.mark.parametrize(
    ("value", "expected"),
    [("", None), ("vlan10", "default/vlan10"), ("infra/vlan10", "infra/vlan10"), (" a/b", " a/b")],
)
def test_management_network(value: str, expected: str | None) -> None:
    assert parse_management_network(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", ()),
        (" , ,", ()),
        ("10.0.0.5", (IPv4Network("10.0.0.5/32"),)),
        (" 10.1.2.3/8 ,\u00a0FD00::1 ", (IPv4Network("10.0.0.0/8"), IPv6Network("fd00::1/128"))),
        ("::ffff:10.0.0.1/104, fd00::1", (IPv4Network("10.0.0.0/8"), IPv6Network("fd00::1/128"))),
        ("::ffff:10.44.0.0/112", (IPv4Network("10.44.0.0/16"),)),
        ("::ffff:10.44.0.7", (IPv4Network("10.44.0.7/32"),)),
        ("::ffff:0.0.0.0/96", (IPv4Network("0.0.0.0/0"),)),
        ("2001:db8::1%eth0", (IPv6Network("2001:db8::1/128"),)),
        ("126.0.0.0/7", (IPv4Network("126.0.0.0/7"),)),
        ("240.0.0.1", (IPv4Network("240.0.0.1/32"),)),
    ],
)
def test_node_ip_cidr(value: str, expected: tuple[IPv4Network | IPv6Network, ...]) -> None:
    assert parse_node_ip_cidr(value) == expected


@pytest.mark.parametrize(
    "entry",
    [
        *("junk", "10.0.0", "010.0.0.1", "10.0.0.0/08", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/-0"),
        *("10.0.0.0/255.0.0.0", "10.0.0.1%eth0", "fe80::1%eth0/64", "fd00::/129", "1::2::3", "10.0.0.1/8/8", "/8"),
    ],
)
def test_refused_address_spellings(entry: str) -> None:
    assert problems(parse_node_ip_cidr, entry) == (
        f'invalid configuration for --node-ip-cidr: invalid CIDR or IP format "{entry}"',
    )
    assert problems(parse_exclude_ranges, [entry]) == (
        f'invalid entry in --node-exclude-ip-ranges ("{entry}"): invalid IP or CIDR format: "{entry}"',
    )


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        *[(entry, "loopback addresses not allowed") for entry in ("127.0.0.1", "127.9.0.0/8", "::1")],
        ("::ffff:127.0.0.1", "loopback addresses not allowed"),
        *[(entry, "link-local addresses not allowed") for entry in ("169.254.7.0/24", "fe80::1%eth0", "224.0.0.7")],
        *[(entry, "link-local addresses not allowed") for entry in ("ff02::1", "ff12::1", "::ffff:169.254.0.1")],
        *[(entry, "must be a valid unicast address") for entry in ("224.0.1.0", "ff0e::1", "0.0.0.0/0", "::/0")],
        ("255.255.255.255", "broadcast address not allowed"),
    ],
)
def test_addresses_that_no_node_has(entry: str, fault: str) -> None:
    assert problems(parse_node_ip_cidr, entry) == (f'invalid configuration for --node-ip-cidr ("{entry}"): {fault}',)
    excluded = entry.partition("%")[0].removeprefix("::ffff:")
    assert parse_exclude_ranges([entry]) == (ip_network(excluded, strict=False),)


@pytest.mark.parametrize("entry", ["::ffff:10.44.0.7/95", "::ffff:10.44.0.7/64"])
def test_a_range_that_is_ipv4_mapped_in_part_is_refused(entry: str) -> None:
    fault = "the prefix of an IPv4-mapped range must be 96 or longer; write the IPv4 range"
    assert problems(parse_node_ip_cidr, entry) == (f'invalid configuration for --node-ip-cidr ("{entry}"): {fault}',)


def test_an_ipv4_mapped_range_counts_as_ipv4() -> None:
    value = "::ffff:10.0.0.1/104, 10.0.0.0/8"
    assert problems(parse_node_ip_cidr, value) == (
        f'invalid configuration for --node-ip-cidr: multiple IPv4 entries in "{value}"',
    )
    assert parse_exclude_ranges(["::ffff:10.44.0.0/112"]) == (IPv4Network("10.44.0.0/16"),)


def test_exclude_ranges_are_trimmed_and_empty_ones_skipped() -> None:
    assert parse_exclude_ranges(["10.0.0.1", " ", "10.0.0.2/31", " fd00::/8 "]) == (
        IPv4Network("10.0.0.1/32"),
        IPv4Network("10.0.0.2/31"),
        IPv6Network("fd00::/8"),
    )
