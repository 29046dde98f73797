"""Servers next to a test: none leaves a connection behind."""

import asyncio

from aiohttp import web

from devenv.background import closed


async def test_closed_server_has_no_connection() -> None:
    async def answer(_request: web.BaseRequest) -> web.Response:
        return web.Response()

    http = web.Server(answer)
    server = await asyncio.get_running_loop().create_server(http, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readline()
    assert len(http.connections) == 1
    await closed(server, http)
    assert http.connections == []
    writer.close()
