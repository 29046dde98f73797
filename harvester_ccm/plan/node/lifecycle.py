"""What becomes of a Node that is not ready: the shutdown taint, or its deletion.

A Node is deleted only when all of this holds; otherwise it stays, and a note says what is missing:

* its Ready condition is there and is not True, and its provider ID is ours: it had a VM that we knew;
* the complete list of VMs, all of them readable, has no VM of this Node by any identity, and a live GET of the VM, by
  the name under which it was seen, answered 404 for exactly that VM. 401, 403, 5xx, timeouts, and 404s that mean
  something else never count;
* that was so several times, with time in between, for the same Node (UID) and provider ID;
* other Nodes' VMs are found, and not only copies of them, and no ready Node is without its VM: else it is our view of
  Harvester that is wrong;
* the Nodes without a VM, and those deleted in the last minutes, are no more than the allowed share (but one always).

Ready Nodes without a VM, and the share, do not hold a Node for ever for which more is known: this process saw the very
VM of its provider ID before it went, and at least as many ready Nodes have theirs as Nodes are without. So it is the
right Harvester and the right namespace, and VMs were removed. Then no more than the share is deleted within some
minutes, and the others later; and ready Nodes without a VM are waited for, but not for ever. For the share it is enough
that an earlier process saw the VM in our namespace, as the Node's record says; what that one deleted is waited for.

The Go framework deletes at the first 404, also Nodes whose VM was never known and Nodes without a Ready condition.

A ready Node is not shut down, whosever it is: it loses the taint, as with the lifecycle controller of every other cloud
provider. It may be left from one that no longer runs here, and then nobody else takes it away.

Otherwise the shutdown taint follows the power of the VM and not its Ready flag: a VM that is starting, paused or
migrating is not shut down, and a Node that is still not ready loses the taint when its VM runs again. Where the power
is not certain the taint stays as it is, also where only its name or its guest's says that the VM is the Node's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from harvester_ccm.config import NodeSettings
from harvester_ccm.errors import AdmissionDenied, CCMError, Conflict, Forbidden, NotFound
from harvester_ccm.model.core import Node, Taint
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import SHUTDOWN_TAINT, NodeReason
from harvester_ccm.plan.node.events import warning
from harvester_ccm.plan.node.existence import (
    ClusterCheck,
    Existence,
    LiveGet,
    Power,
    VMExistence,
    check_cluster,
    power,
    vm_existence,
)
from harvester_ccm.plan.node.patch import NodeRequest, taints_body
from harvester_ccm.plan.node.vms import NodeStore, recorded_vm

_SHUTDOWN: Final = Taint(key=SHUTDOWN_TAINT, effect="NoSchedule")
DELETION_PERCENT: Final = 34
"""Maximum percentage of the Nodes that can be without their VM, or deleted within the window. One is always allowed."""
DELETION_WINDOW: Final = 600.0
"""Seconds for which a deleted Node still counts among those that lost their VM."""
CONTRADICTION_SECONDS: Final = 600.0
"""Seconds since its VM is gone for which a Node is held by ready Nodes without a VM. Long enough for those to be found
not ready; one that stays ready has its VM elsewhere."""
REFUSED_PAUSE: Final = 600.0
"""Seconds until a deletion that is not granted, or that a policy refuses, is tried again."""


class AbsenceCount(Struct, frozen=True):
    """How often the VM of a Node was certainly gone. Kept by the caller between two plans, by Node name."""

    node_uid: str
    provider_id: str
    count: int
    since: float
    """Monotonic seconds of the first one."""
    last: float
    """Monotonic seconds of the last one that counted."""


class LifecycleMemory(Struct):
    """What a process remembers of a Node; lost at a restart, which delays a deletion or has it held."""

    vm_name: str | None = None
    """Last name under which the Node's VM was seen."""
    seen_provider_id: str | None = None
    """Provider ID with which the Node's VM was seen, on the list of VMs of our namespace."""
    absences: AbsenceCount | None = None
    """What the last plan for this Node returned."""
    deletions: Mapping[str, float] = field(default_factory=dict)
    """UIDs of the Nodes, of any, that this process has deleted or asks to delete, with the monotonic seconds of that;
    old ones may be left in. One that joined anew under its name is another Node."""


class LifecycleView(Struct, frozen=True):
    """All that the decision depends on."""

    node: Node
    existence: VMExistence
    check: ClusterCheck
    settings: NodeSettings
    now: float
    """Monotonic seconds."""
    memory: LifecycleMemory


