"""The plan for a Node that is not Ready: set or remove the shutdown taint, or delete the Node.

Only Nodes with a provider ID of this provider are changed. A Node that is Ready loses the shutdown taint. Otherwise the
taint follows the power state of the VM with the UID in the provider ID. It stays as it is while that VM is starting,
stopping or lost with its host. The Go provider taints a Node whenever the VM is not ready.

A Node is deleted if all of the following hold. Otherwise the Node stays, and an Event names the reason.

* The synced caches contain no VM of the Node by any identity (``match``).
* Several live GETs in a row, ``NodeSettings.confirmation_spacing`` apart, returned a 404 whose Status names the VM.
  The name is the one under which this process saw the VM, or the one that is recorded on the Node.
* All managed Nodes without a VM are not Ready: a kubelet that works proves that its VM exists.
* At least as many Nodes are Ready with the VM of their provider ID as have no VM. In another namespace or another
  Harvester no VM has the UID of a provider ID, even if it is a clone.

The controller deletes at most one Node per minute. The Go framework deletes a Node at the first 404, also if its VM was
never seen or if the Node never had a Ready condition.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.config import NodeSettings
from harvester_ccm.errors import CCMError, NotFound
from harvester_ccm.model.core import Node, Taint, parse_provider_id
from harvester_ccm.model.outcome import EventMessage, abbreviate
from harvester_ccm.names import SHUTDOWN_TAINT, NodeReason
from harvester_ccm.plan.node.match import Match, MatchedBy, find_vm
from harvester_ccm.plan.node.messages import warning
from harvester_ccm.plan.node.patch import NodeRequest, taints_body
from harvester_ccm.plan.node.vms import VM, NodeStore, recorded_name

_SHUTDOWN: Final = Taint(key=SHUTDOWN_TAINT, effect="NoSchedule")
BLOCKED_RETRY_SECONDS: Final = 60.0
"""Interval between two live GETs while the deletion of a Node is blocked."""
_RUNNING: Final = frozenset({"Paused", "Migrating"})
_CRASHED: Final = frozenset(
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
_STOPPING: Final = frozenset({"Stopped", "Stopping", "Terminating"})
_FINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})


class Power(StrEnum):
    """Power state of a VM."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"
    """Changing or not reported."""


class LifecycleView(Struct, frozen=True):
    """Everything that the decision depends on."""

    node: Node
    match: Match
    settings: NodeSettings
    vm_name: str
    """Name of the Node's VM, from this process or from the Node; empty if it is unknown."""
    absences: int = 0
    """Number of 404s for the VM in a row so far."""
    without_vm: tuple[Node, ...] = ()
    """Managed Nodes without a VM."""
    ready_with_vm: int = 0
    """Number of Nodes that are Ready with the VM of their provider ID."""

    @property
    def has_lost_vm(self) -> bool:
        """Whether the Node is not Ready, had a VM, and has none in the caches: a live GET can confirm that."""
        problem = self.match.problem
        is_not_found = problem is not None and problem.reason is NodeReason.VM_NOT_FOUND
        # The kubelet of a Node without a Ready condition has never reported.
        has_reported = any(condition.type == "Ready" for condition in self.node.status.conditions)
        return _is_managed(self.node) and is_not_found and has_reported and self.node.ready != "True"

    @property
    def is_confirmed(self) -> bool:
        """Whether live GETs have confirmed the absence of the VM often enough."""
        return self.absences >= max(self.settings.deletion_confirmations, 2)


class LifecyclePlan(Struct, frozen=True):
    """At most one write, with its reason."""

    request: NodeRequest | None = None
    """Changes the taints; bound to the Node's UID and resource version."""
    deletes: bool = False
    """Whether the Node is deleted."""
    event: EventMessage | None = None
    """Event for after a deletion, or the reason why a deletion is blocked."""
    requeue_after: float | None = None
    """Seconds until the next live GET."""


