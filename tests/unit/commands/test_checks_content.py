"""What preflight concludes from VMs, Nodes and load balancers."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from harvester_ccm.commands.checks_connection import Result
from harvester_ccm.commands.checks_content import (
    APIS,
    api_check,
    kept_addresses_check,
    load_balancer_check,
    name_check,
    node_addresses_check,
    node_check,
    shared_addresses_check,
    vm_check,
)
from harvester_ccm.commands.clusters import Asked
from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.commands.rights import HARVESTER
from harvester_ccm.errors import Answer, Forbidden, Unreachable
from harvester_ccm.kube.tokens import token_end
from harvester_ccm.model.core import NODES, SERVICES
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES, ClusterIdentity
from harvester_ccm.names import LB_OWNER, SERVICE_FINALIZER, VM_CLUSTER
from tests.unit.commands import objects
from tests.worlds.node_objects import node_settings

DEMO = ClusterIdentity("demo", objects.VMS)


def contents(*vms: tuple[str, str], nodes: tuple[str, ...] = ()) -> Inventory:
    """Return VMs, each with the cluster it is marked as, running, and Nodes."""
    machines, instances = [], []
    for name, cluster in vms:
        mark = {VM_CLUSTER: cluster} if cluster else {}
        machines.append(VIRTUAL_MACHINES.decode(msgspec.json.encode(objects.machine(name))))
        document = objects.instance(name, ("eth0", "default/lan", ["10.0.0.1"]), labels=mark)
        instances.append(INSTANCES.decode(msgspec.json.encode(document)))
    found = tuple(NODES.decode(msgspec.json.encode(objects.node(name))) for name in nodes)
    return Inventory(vms=tuple(machines), vmis=tuple(instances), nodes=found)


@pytest.mark.parametrize(
    ("versions", "result", "says", "advises"),
    [
        pytest.param(("v1beta1", "v1alpha1"), Result.OK, "loadbalancer.harvesterhci.io/v1beta1", "", id="1.2 or later"),
        pytest.param(("v1alpha1",), Result.FAILED, "(there is v1alpha1)", "upgrade Harvester to 1.2", id="before 1.2"),
        pytest.param((), Result.FAILED, "there is nothing of this group", "has to be installed", id="no controller"),
    ],
)
def test_versions_of_harvester(versions: tuple[str, ...], result: Result, says: str, advises: str) -> None:
    served = {one.resource.group: Asked(answer=("v1",)) for one in APIS[HARVESTER]}
    check = api_check({**served, LOAD_BALANCERS.group: Asked(answer=versions)}, HARVESTER)
    assert check.result is result
    assert says in check.detail
    assert advises in check.advice


@pytest.mark.parametrize(
    ("vms", "result", "says"),
    [
        ([], Result.FAILED, "there is no VM in namespace vms"),
        ([("w1", "demo"), ("x", "")], Result.OK, f"2 in namespace vms, 1 with label {VM_CLUSTER}=demo"),
        ([("w1", "other"), ("w2", "third")], Result.WARNING, "; there is other, third"),
        ([("w1", "")], Result.WARNING, f"none with label {VM_CLUSTER}=demo"),
    ],
)
def test_vms(vms: list[tuple[str, str]], result: Result, says: str) -> None:
    check = vm_check(contents(*vms), DEMO)
    assert check.result is result
    assert says in check.detail
    assert bool(check.advice) == (result is not Result.OK)


@pytest.mark.parametrize(
    ("vms", "nodes", "result", "says"),
    [
        ([("w1", "demo"), ("w2", "demo")], ("w1", "w2"), Result.OK, "the VMs of all 2 Nodes are found, by name"),
        ([("w1", "demo")], ("w1", "w2"), Result.WARNING, "1 of 2 Nodes have no VM: w2"),
        ([("w1", "other")], ("w1",), Result.FAILED, "1 of 1 Nodes have no VM: w1"),
        ([("w1", "demo")], (), Result.WARNING, "the cluster has no Node"),
    ],
)
def test_nodes(vms: list[tuple[str, str]], nodes: tuple[str, ...], result: Result, says: str) -> None:
    check = node_check(contents(*vms, nodes=nodes), DEMO)
    assert check.result is result
    assert says in check.detail


@pytest.mark.parametrize(
    ("marks", "result", "says"),
    [
        (("demo", "demo"), Result.OK, "are marked 'demo'"),
        (("other", "other"), Result.FAILED, "--cluster-name is 'demo' and the VMs of the Nodes are marked other"),
        (("", ""), Result.SKIPPED, "no VM of a Node carries label"),
    ],
)
def test_cluster_name(marks: tuple[str, str], result: Result, says: str) -> None:
    check = name_check(contents(("w1", marks[0]), ("w2", marks[1]), nodes=("w1", "w2")), DEMO)
    assert check.result is result
    assert says in check.detail
    if result is Result.FAILED:
        assert "Set --cluster-name=other" in check.advice


@pytest.mark.parametrize(
    ("marks", "uid", "result", "says"),
    [
        (
            [objects.CLUSTER_UID, ""],
            objects.CLUSTER_UID,
            Result.OK,
            "1 of this cluster, 1 with its name and no mark yet",
        ),
        (
            ["another"],
            objects.CLUSTER_UID,
            Result.WARNING,
            "1 of cluster name 'demo' are marked by another cluster: lb-0",
        ),
        ([""], "", Result.SKIPPED, "whose they are cannot be told"),
    ],
)
def test_load_balancers(marks: list[str], uid: str, result: Result, says: str) -> None:
    documents = [
        objects.balancer("demo", name=f"lb-{number}", annotations={LB_OWNER: mark} if mark else {})
        for number, mark in enumerate(marks)
    ]
    found = Inventory(load_balancers=tuple(LOAD_BALANCERS.decode(msgspec.json.encode(one)) for one in documents))
    check = load_balancer_check(found, ClusterIdentity("demo", objects.VMS, uid))
    assert check.result is result
    assert says in check.detail


def test_load_balancers_of_another_name_of_this_cluster() -> None:
    document = objects.balancer("before", annotations={LB_OWNER: objects.CLUSTER_UID})
    found = Inventory(load_balancers=(LOAD_BALANCERS.decode(msgspec.json.encode(document)),))
    cluster = ClusterIdentity("demo", objects.VMS, objects.CLUSTER_UID)
    check = load_balancer_check(found, cluster)
    assert (check.result, check.detail) == (Result.WARNING, "some are this cluster's under another name: before")
    assert "--former-cluster-name=before" in check.advice
    assert load_balancer_check(found, replace(cluster, former_names=("before",))).result is Result.OK


def test_services_that_keep_an_address_of_before_are_named() -> None:
    wish, ours = "192.168.1.50", [SERVICE_FINALIZER]
    services = [
        objects.service("wished", uid="1", address=wish, finalizers=ours, loadBalancerIP=wish),
        objects.service("booked", uid="2", address="10.0.0.1", finalizers=ours, loadBalancerIP="10.0.0.1"),
        objects.service("others", uid="3", address=wish, loadBalancerIP=wish),
        objects.service("unasked", uid="4", address="192.168.1.51", finalizers=ours),
    ]
    booked = objects.balancer(of="shop/booked", uid="2", address="10.0.0.1")
    found = Inventory(
        services=tuple(SERVICES.decode(msgspec.json.encode(one)) for one in services),
        load_balancers=(LOAD_BALANCERS.decode(msgspec.json.encode(booked)),),
    )
    check = kept_addresses_check(found, DEMO)
    assert check is not None
    assert check.result is Result.WARNING
    assert check.detail.endswith("that no load balancer of Harvester gave: shop/wished (192.168.1.50)")
    assert kept_addresses_check(replace(found, services=found.services[1:]), DEMO) is None
    assert kept_addresses_check(replace(found, problems={SERVICES.plural: Unreachable("away")}), DEMO) is None


def test_nodes_that_would_get_another_internal_ip_are_named() -> None:
    found = contents(("w1", "demo"), ("w2", "demo"), ("w3", "demo"), ("w4", "demo"))
    nodes = [NODES.decode(msgspec.json.encode(objects.node("w4", providerID="harvester://uid-of-vm-w4", taints=[])))]
    for name, address, taints in (("w1", "10.0.0.1", []), ("w2", "10.9.9.9", []), ("w3", "10.9.9.9", None)):
        document = objects.node(name, providerID="" if taints is None else f"harvester://uid-of-vm-{name}")
        document["status"]["addresses"] = [{"type": "InternalIP", "address": address}]
        document["spec"]["taints"] = document["spec"]["taints"] if taints is None else taints
        nodes.append(NODES.decode(msgspec.json.encode(document)))
    found = replace(found, nodes=tuple(nodes))
    check = node_addresses_check(found, DEMO, node_settings())
    assert check is not None
    assert check.result is Result.WARNING
    assert check.detail.startswith(
        "1 Nodes would get another InternalIP: w2: InternalIP changed from 10.9.9.9 to 10.0.0.1 ("
    )
    assert (
        node_addresses_check(
            replace(found, nodes=tuple(one for one in found.nodes if one.metadata.name != "w2")), DEMO, node_settings()
        )
        is None
    )
    unread = replace(found, problems={INSTANCES.plural: Unreachable("away")})
    assert node_addresses_check(unread, DEMO, node_settings()) is None


def test_nodes_with_the_same_internal_ip_are_named() -> None:
    nodes = []
    for name, address in (("w1", "10.0.0.1"), ("w2", "10.0.0.2"), ("w3", "10.0.0.1")):
        document = objects.node(name)
        document["status"]["addresses"] = [{"type": "InternalIP", "address": address}]
        nodes.append(NODES.decode(msgspec.json.encode(document)))
    check = shared_addresses_check(Inventory(nodes=tuple(nodes)))
    assert check is not None
    assert (check.result, check.detail) == (Result.WARNING, "Nodes have the same InternalIP: 10.0.0.1 (w1, w3)")
    assert shared_addresses_check(Inventory(nodes=tuple(nodes[:2]))) is None


def test_what_cannot_be_read_is_skipped() -> None:
    forbidden = Forbidden(Answer(403, "Forbidden", "no"))
    found = Inventory(problems={VIRTUAL_MACHINES.plural: forbidden, LOAD_BALANCERS.plural: Unreachable("away")})
    checks = [vm_check(found, DEMO), node_check(found, DEMO), name_check(found, DEMO)]
    assert {check.result for check in checks} == {Result.SKIPPED}
    assert {check.detail for check in checks} == {"cannot be read, see the rights above"}
    cluster = ClusterIdentity("demo", objects.VMS, "x")
    assert load_balancer_check(found, cluster).detail == "cannot be read: away"


def token(claims: object) -> str:
    body = base64.urlsafe_b64encode(msgspec.json.encode(claims)).decode().rstrip("=")
    return f"e30.{body}.c2ln"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (token({"exp": 1800000000}), datetime(2027, 1, 15, 8, 0, tzinfo=UTC)),
        (token({"sub": "x"}), None),
        (token({"exp": "soon"}), None),
        (token({"exp": 1e300}), None),
        (token([]), None),
        ("kubeconfig-u-abcde:0123456789", None),
        ("a.b.c", None),
        ("a.\u00e9.c", None),
        ("", None),
        (None, None),
    ],
)
def test_the_end_of_a_token(text: str | None, expected: datetime | None) -> None:
    assert token_end(text) == expected
