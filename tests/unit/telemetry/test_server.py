"""The server, asked over real TLS connections."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from devenv.pki import Authority
from harvester_ccm.config import ServerSettings
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.telemetry.answers import HttpAnswer, say
from harvester_ccm.telemetry.auth import AccessReviewer
from harvester_ccm.telemetry.health import Aspect, HealthRegistry
from harvester_ccm.telemetry.metrics import Telemetry
from harvester_ccm.telemetry.server import CONNECTIONS, https_server
from tests.worlds.loopback import free_port
from tests.worlds.memory_server import MemoryClient, MemoryServer

HOST = "ccm.example.org"


class Gate(AccessReviewer):
    """Lets callers with the right word in."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def refusal(self, authorization: str, path: str) -> HttpAnswer | None:
        self.asked.append(path)
        if authorization == "Bearer trouble":
            raise RuntimeError("a fault of ours")
        return None if authorization == "Bearer friend" else say(HTTPStatus.UNAUTHORIZED, "who is there?")


@dataclass
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""


class Client:
    """Sends requests over connections of their own and verifies the server's name."""

    def __init__(self, port: int, authority: Path, host: str = "127.0.0.1") -> None:
        self._port = port
        self._host = host
        self._tls = ssl.create_default_context(cafile=authority)

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._host, self._port, ssl=self._tls, server_hostname=HOST)

    async def send(self, text: str) -> Reply:
        """Send text, in which lone surrogates stand for bytes that are no text, and return what comes back."""
        reader, writer = await self.open()
        try:
            writer.write(text.encode(errors="surrogateescape"))
            # Until the end: the server serves one request for each connection.
            head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        finally:
            writer.close()
        first, *lines = head.split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return Reply(int(first.split()[1]), headers, body)

    async def get(self, path: str, *, method: str = "GET", token: str = "") -> Reply:
        authorization = f"Authorization: Bearer {token}\r\n" if token else ""
        return await self.send(f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n{authorization}\r\n")


@dataclass
class RunningServer:
    """A running server and a client of it."""

    client: Client
    settings: ServerSettings
    health: HealthRegistry
    gate: Gate


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[ServerSettings]:
    pair = Authority("test", tmp_path).issue_server("serving", [HOST])
    with free_port() as port:
        yield ServerSettings(
            bind_address="127.0.0.1",
            port=port,
            certificate=pair.certificate,
            key=pair.key,
            min_tls="1.2",
            open_paths=frozenset({"/healthz", "/livez", "/readyz"}),
        )


@pytest.fixture
def limits() -> dict[str, float]:
    return {}


@pytest.fixture
async def scene(
    serving: ServerSettings, tmp_path: Path, limits: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RunningServer]:
    for name, value in limits.items():
        monkeypatch.setattr(f"harvester_ccm.telemetry.{name}", value)
    health, gate = HealthRegistry(), Gate()
    async with https_server(serving, health, telemetry=Telemetry("1.2.3"), reviewer=gate):
        yield RunningServer(Client(serving.port, tmp_path / "ca.crt"), serving, health, gate)


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_health_is_told_to_everybody(scene: RunningServer, path: str) -> None:
    reply = await scene.client.get(path)

    assert (reply.status, reply.body) == (200, "ok")
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["server"] == "harvester-ccm"
    assert scene.gate.asked == []


async def test_what_is_not_ready_can_be_alive(scene: RunningServer) -> None:
    scene.health.add("harvester-reachable", lambda: "no route to host", Aspect.READY)

    assert (await scene.client.get("/readyz")).status == 500
    assert (await scene.client.get("/readyz?exclude=harvester-reachable")).body == "ok"
    assert (await scene.client.get("/livez")).status == 200
    assert (await scene.client.get("/healthz?verbose")).body == "[+]ping ok\nhealthz check passed\n"


async def test_reasons_are_for_callers_who_may_know(scene: RunningServer) -> None:
    scene.health.add("harvester-reachable", lambda: "no route to host", Aspect.READY)
    path = "/readyz/harvester-reachable"

    assert "no route" not in (await scene.client.get("/readyz?verbose")).body
    assert (await scene.client.get(path)).status == 401
    assert (await scene.client.get(path, token="friend")).body == "internal server error: no route to host\n"
    assert (await scene.client.get("/healthz/ping", token="friend")).body == "ok"
    assert (await scene.client.get("/healthz/nothing", token="friend")).status == 404
    assert scene.gate.asked == [path, path, "/healthz/ping", "/healthz/nothing"]


async def test_metrics_are_for_callers_who_may_have_them(scene: RunningServer) -> None:
    refused = await scene.client.get("/metrics")
    given = await scene.client.get("/metrics", token="friend")

    assert (refused.status, refused.body) == (401, "who is there?\n")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert given.status == 200
    assert given.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'harvester_ccm_build_info{python="' in given.body


async def test_what_is_open_is_a_setting(serving: ServerSettings, tmp_path: Path) -> None:
    settings = replace(serving, open_paths=frozenset({"/metrics", "/readyz/*"}))
    gate = Gate()
    health = HealthRegistry()
    health.add("harvester-reachable", lambda: "no route to host", Aspect.READY)
    async with https_server(settings, health, telemetry=Telemetry("1"), reviewer=gate):
        client = Client(serving.port, tmp_path / "ca.crt")

        assert (await client.get("/metrics")).status == 200
        assert (await client.get("/healthz")).status == 401
        withheld = await client.get("/readyz/harvester-reachable")

    assert withheld.body == "internal server error: reason withheld\n"


@pytest.mark.parametrize("path", ["/", "/favicon.ico", "/healthz/", "/metrics/", "/metrics/slis", "/debug/pprof"])
async def test_other_paths_do_not_exist(scene: RunningServer, path: str) -> None:
    assert (await scene.client.get(path, token="friend")).status == 404
    assert scene.gate.asked == []


async def test_only_reading_is_served(scene: RunningServer) -> None:
    head = await scene.client.get("/healthz", method="HEAD")
    assert (head.status, head.body, head.headers["content-length"]) == (200, "", "2")
    assert (await scene.client.get("/metrics", method="POST", token="friend")).status == 405
    assert scene.gate.asked == []


async def test_nonsense_is_a_bad_request(scene: RunningServer) -> None:
    assert (await scene.client.send("nonsense\r\n\r\n")).status == 400
    assert (await scene.client.get("/healthz")).status == 200


async def test_a_connection_serves_one_request(scene: RunningServer) -> None:
    one = f"GET /healthz HTTP/1.1\r\nHost: {HOST}\r\n\r\n"

    reply = await scene.client.send(one * 3)

    assert reply.headers["connection"] == "close"
    assert reply.body == "ok"


@pytest.mark.parametrize("limits", [{"server.CONNECTION_SECONDS": 1.0}], ids=["short"])
async def test_a_caller_who_says_nothing_is_sent_away(scene: RunningServer) -> None:
    reader, writer = await scene.client.open()

    async with asyncio.timeout(5):
        assert await ended(reader)
    writer.close()


@pytest.mark.parametrize("limits", [{"server.CONNECTIONS": 3}], ids=["few"])
async def test_the_oldest_connection_makes_room(scene: RunningServer) -> None:
    idle = [await scene.client.open() for _ in range(3)]

    assert (await scene.client.get("/healthz")).status == 200

    async with asyncio.timeout(5):
        assert await ended(idle[0][0])
    assert not idle[2][0].at_eof()
    for _, writer in idle:
        writer.close()


@pytest.mark.parametrize("said", [b"", b"\x16"], ids=["nothing", "one byte"])
async def test_silent_connections_are_limited(scene: RunningServer, said: bytes) -> None:
    opened = []
    for _ in range(2 * CONNECTIONS):
        reader, writer = await asyncio.open_connection("127.0.0.1", scene.settings.port)
        writer.write(said)
        opened.append((reader, writer))

    assert (await scene.client.get("/healthz")).status == 200

    async with asyncio.timeout(20):
        for reader, _ in opened:
            assert await ended(reader)
    for _, writer in opened:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_malformed_requests_are_not_logged(scene: RunningServer) -> None:
    with capture_logs() as logs:
        for _ in range(20):
            assert (await scene.client.send("GET /healthz HTTP/1.1\r\nContent-Length: no\r\n\r\n")).status == 400
    assert logs == []


@pytest.mark.parametrize("token", ["\udcff\udcfe", "t\u00f6ken"])
async def test_token_that_is_no_text_is_refused_without_a_word(
    serving: ServerSettings, tmp_path: Path, token: str
) -> None:
    guest = MemoryServer()
    reviewer = AccessReviewer(MemoryClient(guest, cluster="guest"))
    client, telemetry = Client(serving.port, tmp_path / "ca.crt"), Telemetry("1.2.3")
    async with https_server(serving, HealthRegistry(), telemetry=telemetry, reviewer=reviewer):
        with capture_logs() as logs:
            reply = await client.get("/metrics", token=token)
    assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
    assert logs == []
    assert guest.calls == []


async def test_request_that_fails_with_an_exception_is_logged(scene: RunningServer) -> None:
    with capture_logs() as logs:
        assert (await scene.client.get("/metrics", token="trouble")).status == 500
    assert [(one["log_level"], one["event"]) for one in logs] == [("error", "request failed")]


@pytest.mark.parametrize("suite", ["ECDHE-ECDSA-AES256-SHA384", "ECDHE-ECDSA-AES256-SHA", "ECDHE-ECDSA-AES128-SHA"])
async def test_no_suite_without_authenticated_encryption_is_served(
    scene: RunningServer, tmp_path: Path, suite: str
) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await speak_1_2(scene.settings.port, tmp_path, suite)
    assert await speak_1_2(scene.settings.port, tmp_path, "ALL") == "ECDHE-ECDSA-AES256-GCM-SHA384"


async def speak_1_2(port: int, directory: Path, suites: str) -> str:
    """Agree on TLS 1.2 with one of these suites and return which."""
    context = ssl.create_default_context(cafile=directory / "ca.crt")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(suites)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=HOST)
    cipher = writer.get_extra_info("cipher")
    writer.close()
    await writer.wait_closed()
    return str(cipher[0])


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


