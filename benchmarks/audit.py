"""What one user asked of an API server, counted from the server's audit log.

The server itself writes the log, so nothing stands in the measured path. A watch is counted once, when it starts. The
line of a request may follow its answer by a moment, so read the log when the user has been idle for a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

LONG_RUNNING: Final = "watch"
BOOKKEEPING: Final = ("leases",)
"""Resources whose requests keep a process alive rather than serve anybody."""


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Reference(msgspec.Struct, frozen=True, rename="camel"):
    resource: str = ""
    subresource: str = ""


class _Status(msgspec.Struct, frozen=True):
    code: int = 0


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    stage: str = ""
    verb: str = ""
    user: _User = _User()
    object_ref: _Reference | None = None
    response_status: _Status | None = None


@dataclass(frozen=True)
class Request:
    """One request, as the API server understood it."""

    verb: str
    """As in RBAC: get, list, watch, create, update, patch, delete."""
    resource: str
    """``services`` or ``services/status``; empty for a path without a resource."""
    code: int
    """HTTP status of the answer."""


_decode = msgspec.json.Decoder(_Entry).decode


def read_requests(lines: Iterable[bytes], user: str) -> list[Request]:
    """Return the requests of ``user`` in the lines of an audit log, in order. Raises msgspec.DecodeError."""
    marker = f'"{user}"'.encode()
    return [request for line in lines if marker in line if (request := _request_of(_decode(line), user)) is not None]


def _request_of(entry: _Entry, user: str) -> Request | None:
    wanted = "ResponseStarted" if entry.verb == LONG_RUNNING else "ResponseComplete"
    if entry.stage != wanted or entry.user.username != user:
        return None
    reference = entry.object_ref or _Reference()
    resource = f"{reference.resource}/{reference.subresource}" if reference.subresource else reference.resource
    return Request(entry.verb, resource, entry.response_status.code if entry.response_status else 0)


def is_work(request: Request) -> bool:
    """Return whether the request counts: neither a watch nor the Lease."""
    return request.verb != LONG_RUNNING and request.resource not in BOOKKEEPING


def count_of(requests: Iterable[Request], *, verb: str | None = None, resource: str | None = None) -> int:
    """Return how many of the requests have this verb and this resource; None means any."""
    return sum(1 for one in requests if verb in (None, one.verb) and resource in (None, one.resource))


def tally(requests: Iterable[Request]) -> str:
    """Return the requests as text, most frequent first: ``100 create loadbalancers 201, 2 list nodes 200``."""
    counts = Counter(requests)
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0].resource, pair[0].verb, pair[0].code))
    return ", ".join(f"{number} {one.verb} {one.resource} {one.code}" for one, number in ordered) or "none"


class AuditLog:
    """The audit log of one running API server, seen as the requests of one user."""

    def __init__(self, path: Path, user: str) -> None:
        self._path = path
        self._user = user

    def position(self) -> int:
        """Return where the log ends now, to be given to ``since``."""
        return self._path.stat().st_size if self._path.exists() else 0

    def since(self, position: int) -> list[Request]:
        """Return the requests that were logged after ``position``."""
        return self.read(position)[0]

    def read(self, position: int) -> tuple[list[Request], int]:
        """Return the requests that were logged after ``position``, and where to go on."""
        with self._path.open("rb") as stream:
            stream.seek(position)
            lines = stream.read().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        return read_requests(whole, self._user), position + sum(map(len, whole))
