"""The HTTPS server of health, readiness and metrics.

It serves one request for each connection and ends every connection after ``CONNECTION_SECONDS``: an idle one costs
memory, probes open a new one each time, and a scrape is rare. If more than ``CONNECTIONS`` are open, the oldest is
ended, so that the probe of the kubelet gets through.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final

import structlog

# Not aiohttp.web, which loads a whole framework.
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response
from aiohttp.web_server import Server
from msgspec import Struct

from harvester_ccm.config import ServerSettings
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.telemetry.answers import HttpAnswer, say, single, summary
from harvester_ccm.telemetry.auth import AccessReviewer
from harvester_ccm.telemetry.certificate import ServingCertificate
from harvester_ccm.telemetry.health import Aspect, HealthRegistry
from harvester_ccm.telemetry.metrics import Telemetry

CONNECTIONS: Final = 128
"""Each costs up to 130 KiB before the client has sent anything."""
CONNECTION_SECONDS: Final = 15.0
HANDSHAKE_SECONDS: Final = 2.0
SHUTDOWN_SECONDS: Final = 1.0
"""For the end of a TLS connection."""
CLOSE_SECONDS: Final = 0.5
"""For requests that are being answered when the server stops."""
FULL_SECONDS: Final = 1.0
"""Pause when the process has no file descriptor left."""
BACKLOG: Final = 1024
"""Connections that wait in the kernel; under a flood that of a probe is among them."""
METRICS: Final = "/metrics"
HEALTH: Final = {"healthz": Aspect.LIVE, "livez": Aspect.LIVE, "readyz": Aspect.READY}
"""Endpoints and what they answer. ``/healthz`` is what older probes ask: it must not fail because Harvester does."""
_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Server": "harvester-ccm"}

log = structlog.get_logger(__name__)


@asynccontextmanager
async def https_server(
    settings: ServerSettings, health: HealthRegistry, *, telemetry: Telemetry, reviewer: AccessReviewer
) -> AsyncIterator[None]:
    """Serve for the time of a block, unless the port is 0. Raises ConfigurationError: port in use, bad certificate."""
    if settings.port == 0:
        yield
        return
    certificate = ServingCertificate(settings)
    await certificate.load()
    listener = _listen(settings.bind_address, settings.port)
    listener.setblocking(False)
    site = _Site(health, telemetry, reviewer, settings.open_paths)
    # Any client can send requests that are not HTTP: aiohttp would log a traceback for each.
    silent = logging.getLogger(__name__)
    silent.disabled = True
    server = Server(site.handle, access_log=None, handler_cancellation=True, lingering_time=0.0, logger=silent)
    accepting = asyncio.create_task(_accept(listener, server, certificate), name="HTTPS server")
    log.info("serving", address=settings.bind_address, port=settings.port)
    try:
        yield
    finally:
        accepting.cancel()
        await asyncio.wait([accepting])
        listener.close()
        await server.shutdown(CLOSE_SECONDS)


class _Site(Struct, frozen=True):
    """What is served, and to whom."""

    health: HealthRegistry
    telemetry: Telemetry
    reviewer: AccessReviewer
    open_paths: frozenset[str]

    async def handle(self, request: BaseRequest) -> Response:
        try:
            answer = await self._answer(request)
        except Exception:
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


async def _accept(listener: socket.socket, server: Server, certificate: ServingCertificate) -> None:
    """Accept connections until cancelled."""
    loop, opened = asyncio.get_running_loop(), list[socket.socket]()
    async with asyncio.TaskGroup() as handshakes:
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError as error:
                log.warning("no connection can be accepted", error=str(error))
                await asyncio.sleep(FULL_SECONDS)
                continue
            opened = [one for one in opened if one.fileno() >= 0]
            if len(opened) >= CONNECTIONS:
                _end(opened.pop(0))
            opened.append(accepted)
            loop.call_later(CONNECTION_SECONDS, _end, accepted)
            certificate.refresh()
            handshakes.create_task(_shake_hands(accepted, server, certificate), name="TLS handshake")
            # Under a flood there is always one more to accept.
            await asyncio.sleep(0)


async def _shake_hands(accepted: socket.socket, server: Server, certificate: ServingCertificate) -> None:
    loop = asyncio.get_running_loop()
    try:
        await loop.connect_accepted_socket(
            server,
            accepted,
            ssl=certificate.context,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS,
        )
    except Exception as error:  # no client may end the server
        log.debug("TLS handshake failed", error=str(error))
        # Its frames refer to each other and to the buffers: these would stay until the next garbage collection.
        error.__traceback__ = None


def _end(accepted: socket.socket) -> None:
    """End a connection in any state; its transport notices."""
    with suppress(OSError):  # closed already
        accepted.shutdown(socket.SHUT_RDWR)


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
