"""A status for people: who leads, what is wrong, and tables that fit the terminal. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from msgspec import Struct

from harvester_ccm.commands.render import GAP, hanging, table
from harvester_ccm.commands.status_document import (
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
from harvester_ccm.model.outcome import some_of
from harvester_ccm.names import Reason

READY_SHOWN: Final = 20
"""So many objects without any fault are shown of each kind; ``-o wide`` shows all."""
LONGEST_ROW: Final = 10_000
"""A row is never broken: what cannot be spared is wider than the terminal then."""
_Line = TypeVar("_Line", ServiceLine, NodeLine)
_UNITS: Final = ((365 * 86400, "y"), (86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_WORDS: Final = {State.WARNING: "works, with a warning", State.PENDING: "pending", State.LEAVING: "being let go"}


class Column(Struct, frozen=True):
    """A column of a table."""

    title: str
    cell: Callable[[Any], str]
    """Returns what stands there of a line."""
    spared: int = 0
    """Where the terminal is too narrow, the column with the highest number is left out first; 0 never."""


def status_lines(status: Status, *, width: int, wide: bool = False) -> Iterator[str]:
    """Yield the lines of a status; ``wide``: with all columns and all objects, however long the lines are."""
    now = status.observed
    yield f"Cluster {status.cluster}, namespace {status.namespace} of Harvester"
    yield from (hanging(text, first=f"  {title:<10} ", width=width) for title, text in _head(status))
    yield ""
    yield from _wrong(status, width)
    yield from _table("Service", status.services, _service_columns(now), width=width, wide=wide)
    if status.nodes is not None:
        yield from _table("Node", status.nodes, _NODE_COLUMNS, width=width, wide=wide)
    if status.pools:
        yield hanging("; ".join(map(_pool, status.pools)), first="Pools: ", width=width)
        yield ""
    yield from (hanging(sentence, first="Note: ", width=width) for sentence in status.assumptions)
    found = _number(list(_faults(status)))
    yield f"{found} to see to: above, what is wrong comes first." if found else "All is well."


def _head(status: Status) -> Iterator[tuple[str, str]]:
    leader = status.leader
    if leader is not None:
        since = f", for {age(leader.since, status.observed)}" if leader.since else ""
        yield "leader", f"{leader.identity}{since}" if leader.identity else "none: nobody holds the Lease"
    for server in status.servers:
        yield server.cluster, _server(server, status.observed, told=bool(status.problems))


def _server(server: Server, now: str, *, told: bool) -> str:
    """Return how a server is; ``told``: whether what is wrong with Harvester stands below."""
    words = [server.url, f"NOT READABLE: {server.problem}" if server.problem else "reachable"]
    if _is_away(server) and told:
        words[1] = "NOT READABLE, see below"
    if server.token_expires:
        left = age(now, server.token_expires)
        words.append(f"token expires in {left} ({server.token_expires[:10]})" if left else "the token has EXPIRED")
    return ", ".join(words)


def _is_away(server: Server) -> bool:
    return server.cluster == "harvester" and bool(server.problem)


class _Fault(Struct, frozen=True):
    """Something that is wrong, and with how many objects."""

    title: str
    texts: Sequence[str] = ()
    count: int = 1


def _wrong(status: Status, width: int) -> Iterator[str]:
    faults = list(_faults(status))
    if not faults:
        return
    yield f"What is wrong ({_number(faults)}):"
    for fault in faults:
        yield hanging(fault.title, first="  ", width=width)
        yield from (hanging(text, first="      ", width=width) for text in fault.texts)
    yield ""


def _number(faults: Sequence[_Fault]) -> int:
    return sum(fault.count for fault in faults)


def _faults(status: Status) -> Iterator[_Fault]:
    """Yield what is wrong; Services of which the same is to be said are one fault, and so are Nodes."""
    yield from (_Fault(problem) for problem in status.problems)
    away = status.problems if any(map(_is_away, status.servers)) else ()
    for state, texts, services in _alike(status.services, away):
        title = _counted("Service", [one.key for one in services])
        yield _Fault(f"{title}: {_how_long(state, services, status.observed)}", texts, len(services))
    for state, texts, nodes in _alike(status.nodes or (), away):
        yield _Fault(f"{_counted('Node', [one.name for one in nodes])}: {_WORDS.get(state, state)}", texts, len(nodes))
    yield from (_Fault(_left_over(left), [left.message]) for left in status.left_over or ())


def _alike(lines: Sequence[_Line], away: Sequence[str]) -> Iterator[tuple[State, Sequence[str], list[_Line]]]:
    """Yield the lines that are wrong, those together of which the same is to be said; ``away`` as in ``_texts``."""
    found: dict[tuple[State, tuple[str, ...]], list[_Line]] = {}
    for line in lines:
        if is_wrong(line):
            found.setdefault((line.state, tuple(_texts(line, away))), []).append(line)
    yield from ((state, texts, together) for (state, texts), together in found.items())


def _counted(kind: str, names: Sequence[str]) -> str:
    """Return objects of one kind in words, the first ones by name."""
    if len(names) == 1:
        return f"{kind} {names[0]}"
    return f"{len(names)} {kind}s ({some_of(names)})"


def _how_long(state: State, services: Sequence[ServiceLine], now: str) -> str:
    """Return how Services are, and for how long the first of them has been pending."""
    began = min((one.since or one.created for one in services if one.since or one.created), default="")
    lasts = age(began, now) if state is State.PENDING else ""
    return f"{_WORDS.get(state, state)} for {lasts}" if lasts else _WORDS.get(state, state)


def _texts(line: ServiceLine | NodeLine, away: Sequence[str]) -> list[str]:
    """Return the sentences, each with its reason in front and none twice.

    ``away``: what is said of the whole while Harvester cannot be read; that is not repeated.
    """
    said = [Notice(reason=line.reason, message=line.message)] if line.state is not State.READY else []
    # The condition repeats the message of the Event that it is made of, under the name of what is waited for.
    told = {one.message for one in line.warnings}
    kept = [one for one in said if one.message and one.message not in told]
    if line.state is State.WARNING:
        kept = []
    texts = ((one.reason, _without_repetition(line, one, away)) for one in (*kept, *line.warnings))
    return [": ".join(filter(None, text)) for text in texts]


def _without_repetition(line: ServiceLine | NodeLine, said: Notice, away: Sequence[str]) -> str:
    """Return the message of what is said of a line without what is said of the whole."""
    if not away or said.reason != Reason.HARVESTER_UNAVAILABLE:
        return said.message
    repeated = next((one for one in away if said.message.startswith(one)), "")
    if not repeated and line.state is State.LEAVING:
        # How to let it go without Harvester.
        return said.message
    return f"see above{said.message.removeprefix(repeated) if repeated else ''}"


def _left_over(left: LeftOver) -> str:
    address = f" with {left.address}" if left.address else ""
    return f"Load balancer {left.name}{address}: there is no Service {left.service} for it"


def _pool(pool: Pool) -> str:
    free = f", {pool.available} of {pool.total} free" if pool.available is not None else ""
    return f"{pool.name} ({pool.addresses} of this cluster{free})"


def _service_columns(now: str) -> tuple[Column, ...]:
    return (
        Column("SERVICE", lambda one: one.key),
        Column("STATE", lambda one: one.state),
        Column("ADDRESS", lambda one: ",".join(one.addresses)),
        Column("FROM", _source, 3),
        Column("NETWORK", lambda one: one.network, 5),
        Column("KIND", lambda one: one.kind, 4),
        Column("ANNOUNCED BY", lambda one: one.announced_by, 2),
        Column("AGE", lambda one: age(one.created, now), 1),
        Column("LOAD BALANCER", lambda one: one.load_balancer, 6),
    )


_NODE_COLUMNS: Final[tuple[Column, ...]] = (
    Column("NODE", lambda one: one.name),
    Column("STATE", lambda one: one.state),
    Column("VM", lambda one: one.vm),
    Column("ADDRESS", lambda one: ",".join(one.addresses), 1),
    Column("READY", lambda one: one.ready, 2),
)


def _source(service: ServiceLine) -> str:
    if service.shares:
        return f"shares {service.shares}"
    return service.ipam if service.ipam == "dhcp" or not service.pool else f"pool {service.pool}"


def _table(
    kind: str, lines: Sequence[ServiceLine] | Sequence[NodeLine], columns: Sequence[Column], *, width: int, wide: bool
) -> Iterator[str]:
    states = Counter(one.state for one in lines)
    counts = ", ".join(f"{number} {state}" for state in State if (number := states[state]))
    yield f"{kind}s: {counts or 'none'}"
    wrong, well = [one for one in lines if is_wrong(one)], [one for one in lines if not is_wrong(one)]
    shown = [*wrong, *(well if wide or len(well) <= READY_SHOWN + 1 else well[:READY_SHOWN])]
    if shown:
        cells = ((column.spared, [column.title, *map(column.cell, shown)]) for column in columns)
        yield from fitted(cells, width=None if wide else width - GAP)
    if len(shown) < len(lines):
        yield f"  and {len(lines) - len(shown)} more; -o wide shows all"
    for why, names in _left_alone(shown, columns[0]).items():
        yield hanging(f"{_counted(kind, names)}: {why}", first="  other: ", width=width)
    yield ""


def _left_alone(shown: Iterable[ServiceLine | NodeLine], name: Column) -> Mapping[str, Sequence[str]]:
    """Return the names of those that are none of our business, by why that is so."""
    found: dict[str, list[str]] = {}
    for one in shown:
        if one.state is State.OTHER and one.message:
            found.setdefault(one.message, []).append(name.cell(one))
    return found


def fitted(columns: Iterable[tuple[int, Sequence[str]]], *, width: int | None) -> Iterator[str]:
    """Yield a table, without what can be spared where it is wider than ``width``.

    ``columns`` have their titles in front, and are numbered: the highest is left out first, 0 never.
    """
    kept = [one for one in columns if any(one[1][1:])]
    while (
        width is not None
        and sum(max(map(len, cells)) + GAP for _, cells in kept) > width
        and any(spared for spared, _ in kept)
    ):
        kept.remove(max(kept, key=lambda one: one[0]))
    yield from table((cells for _, cells in kept), width=max(width or 0, LONGEST_ROW), indent=GAP)


def age(since: str, now: str) -> str:
    """Return the time between two times of the API in the way of kubectl; empty for none and for a negative one.

    >>> age("2026-01-01T00:00:00Z", "2026-01-03T01:00:00Z")
    '2d'
    >>> age("2026-01-01T00:00:00Z", "2026-01-01T00:02:05Z")
    '2m'
    """
    began, ends = _time(since), _time(now)
    if began is None or ends is None or ends < began:
        return ""
    seconds = int((ends - began).total_seconds())
    return next((f"{seconds // size}{unit}" for size, unit in _UNITS if seconds >= 2 * size), f"{seconds}s")


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
