"""Which VM a Node is."""

from uuid import UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harvester_ccm.kube.errors import Unreachable
from harvester_ccm.kube.objects import ObjectT
from harvester_ccm.kube.store import Store
from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import ClusterIdentity, VirtualMachine, VirtualMachineInstance
from harvester_ccm.names import VM_ANNOTATION, VM_CLUSTER, NodeReason
from harvester_ccm.plan.node.match import find_vm, vm_names
from harvester_ccm.plan.node.vms import (
    VM_INDEXES,
    Membership,
    join,
    node_identities,
    own_vmis,
    queryable_guests,
    vm_identities,
    vmi_identities,
)
from tests.support.node_objects import CLUSTER, FOREIGN, OWN, instance, node, store, vm


class NotListed(Store[ObjectT]):
    """A collection before its first list."""

    synced = False


UUID_A, UUID_B = "5f3c0000-0000-4000-8000-00000000000a", "5f3c0000-0000-4000-8000-00000000000b"
SWAPPED_A = str(UUID(bytes=UUID(UUID_A).bytes_le))
NAMED = str(uuid5(UUID("6a1a24a1-4061-4607-8bf4-a3963d0c5895"), "w1"))
"""Firmware UUID that KubeVirt before 1.6 derives from the name."""
LABELED = vm("w1", labels=OWN)
RECORDED = {VM_ANNOTATION: "prod/w1"}
OTHER_NODE = node("w2", provider_id="harvester://uid-w1")


def found(
    target: Node,
    *vms: VirtualMachine,
    vmis: tuple[VirtualMachineInstance, ...] = (),
    hostnames: dict[str, str] | None = None,
    nodes: tuple[Node, ...] = (),
    cluster: ClusterIdentity = CLUSTER,
) -> str:
    """Return the match in one line: VM and identity, or the problem; ``!``: the Node is unmanaged."""
    match = find_vm(store(vms, vmis, hostnames=hostnames, nodes=(target, *nodes), cluster=cluster), target)
    if match.vm is None:
        assert match.problem is not None
        return f"{match.problem.reason}{'!' if match.unmanaged else ''}"
    matched = f"{match.vm.name} by {match.by}"
    if match.event is None:
        return matched
    return f"{matched} replaced" if match.event.reason is NodeReason.VM_REPLACED else f"{matched}, doubtful"


@pytest.mark.parametrize(
    ("target", "vms", "expected"),
    [
        pytest.param(node(), [LABELED, vm("w2")], "w1 by name", id="name"),
        pytest.param(
            node(provider_id="harvester://uid-w2"), [LABELED, vm("w2")], "w2 by provider ID", id="provider ID"
        ),
        pytest.param(
            node(provider_id="harvester://uid-w1"),
            [vm("w1", labels=FOREIGN)],
            "w1 by provider ID, doubtful",
            id="despite label",
        ),
        pytest.param(
            node(system_uuid=UUID_A.upper()), [vm("vm-1", firmware=UUID_A), vm("w1")], "vm-1 by system UUID", id="UUID"
        ),
        pytest.param(node(system_uuid=UUID_A), [vm("w1", firmware=SWAPPED_A)], "w1 by name", id="other byte order"),
        pytest.param(node(system_uuid=UUID_A), [vm("w1", firmware=UUID_B)], "VMIdentityMismatch!", id="other UUID"),
        pytest.param(node(), [vm("w1", labels=FOREIGN)], "VMClusterMismatch", id="name of another cluster's VM"),
        pytest.param(
            node(system_uuid=UUID_A),
            [vm("w1", labels=FOREIGN, firmware=UUID_A)],
            "w1 by system UUID, doubtful",
            id="UUID, label",
        ),
        pytest.param(
            node(system_uuid=NAMED), [vm("w1", labels=FOREIGN, firmware=NAMED)], "VMClusterMismatch", id="derived UUID"
        ),
        pytest.param(node(), [vm("other")], "VMNotFound!", id="none"),
        pytest.param(node(provider_id="k3s://w1", system_uuid=UUID_A), [LABELED], "ProviderMismatch!", id="foreign ID"),
        pytest.param(
            node(provider_id="harvester://uid-w1", annotations={VM_ANNOTATION: "x/w1"}),
            [LABELED],
            "w1 by provider ID",
            id="provider ID before record",
        ),
    ],
)
def test_identities_in_their_order(target: Node, vms: list[VirtualMachine], expected: str) -> None:
    assert found(target, *vms) == expected


