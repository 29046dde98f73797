"""Real HTTP requests to announced addresses."""

import asyncio
from typing import Final

ANSWER_SECONDS: Final = 30.0
"""Timeout from the announcement of an address to its first response."""
TRY_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 0.05


async def ask(address: str, port: int) -> str:
    """Return the response to ``GET /``. Raises TimeoutError."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            while (answer := await ask_once(address, port)) is None:  # noqa: ASYNC110 - a server has no event
                await asyncio.sleep(PAUSE_SECONDS)
    except TimeoutError:
        question = "does another process, or a second demo, use that port?"
        raise TimeoutError(f"{address}:{port} does not respond: {question}") from None
    return answer


async def ask_once(address: str, port: int, *, within: float = TRY_SECONDS) -> str | None:
    """Return the response to one request, or None without a response within this time in seconds."""
    try:
        async with asyncio.timeout(within):
            reader, writer = await asyncio.open_connection(address, port)
            try:
                writer.write(f"GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
                answer = (await reader.read()).decode().partition("\r\n\r\n")[2]
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    return answer.strip() or None
