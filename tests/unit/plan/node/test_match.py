"""Which VM a Node is."""

import json
from uuid import UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harvester_ccm.kube.errors import Unreachable
from harvester_ccm.kube.objects import ObjectT
from harvester_ccm.kube.store import Store
from harvester_ccm.model.harvester import VIRTUAL_MACHINES, ClusterIdentity, VirtualMachine, VirtualMachineInstance
from harvester_ccm.names import DEFAULT_CLUSTER_NAME, VM_ANNOTATION, VM_CLUSTER, NodeReason
from harvester_ccm.plan.node.match import find_vm, needs_hostname, vm_names
from harvester_ccm.plan.node.vms import (
    VM,
    VM_INDEXES,
    Contradiction,
    Membership,
    NodeNetworks,
    contradiction_of,
    join,
    networks_of,
    node_identities,
    own_vmis,
    owner_of,
    queryable_guests,
    reported_addresses,
    vm_identities,
    vmi_identities,
)
from tests.support.node_objects import FOREIGN, OWN, UNINITIALIZED, answered, instance, node, store, vm


class NotListed(Store[ObjectT]):
    """A collection before its first list."""

    synced = False


UUID_A, UUID_B = "5f3c0000-0000-4000-8000-00000000000a", "5f3c0000-0000-4000-8000-00000000000b"
UUIDS = {
    "A": UUID_A,
    "B": UUID_B,
    "upper-A": UUID_A.upper(),
    "swapped-A": str(UUID(bytes=UUID(UUID_A).bytes_le)),
    # KubeVirt before 1.6 derives it from the name of the VM.
    "of-w1": str(uuid5(UUID("6a1a24a1-4061-4607-8bf4-a3963d0c5895"), "w1")),
}
LABELS = {"own": OWN, "foreign": FOREIGN, "": {}}
OTHER_NODE = node("w2", provider_id="harvester://uid-w1")

MATCHES = """
# Node                            | VMs                                   | match
w1                                | w1:own; w2                            | w1 by name
w1 id=harvester://uid-w2          | w1:own; w2                            | w2 by provider ID
w1 id=harvester://uid-w1          | w1:foreign                            | w1 by provider ID, doubtful
w1 id=harvester://uid-w1 uuid=A   | w1:own uuid=B                         | w1 by provider ID, other machine
w1 id=harvester://uid-w1 vm=x/w1  | w1:own                                | w1 by provider ID
w1 uuid=upper-A                   | vm-1 uuid=A; w1                       | vm-1 by system UUID
w1 uuid=A                         | vm-1 uuid=upper-A; w1                 | vm-1 by system UUID
w1 uuid=A                         | w1 uuid=swapped-A                     | w1 by name
w1 uuid=A                         | w1 uuid=B                             | VMIdentityMismatch!
w1                                | w1:foreign                            | VMClusterMismatch
w1 uuid=A                         | w1:foreign uuid=A                     | w1 by system UUID, doubtful
w1 uuid=of-w1                     | w1:foreign uuid=of-w1                 | VMClusterMismatch
w1                                | other                                 | VMNotFound!
w1 id=k3s://w1 uuid=A             | w1:own                                | ProviderMismatch!
# The host names that guest agents report
w1                                | a:own host=w1; b:own host=w2          | a by host name
w1                                | a:own host=W1.example.com.            | a by host name
w1.example.com                    | a:own host=w1                         | a by host name
w1.example.com                    | a:own host=w1.example.org             | VMNotFound!
w1                                | a:own host=w1.example.com; b:own host=w1 | b by host name
w1                                | a:own host=w1; b:own host=w1          | VMAmbiguous
w1 uuid=A                         | a:own uuid=A; liar:own uuid=B host=w1 | a by system UUID
w1 uuid=A                         | liar:own uuid=B host=w1               | VMNotFound!
localhost                         | a:own host=localhost                  | VMNotFound!
localhost.localdomain6            | a:own host=localhost.localdomain6     | VMNotFound!
w1                                | a:foreign host=w1                     | VMNotFound!
# Clones with one UUID
w1 uuid=A                         | a:own uuid=A; b:own uuid=A            | VMAmbiguous
w1 uuid=A                         | a:own uuid=A; w1:own uuid=A           | w1 by system UUID
w1 uuid=A                         | a:own uuid=A; b:foreign uuid=A        | a by system UUID
# Node w2 has the provider ID of VM w1
w1 beside-w2                      | w1; free                              | VMInUse
w1 beside-w2                      | w1 host=w1; free                      | VMInUse
w1 beside-w2                      | w1; free host=w1                      | free by host name
w1 uuid=A beside-w2               | w1:own uuid=A; free uuid=A            | free by system UUID
"""
REPLACEMENTS = """
# Node, whose VM was deleted                  | VMs         | match
w1 id=harvester://gone uuid=A vm=prod/w1      | w1 uuid=A   | w1 by system UUID replaced
w1 id=harvester://gone uuid=A                 | w1 uuid=A   | VMIdentityMismatch!
w1 id=harvester://gone uuid=A vm=x/w1         | w1 uuid=A   | VMIdentityMismatch!
w1 id=harvester://gone uuid=A vm=prod/w1      | copy uuid=A | VMIdentityMismatch!
w1 id=harvester://gone uuid=A vm=prod/w1      | w1          | VMIdentityMismatch!
w1 id=harvester://gone vm=prod/w1             | w1 uuid=A   | VMIdentityMismatch!
w1 id=harvester://gone uuid=A                 | other       | VMNotFound
w1 id=harvester://gone uuid=A vm=prod/w1 beside-w2 | w1 uuid=A | VMInUse
"""


