"""What an IP pool says about a requested address."""

from typing import Any, Final

import msgspec
import pytest

from harvester_ccm.kube.objects import ResourceRule
from harvester_ccm.model.harvester import IP_POOLS, IPPool
from harvester_ccm.plan.service.allocation.address_pools import (
    PoolRights,
    can_allocate,
    ranges_text,
    rights_of,
)

WANTED: Final = "10.0.0.20"
LAN: Final = {"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.10", "rangeEnd": "10.0.0.99", "gateway": "10.0.0.50"}


def pool(*ranges: Any, **status: Any) -> IPPool:
    document = {"metadata": {"name": "lan", "resourceVersion": "5"}, "spec": {"ranges": ranges or [LAN]}}
    return IP_POOLS.decode(msgspec.json.encode({**document, "status": status}))


WHOLE: Final = {"subnet": "10.0.0.0/24"}
PLACES: dict[str, tuple[str, Any, bool]] = {
    "first": ("10.0.0.10", LAN, True),
    "last": ("10.0.0.99", LAN, True),
    "below": ("10.0.0.9", LAN, False),
    "above": ("10.0.0.100", LAN, False),
    "gateway": ("10.0.0.50", LAN, False),
    "network address": ("10.0.0.0", LAN, False),
    "broadcast address": ("10.0.0.255", LAN, False),
    "gateway by default": ("10.0.0.1", WHOLE, False),
    "first address beside another gateway": ("10.0.0.1", {**WHOLE, "gateway": "10.0.0.254"}, True),
    "first by default": ("10.0.0.2", WHOLE, True),
    "last by default": ("10.0.0.254", WHOLE, True),
    "host bits in the subnet": ("10.0.0.254", {"subnet": "10.0.0.7/24"}, True),
    "start above the end": (WANTED, {**WHOLE, "rangeStart": "10.0.0.30", "rangeEnd": "10.0.0.15"}, True),
    "single address": ("10.0.0.7", {"subnet": "10.0.0.7/32"}, True),
    "not the single address": ("10.0.0.8", {"subnet": "10.0.0.7/32"}, False),
    "first of two addresses": ("10.0.0.6", {"subnet": "10.0.0.6/31", "rangeStart": "10.0.0.6"}, True),
    "gateway by default of two addresses": ("10.0.0.7", {"subnet": "10.0.0.6/31"}, False),
    "broadcast address of four addresses": ("10.0.0.7", {"subnet": "10.0.0.4/30"}, False),
    "range of IPv6": (WANTED, {"subnet": "fd00::/64"}, False),
    "no range": (WANTED, {"subnet": "lan"}, False),
}


@pytest.mark.parametrize(("address", "entry", "expected"), PLACES.values(), ids=PLACES)
def test_address_of_a_range(address: str, entry: Any, *, expected: bool) -> None:
    assert can_allocate(pool(entry), address) is expected


def test_any_range_can_have_the_address() -> None:
    entries = [LAN, {"subnet": "10.1.0.0/24"}]
    assert can_allocate(pool(*entries), "10.1.0.7")
    assert not can_allocate(pool(*entries), "10.1.0.1")
    assert ranges_text(pool(*entries, {"subnet": "fd00::/64"})) == ["10.0.0.10-10.0.0.99", "10.1.0.1-10.1.0.254"]


LB_GROUP: Final = "loadbalancer.harvesterhci.io"
BOTH: Final = ("get", "patch")


def rule(
    verbs: tuple[str, ...] = BOTH,
    *names: str,
    groups: tuple[str, ...] = (LB_GROUP,),
    resources: tuple[str, ...] = ("ippools",),
) -> ResourceRule:
    return ResourceRule(verbs=verbs, api_groups=groups, resources=resources, resource_names=names or None)


GRANTS: dict[str, tuple[list[ResourceRule], PoolRights]] = {
    "none": ([], PoolRights()),
    "two pools": ([rule(BOTH, "lan", "dmz")], PoolRights(frozenset({"lan", "dmz"}))),
    "in two rules": ([rule(("get",), "lan", "dmz"), rule(("patch",), "lan")], PoolRights(frozenset({"lan"}))),
    "every pool is readable": ([rule(("get", "list")), rule(("patch",), "lan")], PoolRights(frozenset({"lan"}))),
    "every pool is writable": ([rule(("get",), "lan"), rule(("patch",))], PoolRights(frozenset({"lan"}))),
    "every pool": ([rule()], PoolRights(are_all=True)),
    "everything": ([rule(("*",), groups=("*",), resources=("*",))], PoolRights(are_all=True)),
    "without patch": ([rule(("get", "update"), "lan")], PoolRights()),
    "load balancers": ([rule(resources=("loadbalancers",))], PoolRights()),
    "another group": ([rule(groups=("",))], PoolRights()),
    "a subresource": ([rule(resources=("ippools/status",))], PoolRights()),
}


@pytest.mark.parametrize(("rules", "expected"), GRANTS.values(), ids=GRANTS)
def test_rights_of_a_credential(rules: list[ResourceRule], expected: PoolRights) -> None:
    assert rights_of(rules) == expected


def test_rights() -> None:
    rights = PoolRights(frozenset({"lan"}))
    assert (rights.permit("lan"), rights.permit("dmz")) == (True, False)
    assert (PoolRights(are_all=True).permit("dmz"), PoolRights(are_all=True).permit("")) == (True, False)
