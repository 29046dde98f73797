"""The power state of a VM, and what it means for its Node."""

import shlex
from enum import StrEnum
from typing import Final

from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import NodeReason
from harvester_ccm.plan.node.messages import listed
from harvester_ccm.plan.node.vms import VM

_CANNOT_RUN: Final = frozenset(
    {
        "CrashLoopBackOff",
        "ErrorUnschedulable",
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrorPvcNotFound",
        "DataVolumeError",
    }
)
"""``status.printableStatus`` of a VM that should run and cannot."""
_STOPPED: Final = frozenset({"Stopped", "Stopping", "Terminating"})
_OBSTACLES: Final = (
    ("PodScheduled", "False"),
    ("DataVolumesReady", "False"),
    ("Failure", "True"),
    ("Synchronized", "False"),
    ("Paused", "True"),
)
"""Type and status of the conditions of a VM and its instance that say why it does not run."""
_FINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})


class VMState(StrEnum):
    """States of a VM, as far as they concern its Node.

    The docstring of each has two parts: what holds. Taint: the shutdown taint of the Node while it is not Ready.
    """

    RUNNING = "running"
    """The VM runs, or migrates. Taint: removed."""
    PAUSED = "paused"
    """The VM is paused. Taint: removed."""
    CANNOT_RUN = "cannot run"
    """The VM should run, and KubeVirt cannot start it, for example because of its image, its disk or a crash loop.
    Taint: added."""
    STOPPED = "stopped"
    """The VM was stopped, and its instance has ended. Taint: added."""
    CHANGING = "changing"
    """The VM is starting or stopping, or its host failed. Taint: unchanged."""

    @property
    def is_off(self) -> bool:
        """Whether the VM is certainly off."""
        return self in {VMState.STOPPED, VMState.CANNOT_RUN}


def state_of(vm: VM) -> VMState:
    status = vm.object.status
    printable = status.printable_status
    vmi_phase = ""
    if vm.vmi is not None:
        vmi_phase = vm.vmi.status.phase
    has_ended = vm.vmi is None or vmi_phase in _FINAL_PHASES
    if printable == "Paused":
        return VMState.PAUSED
    if printable == "Migrating":
        return VMState.RUNNING
    # KubeVirt reports a VM whose host failed as running for a while, but not as ready.
    if printable in {"Running", ""} and status.ready:
        return VMState.RUNNING
    if printable in _CANNOT_RUN and vmi_phase != "Running":
        return VMState.CANNOT_RUN
    is_stopped = printable in _STOPPED or (not printable and not status.created)
    if is_stopped and has_ended:
        return VMState.STOPPED
    return VMState.CHANGING


def not_running(vm: VM, effect: str) -> EventMessage:
    """Return the Warning about a VM that does not run; ``effect`` is the end of the sentence about its Node."""
    if vm.object.metadata.deleting:
        return _being_deleted(vm, effect)
    state = state_of(vm)
    return EventMessage(
        "Warning",
        NodeReason.VM_NOT_RUNNING,
        _not_running_cause(vm, _STATES[state], effect),
        _REMEDIES.get(state, ""),
        _command(vm, state),
        answer=_answer(vm, state),
        subject=state.value,
    )


def _being_deleted(vm: VM, effect: str) -> EventMessage:
    """Return the Warning about a VM that ends with its finalizers, and that cannot be started any more."""
    finalizers = listed(vm.object.metadata.finalizers or ())
    remedy = f"Its finalizers keep it: {finalizers}. Check that the controller of each runs. The Node ends with the VM"
    return EventMessage(
        "Warning",
        NodeReason.VM_NOT_RUNNING,
        _not_running_cause(vm, "is being deleted", effect),
        remedy,
        f"kubectl get vm {_arguments(vm)} -o yaml",
        subject="deleting",
    )


def _not_running_cause(vm: VM, state: str, effect: str) -> str:
    return f"VM {vm.object.metadata.key} {state} in Harvester (status {_status(vm)}), so {effect}"


def _answer(vm: VM, state: VMState) -> str:
    """Return the words in which KubeVirt says why the VM does not run; empty if it says nothing."""
    if state not in {VMState.CANNOT_RUN, VMState.CHANGING, VMState.PAUSED}:
        return ""
    of_instance = () if vm.vmi is None else vm.vmi.status.conditions
    found = [*(of_instance or ()), *(vm.object.status.conditions or ())]
    messages = {(condition.type, condition.status): condition.message for condition in reversed(found)}
    for obstacle in _OBSTACLES:
        if messages.get(obstacle):
            return f"KubeVirt: {messages[obstacle]}"
    return ""


def not_reporting(vm: VM) -> EventMessage:
    """Return the Warning about a VM that runs while its kubelet does not report."""
    cause = (
        f"VM {vm.object.metadata.key} runs in Harvester (status {_status(vm)}), but the kubelet of this Node does not "
        "report"
    )
    remedy = "Check the kubelet and the network in the VM"
    command = f"virtctl console {_arguments(vm)}"
    return EventMessage("Warning", NodeReason.KUBELET_NOT_REPORTING, cause, remedy, command)


def _status(vm: VM) -> str:
    return vm.object.status.printable_status or "unknown"


def _command(vm: VM, state: VMState) -> str:
    """Return the command for Harvester that starts the VM; empty if there is none."""
    if state is VMState.STOPPED:
        return f"virtctl start {_arguments(vm)}"
    if state is VMState.PAUSED:
        return f"virtctl unpause vm {_arguments(vm)}"
    return ""


def _arguments(vm: VM) -> str:
    meta = vm.object.metadata
    return f"{shlex.quote(meta.name)} -n {shlex.quote(meta.namespace)}"


_STATES: Final = {
    VMState.RUNNING: "has no running instance",
    VMState.PAUSED: "is paused",
    VMState.CANNOT_RUN: "cannot be started",
    VMState.STOPPED: "is stopped",
    VMState.CHANGING: "is starting or stopping, or its host failed",
}
_REMEDIES: Final = {
    VMState.PAUSED: "After an I/O error, repair its storage first. Continue it with the kubeconfig of Harvester",
    VMState.CANNOT_RUN: "See the events of the VM in Harvester",
    VMState.STOPPED: "If that is not intended, start it with the kubeconfig of Harvester",
}
