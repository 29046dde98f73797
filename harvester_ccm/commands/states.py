"""The state of each Service and Node, and why, as ``status`` and ``explain`` print it.

The plans are those of the controller. What only time shows counts from the times in the objects.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.commands.clusters import ClusterStore
from harvester_ccm.config import LIFECYCLE_CONTROLLER, NODE_CONTROLLER, SERVICE_CONTROLLER, Settings
from harvester_ccm.kube.clock import time_text
from harvester_ccm.model.core import Node, Service, ServiceCondition
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import BLOCKING_REASONS, NodeReason, Reason
from harvester_ccm.plan.node.decision import NodePlan, NodeSnapshot, observe, plan_node
from harvester_ccm.plan.node.lifecycle import LifecyclePlan, observe_lifecycle, plan_lifecycle
from harvester_ccm.plan.node.patch import uninitialized_taints
from harvester_ccm.plan.service.announcing.sequence import TOUCH_SECONDS
from harvester_ccm.plan.service.desired import ChangeLoadBalancer, CreateLoadBalancer, ServicePlan
from harvester_ccm.plan.service.phase import Phase, phase_of
from harvester_ccm.plan.service.plan import plan_service, plan_waiting_for_creation
from harvester_ccm.plan.service.snapshot import ServiceSnapshot, ServiceState
from harvester_ccm.plan.service.snapshot import observe as observe_service
from harvester_ccm.plan.service.verdict import NotManaged, NotReady
from harvester_ccm.redaction import sanitize

_WORKING: Final = frozenset({Reason.BACKENDS_UNHEALTHY, Reason.HARVESTER_UNAVAILABLE})
"""Reasons to wait of a Service with an address whose load balancer works. An outage is reported only once."""

_UNPUBLISHED: Final = (
    "Harvester has allocated the address, and the controller publishes it next. If this stays for a minute, the "
    "controller does not see the load balancer, or its log has the cause: delete its pod, and it is started again"
)
_FAILED_WRITES: Final = frozenset({Reason.SYNC_FAILED, Reason.HARVESTER_UNAVAILABLE})
"""Reasons that the controller writes to the condition after a failed write."""


NO_LEADER: Final = "NoLeader"
"""Reason of a Lease without a holder, and of what waits for one."""


class State(StrEnum):
    """State of an object, in the order in which ``status`` lists problems."""

    NONE = ""
    """That of a server or of the Lease, which has only problems."""
    BLOCKED = "Blocked"
    """Has no address until a user or an administrator acts."""
    PENDING = "Pending"
    """Has no address yet, or is not initialized yet."""
    DELETING = "Deleting"
    DEGRADED = "Degraded"
    """Has an address, and a Warning holds or its load balancer is missing."""
    ORPHANED = "Orphaned"
    """A load balancer without a Service."""
    READY = "Ready"
    UNMANAGED = "Unmanaged"
    """Not managed by this controller."""


class StatusReason(Struct, frozen=True):
    """Why an object is in its state: reason and message of its condition, or of an Event."""

    reason: str
    message: str
    command: str = ""
    """A command to paste; the message does not contain it."""


class ObjectStatus(Struct, frozen=True):
    """The state of an object, and why."""

    state: State
    since: str = ""
    """Time since which the object is not ready; empty if that is unknown."""
    reasons: tuple[StatusReason, ...] = ()

    @property
    def is_problem(self) -> bool:
        """Whether something is wrong with the object, or it is not ready."""
        return bool(self.reasons) and self.state is not State.UNMANAGED


class Planned(Struct, frozen=True):
    """A Service with its snapshot, its plan and its status."""

    snapshot: ServiceSnapshot
    plan: ServicePlan
    status: ObjectStatus

    @property
    def service(self) -> Service:
        """The Service."""
        return self.snapshot.service


UNANNOUNCED: Final = frozenset({Reason.NO_ENDPOINTS, Reason.ANNOUNCEMENT_UNKNOWN})
"""Reasons of Normal Events about a Service that no node announces, as far as kube-vip notes it."""
Line = tuple[str, ObjectStatus]
"""Kind and name of an object, with its status."""


def service_status(store: ClusterStore, service: Service, settings: Settings) -> Planned:
    """Return a Service with its plan, as the controller has it right after its start."""
    observed = observe_service(store, service, store.cluster)
    # All touches were made, as far as a command can tell.
    state = ServiceState(phase=phase_of(observed), touches=len(TOUCH_SECONDS))
    state.endpoints = store.endpoints.get(service.metadata.key, state.endpoints)
    now = _waited(observed, store.taken)
    snapshot = replace(
        observed,
        pool=store.pools.get(observed.request.ip_pool),
        remembered=state,
        now=now,
        wall_time=time_text(store.taken),
    )
    skip_reason = snapshot.scope.reason
    if SERVICE_CONTROLLER not in settings.controllers:
        skip_reason = f"{SERVICE_CONTROLLER} is switched off by --controllers"
    if skip_reason:
        unmanaged = ObjectStatus(State.UNMANAGED, reasons=(StatusReason("Unmanaged", skip_reason),))
        return Planned(snapshot, ServicePlan(Phase.NOT_OURS, NotManaged(skip_reason)), unmanaged)
    plan = plan_service(snapshot)
    if plan.is_next_creation and store.creation_in_progress:
        queued = plan_waiting_for_creation(snapshot, plan)
        plan = replace(queued, following_write=plan.write)
    return Planned(snapshot, plan, _status_of_service(snapshot, plan))


def _waited(snapshot: ServiceSnapshot, now: datetime) -> float:
    """Return the seconds since the Service was created or deleted, or its load balancer was."""
    meta = snapshot.service.metadata
    load_balancer = snapshot.match.load_balancer
    began = meta.creation_timestamp
    if snapshot.is_leaving:
        began = meta.deletion_timestamp
    elif load_balancer is not None:
        began = load_balancer.metadata.deletion_timestamp or load_balancer.metadata.creation_timestamp
    return max(seconds_between(began, now) or 0.0, 0.0)


def seconds_between(since: str | None, now: datetime) -> float | None:
    """Return the seconds since a time of the API; None if it is absent or invalid."""
    try:
        return (now - datetime.fromisoformat(since or "")).total_seconds()
    except (ValueError, TypeError):
        return None


def _status_of_service(snapshot: ServiceSnapshot, plan: ServicePlan) -> ObjectStatus:
    service = snapshot.service
    reasons = tuple(_reasons_of_service(snapshot, plan))
    if snapshot.is_leaving:
        return ObjectStatus(State.DELETING, service.metadata.deletion_timestamp or "", reasons)
    condition = service.ready_condition
    since = ""
    if condition is not None and condition.status == "False" and snapshot.has_had_address:
        since = condition.last_transition_time or ""
    if service.addresses:
        return ObjectStatus(State.DEGRADED if reasons else State.READY, since, reasons)
    if not reasons:
        # The address is allocated, and only its publication is missing.
        reasons = (StatusReason(str(Reason.QUEUED), _UNPUBLISHED),)
    state = State.BLOCKED if plan.waiting_reason in BLOCKING_REASONS else State.PENDING
    return ObjectStatus(state, since or service.metadata.creation_timestamp or "", reasons)


def _reasons_of_service(snapshot: ServiceSnapshot, plan: ServicePlan) -> list[StatusReason]:
    """Return why the Service is not ready, and its Warnings."""
    verdict = plan.verdict
    warnings = warnings_in(plan.events)
    condition = _failed_condition(snapshot, plan)
    if isinstance(verdict, NotReady) and verdict.changes_condition:
        first = _reason_of(verdict)
    elif condition is not None:
        first = StatusReason(condition.reason, condition.message)
    elif not isinstance(verdict, NotReady) or _is_expected(snapshot, verdict, has_warnings=bool(warnings)):
        return warnings
    else:
        first = _reason_of(verdict)
    return [first, *(warning for warning in warnings if warning.message != first.message)]


def _failed_condition(snapshot: ServiceSnapshot, plan: ServicePlan) -> ServiceCondition | None:
    """Return the condition about the error of a write, which the plan does not know; None if there is none."""
    stored = snapshot.service.ready_condition
    writes = (plan.write, plan.following_write)
    is_pending = any(isinstance(write, CreateLoadBalancer | ChangeLoadBalancer) for write in writes)
    if is_pending and stored is not None and stored.reason in _FAILED_WRITES:
        return stored
    planned = plan.condition
    return planned if planned is not None and planned.status == "False" else None


def _reason_of(verdict: NotReady) -> StatusReason:
    return StatusReason(str(verdict.reason), verdict.message.prose, verdict.message.command)


def _is_expected(snapshot: ServiceSnapshot, verdict: NotReady, *, has_warnings: bool) -> bool:
    """Return whether a wait is no problem: a deletion goes on, or the Service has its address meanwhile.

    An outage is reported only once, and with an address, Warnings are the reasons.
    """
    if snapshot.is_leaving:
        return True
    return bool(snapshot.service.addresses) and (has_warnings or verdict.reason in _WORKING)


def warnings_in(events: Iterable[EventMessage | None]) -> list[StatusReason]:
    """Return the Warnings among Events."""
    found = (event for event in dict.fromkeys(events) if event is not None and event.type == "Warning")
    return [StatusReason(str(event.reason), event.prose, event.command) for event in found]


def node_status(store: ClusterStore, node: Node, settings: Settings) -> tuple[NodePlan, ObjectStatus]:
    """Return plan and verdict of a Node, as if an address that is not reported had been missing for long."""
    without_grace = replace(settings.nodes, monitor_period=0.0)
    view = observe(store, node, virtual_ips=store.virtual_ips, settings=without_grace)
    if NODE_CONTROLLER in settings.controllers:
        plan = plan_node(view)
        return plan, _status_of_node(view, plan, _not_ready_reasons(store, node, settings))
    reason = f"{NODE_CONTROLLER} is switched off by --controllers"
    return NodePlan(), ObjectStatus(State.UNMANAGED, reasons=(StatusReason("Unmanaged", reason),))


def lifecycle_of(store: ClusterStore, node: Node, settings: Settings) -> LifecyclePlan:
    """Return the plan for a Node that is not Ready, as if live GETs had confirmed the list of VMs."""
    confirmations = settings.nodes.deletion_confirmations
    plan = plan_lifecycle(observe_lifecycle(store, node, settings.nodes, absences=confirmations))
    # The cause holds whether or not the controller runs that would act on it.
    return plan if LIFECYCLE_CONTROLLER in settings.controllers else LifecyclePlan(cause=plan.cause)


def _not_ready_reasons(store: ClusterStore, node: Node, settings: Settings) -> list[StatusReason]:
    """Return why an initialized Node is not Ready: the state of its VM, or else what its kubelet reports."""
    condition = node.ready_condition
    if condition is None or condition.status == "True" or uninitialized_taints(node):
        return []
    lifecycle = lifecycle_of(store, node, settings)
    reasons = warnings_in([lifecycle.cause, lifecycle.event])
    if reasons:
        return reasons
    if condition.status == "False":
        return [StatusReason("NodeNotReady", sanitize(f"The kubelet reports: {condition.message or 'no cause'}"))]
    return [StatusReason("NodeNotReady", "The kubelet of this Node does not report")]


def _of_initialized(reasons: Sequence[StatusReason]) -> ObjectStatus:
    state = State.DEGRADED if reasons else State.READY
    return ObjectStatus(state, reasons=tuple(reasons))


def _status_of_node(view: NodeSnapshot, plan: NodePlan, not_ready: Iterable[StatusReason]) -> ObjectStatus:
    meta = view.node.metadata
    lost = view.match.problem
    is_uninitialized = bool(uninitialized_taints(view.node))
    if view.match.unmanaged:
        # Somebody has to remove the taint of a new Node, and this controller does not.
        state = State.PENDING if is_uninitialized else State.UNMANAGED
        return ObjectStatus(state, reasons=tuple(warnings_in([lost])))
    if meta.deleting:
        return ObjectStatus(State.DELETING, meta.deletion_timestamp or "")
    events = [plan.waiting, *plan.events, *plan.events_after_write]
    if lost is not None and lost.reason is not NodeReason.HARVESTER_UNAVAILABLE:
        # For a Node that works, no Event reports that its VM is missing.
        events.append(lost)
    reasons = list(dict.fromkeys([*not_ready, *warnings_in(events)]))
    if not is_uninitialized:
        return _of_initialized(reasons)
    next_step = StatusReason(
        "Uninitialized",
        plan.skip_reason
        or "The Node is initialized next; if not within a minute, the log of the controller has the cause",
    )
    return ObjectStatus(State.PENDING, meta.creation_timestamp or "", tuple(reasons or [next_step]))
