"""Lists both clusters and prints the leader, both API servers and everything that is wrong.

Problems have the reason and the message of the Event and of the condition LoadBalancerReady. The number of Services and
Nodes in each state is printed, too. Nothing is written.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Final, NoReturn

from msgspec import Struct
from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.clusters import ClusterStore, open_clusters, read_clusters, request_or_error
from harvester_ccm.commands.node_addresses import NODE_ADDRESS_REMEDY, shown_node_addresses
from harvester_ccm.commands.runner import (
    OUTPUT,
    CommandContext,
    CommandSpec,
    Document,
    Form,
    describe,
    sanitize_document,
    switch,
    table,
)
from harvester_ccm.config import NODE_CONTROLLER, SERVICE_CONTROLLER, LeaderElectionSettings, Settings
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.kube.builtin import LEASES, Lease, LeaseSpec
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import time_text
from harvester_ccm.kube.errors import KubeError, NotFound
from harvester_ccm.model.core import Node, Service, ServiceCondition
from harvester_ccm.model.event import EventMessage, abbreviate
from harvester_ccm.names import BLOCKING_REASONS, NodeReason, Reason
from harvester_ccm.plan.node.decision import NodePlan, NodeSnapshot, observe, plan_node
from harvester_ccm.plan.node.lifecycle import observe_lifecycle, plan_lifecycle
from harvester_ccm.plan.node.patch import uninitialized_taints
from harvester_ccm.plan.service.desired import ChangeLoadBalancer, CreateLoadBalancer, ServicePlan
from harvester_ccm.plan.service.messages import harvester_unavailable
from harvester_ccm.plan.service.orphans import ORPHANED, deletion_obstacle, is_orphan, service_of
from harvester_ccm.plan.service.ownership import service_key
from harvester_ccm.plan.service.phase import Phase, phase_of
from harvester_ccm.plan.service.plan import plan_service
from harvester_ccm.plan.service.snapshot import ServiceSnapshot, ServiceState
from harvester_ccm.plan.service.snapshot import observe as observe_service
from harvester_ccm.plan.service.verdict import NotManaged, NotReady
from harvester_ccm.redaction import sanitize

WATCH: Final = switch("watch", "List again and show the result in place, until Ctrl-C.", shorthand="w")
WATCH_SECONDS: Final = 2.0
"""Time between two lists."""
_UNITS: Final = ((365 * 86400, "y"), (86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_NOT_RECONCILED: Final = "Nothing is reconciled. Check the pods of the controller and their log"
_WORKING: Final = frozenset({Reason.BACKENDS_UNHEALTHY, Reason.HARVESTER_UNAVAILABLE})
"""Reasons to wait of a Service with an address whose load balancer works. An outage is reported only once."""

_FAILED_WRITES: Final = frozenset({Reason.SYNC_FAILED, Reason.HARVESTER_UNAVAILABLE})
"""Reasons that the controller writes to the condition after a failed write."""


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


Planned = tuple[Service, ServicePlan, ObjectStatus]
"""A Service with its plan and its status."""
UNANNOUNCED: Final = frozenset({Reason.NO_ENDPOINTS, Reason.ANNOUNCEMENT_UNKNOWN})
"""Reasons of Normal Events about a Service that no node announces, as far as kube-vip notes it."""
Line = tuple[str, ObjectStatus]
"""Kind and name of an object, with its status."""


def service_status(
    store: ClusterStore, service: Service, settings: Settings
) -> tuple[ServiceSnapshot, ServicePlan, ObjectStatus]:
    """Return snapshot, plan and status of a Service, as the controller has them right after its start."""
    observed = observe_service(store, service, store.cluster)
    state = ServiceState(phase=phase_of(observed))
    state.note_publication(observed.kube_vip, 0.0)
    state.endpoints = store.endpoints.get(service.metadata.key, state.endpoints)
    snapshot = replace(
        observed,
        remembered=state,
        now=_waited(observed, store.taken),
        wall_time=time_text(store.taken),
    )
    skip_reason = snapshot.scope.reason
    if SERVICE_CONTROLLER not in settings.controllers:
        skip_reason = f"{SERVICE_CONTROLLER} is switched off by --controllers"
    if skip_reason:
        unmanaged = ObjectStatus(State.UNMANAGED, reasons=(StatusReason("Unmanaged", skip_reason),))
        return snapshot, ServicePlan(Phase.NOT_OURS, NotManaged(skip_reason)), unmanaged
    plan = plan_service(snapshot)
    return snapshot, plan, _status_of_service(snapshot, plan)


def _waited(snapshot: ServiceSnapshot, now: datetime) -> float:
    """Return the seconds since the Service was created or deleted, or its load balancer was."""
    meta, load_balancer = snapshot.service.metadata, snapshot.match.load_balancer
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
    service, reasons = snapshot.service, tuple(_reasons_of_service(snapshot, plan))
    if snapshot.is_leaving:
        return ObjectStatus(State.DELETING, service.metadata.deletion_timestamp or "", reasons)
    condition = service.ready_condition
    since = ""
    if condition is not None and condition.status == "False":
        since = condition.last_transition_time or ""
    if service.addresses:
        return ObjectStatus(State.DEGRADED if reasons else State.READY, since, reasons)
    state = State.BLOCKED if plan.waiting_reason in BLOCKING_REASONS else State.PENDING
    return ObjectStatus(state, since or service.metadata.creation_timestamp or "", reasons)


def _reasons_of_service(snapshot: ServiceSnapshot, plan: ServicePlan) -> list[StatusReason]:
    """Return why the Service is not ready, and its Warnings."""
    verdict, warnings = plan.verdict, warnings_in(plan.events)
    condition = _failed_condition(snapshot, plan)
    if isinstance(verdict, NotReady) and verdict.changes_condition:
        first = _reason_of(verdict)
    elif condition is not None:
        first = StatusReason(condition.reason, condition.message)
    elif warnings or not isinstance(verdict, NotReady) or _is_expected(snapshot, verdict):
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


def _is_expected(snapshot: ServiceSnapshot, verdict: NotReady) -> bool:
    """Return whether a wait is no problem: a deletion goes on, or the load balancer works during an outage."""
    if snapshot.is_leaving:
        return True
    # An outage is reported only once.
    return bool(snapshot.service.addresses) and verdict.reason in _WORKING


def warnings_in(events: Iterable[EventMessage | None]) -> list[StatusReason]:
    """Return the Warnings among Events."""
    found = (event for event in dict.fromkeys(events) if event is not None and event.type == "Warning")
    return [StatusReason(str(event.reason), event.prose, event.command) for event in found]


def node_status(store: ClusterStore, node: Node, settings: Settings) -> tuple[NodeSnapshot, NodePlan, ObjectStatus]:
    """Return snapshot, plan and verdict of a Node, as if an address that is not reported had been missing for long."""
    without_grace = replace(settings.nodes, monitor_period=0.0)
    view = observe(store, node, virtual_ips=store.virtual_ips, settings=without_grace)
    if NODE_CONTROLLER in settings.controllers:
        plan = plan_node(view)
        return view, plan, _status_of_node(view, plan, _not_ready_reasons(store, node, settings))
    reason = f"{NODE_CONTROLLER} is switched off by --controllers"
    return view, NodePlan(), ObjectStatus(State.UNMANAGED, reasons=(StatusReason("Unmanaged", reason),))


def _not_ready_reasons(store: ClusterStore, node: Node, settings: Settings) -> list[StatusReason]:
    """Return why an initialized Node is not Ready: the state of its VM, or else what its kubelet reports."""
    condition = node.ready_condition
    if condition is None or condition.status == "True" or uninitialized_taints(node):
        return []
    lifecycle = plan_lifecycle(observe_lifecycle(store, node, settings.nodes))
    reasons = warnings_in([lifecycle.cause, lifecycle.event])
    if reasons:
        return reasons
    if condition.status == "False":
        return [StatusReason("NodeNotReady", sanitize(f"The kubelet reports: {condition.message or 'no cause'}"))]
    return [StatusReason("NodeNotReady", "The kubelet of this Node does not report")]


def _status_of_node(view: NodeSnapshot, plan: NodePlan, not_ready: Iterable[StatusReason]) -> ObjectStatus:
    meta, lost = view.node.metadata, view.match.problem
    is_new = bool(uninitialized_taints(view.node))
    if view.match.unmanaged:
        # Somebody has to remove the taint of a new Node, and this controller does not.
        return ObjectStatus(State.PENDING if is_new else State.UNMANAGED, reasons=tuple(warnings_in([lost])))
    if meta.deleting:
        return ObjectStatus(State.DELETING, meta.deletion_timestamp or "")
    # For a Node that works, no Event reports that its VM is missing.
    is_outage = lost is not None and lost.reason is NodeReason.HARVESTER_UNAVAILABLE
    events = (plan.waiting, *plan.events, *plan.events_after_write, None if is_outage else lost)
    reasons = list(dict.fromkeys([*not_ready, *warnings_in(events)]))
    if not is_new:
        return ObjectStatus(State.DEGRADED if reasons else State.READY, reasons=tuple(reasons))
    next_step = StatusReason(
        "Uninitialized", plan.skip_reason or "The Node is initialized next; if not, see its Events"
    )
    return ObjectStatus(State.PENDING, meta.creation_timestamp or "", tuple(reasons or [next_step]))


async def _status(context: CommandContext) -> int:
    if context.flags[WATCH.name]:
        await _watch(context)
    document = await _read(context)
    context.output.answer(document, status_text)
    return EXIT_PROBLEMS if document["problems"] else EXIT_OK


async def _watch(context: CommandContext) -> NoReturn:
    if not context.output.console.is_terminal or context.output.form is not Form.TEXT:
        raise ConfigurationError(["--watch needs a terminal; in a script, repeat status -o json"])
    with Live(console=context.output.console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        while True:
            try:
                text = Group(*status_text(sanitize_document(await _read(context))))
            except KubeError as error:
                text = Group(Text(sanitize_document(f"{datetime.now(UTC):%H:%M:%S} UTC: {error}")))
            live.update(text, refresh=True)
            await asyncio.sleep(WATCH_SECONDS)


async def _read(context: CommandContext) -> Document:
    settings = context.settings
    async with open_clusters(context) as (guest, harvester):
        store, (lease, of_lease) = await asyncio.gather(
            read_clusters(settings, guest, harvester), _read_lease(settings, guest)
        )
        planned = await _plan_services(store, settings, guest)
    error = store.harvester_problem
    services = list(_services(planned))
    nodes = [(f"Node {one.metadata.name}", node_status(store, one, settings)[2]) for one in store.nodes.all()]
    lines = [
        *of_lease,
        *_server_problems(error, guest, harvester),
        *services,
        *nodes,
        *_load_balancers(store, settings),
        *_node_addresses(store, settings),
    ]
    return {
        "cluster": settings.harvester.cluster_name,
        "namespace": store.cluster.namespace,
        "observed": time_text(store.taken),
        "leader": {"identity": lease.holder_identity or "", "since": lease.acquire_time} if lease else None,
        "guest": {"url": guest.credentials.server},
        "harvester": {"url": harvester.credentials.server, "problem": str(error or "")},
        "services": _counts(services),
        "nodes": _counts(nodes),
        "problems": list(_problems(lines, is_away=error is not None)),
        "notes": [*settings.warnings, *store.notes, *_announcement_notes(planned)],
    }


def _server_problems(error: KubeError | None, guest: ApiClient, harvester: ApiClient) -> Iterator[Line]:
    if error is not None:
        yield "Harvester", ObjectStatus(State.NONE, reasons=tuple(warnings_in([harvester_unavailable(error)])))
    if guest.credentials.server == harvester.credentials.server:
        text = f"{guest.credentials.origin} leads to Harvester. Set --kubeconfig to a kubeconfig of the guest cluster"
        yield "Guest", ObjectStatus(State.NONE, reasons=(StatusReason("SameCluster", text),))


async def _read_lease(settings: Settings, guest: ApiClient) -> tuple[LeaseSpec | None, list[Line]]:
    """Return the Lease, without the holder if it has expired, and its problem.

    None instead of a Lease: there is no leader election, or the Lease cannot be read.

    The clocks of the holder and of this process can differ. If the Lease looks expired, it is therefore read again
    after a time in which a leader renews it.
    """
    election = settings.leader_election
    if not election.enabled:
        return None, []
    read = partial(guest.get, LEASES, election.name, namespace=election.namespace)
    before = lease = await request_or_error(read())
    if _is_overdue(lease, election):
        await asyncio.sleep(2 * election.retry_period)
        lease = await request_or_error(read())
    name = f"Lease {election.namespace}/{election.name}"
    spec, since = LeaseSpec() if isinstance(lease, KubeError) else lease.spec, ""
    if isinstance(lease, KubeError) and not isinstance(lease, NotFound):
        return None, [(name, ObjectStatus(State.NONE, reasons=(StatusReason("LeaseNotReadable", str(lease)),)))]
    if not spec.holder_identity:
        reason = StatusReason("NoLeader", f"No replica of the controller leads. {_NOT_RECONCILED}")
    elif _is_overdue(lease, election) and lease == before:
        text = f"{spec.holder_identity} has not renewed the Lease and does not lead. {_NOT_RECONCILED}"
        spec, since, reason = LeaseSpec(), spec.renew_time or "", StatusReason("LeaseExpired", text)
    else:
        return spec, []
    return spec, [(name, ObjectStatus(State.NONE, since, (reason,)))]


def _is_overdue(lease: Lease | KubeError, election: LeaderElectionSettings) -> bool:
    """Return whether the holder should have renewed a Lease, by the clock of this machine."""
    if isinstance(lease, KubeError) or not lease.spec.holder_identity:
        return False
    age = seconds_between(lease.spec.renew_time, datetime.now(UTC))
    return age is not None and age > (lease.spec.lease_duration_seconds or election.lease_duration)


async def _plan_services(store: ClusterStore, settings: Settings, guest: ApiClient) -> list[Planned]:
    """Return all Services with their plans, after the endpoints were read of those that nobody seems to announce."""
    planned = [_planned(store, service, settings) for service in store.services.all()]
    unexplained = [service for service, plan, _ in planned if plan.reads_endpoints]
    if not unexplained:
        return planned
    await store.read_endpoints(guest, unexplained)
    again = {service.metadata.key: _planned(store, service, settings) for service in unexplained}
    return [again.get(entry[0].metadata.key, entry) for entry in planned]


def _planned(store: ClusterStore, service: Service, settings: Settings) -> Planned:
    _, plan, status = service_status(store, service, settings)
    return service, plan, status


def _services(planned: Iterable[Planned]) -> Iterator[Line]:
    """Yield the Services of type LoadBalancer, and those that give up a load balancer."""
    for service, _, status in planned:
        if service.spec.type == "LoadBalancer" or status.state is not State.UNMANAGED:
            yield f"Service {service.metadata.key}", status


def _announcement_notes(planned: Iterable[Planned]) -> Iterator[str]:
    """Yield why Services are not announced where nothing is wrong, or nothing is known: one note for each text."""
    keys_by_text: dict[str, list[str]] = {}
    for service, plan, _ in planned:
        for event in plan.events:
            if event.reason in UNANNOUNCED:
                keys_by_text.setdefault(event.prose, []).append(service.metadata.key)
    for text, keys in keys_by_text.items():
        yield f"Service {abbreviate(sorted(keys))}: {text}"


def _load_balancers(store: ClusterStore, settings: Settings) -> Iterator[Line]:
    """Yield load balancers of this cluster without a Service."""
    if SERVICE_CONTROLLER not in settings.controllers:
        return
    for one in store.load_balancers.all():
        if is_orphan(one, service_of(one, store.services), store.cluster):
            why = deletion_obstacle(one, store.services, store.load_balancers) or ORPHANED
            reason = StatusReason("Orphaned", f"Service {service_key(one)} does not exist. {why[0].upper()}{why[1:]}")
            yield f"LoadBalancer {one.metadata.name}", ObjectStatus(State.ORPHANED, reasons=(reason,))


def _node_addresses(store: ClusterStore, settings: Settings) -> Iterator[Line]:
    """Yield the managed Services that show the address of a Node."""
    if SERVICE_CONTROLLER not in settings.controllers:
        return
    for found in shown_node_addresses(store):
        reason = StatusReason("NodeAddressPublished", f"{found.text}. {NODE_ADDRESS_REMEDY}")
        yield f"Service {found.service.metadata.key}", ObjectStatus(State.DEGRADED, reasons=(reason,))


def _counts(lines: Iterable[Line]) -> dict[str, int]:
    found = Counter(verdict.state for _, verdict in lines)
    return {str(state): found[state] for state in State if found[state]}


def _problems(lines: Iterable[Line], *, is_away: bool) -> Iterator[Document]:
    """Yield what is wrong, the worst states first. That Harvester cannot be read is explained only once."""
    states = list(State)
    for name, verdict in sorted(lines, key=lambda line: (states.index(line[1].state), line[0])):
        for one in verdict.reasons if verdict.is_problem else ():
            is_known = is_away and verdict.state is not State.NONE and one.reason == "HarvesterUnavailable"
            message = "See the problem of Harvester" if is_known else one.message
            row = {"object": name, "state": str(verdict.state), "since": verdict.since}
            yield {**row, "reason": one.reason, "message": message, "command": one.command}


def status_text(document: Document) -> Iterator[RenderableType]:
    """Yield the lines of a status: the clusters, the problems, and what could not be read."""
    now, problems = datetime.fromisoformat(document["observed"]), document["problems"]
    leader = document["leader"] or {"identity": "", "since": ""}
    since = age(leader["since"], now)
    head = {
        "cluster": f"{document['cluster']} (Harvester namespace {document['namespace']})",
        "leader": f"{leader['identity'] or 'none'}{f', for {since}' if since else ''}" if document["leader"] else "",
        "guest": f"{document['guest']['url']}  OK",
        "harvester": f"{document['harvester']['url']}  {'UNREADABLE' if document['harvester']['problem'] else 'OK'}",
        **{one: ", ".join(f"{n} {state}" for state, n in document[one].items()) for one in ("services", "nodes")},
    }
    yield from describe(head)
    if problems:
        yield Text(f"\nPROBLEMS ({len(problems)})", "bold red")
        yield from _problems_text(problems, now)
    yield ""
    yield from describe({"notes": document["notes"]})
    yield Text(_result(len(problems), has_notes=bool(document["notes"])))


def _result(problems: int, *, has_notes: bool) -> str:
    """Return the last line: a note can say that something is not known."""
    if problems:
        return f"{problems} problem{'s' * (problems > 1)}."
    return "No problem found; see the notes." if has_notes else "All is well."


def _problems_text(problems: Iterable[Document], now: datetime) -> Iterator[RenderableType]:
    """Yield a table with the message below each row; objects with the same problem share a row."""
    alike: dict[tuple[str, ...], list[Document]] = {}
    for one in problems:
        key = (one["object"].partition(" ")[0], one["state"], one["reason"], one["message"], one["command"])
        alike.setdefault(key, []).append(one)
    rows = [
        {
            "object": same[0]["object"] + (f" and {len(same) - 1} more" if len(same) > 1 else ""),
            "state": same[0]["state"],
            "for": age(min(one["since"] for one in same), now),
            "reason": same[0]["reason"],
            "command": same[0]["command"],
        }
        for same in alike.values()
    ]
    yield from table(rows, indent=2, below=[same[0]["message"] for same in alike.values()])


def age(since: str | None, now: datetime) -> str:
    """Return the time since a time of the API as kubectl prints it; empty if it is unknown or in the future.

    >>> age("2026-01-01T00:00:00Z", datetime(2026, 1, 3, 1, tzinfo=UTC))
    '2d'
    """
    seconds = int(seconds_between(since, now) or -1)
    units = (f"{seconds // size}{unit}" for size, unit in _UNITS if seconds >= 2 * size)
    return next(units, f"{seconds}s") if seconds >= 0 else ""


SPEC: Final = CommandSpec(
    meaning=__doc__,
    usages=("status [-o json|yaml] [--watch]",),
    own=(OUTPUT, WATCH),
    action=_status,
)
