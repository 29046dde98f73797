"""The plan for one Node: what is written in which order, and what is said until then."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harvester_ccm.commands.inventory import ListedNodes
from harvester_ccm.config import NodeSettings
from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import ZONE, NodeReason
from harvester_ccm.netip import plain_address
from harvester_ccm.plan.node.decision import NodePlan, NodeView, VirtualIPs, plan_node
from harvester_ccm.plan.node.interfaces import DroppedAddress, DropReason
from harvester_ccm.plan.node.match import Match, MatchedBy, find_vm
from harvester_ccm.plan.node.messages import harvester_unavailable
from harvester_ccm.plan.node.patch import NodePatch, patch_request
from harvester_ccm.plan.node.vms import VM
from tests.worlds.node_objects import (
    FOREIGN,
    OWN,
    REINITIALIZE,
    UNINITIALIZED,
    answered,
    instance,
    node,
    node_settings,
    pairs,
    patched,
    shown,
    store,
    vm,
)

PROVIDED = "alpha.kubernetes.io/provided-node-ip"
ZONES = {"topology.kubernetes.io/zone": "us-west-1a", "topology.kubernetes.io/region": "us-west"}
EXTRA = {"key": "ImproveCoverageTaint", "value": "true", "effect": "NoSchedule"}


FIRMWARE = "5f3c0000-0000-4000-8000-00000000000a"


def machines(running: VirtualMachineInstance | None = None) -> ListedNodes:
    return store(
        [vm(labels=OWN, firmware=FIRMWARE)], [running or instance(ips=["10.0.0.1", "132.143.154.163"], labels=OWN)]
    )


def planned(target: Node, found: ListedNodes | None = None, settings: NodeSettings | None = None) -> NodePlan:
    """Return the plan when no address is waited for any more."""
    match = find_vm(found or machines(), target)
    return plan_node(NodeView(target, match, settings or node_settings(monitor_period=0.0)))


def applied(target: Node, plan: NodePlan) -> Node:
    """Return the Node after the plan, as the API server would leave it."""
    for patch in plan.patches:
        request = patch_request(target, patch)
        target = patched(target, request.body) if request else target
    return target


def test_initialisation_in_its_order() -> None:
    running = instance(ips=["10.0.0.1", "132.143.154.163"], annotations=ZONES)
    plan = planned(node(taints=[EXTRA, UNINITIALIZED]), machines(running))
    assert plan == NodePlan(
        patches=(
            NodePatch(
                {
                    "metadata": {"uid": "node-uid"},
                    "status": {
                        "addresses": [
                            {"type": "InternalIP", "address": "10.0.0.1"},
                            {"type": "ExternalIP", "address": "132.143.154.163"},
                            {"type": "Hostname", "address": "w1"},
                        ]
                    },
                },
                "status",
            ),
            NodePatch(
                {
                    "metadata": {
                        "uid": "node-uid",
                        "labels": {
                            "topology.kubernetes.io/zone": "us-west-1a",
                            "failure-domain.beta.kubernetes.io/zone": "us-west-1a",
                            "topology.kubernetes.io/region": "us-west",
                            "failure-domain.beta.kubernetes.io/region": "us-west",
                        },
                        "annotations": {
                            "cloudprovider.harvesterhci.io/virtual-machine": "prod/w1",
                            "cloudprovider.harvesterhci.io/node-network": "prod/mgmt",
                        },
                    },
                    "spec": {"providerID": "harvester://uid-w1"},
                },
                initialised=True,
            ),
        ),
        done=EventMessage("Normal", NodeReason.SYNCED, "Node synced successfully"),
    )


RECORD = "cloudprovider.harvesterhci.io/virtual-machine"
A1 = "I 10.0.0.1, E 132.143.154.163, H w1"


@pytest.mark.parametrize(
    ("before", "running", "provider_id", "addresses"),
    [
        pytest.param(node(taints=[UNINITIALIZED]), None, "harvester://uid-w1", A1, id="new node"),
        pytest.param(
            node(taints=[UNINITIALIZED], addresses=pairs("H nodeoverriden")),
            None,
            "harvester://uid-w1",
            A1,
            id="host name is the Node's name",
        ),
        pytest.param(
            node(taints=[UNINITIALIZED], provider_id="harvester://before", system_uuid=FIRMWARE),
            None,
            "harvester://before",
            A1,
            id="provider ID is kept",
        ),
        pytest.param(
            node(taints=[UNINITIALIZED], annotations={PROVIDED: "10.0.0.1"}),
            None,
            "harvester://uid-w1",
            A1,
            id="provided node IP",
        ),
        pytest.param(
            node(taints=[UNINITIALIZED], annotations={PROVIDED: "invalid-ip"}),
            None,
            "harvester://uid-w1",
            A1,
            id="provided node IP unreadable (Go: stuck)",
        ),
        pytest.param(
            node(taints=[UNINITIALIZED], annotations={PROVIDED: "10.0.0.2"}),
            None,
            "harvester://uid-w1",
            "I 10.0.0.2, E 10.0.0.1, E 132.143.154.163, H w1",
            id="provided node IP not offered (Go: stuck)",
        ),
        pytest.param(
            node(taints=[REINITIALIZE], provider_id="harvester://uid-w1", addresses=pairs(A1)),
            instance(ips=[]),
            "harvester://uid-w1",
            A1,
            id="second initialisation while the agent is silent",
        ),
        pytest.param(
            node(taints=[{**UNINITIALIZED, "value": "x", "effect": "NoExecute"}]),
            None,
            "harvester://uid-w1",
            A1,
            id="taint with another value and effect",
        ),
    ],
)
def test_initialised_node(
    before: Node, running: VirtualMachineInstance | None, provider_id: str, addresses: str
) -> None:
    plan = planned(before, machines(running))
    after = applied(before, plan)
    assert plan.done is not None
    assert after.spec.taints == ()
    assert after.spec.provider_id == provider_id
    assert shown(after.status.addresses) == addresses
    assert after.metadata.annotations is not None
    assert (before.metadata.annotations or {}).items() <= after.metadata.annotations.items()
    assert [(c.type, c.status) for c in after.status.conditions] == [("Ready", "True")]


def test_other_taints_stay() -> None:
    before = node(taints=[EXTRA, UNINITIALIZED])
    after = applied(before, planned(before))
    assert [taint.key for taint in after.spec.taints] == ["ImproveCoverageTaint"]


WAITS: Mapping[str, tuple[ListedNodes, str, str]] = {
    "no VM": (store([vm("other")]), "VM_NOT_FOUND", "No VM of that name in namespace prod"),
    "foreign VM": (store([vm(labels=FOREIGN)]), "VM_OF_OTHER_CLUSTER", "Correct the label or --cluster-name"),
    "VM stopped": (
        store([vm(labels=OWN, printable="Stopped")]),
        "VM_NOT_RUNNING",
        "VM prod/w1 is not running (status Stopped)",
    ),
    "no agent": (machines(instance(ips=[], agent=False)), "NO_ADDRESS", "is qemu-guest-agent installed"),
    "pod network": (machines(instance(networks=[("default", "")])), "NO_MANAGEMENT_NETWORK", "(pod) network"),
}


@pytest.mark.parametrize("case", WAITS)
def test_initialisation_that_has_to_wait_writes_nothing_and_says_why(case: str) -> None:
    found, reason, words = WAITS[case]
    plan = planned(node(taints=[UNINITIALIZED]), found)
    assert (plan.patches, plan.done) == ((), None)
    assert plan.waiting is not None
    assert plan.waiting.reason.name == reason
    assert words in plan.waiting.message
    assert plan.waiting in plan.notes


@pytest.mark.parametrize("case", ["no VM", "VM stopped", "no agent"])
@pytest.mark.parametrize(
    ("addresses", "told"), [("I 10.0.0.1, H w1", False), ("E 10.0.0.1, H w1", True), ("H w1", True), ("", True)]
)
def test_same_trouble_of_an_initialised_node_is_told_only_without_an_internal_ip(
    case: str, addresses: str, told: bool
) -> None:
    found, reason, _ = WAITS[case]
    plan = planned(node(addresses=pairs(addresses), provider_id="harvester://uid-w1"), found)
    assert (plan.patches, plan.waiting) == ((), None)
    assert [note.reason.name for note in plan.notes] == [reason] * told
    assert [remark.reason.name for remark in plan.remarks] == [reason] * (not told)


def test_nodes_of_others_are_told_nothing_also_without_an_internal_ip() -> None:
    plan = planned(node(provider_id="aws:///eu/i-1"), machines())
    assert (plan.patches, plan.notes) == ((), ())


INTERNAL_IPS = {
    "another address": ("I 10.0.0.1, H w1", ["10.0.0.7"], "10.0.0.1 to 10.0.0.7"),
    "a second family": ("I 10.0.0.1, H w1", ["10.0.0.1", "fd00::1"], "10.0.0.1 to 10.0.0.1, fd00::1"),
    "there was none": ("H w1", ["10.0.0.1"], "none to 10.0.0.1"),
    "the same, and more addresses": ("I 10.0.0.1, H w1", ["10.0.0.1", "10.0.0.7"], None),
    "the same in another order": ("I 10.0.0.1, I fd00::1, H w1", ["fd00::1", "10.0.0.1"], None),
    "an agent that is silent": ("I 10.0.0.1, H w1", [], None),
}


@pytest.mark.parametrize(("before", "reported", "change"), INTERNAL_IPS.values(), ids=INTERNAL_IPS.keys())
def test_every_change_of_an_internal_ip_is_told_when_it_is_written(
    before: str, reported: list[str], change: str | None
) -> None:
    known = node(provider_id="harvester://uid-w1", addresses=pairs(before))
    plan = planned(known, machines(instance(ips=reported)))
    told = [note for patch in plan.patches if patch.subresource == "status" for note in patch.told]
    assert [note.message.partition(" (")[0] for note in told] == (
        [f"InternalIP changed from {change}"] if change else []
    )
    assert all(note.type == "Warning" for note in told)
    new = planned(node(taints=[UNINITIALIZED], addresses=pairs(before)), machines(instance(ips=reported)))
    assert [note for patch in new.patches for note in patch.told] == [], "a new Node is being given its addresses"


def test_change_of_an_internal_ip_says_why() -> None:
    known = node(provider_id="harvester://uid-w1", addresses=pairs("I 10.0.0.1, I fd00::1, H w1"))
    plan = planned(known, machines(instance(ips=["10.0.0.7", "fd00::1"])))
    (told,) = plan.patches[0].told
    assert told.message == (
        "InternalIP changed from 10.0.0.1, fd00::1 to 10.0.0.7, fd00::1 (10.0.0.7: first IPv4 address of interface "
        "nic-1; 10.0.0.1: the VM does not report it)"
    )


def test_harvester_that_forbids_is_told() -> None:
    problem = harvester_unavailable(answered(403, "no"), action="list VirtualMachines", namespace="prod")
    plan = plan_node(NodeView(node(taints=[UNINITIALIZED]), Match(problem=problem), node_settings()))
    assert plan == NodePlan(waiting=problem, notes=(problem,))


def test_nothing_is_decided_while_an_address_may_be_a_load_balancers() -> None:
    ours, addresses = node(provider_id="harvester://uid-w1"), VirtualIPs(complete=False)
    waits = plan_node(NodeView(ours, find_vm(machines(), ours), node_settings(), addresses))
    assert waits == NodePlan(left_alone=waits.left_alone)
    assert waits.left_alone.endswith("load balancers have not been read yet")


@pytest.mark.parametrize(
    ("taints", "decided"), [pytest.param([UNINITIALIZED], True, id="new"), pytest.param([], False, id="initialised")]
)
def test_new_node_does_not_wait_for_ever_for_load_balancers(taints: list[dict[str, str]], decided: bool) -> None:
    target = node(taints=taints)
    broken = VirtualIPs(complete=False, problem=answered(500, "conversion webhook failed"))
    plan = plan_node(NodeView(target, find_vm(machines(), target), node_settings(), broken))
    assert (plan.patches != ()) == decided
    assert ("conversion webhook failed" in plan.left_alone) == (not decided)


def test_vm_is_not_called_stopped_while_its_vmi_cannot_be_read() -> None:
    target = node(taints=[UNINITIALIZED])
    problem = harvester_unavailable(answered(403, "no"), action="list VirtualMachineInstances", namespace="prod")
    match = find_vm(store([vm()]), target)
    assert match.vm is not None
    plan = plan_node(NodeView(target, match, node_settings(), unreadable=problem))
    assert plan == NodePlan(waiting=problem, notes=(problem,))


def test_refresh_of_an_initialised_node_follows_its_vm() -> None:
    known = node(provider_id="harvester://uid-w1", addresses=pairs("I 10.0.0.1, H w1"))
    plan = planned(known, machines(instance(ips=["10.0.0.7"], annotations={"topology.kubernetes.io/zone": "z2"})))
    after = applied(known, plan)
    assert plan.done is None
    assert shown(after.status.addresses) == "I 10.0.0.7, H w1"
    assert after.metadata.label("topology.kubernetes.io/zone") == "z2"


def test_provider_id_is_only_written_with_the_initialisation() -> None:
    plan = planned(node(addresses=pairs(A1)))
    assert all("spec" not in patch.body for patch in plan.patches)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        pytest.param(node(addresses=pairs(A1)), True, id="joined without the taint"),
        pytest.param(node(addresses=pairs(A1), provider_id="harvester://uid-w1"), False, id="initialised"),
        pytest.param(node(addresses=pairs(A1), taints=[UNINITIALIZED]), False, id="gets it now"),
        pytest.param(node("elsewhere", addresses=pairs(A1)), False, id="no VM of ours"),
    ],
)
def test_node_without_a_provider_id_is_told_what_it_lacks(target: Node, told: bool) -> None:
    notes = {note.reason: note.message for note in planned(target).notes}
    assert (NodeReason.NO_PROVIDER_ID in notes) == told
    if told:
        assert notes[NodeReason.NO_PROVIDER_ID] == (
            "This Node is VM prod/w1 and has no provider ID, because it joined without the taint "
            "node.cloudprovider.kubernetes.io/uninitialized. Its addresses and labels follow the VM, but it is not "
            "deleted with it. Run its kubelet with --cloud-provider=external, delete the Node and restart the kubelet"
        )


def test_configuration_faults_are_told_after_the_initialisation_too() -> None:
    several = instance(networks=[("nic-1", "prod/a"), ("nic-2", "prod/b")], ips=["10.0.0.1"])
    known = node(addresses=pairs("I 10.0.0.1, H w1"), provider_id="harvester://uid-w1")
    plan = planned(known, machines(several))
    assert [note.reason.name for patch in plan.patches for note in patch.told] == ["NETWORK_GUESSED"]
    again = planned(applied(known, plan), machines(several))
    assert (again.patches, again.notes) == ((), ()), "once for each Node"


def test_restored_vm_is_told_and_served() -> None:
    known = node(provider_id="harvester://before", addresses=pairs("I 10.0.0.9, H w1"), system_uuid=FIRMWARE)
    plan = planned(known)
    assert [[note.reason.name for note in patch.told] for patch in plan.patches] == [["INTERNAL_IP_CHANGED"]]
    assert [note.reason.name for note in plan.notes] == ["VM_REPLACED"]
    again = planned(applied(known, plan))
    assert again.patches == ()
    assert applied(known, plan).spec.provider_id == "harvester://before"


def test_virtual_ip_is_subtracted_and_named() -> None:
    target = node(taints=[UNINITIALIZED])
    view = NodeView(
        target,
        find_vm(machines(), target),
        node_settings(),
        VirtualIPs({plain_address("10.0.0.1"): "Service shop/web"}),
    )
    plan = plan_node(view)
    assert shown(applied(target, plan).status.addresses) == "I 132.143.154.163, H w1"
    assert plan.dropped == (DroppedAddress("10.0.0.1", DropReason.VIRTUAL_IP, "Service shop/web"),)


@given(
    tainted=st.sampled_from([(), (UNINITIALIZED,), (REINITIALIZE,), (EXTRA, UNINITIALIZED)]),
    provider_id=st.sampled_from(["", "harvester://uid-w1", "harvester://gone", "k3s://w1"]),
    present=st.sampled_from(["", "H w1", "I 10.0.0.1, H w1", "I 10.0.0.9, E 10.0.0.1, H w1"]),
    ips=st.lists(st.sampled_from(["10.0.0.1", "10.0.0.9", "fd00::1", "bad", "fe80::1"]), max_size=4),
    zone=st.sampled_from([None, "z1", "not a label"]),
    labels=st.sampled_from(
        [{}, {"failure-domain.beta.kubernetes.io/zone": "z0"}, {"topology.kubernetes.io/zone": "u"}]
    ),
)
def test_planning_again_after_the_plan_writes_nothing(
    tainted: tuple[dict[str, str], ...],
    provider_id: str,
    present: str,
    ips: list[str],
    zone: str | None,
    labels: dict[str, str],
) -> None:
    before = node(taints=tainted, provider_id=provider_id, addresses=pairs(present), labels=labels)
    running = instance(ips=ips, annotations={} if zone is None else {"topology.kubernetes.io/zone": zone})
    plan = planned(before, machines(running))
    if plan.done or not tainted:
        after = applied(before, plan)
        again = planned(after, machines(running))
        # The first refresh after an initialisation may still copy a beta label, as the framework does.
        settled = applied(after, again)
        assert planned(settled, machines(running)).patches == ()
        assert all("spec" not in write.body for write in again.patches)
    else:
        assert plan.patches == ()
        assert plan.waiting is not None


@pytest.mark.parametrize(
    ("target", "labels", "recorded"),
    [
        pytest.param(node(taints=[UNINITIALIZED]), {}, "prod/vm-1", id="new"),
        pytest.param(node(taints=[UNINITIALIZED], provider_id="harvester://uid-vm-1"), {}, "prod/vm-1", id="again"),
        pytest.param(node(taints=[UNINITIALIZED], provider_id="harvester://before"), {}, None, id="VM was replaced"),
        pytest.param(node(provider_id="harvester://uid-vm-1"), {}, None, id="nothing else to write"),
        pytest.param(node(provider_id="harvester://uid-vm-1"), {ZONE: "z1"}, "prod/vm-1", id="with another change"),
        pytest.param(
            node(taints=[UNINITIALIZED], provider_id="harvester://uid-vm-1", annotations={RECORD: "prod/vm-1"}), {},
            None, id="recorded already",
        ),
        pytest.param(node(provider_id="harvester://uid-vm-1", annotations={RECORD: "vm-1"}), {}, None, id="name alone"),
        pytest.param(
            node(provider_id="harvester://uid-vm-1", annotations={RECORD: "vm-1"}), {ZONE: "z1"}, "prod/vm-1",
            id="name alone, with another change",
        ),
    ],
)  # fmt: skip
def test_name_of_the_vm_is_recorded_with_what_is_written_anyway(
    target: Node, labels: dict[str, str], recorded: str | None
) -> None:
    machine = VM(vm("vm-1"), instance("vm-1", ips=["10.0.0.1"], annotations=labels))
    plan = plan_node(NodeView(target, Match(machine, MatchedBy.PROVIDER_ID), node_settings()))
    after = applied(target, plan)
    assert after.metadata.annotation(RECORD) == (recorded or target.metadata.annotation(RECORD))
