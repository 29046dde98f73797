"""Real requests to announced addresses."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

ANSWER_SECONDS: Final = 30.0
"""Timeout from the announcement of an address to its first response."""
TRY_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 0.05


async def ask(protocol: str, address: str, port: int) -> str:
    """Return the response of a TCP port to ``GET /``, or of a UDP port to a datagram. Raises TimeoutError."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            while (answer := await ask_once(protocol, address, port)) is None:  # noqa: ASYNC110 - a server has no event
                await asyncio.sleep(PAUSE_SECONDS)
    except TimeoutError:
        question = "does another process, or a second demo, use that port?"
        raise TimeoutError(f"{address}:{port}/{protocol} does not respond: {question}") from None
    return answer


async def ask_once(protocol: str, address: str, port: int, *, within: float = TRY_SECONDS) -> str | None:
    """Return the response to one request, or None if there is none within this time in seconds."""
    try:
        async with asyncio.timeout(within):
            answer = await (_ask_tcp if protocol == "TCP" else _ask_udp)(address, port)
    except (OSError, TimeoutError):
        return None
    return answer.strip() or None


async def _ask_tcp(address: str, port: int) -> str:
    reader, writer = await asyncio.open_connection(address, port)
    try:
        writer.write(f"GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
        return (await reader.read()).decode().partition("\r\n\r\n")[2]
    finally:
        writer.close()


async def _ask_udp(address: str, port: int) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        client.connect((address, port))
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, b"hello\n")
        return (await loop.sock_recv(client, 2048)).decode()
