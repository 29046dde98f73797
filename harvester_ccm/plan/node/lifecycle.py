"""The plan for a Node that is not Ready: set or remove the shutdown taint, or delete the Node.

Only Nodes with a provider ID of this provider are changed. The taint follows the power state (``VMState``) of the VM
with the UID in the provider ID, or of the one that has taken its place; the Go provider taints a Node whenever the VM
is not ready. A Node is deleted if no identity (``match``) finds its VM in the caches and no ``Obstacle`` is left; the
Go framework deletes at the first 404.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.config import NodeSettings
from harvester_ccm.kube.errors import KubeError, NotFound
from harvester_ccm.model.core import Node, Taint, parse_provider_id
from harvester_ccm.model.event import EventMessage, abbreviate
from harvester_ccm.names import SHUTDOWN_TAINT, NodeReason
from harvester_ccm.plan.node.match import Match, MatchedBy, find_vm, unreadable
from harvester_ccm.plan.node.messages import deletion_command
from harvester_ccm.plan.node.patch import NodePatch, taints_body
from harvester_ccm.plan.node.power import VMState, not_reporting, not_running, state_of
from harvester_ccm.plan.node.vms import VM, NodeStore, recorded_name

_SHUTDOWN: Final = Taint(key=SHUTDOWN_TAINT, effect="NoSchedule")
BLOCKED_RETRY_SECONDS: Final = 60.0
"""Interval between two live GETs while the deletion of a Node is blocked."""


class Obstacle(StrEnum):
    """What prevents the deletion of a Node that is not Ready and whose VM is not in the caches, in this order."""

    NO_NAME = "name"
    """No VM of the namespace in the cloud-config is recorded on the Node, and this process has seen none, so there is
    no name to ask for."""
    NOT_CONFIRMED = "confirmation"
    """Fewer live GETs in a row than ``--node-deletion-confirmations`` (at least two, 10 s apart) returned a 404 that
    names the VM. Errors, timeouts and 404 pages of a proxy do not count."""
    READY_WITHOUT_VM = "ready"
    """Another Node without a VM is Ready: a kubelet that works proves that its VM exists."""
    TOO_FEW = "count"
    """More Nodes have no VM than are Ready with the VM of their provider ID. In another namespace or another Harvester
    no VM has the UID of a provider ID, even if it is a clone."""


class LifecycleSnapshot(Struct, frozen=True):
    """Everything that the decision depends on."""

    node: Node
    match: Match
    settings: NodeSettings
    vm_name: str
    """Name of the Node's VM, from this process or from the Node; empty if it is unknown."""
    absences: int = 0
    """Number of 404s for the VM in a row so far."""
    is_current: bool = True
    """Whether VMs and VMIs can be read now; the caches can contain older ones."""
    without_vm: tuple[Node, ...] = ()
    """Nodes with this provider's provider ID and without a VM."""
    ready_with_vm: int = 0
    """Number of Nodes that are Ready with the VM of their provider ID."""
    next_get_after: float = 0.0
    """Seconds until the VM is queried again; 0 if it was queried for this snapshot."""

    @property
    def has_lost_vm(self) -> bool:
        """Whether the Node is not Ready, had a VM, and has none in the caches: a live GET can confirm that."""
        problem = self.match.problem
        is_not_found = problem is not None and problem.reason is NodeReason.VM_NOT_FOUND
        # The kubelet of a Node without a Ready condition has never reported.
        has_reported = self.node.ready_condition is not None
        return _has_our_provider_id(self.node) and is_not_found and has_reported and self.node.ready != "True"

    @property
    def ready_without_vm(self) -> list[str]:
        """The names of the Nodes that are Ready without a VM."""
        return sorted(node.metadata.name for node in self.without_vm if node.ready == "True")

    @property
    def is_confirmed(self) -> bool:
        """Whether live GETs have confirmed the absence of the VM often enough."""
        return self.absences >= self.settings.deletion_confirmations


class DeleteNode(Struct, frozen=True):
    """Delete the Node in the version that was read."""

    event: EventMessage
    """The Event for after the deletion."""


class LifecyclePlan(Struct, frozen=True):
    """At most one write, with its reason."""

    write: NodePatch | DeleteNode | None = None
    """A patch changes the taints; it is bound to the Node's UID and resource version."""
    event: EventMessage | None = None
    """Why the Node must not be deleted now."""
    cause: EventMessage | None = None
    """The cause of a Node that is not Ready, emitted if it holds for a while."""
    requeue_after: float | None = None
    """Seconds until the next live GET."""

    @property
    def deletes(self) -> bool:
        """Whether the Node is deleted."""
        return isinstance(self.write, DeleteNode)


def observe_lifecycle(
    store: NodeStore, node: Node, settings: NodeSettings, *, seen_name: str = "", absences: int = 0
) -> LifecycleSnapshot:
    """Return the snapshot of a Node. ``seen_name`` is the name under which this process saw its VM."""
    vm_name = seen_name or recorded_name(node, store.cluster.namespace)
    is_current = unreadable(store) is None
    snapshot = LifecycleSnapshot(node, find_vm(store, node), settings, vm_name, absences, is_current)
    if not (snapshot.has_lost_vm and snapshot.is_confirmed):
        return snapshot
    without_vm: list[Node] = []
    ready_with_vm = 0
    for other in store.nodes.all():
        if not _has_our_provider_id(other):
            continue
        match = find_vm(store, other)
        if match.vm is None:
            without_vm.append(other)
        elif other.ready == "True" and match.by is MatchedBy.PROVIDER_ID:
            ready_with_vm += 1
    return replace(snapshot, without_vm=tuple(without_vm), ready_with_vm=ready_with_vm)


