"""A web proxy that opens tunnels (HTTP CONNECT) to loopback, for every host name."""

import asyncio
import base64
import contextlib
from types import TracebackType
from typing import Final, Self

from devenv.background import end_listening

_PIECE: Final = 64 * 1024


class ConnectProxy:
    """One listening address. Use as an async context manager; ``login`` is the required ``user:password``."""

    def __init__(self, *, login: str | None = None) -> None:
        self._expected = f"Basic {base64.b64encode(login.encode()).decode()}" if login else None
        self._login = login
        self._server: asyncio.Server | None = None
        self._tunnels: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.asked: list[str] = []
        """The ``host:port`` of every opened tunnel."""

    @property
    def url(self) -> str:
        """Address of the proxy, with the login."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"http://{self._login}@127.0.0.1:{port}" if self._login else f"http://127.0.0.1:{port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        await end_listening(self._server)
        for writer in self._tunnels.values():
            writer.transport.abort()
        await asyncio.gather(*self._tunnels)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tunnels[task] = writer
        try:
            await self._tunnel(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            del self._tunnels[task]
            writer.transport.abort()

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        start, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        method, target, _ = start.split(" ", 2)
        if method != "CONNECT" or self._expected not in (None, headers.get("proxy-authorization")):
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return
        self.asked.append(target)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(target.rpartition(":")[2]))
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            async with asyncio.TaskGroup() as group:
                group.create_task(_pass_on(reader, far_writer), name="to the server")
                group.create_task(_pass_on(far_reader, writer), name="to the client")
        finally:
            far_writer.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()
    # One side's end is the other's too.
    writer.close()
