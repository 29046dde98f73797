"""Shutdown taint and deletion of a Node: whole plans."""

import json

import pytest

from harvester_ccm.kube.errors import KubeError
from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import INSTANCES, VIRTUAL_MACHINES, VirtualMachine, VirtualMachineInstance
from harvester_ccm.names import GO_VM_ANNOTATION, VM_ANNOTATION
from harvester_ccm.plan.node.lifecycle import is_absent, observe_lifecycle, plan_lifecycle
from harvester_ccm.plan.node.messages import write_failed
from harvester_ccm.plan.node.patch import NodePatch
from harvester_ccm.plan.node.power import not_running
from harvester_ccm.plan.node.vms import VM
from tests.support.node_objects import (
    DEFAULTS,
    REINITIALIZE,
    SHUTDOWN,
    answered,
    instance,
    node,
    store,
    vm,
    vm_not_found,
)

REQUIRED = DEFAULTS.deletion_confirmations
RECORDED = {VM_ANNOTATION: "prod/w1"}
UUID = "11112222-3333-4444-5555-666677778888"
OF_ADMINISTRATOR = {**SHUTDOWN, "effect": "NoExecute"}
"""A taint with another effect is another one: the API server identifies a taint by its key and its effect."""


def planned(
    target: Node,
    vms: list[VirtualMachine],
    *,
    vmis: list[VirtualMachineInstance] | None = None,
    others: list[Node] | None = None,
    absences: int = REQUIRED,
) -> str:
    """Return the plan in one line."""
    lists = store(vms, vmis or [], nodes=[target, *(others or [])])
    plan = plan_lifecycle(observe_lifecycle(lists, target, DEFAULTS, absences=absences))
    if isinstance(plan.write, NodePatch):
        spec = plan.write.body["spec"]
        assert isinstance(spec, dict)
        return "taints " + ",".join(taint["key"].rpartition("/")[2] for taint in spec["taints"] or [])
    if plan.deletes:
        return "delete"
    event = plan.event or plan.cause
    if event is not None:
        return event.subject
    return "query again" if plan.requeue_after else ""


def lost(**fields: object) -> Node:
    """Return a Node that is not Ready and whose VM no longer exists."""
    known = {"provider_id": "harvester://uid-w1", "ready": "Unknown", "annotations": RECORDED}
    return node(**{**known, **fields})  # type: ignore[arg-type]


def healthy(count: int, ready: str = "True") -> tuple[list[Node], list[VirtualMachine]]:
    """Return Nodes with the VMs of their provider IDs."""
    names = [f"ok{number}" for number in range(count)]
    nodes = [node(name, uid=f"node-{name}", provider_id=f"harvester://uid-{name}", ready=ready) for name in names]
    return nodes, [vm(name) for name in names]


@pytest.mark.parametrize(
    ("status", "vmi", "taints"),
    [
        pytest.param({"printable": "Stopped", "ready": False}, None, "taints shutdown", id="stopped"),
        pytest.param({"printable": "Stopping", "ready": False}, instance(), "changing", id="stopping"),
        pytest.param({"printable": "CrashLoopBackOff"}, None, "taints shutdown", id="crash loop"),
        pytest.param({"printable": "Starting", "ready": False}, None, "changing", id="starting"),
        pytest.param(
            {"printable": "Starting", "ready": False, "created": False}, None, "changing", id="starts at first"
        ),
        pytest.param({"printable": "Running", "ready": False}, instance(), "changing", id="host failed"),
        pytest.param({"printable": "Running"}, instance(), "", id="running"),
        pytest.param({"printable": "Terminating"}, instance(phase="Succeeded"), "taints shutdown", id="ended"),
        pytest.param({"printable": "", "ready": False, "created": False}, None, "taints shutdown", id="never created"),
        pytest.param({"printable": "", "ready": False}, None, "changing", id="created"),
        pytest.param(
            {"printable": "Stopped", "ready": False}, instance(phase="Failed"), "taints shutdown", id="failed"
        ),
        pytest.param({"printable": "CrashLoopBackOff", "ready": False}, instance(), "changing", id="runs again"),
        pytest.param({"printable": "ErrorUnschedulable"}, None, "taints shutdown", id="no host"),
        pytest.param({"printable": "ErrImagePull"}, None, "taints shutdown", id="no image"),
        pytest.param({"printable": "ImagePullBackOff"}, None, "taints shutdown", id="still no image"),
        pytest.param({"printable": "ErrorPvcNotFound"}, None, "taints shutdown", id="no disk"),
        pytest.param({"printable": "DataVolumeError"}, None, "taints shutdown", id="no data volume"),
    ],
)
def test_shutdown_taint_follows_the_power_state(
    status: dict[str, object], vmi: VirtualMachineInstance | None, taints: str
) -> None:
    machine = vm(**status)  # type: ignore[arg-type]
    assert planned(lost(), [machine], vmis=[vmi] if vmi else []) == taints


