"""The number of requests of the controller, from the audit logs of the API servers."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from devenv.watch import Document


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

    def _entries(self, position: int) -> Iterator[Document]:
        with self._path.open("rb") as stream:
            stream.seek(position)
            yield from (msgspec.json.decode(line) for line in stream if line.endswith(b"\n"))

    def _counts(self, entry: Document) -> bool:
        is_lease = entry.get("objectRef", {}).get("resource") == "leases"
        is_complete = entry["stage"] == "ResponseComplete" and entry["verb"] != "watch"
        return entry["user"].get("username") == self._user and is_complete and not is_lease
