"""A reverse proxy in front of a control plane that records every request and injects faults by rule.

It uses the control plane's own serving certificate, so that a kubeconfig with its address verifies, and passes requests
and responses through unchanged: bearer tokens work, client certificates do not.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import aiohttp
import yaml
from aiohttp import hdrs, web
from yarl import URL

from devenv.apiserver import ControlPlane
from devenv.background import abort_connections, closed, end_listening
from devenv.faults import (
    EXPIRED,
    Answer,
    Cut,
    Delay,
    Drop,
    Fault,
    Flood,
    Hang,
    Lose,
    Record,
    Rule,
    Silence,
    error_event,
    status_body,
)
from devenv.pki import KeyPair
from devenv.process import ReservedPort
from harvester_ccm.kube.connection import Response

NOT_FORWARDED: Final = {hdrs.CONNECTION, hdrs.CONTENT_LENGTH, hdrs.HOST, hdrs.TRANSFER_ENCODING}
"""Headers of one connection."""
ADDED_BY_CLIENT: Final = (hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE, hdrs.USER_AGENT)


@dataclass(eq=False)
class _Watch:
    """A watch in progress."""

    record: Record
    request: web.BaseRequest
    silent: bool = False
    """Whether its events are dropped."""
    last: bytes | None = None
    """The last bytes of a response that is ended here."""
    copying: asyncio.Task[None] | None = None

    def end(self, last: bytes) -> None:
        """End the response after these bytes."""
        self.last = last
        if self.copying is not None:
            self.copying.cancel()


class FaultProxy:
    """One listening address in front of one control plane. Use as an async context manager."""

    def __init__(self, plane: ControlPlane, *, serving: KeyPair | None = None) -> None:
        """``serving``: a certificate instead of the control plane's own."""
        self._upstream = plane.url
        self._upstream_tls = ssl.create_default_context(cafile=plane.ca_file)
        self._tls = (serving or plane.serving).server_context()
        self._port = ReservedPort()
        self._http: web.Server | None = None
        self._server: asyncio.Server | None = None
        self._session: aiohttp.ClientSession | None = None
        self._watches: set[_Watch] = set()
        self._rules: list[Rule] = []
        self.url = f"https://127.0.0.1:{self._port.number}"
        self.listeners: list[Callable[[], None]] = []
        """Called when a request has arrived."""
        self.requests: list[Record] = []
        """All requests since the start or the last ``forget``, in order of arrival."""

    async def __aenter__(self) -> Self:
        await self.up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.down()
        self._port.release()

    async def up(self) -> None:
        """Listen, also again after ``down``."""
        if self._server is not None:
            return
        connector = aiohttp.TCPConnector(ssl=self._upstream_tls, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False, response_class=Response
        )
        self._http = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._server = await asyncio.get_running_loop().create_server(
            self._http, "127.0.0.1", self._port.number, ssl=self._tls, reuse_port=True
        )

    async def down(self) -> None:
        """Close all connections and refuse new ones."""
        if self._server is None or self._http is None or self._session is None:
            return
        server, self._server = self._server, None
        await end_listening(server)
        abort_connections(self._http)
        await self._http.shutdown(0)
        await self._session.close()
        await closed(server, self._http)

    def kubeconfig(self, source: Path, target: Path | None = None) -> Path:
        """Write a copy of a kubeconfig with this address and return its path, by default next to the source."""
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
        times: int | None = None,
    ) -> Rule:
        """Add a rule and return it. The first rule that matches a request applies; see ``Rule`` for the arguments."""
        rule = Rule(fault, method, path, watch, times)
        self._rules.append(rule)
        return rule

    def heal(self, rule: Rule | None = None) -> None:
        """Remove one rule, or all. Silent watches stay silent."""
        self._rules = [one for one in self._rules if rule is not None and one is not rule]

    def count(self, *, method: str | None = None, path: str = "", watch: bool | None = None) -> int:
        """Return the number of recorded requests that match; ``path`` is a regular expression that is searched."""
        return len(self.matching(method=method, path=path, watch=watch))

    def matching(self, *, method: str | None = None, path: str = "", watch: bool | None = None) -> list[Record]:
        """Return the recorded requests that match, in order of arrival."""
        rule = Rule(Hang(), method, path, watch)
        return [record for record in self.requests if rule.matches(record)]

    def forget(self) -> None:
        """Remove all recorded requests."""
        self.requests.clear()

    def watches(self) -> int:
        """Return the number of watches in progress."""
        return len(self._watches)

    def end_watches(self) -> None:
        """End all watches as a server does at their time limit."""
        for watch in self._watches:
            watch.end(b"")

    def expire_watches(self) -> None:
        """Send ``410 Gone`` to all watches, as a server that lost their version."""
        for watch in self._watches:
            watch.end(error_event(EXPIRED))

    def cut_watches(self) -> None:
        """Close the connections of all watches in the middle of the response."""
        for watch in self._watches:
            _abort(watch.request)

    def silence_watches(self) -> None:
        """Drop all further events of the current watches, without closing them."""
        for watch in self._watches:
            watch.silent = True

    def _fault_for(self, record: Record) -> Fault | None:
        """Record a request and return its fault."""
        self.requests.append(record)
        for listener in self.listeners:
            listener()
        return next((rule.fault for rule in self._rules if rule.hit(record)), None)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Respond to one request. It is cancelled when the client closes its connection."""
        body = await request.content.read()
        path, _, query = request.raw_path.partition("?")
        record = Record(request.method, path, query, asyncio.get_running_loop().time())
        fault = self._fault_for(record)
        match fault:
            case Answer():
                record.status = fault.status
                return _response(fault)
            case Hang():
                await asyncio.get_running_loop().create_future()
            case Drop():
                return _abort(request)
            case Flood():
                record.status = fault.status
                return await _flood(request, fault)
            case Delay(seconds=seconds):
                await asyncio.sleep(seconds)
        try:
            return await self._forward(request, body, record, fault)
        except (aiohttp.ClientError, ConnectionError):
            return _abort(request)

    async def _forward(
        self, request: web.BaseRequest, body: bytes, record: Record, fault: Fault | None
    ) -> web.StreamResponse:
        assert self._session is not None
        headers = [(name, value) for name, value in request.headers.items() if name.title() not in NOT_FORWARDED]
        url = URL(self._upstream + request.raw_path, encoded=True)
        async with self._session.request(
            request.method, url, data=body or None, headers=headers, skip_auto_headers=ADDED_BY_CLIENT
        ) as upstream:
            return await self._respond(request, upstream, record, fault)

    async def _respond(
        self, request: web.BaseRequest, upstream: aiohttp.ClientResponse, record: Record, fault: Fault | None
    ) -> web.StreamResponse:
        if isinstance(fault, Lose):
            return _abort(request)
        record.status = upstream.status
        response = web.StreamResponse(status=upstream.status, reason=upstream.reason)
        response.headers.extend(
            (name, value) for name, value in upstream.headers.items() if name.title() not in NOT_FORWARDED
        )
        if upstream.content_length is None:
            response.enable_chunked_encoding()
        else:
            response.content_length = upstream.content_length
        await response.prepare(request)
        record.seconds = asyncio.get_running_loop().time() - record.at
        await self._copy(upstream, response, _Watch(record, request, silent=isinstance(fault, Silence)), fault)
        await response.write_eof()
        return response

    async def _copy(
        self, upstream: aiohttp.ClientResponse, response: web.StreamResponse, watch: _Watch, fault: Fault | None
    ) -> None:
        """Copy the body of the response until its end, or until the watch is ended here."""

        async def copy() -> None:
            rest = fault.after if isinstance(fault, Cut) else None
            async for data in upstream.content.iter_any():
                if not watch.silent:
                    await response.write(data[:rest])
                if rest is not None:
                    rest -= len(data)
                    if rest <= 0:
                        _abort(watch.request)

        if not watch.record.watch or watch.record.status >= 300:
            await copy()
            return
        self._watches.add(watch)
        watch.copying = asyncio.create_task(copy())
        try:
            await watch.copying
        except asyncio.CancelledError:
            if watch.last is None:
                watch.copying.cancel()
                raise
            response.force_close()
            await response.write(watch.last)
        finally:
            self._watches.discard(watch)


def _response(answer: Answer) -> web.Response:
    headers = {hdrs.CONTENT_TYPE: answer.content_type}
    if answer.retry_after is not None:
        headers[hdrs.RETRY_AFTER] = str(answer.retry_after)
    body = answer.body if answer.body is not None else status_body(answer)
    return web.Response(status=answer.status, headers=headers, body=body)


async def _flood(request: web.BaseRequest, flood: Flood) -> web.StreamResponse:
    """Send the body until its end, or until the client closes the connection."""
    response = web.StreamResponse(status=flood.status)
    response.content_type = "application/json"
    if flood.compressed:
        response.headers[hdrs.CONTENT_ENCODING] = "gzip"
    response.enable_chunked_encoding()
    with suppress(ConnectionError):
        await response.prepare(request)
        for piece in flood.pieces():
            if request.transport is None or request.transport.is_closing():
                # asyncio would log a warning for each piece.
                break
            await response.write(piece)
        await response.write_eof()
    return response


def _abort(request: web.BaseRequest) -> web.Response:
    """Close the connection without a response; the returned one is never sent."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
