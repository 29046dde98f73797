"""A reverse proxy in front of a control plane that records every request and injects faults by rule.

It speaks TLS with the control plane's own serving certificate, so that a kubeconfig that points at it verifies, and
passes everything through unchanged: bearer tokens work, client certificates cannot. HTTP/1.1 only. Each client
connection has one connection to the API server, so a client sees the same timing and order as without the proxy.
It runs in the event loop of whoever opens it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from devenv.apiserver import ControlPlane
from devenv.faults import (
    EXPIRED,
    Answer,
    Cut,
    Delay,
    Drop,
    Fault,
    Hang,
    Lose,
    Record,
    Rule,
    Silence,
    error_event,
    response_bytes,
)
from devenv.httpframes import CHUNK_END, Head, body_of, read_head
from devenv.pki import KeyPair
from devenv.process import ReservedPort

__all__ = ["Answer", "Cut", "Delay", "Drop", "FaultProxy", "Hang", "Lose", "Record", "Rule", "Silence"]

_PIECE = 64 * 1024
_LEAVE_SECONDS = 1.0
_LOOKS = 400
_LOOK_SECONDS = 0.005
_BROKEN = (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, TimeoutError, ValueError)


async def _handshakes_over(server: asyncio.Server) -> None:
    """Return when connections that had not got beyond their TLS handshake are closed, or after some time.

    Nobody but the event loop knows of them, and before Python 3.12 a server does not wait for any connection.
    """
    for _ in range(_LOOKS):
        if not getattr(server, "_active_count", 0):
            break
        await asyncio.sleep(_LOOK_SECONDS)


class FaultProxy:
    """One listening address in front of one control plane. Use as an async context manager."""

    def __init__(self, plane: ControlPlane, *, serving: KeyPair | None = None) -> None:
        """``serving`` is another certificate to show than the control plane's own."""
        self._upstream_port = int(plane.url.rpartition(":")[2])
        self._upstream_tls = ssl.create_default_context(cafile=plane.ca_file)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pair = serving or plane.serving
        self._tls.load_cert_chain(pair.certificate, pair.key)
        self._port = ReservedPort()
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._rules: list[Rule] = []
        self.url = f"https://127.0.0.1:{self._port.number}"
        self.listeners: list[Callable[[], None]] = []
        """Called when a request has arrived."""
        self.requests: list[Record] = []
        """Every request since the start or the last ``forget``, in order of arrival."""

    async def __aenter__(self) -> Self:
        await self.up()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.down()
        self._port.release()

    async def up(self) -> None:
        """Listen, again after ``down``."""
        if self._server is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(
                self._accept, "127.0.0.1", self._port.number, ssl=self._tls, reuse_port=True
            )

    async def down(self) -> None:
        """Break all connections and refuse new ones."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        tasks = [connection.task for connection in self._connections if connection.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
        await _handshakes_over(server)

    def kubeconfig(self, source: Path, target: Path | None = None) -> Path:
        """Write a copy of a kubeconfig that points here and return its path, by default beside the source."""
        document = yaml.safe_load(source.read_text())
        for entry in document["clusters"]:
            entry["cluster"]["server"] = self.url
        target = target or source.with_name(f"{source.name}.proxy-{self._port.number}")
        target.touch(mode=0o600)
        target.write_text(yaml.safe_dump(document))
        return target

    def inject(
        self,
        fault: Fault,
        *,
        method: str | None = None,
        path: str = "",
        watch: bool | None = None,
        skip: int = 0,
        times: int | None = None,
    ) -> Rule:
        """Add a rule and return it. The first rule that hits a request decides; see ``Rule`` for the meaning."""
        rule = Rule(fault, method, path, watch, skip, times)
        self._rules.append(rule)
        return rule

    def heal(self, rule: Rule | None = None) -> None:
        """Remove one rule, or all. Watches that are silent already stay so."""
        self._rules = [one for one in self._rules if rule is not None and one is not rule]

    def count(self, *, method: str | None = None, path: str = "", watch: bool | None = None) -> int:
        """Return how many recorded requests match; ``path`` is a regular expression that is searched."""
        return len(self.matching(method=method, path=path, watch=watch))

    def matching(self, *, method: str | None = None, path: str = "", watch: bool | None = None) -> list[Record]:
        """Return the recorded requests that match, in order of arrival."""
        probe = Rule(Hang(), method, path, watch)
        return [record for record in self.requests if probe.matches(record)]

    def forget(self) -> None:
        """Empty the record of requests."""
        self.requests.clear()

    def watches(self, path: str = "") -> int:
        """Return how many watches are running."""
        return len(self._watching(path))

    def end_watches(self, path: str = "") -> int:
        """End running watches as a server does at their time limit; return how many."""
        return self._each_watch(path, lambda one: one.finish(CHUNK_END))

    def expire_watches(self, path: str = "") -> int:
        """Send ``410 Gone`` into running watches, as a server does when it lost their version; return how many."""
        return self._each_watch(path, lambda one: one.finish(error_event(EXPIRED) + CHUNK_END))

    def cut_watches(self, path: str = "") -> int:
        """Break the connections of running watches in the middle of the answer; return how many."""
        return self._each_watch(path, _Connection.abort)

    def silence_watches(self, path: str = "") -> int:
        """Pass nothing on in running watches any more, without closing them; return how many."""
        return self._each_watch(path, _Connection.silence)

    def _each_watch(self, path: str, action: Callable[[_Connection], None]) -> int:
        found = self._watching(path)
        for connection in found:
            action(connection)
        return len(found)

    def _watching(self, path: str) -> list[_Connection]:
        return [c for c in self._connections if c.watching is not None and re.search(path, c.watching.path)]

    def _accept(self) -> asyncio.BaseProtocol:
        connection = _Connection(self)
        return connection.protocol

    def fault_for(self, record: Record) -> Fault | None:
        """Note a request and return what is to be done to it."""
        self.requests.append(record)
        for listener in self.listeners:
            listener()
        return next((rule.fault for rule in self._rules if rule.hit(record)), None)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection to the API server."""
        return await asyncio.open_connection("127.0.0.1", self._upstream_port, ssl=self._upstream_tls, limit=_PIECE)

    def adopt(self, connection: _Connection) -> None:
        """Keep a connection until ``release``."""
        self._connections.add(connection)

    def release(self, connection: _Connection) -> None:
        """Forget a connection that has ended."""
        self._connections.discard(connection)


