"""Faults that a proxy injects into requests to an API server, and the rules that select the requests. Pure."""

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Final


@dataclass(frozen=True)
class Answer:
    """Respond with a Status object instead of the server, or with ``body``."""

    status: int
    message: str = "injected"
    reason: str = ""
    retry_after: int | None = None
    """Seconds, sent as header ``Retry-After`` and as ``details.retryAfterSeconds``."""
    body: bytes | None = None
    content_type: str = "application/json"


@dataclass(frozen=True)
class Delay:
    """Forward the request after this number of seconds."""

    seconds: float


@dataclass(frozen=True)
class Hang:
    """Accept the request and never respond."""


@dataclass(frozen=True)
class Drop:
    """Close the connection; the server does not get the request."""


@dataclass(frozen=True)
class Lose:
    """Forward the request, then close the connection without a response."""


@dataclass(frozen=True)
class Cut:
    """Close the connection after this number of bytes of the response body."""

    after: int = 1


@dataclass(frozen=True)
class Silence:
    """Forward a watch and drop all of its events."""


@dataclass(frozen=True)
class Flood:
    """Respond with an object, or a line of a watch, whose name has this many bytes, instead of the server."""

    size: int
    status: int = 200
    compressed: bool = False
    """Whether the body is compressed with gzip, to about a thousandth."""

    @property
    def start(self) -> bytes:
        """The bytes before the name; the response never gets to those after it."""
        kind = b"Status" if self.status >= 300 else b"LoadBalancerList"
        return b'{"type":"ADDED","apiVersion":"v1","kind":"%s","object":{"metadata":{"name":"' % kind

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes of the body."""
        if self.compressed:
            yield _compressed(self)
        else:
            yield from self.plain()

    def plain(self) -> Iterator[bytes]:
        """Yield the bytes of the body without compression."""
        yield self.start
        for _ in range(self.size // len(_PIECE)):
            yield _PIECE


@cache
def _compressed(flood: Flood) -> bytes:
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    return b"".join([*map(packer.compress, flood.plain()), packer.flush()])


_PIECE: Final = b"x" * 2**16


Fault = Answer | Delay | Hang | Drop | Lose | Cut | Silence | Flood


@dataclass
class Record:
    """One request to the proxy."""

    method: str
    path: str
    query: str
    at: float
    """Event loop time of its arrival."""
    status: int = 0
    """Status of the response; 0 before the response, and if the connection broke."""
    seconds: float = 0.0
    """Time until the head of the response was forwarded."""

    @property
    def watch(self) -> bool:
        """Whether the request is a watch."""
        return re.search(r"(^|&)watch=(1|true)(&|$)", self.query) is not None


@dataclass
class Rule:
    """The requests that get a fault. ``path`` is a regular expression that is searched in the path."""

    fault: Fault
    method: str | None = None
    path: str = ""
    watch: bool | None = None
    times: int | None = None
    """Maximum number of requests; None means all."""
    hits: int = field(default=0, init=False)
    """Number of requests that got the fault."""

    def matches(self, record: Record) -> bool:
        """Return whether the rule selects this request, regardless of its counters."""
        return (
            self.method in {None, record.method}
            and self.watch in {None, record.watch}
            and re.search(self.path, record.path) is not None
        )

    def hit(self, record: Record) -> bool:
        """Return whether the request gets the fault, and count it."""
        if not self.matches(record) or (self.times is not None and self.hits >= self.times):
            return False
        self.hits += 1
        return True


EXPIRED: Final = Answer(410, "too old resource version: 1 (2)", "Expired")
"""Response to a version that the server no longer has."""


def status_body(answer: Answer) -> bytes:
    """Return the JSON of the answer's Status object."""
    details = {"details": {"retryAfterSeconds": answer.retry_after}} if answer.retry_after is not None else {}
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": answer.message,
        "reason": answer.reason,
        **details,
        "code": answer.status,
    }
    return json.dumps(status).encode()


def error_event(answer: Answer) -> bytes:
    """Return the line of a watch that carries the answer as an ERROR event."""
    return b'{"type":"ERROR","object":' + status_body(answer) + b"}\n"
