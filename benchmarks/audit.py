"""The number of requests of the controller, from the audit logs of the API servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Reference(msgspec.Struct, frozen=True):
    resource: str = ""


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    stage: str = ""
    verb: str = ""
    user: _User = _User()
    object_ref: _Reference | None = None


_decode = msgspec.json.Decoder(_Entry).decode


class AuditLog:
    """The audit log of one API server, as the requests of one user without watches and Leases."""

    def __init__(self, path: Path, user: str) -> None:
        self._path = path
        self._user = user

    def position(self) -> int:
        """Return the current size of the log in bytes."""
        return self._path.stat().st_size if self._path.exists() else 0

    def count(self, position: int) -> int:
        """Return the number of requests that were logged after ``position``."""
        return sum(self._counts(entry) for entry in self._entries(position))

    def _entries(self, position: int) -> Iterator[_Entry]:
        with self._path.open("rb") as stream:
            stream.seek(position)
            yield from (_decode(line) for line in stream if line.endswith(b"\n"))

    def _counts(self, entry: _Entry) -> bool:
        is_lease = entry.object_ref is not None and entry.object_ref.resource == "leases"
        is_complete = entry.stage == "ResponseComplete" and entry.verb != "watch"
        return entry.user.username == self._user and is_complete and not is_lease