def rows_of(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in row.split("|")] for row in table.splitlines() if row and not row.startswith("#")]


def fields_of(text: str) -> tuple[str, dict[str, str]]:
    """Return the name in a cell, and its further words as fields."""
    name, *words = text.split()
    return name, {word.partition("=")[0]: word.partition("=")[2] for word in words}


def found(target_text: str, vms_text: str) -> str:
    """Return the match of a row: VM and identity, or the problem; ``!``: the Node is unmanaged."""
    name, of_node = fields_of(target_text)
    annotations = {VM_ANNOTATION: of_node["vm"]} if "vm" in of_node else {}
    uuid = UUIDS.get(of_node.get("uuid", ""), "")
    target = node(name, provider_id=of_node.get("id", ""), system_uuid=uuid, annotations=annotations)
    vms: list[VirtualMachine] = []
    hostnames: dict[str, str] = {}
    for text in vms_text.split(";"):
        labeled, of_vm = fields_of(text)
        vm_name, _, label = labeled.partition(":")
        vms.append(vm(vm_name, labels=LABELS[label], firmware=UUIDS.get(of_vm.get("uuid", ""), "")))
        if "host" in of_vm:
            hostnames[vm_name] = of_vm["host"]
    nodes = [target, OTHER_NODE] if "beside-w2" in of_node else [target]
    match = find_vm(store(vms, hostnames=hostnames, nodes=nodes), target)
    if match.vm is None:
        assert match.problem is not None
        return f"{match.problem.reason}{'!' if match.unmanaged else ''}"
    matched = f"{match.vm.name} by {match.by}"
    if match.event is None:
        return matched
    if match.runs_other_machine:
        return f"{matched}, other machine"
    return f"{matched} replaced" if match.event.reason is NodeReason.VM_REPLACED else f"{matched}, doubtful"


@pytest.mark.parametrize(("target", "vms", "expected"), rows_of(MATCHES))
def test_identities_in_their_order(target: str, vms: str, expected: str) -> None:
    assert found(target, vms) == expected


@pytest.mark.parametrize(("target", "vms", "expected"), rows_of(REPLACEMENTS))
def test_vm_replaces_a_deleted_one_only_with_the_system_uuid(target: str, vms: str, expected: str) -> None:
    assert found(target, vms) == expected


def test_stopped_vm_with_another_uuid_is_not_this_machine() -> None:
    """A second VM, restored from a backup of the first, boots under the name of its Node."""
    of = node(provider_id="harvester://uid-w1", system_uuid=UUID_B)
    vms = (vm("w1", firmware=UUID_A, printable="Stopped"), vm("w1-restored", firmware=UUID_B))
    match = find_vm(store(vms, nodes=(of,)), of)
    assert match.runs_other_machine
    assert match.event is not None
    assert match.event.reason is NodeReason.VM_IDENTITY_MISMATCH
    assert "The kubelet of VM prod/w1-restored runs under this Node's name" in match.event.cause
    assert "Stop VM prod/w1-restored, or give its guest a host name" in match.event.remedy
    assert not match.event.command


def test_vm_in_another_namespace_is_to_be_moved_unless_all_are_there() -> None:
    of = node("w2")
    problem = find_vm(store((vm("w1"),), nodes=(of,)), of).problem
    assert problem is not None
    assert "create it in prod; if the VMs of all Nodes are there, correct the namespace" in problem.remedy
    assert "If the VM was deleted" in problem.remedy
    assert problem.command == "kubectl delete node w2"


def test_vm_of_a_new_node_may_need_a_guest_agent() -> None:
    of = node("w2", taints=[UNINITIALIZED])
    problem = find_vm(store((vm("w1"),), nodes=(of,)), of).problem
    assert problem is not None
    assert "create it in prod; if the VMs of all Nodes are there, correct the namespace" in problem.remedy
    assert "run qemu-guest-agent in it" in problem.remedy