class LifecyclePlan(Struct, frozen=True):
    """What to do."""

    request: NodeRequest | None = None
    """Either changes taints, or deletes; refused when the Node was re-created or changed meanwhile."""
    done: EventMessage | None = None
    """Event for when the deletion succeeded; set exactly when ``request`` is one."""
    absences: AbsenceCount | None = None
    """Pass it in next time; None forgets the earlier confirmations."""
    recheck_after: float | None = None
    """Seconds after which another look is due even without an event."""
    note: EventMessage | None = None
    """Emitted as an Event."""


def observe_lifecycle(
    store: NodeStore,
    node: Node,
    settings: NodeSettings,
    memory: LifecycleMemory,
    *,
    live_get: LiveGet | None,
    now: float,
) -> LifecycleView:
    """Return what is known about a Node's life. ``live_get`` is the answer about its ``vm_to_get``."""
    existence = vm_existence(store, node, seen_name=memory.vm_name, live_get=live_get)
    absent = existence.existence is Existence.ABSENT
    # Nothing is decided by the other Nodes while the VM of this one is not certainly gone.
    check = check_cluster(store.nodes.all(), store.index()) if absent else ClusterCheck()
    return LifecycleView(node, existence, check, settings, now, memory)


def plan_lifecycle(view: LifecycleView) -> LifecyclePlan:
    """Return what to do with the Node now."""
    node = view.node
    if node.metadata.deleting:
        return LifecyclePlan()
    if node.ready == "True":
        return LifecyclePlan(_untainted(node))
    if view.existence.stranger:
        return LifecyclePlan()
    match view.existence.existence:
        case Existence.PRESENT:
            vm = view.existence.vm
            return LifecyclePlan(_by_power(node, power(vm)) if vm and not view.existence.namesake else None)
        case Existence.UNKNOWN:
            spacing, text = view.settings.confirmation_spacing, view.existence.detail
            doubt = _held(f"This Node has no VM in Harvester, but the Node is not deleted: {text}", "doubt")
            note = doubt if view.existence.unprovable else None
            return LifecyclePlan(absences=_same(view), recheck_after=spacing, note=note)
        case Existence.ABSENT:
            return _absent(view)


def deletion_refused(node: Node, error: CCMError) -> tuple[EventMessage | None, float | None]:
    """Return the Event for a failed deletion and the seconds to wait before the next try.

    No note: the Node is gone or has changed, which the next event shows. No seconds: the usual growing pauses.
    """
    name = node.metadata.name
    match error:
        case NotFound() | Conflict():
            return None, None
        case Forbidden() | AdmissionDenied():
            advice = (
                "Grant the verb delete on nodes to the ClusterRole of this cloud controller manager"
                if isinstance(error, Forbidden)
                else "Have the policy or webhook that refuses it allow this cloud controller manager to delete Nodes"
            )
            text = (
                f"Failed deleting node {name}, whose VM no longer exists: {error}. {advice}, or run: kubectl delete "
                f"node {name}"
            )
            return warning(NodeReason.DELETION_FAILED, text, subject="forbidden"), REFUSED_PAUSE
        case _:
            return warning(NodeReason.DELETION_FAILED, f"Failed deleting node {name}: {error}"), None


def _untainted(node: Node) -> NodeRequest | None:
    kept = tuple(taint for taint in node.spec.taints if not _is_shutdown(taint))
    return _taints_request(node, kept) if len(kept) < len(node.spec.taints) else None


def _by_power(node: Node, state: Power) -> NodeRequest | None:
    if state is Power.ON:
        return _untainted(node)
    if state is Power.UNKNOWN or any(map(_is_shutdown, node.spec.taints)):
        return None
    return _taints_request(node, (*node.spec.taints, _SHUTDOWN))


def _is_shutdown(taint: Taint) -> bool:
    """Return whether it is our taint; its value does not matter."""
    return (taint.key, taint.effect) == (_SHUTDOWN.key, _SHUTDOWN.effect)


def _taints_request(node: Node, taints: Iterable[Taint]) -> NodeRequest:
    return NodeRequest("PATCH", node.metadata.name, taints_body(node, taints))


