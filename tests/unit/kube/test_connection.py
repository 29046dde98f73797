"""Connections over TLS: one that no other request can use is closed at once, however it ends, in every Python."""

import asyncio
import math
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import aiohttp
import pytest

from devenv.pki import Authority
from harvester_ccm.kube.builtin import NAMESPACES
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.connection import connection_fault, open_session
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.errors import WRITE_TIMEOUT, KubeError, NotTrusted, ProxyFailed, TimedOut, Unreachable
from harvester_ccm.kube.tokens import TokenSource
from tests.apiserver.plugins import printing, running
from tests.support.loopback import open_connections

OBJECT = '{"metadata":{"name":"default","resourceVersion":"1"}}'
EVENT = f'{{"type":"ADDED","object":{OBJECT}}}\n'

SECONDS = 1.0
"""Time limit of what a server never answers. It must not end before the handshake, whose connection is closed later."""
Ending = Callable[[asyncio.StreamWriter], None]
"""What the server does with a connection after its answer."""


def hang(_writer: asyncio.StreamWriter) -> None:
    """Leave the connection as it is."""


def close(writer: asyncio.StreamWriter) -> None:
    """Shut TLS down, then TCP."""
    writer.close()


class Server:
    """Answers each request with the same text, then ends the connection."""

    def __init__(self, answer: str, ending: Ending) -> None:
        self._answer = answer
        self._ending = ending
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self._answer.encode())
            await writer.drain()
            self._ending(writer)
            await reader.read()

    def stop(self) -> None:
        """End the connections that hang."""
        for writer in self._writers:
            writer.transport.abort()


class Serve(Protocol):
    """Starts a server with this answer and ending, and returns a client of it with this time limit."""

    async def __call__(self, answer: str, ending: Ending, seconds: float = 60) -> ApiClient: ...


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Start a server with this answer and ending; return a client of it."""
    authority = Authority("test", tmp_path)
    serving = authority.issue_server("server", ["127.0.0.1"]).server_context()
    trusting = ssl.create_default_context(cafile=authority.ca_file)
    started: list[tuple[Server, asyncio.Server, ApiClient]] = []

    async def start(answer: str, ending: Ending, seconds: float = 60) -> ApiClient:
        server = Server(answer, ending)
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=serving)
        url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        client = ApiClient(Credentials(url, "", trusting, TokenSource(None)), cluster="guest", timeout=seconds)
        started.append((server, listening, client))
        return client

    yield start
    for server, listening, client in started:
        await client.close()
        server.stop()
        listening.close()


async def left_open(client: ApiClient) -> int:
    """Return the number of open connections to the server of a client."""
    # The event loop closes an aborted transport in its next iteration.
    await asyncio.sleep(0)
    return open_connections(client.credentials.server)


async def get(client: ApiClient) -> None:
    await client.get(NAMESPACES, "default")


async def start_watch(client: ApiClient) -> None:
    """Watch until the server has accepted it."""
    watch = client.watch(NAMESPACES, params={"resourceVersion": "1"}, silence=SECONDS)
    async with aclosing(watch) as events:
        async for _event in events:
            return


def answer(*headers: str, body: str = "", status: str = "200 OK") -> str:
    return "\r\n".join((f"HTTP/1.1 {status}", *headers, "", body))


LENGTH = f"Content-Length: {len(OBJECT)}"
ANSWERS = {
    "connection: close": answer(LENGTH, "Connection: close", body=OBJECT),
    "without a length": answer(body=OBJECT),
    "refused without a length": answer(body="{}", status="409 Conflict"),
    "broken in the body": answer(LENGTH, body=OBJECT[:7]),
    "nothing": "",
}


@pytest.mark.parametrize("ending", [hang, close])
@pytest.mark.parametrize("call", [get, start_watch])
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_connection_that_cannot_be_used_again_is_closed_at_once(
    serve: Serve, answer: str, call: Callable[[ApiClient], Awaitable[None]], ending: Ending
) -> None:
    client = await serve(answer, ending, SECONDS if ending is hang else 60)

    with suppress(KubeError):
        await call(client)

    assert await left_open(client) == 0


async def test_connection_that_can_be_used_again_stays_open(serve: Serve) -> None:
    client = await serve(answer(LENGTH, body=OBJECT), hang)

    await get(client)

    assert await left_open(client) == 1


async def test_server_is_verified_by_the_name_in_the_kubeconfig(serve: Serve) -> None:
    client = await serve(answer(LENGTH, body=OBJECT), hang)
    await client.use(replace(client.credentials, tls_server_name="harvester.example.org"))
    with pytest.raises(NotTrusted, match=r"not valid for 'harvester\.example\.org'"):
        await get(client)


async def test_connection_that_takes_too_long_is_no_write_without_a_response() -> None:
    async with open_session(None, reuse=True) as session:
        assert (session.timeout.sock_connect or math.inf) < WRITE_TIMEOUT
    silent = aiohttp.ConnectionTimeoutError()
    found = [connection_fault(silent, limit=10, proxy=proxy)[0] for proxy in (None, "http://192.0.2.1:3128")]
    assert found == [TimedOut, ProxyFailed]


async def test_connection_with_the_token_of_a_plugin_is_for_one_request(serve: Serve, tmp_path: Path) -> None:
    client = await serve(answer(LENGTH, body=OBJECT), hang)
    await client.use(replace(client.credentials, token=running(printing({"token": "a"}), tmp_path)))

    await get(client)

    assert await left_open(client) == 0


@asynccontextmanager
async def open_watch(client: ApiClient) -> AsyncIterator[asyncio.Task[None]]:
    """Yield a task that watches, as soon as it waits for an event."""
    accepted = asyncio.Event()

    async def follow() -> None:
        watch = client.watch(NAMESPACES, params={"resourceVersion": "1"}, silence=60)
        async with aclosing(watch) as events:
            async for _event in events:
                accepted.set()

    task = asyncio.create_task(follow())
    await accepted.wait()
    yield task
    await asyncio.wait((task,))


WATCH = answer("Transfer-Encoding: chunked", body=f"{len(EVENT):x}\r\n{EVENT}\r\n")


async def test_rotated_credential_ends_a_watch(serve: Serve) -> None:
    client = await serve(WATCH, hang)

    async with open_watch(client) as task:
        await client.use(client.credentials)

    assert type(task.exception()) is Unreachable, "and not after a minute of silence"
    assert await left_open(client) == 0


@pytest.mark.kube("Tokens and certificates that are replaced are used without a restart")
async def test_request_that_begins_while_the_credentials_are_replaced_uses_the_new_ones(serve: Serve) -> None:
    """Closing the old connections takes several turns of the event loop, and a pool keeps its authorities."""
    client = await serve(answer(LENGTH, body=OBJECT), hang)
    await get(client)
    without_authority = replace(client.credentials, tls=ssl.create_default_context())

    _, during = await asyncio.gather(client.use(without_authority), get(client), return_exceptions=True)

    assert isinstance(during, NotTrusted)
    with pytest.raises(NotTrusted):
        await get(client)


async def test_stop_ends_a_watch(serve: Serve) -> None:
    client = await serve(WATCH, hang)

    async with open_watch(client) as task:
        await client.close()
        await client.close()

    assert type(task.exception()) is Unreachable, "and not after a minute of silence"
    assert await left_open(client) == 0


async def test_cancelled_watch_leaves_no_connection(serve: Serve) -> None:
    client = await serve(WATCH, hang)

    async with open_watch(client) as task:
        task.cancel()

    assert task.cancelled()
    assert await left_open(client) == 0
