"""Servers on loopback addresses that come and go: TCP and UDP ports by place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

Place = tuple[str, str, int]
"""Address, protocol and port."""
Work = Coroutine[Any, Any, None]
Reply = Callable[[bytes], None]
READ_LIMIT: Final = 64 * 1024

log = structlog.get_logger(__name__)


class Listeners:
    """Listens on places; connections and datagrams become tasks."""

    def __init__(self) -> None:
        self._open: dict[Place, asyncio.Server | asyncio.BaseTransport] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def places(self) -> set[Place]:
        """Where something listens."""
        return set(self._open)

    async def listen(
        self,
        place: Place,
        carry: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Work],
        answer: Callable[[bytes, Reply], Work],
    ) -> None:
        """Listen on a place, unless something does. ``carry`` handles a connection, ``answer`` a datagram.

        A place that is taken by another program is logged.
        """
        address, protocol, port = place
        if place in self._open:
            return
        try:
            if protocol == "TCP":
                server = await asyncio.start_server(
                    lambda reader, writer: self._start(carry(reader, writer)),
                    address,
                    port,
                    reuse_address=True,
                    limit=READ_LIMIT,
                    start_serving=False,
                )
                # Known before the next pause, so that a cancellation there still closes it.
                self._open[place] = server
                await server.start_serving()
            elif protocol == "UDP":
                self._open[place], _ = await asyncio.get_running_loop().create_datagram_endpoint(
                    lambda: _Datagrams(lambda data, reply: self._start(answer(data, reply))),
                    local_addr=(address, port),
                )
        except OSError as error:
            log.warning("cannot listen", place=place, error=str(error))

    def close(self, place: Place) -> None:
        """Stop listening on a place. Connections that are open are not cut."""
        self._open.pop(place).close()

    async def stop(self) -> None:
        """Stop listening everywhere, and cut all connections."""
        for place in self.places:
            self.close(place)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Work) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, received: Callable[[bytes, Reply], None]) -> None:
        self._received = received
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._received(data, lambda reply: self._transport.sendto(reply, addr))
