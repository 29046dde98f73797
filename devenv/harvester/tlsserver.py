"""HTTPS servers on loopback that the API server calls, with certificates of their own."""

from __future__ import annotations

import asyncio
import base64
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web

from devenv.pki import Authority


class TlsServer:
    """An HTTPS server that can be stopped and started again on its port."""

    def __init__(self, host: str, routes: Sequence[web.RouteDef]) -> None:
        """``host`` is the name in its certificate."""
        self._host = host
        self._routes = routes
        self._context: ssl.SSLContext | None = None
        self._runner: web.AppRunner | None = None
        self.port = 0
        """Its port; 0 before the first start."""
        self.authority = ""
        """The authority of its certificate, as the base64 text that API objects carry; empty before the first start."""

    async def start(self) -> None:
        """Listen."""
        if self._context is None:
            self._context, self.authority = await asyncio.to_thread(_serving_context, self._host)
        application = web.Application()
        application.add_routes(self._routes)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        options = {"ssl_context": self._context, "reuse_address": True, "reuse_port": True}
        await web.TCPSite(self._runner, "127.0.0.1", self.port, **options).start()  # type: ignore[arg-type]
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening. Can be called again."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


def _serving_context(host: str) -> tuple[ssl.SSLContext, str]:
    with tempfile.TemporaryDirectory(prefix="harvester-") as directory:
        authority = Authority(f"authority of {host}", Path(directory))
        pair = authority.issue_server("serving", (host,))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        return context, base64.b64encode(authority.ca_file.read_bytes()).decode()