async def test_the_end_of_the_block_ends_open_connections(serving: ServerSettings, tmp_path: Path) -> None:
    client = Client(serving.port, tmp_path / "ca.crt")
    async with https_server(serving, HealthRegistry(), telemetry=Telemetry("1"), reviewer=Gate()):
        reader, writer = await client.open()
    async with asyncio.timeout(5):
        assert await ended(reader)
    writer.close()

    with pytest.raises(ConnectionRefusedError):
        await client.open()


@pytest.mark.parametrize("limits", [{"certificate.LOOK_SECONDS": 0.0}], ids=["eager"])
async def test_a_new_certificate_is_shown_without_a_restart(scene: RunningServer, tmp_path: Path) -> None:
    other = Authority("other", tmp_path / "other")
    pair = other.issue_server("serving", [HOST])
    assert scene.settings.certificate is not None
    assert scene.settings.key is not None
    scene.settings.key.write_bytes(pair.key.read_bytes())
    scene.settings.certificate.write_bytes(pair.certificate.read_bytes())

    with pytest.raises(ssl.SSLCertVerificationError):
        await scene.client.get("/healthz")
    assert (await Client(scene.settings.port, other.ca_file).get("/healthz")).body == "ok"


async def test_a_port_in_use_ends_the_start_with_one_sentence(serving: ServerSettings) -> None:
    with socket.create_server(("127.0.0.1", serving.port)):
        message = rf"^cannot listen on 127\.0\.0\.1:{serving.port}: Address already in use; another process"
        with pytest.raises(ConfigurationError, match=message):
            async with https_server(serving, HealthRegistry(), telemetry=Telemetry("1"), reviewer=Gate()):
                pass


async def test_an_address_of_another_host_ends_the_start(serving: ServerSettings) -> None:
    settings = replace(serving, bind_address="192.0.2.1")

    with pytest.raises(ConfigurationError, match="this host has no such address: set --bind-address"):
        async with https_server(settings, HealthRegistry(), telemetry=Telemetry("1"), reviewer=Gate()):
            pass


async def test_all_addresses_means_both_families(serving: ServerSettings, tmp_path: Path) -> None:
    settings = replace(serving, bind_address="::")
    async with https_server(settings, HealthRegistry(), telemetry=Telemetry("1"), reviewer=Gate()):
        for host in ("127.0.0.1", "::1"):
            assert (await Client(serving.port, tmp_path / "ca.crt", host).get("/livez")).body == "ok"


async def test_a_restart_finds_its_port_free(serving: ServerSettings, tmp_path: Path) -> None:
    for _ in range(2):
        async with https_server(serving, HealthRegistry(), telemetry=Telemetry("1"), reviewer=Gate()):
            assert (await Client(serving.port, tmp_path / "ca.crt").get("/livez")).body == "ok"
