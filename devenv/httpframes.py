"""Just enough of HTTP/1.1 framing to pass messages through unchanged: heads, and where a body ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

CHUNK_END: Final = b"0\r\n\r\n"
"""What ends a chunked body."""


@dataclass(frozen=True)
class Head:
    """Start line and headers of a message, with the bytes they came from."""

    start: str
    headers: Mapping[str, str]
    """By lower-case name."""
    raw: bytes

    @property
    def content_length(self) -> int:
        """The announced length of the body; 0 when none is announced."""
        return int(self.headers.get("content-length", "0"))

    @property
    def chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return self.headers.get("transfer-encoding", "").lower() == "chunked"


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """Return the next head, or None when the peer has closed. Raises IncompleteReadError in the middle of one."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    start, *lines = raw[:-4].decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return Head(start, {name.lower(): value.strip() for name, _, value in pairs}, raw)


class Body(Protocol):
    """Where in a body we are."""

    done: bool

    def feed(self, data: bytes) -> None:
        """Take note of bytes that were passed on."""


class SizedBody:
    """A body of known length."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0

    def feed(self, data: bytes) -> None:
        """Take note of bytes that were passed on."""
        self._left -= len(data)
        self.done = self._left <= 0


class ChunkedBody:
    """A body in chunks, without trailers."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._skip = 0
        self._last = False
        self.done = False

    def feed(self, data: bytes) -> None:
        """Take note of bytes that were passed on. Raises ValueError on bytes that are no chunks."""
        position = 0
        while position < len(data) and not self.done:
            if self._skip:
                step = min(self._skip, len(data) - position)
                self._skip -= step
                position += step
                self.done = self._last and not self._skip
                continue
            end = data.find(b"\n", position)
            if end < 0:
                self._line += data[position:]
                return
            self._line += data[position:end]
            position = end + 1
            size = int(self._line.split(b";")[0], 16)
            self._line.clear()
            # The chunk and the line end behind it; behind the last one stands an empty line.
            self._skip = size + 2
            self._last = size == 0


def body_of(response: Head, *, method: str) -> Body | None:
    """Return how the body of a response is framed; None when it lasts until the connection is closed."""
    status = int(response.start.split()[1])
    if method == "HEAD" or status in {204, 304} or status < 200:
        return SizedBody(0)
    if response.chunked:
        return ChunkedBody()
    return SizedBody(response.content_length) if "content-length" in response.headers else None
