"""Every combination of flags, annotations and reports: the Go provider's result, or a known fault of its."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from ipaddress import ip_address

import pytest

from harvester_ccm.config import NodeSettings
from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.netip import parse_range, plain_address
from harvester_ccm.plan.node.addresses import AddressPlan, plan_addresses
from tests.unit.plan.node.go_addresses import Case, Result, go_addresses, network
from tests.unit.plan.node.test_addresses import ADDITIONAL, PROVIDED
from tests.worlds.node_objects import UNINITIALIZED, instance, node, node_settings, shown

VIRTUAL = "10.0.0.99"
REPORTS = (
    (),
    ("10.0.0.1",),
    ("fd00::1",),
    ("10.0.0.1", "10.0.0.2", "fd00::1", "192.168.7.1"),
    ("fd00::2", "10.0.0.2", "fd00::1", "10.0.0.1"),
    ("fe80::1", "169.254.0.1", "127.0.0.1", "10.0.0.2", "fd00::1"),
    ("FD00:0:0::1", "10.0.0.1"),
    ("10.0.0.1", "10.0.0.2/24"),
    ("10.0.0.1", "10.0.0.1", "::ffff:10.0.0.2"),
    (VIRTUAL, "10.0.0.1", "fd00::1"),
)
PROVIDED_VALUES = (None, "10.0.0.2", "fd00::1", "fd00:0:0::1", "10.0.0.2,fd00::1", "10.0.0.9")
ADDITIONAL_VALUES = (None, '["10.0.0.2","fd00::1"]', '["10.0.0.0/24"]', '["10.0.0.2"')
CIDRS = ("", "10.0.0.2", "10.0.0.0/8,fd00::/8", "192.168.0.0/16")
EXCLUDED = ((), ("10.0.0.2", "fd00::/8"))


def cases() -> Iterator[Case]:
    product = itertools.product(REPORTS, PROVIDED_VALUES, ADDITIONAL_VALUES, CIDRS, EXCLUDED, (False, True))
    for report, provided, additional, cidrs, exclude, off in product:
        yield Case(report, provided, additional, cidrs, exclude, annotations_off=off)


def planned(case: Case) -> AddressPlan:
    return plan_addresses(
        joined(case.provided, case.additional),
        running(case.report),
        settings=policy(case.cidrs, case.exclude, annotations_off=case.annotations_off),
        virtual_ips={plain_address(VIRTUAL): "load balancer"},
    )


@cache
def joined(provided: str | None, additional: str | None) -> Node:
    annotations = {PROVIDED: provided, ADDITIONAL: additional}
    return node(taints=[UNINITIALIZED], annotations={k: v for k, v in annotations.items() if v is not None})


@cache
def running(report: Sequence[str]) -> VirtualMachineInstance:
    return instance(networks=list(Case(report).networks.items()), ips=report)


@cache
def policy(cidrs: str, exclude: Sequence[str], *, annotations_off: bool) -> NodeSettings:
    return node_settings(
        management_network=None,
        node_ip_cidrs=tuple(parse_range(one)[1] for one in cidrs.split(",") if one),
        exclude_ranges=tuple(parse_range(one)[1] for one in exclude),
        use_provided_node_ip=not annotations_off,
    )


def faults(case: Case, go: Result) -> list[str]:
    """Return what is wrong with the Go provider's result."""
    by_range = bool(case.cidrs) and (case.provided is None or case.annotations_off)
    offered = [text for kind, text in go.offered if kind == "InternalIP"]
    found = {
        "Node is never initialised": go.published is None,
        "Node without an InternalIP": go.published is not None and not go.internal,
        "InternalIP lost to the annotation": bool(go.internal) and set(go.internal) != set(offered),
        "address of a load balancer": VIRTUAL in case.report,
        "repeated or IPv4-mapped address": len({plain(text) for text in case.report}) < len(case.report)
        or any(text.startswith("::ffff:") for text in case.report),
        "excluded ranges not looked at": not by_range and any(is_inside(text, case.exclude) for text in case.report),
        "additional internal IPs only as exact text": case.additional == '["10.0.0.0/24"]' and not by_range,
    }
    return [name for name, holds in found.items() if holds]


def is_inside(text: str, ranges: Sequence[str]) -> bool:
    return "/" not in text and any(plain_address(text) in network(one) for one in ranges)


def plain(text: str) -> str:
    try:
        return str(plain_address(text))
    except ValueError:
        return text


def test_every_combination_is_the_same_or_a_known_fault() -> None:
    found: Counter[str] = Counter()
    for case in cases():
        go, plan = go_addresses(case), planned(case)
        if tuple((address.type, address.address) for address in plan.addresses) == go.published:
            found["the same"] += 1
            continue
        known = faults(case, go)
        assert known, (case, shown(plan.addresses), go)
        found[known[0]] += 1
    assert found == {
        "the same": 535,
        "Node is never initialised": 2272,
        "Node without an InternalIP": 616,
        "InternalIP lost to the annotation": 184,
        "address of a load balancer": 64,
        "repeated or IPv4-mapped address": 32,
        "excluded ranges not looked at": 111,
        "additional internal IPs only as exact text": 26,
    }


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param(Case(("10.0.0.1", "10.0.0.2", "fd00::1")), "I 10.0.0.1, E 10.0.0.2, I fd00::1", id="fallback"),
        pytest.param(
            Case(("10.0.0.1", "10.0.0.2", "fd00::1"), "10.0.0.2"),
            "E 10.0.0.1, I 10.0.0.2, E fd00::1",
            id="annotation",
        ),
        pytest.param(
            Case(("10.0.0.1", "10.0.0.2", "fd00::1"), "10.0.0.9"),
            "E 10.0.0.1, E 10.0.0.2, E fd00::1",
            id="annotation of no address: no InternalIP",
        ),
        pytest.param(
            Case(("10.0.0.1", "10.0.0.2", "fd00::1"), cidrs="10.0.0.2"),
            "E 10.0.0.1, I 10.0.0.2, E fd00::1",
            id="range",
        ),
        pytest.param(
            Case(("10.0.0.1", "10.0.0.2", "fd00::1"), cidrs="10.0.0.0/8", exclude=("0.0.0.0/0",)),
            "I 10.0.0.1, E fd00::1",
            id="range with exclusion",
        ),
        pytest.param(Case(("10.0.0.1", "10.0.0.2/24")), "", id="one bad entry: host name only"),
    ],
)
def test_the_model_offers_what_the_go_provider_was_seen_to_offer(case: Case, expected: str) -> None:
    kinds = {"InternalIP": "I", "ExternalIP": "E"}
    offered = [f"{kinds[kind]} {text}" for kind, text in go_addresses(case).offered if kind in kinds]
    assert ", ".join(offered) == expected
    assert all(ip_address(entry.partition(" ")[2]) for entry in offered)
