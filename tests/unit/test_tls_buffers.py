"""The memory of a TLS connection, which asyncio has no public setting for."""

import asyncio
import ssl
import tracemalloc
from asyncio import sslproto
from pathlib import Path

import pytest

from devenv.pki import Authority
from harvester_ccm.app import limit_tls_buffers

KIB = 1024


async def allocated_by_a_connection(directory: Path) -> int:
    """Return the bytes that both ends of a TLS connection hold in buffers."""
    authority = Authority("test", directory)
    serving = authority.issue_server("server", ["127.0.0.1"]).server_context()
    trusting = ssl.create_default_context(cafile=authority.ca_file)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(1))
        await reader.read()
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0, ssl=serving) as server:
        port = server.sockets[0].getsockname()[1]
        tracemalloc.start()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
            writer.write(b"x")
            await reader.readexactly(1)
            snapshot = tracemalloc.take_snapshot()
        finally:
            tracemalloc.stop()
        writer.close()
        await writer.wait_closed()
    buffers = snapshot.filter_traces([tracemalloc.Filter(True, sslproto.__file__)])
    return sum(trace.size for trace in buffers.traces)


async def test_tls_connection_has_small_buffers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", sslproto.SSLProtocol.max_size)
    assert await allocated_by_a_connection(tmp_path) > 400 * KIB

    limit_tls_buffers()

    assert await allocated_by_a_connection(tmp_path) < 64 * KIB
