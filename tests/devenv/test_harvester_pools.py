"""Selection of the pool and the address."""

from dataclasses import replace

import pytest

from devenv.harvester.pools import (
    Pool,
    PoolProblem,
    Requirement,
    Scope,
    allocated_address,
    booked,
    choose_address,
    counted,
    given_back,
    read_range,
    select_pool,
)
from devenv.watch import Document


def pool(*scopes: Scope, name: str = "p", network: str = "", priority: int = 0, is_global: bool = False) -> Pool:
    ranges = (read_range({"subnet": "192.168.100.0/24"}),)
    return Pool(name, ranges, network=network, priority=priority, scopes=scopes, is_global=is_global)


ASK = Requirement(network="", project="c-1/p-1", namespace="ns", cluster="demo")
EVERYBODY = Scope("*", "*", "*")
BY_NAMESPACE = Scope("", "ns", "")


@pytest.mark.parametrize(
    ("pools", "requirement", "loose", "expected"),
    [
        pytest.param([pool(Scope("c-1/p-1", "ns", "demo"))], ASK, False, "p", id="exact"),
        pytest.param([pool(EVERYBODY)], ASK, False, "p", id="stars"),
        pytest.param([pool(Scope("*", "ns", "*"))], ASK, False, "p", id="stars in part"),
        pytest.param([pool(Scope("*", "other", "*"))], ASK, True, None, id="other namespace"),
        pytest.param([pool(Scope("*", "*", "other"))], ASK, True, None, id="other cluster"),
        pytest.param([pool(BY_NAMESPACE)], ASK, False, None, id="gaps do not match strictly"),
        pytest.param([pool(BY_NAMESPACE)], ASK, True, "p", id="gaps match loosely"),
        pytest.param([pool()], ASK, True, None, id="no scope at all"),
        pytest.param([pool(EVERYBODY, network="a/b")], ASK, True, None, id="network must be equal"),
        pytest.param([pool(EVERYBODY, network="a/b")], replace(ASK, network="a/b"), False, "p", id="network equal"),
        pytest.param(
            [pool(BY_NAMESPACE, name="close"), pool(EVERYBODY, name="g", is_global=True)],
            ASK,
            True,
            "g",
            id="a global pool goes before the loose pass",
        ),
        pytest.param(
            [pool(Scope("*", "ns", "*"), name="close"), pool(EVERYBODY, name="g", is_global=True)],
            ASK,
            True,
            "close",
            id="a strict match goes before the global pool",
        ),
        pytest.param(
            [pool(EVERYBODY, name="g", network="x/y", is_global=True)],
            ASK,
            False,
            "g",
            id="a global pool ignores the network",
        ),
        pytest.param(
            [pool(EVERYBODY, name="high", priority=9), pool(EVERYBODY, name="low", priority=1)],
            ASK,
            False,
            "high",
            id="priority",
        ),
        pytest.param([pool(EVERYBODY, name="a"), pool(EVERYBODY, name="b")], ASK, False, "b", id="the last of equals"),
        pytest.param([pool(Scope("", "ns", ""))], Requirement(namespace="ns"), False, "p", id="empty matches empty"),
    ],
)
def test_selection(pools: list[Pool], requirement: Requirement, loose: bool, expected: str | None) -> None:
    chosen = select_pool(pools, requirement, loose=loose)
    assert (chosen.name if chosen else None) == expected


def document(*ranges: Document, **status: object) -> Document:
    return {"metadata": {"name": "lan"}, "spec": {"ranges": list(ranges)}, "status": status}