def _absent(view: LifecycleView) -> LifecyclePlan:
    node, settings = view.node, view.settings
    if not any(condition.type == "Ready" for condition in node.status.conditions):
        return LifecyclePlan(recheck_after=settings.confirmation_spacing)
    absences = _counted(view)
    if absences.count < max(settings.deletion_confirmations, 2):
        return LifecyclePlan(
            absences=absences, recheck_after=max(absences.last + settings.confirmation_spacing - view.now, 0.0)
        )
    obstacle = _obstacle(view, absences)
    if obstacle is not None:
        return LifecyclePlan(absences=absences, recheck_after=settings.confirmation_spacing, note=obstacle)
    name = node.metadata.name
    preconditions = {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}
    text = f"Deleting node {name} because it does not exist in the cloud provider"
    done = EventMessage("Normal", NodeReason.DELETING, text)
    return LifecyclePlan(NodeRequest("DELETE", name, preconditions), done, absences, settings.confirmation_spacing)


def _same(view: LifecycleView) -> AbsenceCount | None:
    absences, node = view.memory.absences, view.node
    if absences is None:
        return None
    same = (absences.node_uid, absences.provider_id) == (node.metadata.uid, node.spec.provider_id)
    return absences if same else None


def _counted(view: LifecycleView) -> AbsenceCount:
    absences = _same(view)
    if absences is None:
        return AbsenceCount(view.node.metadata.uid, view.node.spec.provider_id, 1, view.now, view.now)
    if view.now - absences.last < view.settings.confirmation_spacing:
        return absences
    return replace(absences, count=absences.count + 1, last=view.now)


def _obstacle(view: LifecycleView, absences: AbsenceCount) -> EventMessage | None:
    check, gone = view.check, _gone(view)
    if check.missing_ready and not (_proven(view) and view.now - absences.since >= CONTRADICTION_SECONDS):
        return _contradicted(view)
    if check.managed <= len(check.missing) + check.replaced:
        found = "no Node has the VM of its provider ID" if check.replaced else "no VM of this cluster is found at all"
        return _held(f"{gone}: {found}. Check the namespace in the cloud-config", "none")
    return _too_many(view, absences)


def _gone(view: LifecycleView) -> str:
    return f"The VM of this Node no longer exists in Harvester ({view.existence.detail}), but the Node is not deleted"


def _was_seen(view: LifecycleView) -> bool:
    """Return whether the very VM of the Node was in our namespace since this process started."""
    return view.memory.seen_provider_id == view.node.spec.provider_id


def _proven(view: LifecycleView) -> bool:
    """Return whether our view of Harvester is right although many Nodes, or ready ones, are without a VM."""
    return _was_seen(view) and view.check.confirmed >= len(view.check.missing)


def _contradicted(view: LifecycleView) -> EventMessage:
    names = ", ".join(sorted(view.check.missing_ready))
    why = f"ready Nodes have no VM either ({names}), so Harvester may not have shown all VMs"
    if not _was_seen(view):
        return _held(f"{_gone(view)}: {why}. Check the namespace in the cloud-config", "ready")
    patience = f", or {CONTRADICTION_SECONDS / 60:g} minutes after its VM went" if _proven(view) else ""
    return _held(f"{_gone(view)} yet: {why}. That is done when they are not ready any more{patience}", "ready")


def _too_many(view: LifecycleView, absences: AbsenceCount) -> EventMessage | None:
    check, name = view.check, view.node.metadata.name
    recent = {one for one, at in view.memory.deletions.items() if view.now - at < DELETION_WINDOW}
    total = check.managed + len(recent - check.missing)
    allowed = max(1, total * DELETION_PERCENT // 100)
    without = len(check.missing | recent)
    if without <= allowed:
        return None
    lost, delete = f"{without} of {total} Nodes lost their VM", f"run: kubectl delete node {name}"
    # The record of a Node of another namespace would have ended this earlier.
    recorded = bool(recorded_vm(view.node)[0])
    if not (_proven(view) or (recorded and check.confirmed >= len(check.missing))):
        return _held(
            f"{_gone(view)}: {lost}, and {allowed} may at the same time. If they are gone for good, {delete}", "share"
        )
    # What an earlier process deleted is not known.
    counted = _was_seen(view) or view.now - absences.since >= DELETION_WINDOW
    if counted and len(recent - {view.node.metadata.uid}) < allowed:
        return None
    return _held(
        f"{_gone(view)} yet: {lost}, and {allowed} may be deleted within {DELETION_WINDOW / 60:g} minutes. Its "
        f"turn comes; to have it gone now, {delete}",
        "turn",
    )


def _held(text: str, subject: str) -> EventMessage:
    return warning(NodeReason.DELETION_HELD, text, subject=subject)
