"""The status of both clusters as one document: problems first, then Services, Nodes and orphaned load balancers. Pure.

``apiVersion`` changes when a field is removed or changes its meaning. Times are RFC 3339. No field contains a
credential, and what users wrote is on one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from harvester_ccm.commands.service_view import ServiceView, condition_after
from harvester_ccm.config import NODE_CONTROLLER, SERVICE_CONTROLLER, Settings
from harvester_ccm.errors import CCMError, Unauthorized, credential_hint
from harvester_ccm.model.core import Lease
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import NodeReason, Reason
from harvester_ccm.plan.node.decision import NodePlan, NodeView, plan_node
from harvester_ccm.plan.node.decision import observe as observe_node
from harvester_ccm.plan.node.patch import uninitialized_taints
from harvester_ccm.plan.service.decision import plan_service
from harvester_ccm.plan.service.kube_vip import Announcement
from harvester_ccm.plan.service.messages import harvester_unavailable
from harvester_ccm.plan.service.orphans import ORPHANED, deletion_obstacle, is_orphan, service_of
from harvester_ccm.plan.service.ownership import made_for
from harvester_ccm.plan.service.scope import may_be_ours
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.redaction import inert

API_VERSION: Final = "harvester-ccm/v1"
SOON: Final = timedelta(days=14)
"""A token that expires within this time is a problem."""
STALE_LEASE: Final = 90.0
"""Seconds without a renewal after which the Lease has no holder, even if two clocks differ by a minute."""


class State(StrEnum):
    """State of an object."""

    WARNING = "warning"
    """Ready, and a Warning holds."""
    PENDING = "pending"
    """Not ready; ``reason`` and ``message`` say why."""
    DELETING = "deleting"
    READY = "ready"
    OTHER = "other"
    """Not managed by this controller; ``message`` says why."""


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all parts of a status."""


class Problem(Part, frozen=True, kw_only=True):
    """What is wrong with an object, a server or the controller."""

    object: str
    """Kind and name."""
    state: str = ""
    since: str = ""
    reason: str = ""
    """Of the condition or the Event."""
    message: str = ""


class ServiceLine(Part, frozen=True, kw_only=True):
    """A Service of type LoadBalancer, or one that is being deleted."""

    namespace: str
    name: str
    state: State
    reason: str = ""
    """Of the condition ``LoadBalancerReady``."""
    message: str = ""
    since: str = ""
    """Time since which the condition has its status."""
    addresses: tuple[str, ...] = ()
    workload_type: str = ""
    """``cluster`` or ``vm``; empty with the address of another Service."""
    ipam: str = ""
    pool: str = ""
    """Pool of the address, or the requested one."""
    network: str = ""
    primary: str = ""
    """The Service whose address it shares."""
    load_balancer: str = ""
    """Name in Harvester."""
    announced_by: str = ""
    """The node on which kube-vip announces the address, or ``Harvester``."""
    created: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class NodeLine(Part, frozen=True, kw_only=True):
    """A Node and its VM."""

    name: str
    state: State
    reason: str = ""
    message: str = ""
    vm: str = ""
    """``namespace/name`` in Harvester; empty if none is found."""
    addresses: tuple[str, ...] = ()
    """Its InternalIPs."""
    ready: str = ""
    """Status of the condition Ready."""


class Orphan(Part, frozen=True, kw_only=True):
    """A load balancer in Harvester without a Service."""

    name: str
    service: str
    """``namespace/name`` of the Service that it was created for, or its UID."""
    address: str = ""
    message: str = ""


class Server(Part, frozen=True, kw_only=True):
    """One of the two API servers."""

    cluster: str
    """``guest`` or ``harvester``."""
    url: str
    problem: str = ""
    """Why it cannot be read."""
    token_expires: str = ""
    """Empty for a token without an end, or one that is renewed."""
    account: str = ""
    """``namespace/name`` of the ServiceAccount of such a token."""


class Leader(Part, frozen=True, kw_only=True):
    """The holder of the Lease."""

    identity: str = ""
    """Empty if there is none."""
    since: str = ""


