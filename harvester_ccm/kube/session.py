"""The connections of one client to its API server, none of which outlives it, and what went wrong with one."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import ssl
import weakref
from asyncio import sslproto
from typing import Final

import aiohttp

from harvester_ccm import __version__
from harvester_ccm.errors import ConnectionRefused, HostUnknown, NotTrusted, OutOfTime, Unreachable

AGENT: Final = "harvester-ccm"
"""Name of this program in requests; API servers keep it as the manager of the fields that it writes."""
_OUT_OF_TIME: Final = (9, 10)
"""What OpenSSL calls X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""
_LOOKS: Final = 500
"""So often it is looked whether the event loop has taken notice that its sockets have ended."""
_PAUSE: Final = 0.002
"""Seconds between two looks."""


sslproto.SSLProtocol.max_size = 32 * 1024
"""Of the buffer that asyncio holds for as long as a TLS connection is open: it makes one of 256 KiB, of which a record
fills 16."""


class Session:
    """A pool of connections with the same credentials.

    A request that is given up closes its connection in the manner of TLS, which waits for the server's farewell for up
    to half a minute. aiohttp does not know of such a connection any more, so the sockets are remembered here.
    """

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        """``tls`` is None for plain http; a proxy that is asked over https is verified all the same."""
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self.http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                # aiohttp's own context trusts nobody, see this package.
                ssl=tls if tls is not None else _trusting_the_system(),
                limit=0,
                ttl_dns_cache=30,
                socket_factory=self._open,
            ),
            headers={"User-Agent": f"{AGENT}/{__version__}", "Accept": "application/json"},
            # Limits are set around whole calls. The environment's proxy is in the credentials: aiohttp would look
            # for it, and for a netrc file, in two threads per request.
            timeout=aiohttp.ClientTimeout(total=None),
            trust_env=False,
            read_bufsize=256 * 1024,
            skip_auto_headers={"Accept-Encoding"},
        )
        """What sends the requests."""

    async def close(self) -> None:
        """End all connections and return when they are closed."""
        await self.http.close()
        for one in self._left():
            with contextlib.suppress(OSError):  # not connected yet, or not any more
                one.shutdown(socket.SHUT_RDWR)
        for _ in range(_LOOKS):
            if not self._left():
                break
            await asyncio.sleep(_PAUSE)

    def _open(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address
        opened = socket.socket(family, kind, protocol)
        self._sockets.add(opened)
        return opened

    def _left(self) -> list[socket.socket]:
        return [one for one in self._sockets if one.fileno() >= 0]


@functools.cache
def _trusting_the_system() -> ssl.SSLContext:
    return ssl.create_default_context()


def connection_fault(error: BaseException, *, limit: float) -> tuple[type[Unreachable], str]:
    """Return the class of a failed connection, as each has another remedy, and what to say of it in part of a sentence.

    ``limit`` is the time in seconds it was given. Nothing of a request or of a credential is in the words.
    """
    # What is wrong with a proxy says nothing about the server.
    kind: type[Unreachable] = NotTrusted if isinstance(error, ssl.SSLError | aiohttp.ClientSSLError) else Unreachable
    match error:
        case aiohttp.ClientConnectorCertificateError(certificate_error=why):
            is_late = isinstance(why, ssl.SSLCertVerificationError) and why.verify_code in _OUT_OF_TIME
            kind = OutOfTime if is_late else NotTrusted
            text = f"the server's certificate is not trusted: {getattr(why, 'verify_message', '') or why}"
        case aiohttp.ClientConnectorDNSError():
            kind, text = HostUnknown, "the host name cannot be resolved"
        case aiohttp.ClientProxyConnectionError():
            text = f"connection to the proxy failed: {_reason_of(error.os_error)}"
        case aiohttp.ClientConnectorError():
            kind = ConnectionRefused if isinstance(error.os_error, ConnectionRefusedError) else kind
            text = f"connection failed: {_reason_of(error.os_error)}"
        case aiohttp.ClientHttpProxyError():
            text = f"the proxy refused the connection: HTTP status {error.status}"
        case TimeoutError():
            text = f"no answer within {limit:g} s"
        case _:
            text = f"connection broken: {error.__class__.__name__}"
    return kind, text


def _reason_of(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"no TLS with this server: {(error.reason or error.__class__.__name__).replace('_', ' ').lower()}"
    # The event loop puts the address in the place of the system's own words.
    return os.strerror(error.errno) if error.errno else error.__class__.__name__
