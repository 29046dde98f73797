"""Ranges of addresses."""

from hypothesis import given
from hypothesis import strategies as st

from harvester_ccm.netip import RangeSet, parse_range, plain_address

RANGES = ["10.0.0.0/8", "10.0.0.0/31", "10.0.0.3", "0.0.0.0/0", "192.168.5.0/24", "fd00::/64", "fd00::1", "::/0"]
ADDRESSES = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "192.168.5.255", "192.168.6.0", "fd00::1", "fd00:0:0:1::1", "::1"]


@given(st.lists(st.sampled_from(RANGES)), st.sampled_from(ADDRESSES))
def test_set_of_ranges_contains_what_one_of_them_contains(texts: list[str], address: str) -> None:
    ranges = [parse_range(text) for text in texts]
    assert (plain_address(address) in RangeSet(ranges)) == any(plain_address(address) in one for one in ranges)
