"""Ranges of addresses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harvester_ccm.netip import RangeSet, common_network, parse_range, plain_address

RANGES = ["10.0.0.0/8", "10.0.0.0/31", "10.0.0.3", "0.0.0.0/0", "192.168.5.0/24", "fd00::/64", "fd00::1", "::/0"]
ADDRESSES = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "192.168.5.255", "192.168.6.0", "fd00::1", "fd00:0:0:1::1", "::1"]


@given(st.lists(st.sampled_from(RANGES)), st.sampled_from(ADDRESSES))
def test_set_of_ranges_contains_what_one_of_them_contains(texts: list[str], address: str) -> None:
    ranges = [parse_range(text) for text in texts]
    assert (plain_address(address) in RangeSet(ranges)) == any(plain_address(address) in one for one in ranges)


LONGEST = "fd00:1111:2222:3333:4444:5555:6666:7777"


def test_zone_with_the_longest_name_of_a_device_is_removed_and_a_longer_text_is_no_address() -> None:
    assert str(plain_address(f"{LONGEST}%{'e' * 15}")) == LONGEST
    with pytest.raises(ValueError, match="too long"):
        plain_address(f"{LONGEST}%{'e' * 100}")


@pytest.mark.parametrize("text", ["fd00::1%eth0/64", "10.0.0.0/08", "10.0.0.0/", "10.0.0.0/33", "fd00::/129"])
def test_text_is_no_range(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_range(text)


@pytest.mark.parametrize(("text", "expected"), [("::ffff:0:0/96", "0.0.0.0/0"), ("fd00::7/64", "fd00::/64")])
def test_range_is_read_without_its_host_bits(text: str, expected: str) -> None:
    assert str(parse_range(text)) == expected


def test_ipv6_address_with_the_number_of_an_ipv4_address_is_another_one() -> None:
    assert plain_address("::a00:7") not in RangeSet([parse_range("10.0.0.0/24")])


def test_widest_range_of_cluster_ips_has_20_bits() -> None:
    assert common_network(["10.96.0.1", "10.111.255.254"]) == [parse_range("10.96.0.0/12")]
