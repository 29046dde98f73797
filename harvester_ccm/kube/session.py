"""Connection pool of a client to its API server, and the errors of failed connections."""

from __future__ import annotations

import os
import ssl
from asyncio import sslproto
from typing import Any, Final

import aiohttp

from harvester_ccm import __version__
from harvester_ccm.errors import CertificateNotValid, ConnectionRefused, HostUnknown, NotTrusted, Unreachable

AGENT: Final = "harvester-ccm"
"""User agent; API servers record it as the manager of the fields that this controller writes."""
CONNECT_TIMEOUT: Final = 10.0
"""Time limit for a TCP connection in seconds; writes wait longer for their response."""
_OUT_OF_TIME: Final = (9, 10)
"""OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""

# By default, asyncio allocates 256 KiB for each open TLS connection; a TLS record has at most 16 KiB.
sslproto.SSLProtocol.max_size = 16 * 1024


class _Response(aiohttp.ClientResponse):
    """A response that aborts its connection if it is closed before its body was read.

    aiohttp would start a TLS shutdown, which a server that hangs delays by 30 s and ``close`` of the session does not
    wait for.
    """

    def close(self) -> None:
        """Abort the connection; after the body was read, the response has none."""
        if self.connection is not None and self.connection.transport is not None:
            self.connection.transport.abort()
        super().close()

    def release(self) -> Any:
        """Abort the connection: a reusable connection was released at the end of the body."""
        self.close()
        return super().release()


def open_session(tls: ssl.SSLContext | None) -> aiohttp.ClientSession:
    """Return a connection pool; the caller closes it.

    ``tls`` is None for plain http; the certificate of an https proxy is verified in any case.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls if tls is not None else True, limit=0, ttl_dns_cache=30),
        headers={"User-Agent": f"{AGENT}/{__version__}", "Accept": "application/json"},
        # The callers set time limits around whole calls. The credentials contain the proxy of the environment:
        # with trust_env, aiohttp reads it and a netrc file in two threads for every request.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
        trust_env=False,
        response_class=_Response,
        skip_auto_headers={"Accept-Encoding"},
    )


def connection_fault(error: BaseException, *, limit: float) -> tuple[type[Unreachable], str]:
    """Return the error class of a failed connection, which determines the remedy, and the message without the server.

    ``limit`` is the time limit in seconds. The message contains no part of a request or credential.
    """
    # The error of a proxy is never a HostUnknown or ConnectionRefused: these are about the server.
    kind: type[Unreachable] = NotTrusted if isinstance(error, ssl.SSLError | aiohttp.ClientSSLError) else Unreachable
    match error:
        case aiohttp.ClientConnectorCertificateError(certificate_error=why):
            is_late = isinstance(why, ssl.SSLCertVerificationError) and why.verify_code in _OUT_OF_TIME
            kind = CertificateNotValid if is_late else NotTrusted
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
    # The event loop replaces the message of the operating system by the address.
    return os.strerror(error.errno) if error.errno else error.__class__.__name__
