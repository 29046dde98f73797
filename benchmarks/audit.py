"""Requests of the program, read from the audit logs of the API servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})


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
    request_received_timestamp: datetime | None = None
    stage_timestamp: datetime | None = None


_decode = msgspec.json.Decoder(_Entry).decode


@dataclass(frozen=True)
class Request:
    """One request, as the API server understood it. Times are seconds since the epoch, by the server's clock."""

    client: str
    verb: str
    """As in RBAC: get, list, create, update, patch, delete."""
    resource: str
    name: str
    code: int
    received: float
    answered: float

    def __str__(self) -> str:
        return f"{self.verb} {self.resource} {self.name} by {self.client}"


class AuditLog:
    """The audit log of one API server, as the requests of some users. Watches are left out."""

    def __init__(self, path: Path, clients: Mapping[str, str]) -> None:
        """``clients``: name of a client by its user name at the server."""
        self._path = path
        self._clients = clients

    def position(self) -> int:
        """Return where the log ends now."""
        return self._path.stat().st_size if self._path.exists() else 0

    def since(self, position: int = 0) -> list[Request]:
        """Return the requests that were logged after ``position``, in the order of their arrival."""
        with self._path.open("rb") as stream:
            stream.seek(position)
            lines = [line for line in stream if line.endswith(b"\n")]
        found = (self._request_of(_decode(line)) for line in lines)
        return sorted((one for one in found if one is not None), key=lambda one: one.received)

    def _request_of(self, entry: _Entry) -> Request | None:
        client = self._clients.get(entry.user.username)
        received, answered = entry.request_received_timestamp, entry.stage_timestamp
        if client is None or entry.stage != "ResponseComplete" or entry.verb == "watch" or not (received and answered):
            return None
        about, status = entry.object_ref or _Reference(), entry.response_status or _Status()
        return Request(
            client, entry.verb, about.resource, about.name, status.code, received.timestamp(), answered.timestamp()
        )