def plan_lifecycle(snapshot: LifecycleSnapshot) -> LifecyclePlan:
    node = snapshot.node
    match = snapshot.match
    if not _has_our_provider_id(node):
        return LifecyclePlan()
    if node.ready == "True":
        return LifecyclePlan(_shutdown_patch(node, is_off=False))
    if match.vm is not None:
        # The VM can have been started or stopped since the cache was current.
        if match.runs_other_machine or not snapshot.is_current:
            return LifecyclePlan()
        state = state_of(match.vm)
        cause = _cause(node, match.vm, state)
        if state is VMState.CHANGING:
            return LifecyclePlan(cause=cause)
        return LifecyclePlan(_shutdown_patch(node, is_off=state.is_off), cause=cause)
    if snapshot.has_lost_vm:
        return _plan_deletion(snapshot)
    return LifecyclePlan()


def _cause(node: Node, vm: VM, state: VMState) -> EventMessage | None:
    """Return the Event with the cause of a Node that is not Ready, as far as Harvester shows it.

    A kubelet that reports False reports the cause as well, for example that the network plugin does not run yet.
    """
    if node.ready_condition is None:
        return None
    if state.is_off or state is VMState.PAUSED:
        return not_running(vm, "this Node is not Ready")
    if node.ready != "Unknown":
        return None
    if state is VMState.RUNNING:
        return not_reporting(vm)
    return not_running(vm, "this Node is not Ready")


def _plan_deletion(snapshot: LifecycleSnapshot) -> LifecyclePlan:
    if snapshot.next_get_after > 0:
        return LifecyclePlan(requeue_after=snapshot.next_get_after)
    obstacle = _obstacle(snapshot)
    if obstacle is Obstacle.NOT_CONFIRMED:
        return LifecyclePlan(requeue_after=snapshot.settings.confirmation_spacing)
    if obstacle is not None:
        return LifecyclePlan(event=_blocked(snapshot, obstacle), requeue_after=BLOCKED_RETRY_SECONDS)
    return LifecyclePlan(DeleteNode(_deleting(snapshot)))


def _deleting(snapshot: LifecycleSnapshot) -> EventMessage:
    """Return the Event about the deletion of a Node; the first sentence is that of every cloud provider."""
    name = snapshot.node.metadata.name
    cause = (
        f"Deleting node {name} because it does not exist in the cloud provider: VM {snapshot.vm_name} does not exist "
        "in Harvester"
    )
    remedy = (
        "If it does exist, correct the namespace or the server in the cloud-config, and restart the kubelet, which "
        "registers the Node again"
    )
    return EventMessage("Normal", NodeReason.DELETING, cause, remedy)


def _obstacle(snapshot: LifecycleSnapshot) -> Obstacle | None:
    if not snapshot.vm_name:
        return Obstacle.NO_NAME
    if not snapshot.is_confirmed:
        return Obstacle.NOT_CONFIRMED
    if snapshot.ready_without_vm:
        return Obstacle.READY_WITHOUT_VM
    if snapshot.ready_with_vm < len(snapshot.without_vm):
        return Obstacle.TOO_FEW
    return None


def _blocked(snapshot: LifecycleSnapshot, obstacle: Obstacle) -> EventMessage:
    match obstacle:
        case Obstacle.READY_WITHOUT_VM:
            why = f"Nodes without a VM are Ready: {abbreviate(snapshot.ready_without_vm)}"
        case Obstacle.TOO_FEW:
            why = (
                f"{len(snapshot.without_vm)} Nodes have no VM, only {snapshot.ready_with_vm} are Ready with theirs, "
                "and a wrong cloud-config looks the same"
            )
        case _:
            why = "no VM of the namespace in the cloud-config is recorded on it"
    return EventMessage(
        "Warning",
        NodeReason.DELETION_BLOCKED,
        f"The VM of this Node was not found, but deletion is blocked: {why}. Check the namespace and the server in "
        "the cloud-config",
        "If the VM is deleted, delete the Node",
        deletion_command(snapshot.node),
        subject=obstacle.value,
    )


def is_absent(error: KubeError | None, vm_name: str) -> bool:
    """Return whether the error of a GET proves that this VM does not exist.

    A 404 can also come from a proxy, or mean that the server does not know the resource type. Only the message of the
    API server that names the VM counts.
    """
    return isinstance(error, NotFound) and f'virtualmachines.kubevirt.io "{vm_name}" not found' in error.answer.message


def _has_our_provider_id(node: Node) -> bool:
    """Return whether a Node has this provider's provider ID and is not being deleted."""
    return parse_provider_id(node.spec.provider_id) is not None and not node.metadata.deleting


def _shutdown_patch(node: Node, *, is_off: bool) -> NodePatch | None:
    """Return the patch that makes the shutdown taint follow the VM; None if it does."""
    others = tuple(
        taint for taint in node.spec.taints if (taint.key, taint.effect) != (_SHUTDOWN.key, _SHUTDOWN.effect)
    )
    is_tainted = len(others) < len(node.spec.taints)
    if is_tainted is is_off:
        return None
    taints = others
    if is_off:
        taints = (*others, _SHUTDOWN)
    return NodePatch(taints_body(node, taints))
