"""The HTTPS server of health, readiness and metrics.

It serves one request for each connection and gives every connection ``CONNECTION_SECONDS``: an idle one costs memory,
probes open a new one each time anyway, and a scrape is rare. When more than ``CONNECTIONS`` are open the oldest is
ended, so that the kubelet's probe always gets through. Before TLS is agreed on, the ``Door`` counts.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

import structlog

# Not aiohttp.web, which loads a whole framework for the three of them.
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response, StreamResponse
from aiohttp.web_server import Server
from msgspec import Struct, field

from harvester_ccm.config import ServerSettings
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.telemetry.answers import HttpAnswer, say, single, summary
from harvester_ccm.telemetry.auth import AccessReviewer
from harvester_ccm.telemetry.certificate import ServingCertificate
from harvester_ccm.telemetry.door import BACKLOG, Door
from harvester_ccm.telemetry.health import Aspect, HealthRegistry
from harvester_ccm.telemetry.metrics import Telemetry

CONNECTIONS: Final = 32
CONNECTION_SECONDS: Final = 15.0
CLOSE_SECONDS: Final = 0.5
MALFORMED_SECONDS: Final = 60.0
"""Between two log lines about requests that are no HTTP, and between two about requests that could not be answered."""
METRICS: Final = "/metrics"
HEALTH: Final = {"healthz": Aspect.LIVE, "livez": Aspect.LIVE, "readyz": Aspect.READY}
"""Endpoints and what they answer. ``/healthz`` is what older probes ask: it must not fail because Harvester does."""
_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Server": "harvester-ccm"}

Handler = Callable[[BaseRequest], Awaitable[StreamResponse]]

log = structlog.get_logger(__name__)


@asynccontextmanager
async def https_server(
    settings: ServerSettings, health: HealthRegistry, *, telemetry: Telemetry, reviewer: AccessReviewer
) -> AsyncIterator[None]:
    """Serve for the time of a block. Raises ConfigurationError: port in use, certificate not usable."""
    certificate = ServingCertificate(settings)
    await certificate.load()
    listener = _listen(settings.bind_address, settings.port)
    site = _Site(health, telemetry, reviewer, settings.open_paths)
    connections = _Connections(site.handle)
    door = Door(listener, connections, certificate)
    door.open()
    log.info("serving", address=settings.bind_address, port=settings.port)
    try:
        yield
    finally:
        await door.close()
        await connections.close()


class _Seldom:
    """Whether there may be a log line again: anybody may make the requests that it is about."""

    def __init__(self) -> None:
        self._quiet_until = float("-inf")

    def now(self) -> bool:
        """Return whether there was none for a while; there is one then."""
        now = time.monotonic()
        if now < self._quiet_until:
            return False
        self._quiet_until = now + MALFORMED_SECONDS
        return True


class _Site(Struct, frozen=True):
    """What is served, and to whom."""

    health: HealthRegistry
    telemetry: Telemetry
    reviewer: AccessReviewer
    open_paths: frozenset[str]
    told: _Seldom = field(default_factory=_Seldom)

    async def handle(self, request: BaseRequest) -> Response:
        try:
            answer = await self._answer(request)
        except Exception:
            if self.told.now():
                log.exception("request failed")
            answer = say(HTTPStatus.INTERNAL_SERVER_ERROR, "internal server error")
        headers = {**_HEADERS, "Content-Type": answer.content_type}
        if answer.status == HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = "Bearer"
        response = Response(status=answer.status, body=answer.body, headers=headers)
        response.force_close()
        return response

    async def _answer(self, request: BaseRequest) -> HttpAnswer:
        path = request.path
        endpoint, _, check = path.removeprefix("/").partition("/")
        if path != METRICS and (endpoint not in HEALTH or path.endswith("/")):
            return say(HTTPStatus.NOT_FOUND, "not found; there are /healthz, /livez, /readyz and /metrics")
        if request.method not in ("GET", "HEAD"):
            return say(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is served")
        public = is_open(path, self.open_paths)
        if not public:
            refusal = await self.reviewer.refusal(request.headers.get("Authorization", ""), path)
            if refusal is not None:
                return refusal
        if path == METRICS:
            body, content_type = self.telemetry.exposition(request.headers.get("Accept", ""))
            return HttpAnswer(HTTPStatus.OK, body, content_type)
        results = self.health.results(HEALTH[endpoint])
        if check:
            found = [one for one in results if one.name == check]
            return single(found[0], explain=not public) if found else say(HTTPStatus.NOT_FOUND, "no such check")
        query = request.rel_url.query
        return summary(endpoint, results, verbose="verbose" in query, exclude=query.getall("exclude", []))


def is_open(path: str, open_paths: Iterable[str]) -> bool:
    """Return whether the path is one of those; a trailing ``*`` in one of them matches any rest."""
    return any(path.startswith(one[:-1]) if one.endswith("*") else path == one for one in open_paths)


class _Connections(Server):
    """The open connections, each with its time limit."""

    def __init__(self, handler: Handler) -> None:
        super().__init__(
            handler, access_log=None, handler_cancellation=True, lingering_time=0.0, logger=_Malformed(__name__)
        )
        self._ends: dict[RequestHandler, tuple[asyncio.Transport, asyncio.TimerHandle]] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._ends) >= CONNECTIONS:
            oldest, timer = self._ends.pop(next(iter(self._ends)))
            timer.cancel()
            oldest.abort()
        loop = asyncio.get_running_loop()
        self._ends[handler] = transport, loop.call_later(CONNECTION_SECONDS, transport.abort)

    async def close(self) -> None:
        """End all connections; requests being answered get a moment."""
        await self.shutdown(CLOSE_SECONDS)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        ended = self._ends.pop(handler, None)
        if ended is not None:
            ended[1].cancel()


class _Malformed(logging.Logger):
    """What aiohttp has to say of requests that are none: one line a minute."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._told = _Seldom()

    def exception(self, msg: object, *args: object, exc_info: object = None, **_options: object) -> None:
        """Log the error without its traceback, unless there was one a moment ago."""
        if self._told.now():
            said = str(msg) % args if args else str(msg)
            log.warning("malformed request refused", detail=said, error=str(exc_info))


def _listen(address: str, port: int) -> socket.socket:
    """Return a listening socket; ``::`` takes IPv4 too. Raises ConfigurationError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    both = address == "::" and socket.has_dualstack_ipv6()
    try:
        return socket.create_server((address, port), family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        hint = {
            errno.EADDRINUSE: "; another process on this host listens there: stop it, or set --secure-port",
            errno.EADDRNOTAVAIL: "; this host has no such address: set --bind-address",
            errno.EACCES: "; this user may not use that port: set --secure-port to one from 1024",
        }.get(error.errno or 0, "")
        where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigurationError([f"cannot listen on {where}: {reason}{hint}"]) from error
