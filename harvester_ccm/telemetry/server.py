"""The HTTPS server for health checks and metrics: connections, access to metrics, and the serving certificate.

It serves one request per connection. Probes open a new connection each time and a scrape is rare, so nothing is lost,
and an idle connection cannot occupy memory. Before the client is known, three limits bound what it can cost: at most
``MAX_CONNECTIONS`` are open, a TLS handshake must end within ``HANDSHAKE_TIMEOUT_SECONDS``, and every connection is
closed after ``CONNECTION_SECONDS``. A connection beyond the limit closes the oldest one, so that the kubelet's probe
succeeds while another client opens thousands of silent connections. asyncio's own accept loop cannot do that, and the
failed handshakes of 4,000 such connections occupy 170 MiB there until the next garbage collection.

The guest's API server authenticates the bearer token of a caller and authorizes its user for a path. Its
decision is cached for ten seconds, and unknown tokens are reviewed at a limited rate. The certificate is read from
files, which are loaded again when they change, or it is self-signed and in memory only. A private key made here never
touches a disk: the process that creates it prints it into a pipe.
"""

import asyncio
import hashlib
import logging
import math
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias, cast

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from msgspec import Struct

from harvester_ccm.config import ServerSettings
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.connection import load_certificate, read_all, read_bytes
from harvester_ccm.kube.errors import CredentialError, Forbidden, KubeError
from harvester_ccm.kube.reviews import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, ask_review
from harvester_ccm.kube.write_limit import WriteRateLimiter
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
MAX_REVIEWS: Final = 4
"""Callers that are reviewed at a time, so that no client can make this process flood the API server."""
REVIEW_BURST: Final = 20
"""Reviews at once for the callers at one address."""
REVIEW_INTERVAL_SECONDS: Final = 0.5
"""Afterwards, time between two such reviews."""
DECISION_SECONDS: Final = 10.0
"""Time for which a decision about a token is used again, as in the Go framework."""
REVIEW_TIMEOUT_SECONDS: Final = 10.0
NOT_GRANTED: Final = (
    "callers cannot be checked: the service account of this controller cannot create "
    "tokenreviews.authentication.k8s.io and subjectaccessreviews.authorization.k8s.io; grant both to have this served\n"
)
TOO_MANY_REVIEWS: Final = "too many tokens from this address; try again later\n"
NOT_CHECKED: Final = "callers cannot be checked: the API server of this cluster is unavailable\n"
ISSUE_TIMEOUT_SECONDS: Final = 30.0
_ISSUER: Final = Path(__file__).with_name("issuer.py")
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

log = structlog.get_logger(__name__)


class _Decision(Struct, frozen=True):
    """Whether a caller can read a path."""

    is_authenticated: bool
    is_allowed: bool
    user: str = ""


_Caller: TypeAlias = tuple[bytes, str]
"""Hash of a token, and the path."""


class AccessReviewer:
    """Decides about callers with reviews by the guest's API server.

    A decision is cached for ``DECISION_SECONDS``. Reviews are limited to a burst and a rate for each address, and a
    caller beyond them is refused at once. So a scraper is served while a client at another address sends made-up
    tokens.
    """

    def __init__(self, guest: ApiClient) -> None:
        self._guest = guest
        self._slots = asyncio.Semaphore(MAX_REVIEWS)
        self._limiter = WriteRateLimiter(REVIEW_BURST, REVIEW_INTERVAL_SECONDS)
        self._decisions: dict[_Caller, tuple[float, _Decision]] = {}
        """Decisions with the loop time at which each expires, the earliest first."""

    async def check(self, authorization: str, path: str, address: str) -> None:
        """Return if the caller with this ``Authorization`` header can read ``path``; ``address`` is where it is from.

        Raises aiohttp's HTTPUnauthorized, HTTPForbidden, HTTPTooManyRequests if too many tokens were reviewed, or
        HTTPServiceUnavailable if the API server does not decide.
        """
        token = _bearer_token(authorization, path)
        # Only a hash of the token is kept in memory.
        caller = hashlib.sha256(token.encode()).digest(), path
        decision = self._cached(caller)
        if decision is None:
            decision = await self._decide(token, caller, address)
        if not decision.is_authenticated:
            raise _unauthorized("the bearer token is not accepted by the API server of this cluster")
        if not decision.is_allowed:
            message = f'user "{decision.user}" cannot get path "{path}"; grant get on the nonResourceURL to it'
            raise web.HTTPForbidden(text=f"forbidden: {message}\n")

    def _cached(self, caller: _Caller) -> _Decision | None:
        expires_at, decision = self._decisions.get(caller, (-math.inf, None))
        if loop_time() >= expires_at:
            return None
        return decision

    async def _decide(self, token: str, caller: _Caller, address: str) -> _Decision:
        """Return the decision of the API server about a caller. ``address`` has the limit of reviews."""
        if self._limiter.delay(address) > 0:
            raise web.HTTPTooManyRequests(text=TOO_MANY_REVIEWS, headers={"Retry-After": "1"})
        self._limiter.record(address)
        path = caller[1]
        try:
            async with asyncio.timeout(REVIEW_TIMEOUT_SECONDS), self._slots:
                decision = await self._review(token, path)
        except Forbidden as error:
            raise web.HTTPForbidden(text=NOT_GRANTED) from error
        except (KubeError, TimeoutError) as error:
            log.debug("caller not checked", path=path, error=str(error))
            raise web.HTTPServiceUnavailable(text=NOT_CHECKED) from error
        self._record(caller, decision)
        return decision

    def _record(self, caller: _Caller, decision: _Decision) -> None:
        now = loop_time()
        self._decisions.pop(caller, None)
        self._decisions[caller] = now + DECISION_SECONDS, decision
        # The limits of reviews bound how many decisions are made until the first of them expires.
        for first, (expires_at, _) in list(self._decisions.items()):
            if expires_at > now:
                break
            del self._decisions[first]

    async def _review(self, token: str, path: str) -> _Decision:
        review = await ask_review(self._guest, TOKEN_REVIEWS, {"token": token})
        if not review.authenticated:
            return _Decision(is_authenticated=False, is_allowed=False)
        user = review.user
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups or (),
            "extra": user.extra or {},
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        allowed = (await ask_review(self._guest, SUBJECT_ACCESS_REVIEWS, spec)).allowed
        return _Decision(is_authenticated=True, is_allowed=allowed, user=user.username)