def observe_lifecycle(
    store: NodeStore, node: Node, settings: NodeSettings, *, seen_name: str = "", absences: int = 0
) -> LifecycleView:
    """Return the snapshot of a Node. ``seen_name`` is the name under which this process saw its VM."""
    vm_name = seen_name or recorded_name(node, store.cluster.namespace)
    view = LifecycleView(node, find_vm(store, node), settings, vm_name, absences)
    if not (view.has_lost_vm and view.is_confirmed):
        return view
    matches = [(one, find_vm(store, one)) for one in store.nodes.all() if _is_managed(one)]
    return replace(
        view,
        without_vm=tuple(one for one, match in matches if match.vm is None),
        ready_with_vm=sum(one.ready == "True" and match.by is MatchedBy.PROVIDER_ID for one, match in matches),
    )


def plan_lifecycle(view: LifecycleView) -> LifecyclePlan:
    """Return the plan for the Node."""
    node, match = view.node, view.match
    if not _is_managed(node):
        return LifecyclePlan()
    if node.ready == "True":
        return LifecyclePlan(_shutdown_request(node, Power.ON))
    if match.vm is not None and match.by is MatchedBy.PROVIDER_ID:
        return LifecyclePlan(_shutdown_request(node, power(match.vm)))
    return _plan_deletion(view) if view.has_lost_vm else LifecyclePlan()


def _plan_deletion(view: LifecycleView) -> LifecyclePlan:
    if view.vm_name and not view.is_confirmed:
        return LifecyclePlan(requeue_after=view.settings.confirmation_spacing)
    if blocked := _blocked(view):
        return LifecyclePlan(event=blocked, requeue_after=BLOCKED_RETRY_SECONDS)
    text = f"Deleting node {view.node.metadata.name} because it does not exist in the cloud provider"
    return LifecyclePlan(deletes=True, event=EventMessage("Normal", NodeReason.DELETING, text))


def _blocked(view: LifecycleView) -> EventMessage | None:
    """Return the Event with the reason why the Node must not be deleted; None if it can be."""
    check = "Check the namespace and the server in the cloud-config"
    ready = sorted(one.metadata.name for one in view.without_vm if one.ready == "True")
    if not view.vm_name:
        subject, why = "name", f"no VM of the namespace in the cloud-config is recorded on it. {check}"
    elif ready:
        subject, why = "ready", f"Nodes without a VM are Ready: {abbreviate(ready)}. {check}"
    elif view.ready_with_vm < len(view.without_vm):
        found = f"{len(view.without_vm)} Nodes have no VM, and {view.ready_with_vm} are Ready with theirs"
        subject, why = "count", f"{found}. {check}"
    else:
        return None
    return warning(NodeReason.DELETION_BLOCKED, subject, why=why, node=view.node.metadata.name)


def is_absent(error: CCMError | None, vm_name: str) -> bool:
    """Return whether the error of a GET proves that this VM does not exist.

    A 404 can also come from a proxy, or mean that the server does not know the resource type. Only the message of the
    API server that names the VM counts.
    """
    return isinstance(error, NotFound) and f'virtualmachines.kubevirt.io "{vm_name}" not found' in error.answer.message


def power(vm: VM) -> Power:
    """Return the power state of a VM.

    ``Running`` counts only together with ``status.ready``: KubeVirt reports a VM whose host failed as running for a
    while.
    """
    status, vmi_phase = vm.object.status, vm.vmi.status.phase if vm.vmi else ""
    printable = status.printable_status
    has_ended = vm.vmi is None or vmi_phase in _FINAL_PHASES
    if printable in _RUNNING or (printable in {"Running", ""} and status.ready):
        return Power.ON
    if printable in _CRASHED:
        return Power.OFF if vmi_phase != "Running" else Power.UNKNOWN
    is_stopped = printable in _STOPPING or (not printable and not status.created)
    return Power.OFF if is_stopped and has_ended else Power.UNKNOWN


def _is_managed(node: Node) -> bool:
    return parse_provider_id(node.spec.provider_id) is not None and not node.metadata.deleting


def _shutdown_request(node: Node, state: Power) -> NodeRequest | None:
    """Return the request that makes the shutdown taint follow the power state; None if it does or stays."""
    others = tuple(
        taint for taint in node.spec.taints if (taint.key, taint.effect) != (_SHUTDOWN.key, _SHUTDOWN.effect)
    )
    is_tainted = len(others) < len(node.spec.taints)
    if state is Power.UNKNOWN or is_tainted is (state is Power.OFF):
        return None
    taints = (*others, _SHUTDOWN) if state is Power.OFF else others
    return NodeRequest(taints_body(node, taints))
