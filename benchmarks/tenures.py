"""Who held the Lease when, and what was written meanwhile, as the audit logs of the API servers tell it. Pure.

A tenure is a row of successful writes of the Lease by one candidate. It is over when the Lease was given up, which is
the last of these writes, or when its holder died and the Lease ran out. Times are seconds since the epoch by the clock
of the API servers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final

import msgspec

WRITING: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
EVENTS: Final = "events"
"""Words about what was done; the last ones are written after the Lease was given up."""
LEASES: Final = "leases"


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Reference(msgspec.Struct, frozen=True):
    resource: str = ""
    name: str = ""


class _Status(msgspec.Struct, frozen=True):
    code: int = 0


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    stage: str = ""
    verb: str = ""
    user: _User = _User()
    object_ref: _Reference | None = None
    response_status: _Status | None = None
    request_received_timestamp: str = ""
    stage_timestamp: str = ""


@dataclass(frozen=True)
class Write:
    """One request that changes something, whether the server did it or refused it."""

    candidate: str
    what: str
    """Verb, resource and name."""
    resource: str
    code: int
    received: float
    """When the API server received the request."""
    answered: float


@dataclass(frozen=True)
class Tenure:
    """One candidate's time as the holder of the Lease."""

    candidate: str
    first: Write
    last: Write


@dataclass(frozen=True)
class Handover:
    """The holder was ended from outside."""

    candidate: str
    """Who was ended."""
    at: float
    signal: str
    lease_duration: float
    """Seconds after which a Lease that nobody renews is free."""


_decode = msgspec.json.Decoder(_Entry).decode


def read_writes(lines: Iterable[bytes], candidates: Mapping[str, str]) -> list[Write]:
    """Return the writes in an audit log by the users of ``candidates`` (user name to candidate), as they came in."""
    found = []
    for line in lines:
        if not line.endswith(b"\n"):
            continue
        entry = _decode(line)
        candidate = candidates.get(entry.user.username)
        if candidate is None or entry.verb not in WRITING or entry.stage != "ResponseComplete":
            continue
        about = entry.object_ref or _Reference()
        found.append(
            Write(
                candidate,
                f"{entry.verb} {about.resource} {about.name}".strip(),
                about.resource,
                entry.response_status.code if entry.response_status else 0,
                _seconds(entry.request_received_timestamp),
                _seconds(entry.stage_timestamp),
            )
        )
    return sorted(found, key=lambda one: one.received)


def tenures_of(writes: Iterable[Write]) -> list[Tenure]:
    """Return who held the Lease, in order."""
    found: list[Tenure] = []
    for write in sorted(writes, key=lambda one: one.answered):
        if write.resource != LEASES or not 200 <= write.code < 300:
            continue
        if found and found[-1].candidate == write.candidate:
            found[-1] = Tenure(write.candidate, found[-1].first, write)
        else:
            found.append(Tenure(write.candidate, write, write))
    return found


def work_of(writes: Iterable[Write]) -> list[Write]:
    """Return the writes that only the holder of the Lease may make."""
    return [one for one in writes if one.resource not in (LEASES, EVENTS)]


def intruders(work: Iterable[Write], tenures: Sequence[Tenure]) -> list[str]:
    """Return a sentence for every write outside its candidate's tenure.

    A tenure ends, at the latest, when the next holder's first write of the Lease comes in.
    """
    ends = [after.first.received for _, after in pairwise(tenures)] + [float("inf")]
    spans = list(zip(tenures, ends, strict=True))
    return [
        f"{write.what} by {write.candidate} at {write.received:.3f}-{write.answered:.3f}: it did not hold the Lease"
        for write in work
        if not any(
            write.candidate == tenure.candidate and tenure.first.received <= write.received and write.answered <= end
            for tenure, end in spans
        )
    ]


def late_writes(work: Iterable[Write], tenures: Sequence[Tenure], handovers: Iterable[Handover]) -> list[str]:
    """Return a sentence for every write after the Lease had been given up (SIGTERM) or run out (SIGKILL)."""
    work, found = list(work), []
    for handover in handovers:
        index = _index(tenures, handover)
        tenure = tenures[index]
        graceful = handover.signal == "SIGTERM"
        end = tenure.last.received if graceful else tenure.last.answered + handover.lease_duration
        after = tenures[index + 1].first.received if index + 1 < len(tenures) else float("inf")
        found += [
            f"{write.what} by {write.candidate} {write.answered - end:.3f} s after its Lease was over"
            for write in work
            if write.candidate == tenure.candidate and tenure.first.received <= write.received < after
            if write.answered > end
        ]
    return found


def handover_seconds(tenures: Sequence[Tenure], handover: Handover) -> float:
    """Return the seconds from the signal until another candidate held the Lease. Raises ValueError if none did."""
    index = _index(tenures, handover)
    if index + 1 >= len(tenures):
        raise ValueError(f"nobody took the Lease after {handover.candidate} was ended by {handover.signal}")
    return tenures[index + 1].first.answered - handover.at


def _index(tenures: Sequence[Tenure], handover: Handover) -> int:
    """Return the place of the tenure that a signal ended."""
    for index in reversed(range(len(tenures))):
        if tenures[index].candidate == handover.candidate and tenures[index].first.received <= handover.at:
            return index
    raise ValueError(f"{handover.candidate} never held the Lease before it was ended by {handover.signal}")


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