WIDE: Document = {"subnet": "192.168.100.0/24", "rangeStart": "192.168.100.20", "rangeEnd": "192.168.100.22"}
WHOLE = ("192.168.100.20", "192.168.100.21", "192.168.100.22")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({}, "192.168.100.20", id="from the start"),
        pytest.param({"lastAllocated": "192.168.100.20"}, "192.168.100.21", id="after the last one"),
        pytest.param({"lastAllocated": "192.168.100.22"}, "10.0.1.2", id="the next range, without its gateway"),
        pytest.param({"lastAllocated": "10.0.1.2"}, "192.168.100.20", id="and round again"),
        pytest.param({"lastAllocated": "10.0.0.1"}, "192.168.100.20", id="a last one from elsewhere"),
        pytest.param({"allocated": {"192.168.100.20": "ns/b"}}, "192.168.100.21", id="booked ones are skipped"),
        pytest.param({"allocatedHistory": {"192.168.100.22": "ns/a"}}, "192.168.100.22", id="the one it had"),
        pytest.param(
            {"allocatedHistory": {"192.168.100.20": "ns/b"}}, "192.168.100.20", id="history of others is no protection"
        ),
        pytest.param({"allocated": dict.fromkeys(WHOLE, "ns/b")}, "10.0.1.2", id="a full range is skipped"),
        pytest.param(
            {"allocated": {"192.168.100.22": "ns/a"}, "allocatedHistory": {"192.168.100.21": "ns/a"}},
            "192.168.100.21",
            id="a second one, because of the history",
        ),
        pytest.param({"allocated": {"10.9.9.9": "ns/a"}}, "192.168.100.20", id="an allocation outside is none"),
        pytest.param({"allocatedHistory": {"::ffff:192.168.100.22": "ns/a"}}, "192.168.100.22", id="IPv4 in IPv6"),
        pytest.param({"allocatedHistory": {"192.168.100.022": "ns/a"}}, "192.168.100.20", id="a history of nothing"),
    ],
)
def test_address_choice(status: Document, expected: str) -> None:
    narrow = {"subnet": "10.0.1.0/30", "gateway": "10.0.1.1"}
    assert choose_address(Pool.of(document(WIDE, narrow, **status)), "ns/a") == expected


def test_any_of_several_entries_with_one_owner() -> None:
    books = {"192.168.100.22": "ns/a", "192.168.100.20": "ns/b", "192.168.100.21": "ns/a"}
    remembered = Pool.of(document(WIDE, allocatedHistory=books))
    assert {choose_address(remembered, "ns/a", pick) for pick in (min, max)} == {"192.168.100.21", "192.168.100.22"}
    booked_twice = document(WIDE, allocated=books, available=0)
    for pick in (min, max):
        left = given_back(booked_twice, "ns/a", pick)["status"]["allocated"]
        assert set(books) - set(left) == {pick(["192.168.100.21", "192.168.100.22"])}


def test_gateway_of_another_range_is_an_address() -> None:
    first = {"subnet": "10.0.1.0/24", "rangeStart": "10.0.1.10", "rangeEnd": "10.0.1.10", "gateway": "10.0.1.9"}
    second = {"subnet": "10.0.1.0/24", "rangeStart": "10.0.1.9", "rangeEnd": "10.0.1.9", "gateway": "10.0.1.10"}
    assert choose_address(Pool.of(document(first, second)), "ns/a") == "10.0.1.10"


def test_counts_follow_each_write_and_are_only_made_anew_for_new_ranges() -> None:
    wrong = document(WIDE, total=9, available=7, allocated={"192.168.100.20": "ns/b"})
    assert booked(wrong, "192.168.100.21", "ns/a")["status"]["available"] == 6
    assert given_back(wrong, "ns/b")["status"]["available"] == 8
    again = counted(wrong)["status"]
    assert (again["total"], again["available"]) == (3, 2)


def test_history_that_is_no_address_cannot_be_counted() -> None:
    with pytest.raises(PoolProblem, match="invalid ip nonsense"):
        counted(document(WIDE, allocatedHistory={"nonsense": "ns/a"}))


@pytest.mark.parametrize(
    ("entry", "size", "text", "gateway"),
    [
        ({"subnet": "192.168.1.0/24"}, 253, "192.168.1.1-192.168.1.254", "192.168.1.1"),
        ({"subnet": "192.168.1.7/32"}, 1, "192.168.1.7-192.168.1.7", "<nil>"),
        (
            {"subnet": "192.168.1.0/24", "rangeStart": "192.168.1.9", "rangeEnd": "192.168.1.5"},
            5,
            "192.168.1.5-192.168.1.9",
            "192.168.1.1",
        ),
    ],
)
def test_range_defaults(entry: Document, size: int, text: str, gateway: str) -> None:
    read = Pool.of(document(entry))
    assert (read.size, read.text()) == (size, text)
    address = str(read.ranges[0].first)
    assert allocated_address(read, address)["gateway"] == gateway