@pytest.mark.parametrize(
    ("target", "printable", "plan"),
    [
        pytest.param(lost(taints=[SHUTDOWN]), "Running", "taints ", id="VM runs, Node not Ready yet"),
        pytest.param(lost(taints=[SHUTDOWN]), "Paused", "taints ", id="paused"),
        pytest.param(lost(taints=[SHUTDOWN]), "Migrating", "taints ", id="migrating"),
        pytest.param(lost(taints=[SHUTDOWN]), "Stopped", "stopped", id="tainted already"),
        pytest.param(lost(taints=[SHUTDOWN]), "Starting", "changing", id="taint stays while the VM starts"),
        pytest.param(
            lost(taints=[SHUTDOWN, REINITIALIZE], ready="True"), "Stopped", "taints uninitialized", id="Ready"
        ),
        pytest.param(lost(taints=[OF_ADMINISTRATOR], ready="True"), "Running", "", id="taint of an administrator"),
        pytest.param(
            lost(taints=[OF_ADMINISTRATOR]), "Stopped", "taints shutdown,shutdown", id="beside that of an administrator"
        ),
        pytest.param(lost(taints=[SHUTDOWN], provider_id="k3s://w1", ready="True"), "Running", "", id="other provider"),
        pytest.param(lost(taints=[SHUTDOWN], provider_id="", ready="True"), "Running", "", id="no provider ID"),
        pytest.param(lost(provider_id="harvester://other"), "Stopped", "", id="VM with the name, other UID"),
        pytest.param(
            lost(provider_id="harvester://gone", system_uuid=UUID),
            "Stopped",
            "taints shutdown",
            id="restored VM, other UID",
        ),
        pytest.param(lost(deleting=True), "Stopped", "", id="Node is being deleted"),
        pytest.param(lost(ready="False"), "Stopped", "taints shutdown", id="kubelet reports that it is not Ready"),
        pytest.param(lost(ready="False"), "Paused", "paused", id="paused, kubelet reports that it is not Ready"),
        pytest.param(lost(ready=None, taints=[SHUTDOWN]), "Stopped", "", id="kubelet has never reported"),
    ],
)
def test_shutdown_taint_of_managed_nodes_only(target: Node, printable: str, plan: str) -> None:
    assert planned(target, [vm(printable=printable, firmware=UUID)]) == plan


def test_stopped_vm_with_another_uuid_taints_nothing() -> None:
    machine = vm(printable="Stopped", firmware="99992222-3333-4444-5555-666677778888")
    assert planned(lost(system_uuid=UUID), [machine]) == ""


@pytest.mark.parametrize(
    ("printable", "command"),
    [("Stopped", "virtctl start w1 -n prod"), ("Paused", "virtctl unpause vm w1 -n prod"), ("Starting", "")],
)
def test_command_for_a_vm_that_does_not_run(printable: str, command: str) -> None:
    assert not_running(VM(vm(printable=printable, ready=False)), "x").command == command


def test_kubevirt_says_of_the_instance_or_else_of_the_vm_why_it_does_not_run() -> None:
    def failing(what: str) -> dict[str, object]:
        return {"conditions": [{"type": "Synchronized", "status": "False", "message": what}]}

    machine = VIRTUAL_MACHINES.decode(json.dumps({"status": {**failing("VM"), "printableStatus": "Starting"}}).encode())
    running = INSTANCES.decode(json.dumps({"status": failing("instance")}).encode())
    assert not_running(VM(machine), "x").answer == "KubeVirt: VM"
    assert not_running(VM(machine, running), "x").answer == "KubeVirt: instance"


@pytest.mark.parametrize("printable", ["Running", "Stopping"], ids=["host failed", "stopping"])
def test_shutdown_taint_stays_while_the_instance_exists(printable: str) -> None:
    assert planned(lost(taints=[SHUTDOWN]), [vm(printable=printable, ready=False)], vmis=[instance()]) == "changing"


