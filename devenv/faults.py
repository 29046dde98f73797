"""Faults that a proxy can inject into the talk with an API server, and the rules that say where. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final


@dataclass(frozen=True)
class Answer:
    """Answer in the server's place with a Status object, or with ``body`` when it is given."""

    status: int
    message: str = "injected"
    reason: str = ""
    retry_after: int | None = None
    """Seconds, sent as header ``Retry-After`` and as ``details.retryAfterSeconds``."""
    body: bytes | None = None
    content_type: str = "application/json"


@dataclass(frozen=True)
class Delay:
    """Pass the request on after so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Hang:
    """Take the request and never answer."""


@dataclass(frozen=True)
class Drop:
    """Close the connection; the server never sees the request."""


@dataclass(frozen=True)
class Lose:
    """Let the server do what was asked, then close the connection without an answer."""


@dataclass(frozen=True)
class Cut:
    """Break the connection after so many bytes of the answer's body."""

    after: int = 1


@dataclass(frozen=True)
class Silence:
    """Let a watch begin and pass none of its events on."""


Fault = Answer | Delay | Hang | Drop | Lose | Cut | Silence


@dataclass
class Record:
    """One request that came to the proxy."""

    method: str
    path: str
    query: str
    at: float
    """Event loop time of its arrival."""
    status: int = 0
    """Status of the answer; 0 while there is none, and for ever when the connection broke."""
    seconds: float = 0.0
    """Time until the head of the answer was passed on."""

    @property
    def watch(self) -> bool:
        """Whether a watch was asked for."""
        return re.search(r"(^|&)watch=(1|true)(&|$)", self.query) is not None


@dataclass
class Rule:
    """Which requests a fault hits. ``path`` is a regular expression that is searched in the path."""

    fault: Fault
    method: str | None = None
    path: str = ""
    watch: bool | None = None
    skip: int = 0
    """So many matching requests pass first."""
    times: int | None = None
    """So many are hit then; None means all."""
    hits: int = field(default=0, init=False)
    """How many were hit."""

    def matches(self, record: Record) -> bool:
        """Tell whether the rule is about this request, whatever its counters say."""
        return (
            self.method in {None, record.method}
            and self.watch in {None, record.watch}
            and re.search(self.path, record.path) is not None
        )

    def hit(self, record: Record) -> bool:
        """Tell whether the fault is to be injected here, and count."""
        if not self.matches(record) or (self.times is not None and self.hits >= self.times):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.hits += 1
        return True


EXPIRED: Final = Answer(410, "too old resource version: 1 (2)", "Expired")
"""What a server says of a version that it no longer has."""


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


def response_bytes(answer: Answer) -> bytes:
    """Return the whole HTTP response."""
    body = answer.body if answer.body is not None else status_body(answer)
    phrase = HTTPStatus(answer.status).phrase
    retry = f"Retry-After: {answer.retry_after}\r\n" if answer.retry_after is not None else ""
    head = (
        f"HTTP/1.1 {answer.status} {phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"{retry}\r\n"
    )
    return head.encode() + body


def error_event(answer: Answer) -> bytes:
    """Return the chunk of a watch stream that carries the answer as an ERROR event."""
    line = b'{"type":"ERROR","object":' + status_body(answer) + b"}\n"
    return b"%x\r\n%b\r\n" % (len(line), line)