class _Protocol(asyncio.StreamReaderProtocol):
    """Streams that also tell when the client has gone, which a reader notices only between messages."""

    def __init__(self, connection: _Connection) -> None:
        super().__init__(asyncio.StreamReader(limit=_PIECE), connection.start)
        self._connection = connection

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connection.client_left()


class _Connection:
    """One client's connection and the one to the API server behind it."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy
        self._client: asyncio.StreamWriter | None = None
        self._server: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._gone = asyncio.Event()
        self._silent = False
        self._finished = False
        self.protocol = _Protocol(self)
        self.task: asyncio.Task[None] | None = None
        self.watching: Record | None = None
        """The watch that is running, if one is."""

    def start(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the client from now on."""
        self._client = writer
        self._proxy.adopt(self)
        self.task = asyncio.get_running_loop().create_task(self._serve(reader, writer), name="proxy connection")

    def client_left(self) -> None:
        """End what is being waited for on behalf of the client."""
        self._gone.set()
        self._abort_server()

    def abort(self) -> None:
        """Break the client's connection."""
        if self._client is not None:
            self._client.transport.abort()

    def silence(self) -> None:
        """Pass nothing on any more."""
        self._silent = True

    def finish(self, last: bytes) -> None:
        """Send the last bytes of the running answer and close in good order, unless it has ended already."""
        if self._client is not None and not (self._finished or self._gone.is_set()):
            self._finished = True
            self._client.write(last)
            self._client.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not self._gone.is_set() and (head := await read_head(reader)) is not None:
                body = await reader.readexactly(head.content_length)
                if not await self._handle(head, body, writer):
                    break
            await self._take_leave(writer)
        except _BROKEN:
            if self._finished:
                await self._take_leave(writer)
        finally:
            self._abort_server()
            writer.transport.abort()
            self._proxy.release(self)

    async def _take_leave(self, writer: asyncio.StreamWriter) -> None:
        """Close in good order, which takes an answer from the client."""
        writer.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._gone.wait()

    async def _handle(self, head: Head, body: bytes, client: asyncio.StreamWriter) -> bool:
        """Answer one request; tell whether the connection may be used again."""
        method, target, _ = head.start.split(" ", 2)
        path, _, query = target.partition("?")
        loop = asyncio.get_running_loop()
        record = Record(method, path, query, loop.time())
        fault = self._proxy.fault_for(record)
        match fault:
            case Answer():
                record.status = fault.status
                client.write(response_bytes(fault))
                await client.drain()
                return True
            case Hang():
                await self._gone.wait()
                return False
            case Drop():
                self.abort()
                return False
            case Delay(seconds=seconds):
                await asyncio.sleep(seconds)
        reader, server = await self._open_server()
        server.write(head.raw + body)
        response = await read_head(reader)
        if response is None or isinstance(fault, Lose):
            self.abort()
            return False
        record.status = int(response.start.split()[1])
        client.write(response.raw)
        record.seconds = loop.time() - record.at
        return await self._pass_body(response, reader, record, fault)

    async def _pass_body(
        self, response: Head, reader: asyncio.StreamReader, record: Record, fault: Fault | None
    ) -> bool:
        assert self._client is not None
        allowed = fault.after if isinstance(fault, Cut) else None
        self._silent = isinstance(fault, Silence)
        self.watching = record if record.watch and record.status < 300 else None
        body = body_of(response, method=record.method)
        try:
            while body is None or not body.done:
                data = await reader.read(_PIECE)
                if not data:
                    return self._server_closed(complete=body is None)
                if body is not None:
                    body.feed(data)
                if not (self._silent or self._finished or self._gone.is_set()):
                    self._client.write(data[:allowed])
                    await self._client.drain()
                if allowed is not None:
                    if len(data) >= allowed:
                        self.abort()
                        return False
                    allowed -= len(data)
        finally:
            self.watching = None
        return True

    def _server_closed(self, *, complete: bool) -> bool:
        """End the client's connection as the server ended its own: in good order, or in the middle."""
        if not complete and not self._finished:
            self.abort()
        return False

    async def _open_server(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._server is None or self._server[0].at_eof() or self._server[1].is_closing():
            self._abort_server()
            self._server = await self._proxy.connect()
        return self._server

    def _abort_server(self) -> None:
        if self._server is not None:
            self._server[1].transport.abort()
            self._server = None
