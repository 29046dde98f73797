"""Whether a Node's VM exists and whether it is switched on, as far as Harvester's answers make it certain."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

from msgspec import Struct

from harvester_ccm.errors import CCMError, NotFound
from harvester_ccm.model.core import Node, parse_provider_id
from harvester_ccm.model.harvester import VirtualMachine
from harvester_ccm.names import NodeReason
from harvester_ccm.plan.node.match import Match, MatchedBy, find_vm, match_vm
from harvester_ccm.plan.node.vms import VM, NodeStore, VMIndex, is_elsewhere, phase, recorded_vm

_RUNNING: Final = frozenset({"Paused", "Migrating"})
_NOT_STARTING: Final = frozenset(
    {
        "CrashLoopBackOff",
        "ErrorUnschedulable",
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrorPvcNotFound",
        "DataVolumeError",
    }
)
"""States of a VM that should run and cannot: no guest is there."""
_GOING_DOWN: Final = frozenset({"Stopped", "Stopping", "Terminating"})
_FINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})


class Existence(Enum):
    """Whether a VM is there."""

    PRESENT = "present"
    ABSENT = "absent"
    """Certainly not, at this moment."""
    UNKNOWN = "unknown"


class Power(Enum):
    """Whether the guest of a VM runs."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"
    """Changing, or not told: conclude nothing."""


class LiveGet(Struct, frozen=True):
    """Answer to a live GET of a VM by name. Exactly one of ``vm`` and ``error`` is set."""

    name: str
    vm: VirtualMachine | None = None
    error: CCMError | None = None


class VMExistence(Struct, frozen=True):
    """What is certain about a Node's VM."""

    existence: Existence
    vm: VM | None = None
    """Set when it is present and was read."""
    stranger: bool = False
    """Whether the Node is no machine of ours: nothing of it is changed."""
    namesake: bool = False
    """Whether only a name says that it is the Node's: nothing is concluded from its power."""
    detail: str = ""
    """For logs: which answer it rests on."""
    unprovable: bool = False
    """Whether no answer of Harvester could make an absence certain; the detail says why."""
    vm_to_get: str | None = None
    """Name of the VM that Harvester has to be asked for now; None: no answer would decide anything."""


class ClusterCheck(Struct, frozen=True):
    """How many Nodes have their VM: the measure for whether our view of Harvester can be right."""

    managed: int = 0
    """Nodes with a provider ID of ours."""
    missing: frozenset[str] = frozenset()
    """UIDs of those without a VM."""
    missing_ready: frozenset[str] = frozenset()
    """Names of those without a VM that are ready nevertheless."""
    replaced: int = 0
    """Nodes whose VM is not the one of their provider ID: a copy has the same name and firmware UUID."""
    confirmed: int = 0
    """Ready Nodes that have the very VM of their provider ID: they prove that it is the right namespace."""


def check_cluster(nodes: Iterable[Node], index: VMIndex) -> ClusterCheck:
    """Return the check over all Nodes of the cluster."""
    ours = [n for n in nodes if parse_provider_id(n.spec.provider_id) and not n.metadata.deleting]
    # A Node of another namespace is another program's, which sees its VM.
    found = [(n, find_vm(n, index)) for n in ours]
    matches = [(n, m) for n, m in found if m.vm is not None or not is_elsewhere(n, index.cluster.namespace)]
    missing = [n for n, match in matches if match.vm is None]
    return ClusterCheck(
        managed=len(matches),
        missing=frozenset(n.metadata.uid for n in missing),
        missing_ready=frozenset(n.metadata.name for n in missing if n.ready == "True"),
        replaced=sum(1 for _, match in matches if match.vm and match.by is not MatchedBy.PROVIDER_ID),
        confirmed=sum(1 for n, match in matches if n.ready == "True" and match.by is MatchedBy.PROVIDER_ID),
    )


def vm_existence(
    store: NodeStore, node: Node, *, seen_name: str | None, live_get: LiveGet | None = None
) -> VMExistence:
    """Return what is certain about the Node's VM, from all that is known and the live answer (None: not asked).

    ``seen_name`` is the name under which the Node's VM was last seen by this process.
    """
    match = match_vm(store, node)
    if match.vm is not None:
        namesake = match.by in {MatchedBy.HOSTNAME, MatchedBy.NAME}
        return VMExistence(Existence.PRESENT, match.vm, namesake=namesake, detail=f"found by {match.by}")
    if not _is_lost(node, match):
        detail = match.problem.message if match.problem else "not asked"
        return VMExistence(Existence.UNKNOWN, stranger=match.stranger, detail=detail)
    name = seen_name or recorded_vm(node)[1] or None
    uncertain = _why_uncertain(store, node, name)
    if uncertain:
        return VMExistence(Existence.UNKNOWN, detail=uncertain, unprovable=True)
    if live_get is None:
        return VMExistence(Existence.UNKNOWN, detail=match.problem.message if match.problem else "", vm_to_get=name)
    if live_get.vm is not None:
        namesake = live_get.vm.metadata.uid != parse_provider_id(node.spec.provider_id)
        return VMExistence(Existence.PRESENT, VM(live_get.vm), namesake=namesake, detail="found by a live request")
    absent = live_get.error is not None and is_certain_absence(live_get.error, live_get.name)
    return VMExistence(Existence.ABSENT if absent else Existence.UNKNOWN, detail=str(live_get.error))


def _is_lost(node: Node, match: Match) -> bool:
    """Return whether a Node that is not ready has no VM by the lists and had one: an absence of it could count."""
    not_found = match.problem is not None and match.problem.reason is NodeReason.VM_NOT_FOUND
    return (
        not_found
        and not match.stranger
        and node.ready != "True"
        and parse_provider_id(node.spec.provider_id) is not None
    )


def _why_uncertain(store: NodeStore, node: Node, name: str | None) -> str:
    """Return why even a 404 would not prove that the Node's VM is gone; empty when it would."""
    unread = store.vms.unread | store.vmis.unread
    if unread:
        return f"{', '.join(sorted(unread))} in Harvester cannot be read and may be its VM"
    if name is None:
        return (
            "its VM was never seen, so its name is not known and Harvester cannot be asked for it. If it is gone, run: "
            f"kubectl delete node {node.metadata.name}"
        )
    return ""


def is_certain_absence(error: CCMError, vm_name: str) -> bool:
    """Return whether an error says that this very VM does not exist.

    A 404 can also come from a proxy, or mean that the server has no such resource type; only the API server's own
    sentence about the VM counts.
    """
    sentence = f'virtualmachines.kubevirt.io "{vm_name}" not found'
    return isinstance(error, NotFound) and sentence in error.answer.message


def power(vm: VM) -> Power:
    """Return whether the guest runs.

    Running counts only together with the Ready flag: a VM whose host died is shown as running for a while.
    """
    status, vmi_phase = vm.object.status, phase(vm.vmi)
    printable = status.printable_status if status else ""
    gone = vm.vmi is None or vmi_phase in _FINAL_PHASES
    if printable in _RUNNING or (printable in {"Running", ""} and status is not None and status.ready):
        return Power.ON
    if printable in _NOT_STARTING:
        return Power.OFF if vmi_phase != "Running" else Power.UNKNOWN
    if printable in _GOING_DOWN:
        return Power.OFF if gone else Power.UNKNOWN
    if not printable and status is not None and not status.created and gone:
        return Power.OFF
    return Power.UNKNOWN