@pytest.mark.parametrize(
    ("name", "hostnames", "expected"),
    [
        pytest.param("w1", {"a": "w1", "b": "w2"}, "a by host name", id="equal"),
        pytest.param("w1", {"a": "W1.example.com."}, "a by host name", id="guest with domain"),
        pytest.param("w1.example.com", {"a": "w1"}, "a by host name", id="Node with domain"),
        pytest.param("w1.example.com", {"a": "w1.example.org"}, "VMNotFound!", id="other domain"),
        pytest.param("w1", {"a": "w1.example.com", "b": "w1"}, "b by host name", id="exact one first"),
        pytest.param("w1", {"a": "w1", "b": "w1"}, "VMAmbiguous", id="two guests"),
        pytest.param("localhost", {"a": "localhost"}, "VMNotFound!", id="guest without a name"),
        pytest.param("w1", {"foreign": "w1"}, "VMNotFound!", id="other cluster"),
    ],
)
def test_host_name_of_the_guest(name: str, hostnames: dict[str, str], expected: str) -> None:
    vms = [vm("a", labels=OWN), vm("b", labels=OWN), vm("foreign", labels=FOREIGN)]
    assert found(node(name), *vms, hostnames=hostnames) == expected


@pytest.mark.parametrize(
    ("hostnames", "expected"),
    [({}, "VMInUse"), ({"w1": "w1"}, "VMInUse"), ({"free": "w1"}, "free by host name")],
)
def test_vm_of_another_node_is_not_matched_by_names(hostnames: dict[str, str], expected: str) -> None:
    assert found(node(), vm("w1"), vm("free"), hostnames=hostnames, nodes=(OTHER_NODE,)) == expected


@pytest.mark.parametrize(
    ("names", "labels", "expected"),
    [
        pytest.param(("a", "b"), (OWN, OWN), "VMAmbiguous", id="nothing distinguishes them"),
        pytest.param(("a", "w1"), (OWN, OWN), "w1 by system UUID", id="name"),
        pytest.param(("a", "b"), (OWN, FOREIGN), "a by system UUID", id="label"),
    ],
)
def test_clones_with_one_system_uuid(
    names: tuple[str, str], labels: tuple[dict[str, str], dict[str, str]], expected: str
) -> None:
    clones = [vm(name, firmware=UUID_A, labels=label) for name, label in zip(names, labels, strict=True)]
    assert found(node(system_uuid=UUID_A), *clones) == expected


def test_stopped_vm_with_another_uuid_is_not_this_machine() -> None:
    """A second VM, restored from a backup of the first, boots under the name of its Node."""
    of = node(provider_id="harvester://uid-w1", system_uuid=UUID_B)
    vms = (vm("w1", firmware=UUID_A, printable="Stopped"), vm("w1-restored", firmware=UUID_B))
    match = find_vm(store(vms, nodes=(of,)), of)
    assert match.runs_other_machine
    assert match.event is not None
    assert match.event.reason is NodeReason.VM_IDENTITY_MISMATCH
    assert "VM prod/w1 might be a clone" in match.event.cause
    assert match.event.cause.endswith(". VM prod/w1-restored has this Node's system UUID")