def _bearer_token(authorization: str, path: str) -> str:
    """Return the token of an ``Authorization`` header. Raises HTTPUnauthorized if it has none."""
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not (token and token.isascii()):
        raise _unauthorized(f"{path} is served only to callers that send a bearer token")
    return token


def _unauthorized(message: str) -> web.HTTPUnauthorized:
    return web.HTTPUnauthorized(text=f"{message}\n", headers={"WWW-Authenticate": "Bearer"})


class ServingCertificate:
    """A TLS context whose certificate follows its files."""

    def __init__(self, settings: ServerSettings) -> None:
        self._files = tuple(filter(None, (settings.certificate, settings.key)))
        self._min_version = _VERSIONS[settings.min_tls]
        self._loaded = read_all(self._files)
        self.context: ssl.SSLContext
        """For new connections; set by ``load``."""

    async def load(self) -> None:
        """Load or create the certificate. Raises ConfigurationError."""
        try:
            if self._files:
                self.context = self._read()
            else:
                self.context = self._new_context(await asyncio.to_thread(_issue))
        except CredentialError as error:
            raise ConfigurationError([f"--tls-cert-file, --tls-private-key-file: {error}"]) from error

    def refresh(self) -> None:
        """Load changed files. If they cannot be used, log the reason and keep the old certificate."""
        current = read_all(self._files)
        if current == self._loaded:
            return
        self._loaded = current
        try:
            self.context = self._read()
        except CredentialError as error:
            log.warning("serving certificate not reloaded", error=str(error))
        else:
            log.info("serving certificate reloaded", file=str(self._files[0]))

    def _read(self) -> ssl.SSLContext:
        try:
            return self._new_context(b"\n".join(map(read_bytes, self._files)))
        except OSError as error:
            # OpenSSL reports some encrypted keys as "invalid argument".
            reason = (getattr(error, "reason", "") or "not PEM").replace("_", " ").lower()
            problem = f"the files are not an unencrypted PEM certificate and its key: {reason}"
            raise CredentialError(problem) from error

    def _new_context(self, pem: bytes) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._min_version
        # TLS 1.2: forward secrecy and authenticated encryption only. The suites of TLS 1.3 are always on.
        context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
        context.set_alpn_protocols(["http/1.1"])
        load_certificate(context, pem)
        return context


def _issue() -> bytes:
    """Return a new key and certificate. Raises ConfigurationError."""
    try:
        # -P: no file in the current directory can replace a library that the issuer imports.
        command = [sys.executable, "-P", str(_ISSUER)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=ISSUE_TIMEOUT_SECONDS).stdout
    except (OSError, subprocess.SubprocessError) as error:
        way_out = "give --tls-cert-file and --tls-private-key-file, or --secure-port=0 for no server"
        raise ConfigurationError([f"no self-signed certificate could be made: {error}; {way_out}"]) from error


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

    async def metrics(request: web.Request) -> web.Response:
        body, content_type = telemetry.exposition(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def checks(request: web.Request) -> web.Response:
        endpoint = request.match_info["endpoint"]
        kind = endpoint
        if endpoint == "healthz":
            # The liveness probe of older charts: it must not fail because Harvester is unavailable.
            kind = LIVE
        passed, text = summary(endpoint, health.results(kind), verbose="verbose" in request.query)
        return web.Response(status=200 if passed else 500, text=text)

    application = web.Application(middlewares=[_access_check(open_paths, reviewer)])
    application.on_response_prepare.append(_finish)
    application.router.add_get("/metrics", metrics)
    application.router.add_get("/{endpoint:healthz|livez|readyz}", checks)
    return application


def _access_check(open_paths: frozenset[str], reviewer: AccessReviewer) -> Middleware:
    """Return the middleware that lets a caller read an open path, or a path that the API server grants to it."""
    prefixes = tuple(path[:-1] for path in open_paths if path.endswith("*"))

    @web.middleware
    async def check_access(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_open = request.path in open_paths or request.path.startswith(prefixes)
        is_served = request.match_info.http_exception is None
        try:
            if is_served and not is_open:
                await reviewer.check(request.headers.get("Authorization", ""), request.path, request.remote or "")
            return await handler(request)
        except web.HTTPException:
            raise
        except Exception:
            log.exception("request failed", path=request.path)
            raise

    return check_access


async def _finish(_request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers of all responses, and close the connection after it."""
    response.headers.update(_HEADERS)
    response.force_close()


async def _accept(listener: socket.socket, server: web.Server, certificate: ServingCertificate) -> None:
    """Accept connections until cancelled."""
    loop = asyncio.get_running_loop()
    connections: list[socket.socket] = []
    async with asyncio.TaskGroup() as handshakes:
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError as error:
                log.warning("connection not accepted", error=str(error))
                await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                continue
            connections = [connection for connection in connections if connection.fileno() >= 0]
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
        problem = (
            f"cannot listen on {address}, port {port}: {reason}. If another copy of the controller has the port, stop "
            "it; otherwise set --bind-address or --secure-port"
        )
        raise ConfigurationError([problem]) from error
    listener.setblocking(False)
    return listener
