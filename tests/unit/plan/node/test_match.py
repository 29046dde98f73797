"""Which VM is a Node's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID, uuid5

import pytest
from msgspec.structs import replace

from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import VirtualMachine, VirtualMachineInstance
from harvester_ccm.plan.node.match import find_vm
from harvester_ccm.plan.node.vms import (
    VMIndex,
    claims_of,
    may_be_asked,
    own_vmis,
    usable_hostname,
)
from tests.worlds.node_objects import CLUSTER, FOREIGN, OWN, index, instance, node, vm

OTHERS = [node("w2", provider_id="harvester://uid-w2")]
FIRMWARE = "5F3C0000-0000-4000-8000-00000000000A"
MACHINES: Mapping[str, VMIndex] = {
    "own": index([vm("w1", labels=OWN), vm("w2", labels=OWN)]),
    "foreign": index([vm("w1", labels=FOREIGN)]),
    "renamed": index([vm("vm-1", labels=OWN, firmware=FIRMWARE.lower())]),
}


@pytest.mark.parametrize(
    ("machines", "provider_id", "expected"),
    [
        pytest.param("own", "", ("w1", "name"), id="name"),
        pytest.param("own", "harvester://uid-w2", ("w2", "provider ID"), id="provider ID before the name"),
        pytest.param("foreign", "harvester://uid-w1", ("w1", "provider ID"), id="provider ID before the label"),
        pytest.param("renamed", "", ("vm-1", "system UUID"), id="system UUID, in any letter case"),
        pytest.param("renamed", "harvester://gone", ("vm-1", "system UUID"), id="provider ID of a VM that is gone"),
    ],
)
def test_evidence_in_its_order(machines: str, provider_id: str, expected: tuple[str, str]) -> None:
    match = find_vm(node(provider_id=provider_id, system_uuid=FIRMWARE), MACHINES[machines])
    assert match.vm is not None
    assert (match.vm.name, match.by) == expected
    assert match.problem is None


@pytest.mark.parametrize("provider_id", ["k3s://w1", "aws:///eu/i-1", "uid-w1", "harvester-2://uid-w1"])
@pytest.mark.parametrize("found_by", ["own", "renamed"])
def test_node_of_another_provider_has_no_vm_whatever_it_shows(provider_id: str, found_by: str) -> None:
    target = node(provider_id=provider_id, system_uuid=FIRMWARE)
    problem = find_vm(target, MACHINES[found_by]).problem
    assert problem is not None
    assert problem.reason.name == "OTHER_PROVIDER"
    assert provider_id in problem.message


@pytest.mark.parametrize(
    ("node_name", "hostnames", "expected"),
    [
        pytest.param("w1", {"vm-1": "w1"}, "vm-1", id="same"),
        pytest.param("w1", {"vm-1": "w1.example.com"}, "vm-1", id="guest says the full name"),
        pytest.param("w1.example.com", {"vm-1": "w1"}, "vm-1", id="node has the full name"),
        pytest.param("w1.example.com", {"vm-1": "w1.example.com"}, "vm-1", id="the same full name"),
        pytest.param("w1.example.com", {"vm-1": "w1.example.org"}, None, id="two full names that differ"),
        pytest.param("w1", {"vm-1": "W1"}, "vm-1", id="letter case"),
        pytest.param("w1", {"vm-1": "w1", "vm-2": "w1.example.com"}, "vm-1", id="the equal one of two"),
        pytest.param("w1", {"vm-1": "", "vm-2": "w1"}, "vm-2", id="empty host name"),
        pytest.param("localhost", {"vm-1": "localhost"}, None, id="name of every new guest"),
        pytest.param("w1", {"gone": "w1"}, None, id="VM that no longer exists"),
    ],
)
def test_host_name(node_name: str, hostnames: dict[str, str], expected: str | None) -> None:
    match = find_vm(node(node_name), index([vm("vm-1", labels=OWN), vm("vm-2", labels=OWN)], hostnames=hostnames))
    assert (match.vm.name if match.vm else None) == expected


@pytest.mark.parametrize(
    ("labels", "cluster", "reason"),
    [
        pytest.param(OWN, CLUSTER, None, id="our mark"),
        pytest.param({}, CLUSTER, None, id="no mark"),
        pytest.param(FOREIGN, CLUSTER, "VM_OF_OTHER_CLUSTER", id="another cluster's mark"),
        pytest.param(FOREIGN, ClusterIdentity("kubernetes", "prod"), None, id="this cluster has no name of its own"),
        pytest.param(FOREIGN, ClusterIdentity("", "prod"), None, id="this cluster has an empty name"),
    ],
)
@pytest.mark.parametrize("where", ["VM", "instance"])
def test_mark_of_another_cluster(
    labels: dict[str, str], cluster: ClusterIdentity, reason: str | None, where: str
) -> None:
    machine = vm("w1", labels=labels if where == "VM" else {})
    running = instance("w1", labels=labels if where == "instance" else {})
    match = find_vm(node(), index([machine], [running], cluster=cluster))
    assert (match.problem.reason.name if match.problem else None) == reason


def test_foreign_vm_with_our_host_name_does_not_take_the_node_over() -> None:
    machines = index([vm("vm-1", labels=OWN), vm("theirs", labels=FOREIGN)], hostnames={"vm-1": "w1", "theirs": "w1"})
    match = find_vm(node(), machines)
    assert match.vm is not None
    assert match.vm.name == "vm-1"
    alone = index([vm("theirs", labels=FOREIGN)], hostnames={"theirs": "w1"})
    assert find_vm(node(), alone).vm is None


def test_two_vms_with_one_host_name_are_both_named() -> None:
    machines = index([vm("vm-b", labels=OWN), vm("vm-a", labels=OWN)], hostnames={"vm-a": "w1", "vm-b": "w1"})
    problem = find_vm(node(), machines).problem
    assert problem is not None
    assert problem.reason.name == "VM_AMBIGUOUS"
    assert "Several VMs have the guest host name w1: vm-a, vm-b." in problem.message


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(["w1", "copy"], "w1", id="the name decides"),
        pytest.param(["vm-1", "copy"], None, id="nothing else to tell them apart"),
    ],
)
def test_copies_of_a_vm_with_one_system_uuid(names: Sequence[str], expected: str | None) -> None:
    machines = index([vm(name, labels=OWN, firmware=FIRMWARE) for name in names])
    match = find_vm(node(system_uuid=FIRMWARE), machines)
    assert (match.vm.name if match.vm else None) == expected


def test_of_copies_the_one_with_the_mark_of_this_cluster_counts() -> None:
    machines = index([vm("vm-1", labels=OWN, firmware=FIRMWARE), vm("copy", firmware=FIRMWARE)])
    match = find_vm(node(system_uuid=FIRMWARE), machines)
    assert match.vm is not None
    assert match.vm.name == "vm-1"


def test_uuid_of_the_running_instance_counts_before_the_template() -> None:
    machines = index([vm("vm-1", firmware="changed-since")], [instance("vm-1", firmware=FIRMWARE)])
    match = find_vm(node(system_uuid=FIRMWARE), machines)
    assert match.vm is not None


@pytest.mark.parametrize(
    ("hostnames", "reason"),
    [
        pytest.param({}, "VM_OF_OTHER_NODE", id="by name"),
        pytest.param({"w1": "w1"}, "VM_OF_OTHER_NODE", id="by host name"),
    ],
)
def test_vm_of_another_node_is_not_taken(hostnames: dict[str, str], reason: str) -> None:
    other = node("w9", provider_id="harvester://uid-w1")
    match = find_vm(node("w1"), index([vm("w1", labels=OWN)], hostnames=hostnames, nodes=[other]))
    assert match.problem is not None
    assert match.problem.reason.name == reason
    assert "Node w9" in match.problem.message


def test_node_that_joined_again_under_its_name_gets_its_vm() -> None:
    stale = node("w1", uid="before", provider_id="harvester://uid-w1")
    assert find_vm(node("w1", uid="after"), index([vm("w1")], nodes=[stale])).vm is not None


def test_nothing_is_concluded_from_half_a_list() -> None:
    machines = index([vm("w1"), vm("w2")], synced=False)
    assert find_vm(node("w1", provider_id="harvester://uid-w1"), machines).vm is not None
    problem = find_vm(node("w2"), machines).problem
    assert problem is not None
    assert problem.reason.name == "HARVESTER_UNAVAILABLE"


@pytest.mark.parametrize(
    ("cluster", "label"),
    [
        ("demo", {"guestcluster.harvesterhci.io/name": "demo"}),
        ("kubernetes", {"harvesterhci.io/creator": "docker-machine-driver-harvester"}),
    ],
)
def test_missing_vm_is_told_with_what_its_agent_needs(cluster: str, label: dict[str, str]) -> None:
    guest = ClusterIdentity(cluster, "prod")
    problem = find_vm(node("w7"), index([vm("w1")], cluster=guest)).problem
    ((key, value),) = label.items()
    assert problem is not None
    assert problem.reason.name == "VM_NOT_FOUND"
    assert problem.message == (
        "No VM of that name in namespace prod of Harvester, and none with this Node's provider ID, system UUID or "
        "guest host name w7. Check the namespace in the cloud-config; a VM with another name than its Node must run "
        f"qemu-guest-agent and have the label {key}={value}"
    )
    silent = find_vm(node("w7"), index([vm("w1")], cluster=replace(guest, asks_guests=False))).problem
    assert silent is not None
    assert silent.message.endswith("must have its system UUID, because guests are not asked for host names")
    labelled = index([vm("w1", labels=label)], [instance("w1", labels=label)], cluster=guest)
    assert may_be_asked(labelled.by_name["w1"], labelled)


@pytest.mark.parametrize(
    ("machine", "running", "asked"),
    [
        pytest.param(vm(labels=OWN), instance(), True, id="ours, running, with agent"),
        pytest.param(vm(), instance(labels={"harvesterhci.io/creator": "docker-machine-driver-harvester"}), True,
                     id="made by Rancher before clusters were marked"),
        pytest.param(vm(), instance(), False, id="anybody's VM"),
        pytest.param(vm(labels=FOREIGN), instance(), False, id="another cluster's"),
        pytest.param(vm(labels=OWN), instance(agent=False), False, id="no agent"),
        pytest.param(vm(labels=OWN), instance(phase="Scheduling"), False, id="not running yet"),
        pytest.param(vm(labels=OWN), None, False, id="stopped"),
    ],
)  # fmt: skip
def test_agents_that_are_asked(machine: VirtualMachine, running: VirtualMachineInstance | None, asked: bool) -> None:
    machines = index([machine], [running] if running else [])
    assert may_be_asked(machines.by_name["w1"], machines) == asked
    taken = index([machine], [running] if running else [], nodes=[node("w9", provider_id="harvester://uid-w1")])
    assert not may_be_asked(taken.by_name["w1"], taken)


@pytest.mark.parametrize(
    ("labels", "nodes", "ours"),
    [
        pytest.param(OWN, [], True, id="marked"),
        pytest.param({}, [], False, id="not marked"),
        pytest.param({}, [node(provider_id="harvester://uid-w1")], True, id="not marked, but a Node"),
        pytest.param(FOREIGN, [], False, id="another cluster's"),
    ],
)
def test_instances_that_are_our_nodes(labels: dict[str, str], nodes: list[Node], ours: bool) -> None:
    machines = index([vm(labels=labels)], [instance()], nodes=nodes)
    assert bool(own_vmis(machines)) == ours


def test_odd_objects_stop_nothing() -> None:
    odd = [vm("", uid="x"), vm("w3", uid=""), vm("w1", labels=OWN)]
    machines = index(odd, [instance("no-vm"), instance("w1")])
    assert set(machines.by_name) == {"w1"}


@pytest.mark.parametrize(
    ("said", "usable"),
    [
        ("w1", "w1"),
        (" W1.Example.COM. ", "w1.example.com"),
        ("localhost", ""),
        ("localhost.localdomain", ""),
        ("", ""),
        ("my host", ""),
        ("w_1", ""),
    ],
)
def test_host_names_that_identify_a_machine(said: str, usable: str) -> None:
    assert usable_hostname(said) == usable


def test_claims_are_of_our_provider_ids_only() -> None:
    nodes = [node("a", provider_id="harvester://1"), node("b"), node("c", provider_id="k3s://c")]
    assert claims_of(nodes) == {"1": "a"}


@pytest.mark.parametrize("order", [1, -1])
def test_of_several_nodes_that_claim_a_vm_the_first_by_name_counts(order: int) -> None:
    nodes = [node(name, provider_id="harvester://1") for name in ("a", "b", "c")]
    assert claims_of(nodes[::order]) == {"1": "a"}


SYSTEM, SWAPPED, STRANGER = (
    "00112233-4455-6677-8899-aabbccddeeff",
    "33221100-5544-7766-8899-aabbccddeeff",
    "deadbeef-0000-4000-8000-000000000001",
)


@pytest.mark.parametrize(
    ("shown", "firmware", "by"),
    [
        pytest.param(SYSTEM, STRANGER, None, id="two machines"),
        pytest.param(SYSTEM, SWAPPED, "name", id="the other byte order"),
        pytest.param(SYSTEM, "", "name", id="the VM's is not known"),
        pytest.param("", STRANGER, "name", id="the Node's is not known"),
        pytest.param("Not Settable", STRANGER, "name", id="the Node's is no UUID"),
    ],
)
def test_name_does_not_outweigh_the_uuids(shown: str, firmware: str, by: str | None) -> None:
    target = node("w1", system_uuid=shown)
    vms = [vm("w1", firmware=firmware, labels=OWN), vm("w2")]
    match = find_vm(target, index(vms, nodes=OTHERS))
    assert match.by == by
    if by is None:
        assert match.problem is not None
        assert f"is another machine: its firmware UUID is {STRANGER}" in match.problem.message


def test_name_of_another_machine_does_not_replace_a_vm_that_no_longer_exists() -> None:
    target = node("w1", system_uuid=SYSTEM, provider_id="harvester://elsewhere")
    match = find_vm(target, index([vm("w1", firmware=STRANGER, labels=OWN), vm("w2")], nodes=OTHERS))
    assert match.problem is not None
    assert f"is another machine: its firmware UUID is {STRANGER}" in match.problem.message


def test_guest_host_name_does_not_outweigh_the_uuids() -> None:
    machines = index([vm("vm-1", firmware=STRANGER, labels=OWN)], hostnames={"vm-1": "w1"})
    assert find_vm(node("w1", system_uuid=SYSTEM), machines).vm is None


NAMED = str(uuid5(UUID("6a1a24a1-4061-4607-8bf4-a3963d0c5895"), "w1"))
"""Firmware UUID of every VM "w1" that KubeVirt before 1.4 has started, wherever it is."""
RECORD = "cloudprovider.harvesterhci.io/virtual-machine"


@pytest.mark.parametrize(
    ("record", "system_uuid", "firmware", "found"),
    [
        pytest.param("", SYSTEM, SYSTEM, True, id="a UUID of its own"),
        pytest.param("", SYSTEM.upper(), SWAPPED, True, id="the other byte order"),
        pytest.param("w1", SYSTEM, SYSTEM, True, id="recorded without a namespace"),
        pytest.param("prod/w1", SYSTEM, SYSTEM, True, id="recorded as this VM of this namespace"),
        pytest.param("prod/w1", NAMED, NAMED, True, id="recorded, a UUID made from the name"),
        pytest.param("", NAMED, NAMED, False, id="a UUID made from the name"),
        pytest.param("w1", NAMED, NAMED, False, id="a UUID made from the name, recorded without a namespace"),
        pytest.param("prod/w1", SYSTEM, "", False, id="UUID of the VM unknown"),
        pytest.param("prod/w1", "", SYSTEM, False, id="UUID of the Node unknown"),
        pytest.param("prod/other", SYSTEM, SYSTEM, False, id="clone of the VM"),
        pytest.param("other", SYSTEM, SYSTEM, False, id="clone of the VM, recorded without a namespace"),
    ],
)
@pytest.mark.parametrize("labels", [{}, OWN], ids=["no mark", "our mark"])
def test_vm_replaces_one_that_no_longer_exists_only_with_the_system_uuid(
    record: str, system_uuid: str, firmware: str, found: bool, labels: dict[str, str]
) -> None:
    annotations = {RECORD: record} if record else {}
    target = node(provider_id="harvester://before", system_uuid=system_uuid, annotations=annotations)
    vms = [vm("w1", uid="after", firmware=firmware, labels=labels), vm("w2")]
    match = find_vm(target, index(vms, nodes=[target, *OTHERS]))
    assert (match.vm is not None) == found
    assert match.stranger != found
    note = match.note or match.problem
    assert note is not None
    assert note.reason.name == ("VM_REPLACED" if found else "VM_OF_OTHER_MACHINE")
    if not found:
        assert "run kubectl delete node w1 and restart its kubelet" in note.message


def test_other_clusters_vm_is_not_found_by_a_uuid_that_its_name_gave_it() -> None:
    machines = index([vm("w1", firmware=NAMED, labels=FOREIGN)])
    problem = find_vm(node(system_uuid=NAMED), machines).problem
    assert problem is not None
    assert problem.reason.name == "VM_OF_OTHER_CLUSTER"
    unique = index([vm("w1", firmware=SYSTEM, labels=FOREIGN)])
    assert find_vm(node(system_uuid=SYSTEM), unique).by == "system UUID"


@pytest.mark.parametrize(
    ("name", "others", "reason"),
    [
        pytest.param("w7", ["harvester://uid-w7"], "VM_NOT_FOUND", id="another program's, for its namespace"),
        pytest.param("w1", ["harvester://uid-w1"], "VM_IN_OTHER_NAMESPACE", id="and it has a namesake here"),
        pytest.param("w7", [], "VM_IN_OTHER_NAMESPACE", id="no Node has its VM here"),
    ],
)
def test_node_of_another_namespace_has_no_vm_here(name: str, others: list[str], reason: str) -> None:
    target = node(provider_id="harvester://x", system_uuid=SYSTEM, annotations={RECORD: "staging/w1"})
    nodes = [target, *(node("w8", provider_id=one) for one in others)]
    match = find_vm(target, index([vm(name, firmware=SYSTEM if name == "w1" else "")], nodes=nodes))
    assert match.problem is not None
    assert (match.problem.reason.name, match.stranger) == (reason, True)
    assert "says that this Node is VM staging/w1, and the cloud-config names namespace prod" in match.problem.message


def test_provider_id_comes_before_the_record() -> None:
    target = node(provider_id="harvester://uid-w1", annotations={RECORD: "staging/w1"})
    assert find_vm(target, index([vm("w1")])).by == "provider ID"
