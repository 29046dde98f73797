"""Who connects to the program's port and says nothing, and how long a probe waits meanwhile.

A process of its own opens the connections, so that the one that measures is not busy with them.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import sys
from contextlib import ExitStack
from typing import Final

import aiohttp

PROBES: Final = 20
PAUSE_SECONDS: Final = 0.05
PROBE_SECONDS: Final = 30.0


async def slowest_probe(port: int, *, strangers: int) -> float:
    """Return the longest time in seconds that /livez took while so many connections were opened and kept."""
    words = [sys.executable, "-m", "benchmarks.strangers", str(port), str(strangers)]
    process = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.PIPE)
    try:
        return max([await _probe(port) for _ in range(PROBES)])
    finally:
        if process.stdin is not None:
            process.stdin.close()
        await process.wait()


async def _probe(port: int) -> float:
    """Return how long one took, its own connection included, as the kubelet's have."""
    loop = asyncio.get_running_loop()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    began = loop.time()
    timeout = aiohttp.ClientTimeout(total=PROBE_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        async with session.get(f"https://127.0.0.1:{port}/livez", ssl=tls) as response:
            await response.read()
        seconds = loop.time() - began
    await asyncio.sleep(PAUSE_SECONDS)
    return seconds


def connect(port: int, count: int) -> None:
    """Open the connections and keep them until the standard input ends; the other side may close them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 64
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    with ExitStack() as stack:
        for _ in range(count):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        sys.stdin.read()


if __name__ == "__main__":
    connect(int(sys.argv[1]), int(sys.argv[2]))
