"""The fence where the bytes of a write leave the process: it can be stopped between the check of the Lease and that."""

import asyncio
import math
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import pytest

from devenv.pki import Authority
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.errors import KubeError
from harvester_ccm.kube.fence import NotLeading, WriteFence
from harvester_ccm.kube.tokens import TokenSource
from harvester_ccm.model.core import SERVICES

T = TypeVar("T")

BURST: Final = 5
"""Writes that begin in one round of the event loop, as of the workers of a controller."""
ROUNDS: Final = 60
"""Rounds of the event loop after which every write of a burst has been sent."""
SETTLED: Final = 300
"""Rounds of the event loop after which nothing more happens by itself."""
ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class Wire:
    """A server that reads and responds only when it is told to: what it has not read is in the kernel."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._listener.setblocking(False)
        self._connections: list[socket.socket] = []
        self.received = bytearray()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def read(self) -> bytes:
        """Read what the clients have handed to the kernel until now; return everything so far."""
        while (accepted := _now(self._listener.accept)) is not None:
            accepted[0].setblocking(False)
            self._connections.append(accepted[0])
        for connection in self._connections:
            while chunk := _now(partial(connection.recv, 1 << 16)):
                self.received += chunk
        return bytes(self.received)

    @property
    def writes(self) -> int:
        """Number of the writes that have arrived."""
        return self.read().count(b"PATCH /api/v1/")

    def respond(self) -> None:
        for connection in self._connections:
            connection.sendall(ANSWER)

    def close(self) -> None:
        for one in (self._listener, *self._connections):
            one.close()


def _now(call: Callable[[], T]) -> T | None:
    """Return what a call returns that does not wait; None if there is nothing yet."""
    try:
        return call()
    except (BlockingIOError, ConnectionResetError):
        return None


@asynccontextmanager
async def wired(fence: WriteFence) -> AsyncIterator[tuple[Wire, ApiClient]]:
    """A client that holds the Lease, and the other end of its connections."""
    wire = Wire()
    client = ApiClient(Credentials(wire.url, "default", None, TokenSource("token")), cluster="guest", fence=fence)
    try:
        async with client:
            yield wire, client
    finally:
        wire.close()


async def rounds(number: int) -> None:
    """Let the other tasks run this many times."""
    for _ in range(number):
        await asyncio.sleep(0)


async def write(client: ApiClient, text: str = "") -> None:
    """Send a write whatever becomes of it."""
    body = {"metadata": {"annotations": {"text": text}}}
    with suppress(KubeError, NotLeading):
        await client.merge_patch(SERVICES, "web", body, namespace="default")


async def end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel writes without a response."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@pytest.mark.guarantee("No write is sent without the Lease")
@pytest.mark.kube(
    "No write is sent after the renew deadline of the Lease, also not by a process that was stopped meanwhile"
)
@pytest.mark.parametrize("connections", ["new", "open"])
async def test_leader_that_is_stopped_in_a_burst_sends_no_write_when_it_goes_on(connections: str) -> None:
    sent = set()
    for passed in range(ROUNDS):
        fence = WriteFence()
        async with wired(fence) as (wire, client):
            before = 0
            if connections == "open":
                before = await open_connections(wire, client)
            tasks = [asyncio.create_task(write(client)) for _ in range(BURST)]
            await rounds(passed)
            sent_before = wire.writes - before
            # A process that goes on after its Lease has expired: only the time has changed.
            fence.deadline = -math.inf
            await rounds(SETTLED)
            assert wire.writes - before == sent_before, f"stopped after {passed} rounds of the event loop"
            sent.add(sent_before)
            await end(tasks)
    assert {0, BURST} <= sent, "the burst did not begin, or did not end"


async def test_write_that_the_fence_stops_is_no_failure_of_the_server() -> None:
    """Else a process that does not lead reports that the server cannot be reached."""
    fence = WriteFence()
    async with wired(fence) as (wire, client):
        body = {"metadata": {"annotations": {"text": "x"}}}
        task = asyncio.create_task(client.merge_patch(SERVICES, "web", body, namespace="default"))
        await rounds(2)
        assert wire.writes == 0
        fence.deadline = -math.inf
        with pytest.raises(NotLeading):
            await task


async def open_connections(wire: Wire, client: ApiClient) -> int:
    """Make a burst and respond to it; return the number of its writes. The connections go back to the pool."""
    tasks = [asyncio.create_task(write(client)) for _ in range(BURST)]
    await rounds(ROUNDS)
    assert wire.writes == BURST
    wire.respond()
    await asyncio.wait(tasks)
    return BURST


@pytest.mark.guarantee("No write is sent without the Lease")
@pytest.mark.kube(
    "No write is sent after the renew deadline of the Lease, also not by a process that was stopped meanwhile"
)
@pytest.mark.filterwarnings("ignore:Sending a large body")
async def test_rest_of_a_write_that_the_kernel_has_not_taken_is_not_sent() -> None:
    fence = WriteFence()
    async with wired(fence) as (wire, client):
        text = "x" * (32 << 20)
        task = asyncio.create_task(write(client, text))
        await rounds(SETTLED)
        fence.deadline = -math.inf
        for _ in range(SETTLED):
            wire.read()
            await asyncio.sleep(0)
        assert b"PATCH " in wire.received
        assert len(wire.received) < len(text)
        await end([task])


@pytest.mark.guarantee("No write is sent without the Lease")
@pytest.mark.kube(
    "No write is sent after the renew deadline of the Lease, also not by a process that was stopped meanwhile"
)
async def test_write_whose_handshake_ends_after_the_deadline_is_not_sent(tmp_path: Path) -> None:
    authority = Authority("slow", tmp_path)
    pair = authority.issue_server("server", ["127.0.0.1"])
    accepted = threading.Event()
    goes_on = threading.Event()

    def serve(listener: socket.socket) -> bytes:
        connection, _ = listener.accept()
        accepted.set()
        goes_on.wait()
        try:
            with pair.server_context().wrap_socket(connection, server_side=True) as secure:
                return secure.recv(1 << 16)
        except OSError:
            return b""

    fence = WriteFence()
    trust = ssl.create_default_context(cafile=authority.ca_file)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        server = asyncio.create_task(asyncio.to_thread(serve, listener))
        credentials = Credentials(url, "default", trust, TokenSource("token"))
        async with ApiClient(credentials, cluster="guest", fence=fence) as client:
            task = asyncio.create_task(write(client))
            await asyncio.to_thread(accepted.wait)
            fence.deadline = -math.inf
            goes_on.set()
            assert await server == b""
            await task


async def test_pieces_of_a_write_are_not_sent_after_the_deadline() -> None:
    fence, kind = WriteFence(shut=True), (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("", 0))
    with fence.open_socket(kind) as one, pytest.raises(ConnectionAbortedError):
        one.sendmsg([b"x"])
