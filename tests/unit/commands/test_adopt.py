"""What ``adopt`` would write and what it refuses; what ``cleanup`` finds doubtful."""

from __future__ import annotations

from datetime import datetime

import msgspec
import pytest

from harvester_ccm.commands.adopt import Adoption, propose
from harvester_ccm.commands.cleanup import judge_leftovers
from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.commands.service_view import ServiceView
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS, VIRTUAL_MACHINES, VirtualMachine
from harvester_ccm.names import LB_CLUSTER, LB_OWNER, LB_SERVICE_NAME, LB_SERVICE_UID, VM_CLUSTER
from harvester_ccm.plan.service.ownership import match_load_balancer
from tests.unit.commands import objects
from tests.unit.commands.conftest import Json, Runner

CLUSTER = ClusterIdentity("demo", objects.VMS, objects.CLUSTER_UID)
VIEW = ServiceView(CLUSTER, True, datetime.fromisoformat(objects.CREATED))


def proposal(service: Json, taken: Json, *others: Json) -> Adoption:
    """Return what would be done to have ``service`` take over a load balancer; ``others`` are in the clusters too."""
    documents = [service, taken, *others]
    services = [SERVICES.decode(msgspec.json.encode(one)) for one in documents if one["kind"] == "Service"]
    balancers = [LOAD_BALANCERS.decode(msgspec.json.encode(one)) for one in documents if one["kind"] == "LoadBalancer"]
    inventory = Inventory(services=tuple(services), load_balancers=tuple(balancers))
    return propose(services[0], balancers[0], inventory, VIEW)


def test_afterwards_the_load_balancer_is_claimed() -> None:
    taken = objects.balancer("before", uid=objects.OLD_UID, address="10.0.0.7")
    adoption = proposal(objects.service(), taken)
    assert (adoption.obstacles, adoption.doubts) == ((), ())
    written = LOAD_BALANCERS.decode(msgspec.json.encode(adoption.document))
    assert written.metadata.label(LB_CLUSTER) == "demo"
    assert written.metadata.annotation(LB_OWNER) == objects.CLUSTER_UID
    assert written.metadata.annotation(LB_SERVICE_UID) == objects.UID
    assert written.allocated_ip == "10.0.0.7"
    assert match_load_balancer([written], adoption.service, CLUSTER).lb == written
    assert f'metadata.labels.{LB_CLUSTER} "before" → "demo"' in adoption.changes


def test_an_own_load_balancer_needs_no_adoption() -> None:
    annotations = {
        LB_OWNER: objects.CLUSTER_UID,
        LB_SERVICE_UID: objects.UID,
        "loadbalancer.harvesterhci.io/cluster": "demo",
    }
    adoption = proposal(objects.service(), objects.balancer(annotations=annotations))
    assert (adoption.changes, adoption.obstacles, adoption.doubts) == ((), (), ())


@pytest.mark.parametrize(
    ("service", "taken", "others", "obstacle"),
    [
        (objects.service(type="ClusterIP"), {}, [], "its type is ClusterIP"),
        (objects.service(deleted="2026-11-21T09:00:00Z"), {}, [], "the Service is being deleted"),
        (
            objects.service(annotations={"cloudprovider.harvesterhci.io/primary-service": "shop/main"}),
            {},
            [],
            "the Service shares the address of shop/main",
        ),
        (
            objects.service(annotations={"cloudprovider.harvesterhci.io/workload-type": "vm"}),
            {},
            [],
            "asks for a vm load balancer and this is a cluster one",
        ),
        (objects.service(), {"deletionTimestamp": "2026-11-21T09:00:00Z"}, [], "the load balancer is being deleted"),
        (objects.service(), {}, [objects.balancer()], "serves the Service"),
    ],
)
def test_obstacles(service: Json, taken: Json, others: list[Json], obstacle: str) -> None:
    old = objects.balancer("before", uid=objects.OLD_UID)
    old["metadata"].update(taken)
    adoption = proposal(service, old, *others)
    assert any(obstacle in one for one in adoption.obstacles)


def test_doubts() -> None:
    taken = objects.balancer("demo", of="shop/other", annotations={LB_OWNER: "somebody"}, address="10.0.0.7")
    other = objects.service("other", uid="5")
    adoption = proposal(objects.service(address="10.0.0.1"), taken, other)
    assert adoption.obstacles == ()
    assert [text.partition(" ")[0] for text in adoption.doubts] == ["annotation", "its", "the"]
    assert f'metadata.labels.{LB_SERVICE_NAME} "other" → "web"' in adoption.changes


@pytest.mark.parametrize(
    ("service", "taken"),
    [
        pytest.param(objects.service(), objects.balancer("demo", of="shop/gone"), id="made for a Service that is gone"),
        pytest.param(objects.service(address="10.0.0.1"), objects.balancer("before"), id="without an address"),
        pytest.param(
            objects.service(address="10.0.0.7"), objects.balancer("before", address="10.0.0.7"), id="the same address"
        ),
    ],
)
def test_no_doubt_about_what_takes_nothing_from_anybody(service: Json, taken: Json) -> None:
    assert proposal(service, taken).doubts == ()


def test_one_that_is_another_clusters_is_no_obstacle() -> None:
    foreign = objects.balancer(name="foreign", annotations={LB_OWNER: "somebody"})
    adoption = proposal(objects.service(), objects.balancer("before", uid=objects.OLD_UID), foreign)
    assert adoption.obstacles == ()


def machine(name: str, cluster: str = "") -> VirtualMachine:
    document = objects.machine(name)
    document["metadata"]["labels"] = {VM_CLUSTER: cluster} if cluster else {}
    return VIRTUAL_MACHINES.decode(msgspec.json.encode(document))


@pytest.mark.parametrize(
    ("cluster", "machines", "marks", "doubts"),
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
def test_what_is_doubtful_about_deleting(
    cluster: str, machines: list[VirtualMachine] | None, marks: list[str], doubts: list[str]
) -> None:
    documents = [
        objects.balancer(cluster, name=f"lb-{number}", annotations={LB_OWNER: mark} if mark else {})
        for number, mark in enumerate(marks)
    ]
    balancers = tuple(LOAD_BALANCERS.decode(msgspec.json.encode(one)) for one in documents)
    assert list(judge_leftovers(cluster, objects.VMS, balancers, machines).doubts) == doubts


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["cleanup", "--cloud-config=/c"], "--cluster is required"),
        (["cleanup", "--cluster=demo"], "--cloud-config is required"),
        (["cleanup", "demo", "--cloud-config=/c"], "expected no arguments, got demo"),
        (["adopt", "a/b/c", "lb", "--cloud-config=/c"], "the Service is 'a/b/c'; expected its name"),
        (["adopt", "svc/web", "--cloud-config=/c"], "expected SERVICE LOADBALANCER, got svc/web"),
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
    assert leftovers.doubts == ()
    assert list(leftovers.unsafe) == ([one.metadata.name] if unsafe else [])
