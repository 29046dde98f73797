"""``cleanup``: its warnings, how long it waits for Harvester, and load balancers that change meanwhile."""

import asyncio
from typing import Any

import msgspec
import pytest

from harvester_ccm.commands.cleanup import delete_all, find_warnings
from harvester_ccm.commands.clusters import ClusterStore
from harvester_ccm.kube.documents import Page, Unread
from harvester_ccm.kube.errors import KubeError, Unreachable
from harvester_ccm.model.harvester import (
    LOAD_BALANCERS,
    VIRTUAL_MACHINES,
    ClusterIdentity,
    LoadBalancer,
    VirtualMachine,
)
from harvester_ccm.names import LB_CLUSTER, LB_OWNER, VM_CLUSTER
from tests.support.clock import jumping_time
from tests.support.memory_server import MemoryClient, MemoryServer, refused
from tests.unit.commands import objects
from tests.unit.commands.conftest import ClusterServer, Json, Runner

NUMBER = 12
KEY = f"{objects.VMS}/lb"


async def remove_finalizers(server: MemoryServer, *, number: int, pause: float) -> None:
    for _ in range(number):
        await asyncio.sleep(pause)
        deleting = (one for one in server.items(LOAD_BALANCERS) if one["metadata"].get("deletionTimestamp"))
        one = next(deleting, None)
        if one is not None:
            key = f"{objects.VMS}/{one['metadata']['name']}"
            server.change(LOAD_BALANCERS, key, {"metadata": {"finalizers": None}})


def listed(server: MemoryServer) -> list[LoadBalancer]:
    return [LOAD_BALANCERS.decode(msgspec.json.encode(one)) for one in server.items(LOAD_BALANCERS)]


def client_of(server: MemoryServer) -> MemoryClient:
    return MemoryClient(server, cluster="harvester", namespace=objects.VMS)


@pytest.mark.parametrize(("removed", "left"), [(NUMBER, 0), (NUMBER - 3, 3), (0, NUMBER)])
@jumping_time
async def test_it_waits_while_load_balancers_are_removed_one_by_one(removed: int, left: int) -> None:
    server = MemoryServer()
    for number in range(NUMBER):
        server.put(LOAD_BALANCERS, objects.balancer(name=f"lb-{number}", address="10.0.0.7"))
    controller = asyncio.create_task(remove_finalizers(server, number=removed, pause=5.0))
    result = await delete_all(client_of(server), listed(server))
    await controller
    assert (len(result["deleted"]), len(result["failed"])) == (NUMBER - left, left)
    assert sum(call.verb == "GET" for call in server.calls) < 300


CHANGES: dict[str, tuple[Json, str]] = {
    "another cluster takes it over": ({"metadata": {"labels": {LB_CLUSTER: "other"}}}, "taken it over"),
    "a cluster of the same name takes it over": ({"metadata": {"annotations": {LB_OWNER: "other"}}}, "taken it over"),
    "Harvester writes it": ({"status": {"conditions": []}}, ""),
}


@pytest.mark.parametrize(("change", "problem"), CHANGES.values(), ids=CHANGES.keys())
@jumping_time
async def test_load_balancer_that_changed_since_it_was_listed(change: dict[str, Any], problem: str) -> None:
    server = MemoryServer()
    server.put(LOAD_BALANCERS, objects.balancer(name="lb", address="10.0.0.7"))
    found = listed(server)
    server.change(LOAD_BALANCERS, KEY, change)
    controller = asyncio.create_task(remove_finalizers(server, number=1, pause=20.0))
    result = await delete_all(client_of(server), found)
    await controller
    assert result["deleted"] == ([] if problem else ["lb"])
    assert [problem in one["reason"] for one in result["failed"]] == ([True] if problem else [])
    preconditions = [set(call.body["preconditions"]) for call in server.calls if call.verb == "DELETE"]
    assert preconditions == ([] if problem else [{"uid", "resourceVersion"}])


@jumping_time
async def test_deletion_after_a_conflict_is_repeated() -> None:
    server = MemoryServer()
    server.put(LOAD_BALANCERS, objects.balancer(name="lb", address="10.0.0.7"))
    conflicts = [refused(409, "Conflict", "changed")]
    server.fault = lambda call: conflicts.pop() if call.verb == "DELETE" and conflicts else None
    controller = asyncio.create_task(remove_finalizers(server, number=1, pause=5.0))
    assert (await delete_all(client_of(server), listed(server)))["deleted"] == ["lb"]
    await controller


@jumping_time
async def test_load_balancer_that_was_created_again_since_it_was_listed_stays() -> None:
    server = MemoryServer()
    document = objects.balancer(name="lb", address="10.0.0.7")
    server.put(LOAD_BALANCERS, {**document, "metadata": {**document["metadata"], "uid": "first"}})
    found = listed(server)
    server.put(LOAD_BALANCERS, {**document, "metadata": {**document["metadata"], "uid": "second"}})
    assert (await delete_all(client_of(server), found))["failed"] == []
    assert [one.metadata.uid for one in listed(server)] == ["second"]
    assert "DELETE" not in {call.verb for call in server.calls}


