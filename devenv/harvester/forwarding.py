"""The data path of VM load balancers: real listeners on the VIPs, real connections to the backends.

Round robin over the ready endpoints, chosen anew for every connection. While no endpoint is ready, connections are
taken and never answered: the nearest to lost packets that one machine offers. Only VIPs on loopback get listeners.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast

import structlog

from devenv.harvester.endpoints import is_ready
from devenv.harvester.routes import Routes
from devenv.watch import Mirror

BLOCK: Final = 64 * 1024
CONNECT_SECONDS: Final = 3.0
BLACK_HOLE_SECONDS: Final = 60.0
"""How long a connection into the black hole is kept after its client has said all it wanted."""
DATAGRAM_IDLE_SECONDS: Final = 10.0

Place = tuple[str, str, int]
"""Address, protocol and port of a listener."""
Target = tuple[str, int]

log = structlog.get_logger(__name__)


class Forwarding:
    """Listens wherever a generated Service is announced, and forwards to its backends."""

    def __init__(
        self, services: Mirror, slices: Mirror, routes: Routes, announced: Callable[[], dict[str, set[str]]]
    ) -> None:
        self._services = services
        self._slices = slices
        self._routes = routes
        self._announced = announced
        self._changed = asyncio.Event()
        self._servers: dict[Place, asyncio.Server] = {}
        self._datagrams: dict[Place, asyncio.DatagramTransport] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._turns: dict[Place, int] = {}
        services.subscribe(lambda _before, _after: self._changed.set())

    def look(self) -> None:
        """Follow what is announced now."""
        self._changed.set()

    @property
    def listening(self) -> set[Place]:
        """Where connections are taken."""
        return {*self._servers, *self._datagrams}

    async def run(self) -> None:
        """Keep listeners in step with the Services until cancelled; then close them and every connection."""
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                await self._follow()
        finally:
            for place in self.listening:
                self._close(place)
            for task in list(self._connections):
                task.cancel()
            if self._connections:
                await asyncio.wait(self._connections)

    def _wanted(self) -> dict[Place, tuple[str, str]]:
        """Return the listeners that ought to be, with the Service and port name they serve."""
        wanted = {}
        for address, keys in self._announced().items():
            if not ipaddress.ip_address(address).is_loopback:
                continue
            for key in sorted(keys):
                service = self._services.get(key)
                for port in service["spec"].get("ports") or () if service else ():
                    place = (address, port.get("protocol", "TCP"), port["port"])
                    wanted[place] = (key, port.get("name") or "")
        return wanted

    async def _follow(self) -> None:
        wanted = self._wanted()
        for place in self.listening - wanted.keys():
            self._close(place)
        for place in wanted.keys() - self.listening:
            address, protocol, port = place
            try:
                if protocol == "TCP":
                    server = await asyncio.start_server(
                        self._taker(place), address, port, reuse_address=True, start_serving=False
                    )
                    # Known before the next pause: whoever is cancelled there still closes it.
                    self._servers[place] = server
                    await server.start_serving()
                elif protocol == "UDP":
                    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                        lambda place=place: _Front(lambda: self._target(place)),  # type: ignore[misc]  # mypy cannot infer a lambda with a default
                        local_addr=(address, port),
                    )
                    self._datagrams[place] = transport
            except OSError as error:
                log.warning("no listener on the VIP", address=address, port=port, error=str(error))

    def _close(self, place: Place) -> None:
        server = self._servers.pop(place, None)
        if server is not None:
            server.close()
        transport = self._datagrams.pop(place, None)
        if transport is not None:
            transport.close()

    def _target(self, place: Place) -> Target | None:
        """Return where the next connection goes, or None for the black hole."""
        key, name = self._wanted().get(place, ("", ""))
        entry = self._slices.get(key)
        if entry is None:
            return None
        port = next((p["port"] for p in entry.get("ports") or () if (p.get("name") or "") == name), None)
        ready = [e["addresses"][0] for e in entry.get("endpoints") or () if is_ready(e)]
        if port is None or not ready:
            return None
        turn = self._turns.get(place, 0)
        self._turns[place] = turn + 1
        address = self._routes.find(ready[turn % len(ready)])
        return (address, port) if address else None

    def _taker(self, place: Place) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], asyncio.Future[None]]:
        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> asyncio.Task[None]:
            work = _carry(reader, writer, self._target(place))
            task = asyncio.create_task(work, name=f"connection-{place}")
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
            return task

        return take


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: Target | None) -> None:
    """Carry one connection to its target and back until one side is done."""
    try:
        with suppress(OSError, TimeoutError):
            if target is None:
                while await reader.read(BLOCK):
                    pass
                await asyncio.sleep(BLACK_HOLE_SECONDS)
                return
            async with asyncio.timeout(CONNECT_SECONDS):
                back_reader, back_writer = await asyncio.open_connection(*target)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_copy(reader, back_writer))
                    group.create_task(_copy(back_reader, writer))
            finally:
                back_writer.transport.abort()
    finally:
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(BLOCK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


class _Front(asyncio.DatagramProtocol):
    """The VIP's side of a UDP port: one backend socket per client, closed after a silent while."""

    def __init__(self, target: Callable[[], Target | None]) -> None:
        self._target = target
        self._transport: asyncio.DatagramTransport | None = None
        self._clients: dict[tuple[str, int], _Back] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The event loop's own class is no DatagramTransport before Python 3.12.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        for back in list(self._clients.values()):
            back.close()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        back = self._clients.get(addr)
        if back is None:
            target = self._target()
            if target is None or self._transport is None:
                return
            back = _Back(self._transport, addr, lambda: self._clients.pop(addr, None))
            self._clients[addr] = back
            back.open(target)
        back.send(data)


class _Back:
    """One client's socket towards its backend."""

    def __init__(self, front: asyncio.DatagramTransport, client: tuple[str, int], closed: Callable[[], object]) -> None:
        self._front = front
        self._client = client
        self._closed = closed
        self._socket: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None

    def open(self, target: Target) -> None:
        """Connect to the backend. A datagram socket connects at once."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.connect(target)
        asyncio.get_running_loop().add_reader(self._socket, self._answer)

    def send(self, data: bytes) -> None:
        """Forward one datagram; it may get lost, as datagrams may."""
        if self._socket is not None:
            self._stay()
            with suppress(OSError):
                self._socket.send(data)

    def close(self) -> None:
        """Forget the client."""
        self._closed()
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _answer(self) -> None:
        if self._socket is None:
            return
        with suppress(OSError):
            self._front.sendto(self._socket.recv(BLOCK), self._client)
            self._stay()

    def _stay(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(DATAGRAM_IDLE_SECONDS, self.close)
