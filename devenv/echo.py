"""Small servers on announced addresses that say which Service was reached."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable
from typing import Final, cast

import structlog

READ_LIMIT: Final = 64 * 1024
QUESTION_SECONDS: Final = 5.0
"""How long a connection may stay without a question."""

log = structlog.get_logger(__name__)


class EchoServers:
    """One server per (address, protocol, port). TCP ports answer any HTTP request, UDP ports any datagram, with
    the key of the Service. Addresses that are not on loopback are left alone."""

    def __init__(self) -> None:
        self._tcp: dict[tuple[str, int], asyncio.Server] = {}
        self._udp: dict[tuple[str, int], asyncio.DatagramTransport] = {}

    async def open(self, service: str, address: str, ports: Iterable[tuple[str, int]]) -> None:
        """Answer for the Service on the given (protocol, port) pairs; those already open stay as they are."""
        if not ipaddress.ip_address(address).is_loopback:
            return
        for protocol, port in ports:
            try:
                if protocol == "TCP" and (address, port) not in self._tcp:
                    answerer = _Answerer(service)
                    server = await asyncio.start_server(
                        answerer.answer, address, port, reuse_address=True, limit=READ_LIMIT, start_serving=False
                    )
                    # Known before the next pause: whoever is cancelled there still closes it.
                    self._tcp[address, port] = server
                    await server.start_serving()
                elif protocol == "UDP" and (address, port) not in self._udp:
                    loop = asyncio.get_running_loop()
                    transport, _ = await loop.create_datagram_endpoint(
                        lambda: _Datagrams(service), local_addr=(address, port)
                    )
                    self._udp[address, port] = transport
            except OSError as error:
                log.warning("no server on the announced address", address=address, port=port, error=str(error))

    def close(self, address: str | None = None) -> None:
        """Stop answering on the address, or on all. Connections that are open are not cut."""
        for place in [place for place in self._tcp if address in (None, place[0])]:
            self._tcp.pop(place).close()
        for place in [place for place in self._udp if address in (None, place[0])]:
            self._udp.pop(place).close()


class _Answerer:
    def __init__(self, service: str) -> None:
        self._body = f"{service}\n".encode()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(QUESTION_SECONDS):
                await reader.readuntil(b"\r\n\r\n")
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(self._body)}\r\n"
            writer.write(head.encode() + b"Connection: close\r\n\r\n" + self._body)
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            log.debug("connection without a request")
        finally:
            writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, service: str) -> None:
        self._body = f"{service}\n".encode()
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The event loop's own class is no DatagramTransport before Python 3.12.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if self._transport is not None:
            self._transport.sendto(self._body, addr)