@pytest.mark.parametrize(
    ("target", "absences", "plan"),
    [
        pytest.param(lost(), REQUIRED, "delete", id="confirmed"),
        pytest.param(lost(ready="False"), REQUIRED, "delete", id="kubelet reports that it is not Ready"),
        pytest.param(lost(), REQUIRED - 1, "query again", id="not confirmed yet"),
        pytest.param(lost(annotations={}), REQUIRED, "name", id="name of the VM unknown"),
        pytest.param(lost(annotations={GO_VM_ANNOTATION: "w1"}), REQUIRED, "delete", id="recorded by the Go provider"),
        pytest.param(lost(ready="True"), REQUIRED, "", id="Ready"),
        pytest.param(lost(ready=None), REQUIRED, "", id="never had a Ready condition"),
        pytest.param(lost(provider_id=""), REQUIRED, "", id="no provider ID"),
        pytest.param(lost(provider_id="k3s://w1"), REQUIRED, "", id="other provider"),
        pytest.param(lost(annotations={VM_ANNOTATION: "staging/w1"}), REQUIRED, "name", id="VM of another namespace"),
        pytest.param(lost(annotations={VM_ANNOTATION: "prod/../gone"}), REQUIRED, "name", id="no name of a VM"),
        pytest.param(lost(deleting=True), REQUIRED, "", id="being deleted"),
    ],
)
def test_deletion_of_a_node_whose_vm_is_gone(target: Node, absences: int, plan: str) -> None:
    others, vms = healthy(2)
    assert planned(target, vms, others=others, absences=absences) == plan


@pytest.mark.parametrize(
    ("with_vm", "without_vm", "ready", "plan"),
    [
        pytest.param(3, 1, "Unknown", "delete", id="from five to three"),
        pytest.param(1, 0, "Unknown", "delete", id="from two to one"),
        pytest.param(1, 1, "Unknown", "count", id="more missing than found"),
        pytest.param(0, 0, "Unknown", "count", id="the only Node"),
        pytest.param(5, 1, "True", "ready", id="a Ready Node has no VM"),
    ],
)
def test_other_nodes_block_a_deletion(with_vm: int, without_vm: int, ready: str, plan: str) -> None:
    others, vms = healthy(with_vm)
    missing = [
        node(f"w{number}", uid=f"n{number}", provider_id=f"harvester://gone{number}", ready=ready)
        for number in range(2, 2 + without_vm)
    ]
    assert planned(lost(), vms, others=[*others, *missing]) == plan


def test_only_ready_nodes_with_the_vm_of_their_provider_id_confirm_a_deletion() -> None:
    silent, vms = healthy(1, ready="Unknown")
    assert planned(lost(), vms, others=silent) == "count"
    restored = vm("ok0", uid="restored", firmware=UUID)
    other = node("ok0", provider_id="harvester://gone", system_uuid=UUID, annotations={VM_ANNOTATION: "prod/ok0"})
    assert planned(lost(), [restored], others=[other]) == "count"


def test_clones_in_another_namespace_confirm_nothing() -> None:
    clone = vm("ok0", uid="clone", firmware=UUID)
    other = node("ok0", uid="n", provider_id="harvester://uid-ok0", system_uuid=UUID)
    assert planned(lost(), [clone], others=[other]) == "ready"


@pytest.mark.parametrize(
    ("absences", "annotations", "expected"),
    [(1, RECORDED, DEFAULTS.confirmation_spacing), (REQUIRED, {}, 60.0)],
    ids=["not confirmed yet", "blocked"],
)
def test_time_of_the_next_request(absences: int, annotations: dict[str, str], expected: float) -> None:
    target = lost(annotations=annotations)
    assert plan_lifecycle(observe_lifecycle(store([]), target, DEFAULTS, absences=absences)).requeue_after == expected


def test_name_under_which_this_process_saw_the_vm_counts_before_the_recorded_one() -> None:
    target = lost(annotations={VM_ANNOTATION: "prod/other"})
    assert observe_lifecycle(store([]), target, DEFAULTS, seen_name="w1").vm_name == "w1"


def test_404_of_an_instance_does_not_prove_that_its_vm_is_gone() -> None:
    message = 'virtualmachineinstances.kubevirt.io "w1" not found'
    assert not is_absent(answered(404, message, "NotFound", about="w1"), "w1")
    assert is_absent(vm_not_found("w1"), "w1")


@pytest.mark.parametrize(
    ("error", "deletion", "text"),
    [
        (answered(403, "no"), True, "Failed deleting node w1. Grant the verb delete on nodes to the ClusterRole"),
        (
            answered(500, 'admission webhook "x" denied the request: no'),
            True,
            "Failed deleting node w1. Allow the service account of this controller to delete Nodes",
        ),
        (
            answered(422, "no", "Invalid"),
            True,
            "Failed deleting node w1. Allow the service account of this controller to delete Nodes",
        ),
        (answered(403, "no"), False, "The API server rejected the update of this Node"),
        (
            answered(500, 'failed calling webhook "x"'),
            True,
            "Failed deleting node w1. Check that the pods behind the webhook that it names run",
        ),
        (
            answered(500, "etcdserver: request timed out"),
            True,
            "Failed deleting node w1. The controller tries again; check the API servers of this cluster, or delete",
        ),
    ],
)
def test_rejected_write_names_the_next_step(error: KubeError, text: str, *, deletion: bool) -> None:
    assert write_failed(lost(), error, deletion=deletion).message.startswith(text)
