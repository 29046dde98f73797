"""The HTTPS server for health checks and metrics.

It serves one request per connection. Probes open a new connection each time and a scrape is rare, so nothing is lost,
and an idle connection cannot occupy memory. Before the client is known, three limits bound what it can cost: at most
``MAX_CONNECTIONS`` are open, a TLS handshake must end within ``HANDSHAKE_TIMEOUT_SECONDS``, and every connection is
closed after ``CONNECTION_SECONDS``. A connection beyond the limit closes the oldest one, so that the kubelet's probe
succeeds while another client opens thousands of silent connections. asyncio's own accept loop cannot do that, and the
failed handshakes of 4,000 such connections occupy 170 MiB there until the next garbage collection.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, cast

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from harvester_ccm.config import ServerSettings
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.telemetry.auth import AccessReviewer
from harvester_ccm.telemetry.certificate import ServingCertificate
from harvester_ccm.telemetry.health import LIVE, HealthRegistry, summary
from harvester_ccm.telemetry.metrics import Telemetry

MAX_CONNECTIONS: Final = 256
CONNECTION_SECONDS: Final = 15.0
"""Maximum age of a connection, from its acceptance to the end of the response."""
HANDSHAKE_TIMEOUT_SECONDS: Final = 2.0
SHUTDOWN_TIMEOUT_SECONDS: Final = 0.5
"""Time that requests in progress get when the server stops."""
ACCEPT_RETRY_SECONDS: Final = 1.0
"""Delay after a failed accept, which means that the process has no file descriptor left."""
BACKLOG: Final = 1024
"""Connections that wait in the kernel; during a flood the probe's connection is among them."""
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Connection": "close",
    "Server": "harvester-ccm",
}

log = structlog.get_logger(__name__)


@asynccontextmanager
async def https_server(
    settings: ServerSettings, health: HealthRegistry, *, telemetry: Telemetry, reviewer: AccessReviewer
) -> AsyncIterator[None]:
    """Serve while the block runs, unless the port is 0. Raises ConfigurationError: port in use, bad certificate."""
    if settings.port == 0:
        yield
        return
    certificate = ServingCertificate(settings)
    await certificate.load()
    listener = _listen(settings.bind_address, settings.port)
    # Any client can send malformed requests, and aiohttp would log a traceback for each.
    silent = logging.getLogger(__name__)
    silent.disabled = True
    runner = web.AppRunner(
        _application(settings.open_paths, health, telemetry, reviewer),
        access_log=None,
        logger=silent,
        handler_cancellation=True,
        lingering_time=0.0,
        shutdown_timeout=SHUTDOWN_TIMEOUT_SECONDS,
    )
    await runner.setup()
    server = cast("web.Server", runner.server)
    accepting = asyncio.create_task(_accept(listener, server, certificate), name="HTTPS server")
    log.info("serving", address=settings.bind_address, port=settings.port)
    try:
        yield
    finally:
        accepting.cancel()
        await asyncio.wait([accepting])
        listener.close()
        await runner.cleanup()


def _application(
    open_paths: frozenset[str], health: HealthRegistry, telemetry: Telemetry, reviewer: AccessReviewer
) -> web.Application:
    """Return the endpoints, with the access check in front of them."""
    prefixes = tuple(one[:-1] for one in open_paths if one.endswith("*"))

    @web.middleware
    async def check_access(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_open = request.path in open_paths or request.path.startswith(prefixes)
        try:
            if request.match_info.http_exception is None and not is_open:
                await reviewer.check(request.headers.get("Authorization", ""), request.path)
            return await handler(request)
        except web.HTTPException:
            raise
        except Exception:
            log.exception("request failed", path=request.path)
            raise

    async def metrics(request: web.Request) -> web.Response:
        body, content_type = telemetry.exposition(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def checks(request: web.Request) -> web.Response:
        endpoint = request.match_info["endpoint"]
        # /healthz is the liveness probe of older charts: it must not fail because Harvester is unavailable.
        results = health.results(LIVE if endpoint == "healthz" else endpoint)
        passed, text = summary(endpoint, results, verbose="verbose" in request.query)
        return web.Response(status=200 if passed else 500, text=text)

    application = web.Application(middlewares=[check_access])
    application.on_response_prepare.append(_finish)
    application.router.add_get("/metrics", metrics)
    application.router.add_get("/{endpoint:healthz|livez|readyz}", checks)
    return application


async def _finish(_request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers of all responses, and close the connection after it."""
    response.headers.update(_HEADERS)
    response.force_close()


async def _accept(listener: socket.socket, server: web.Server, certificate: ServingCertificate) -> None:
    """Accept connections until cancelled."""
    loop, connections = asyncio.get_running_loop(), list[socket.socket]()
    async with asyncio.TaskGroup() as handshakes:
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError as error:
                log.warning("connection not accepted", error=str(error))
                await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                continue
            connections = [one for one in connections if one.fileno() >= 0]
            if len(connections) >= MAX_CONNECTIONS:
                _shut_down(connections.pop(0))
            connections.append(accepted)
            loop.call_later(CONNECTION_SECONDS, _shut_down, accepted)
            certificate.refresh()
            handshakes.create_task(_shake_hands(accepted, server, certificate), name="TLS handshake")
            # During a flood there is always one more connection to accept.
            await asyncio.sleep(0)


async def _shake_hands(accepted: socket.socket, server: web.Server, certificate: ServingCertificate) -> None:
    loop = asyncio.get_running_loop()
    try:
        await loop.connect_accepted_socket(
            server, accepted, ssl=certificate.context, ssl_handshake_timeout=HANDSHAKE_TIMEOUT_SECONDS
        )
    except Exception as error:  # no client can stop the server
        log.debug("TLS handshake failed", error=str(error))
        # Its frames refer to each other and to the buffers, which would stay until the next garbage collection.
        error.__traceback__ = None


def _shut_down(accepted: socket.socket) -> None:
    """End a connection in any state; its transport reads the end of the stream and closes."""
    with suppress(OSError):  # closed already
        accepted.shutdown(socket.SHUT_RDWR)


def _listen(address: str, port: int) -> socket.socket:
    """Return a non-blocking listening socket; ``::`` accepts IPv4 as well. Raises ConfigurationError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    both = address == "::" and socket.has_dualstack_ipv6()
    try:
        listener = socket.create_server((address, port), family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        problem = f"cannot listen on {address}, port {port}: {reason}; set --bind-address or --secure-port"
        raise ConfigurationError([problem]) from error
    listener.setblocking(False)
    return listener