@pytest.mark.parametrize(
    ("labels", "cluster", "advises_label"),
    [(OWN, "demo", False), ({}, "demo", True), ({}, DEFAULT_CLUSTER_NAME, False)],
    ids=["both have it", "none has it", "cluster without a name of its own"],
)
def test_label_is_advised_only_where_it_distinguishes_clones(
    labels: dict[str, str], cluster: str, *, advises_label: bool
) -> None:
    clones = [vm(name, firmware=UUID_A, labels=labels) for name in ("a", "b")]
    of = node(system_uuid=UUID_A)
    match = find_vm(store(clones, nodes=(of,), cluster=ClusterIdentity(cluster, "prod")), of)
    assert match.problem is not None
    assert "another UUID (spec.template.spec.domain.firmware.uuid), and restart it" in match.problem.remedy
    assert (f"set the label {VM_CLUSTER}={cluster} on the VM of this Node" in match.problem.remedy) is advises_label


@pytest.mark.parametrize("kind", ["virtualmachines", "virtualmachineinstances"])
def test_command_labels_the_object_whose_label_counts(kind: str) -> None:
    instances = [instance(labels=FOREIGN)] if kind == "virtualmachineinstances" else []
    problem = find_vm(store([vm(labels=FOREIGN)], instances), node()).problem
    assert problem is not None
    assert f" {kind}.kubevirt.io -n prod w1 " in problem.command


@pytest.mark.parametrize("hostnames", [{}, {"a": "w1"}, {"a": "w1", "b": "w1"}], ids=["none", "one", "two"])
def test_guests_are_queried_again_while_only_their_host_names_identify_the_vm(hostnames: dict[str, str]) -> None:
    new = node(taints=[UNINITIALIZED])
    lists = store([vm("a", labels=OWN), vm("b", labels=OWN)], hostnames=hostnames)
    assert needs_hostname(new, find_vm(lists, new))


def test_uuid_of_the_vmi_takes_precedence() -> None:
    machines = vm("a", firmware=UUID_B), vm("b", firmware=UUID_A)
    running = instance("a", firmware=UUID_A), instance("b", firmware=UUID_B)
    match = find_vm(store(machines, running), node(system_uuid=UUID_A))
    assert match.vm is not None
    assert match.vm.name == "a"


def test_no_vm_is_missing_while_vms_cannot_be_listed() -> None:
    failing, not_listed = store([], problem=Unreachable("timeout")), store([])
    not_listed.vms = NotListed[VirtualMachine]([], VM_INDEXES)
    for lists in (failing, not_listed):
        match = find_vm(lists, node(provider_id="harvester://uid-w1"))
        assert match.problem is not None
        assert (match.problem.reason, match.unmanaged) == ("HarvesterUnavailable", False)


@pytest.mark.parametrize(
    ("labels", "phase", "agent", "claimed", "queried"),
    [
        (OWN, "Running", True, False, True),
        ({"harvesterhci.io/creator": "docker-machine-driver-harvester"}, "Running", True, False, True),
        ({}, "Running", True, False, False),
        (FOREIGN, "Running", True, False, False),
        (OWN, "Scheduling", True, False, False),
        (OWN, "Running", False, False, False),
        (OWN, "Running", True, True, False),
        ({}, "Running", True, True, False),
    ],
)
def test_guests_that_are_queried(
    labels: dict[str, str], phase: str, *, agent: bool, claimed: bool, queried: bool
) -> None:
    machine = vm("w1", labels=labels)
    vmi = instance("w1", labels=labels, phase=phase, agent=agent)
    lists = store([machine], [vmi], nodes=[OTHER_NODE] if claimed else [])
    assert [one.metadata.name for one in queryable_guests(lists)] == (["w1"] if queried else [])
    assert [one.metadata.name for one in own_vmis(lists)] == (["w1"] if labels is OWN or claimed else [])


RENAMED = ClusterIdentity("demo", "prod", former_names=("old",))
UNNAMED = ClusterIdentity(DEFAULT_CLUSTER_NAME, "prod")
MEMBERSHIPS: dict[str, tuple[dict[str, str], dict[str, str] | None, ClusterIdentity, Membership]] = {
    "this cluster": (OWN, None, RENAMED, Membership.OWN),
    "a former name of it": ({VM_CLUSTER: "old"}, None, RENAMED, Membership.OWN),
    "another cluster": (FOREIGN, None, RENAMED, Membership.FOREIGN),
    "no label": ({}, None, RENAMED, Membership.UNMARKED),
    "cluster without a name of its own": (OWN, None, UNNAMED, Membership.UNMARKED),
    "VM relabeled since its start": (FOREIGN, OWN, RENAMED, Membership.OWN),
    "VM labeled again since its start": (OWN, FOREIGN, RENAMED, Membership.FOREIGN),
    "label of the VM only": (OWN, {}, RENAMED, Membership.OWN),
}
"""Labels of the VM, and of its instance unless it is stopped."""


