"""Lists both clusters and prints the leader, both API servers and everything that is wrong.

Problems have the reason and the message of the Event and of the condition LoadBalancerReady. The number of Services and
Nodes in each state is printed, too. Nothing is written.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from rich.console import RenderableType
from rich.text import Text

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.checks import CheckInputs, faults_in
from harvester_ccm.commands.clusters import (
    GUEST_FIX,
    TITLES,
    ClusterStore,
    Connection,
    TimedClient,
    guest_is_harvester,
    is_harvester,
    list_clusters,
    open_clusters,
    require_content,
)
from harvester_ccm.commands.events import NOT_LED, RecordedEvent, read_failed_writes, with_failed_write
from harvester_ccm.commands.leader import clock_difference, read_lease, reports_of_controllers
from harvester_ccm.commands.notes import PlannedNode, grouped, node_notes, service_notes
from harvester_ccm.commands.permissions import Account, account_of, missing_in_guest, missing_in_harvester
from harvester_ccm.commands.planning import plan_services
from harvester_ccm.commands.runner import (
    OUTPUT,
    CommandContext,
    CommandSpec,
    Document,
    describe,
    flag,
    switch,
    table,
)
from harvester_ccm.commands.states import (
    Line,
    ObjectStatus,
    Planned,
    State,
    StatusReason,
    node_status,
    seconds_between,
    warnings_in,
)
from harvester_ccm.config import Settings
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.kube.builtin import LeaseSpec
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import time_text
from harvester_ccm.kube.errors import KubeError, normalized_message
from harvester_ccm.model.event import abbreviate, quoted
from harvester_ccm.plan.service.messages import harvester_unavailable
from harvester_ccm.remedies import SLOW_REMEDIES

NAMESPACE: Final = flag("namespace", "Only the Services of this namespace; Nodes and servers stay.", shorthand="n")
ALL_NAMESPACES: Final = switch(
    "all-namespaces", "The Services of all namespaces, despite -n; this is the default.", shorthand="A"
)
SEPARATE_ROWS: Final = 3
"""Problems with one cause that have a row each; more share one, although their texts differ."""
SAME_CLUSTER: Final = "SameCluster"
"""Reason of a cloud-config that leads to the guest cluster."""
_UNITS: Final = ((365 * 86400, "y"), (86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


class Survey(Struct, frozen=True):
    """What is wrong in both clusters, and whether a replica leads: ``status`` and ``preflight`` are views of it."""

    store: ClusterStore
    settings: Settings
    """Those of the command line and of the leader."""
    account: Account
    lease: LeaseSpec | None
    services: list[Planned]
    nodes: list[PlannedNode]
    problems: list[Line]
    hints: list[Line]
    """What other programs wrote, or may be right: a problem only if the operator says so."""


async def survey(context: CommandContext, connection: Connection, namespace: str = "") -> Survey:
    """Read both clusters and return what is wrong, about Services only in a namespace (all for an empty one).

    Raises what ``require_content`` raises, and ConfigurationError if the kubeconfig leads to a Harvester.
    """
    guest = connection.guest
    harvester = connection.harvester
    account = account_of(guest, is_in_pod=context.is_in_pod)
    # Each returns its error: one that was raised would leave the others running with a client that is closed.
    (store, settings, name_problem), is_swapped, (lease, of_lease), about_lease = await asyncio.gather(
        list_clusters(context, guest, harvester),
        is_harvester(guest),
        read_lease(context.settings, guest, account),
        reports_of_controllers(context.settings, guest),
    )
    if is_swapped:
        raise ConfigurationError([f"{guest_is_harvester(guest)}. {GUEST_FIX}"])
    require_content(store, name_problem)
    planned = await plan_services(store, settings, guest, harvester)
    planned_nodes = [(node, *node_status(store, node, settings)) for node in store.nodes.all()]
    writes = [*(entry.plan.write for entry in planned), *(plan.write for _, plan, _ in planned_nodes)]
    failed: dict[str, StatusReason] = {}
    unsent = NOT_LED if of_lease else None
    if not of_lease and any(write is not None for write in writes):
        failed = await read_failed_writes(store, guest)
    planned = [
        replace(
            entry,
            status=with_failed_write(failed.get(entry.service.metadata.uid, unsent), entry.plan.write, entry.status),
        )
        for entry in planned
        if namespace in ("", entry.service.metadata.namespace)
    ]
    planned_nodes = [
        (node, plan, with_failed_write(failed.get(node.metadata.uid, unsent), plan.write, status))
        for node, plan, status in planned_nodes
    ]
    # The credential of the command is no problem of the cluster, unless it is that of the controller.
    clients = [guest, harvester] if account.is_own else [harvester]
    inputs = CheckInputs(store, settings, clients, planned_nodes)
    problems = [
        *of_lease,
        *_server_problems(store.harvester_problem, guest, harvester),
        *_services(planned),
        *_nodes(planned_nodes),
        *faults_in(inputs, namespace, hints=False),
    ]
    hints = [
        *clock_difference(lease, store.taken),
        *_reports(about_lease, store.taken, since=(lease and lease.acquire_time) or ""),
        *faults_in(inputs, namespace, hints=True),
    ]
    return Survey(store, settings, account, lease, planned, planned_nodes, problems, hints)


async def _status(context: CommandContext) -> int:
    namespace = "" if context.flags[ALL_NAMESPACES.name] else context.flags[NAMESPACE.name]
    async with open_clusters(context) as connection:
        found = await survey(context, connection, namespace)
        missing = await missing_in_guest(connection.guest, found.settings, found.account)
        if found.store.harvester_problem is None:
            missing += await missing_in_harvester(connection.harvester, found.settings)
    found = replace(found, problems=[*missing, *found.problems])
    document = _document(found, connection, namespace)
    context.output.answer(document, status_text)
    return EXIT_PROBLEMS if document["problems"] else EXIT_OK


def _document(found: Survey, connection: Connection, namespace: str) -> Document:
    store = found.store
    settings = found.settings
    lease = found.lease
    error = store.harvester_problem
    return {
        "cluster": settings.harvester.cluster_name,
        "namespace": store.cluster.namespace,
        "observed": time_text(store.taken),
        "leader": {"identity": lease.holder_identity or "", "since": lease.acquire_time} if lease else None,
        "guest": _server(connection.guest),
        "harvester": {**_server(connection.harvester), "problem": str(error or "")},
        "services": _counts(_services(found.services)),
        "nodes": _counts(_nodes(found.nodes)),
        "problems": list(problem_rows(found.problems, is_away=error is not None)),
        "notes": [
            *_namespace_notes(store, namespace),
            *_slow_servers(connection),
            *settings.warnings,
            *store.notes,
            *service_notes(found.services),
            *grouped("", ((name, hint.reasons[0].message) for name, hint in found.hints)),
            *node_notes(found.nodes),
        ],
    }


def _nodes(planned: Iterable[PlannedNode]) -> Iterator[Line]:
    for node, _, status in planned:
        yield f"Node {node.metadata.name}", status


def _namespace_notes(store: ClusterStore, namespace: str) -> Iterator[str]:
    """Yield a note if no Service is in the namespace, which may be misspelt."""
    known = sorted({service.metadata.namespace for service in store.services.all()})
    if namespace and namespace not in known:
        yield f"No Service is in namespace {quoted(namespace)}; there are Services in: {abbreviate(known) or 'none'}"


def _reports(events: Iterable[RecordedEvent], now: datetime, since: str) -> Iterator[Line]:
    """Yield what controllers report about themselves, with the age: one that was killed no longer ends it.

    ``since``: when the leader began. A process for which an earlier report still holds repeats it.
    """
    for event in events:
        if (event.last_timestamp or "") < since:
            continue
        # The clock of the controller can be ahead of this one.
        elapsed = age(event.last_timestamp, now) or "0s"
        name = f"{elapsed} ago the controller reported {event.reason}"
        yield name, ObjectStatus(State.NONE, reasons=(StatusReason(event.reason, event.message),))


def _server(client: TimedClient) -> Document:
    return {"url": client.credentials.server, "seconds": round(client.seconds, 3), "slow": client.is_slow}


def _slow_servers(connection: Connection) -> Iterator[str]:
    """Yield a note for each server that responds slowly: everything of this controller takes as long then."""
    for client in (connection.guest, connection.harvester):
        if client.is_slow:
            title = TITLES[client.cluster]
            yield (
                f"{title[0].upper()}{title[1:]} responds slowly: a request took {client.seconds:.1f} s. "
                f"{SLOW_REMEDIES[client.cluster]}"
            )


def _server_problems(error: KubeError | None, guest: ApiClient, harvester: ApiClient) -> Iterator[Line]:
    if error is not None and guest.credentials.server == harvester.credentials.server:
        # A guest cluster is never its Harvester, so nothing else is wrong with this server.
        text = (
            f"The cloud-config {harvester.credentials.origin} leads to the guest cluster, not to Harvester. Set "
            "--cloud-config to a kubeconfig for Harvester (generate_addon.sh)"
        )
        yield "Harvester", ObjectStatus(State.NONE, reasons=(StatusReason(SAME_CLUSTER, text),))
        return
    if error is not None:
        yield "Harvester", ObjectStatus(State.NONE, reasons=tuple(warnings_in([harvester_unavailable(error)])))


def _services(planned: Iterable[Planned]) -> Iterator[Line]:
    """Yield the Services of type LoadBalancer, and those that give up a load balancer."""
    for entry in planned:
        if entry.service.spec.type == "LoadBalancer" or entry.status.state is not State.UNMANAGED:
            yield f"Service {entry.service.metadata.key}", entry.status


def _counts(lines: Iterable[Line]) -> dict[str, int]:
    found = Counter(verdict.state for _, verdict in lines)
    return {str(state): found[state] for state in State if found[state]}


def problem_rows(lines: Iterable[Line], *, is_away: bool) -> Iterator[Document]:
    """Yield what is wrong, the worst states first. That Harvester cannot be read is explained only once."""
    states = list(State)
    for name, verdict in sorted(lines, key=lambda line: (states.index(line[1].state), line[0])):
        for reason in verdict.reasons if verdict.is_problem else ():
            is_known = is_away and verdict.state is not State.NONE and reason.reason == "HarvesterUnavailable"
            message = reason.message
            command = reason.command
            if is_known:
                # A command that gives something up makes no sense without the text that says when.
                message = _waits_for_harvester(verdict.state)
                command = ""
            row = {"object": name, "state": str(verdict.state), "since": verdict.since}
            yield {**row, "reason": reason.reason, "message": message, "command": command}


def _waits_for_harvester(state: State) -> str:
    """Return the text for an object that waits until the problem of Harvester, which is listed first, has ended."""
    subject = "The deletion waits" if state is State.DELETING else "Waits"
    return f"{subject} for Harvester, which cannot be used: see the problem of Harvester above"


def status_text(document: Document) -> Iterator[RenderableType]:
    """Yield the lines of a status: the clusters, the problems, and what could not be read."""
    now = datetime.fromisoformat(document["observed"])
    problems = document["problems"]
    leader = document["leader"] or {"identity": "", "since": ""}
    since = age(leader["since"], now) if leader["identity"] else ""
    head = {
        "cluster": f"{document['cluster']} (Harvester namespace {document['namespace']})",
        "leader": f"{leader['identity'] or 'none'}{f', for {since}' if since else ''}" if document["leader"] else "",
        "guest": f"{document['guest']['url']}  {_health(document['guest'])}",
        "harvester": f"{document['harvester']['url']}  {_health(document['harvester'])}",
        "services": ", ".join(f"{number} {state}" for state, number in document["services"].items()),
        "nodes": ", ".join(f"{number} {state}" for state, number in document["nodes"].items()),
    }
    yield from describe(head)
    if problems:
        yield Text(f"\nPROBLEMS ({len(problems)})", "bold red")
        yield from _problems_text(problems, now)
    yield ""
    yield from describe({"notes": document["notes"]})
    yield Text(_result(len(problems), has_notes=bool(document["notes"])))


def _health(server: Document) -> str:
    """Return the state of a server, with its response time if that is unusual."""
    if server.get("problem"):
        return "UNREADABLE"
    if server["slow"]:
        return f"OK ({server['seconds']:.1f} s, slow)"
    return "OK"


def _result(problems: int, *, has_notes: bool) -> str:
    """Return the last line: a note can say that something is not known."""
    if problems:
        return f"{problems} problem{'s' * (problems > 1)}."
    return "No problem found; see the notes." if has_notes else "All is well."


def _problems_text(problems: Iterable[Document], now: datetime) -> Iterator[RenderableType]:
    """Yield a table with the message below each row; objects with the same problem share a row."""
    rows_of_problems = alike(list(problems))
    rows = [
        {
            "object": same[0]["object"] + (f" and {len(same) - 1} more" if len(same) > 1 else ""),
            "state": same[0]["state"],
            "for": age(min(problem["since"] for problem in same), now),
            "reason": same[0]["reason"],
            "command": same[0]["command"],
        }
        for same in rows_of_problems
    ]
    yield from table(rows, indent=2, below=[f"{same[0]['message']}{_others(same)}" for same in rows_of_problems])


def alike(problems: Sequence[Document]) -> list[list[Document]]:
    """Return the problems that share a row: those with one text, and many whose texts differ in names and numbers."""
    causes = [_cause_of(problem) for problem in problems]
    numbers = Counter(causes)
    rows: dict[tuple[str, ...], list[Document]] = {}
    for problem, cause in zip(problems, causes, strict=True):
        text = () if numbers[cause] > SEPARATE_ROWS else (problem["message"], problem["command"])
        rows.setdefault((*cause, *text), []).append(problem)
    return list(rows.values())


def _cause_of(problem: Document) -> tuple[str, ...]:
    kind, _, name = problem["object"].partition(" ")
    return kind, problem["state"], problem["reason"], normalized_message(problem["message"].replace(name, ""))


def _others(same: Sequence[Document]) -> str:
    """Return the other objects of a row whose texts differ from the first one, in words that follow it."""
    if all(problem["message"] == same[0]["message"] for problem in same):
        return ""
    names = abbreviate([problem["object"].partition(" ")[2] for problem in same[1:]])
    text = f". Likewise: {names}; explain prints the text of each"
    return f"{text}. Of {same[0]['object']}" if same[0]["command"] else text


def age(since: str | None, now: datetime) -> str:
    """Return the time since a time of the API as kubectl prints it; empty if it is unknown or in the future.

    >>> age("2026-01-01T00:00:00Z", datetime.fromisoformat("2026-01-03T01:00:00Z"))
    '2d'
    """
    seconds = int(seconds_between(since, now) or -1)
    units = (f"{seconds // size}{unit}" for size, unit in _UNITS if seconds >= 2 * size)
    return next(units, f"{seconds}s") if seconds >= 0 else ""


SPEC: Final = CommandSpec(
    meaning=__doc__,
    usage="status [flags]",
    own=(OUTPUT, NAMESPACE, ALL_NAMESPACES),
    action=_status,
)