@pytest.mark.parametrize("message", [None, "no matching IP pool with requirement"], ids=["unknown", "rejected"])
@jumping_time
async def test_address_that_harvester_still_allocates_is_not_lost(message: str | None) -> None:
    server = MemoryServer()
    server.put(LOAD_BALANCERS, objects.balancer(name="lb", message=message))
    result = await delete_all(client_of(server), listed(server))
    assert "has not finished allocating its address" in result["failed"][0]["reason"]
    assert "DELETE" not in {call.verb for call in server.calls}
    assert sum(call.verb == "GET" for call in server.calls) <= 22


def machine(name: str, cluster: str = "") -> VirtualMachine:
    document = objects.machine(name)
    document["metadata"]["labels"] = {VM_CLUSTER: cluster} if cluster else {}
    return VIRTUAL_MACHINES.decode(msgspec.json.encode(document))


UNREAD = Unread(f"{objects.VMS}/w1", "uid", "x")
WARNINGS: dict[str, tuple[str, list[VirtualMachine] | Unread | KubeError, list[str], str]] = {
    "no VMs": ("demo", [], ["a"], ""),
    "VMs of another cluster": ("demo", [machine("x", "other")], ["a", ""], ""),
    "VMs that cannot be decoded": ("demo", UNREAD, ["a"], "VMs that cannot be decoded exist, which may be the clu"),
    "VMs of a cluster without a load balancer": (
        "demo",
        [machine("w1", "demo-in-rancher"), machine("x", "other")],
        ["a"],
        "VMs of clusters without a load balancer exist, which may be the cluster's under another name: w1",
    ),
    "VMs": ("demo", [machine("w1", "demo")], [], "VMs of a cluster of this name exist: w1"),
    "unlabeled VMs": ("demo", [machine("w1")], [], f"VMs without the label {VM_CLUSTER} exist, which may be "),
    "unknown VMs": (
        "demo",
        Unreachable("away"),
        [],
        "the VMs cannot be read, so the cluster may still have some: away",
    ),
    "several UIDs": ("demo", [], ["a", "b"], "clusters with different UIDs have used the name: a, b"),
    "no name": ("kubernetes", [machine("w1")], [], "'kubernetes' is the name of every cluster without a name"),
}


@pytest.mark.parametrize(("cluster", "vms", "owners", "warning"), WARNINGS.values(), ids=WARNINGS.keys())
def test_warnings(
    cluster: str, vms: list[VirtualMachine] | Unread | KubeError, owners: list[str], warning: str
) -> None:
    documents = [
        objects.balancer(cluster, name=f"lb-{number}", annotations={LB_OWNER: owner} if owner else {})
        for number, owner in enumerate(owners)
    ]
    balancers = [LOAD_BALANCERS.decode(msgspec.json.encode(one)) for one in documents]
    machines: Page[VirtualMachine] | KubeError
    if isinstance(vms, KubeError):
        machines = vms
    elif isinstance(vms, Unread):
        machines = Page((), "", {vms.key: vms})
    else:
        machines = Page(tuple(vms), "")
    store = ClusterStore(ClusterIdentity(cluster, objects.VMS), {VIRTUAL_MACHINES.plural: machines})
    found = list(find_warnings(store, balancers, {cluster, "other"}))
    assert (len(found), "".join(found)[: len(warning)]) == (bool(warning), warning)


def test_load_balancers_of_other_clusters_are_not_listed(run: Runner, serve: ClusterServer) -> None:
    uids = ("demo", "a"), ("demo", "b"), ("other", "a"), ("demo", "")
    listed = [objects.balancer(of, name=f"{of}-{uid}", annotations={LB_OWNER: uid}) for of, uid in uids]
    words = "cleanup", "--cluster-name=demo", *serve(*listed)[1:], "-o", "json"
    names = [
        {one["name"] for one in run(*words, *more).document["loadBalancers"]} for more in ((), ("--cluster-uid=a",))
    ]
    assert names == [{"demo-a", "demo-b", "demo-"}, {"demo-a"}]
    machine_of_other = objects.machine("x")
    machine_of_other["metadata"]["labels"] = {VM_CLUSTER: "other"}
    served_words = (
        "cleanup",
        "--cluster-name=demo",
        *serve(*listed[:1], *listed[2:], machine_of_other)[1:],
        "-o",
        "json",
    )
    assert run(*served_words).document["warnings"] == [], "it is the VM of a cluster that has a load balancer"
    elsewhere = run(*words, "--harvester-namespace=elsewhere").document
    assert (elsewhere["namespace"], elsewhere["loadBalancers"]) == ("elsewhere", [])


def test_other_uids_of_the_cluster_are_named_if_none_has_the_given_one(run: Runner, serve: ClusterServer) -> None:
    flags = serve(objects.balancer("demo", annotations={LB_OWNER: "uid-of-kube-system"}, address="10.0.0.7"))[1:]
    found = run("cleanup", "--cluster-name=demo", "--cluster-uid=misspelt", "--yes", *flags)
    assert "Nothing to delete. Cluster demo has load balancers of other UIDs: uid-of-kube-system" in found.out


@jumping_time
async def test_finalizer_of_another_controller_is_named() -> None:
    server = MemoryServer()
    document = objects.balancer(name="lb", address="10.0.0.7")
    document["metadata"] |= {"finalizers": ["example.com/backup"], "deletionTimestamp": "2026-11-20T08:00:00Z"}
    server.put(LOAD_BALANCERS, document)
    (failed,) = (await delete_all(client_of(server), listed(server)))["failed"]
    assert "It waits for finalizers in Harvester: example.com/backup" in failed["reason"]
