"""``cleanup``: its warnings, how long it waits for Harvester, and what it does with what has changed."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from harvester_ccm.commands.cleanup import CleanupResult, Leftovers, delete_leftovers, judge_leftovers
from harvester_ccm.model.harvester import LOAD_BALANCERS, VIRTUAL_MACHINES, VirtualMachine
from harvester_ccm.names import LB_CLUSTER, LB_OWNER, VM_CLUSTER
from tests.unit.commands import objects
from tests.unit.commands.conftest import Json, Runner
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import MemoryClient, MemoryServer

NUMBER = 12
"""In five seconds one goes: in all that takes twice as long as without any that goes."""
KEY = f"{objects.VMS}/lb"


async def lets_go(server: MemoryServer, *, number: int, pause: float) -> None:
    """Take the finalizer from so many load balancers that are being deleted, one after the other."""
    for _ in range(number):
        await asyncio.sleep(pause)
        leaving = (one for one in server.items(LOAD_BALANCERS) if one["metadata"].get("deletionTimestamp"))
        one = next(leaving, None)
        if one is not None:
            key = f"{objects.VMS}/{one['metadata']['name']}"
            server.change(LOAD_BALANCERS, key, {"metadata": {"finalizers": None}})


def listed(server: MemoryServer) -> Leftovers:
    """Return what is left of a cluster without VMs."""
    found = tuple(LOAD_BALANCERS.decode(msgspec.json.encode(one)) for one in server.items(LOAD_BALANCERS))
    return judge_leftovers("demo", objects.VMS, found, [])


def client_of(server: MemoryServer) -> MemoryClient:
    return MemoryClient(server, cluster="harvester", namespace=objects.VMS)


@pytest.mark.parametrize(("released", "left"), [(NUMBER, 0), (NUMBER - 3, 3), (0, NUMBER)])
def test_it_waits_as_long_as_one_goes_after_the_other(released: int, left: int) -> None:
    @jumping_time
    async def run() -> None:
        server = MemoryServer()
        for number in range(NUMBER):
            server.put(LOAD_BALANCERS, objects.balancer(name=f"lb-{number}", address="10.0.0.7"))
        controller = asyncio.create_task(lets_go(server, number=released, pause=5.0))
        result = await delete_leftovers(client_of(server), listed(server))
        await controller
        assert (len(result.deleted), len(result.deleting), result.failed) == (NUMBER - left, left, {})
        assert sum(call.verb == "GET" for call in server.calls) < 300, "it looks twice a second"

    run()


async def cleaned_up_after(server: MemoryServer, change: dict[str, Any]) -> CleanupResult:
    """Have the load balancer of a cluster that is gone deleted, which somebody changes after it was listed."""
    found = listed(server)
    server.change(LOAD_BALANCERS, KEY, change)
    controller = asyncio.create_task(lets_go(server, number=1, pause=20.0))
    result = await delete_leftovers(client_of(server), found)
    await controller
    return result


TAKEN_OVER: dict[str, dict[str, Any]] = {
    "by another cluster": {"labels": {LB_CLUSTER: "other"}},
    "by a cluster of the same name": {"annotations": {LB_OWNER: "uid-of-another"}},
}


@pytest.mark.parametrize("change", TAKEN_OVER.values(), ids=TAKEN_OVER.keys())
@jumping_time
async def test_one_that_was_taken_over_since_it_was_listed_stays(change: dict[str, Any]) -> None:
    server = MemoryServer()
    server.put(LOAD_BALANCERS, objects.balancer(name="lb", address="10.0.0.7"))
    result = await cleaned_up_after(server, {"metadata": change})
    assert (result.deleted, result.deleting, list(result.failed)) == ([], [], ["lb"])
    assert "taken over" in result.failed["lb"]
    assert not server.get(LOAD_BALANCERS, KEY)["metadata"].get("deletionTimestamp")


@jumping_time
async def test_one_that_harvester_has_written_since_is_deleted_as_it_is_now() -> None:
    server = MemoryServer()
    server.put(LOAD_BALANCERS, objects.balancer(name="lb", address="10.0.0.7"))
    result = await cleaned_up_after(server, {"status": {"conditions": []}})
    assert (result.deleted, result.deleting, result.failed) == (["lb"], [], {})
    sent = [call.body["preconditions"] for call in server.calls if call.verb == "DELETE"]
    assert [set(one) for one in sent] == [{"uid", "resourceVersion"}] * 2
    assert sent[0] != sent[1]


@jumping_time
async def test_one_that_is_gone_since_it_was_listed_needs_nothing() -> None:
    server = MemoryServer()
    server.put(LOAD_BALANCERS, objects.balancer(name="lb", address="10.0.0.7"))
    found = listed(server)
    server.remove(LOAD_BALANCERS, KEY)
    result = await delete_leftovers(client_of(server), found)
    assert (result.deleted, result.deleting, result.failed) == (["lb"], [], {})


@jumping_time
async def test_one_whose_address_is_being_booked_is_left_alone() -> None:
    server = MemoryServer()
    server.put(LOAD_BALANCERS, objects.balancer(name="lb"))
    result = await delete_leftovers(client_of(server), listed(server))
    assert (result.deleted, result.deleting, list(result.failed)) == ([], [], ["lb"])
    assert not server.writes()


@jumping_time
async def test_one_that_was_refused_an_address_goes_when_harvester_has_answered_once_more() -> None:
    server = MemoryServer()
    refused = objects.balancer(name="lb", message="no matching IP pool with requirement")
    server.put(LOAD_BALANCERS, refused)
    deleting = asyncio.create_task(delete_leftovers(client_of(server), listed(server)))
    await asyncio.sleep(5.0)
    assert [one.partition(" ")[0] for one in server.writes()] == ["PUT"]
    server.change(LOAD_BALANCERS, KEY, {"status": refused["status"]})
    await asyncio.sleep(5.0)
    await lets_go(server, number=1, pause=1.0)
    result = await deleting
    assert (result.deleted, result.deleting, result.failed) == (["lb"], [], {})
    assert [one.partition(" ")[0] for one in server.writes()] == ["PUT", "DELETE"]


@jumping_time
async def test_harvester_gets_ten_seconds_to_answer() -> None:
    server = MemoryServer()
    server.put(LOAD_BALANCERS, objects.balancer(name="lb", message="no matching IP pool with requirement"))
    result = await delete_leftovers(client_of(server), listed(server))
    assert (result.deleted, result.deleting, list(result.failed)) == ([], [], ["lb"])
    assert "has not finished booking its address" in result.failed["lb"]
    assert sum(call.verb == "GET" for call in server.calls) < 30, "it looks twice a second"


def machine(name: str, cluster: str = "") -> VirtualMachine:
    document = objects.machine(name)
    document["metadata"]["labels"] = {VM_CLUSTER: cluster} if cluster else {}
    return VIRTUAL_MACHINES.decode(msgspec.json.encode(document))


@pytest.mark.parametrize(
    ("cluster", "machines", "marks", "warnings"),
    [
        ("demo", [], ["a"], []),
        ("demo", [machine("x", "other")], ["a", ""], []),
        ("demo", [machine("w1", "demo")], [], ["VMs of a cluster of this name exist: w1"]),
        ("demo", [machine("w1")], [], [f"VMs without the label {VM_CLUSTER} exist, which may be the cluster's: w1"]),
        ("demo", None, [], ["the VMs in namespace vms cannot be read, so the cluster may still have some"]),
        (
            "demo",
            [],
            ["a", "b"],
            ["clusters with different UIDs have used the name: a, b; choose one with --cluster-uid"],
        ),
        (
            "kubernetes",
            [machine("w1")],
            [],
            ["'kubernetes' is what every cluster without a name of its own is called; these may be several clusters'"],
        ),
    ],
)
def test_warnings_against_a_deletion(
    cluster: str, machines: list[VirtualMachine] | None, marks: list[str], warnings: list[str]
) -> None:
    documents = [
        objects.balancer(cluster, name=f"lb-{number}", annotations={LB_OWNER: mark} if mark else {})
        for number, mark in enumerate(marks)
    ]
    balancers = tuple(LOAD_BALANCERS.decode(msgspec.json.encode(one)) for one in documents)
    assert list(judge_leftovers(cluster, objects.VMS, balancers, machines).warnings) == warnings


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["cleanup", "--cloud-config=/c"], "--cluster is required"),
        (["cleanup", "--cluster=demo"], "--cloud-config is required"),
        (["cleanup", "demo", "--cloud-config=/c"], "expected no arguments, got demo"),
    ],
)
def test_usage(run: Runner, words: list[str], problem: str) -> None:
    result = run(*words)
    assert (result.code, result.out) == (2, "")
    assert problem in result.err


@pytest.mark.parametrize(
    ("changes", "unsafe"),
    [
        ({"address": "10.0.0.7"}, False),
        ({}, True),
        ({"deleted": "2026-11-21T09:00:00Z"}, False),
    ],
)
def test_what_is_being_booked_is_not_deleted(changes: Json, unsafe: bool) -> None:
    document = objects.balancer("demo", address=changes.get("address", ""))
    document["metadata"]["finalizers"] = ["wrangler.cattle.io/harvester-lb-controller"]
    if "deleted" in changes:
        document["metadata"]["deletionTimestamp"] = changes["deleted"]
    (one,) = balancers = (LOAD_BALANCERS.decode(msgspec.json.encode(document)),)
    leftovers = judge_leftovers("demo", objects.VMS, balancers, [])
    assert leftovers.warnings == ()
    assert list(leftovers.unsafe) == ([one.metadata.name] if unsafe else [])
