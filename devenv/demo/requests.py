"""Real requests to announced addresses."""

from __future__ import annotations

import asyncio
from typing import Final

ANSWER_SECONDS: Final = 30.0
"""How long an address may take to answer after it was announced."""
TRY_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 0.05


async def ask(protocol: str, address: str, port: int) -> str:
    """Return what a TCP port answers to ``GET /``, or a UDP port to a datagram. Raises TimeoutError."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            while (answer := await ask_once(protocol, address, port)) is None:  # noqa: ASYNC110 - a server has no event
                await asyncio.sleep(PAUSE_SECONDS)
    except TimeoutError:
        question = "does another program, or a second demo, use that port?"
        raise TimeoutError(f"{address}:{port}/{protocol} does not answer: {question}") from None
    return answer


async def ask_once(protocol: str, address: str, port: int, *, within: float = TRY_SECONDS) -> str | None:
    """Return what one request is answered with; None when it is not answered, for which it gets so many seconds."""
    answer = await (_ask_tcp if protocol == "TCP" else _ask_udp)(address, port, within)
    return None if answer is None else answer.strip()


async def _ask_tcp(address: str, port: int, within: float) -> str | None:
    try:
        async with asyncio.timeout(within):
            reader, writer = await asyncio.open_connection(address, port)
            try:
                writer.write(f"GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
                answer = (await reader.read()).decode()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    return answer.partition("\r\n\r\n")[2] or None


class _Datagram(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if not self.answer.done():
            self.answer.set_result(data.decode())

    def error_received(self, exc: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(exc)


async def _ask_udp(address: str, port: int, within: float) -> str | None:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(_Datagram, remote_addr=(address, port))
    try:
        transport.sendto(b"hello\n")
        async with asyncio.timeout(within):
            return await protocol.answer
    except (OSError, TimeoutError):
        return None
    finally:
        transport.close()
