"""The report of ``status``: one line per object, with what the plans say of it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.commands.service_view import ServiceView
from harvester_ccm.commands.status_document import (
    ORDER,
    LeftOver,
    NodeLine,
    Notice,
    Pool,
    Server,
    ServiceLine,
    State,
    Status,
    is_wrong,
)
from harvester_ccm.config import NODE_CONTROLLER, SERVICE_CONTROLLER, Settings
from harvester_ccm.errors import CCMError, Unauthorized, renewal
from harvester_ccm.model.harvester import IPPool, LoadBalancer
from harvester_ccm.model.outcome import Done, EventMessage, Refused, Wait, WaitReason
from harvester_ccm.names import NodeReason
from harvester_ccm.plan.node.decision import NodePlan, NodeView, plan_node
from harvester_ccm.plan.node.decision import observe as observe_node
from harvester_ccm.plan.node.patch import uninitialized_taints
from harvester_ccm.plan.service.decision import plan_service
from harvester_ccm.plan.service.kube_vip import Announcement
from harvester_ccm.plan.service.messages import harvester_unavailable
from harvester_ccm.plan.service.orphans import ORPHANED, deletion_obstacle, is_orphan, service_of
from harvester_ccm.plan.service.ownership import made_for
from harvester_ccm.plan.service.scope import is_served, may_be_ours
from harvester_ccm.plan.service.snapshot import Situation
from harvester_ccm.plan.service.writes import ServicePlan
from harvester_ccm.redaction import inert

SOON: Final = timedelta(days=14)
"""A token that expires within this time is worth a warning."""
BY_HARVESTER: Final = "Harvester"


def left_alone(settings: Settings) -> Iterator[str]:
    """Yield what is shown nothing of because it is left to another program."""
    for kind, controller in (("Services", SERVICE_CONTROLLER), ("Nodes", NODE_CONTROLLER)):
        if controller not in settings.controllers:
            yield f"{kind} are left alone: {controller} is switched off by --controllers"


def report(frame: Status, view: ServiceView, settings: Settings, pools: Iterable[IPPool] = ()) -> Status:
    """Return the status: ``frame`` with the objects, what is wrong first; ``pools`` are those that could be read."""
    inventory, left = view.inventory, tuple(_left_over(view)) if view.serving else ()
    shown = (one for one in inventory.services if one.spec.type == "LoadBalancer" or may_be_ours(one, view.cluster))
    situations = [view.observe(one) for one in shown] if view.serving else []
    ours = {one.name for one in left} | {lb.metadata.name for one in situations for lb in one.match.own}
    return msgspec.structs.replace(
        frame,
        services=tuple(sorted((line for one in situations for line in _service_lines(one)), key=rank)),
        nodes=tuple(sorted(_node_lines(inventory, settings), key=rank)),
        left_over=tuple(sorted(left, key=lambda one: one.name)),
        pools=tuple(_pools((one for one in inventory.load_balancers if one.metadata.name in ours), pools)),
    )


def rank(line: ServiceLine | NodeLine) -> tuple[bool, int, str]:
    """Return the key by which lines are sorted: what is wrong comes first."""
    return not is_wrong(line), ORDER.index(line.state), line.key if isinstance(line, ServiceLine) else line.name


def _service_lines(situation: Situation) -> Iterator[ServiceLine]:
    """Yield what there is to see of a Service; nothing of one that is none of our business."""
    service, scope = situation.service, situation.scope
    if scope.ours:
        yield _service_line(situation)
    elif service.spec.type == "LoadBalancer" and not service.metadata.deleting:
        meta = service.metadata
        yield ServiceLine(
            namespace=meta.namespace,
            name=meta.name,
            state=State.OTHER,
            message=inert(scope.because),
            addresses=service.addresses,
            created=meta.creation_timestamp or "",
        )


def _service_line(situation: Situation) -> ServiceLine:
    service, request, lb = situation.service, situation.request, situation.match.lb
    meta, plan = service.metadata, plan_service(situation)
    said = _said(plan, situation)
    warnings = tuple(notice(one) for one in dict.fromkeys(plan.events) if _warns(one))
    shares = request.primary if lb is None else None
    wished = "vm" if request.wants_vm else "cluster"
    kind = lb.spec.workload_type if lb is not None else wished
    booked = lb.allocated_pool or lb.spec.ip_pool if lb is not None else ""
    by_harvester = lb is not None and kind == "vm" and bool(lb.address)
    return ServiceLine(
        namespace=meta.namespace,
        name=meta.name,
        state=State.WARNING if said.state is State.READY and warnings else said.state,
        reason=said.reason,
        message=inert(said.message),
        since=said.since,
        warnings=warnings,
        addresses=service.addresses,
        kind="shared" if shares else kind,
        ipam="" if shares else (lb.spec.ipam if lb is not None else request.ipam or "pool"),
        pool="" if shares else inert(booked or request.ip_pool or ""),
        network=inert(request.network),
        shares=inert(shares or ""),
        load_balancer="" if shares else (lb.metadata.name if lb is not None else situation.match.expected_name),
        announced_by=BY_HARVESTER if by_harvester else inert(Announcement.of(service).node or ""),
        created=meta.creation_timestamp or "",
    )


class _Said(Struct, frozen=True):
    """What a Service's condition says, or would if it had one."""

    state: State
    reason: str = ""
    message: str = ""
    since: str = ""


