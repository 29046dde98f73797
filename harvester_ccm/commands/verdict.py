"""The state of a Service or a Node, with the reasons and messages of the plan, for ``status`` and ``explain``."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.commands.clusters import ClusterStore
from harvester_ccm.config import NODE_CONTROLLER, SERVICE_CONTROLLER, Settings
from harvester_ccm.kube.workqueue import time_text
from harvester_ccm.model.core import Node, Service
from harvester_ccm.model.outcome import Done, EventMessage, Refused, WaitReason
from harvester_ccm.names import NodeReason
from harvester_ccm.plan.node.decision import NodePlan, NodeView, observe, plan_node
from harvester_ccm.plan.node.patch import uninitialized_taints
from harvester_ccm.plan.service.decision import plan_service
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.snapshot import observe as observe_service
from harvester_ccm.plan.service.writes import ServicePlan
from harvester_ccm.redaction import inert

_WORKING: Final = frozenset({WaitReason.BACKENDS, WaitReason.HARVESTER_UNAVAILABLE})
"""Reasons to wait of a Service with an address whose load balancer works. An outage is reported only once."""


class State(StrEnum):
    """State of an object, in the order in which ``status`` lists problems."""

    NONE = ""
    """That of a server or of the Lease, which has only problems."""
    BLOCKED = "Blocked"
    """Has no address until the Service is changed."""
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


class Reason(Struct, frozen=True):
    """Why an object is in its state: reason and message of its condition, or of an Event."""

    reason: str
    message: str


class Verdict(Struct, frozen=True):
    """The state of an object, and why."""

    state: State
    since: str = ""
    """Time since which the object is not ready; empty if that is unknown."""
    reasons: tuple[Reason, ...] = ()

    @property
    def is_problem(self) -> bool:
        """Whether something is wrong with the object, or it is not ready."""
        return bool(self.reasons) and self.state is not State.UNMANAGED


def judge_service(
    store: ClusterStore, service: Service, settings: Settings
) -> tuple[ServiceSnapshot, ServicePlan, Verdict]:
    """Return snapshot, plan and verdict of a Service, as the controller has them right after its start."""
    snapshot = observe_service(store, service, store.cluster)
    snapshot = replace(snapshot, now=_waited(snapshot, store.taken), wall_time=time_text(store.taken))
    skip_reason = snapshot.scope.because
    if SERVICE_CONTROLLER not in settings.controllers:
        skip_reason = f"{SERVICE_CONTROLLER} is switched off by --controllers"
    if skip_reason:
        return snapshot, ServicePlan(), Verdict(State.UNMANAGED, reasons=(Reason("Unmanaged", skip_reason),))
    plan = plan_service(snapshot)
    return snapshot, plan, _service_verdict(snapshot, plan)


def _waited(snapshot: ServiceSnapshot, now: datetime) -> float:
    """Return the seconds since the Service was created or deleted, or its load balancer was."""
    meta, lb = snapshot.service.metadata, snapshot.match.lb
    began = meta.creation_timestamp
    if snapshot.scope.leaving:
        began = meta.deletion_timestamp
    elif lb is not None:
        began = lb.metadata.deletion_timestamp or lb.metadata.creation_timestamp
    return max(seconds_between(began, now) or 0.0, 0.0)


def seconds_between(since: str | None, now: datetime) -> float | None:
    """Return the seconds since a time of the API; None if it is absent or invalid."""
    try:
        return (now - datetime.fromisoformat(since or "")).total_seconds()
    except (ValueError, TypeError):
        return None


def _service_verdict(snapshot: ServiceSnapshot, plan: ServicePlan) -> Verdict:
    service, outcome, condition = snapshot.service, plan.outcome, plan.condition
    reasons = warnings_in(plan.events)
    if condition is not None and condition.status == "False":
        # The condition has the text of the Warning, and a more precise reason.
        others = [one for one in reasons if one.message != condition.message]
        reasons = [Reason(condition.reason, condition.message), *others]
    if snapshot.scope.leaving:
        return Verdict(State.DELETING, service.metadata.deletion_timestamp or "", tuple(reasons))
    if not (reasons or isinstance(outcome, Done) or (service.addresses and outcome.reason in _WORKING)):
        waits_for = WaitReason(outcome.reason)
        reasons = [Reason(waits_for.title().replace("_", ""), f"Waits for {waits_for.meaning}")]
    before = service.ready_condition
    since = before.last_transition_time if before is not None and before.status == "False" else ""
    if service.addresses:
        return Verdict(State.DEGRADED if reasons else State.READY, since or "", tuple(reasons))
    state = State.BLOCKED if isinstance(outcome, Refused) else State.PENDING
    return Verdict(state, since or service.metadata.creation_timestamp or "", tuple(reasons))


def warnings_in(events: Iterable[EventMessage | None]) -> list[Reason]:
    """Return the Warnings among Events."""
    found = (one for one in dict.fromkeys(events) if one is not None and one.type == "Warning")
    return [Reason(str(one.reason), inert(one.message)) for one in found]


def judge_node(store: ClusterStore, node: Node, settings: Settings) -> tuple[NodeView, NodePlan, Verdict]:
    """Return snapshot, plan and verdict of a Node, as if an address that is not reported had been missing for long."""
    patient = replace(settings.nodes, monitor_period=0.0)
    view = observe(store, node, virtual_ips=store.virtual_ips, settings=patient)
    if NODE_CONTROLLER in settings.controllers:
        plan = plan_node(view)
        return view, plan, _node_verdict(view, plan)
    reason = f"{NODE_CONTROLLER} is switched off by --controllers"
    return view, NodePlan(), Verdict(State.UNMANAGED, reasons=(Reason("Unmanaged", reason),))


def _node_verdict(view: NodeView, plan: NodePlan) -> Verdict:
    meta, lost = view.node.metadata, view.match.problem
    if view.match.unmanaged:
        return Verdict(State.UNMANAGED, reasons=tuple(warnings_in([lost])))
    if meta.deleting:
        return Verdict(State.DELETING, meta.deletion_timestamp or "")
    # For a Node that works, no Event reports that its VM is missing.
    is_outage = lost is not None and lost.reason is NodeReason.HARVESTER_UNAVAILABLE
    reasons = warnings_in((plan.waiting, *plan.events, *plan.emitted, None if is_outage else lost))
    if not uninitialized_taints(view.node):
        return Verdict(State.DEGRADED if reasons else State.READY, reasons=tuple(reasons))
    next_step = Reason("Uninitialized", plan.skip_reason or "The Node is initialized next; if not, see its Events")
    return Verdict(State.PENDING, meta.creation_timestamp or "", tuple(reasons or [next_step]))
