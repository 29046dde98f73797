"""A watch is a stream of JSON documents, one on a line, that come with long pauses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import aiohttp

from harvester_ccm.errors import Unreachable, WatchSilent

READ_LIMIT: Final = 4 * 1024 * 1024
"""Largest watch event that is accepted, in bytes."""


async def watch_lines(stream: aiohttp.StreamReader, silence: float) -> AsyncIterator[bytes]:
    """Yield complete lines; raise WatchSilent after ``silence`` seconds without any byte."""
    pending = bytearray()
    while True:
        try:
            async with asyncio.timeout(silence):
                chunk = await stream.readany()
        except TimeoutError:
            raise WatchSilent(f"watch silent for {silence:g} s") from None
        if not chunk:
            return
        pending += chunk
        if len(pending) > READ_LIMIT:
            raise Unreachable("watch event larger than accepted")
        while (end := pending.find(b"\n")) >= 0:
            line = bytes(pending[:end])
            del pending[: end + 1]
            if line.strip():
                yield line
