"""The report of ``status``: one line per object, with what the plans say of it. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

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
)
from harvester_ccm.config import NODE_CONTROLLER, SERVICE_CONTROLLER, OrphanPolicy, Settings
from harvester_ccm.errors import CCMError, Unauthorized, renewal
from harvester_ccm.model.harvester import IPPool, LoadBalancer
from harvester_ccm.model.outcome import Done, EventMessage, Refused, Retry, Wait, WaitReason
from harvester_ccm.names import LOAD_BALANCER_READY, NodeReason
from harvester_ccm.plan.node.decision import NodePlan, NodeView, plan_node
from harvester_ccm.plan.node.decision import observe as observe_node
from harvester_ccm.plan.node.patch import uninitialized_taints
from harvester_ccm.plan.service.decision import condition_after, plan_service
from harvester_ccm.plan.service.kube_vip import Announcement
from harvester_ccm.plan.service.orphans import Suspicion, plan_orphan, service_of
from harvester_ccm.plan.service.ownership import made_for, name_for
from harvester_ccm.plan.service.pending import harvester_unavailable
from harvester_ccm.plan.service.selection import is_served, may_be_ours
from harvester_ccm.plan.service.situation import Situation
from harvester_ccm.plan.service.steps import EmitEvent, ServicePlan
from harvester_ccm.redaction import inert

SOON: Final = timedelta(days=14)
"""A token that expires within this time is worth a warning."""
BY_HARVESTER: Final = "Harvester"


class Booked(Struct, frozen=True):
    """An address that a load balancer of this cluster has in a pool."""

    load_balancer: str
    pool: str


Line = ServiceLine | NodeLine | LeftOver | Booked


def lines_of(view: ServiceView, settings: Settings) -> Iterator[Line]:
    """Yield a line per object, in any order."""
    inventory = view.inventory
    if view.serving:
        for service in inventory.services:
            if service.spec.type == "LoadBalancer" or may_be_ours(service, view.cluster):
                situation = view.observe(service)
                yield from _service_lines(situation)
                yield from _booked(situation.match.own)
        yield from _left_over_lines(view, settings.services.orphan_lbs)
    if NODE_CONTROLLER in settings.controllers:
        store = inventory.node_store(settings)
        virtual_ips = store.virtual_ips
        for node in inventory.nodes:
            yield _node_line(observe_node(store, node, virtual_ips=virtual_ips, settings=settings.nodes))


def left_alone(settings: Settings) -> Iterator[str]:
    """Yield what is shown nothing of because it is left to another program."""
    for kind, controller in (("Services", SERVICE_CONTROLLER), ("Nodes", NODE_CONTROLLER)):
        if controller not in settings.controllers:
            yield f"{kind} are left alone: {controller} is switched off by --controllers"


def report(frame: Status, lines: Iterable[Line], pools: Iterable[Pool] = ()) -> Status:
    """Return the status: ``frame`` with the lines, what is wrong first; ``pools`` are those that could be read."""
    found = tuple(lines)
    services = sorted((one for one in found if isinstance(one, ServiceLine)), key=lambda one: (*_rank(one), one.key))
    nodes = sorted((one for one in found if isinstance(one, NodeLine)), key=lambda one: (*_rank(one), one.name))
    left = sorted((one for one in found if isinstance(one, LeftOver)), key=lambda one: one.name)
    used = Counter(one.pool for one in {one for one in found if isinstance(one, Booked)})
    read = {one.name: one for one in pools}
    return msgspec.structs.replace(
        frame,
        services=tuple(services),
        nodes=tuple(nodes),
        left_over=tuple(left),
        pools=tuple(_pool(name, used[name], read.get(name)) for name in sorted({*used, *read})),
    )


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
    told = (one.event for one in plan.steps if isinstance(one, EmitEvent))
    warnings = tuple(notice(one) for one in dict.fromkeys(told) if _warns(one))
    shares = request.primary if lb is None else None
    wished = "vm" if request.wants_vm else "cluster"
    kind = lb.spec.workload_type if lb is not None else wished
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
        pool="" if shares else inert(_pool_of(situation)),
        network=inert(request.network),
        shares=inert(shares or ""),
        load_balancer="" if shares else (lb.metadata.name if lb is not None else name_for(service, situation.cluster)),
        announced_by=BY_HARVESTER if by_harvester else inert(Announcement.of(service).node or ""),
        created=meta.creation_timestamp or "",
    )


def _pool_of(situation: Situation) -> str:
    lb = situation.match.lb
    booked = lb.allocated_pool or lb.spec.ip_pool if lb is not None else ""
    return booked or situation.request.ip_pool or ""


class _Said(Struct, frozen=True):
    """What a Service's condition says, or would if it had one."""

    state: State
    reason: str = ""
    message: str = ""
    since: str = ""