@pytest.mark.parametrize(("labels", "advises_label"), [(OWN, False), ({}, True)], ids=["both have it", "none has it"])
def test_label_is_advised_only_where_it_distinguishes_clones(labels: dict[str, str], *, advises_label: bool) -> None:
    clones = [vm(name, firmware=UUID_A, labels=labels) for name in ("a", "b")]
    of = node(system_uuid=UUID_A)
    match = find_vm(store(clones, nodes=(of,)), of)
    assert match.problem is not None
    assert "another UUID (spec.template.spec.domain.firmware.uuid)" in match.problem.remedy
    assert ("set the label guestcluster.harvesterhci.io/name=demo on the VM of this Node" in match.problem.remedy) is (
        advises_label
    )


@pytest.mark.parametrize(
    ("shown", "annotations", "replacement", "expected"),
    [
        pytest.param(UUID_A, RECORDED, vm("w1", firmware=UUID_A), "w1 by system UUID replaced", id="restored"),
        pytest.param(UUID_A, {}, vm("w1", firmware=UUID_A), "VMIdentityMismatch!", id="not recorded"),
        pytest.param(
            UUID_A, {VM_ANNOTATION: "x/w1"}, vm("w1", firmware=UUID_A), "VMIdentityMismatch!", id="other namespace"
        ),
        pytest.param(UUID_A, RECORDED, vm("copy", firmware=UUID_A), "VMIdentityMismatch!", id="clone"),
        pytest.param(UUID_A, RECORDED, vm("w1"), "VMIdentityMismatch!", id="UUID unknown"),
        pytest.param("", RECORDED, vm("w1", firmware=UUID_A), "VMIdentityMismatch!", id="Node without UUID"),
        pytest.param(UUID_A, {}, vm("other"), "VMNotFound", id="nothing"),
    ],
)
def test_vm_replaces_a_deleted_one_only_with_the_system_uuid(
    shown: str, annotations: dict[str, str], replacement: VirtualMachine, expected: str
) -> None:
    target = node(provider_id="harvester://gone", system_uuid=shown, annotations=annotations)
    assert found(target, replacement) == expected


def test_uuid_of_the_vmi_takes_precedence() -> None:
    machines = vm("a", firmware=UUID_B), vm("b", firmware=UUID_A)
    running = instance("a", firmware=UUID_A), instance("b", firmware=UUID_B)
    assert found(node(system_uuid=UUID_A), *machines, vmis=running) == "a by system UUID"


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


@pytest.mark.parametrize(
    ("label", "expected"),
    [("new", Membership.OWN), ("old", Membership.OWN), ("other", Membership.FOREIGN), ("", Membership.UNMARKED)],
)
def test_former_cluster_names_are_own(label: str, expected: Membership) -> None:
    cluster = ClusterIdentity("new", "prod", former_names=("old",))
    one = vm("w1", labels={VM_CLUSTER: label} if label else {})
    assert join(store([one], cluster=cluster), one).membership is expected


def test_matches_for_the_service_controller() -> None:
    nodes = [
        node("w1", provider_id="harvester://uid-w1"),
        node("w2", provider_id="harvester://gone"),
        node("bare-metal"),
    ]
    assert vm_names(store([vm("w1")], nodes=nodes)) == {"w1": "w1"}


NAMES = st.sampled_from(["w1", "w2", "w1.example.com", "w2.example.com"])
UUIDS = st.sampled_from(["", "AA-1", "bb-2"])


@given(
    name=NAMES,
    uuid=UUIDS,
    provider=st.sampled_from(["", "harvester://uid-w1", "harvester://uid-w2", "k3s://w1"]),
    machines=st.lists(st.tuples(NAMES, UUIDS), max_size=3, unique_by=lambda entry: entry[0]),
)
def test_changes_of_a_vm_enqueue_its_node(name: str, uuid: str, provider: str, machines: list[tuple[str, str]]) -> None:
    vms = [vm(own, firmware=firmware, labels=OWN) for own, firmware in machines]
    target = node(name, system_uuid=uuid, provider_id=provider)
    match = find_vm(store(vms), target)
    if match.vm is not None:
        values = {*vm_identities(match.vm.object), *(vmi_identities(match.vm.vmi) if match.vm.vmi else ())}
        assert not values.isdisjoint(node_identities(target))
