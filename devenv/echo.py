"""Small HTTP servers on announced addresses and node ports that respond with the name of the Service or of the node."""

import asyncio
import ipaddress
from collections.abc import Iterable
from functools import partial
from typing import Final

import structlog

from devenv.background import end_listening

REQUEST_SECONDS: Final = 5.0
"""Timeout of a connection without a request."""

log = structlog.get_logger(__name__)


class EchoServers:
    """TCP ports respond to any HTTP request. UDP ports, and addresses that are not on loopback, are ignored."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, int], asyncio.Server] = {}

    async def open(self, name: str, address: str, ports: Iterable[tuple[str, int]]) -> None:
        """Respond with ``name`` on the (protocol, port) pairs. A port of another process is logged."""
        body = f"{name}\n".encode()
        for protocol, port in ports:
            is_open = (address, port) in self._servers
            if is_open or protocol != "TCP" or not ipaddress.ip_address(address).is_loopback:
                continue
            try:
                server = await asyncio.start_server(
                    partial(_respond, body), address, port, reuse_address=True, start_serving=False
                )
                # Stored before the next await, so that a cancellation there closes it.
                self._servers[address, port] = server
                await server.start_serving()
            except OSError as error:
                log.warning("cannot listen", address=address, port=port, error=str(error))

    def close(self, address: str) -> None:
        """Stop listening on the address."""
        for place in [place for place in self._servers if place[0] == address]:
            self._servers.pop(place).close()

    async def end(self) -> None:
        """Stop listening on all addresses."""
        for server in self._servers.values():
            await end_listening(server)
        self._servers.clear()


async def _respond(body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
