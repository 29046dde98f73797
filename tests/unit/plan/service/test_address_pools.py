"""What an IP pool says about a requested address."""

from typing import Any, Final

import msgspec
import pytest

from harvester_ccm.kube.objects import ResourceRule
from harvester_ccm.model.harvester import IP_POOLS, IPPool
from harvester_ccm.plan.service.allocation.address_pools import (
    ObservedPool,
    PoolRights,
    Standing,
    ranges_text,
    rights_of,
    standing_of,
)

OWNER: Final = "vms/demo-shop-web-1"
WANTED: Final = "10.0.0.20"
LAN: Final = {"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.10", "rangeEnd": "10.0.0.99", "gateway": "10.0.0.50"}


def pool(*ranges: Any, **status: Any) -> IPPool:
    document = {"metadata": {"name": "lan", "resourceVersion": "5"}, "spec": {"ranges": ranges or [LAN]}}
    return IP_POOLS.decode(msgspec.json.encode({**document, "status": status}))


def standing(address: str, *ranges: Any, **status: Any) -> Standing:
    return standing_of(ObservedPool("lan", pool(*ranges, **status)), address, OWNER)


STANDINGS: dict[str, tuple[dict[str, Any], Standing]] = {
    "nobody has it": ({}, Standing.FREE),
    "another load balancer has it": ({"allocated": {WANTED: "vms/other"}}, Standing.IN_USE),
    "another load balancer had it": ({"allocatedHistory": {WANTED: "vms/other"}}, Standing.FREE),
    "requested": ({"allocatedHistory": {WANTED: OWNER}}, Standing.DECIDED),
    "it had another one": ({"allocatedHistory": {"10.0.0.30": OWNER}}, Standing.DECIDED),
    "it had several": ({"allocatedHistory": {WANTED: OWNER, "10.0.0.30": OWNER}}, Standing.DECIDED),
    "it has another one": (
        {"allocated": {"10.0.0.30": OWNER}, "allocatedHistory": {WANTED: OWNER}},
        Standing.DECIDED,
    ),
    "it has it": ({"allocated": {WANTED: OWNER}}, Standing.DECIDED),
    "not ready": ({"conditions": [{"type": "Ready", "status": "False"}]}, Standing.ABSENT),
    "ready": ({"conditions": [{"type": "Ready", "status": "True"}]}, Standing.FREE),
}


@pytest.mark.parametrize(("status", "expected"), STANDINGS.values(), ids=STANDINGS)
def test_standing_by_status(status: dict[str, Any], expected: Standing) -> None:
    assert standing(WANTED, **status) is expected


def test_pool_that_does_not_exist_or_is_being_deleted() -> None:
    assert standing_of(ObservedPool("lan", None), WANTED, OWNER) is Standing.ABSENT
    deleted = IP_POOLS.decode(b'{"metadata":{"name":"lan","deletionTimestamp":"2026-01-01T00:00:00Z"}}')
    assert standing_of(ObservedPool("lan", deleted), WANTED, OWNER) is Standing.ABSENT


WHOLE: Final = {"subnet": "10.0.0.0/24"}
PLACES: dict[str, tuple[str, Any, Standing]] = {
    "first": ("10.0.0.10", LAN, Standing.FREE),
    "last": ("10.0.0.99", LAN, Standing.FREE),
    "below": ("10.0.0.9", LAN, Standing.OUTSIDE),
    "above": ("10.0.0.100", LAN, Standing.OUTSIDE),
    "gateway": ("10.0.0.50", LAN, Standing.OUTSIDE),
    "network address": ("10.0.0.0", LAN, Standing.OUTSIDE),
    "broadcast address": ("10.0.0.255", LAN, Standing.OUTSIDE),
    "gateway by default": ("10.0.0.1", WHOLE, Standing.OUTSIDE),
    "first by default": ("10.0.0.2", WHOLE, Standing.FREE),
    "last by default": ("10.0.0.254", WHOLE, Standing.FREE),
    "host bits in the subnet": ("10.0.0.254", {"subnet": "10.0.0.7/24"}, Standing.FREE),
    "start above the end": (WANTED, {**WHOLE, "rangeStart": "10.0.0.30", "rangeEnd": "10.0.0.15"}, Standing.FREE),
    "single address": ("10.0.0.7", {"subnet": "10.0.0.7/32"}, Standing.FREE),
    "not the single address": ("10.0.0.8", {"subnet": "10.0.0.7/32"}, Standing.OUTSIDE),
    "range of IPv6": (WANTED, {"subnet": "fd00::/64"}, Standing.OUTSIDE),
    "no range": (WANTED, {"subnet": "lan"}, Standing.OUTSIDE),
}


@pytest.mark.parametrize(("address", "entry", "expected"), PLACES.values(), ids=PLACES)
def test_standing_by_range(address: str, entry: Any, expected: Standing) -> None:
    assert standing(address, entry) is expected


def test_any_range_can_have_the_address() -> None:
    entries = [LAN, {"subnet": "10.1.0.0/24"}]
    assert standing("10.1.0.7", *entries) is Standing.FREE
    assert standing("10.1.0.1", *entries) is Standing.OUTSIDE
    assert ranges_text(pool(*entries, {"subnet": "fd00::/64"})) == ["10.0.0.10-10.0.0.99", "10.1.0.1-10.1.0.254"]


def test_large_history_is_read_once() -> None:
    history = {f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}": "vms/x" for number in range(65536)}
    assert standing(WANTED, allocatedHistory=history) is Standing.FREE


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
    assert (rights.permit("lan"), rights.permit("dmz"), rights.exist) == (True, False, True)
    assert (PoolRights(are_all=True).permit("dmz"), PoolRights(are_all=True).permit("")) == (True, False)
    assert not PoolRights().exist
