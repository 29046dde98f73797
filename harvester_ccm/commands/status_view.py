"""A status as text: the servers, a table of problems, and a table for each kind of object. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from harvester_ccm.commands.render import hanging, rendered, table
from harvester_ccm.commands.status_report import NodeLine, Problem, Server, ServiceLine, Status

LONGEST_ROW: Final = 10_000
"""Rows of objects are not broken."""
_UNITS: Final = ((365 * 86400, "y"), (86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def status_lines(status: Status, *, width: int) -> Iterator[str]:
    """Yield the lines of a status."""
    leader = status.leader
    since = f", for {age(leader.since, status.observed)}" if leader and leader.since else ""
    head = {
        "cluster": f"{status.cluster} (Harvester namespace {status.namespace})",
        "leader": f"{leader.identity or 'none'}{since}" if leader else "",
        **{one.cluster: _server(one, status.observed) for one in status.servers},
    }
    yield from rendered(head, width=width)
    yield ""
    if status.problems:
        yield f"PROBLEMS ({len(status.problems)})"
        yield from _problems(status, width)
        yield ""
    yield from _table("SERVICES", status.services, _service_columns(status.services, status.observed))
    yield from _table("NODES", status.nodes, _node_columns(status.nodes))
    if status.notes:
        yield from rendered({"Notes": status.notes}, width=width)
        yield ""
    yield f"{len(status.problems)} problems." if status.problems else "All is well."


def _server(server: Server, now: str) -> str:
    words = [server.url, "UNREADABLE" if server.problem else "OK"]
    if server.token_expires:
        left = age(now, server.token_expires)
        words.append(f"token expires in {left}" if left else "the token has EXPIRED")
    return ", ".join(words)


def _problems(status: Status, width: int) -> Iterator[str]:
    """Yield the table of problems, with the message below each row; objects with the same problem share a row."""
    rows: dict[tuple[str, ...], list[Problem]] = {}
    for one in status.problems:
        kind = one.object.partition(" ")[0]
        rows.setdefault((kind, one.state, one.reason, one.message), []).append(one)
    alike = list(rows.values())
    since = (min((one.since for one in row if one.since), default="") for row in alike)
    columns = (
        ["OBJECT", *map(_objects, alike)],
        ["STATE", *(row[0].state for row in alike)],
        ["FOR", *(age(one, status.observed) for one in since)],
        ["REASON", *(row[0].reason for row in alike)],
    )
    title, *lines = table(columns, width=LONGEST_ROW, indent=2)
    yield title
    for line, row in zip(lines, alike, strict=True):
        yield line
        yield hanging(row[0].message, first=" " * 6, width=width)


def _objects(row: Sequence[Problem]) -> str:
    return f"{row[0].object} and {len(row) - 1} more" if len(row) > 1 else row[0].object


def _table(title: str, lines: Sequence[ServiceLine | NodeLine], columns: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the table of one kind of object; nothing if there is none."""
    if lines:
        counts = ", ".join(f"{number} {state}" for state, number in Counter(one.state for one in lines).items())
        yield f"{title} ({counts})"
        yield from table(columns, width=LONGEST_ROW, indent=2)
        yield ""


def _service_columns(services: Sequence[ServiceLine], now: str) -> Sequence[Sequence[str]]:
    return (
        ["SERVICE", *(one.key for one in services)],
        ["STATE", *(one.state for one in services)],
        ["ADDRESS", *(",".join(one.addresses) for one in services)],
        ["FROM", *map(_source, services)],
        ["TYPE", *(one.workload_type for one in services)],
        ["NETWORK", *(one.network for one in services)],
        ["ANNOUNCED BY", *(one.announced_by for one in services)],
        ["AGE", *(age(one.created, now) for one in services)],
    )


def _node_columns(nodes: Sequence[NodeLine]) -> Sequence[Sequence[str]]:
    return (
        ["NODE", *(one.name for one in nodes)],
        ["STATE", *(one.state for one in nodes)],
        ["VM", *(one.vm for one in nodes)],
        ["ADDRESS", *(",".join(one.addresses) for one in nodes)],
        ["READY", *(one.ready for one in nodes)],
    )


def _source(service: ServiceLine) -> str:
    if service.primary:
        return f"shared with {service.primary}"
    return service.ipam if service.ipam == "dhcp" or not service.pool else f"pool {service.pool}"


def age(since: str, now: str) -> str:
    """Return the time between two times of the API as kubectl prints it; empty if one is missing or it is negative.

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
