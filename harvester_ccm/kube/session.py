"""The connections of one client to its API server, and the error of a connection that failed."""

from __future__ import annotations

import os
import ssl
from asyncio import sslproto
from typing import Any, Final

import aiohttp

from harvester_ccm import __version__
from harvester_ccm.errors import ConnectionRefused, HostUnknown, NotTrusted, OutOfTime, Unreachable

AGENT: Final = "harvester-ccm"
"""Name of this program in requests; API servers keep it as the manager of the fields that it writes."""
CONNECT_TIMEOUT: Final = 10.0
"""Seconds for a TCP connection; writes wait longer than that for their response."""
_OUT_OF_TIME: Final = (9, 10)
"""What OpenSSL calls X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""

# asyncio keeps a buffer of 256 KiB for each open TLS connection; a TLS record has 16 KiB.
sslproto.SSLProtocol.max_size = 16 * 1024


class _Response(aiohttp.ClientResponse):
    """A response that aborts its connection if it ends before its body was read.

    aiohttp would begin a TLS shutdown instead. A server that hangs delays it by 30 s, and ``close`` of the session
    does not wait for it.
    """

    def close(self) -> None:
        """Abort the connection, which the response has until its body was read."""
        if self.connection is not None and self.connection.transport is not None:
            self.connection.transport.abort()
        super().close()

    def release(self) -> Any:
        """Abort the connection: a connection that can be used again was released with the end of the body."""
        self.close()
        return super().release()


def open_session(tls: ssl.SSLContext | None) -> aiohttp.ClientSession:
    """Return a pool of connections with the same credentials; close it after use.

    ``tls`` is None for plain http; an https proxy is verified all the same.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls if tls is not None else True, limit=0, ttl_dns_cache=30),
        headers={"User-Agent": f"{AGENT}/{__version__}", "Accept": "application/json"},
        # Limits are set around whole calls. The environment's proxy is in the credentials: aiohttp would look
        # for it, and for a netrc file, in two threads per request.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
        trust_env=False,
        response_class=_Response,
        skip_auto_headers={"Accept-Encoding"},
    )


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
