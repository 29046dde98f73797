"""Small servers on announced addresses that answer with the name of the Service, or of the node, that was reached."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable
from functools import partial
from typing import Final

from devenv.listeners import Listeners, Reply

REQUEST_SECONDS: Final = 5.0
"""Time for which a connection can stay without a request."""


class EchoServers:
    """TCP ports answer any HTTP request, UDP ports any datagram. Addresses that are not on loopback are ignored."""

    def __init__(self) -> None:
        self._listeners = Listeners()

    async def open(self, name: str, address: str, ports: Iterable[tuple[str, int]]) -> None:
        """Answer with ``name`` on the (protocol, port) pairs; those that are open stay as they are."""
        if ipaddress.ip_address(address).is_loopback:
            body = f"{name}\n".encode()
            for protocol, port in ports:
                await self._listeners.listen((address, protocol, port), partial(_http, body), partial(_datagram, body))

    def close(self, address: str | None = None) -> None:
        """Stop answering on the address, or on all."""
        for place in self._listeners.places:
            if address in (None, place[0]):
                self._listeners.close(place)


async def _http(body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            await reader.readuntil(b"\r\n\r\n")
        head = (
            f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return
    finally:
        writer.close()


async def _datagram(body: bytes, _data: bytes, reply: Reply) -> None:
    reply(body)
