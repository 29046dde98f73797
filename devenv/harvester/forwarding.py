"""The data path of VM load balancers: real listeners on the VIPs, real connections to the backends.

Round robin over the ready endpoints, chosen anew for every connection and datagram. While no endpoint is ready,
connections are accepted and never answered, the nearest to lost packets that one machine offers. Only VIPs on loopback
get listeners.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from devenv.harvester.endpoints import is_ready
from devenv.harvester.routes import Routes
from devenv.listeners import Listeners, Place, Reply
from devenv.watch import Mirror

BLOCK: Final = 64 * 1024
ANSWER_SECONDS: Final = 3.0
"""Longest time for a connection to a backend, and for its answer to a datagram."""
BLACK_HOLE_SECONDS: Final = 60.0
"""Time for which a connection without a backend is kept after its client has sent everything."""

Target = tuple[str, int]


class Forwarding:
    """Listens where a generated Service is announced, and forwards to its backends."""

    def __init__(
        self, services: Mirror, slices: Mirror, routes: Routes, announced: Callable[[], dict[str, set[str]]]
    ) -> None:
        self._services = services
        self._slices = slices
        self._routes = routes
        self._announced = announced
        self._changed = asyncio.Event()
        self._listeners = Listeners()
        self._turns: dict[Place, int] = {}
        services.subscribe(lambda _before, _after: self._changed.set())

    def look(self) -> None:
        """Follow what is announced now."""
        self._changed.set()

    @property
    def listening(self) -> set[Place]:
        """Where connections are accepted."""
        return self._listeners.places

    async def run(self) -> None:
        """Keep listeners in step with the Services until cancelled; then close them and every connection."""
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                wanted = self._wanted()
                for place in self._listeners.places - wanted.keys():
                    self._listeners.close(place)
                for place in wanted:
                    await self._listeners.listen(place, partial(self._carry, place), partial(self._answer, place))
        finally:
            await self._listeners.stop()

    def _wanted(self) -> dict[Place, tuple[str, str]]:
        """Return the listeners that are needed, with the Service and the port name that they serve."""
        wanted = {}
        for address, keys in self._announced().items():
            if not ipaddress.ip_address(address).is_loopback:
                continue
            for key in sorted(keys):
                service = self._services.get(key)
                for port in service["spec"].get("ports") or () if service else ():
                    wanted[address, port.get("protocol", "TCP"), port["port"]] = (key, port.get("name") or "")
        return wanted

    def _target(self, place: Place) -> Target | None:
        """Return the backend of the next connection, or None for the black hole."""
        key, name = self._wanted().get(place, ("", ""))
        entry = self._slices.get(key) or {}
        port = next((p["port"] for p in entry.get("ports") or () if (p.get("name") or "") == name), None)
        ready = [e["addresses"][0] for e in entry.get("endpoints") or () if is_ready(e)]
        if port is None or not ready:
            return None
        turn = self._turns[place] = self._turns.get(place, -1) + 1
        address = self._routes.find(ready[turn % len(ready)])
        return (address, port) if address else None

    async def _carry(self, place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection to a backend and back until one side ends."""
        target = self._target(place)
        try:
            with suppress(OSError, TimeoutError):
                if target is None:
                    while await reader.read(BLOCK):
                        pass
                    await asyncio.sleep(BLACK_HOLE_SECONDS)
                    return
                async with asyncio.timeout(ANSWER_SECONDS):
                    back_reader, back_writer = await asyncio.open_connection(*target)
                try:
                    await asyncio.gather(_copy(reader, back_writer), _copy(back_reader, writer))
                finally:
                    back_writer.transport.abort()
        finally:
            writer.close()

    async def _answer(self, place: Place, data: bytes, reply: Reply) -> None:
        """Send a datagram to a backend, and return its answer. Either can be lost, as datagrams can."""
        target = self._target(place)
        if target is None:
            return
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as backend, suppress(OSError, TimeoutError):
            backend.setblocking(False)
            backend.connect(target)
            async with asyncio.timeout(ANSWER_SECONDS):
                await loop.sock_sendall(backend, data)
                reply(await loop.sock_recv(backend, BLOCK))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(BLOCK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
