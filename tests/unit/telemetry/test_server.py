"""The HTTPS server over real TLS connections."""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from msgspec.structs import replace
from structlog.testing import capture_logs

from devenv.pki import Authority
from harvester_ccm.config import ServerSettings
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.telemetry.health import HealthRegistry
from harvester_ccm.telemetry.metrics import Telemetry
from harvester_ccm.telemetry.server import CONNECTION_SECONDS, AccessReviewer, https_server
from tests.support.loopback import free_port
from tests.support.memory_server import MemoryClient, MemoryServer

HOST = "ccm.example.org"
MAX_SECONDS = 20.0


class FixedReviewer(AccessReviewer):
    """Authorizes one token and records which paths were reviewed, and from where."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.addresses: set[str] = set()

    async def check(self, authorization: str, path: str, address: str) -> None:
        self.paths.append(path)
        self.addresses.add(address)
        if authorization == "Bearer broken":
            raise RuntimeError("bug")
        if authorization != "Bearer valid":
            raise web.HTTPUnauthorized(text="no valid token")


@dataclass
class Reply:
    """A response."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""


class Client:
    """Sends each request over its own connection."""

    def __init__(self, port: int, authority: Path, host: str = "127.0.0.1") -> None:
        self._address = host, port
        self._tls = ssl.create_default_context(cafile=authority)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection(*self._address, ssl=self._tls, server_hostname=HOST)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def send(self, text: str) -> Reply:
        """Send text, in which lone surrogates stand for bytes that are no UTF-8, and return the first response."""
        async with self.connection() as (reader, writer):
            writer.write(text.encode(errors="surrogateescape"))
            head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        first, *lines = head.split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return Reply(int(first.split()[1]), headers, body)

    async def get(self, path: str, *, method: str = "GET", token: str = "") -> Reply:
        authorization = f"Authorization: Bearer {token}\r\n" if token else ""
        return await self.send(f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n{authorization}\r\n")


@dataclass
class RunningServer:
    """A running server and its client."""

    client: Client
    settings: ServerSettings
    reviewer: FixedReviewer


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[ServerSettings]:
    pair = Authority("test", tmp_path).issue_server("serving", [HOST])
    with free_port() as port:
        open_paths = frozenset({"/healthz", "/livez", "/readyz"})
        yield ServerSettings("127.0.0.1", port, pair.certificate, pair.key, "1.2", open_paths)


@pytest.fixture
def health() -> HealthRegistry:
    health = HealthRegistry()
    health.add("harvester-reachable", lambda: False)
    return health


@pytest.fixture
async def running(settings: ServerSettings, health: HealthRegistry, tmp_path: Path) -> AsyncIterator[RunningServer]:
    reviewer = FixedReviewer()
    async with https_server(settings, health, telemetry=Telemetry("1.2.3"), reviewer=reviewer):
        yield RunningServer(Client(settings.port, tmp_path / "ca.crt"), settings, reviewer)


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(MAX_SECONDS):
            return await reader.read() == b""
    except ConnectionError:
        return True


@pytest.mark.security("`/healthz`, `/livez` and `/readyz` need no authorization")
@pytest.mark.security("reads more than health")
async def test_open_paths_are_served_without_a_review(running: RunningServer) -> None:
    for path in ("/healthz", "/livez"):
        reply = await running.client.get(path)
        assert (reply.status, reply.body) == (200, "ok")
        assert reply.headers["content-type"] == "text/plain; charset=utf-8"
        assert (reply.headers["x-content-type-options"], reply.headers["cache-control"]) == ("nosniff", "no-store")
        assert (reply.headers["server"], reply.headers["connection"]) == ("harvester-ccm", "close")
    head = await running.client.get("/healthz", method="HEAD")
    assert (head.status, head.body, head.headers["content-length"]) == (200, "", "2")
    unready = await running.client.get("/readyz")
    assert (unready.status, unready.body.splitlines()[-1]) == (500, "readyz check failed")
    failed = "[+]ping ok\n[-]harvester-reachable failed: reason withheld\nreadyz check failed\n"
    assert (await running.client.get("/readyz?verbose")).body == failed
    assert (await running.client.get("/healthz?verbose")).body == "[+]ping ok\nhealthz check passed\n"
    assert running.reviewer.paths == []


async def test_other_paths_need_an_authorized_caller(running: RunningServer) -> None:
    rejected = await running.client.get("/metrics")
    assert (rejected.status, rejected.body, rejected.headers["connection"]) == (401, "no valid token", "close")
    assert running.reviewer.addresses == {"127.0.0.1"}
    metrics = await running.client.get("/metrics", token="valid")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'harvester_ccm_build_info{cluster="",python="' in metrics.body
    assert running.reviewer.paths == ["/metrics", "/metrics"]


async def test_open_paths_are_a_setting(settings: ServerSettings, health: HealthRegistry, tmp_path: Path) -> None:
    settings = replace(settings, open_paths=frozenset({"/metrics", "/ready*", "/live"}))
    async with https_server(settings, health, telemetry=Telemetry("1"), reviewer=FixedReviewer()):
        client = Client(settings.port, tmp_path / "ca.crt")
        assert (await client.get("/metrics")).status == 200
        assert (await client.get("/healthz")).status == (await client.get("/livez")).status == 401
        assert (await client.get("/readyz")).status == 500


async def test_invalid_requests_are_rejected_without_review_and_log(running: RunningServer) -> None:
    with capture_logs() as logs:
        for path in ("/", "/favicon.ico", "/healthz/", "/metrics/", "/metrics/slis", "/readyz/ping"):
            assert (await running.client.get(path, token="valid")).status == 404
        assert (await running.client.get("/metrics", method="POST", token="valid")).status == 405
        assert (await running.client.send("nonsense\r\n\r\n")).status == 400
        assert (await running.client.send("GET /healthz HTTP/1.1\r\nContent-Length: no\r\n\r\n")).status == 400
    assert (running.reviewer.paths, logs) == ([], [])


async def test_bug_in_a_request_is_logged(running: RunningServer) -> None:
    with capture_logs() as logs:
        assert (await running.client.get("/metrics", token="broken")).status == 500
    assert [(one["log_level"], one["event"]) for one in logs] == [("error", "request failed")]


@pytest.mark.parametrize("token", ["\udcff\udcfe", "t\u00f6ken"])
async def test_token_with_other_characters_is_rejected_without_a_review(
    settings: ServerSettings, tmp_path: Path, token: str
) -> None:
    guest = MemoryServer()
    reviewer = AccessReviewer(MemoryClient(guest, cluster="guest"))
    async with https_server(settings, HealthRegistry(), telemetry=Telemetry("1"), reviewer=reviewer):
        reply = await Client(settings.port, tmp_path / "ca.crt").get("/metrics", token=token)
    assert (reply.status, reply.headers["www-authenticate"], guest.calls) == (401, "Bearer", [])


@pytest.mark.security("for at most 15 s each")
async def test_connection_without_a_request_is_closed(running: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CONNECTION_SECONDS == 15
    monkeypatch.setattr("harvester_ccm.telemetry.server.CONNECTION_SECONDS", 1.0)
    async with running.client.connection() as (reader, _):
        assert await ended(reader)


@pytest.mark.security("The server accepts at most 256 connections")
@pytest.mark.security("a client of port 10258 who causes unlimited memory use")
async def test_256_connections_are_open_at_most(running: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    # 256 handshakes can take longer than a connection may on a busy machine.
    monkeypatch.setattr("harvester_ccm.telemetry.server.CONNECTION_SECONDS", 600.0)
    async with AsyncExitStack() as stack:
        readers = [(await stack.enter_async_context(running.client.connection()))[0] for _ in range(256)]
        assert not any(reader.at_eof() for reader in readers)
        assert (await running.client.get("/healthz")).status == 200
        assert await ended(readers[0])
        assert [reader.at_eof() for reader in readers[1:]] == [False] * 255


@pytest.mark.security("Port 10258 serves HTTPS")
@pytest.mark.security("`--bind-address=127.0.0.1` limits access to the Node")
async def test_flags_select_the_port_and_the_address(tmp_path: Path) -> None:
    def server_of(*flags: str) -> ServerSettings:
        arguments = ["--cloud-config=x", "--cluster-name=demo", *flags]
        return build_settings(parse_command_line(arguments), {}).server

    assert server_of().port == 10258
    pair = Authority("test", tmp_path).issue_server("serving", [HOST])
    with free_port() as port:
        limited = server_of(
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={pair.certificate}",
            f"--tls-private-key-file={pair.key}",
        )
        async with https_server(limited, HealthRegistry(), telemetry=Telemetry("1"), reviewer=FixedReviewer()):
            client = Client(port, tmp_path / "ca.crt")
            assert (await client.get("/livez")).body == "ok"
            # Another address of this machine.
            with pytest.raises(ConnectionRefusedError):
                await Client(port, tmp_path / "ca.crt", "127.0.0.2").get("/livez")


async def test_certificate_that_was_replaced_is_used_by_the_next_connection(
    running: RunningServer, tmp_path: Path
) -> None:
    other = Authority("other", tmp_path / "other")
    pair = other.issue_server("serving", [HOST])
    for old, new in ((running.settings.certificate, pair.certificate), (running.settings.key, pair.key)):
        assert old is not None
        old.write_bytes(new.read_bytes())
    assert (await Client(running.settings.port, other.ca_file).get("/livez")).status == 200


@pytest.mark.parametrize("suite", ["ECDHE-ECDSA-AES256-SHA384", "ECDHE-ECDSA-AES128-SHA"])
async def test_cipher_suites_without_authenticated_encryption_are_off(
    running: RunningServer, tmp_path: Path, suite: str
) -> None:
    context = ssl.create_default_context(cafile=tmp_path / "ca.crt")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(suite)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection("127.0.0.1", running.settings.port, ssl=context, server_hostname=HOST)


async def test_stop_closes_connections_and_frees_the_port(settings: ServerSettings, tmp_path: Path) -> None:
    client = Client(settings.port, tmp_path / "ca.crt")
    for _ in range(2):
        async with https_server(settings, HealthRegistry(), telemetry=Telemetry("1"), reviewer=FixedReviewer()):
            assert (await client.get("/livez")).body == "ok"
            connection = client.connection()
            reader, _ = await connection.__aenter__()
        assert await ended(reader)
        await connection.__aexit__(None, None, None)
    with pytest.raises(ConnectionRefusedError):
        await client.get("/livez")


async def test_address_that_cannot_be_bound_is_a_configuration_error(settings: ServerSettings) -> None:
    in_use = rf"^cannot listen on 127\.0\.0\.1, port {settings.port}: Address already in use. If another copy "
    foreign = replace(settings, bind_address="192.0.2.1")
    with socket.create_server(("127.0.0.1", settings.port)):
        for one, message in ((settings, in_use), (foreign, "Cannot assign requested address. If another copy")):
            with pytest.raises(ConfigurationError, match=message):
                async with https_server(one, HealthRegistry(), telemetry=Telemetry("1"), reviewer=FixedReviewer()):
                    pass


async def test_wildcard_address_serves_both_families(settings: ServerSettings, tmp_path: Path) -> None:
    settings = replace(settings, bind_address="::")
    async with https_server(settings, HealthRegistry(), telemetry=Telemetry("1"), reviewer=FixedReviewer()):
        for host in ("127.0.0.1", "::1"):
            assert (await Client(settings.port, tmp_path / "ca.crt", host).get("/livez")).body == "ok"


async def test_connection_that_cannot_be_accepted_does_not_end_the_server(
    settings: ServerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, errors = asyncio.get_running_loop(), [OSError(errno.EMFILE, "Too many open files")]
    accept = loop.sock_accept

    async def fail_once(listener: socket.socket) -> tuple[socket.socket, object]:
        if errors:
            raise errors.pop()
        return await accept(listener)

    monkeypatch.setattr(loop, "sock_accept", fail_once)
    async with https_server(settings, HealthRegistry(), telemetry=Telemetry("1"), reviewer=FixedReviewer()):
        assert (await Client(settings.port, tmp_path / "ca.crt").get("/livez")).status == 200


async def test_port_zero_means_no_server(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    settings = ServerSettings("127.0.0.1", 0, missing, missing, "1.2", frozenset())
    async with https_server(settings, HealthRegistry(), telemetry=Telemetry("1"), reviewer=FixedReviewer()):
        pass