def _said(plan: ServicePlan, situation: Situation) -> _Said:
    """Return what the condition says after the plan; what it says nothing of is read from what the plan waits for."""
    service, outcome = situation.service, plan.outcome
    condition, before = plan.condition, service.ready_condition
    kept = condition is not None and before is not None and before.status == condition.status
    since = (before.last_transition_time or "") if kept and before is not None else ""
    if situation.scope.leaving:
        why = outcome.reason if isinstance(outcome, Wait | Refused) else ""
        told = condition if condition is not None and condition.status == "False" else None
        if told is not None:
            return _Said(State.LEAVING, told.reason, told.message, since)
        return _Said(State.LEAVING, message=f"waits for {WaitReason(why).meaning}" if why else "")
    if condition is not None:
        state = State.READY if condition.status == "True" else State.PENDING
        return _Said(state, condition.reason, condition.message, since)
    match outcome:
        case Done() if is_served(service):
            return _Said(State.READY)
        case Wait(reason=reason) | Refused(reason=reason):
            state = State.READY if is_served(service) and isinstance(outcome, Wait) else State.PENDING
            if reason == WaitReason.NOT_PROCESSED and situation.match.lb is None:
                # It is what is waited for once the load balancer has been created.
                reason = WaitReason.QUEUED
            return _Said(state, message=_waits_for(WaitReason(reason)))
        case Done():
            return _Said(State.PENDING, message=_waits_for(WaitReason.QUEUED))


def _waits_for(reason: WaitReason) -> str:
    """Return what a Service waits for of which nothing was told yet; who should look at it may not be there."""
    hint = "; if that stays, look at its Events, and whether the program runs and leads"
    return f"waits for {reason.meaning}{hint if reason is WaitReason.QUEUED else ''}"


def _node_lines(inventory: Inventory, settings: Settings) -> Iterator[NodeLine]:
    if NODE_CONTROLLER in settings.controllers:
        store = inventory.node_store(settings)
        virtual_ips = store.virtual_ips
        for node in inventory.nodes:
            yield _node_line(observe_node(store, node, virtual_ips=virtual_ips, settings=settings.nodes))


def _node_line(view: NodeView) -> NodeLine:
    """Return what there is to see of a Node."""
    node, match, plan = view.node, view.match, plan_node(view)
    addresses = tuple(one.address for one in node.status.addresses if one.type == "InternalIP")
    told = [one for one in plan.events if _warns(one)]
    if match.vm is None and match.problem is not None and not match.unmanaged and match.problem not in told:
        # Said of no Node that is well; that its VM is not found has to be seen here nevertheless. That Harvester is
        # away is said of the whole.
        told += [match.problem] if match.problem.reason is not NodeReason.HARVESTER_UNAVAILABLE else []
    state, said = _node_state(view, plan)
    return NodeLine(
        name=node.metadata.name,
        state=State.WARNING if state is State.READY and told else state,
        reason=said.reason,
        message=said.message,
        warnings=() if state is State.OTHER else tuple(map(notice, told)),
        vm=match.vm.object.metadata.key if match.vm else "",
        addresses=addresses,
        ready=node.ready,
    )


def _node_state(view: NodeView, plan: NodePlan) -> tuple[State, Notice]:
    match, problem = view.match, view.match.problem
    if match.unmanaged:
        return State.OTHER, notice(problem) if problem else Notice(reason="", message="")
    if plan.skip_reason and (view.node.metadata.deleting or uninitialized_taints(view.node)):
        state = State.LEAVING if view.node.metadata.deleting else State.PENDING
        return state, Notice(reason="", message=inert(plan.skip_reason))
    if plan.waiting is not None:
        return State.PENDING, notice(plan.waiting)
    if uninitialized_taints(view.node):
        return State.PENDING, Notice(reason="", message="is about to be initialised")
    return State.READY, Notice(reason="", message="")


def _left_over(view: ServiceView) -> Iterator[LeftOver]:
    """Yield the load balancers of this cluster that have no Service."""
    inventory, store = view.inventory, view.store
    for one in inventory.load_balancers:
        if is_orphan(one, service_of(one, store.services), view.cluster):
            yield LeftOver(
                name=one.metadata.name,
                service=inert(made_for(one)),
                address=inert(one.address or one.allocated_ip),
                pool=inert(one.allocated_pool),
                message=inert(deletion_obstacle(one, store.services, store.load_balancers) or ORPHANED),
            )


def _pools(load_balancers: Iterable[LoadBalancer], read: Iterable[IPPool]) -> Iterator[Pool]:
    """Yield the pools in which these load balancers have an address, and those that could be read."""
    used = Counter(inert(one.allocated_pool) for one in load_balancers if one.allocated_pool and one.allocated_ip)
    status = {inert(one.metadata.name): one.status for one in read}
    for name in sorted({*used, *status}):
        free = {"available": status[name].available, "total": status[name].total} if name in status else {}
        yield Pool(name=name, addresses=used[name], **free)


def problems_of_servers(harvester: CCMError | None, servers: Iterable[Server], now: datetime) -> Iterator[str]:
    """Yield what is wrong with the servers, in the words of the Events; ``harvester`` is why that cannot be read."""
    if harvester is not None:
        yield inert(harvester_unavailable(harvester).message)
    refused = "harvester" if isinstance(harvester, Unauthorized) else ""
    for server in servers:
        if not server.token_expires or server.cluster == refused:
            continue
        end, day = datetime.fromisoformat(server.token_expires), server.token_expires[:10]
        remedy = renewal(server.cluster, server.account)
        if end <= now:
            yield f"The token for {server.cluster} expired on {day}. {remedy}"
        elif end - now < SOON:
            yield f"The token for {server.cluster} ends on {day}, until then it works. {remedy}"


def _warns(event: EventMessage) -> bool:
    return event.type == "Warning"


def notice(event: EventMessage) -> Notice:
    """Return what an Event says."""
    return Notice(reason=str(event.reason), message=inert(event.message))