class Status(Part, frozen=True, kw_only=True):
    """The whole status."""

    api_version: str = API_VERSION
    kind: str = "Status"
    observed: str
    """Time of the lists."""
    cluster: str
    """Value of --cluster-name."""
    namespace: str
    """In Harvester."""
    leader: Leader | None = None
    """None if it is unknown, or leader election is disabled."""
    servers: tuple[Server, ...] = ()
    problems: tuple[Problem, ...] = ()
    services: tuple[ServiceLine, ...] = ()
    nodes: tuple[NodeLine, ...] = ()
    orphans: tuple[Orphan, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be read, and what the flags switch off."""


def report(frame: Status, view: ServiceView, settings: Settings, *, namespace: str = "") -> Status:
    """Return ``frame`` with its objects and their problems; only Services of ``namespace`` if one is given."""
    inventory, problems = view.inventory, list(frame.problems)
    services: list[ServiceLine] = []
    nodes: list[NodeLine] = []
    orphans: list[Orphan] = []
    for one in inventory.services if view.serving else ():
        listed = one.spec.type == "LoadBalancer" or may_be_ours(one, view.cluster)
        if listed and namespace in ("", one.metadata.namespace):
            services += _service(view.observe(one), problems)
    if view.serving and not namespace:
        orphans = sorted(_orphans(view), key=lambda one: one.name)
    if NODE_CONTROLLER in settings.controllers and not namespace:
        store = inventory.node_store(settings)
        for node in inventory.nodes:
            seen = observe_node(store, node, virtual_ips=store.virtual_ips, settings=settings.nodes)
            nodes.append(_node(seen, problems))
    for orphan in orphans:
        message = f"Service {orphan.service} does not exist. {orphan.message}"
        problems.append(Problem(object=f"LoadBalancer {orphan.name}", state="orphaned", message=message))
    states = list(State)
    return replace(
        frame,
        problems=tuple(_without_repetition(problems)),
        services=tuple(sorted(services, key=lambda one: (states.index(one.state), one.key))),
        nodes=tuple(sorted(nodes, key=lambda one: (states.index(one.state), one.name))),
        orphans=tuple(orphans),
        notes=tuple(map(inert, (*settings.warnings, *_switched_off(settings), *inventory.notes))),
    )


def _switched_off(settings: Settings) -> Iterator[str]:
    for kind, controller in (("Services", SERVICE_CONTROLLER), ("Nodes", NODE_CONTROLLER)):
        if controller not in settings.controllers:
            yield f"{kind} are not managed: {controller} is switched off by --controllers"


def _without_repetition(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Yield the problems; that Harvester cannot be read is explained only once."""
    away = ""
    for one in problems:
        if one.object == "Harvester" and one.reason == Reason.HARVESTER_UNAVAILABLE:
            away = one.message
        elif away and one.reason == Reason.HARVESTER_UNAVAILABLE:
            rest = one.message.removeprefix(away)
            one = replace(one, message=f"see Harvester{rest}" if rest != one.message else "see Harvester")  # noqa: PLW2901
        yield one


def _service(snapshot: ServiceSnapshot, problems: list[Problem]) -> Iterator[ServiceLine]:
    """Yield the line of a Service, and add what is wrong with it to ``problems``; none for one of another controller.

    A ClusterIP Service, for example, is listed only while this controller removes its load balancer.
    """
    service, scope = snapshot.service, snapshot.scope
    meta, created = service.metadata, service.metadata.creation_timestamp or ""
    line = ServiceLine(
        namespace=meta.namespace, name=meta.name, state=State.OTHER, addresses=service.addresses, created=created
    )
    if not scope.ours:
        if service.spec.type == "LoadBalancer" and not meta.deleting:
            yield replace(line, message=inert(scope.because))
        return
    plan = plan_service(snapshot)
    condition = condition_after(plan, snapshot)
    state = State.READY if condition.status == "True" else State.PENDING
    warnings = [one for one in plan.events if one.type == "Warning"]
    state = State.WARNING if warnings and state is State.READY else state
    state = State.DELETING if scope.leaving else state
    since = condition.last_transition_time or ""
    row = Problem(object=f"Service {line.key}", state=state, since=since or created)
    # The condition has the message of the Event, and a more precise reason.
    others = [one for one in warnings if inert(one.message) != condition.message]
    if state is State.PENDING or (state is State.DELETING and len(others) < len(warnings)):
        problems.append(replace(row, reason=condition.reason, message=inert(condition.message)))
    problems += (replace(row, reason=str(one.reason), message=inert(one.message)) for one in others)
    yield replace(
        _with_load_balancer(line, snapshot),
        state=state,
        reason=condition.reason,
        message=inert(condition.message),
        since=since,
    )


def _with_load_balancer(line: ServiceLine, snapshot: ServiceSnapshot) -> ServiceLine:
    """Return the line with the load balancer of the Service, or with the requested one."""
    service, request, lb = snapshot.service, snapshot.request, snapshot.match.lb
    network, node = inert(request.network), inert(Announcement.of(service).node or "")
    if lb is None and request.primary:
        return replace(line, network=network, primary=inert(request.primary), announced_by=node)
    if lb is None:
        return replace(
            line,
            network=network,
            workload_type="vm" if request.wants_vm else "cluster",
            ipam=request.ipam or "pool",
            pool=inert(request.ip_pool),
            load_balancer=snapshot.match.expected_name,
            announced_by=node,
        )
    return replace(
        line,
        network=network,
        workload_type=lb.spec.workload_type,
        ipam=lb.spec.ipam,
        pool=inert(lb.allocated_pool or lb.spec.ip_pool),
        load_balancer=lb.metadata.name,
        announced_by="Harvester" if lb.spec.workload_type == "vm" and lb.address else node,
    )


def _node(view: NodeView, problems: list[Problem]) -> NodeLine:
    """Return the line of a Node, and add what is wrong with it to ``problems``."""
    node, match, plan = view.node, view.match, plan_node(view)
    warnings = [one for one in plan.events if one.type == "Warning"]
    lost = match.problem
    if match.vm is None and lost is not None and lost.reason is not NodeReason.HARVESTER_UNAVAILABLE:
        # No Event reports it for a Node that works.
        warnings += [lost] if lost not in warnings else []
    state, cause, text = _node_state(view, plan)
    if state is State.READY and warnings:
        state = State.WARNING
    if state is not State.OTHER:
        row = Problem(object=f"Node {node.metadata.name}", state=state, since=node.metadata.creation_timestamp or "")
        if state is State.PENDING and cause not in warnings:
            problems.append(replace(row, reason=str(cause.reason) if cause else "", message=text))
        problems += (replace(row, reason=str(one.reason), message=inert(one.message)) for one in warnings)
    return NodeLine(
        name=node.metadata.name,
        state=state,
        reason=str(cause.reason) if cause else "",
        message=text,
        vm=match.vm.object.metadata.key if match.vm else "",
        addresses=tuple(one.address for one in node.status.addresses if one.type == "InternalIP"),
        ready=node.ready,
    )


def _node_state(view: NodeView, plan: NodePlan) -> tuple[State, EventMessage | None, str]:
    """Return the state of a Node, the Event that says why, and the message."""
    match, is_new = view.match, bool(uninitialized_taints(view.node))
    if match.unmanaged:
        return State.OTHER, match.problem, inert(match.problem.message) if match.problem else ""
    if view.node.metadata.deleting:
        return State.DELETING, None, inert(plan.skip_reason)
    if plan.waiting is not None:
        return State.PENDING, plan.waiting, inert(plan.waiting.message)
    if is_new:
        return State.PENDING, None, inert(plan.skip_reason) or "will be initialized"
    return State.READY, None, ""


def _orphans(view: ServiceView) -> Iterator[Orphan]:
    """Yield the load balancers of this cluster that have no Service."""
    store = view.store
    for one in view.inventory.load_balancers:
        if is_orphan(one, service_of(one, store.services), view.cluster):
            yield Orphan(
                name=one.metadata.name,
                service=inert(made_for(one)),
                address=inert(one.address or one.allocated_ip),
                message=inert(deletion_obstacle(one, store.services, store.load_balancers) or ORPHANED),
            )


def harvester_error(problems: Mapping[str, CCMError]) -> CCMError | None:
    """Return why a collection of Harvester cannot be read."""
    found = (problems.get(one.plural) for one in (LOAD_BALANCERS, VIRTUAL_MACHINES, INSTANCES))
    return next((one for one in found if one is not None), None)


def server_problems(harvester: CCMError | None, servers: Iterable[Server], now: datetime) -> Iterator[Problem]:
    """Yield what is wrong with the servers; ``harvester`` is why Harvester cannot be read."""
    if harvester is not None:
        message = inert(harvester_unavailable(harvester).message)
        yield Problem(object="Harvester", reason=str(Reason.HARVESTER_UNAVAILABLE), message=message)
    rejected = "harvester" if isinstance(harvester, Unauthorized) else ""
    for server in servers:
        if not server.token_expires or server.cluster == rejected:
            continue
        end, remedy = datetime.fromisoformat(server.token_expires), credential_hint(server.cluster, server.account)
        if end - now < SOON:
            verb, reason = ("expired", "TokenExpired") if end <= now else ("expires", "TokenExpires")
            message = f"The token for {server.cluster} {verb} on {server.token_expires[:10]}. {remedy}"
            yield Problem(object=server.cluster.capitalize(), reason=reason, message=message)


def lease_problems(lease: Lease | None, now: datetime) -> Iterator[Problem]:
    """Yield what the Lease says of a controller that does not run."""
    remedy = "Check the pods of the controller and their log"
    if lease is None:
        return
    if not lease.spec.holder_identity:
        yield Problem(object="Lease", reason="NoLeader", message=f"No replica of the controller leads. {remedy}")
        return
    try:
        age = (now - datetime.fromisoformat(lease.spec.renew_time or "")).total_seconds()
    except (ValueError, TypeError):
        return
    if age >= STALE_LEASE:
        message = f"The Lease was renewed {age:.0f} s ago, by the clock of this machine. {remedy}"
        yield Problem(object="Lease", reason="NoLeader", message=message)
