"""A server on loopback whose answers are as large or as long as it likes, written in pieces."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field

from devenv.background import end_listening

MIB = 1024 * 1024
OK = "200 OK"


@dataclass
class Reply:
    """An answer: its head and the pieces of its body; the end of the connection ends the body."""

    pieces: AsyncGenerator[bytes, None]
    status: str = OK
    headers: tuple[str, ...] = ()


@dataclass
class HostileServer:
    """What it answers, and what it sent."""

    answer: Callable[[str], Reply]
    """Returns the reply to a request for a path with its query."""
    url: str = ""
    requests: list[str] = field(default_factory=list)
    """Paths with their queries."""
    heads: list[str] = field(default_factory=list)
    """Heads of the requests."""
    sent: int = 0
    """Bytes of bodies that the operating system accepted; some of them are in its buffers."""

    _serving: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request; return when the connection is closed."""
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._answer(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            del self._serving[task]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        path = head.split(" ")[1]
        self.requests.append(path)
        reply = self.answer(path)
        lines = (f"HTTP/1.1 {reply.status}", "Content-Type: application/json", "Connection: close", *reply.headers)
        writer.write("\r\n".join((*lines, "", "")).encode())
        async with aclosing(reply.pieces) as pieces:
            async for piece in pieces:
                writer.write(piece)
                self.sent += len(piece)
                await writer.drain()

    async def end(self) -> None:
        for task, writer in self._serving.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)


@asynccontextmanager
async def hostile_server(answer: Callable[[str], Reply]) -> AsyncIterator[HostileServer]:
    """Run a server for the time of the block."""
    hostile = HostileServer(answer)
    server = await asyncio.start_server(hostile.serve, "127.0.0.1", 0)
    hostile.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield hostile
    finally:
        await end_listening(server)
        await hostile.end()


async def whole(*pieces: bytes) -> AsyncGenerator[bytes, None]:
    for piece in pieces:
        yield piece


async def padded(start: bytes, size: int, end: bytes = b"") -> AsyncGenerator[bytes, None]:
    """Yield a body of ``size`` bytes between its start and its end."""
    yield start
    piece = b"x" * (64 * 1024)
    for _ in range(size // len(piece)):
        yield piece
    yield end