def _said(plan: ServicePlan, situation: Situation) -> _Said:
    """Return what the condition says after the plan; what it says nothing of is read from what the plan waits for."""
    service, outcome = situation.service, plan.outcome
    condition, before = condition_after(plan, situation), service.condition(LOAD_BALANCER_READY)
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
        case Done() | Retry():
            return _Said(State.PENDING, message=_waits_for(WaitReason.QUEUED))


def _waits_for(reason: WaitReason) -> str:
    """Return what a Service waits for of which nothing was told yet; who should look at it may not be there."""
    hint = "; if that stays, look at its Events, and whether the program runs and leads"
    return f"waits for {reason.meaning}{hint if reason is WaitReason.QUEUED else ''}"


def _node_line(view: NodeView) -> NodeLine:
    """Return what there is to see of a Node."""
    node, match, plan = view.node, view.match, plan_node(view)
    addresses = tuple(one.address for one in node.status.addresses if one.type == "InternalIP")
    told = [one for one in plan.notes if _warns(one)]
    if match.vm is None and match.problem is not None and not match.stranger and match.problem not in told:
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
    if match.stranger:
        return State.OTHER, notice(problem) if problem else Notice(reason="", message="")
    if plan.left_alone and (view.node.metadata.deleting or uninitialized_taints(view.node)):
        state = State.LEAVING if view.node.metadata.deleting else State.PENDING
        return state, Notice(reason="", message=inert(plan.left_alone))
    if plan.waiting is not None:
        return State.PENDING, notice(plan.waiting)
    if uninitialized_taints(view.node):
        return State.PENDING, Notice(reason="", message="is about to be initialised")
    return State.READY, Notice(reason="", message="")


def _left_over_lines(view: ServiceView, policy: OrphanPolicy) -> Iterator[LeftOver | Booked]:
    """Yield the load balancers of this cluster that have no Service."""
    inventory, store = view.inventory, view.store
    current = store.services.problem is None and store.load_balancers.problem is None
    suspicion = Suspicion(age=math.inf, caches_current=current, services=inventory.services)
    shown = OrphanPolicy.REPORT if policy is OrphanPolicy.OFF else policy
    for one in inventory.load_balancers:
        plan = plan_orphan(one, service_of(one, store.services), view.cluster, suspicion, shown)
        if not plan.because:
            continue
        yield from _booked((one,))
        yield LeftOver(
            name=one.metadata.name,
            service=inert(made_for(one)),
            address=inert(one.address or one.allocated_ip),
            pool=inert(one.allocated_pool),
            message=inert(plan.because),
        )


def _booked(load_balancers: Iterable[LoadBalancer]) -> Iterator[Booked]:
    for one in load_balancers:
        if one.allocated_pool and one.allocated_ip:
            yield Booked(one.metadata.name, inert(one.allocated_pool))


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


def _pool(name: str, addresses: int, read: Pool | None) -> Pool:
    return Pool(name=name, addresses=addresses) if read is None else msgspec.structs.replace(read, addresses=addresses)


def pools_of(items: Iterable[IPPool]) -> tuple[Pool, ...]:
    """Return IP pools as far as they say themselves how they are."""
    return tuple(
        Pool(name=inert(one.metadata.name), addresses=0, available=one.status.available, total=one.status.total)
        for one in items
    )


def _rank(line: ServiceLine | NodeLine) -> tuple[bool, int]:
    return not line.wrong, ORDER.index(line.state)


def _warns(event: EventMessage) -> bool:
    return event.type == "Warning"


def notice(event: EventMessage) -> Notice:
    """Return what an Event says."""
    return Notice(reason=str(event.reason), message=inert(event.message))
