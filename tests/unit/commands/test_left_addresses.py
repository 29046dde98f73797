"""``status`` names addresses on the VMs that a dead kube-vip may have left."""

from collections.abc import Sequence

import pytest

from tests.unit.commands import objects
from tests.unit.commands.conftest import ClusterServer, Json, Runner
from tests.unit.commands.test_status import balancer, ready_node, served

NOBODYS = "VMs: Addresses that no Node, Service or load balancer has: "
TWO_DEVICES = objects.instance("w1", ("eth0", "default/lan", ["10.0.0.5"]), ("eth1", "default/dmz", ["10.1.0.5"]))
ON_SEVERAL = "VMs: Several report the address of a Service: "


def second_node() -> Json:
    """Return another Node of the cluster with its own address."""
    node = objects.node("w2", taints=[], providerID="harvester://uid-of-vm-w2")
    node["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.6"}]
    return node


def of_vms(first: list[str], second: Sequence[str] = ()) -> list[Json]:
    """Return both Nodes, and their VMs with what their guest agents report in addition."""
    return [
        *(ready_node(), objects.machine(), objects.instance("w1", ("eth0", "default/lan", ["10.0.0.5", *first]))),
        *(second_node(), objects.machine("w2"), objects.instance("w2", ("eth0", "default/lan", ["10.0.0.6", *second]))),
    ]


@pytest.mark.parametrize(
    ("documents", "note"),
    [
        (of_vms(["10.0.0.9"]), f"{NOBODYS}10.0.0.9 (w1). "),
        (of_vms(["10.0.0.9", "10.0.0.8"], ["10.0.0.9"]), f"{NOBODYS}10.0.0.8 (w1), 10.0.0.9 (w1, w2). "),
        ([served(), balancer(), *of_vms(["10.0.0.7"], ["10.0.0.7"])], f"{ON_SEVERAL}10.0.0.7 (w1, w2). "),
        ([served(), balancer(), *of_vms(["10.0.0.7"])], ""),
        ([*of_vms(["fe80::1", "2001:db8::9"])], ""),
        ([objects.node(), objects.machine(), TWO_DEVICES], ""),
        ([*of_vms([]), objects.instance("of-another-cluster", ("eth0", "default/lan", ["10.0.0.9"]))], ""),
    ],
    ids=[
        "of a deleted Service",
        "on two VMs",
        "of a Service on two VMs",
        "of a Service",
        "IPv6",
        "of a second device of a new Node",
        "VM of others",
    ],
)
def test_addresses_that_nobody_has_are_named(
    run: Runner, serve: ClusterServer, documents: list[Json], note: str
) -> None:
    result = run("status", *serve(objects.home(), objects.lease(), *documents), "--output=json")

    notes = [text for text in result.document["notes"] if text.startswith("VMs: ")]
    assert [text[: len(note)] for text in notes] == ([note] if note else [])
    assert all("Addresses that kube-vip left" in text for text in notes)