@pytest.mark.parametrize(("of_vm", "of_instance", "cluster", "expected"), MEMBERSHIPS.values(), ids=MEMBERSHIPS)
def test_cluster_label_of_the_running_instance_counts_before_that_of_the_vm(
    of_vm: dict[str, str], of_instance: dict[str, str] | None, cluster: ClusterIdentity, expected: Membership
) -> None:
    one = vm("w1", labels=of_vm)
    instances = [] if of_instance is None else [instance("w1", labels=of_instance)]
    assert join(store([one], instances, cluster=cluster), one).membership is expected


def test_label_in_the_template_of_a_vm_counts() -> None:
    template = {"metadata": {"labels": OWN}}
    assert VM(VIRTUAL_MACHINES.decode(json.dumps({"spec": {"template": template}}).encode())).cluster_label == "demo"


def test_initialized_node_with_the_provider_id_of_a_vm_has_it() -> None:
    nodes = [node("a", provider_id="harvester://uid-w1", taints=[UNINITIALIZED]), OTHER_NODE]
    assert owner_of(store([vm("w1")], nodes=nodes), VM(vm("w1"))) == "w2"


@pytest.mark.parametrize(
    ("uuid", "vmi", "expected"),
    [(UUID_A, instance(), None), (f" {UUID_A} ", None, Contradiction.UUID), (UUID_B, None, None)],
    ids=["the instance has none", "blanks around it", "the same"],
)
def test_other_uuid_contradicts(uuid: str, vmi: VirtualMachineInstance | None, expected: Contradiction | None) -> None:
    assert contradiction_of(node(system_uuid=uuid), VM(vm(firmware=UUID_B), vmi)) is expected


def test_vm_network_of_the_internal_ip() -> None:
    second = {"name": "nic-2", "ipAddresses": ["fd00::1"]}
    vmi = instance(networks=[("nic-1", "mgmt"), ("nic-2", "storage")], ips=["10.0.0.1"], interfaces=[second])
    of = node(addresses=[("InternalIP", "FD00::0001")])
    assert networks_of(of, VM(vm(), vmi)) == NodeNetworks("prod/storage", frozenset({"prod/mgmt", "prod/storage"}))


def test_first_entry_of_an_interface_counts() -> None:
    later = {"name": "nic-1", "ipAddresses": ["10.0.0.1"]}
    assert reported_addresses(instance(ips=[], interfaces=[later]), "nic-1") == ()


def test_matches_for_the_service_controller() -> None:
    nodes = [
        node("w1", provider_id="harvester://uid-w1"),
        node("w2", provider_id="harvester://gone"),
        node("bare-metal"),
    ]
    assert vm_names(store([vm("w1")], nodes=nodes)) == {"w1": "w1"}


def test_recorded_vm_counts_for_the_service_controller_where_vms_must_not_be_listed() -> None:
    nodes = [
        node("w1", provider_id="harvester://u1", annotations={VM_ANNOTATION: "prod/machine-1"}),
        node("w2", provider_id="harvester://u2"),
    ]
    assert vm_names(store([], nodes=nodes, problem=answered(403, "no"))) == {"w1": "machine-1", "w2": "w2"}


NAMES = st.sampled_from(["w1", "w2", "w1.example.com", "w2.example.com"])
SYSTEM_UUIDS = st.sampled_from(["", "AA-1", "bb-2"])


@given(
    name=NAMES,
    uuid=SYSTEM_UUIDS,
    provider=st.sampled_from(["", "harvester://uid-w1", "harvester://uid-w2", "k3s://w1"]),
    machines=st.lists(st.tuples(NAMES, SYSTEM_UUIDS), max_size=3, unique_by=lambda entry: entry[0]),
)
def test_changes_of_a_vm_enqueue_its_node(name: str, uuid: str, provider: str, machines: list[tuple[str, str]]) -> None:
    vms = [vm(own, firmware=firmware, labels=OWN) for own, firmware in machines]
    target = node(name, system_uuid=uuid, provider_id=provider)
    match = find_vm(store(vms), target)
    if match.vm is not None:
        values = {*vm_identities(match.vm.object), *(vmi_identities(match.vm.vmi) if match.vm.vmi else ())}
        assert not values.isdisjoint(node_identities(target))
