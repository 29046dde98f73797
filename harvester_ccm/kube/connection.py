"""Connections: the pool of a client, certificates and their files, and errors of failed connections."""

import os
import ssl
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

import aiohttp
from aiohttp.connector import Connection

from harvester_ccm.kube import errors

CONNECT_TIMEOUT: Final = 10.0
"""Time limit for a TCP connection in seconds; writes wait longer for their response."""
_OUT_OF_TIME: Final = (9, 10)
"""OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""


class Response(aiohttp.ClientResponse):
    """A response that aborts its connection unless another request can use it.

    aiohttp would start a TLS shutdown, which a server that hangs delays by 30 s and ``close`` of the session does not
    wait for. It does so if the body was not read, after ``Connection: close``, and in a pool that reuses none. The
    connection is aborted before that: asyncio does not abort a connection whose shutdown began.
    """

    reusable = True
    """Whether another request can use the connection after the end of the body."""

    async def start(self, connection: Connection) -> Self:
        """Read the head of the response, and the body if both arrive together: the connection is released then."""
        connection.add_callback(partial(self._abort_unless_reusable, connection))
        await super().start(connection)
        return self

    def close(self) -> None:
        """Abort the connection unless it went back to the pool at the end of the body."""
        self.reusable = False
        super().close()

    def _abort_unless_reusable(self, connection: Connection) -> None:
        """Abort a connection that aiohttp is about to close. It has no transport if the server has closed it."""
        handler = connection.protocol
        if handler is None or handler.transport is None:
            return
        if handler.should_close or not self.reusable:
            handler.transport.abort()


class OnlyResponse(Response):
    """The response of a connection that no other request can use."""

    reusable = False


def open_session(
    tls: ssl.SSLContext | None,
    *,
    reuse: bool,
    user_agent: str = "",
    open_socket: aiohttp.SocketFactoryType | None = None,
) -> aiohttp.ClientSession:
    """Return a connection pool, which the caller closes. Without ``reuse``, each request opens a connection.

    ``tls`` is None for plain http; the certificate of an https proxy is verified in any case.
    """
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    if user_agent:
        headers["User-Agent"] = user_agent
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            ssl=tls or True, limit=0, ttl_dns_cache=30, force_close=not reuse, socket_factory=open_socket
        ),
        headers=headers,
        # No API server sets cookies. The cookies of a proxy would be sent with every request until the restart.
        cookie_jar=aiohttp.DummyCookieJar(),
        # A compressed response was not requested: it is unreadable, instead of 300 MiB from 300 KB of gzip.
        auto_decompress=False,
        # The callers set time limits around whole calls. The credentials contain the proxy of the environment:
        # with trust_env, aiohttp reads it and a netrc file in two threads for every request.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
        trust_env=False,
        response_class=Response if reuse else OnlyResponse,
    )


def load_certificate(context: ssl.SSLContext, pem: bytes) -> None:
    """Use a certificate with its unencrypted key in a TLS context. Raises OSError; ssl.SSLError is a subclass.

    OpenSSL reads certificates only from files: an anonymous file in memory never touches a disk.
    """
    with open(os.memfd_create("certificate"), "wb") as stream:
        stream.write(pem)
        stream.flush()
        # Without a password function, OpenSSL prompts on the terminal for the password of an encrypted key.
        context.load_cert_chain(f"/proc/self/fd/{stream.fileno()}", password=lambda: b"")


def read_bytes(path: Path) -> bytes:
    """Return the contents of a file. Raises CredentialError."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        # ValueError: a path in a file can contain a null character.
        raise errors.CredentialError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def read_all(paths: Iterable[Path]) -> dict[Path, bytes]:
    """Return the contents of files; empty for a file that cannot be read. Raises nothing."""
    contents = dict.fromkeys(paths, b"")
    for path in contents:
        with suppress(errors.CredentialError):
            contents[path] = read_bytes(path)
    return contents


def connection_fault(
    error: BaseException, *, limit: float, proxy: str | None = None
) -> tuple[type[errors.Unreachable], str]:
    """Return the error class of a failed connection, and the message without the server.

    ``limit`` is the time limit in seconds. The message contains no part of a request or credential.
    """
    kind, message = _fault_of(error, limit)
    if proxy is None:
        return kind, message
    # The proxy alone resolves the name of the server and connects to it.
    if isinstance(error, _OF_PROXY):
        kind = errors.ProxyFailed
    return kind, f"through the proxy {_without_login(proxy)}: {message}"


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


_OF_PROXY: Final = (aiohttp.ClientConnectorDNSError, aiohttp.ConnectionTimeoutError)
"""Errors that are of the server, and of the proxy if there is one."""


def _fault_of(error: BaseException, limit: float) -> tuple[type[errors.Unreachable], str]:
    """Return class and message without the server and the proxy; each class of aiohttp is before its bases."""
    kind: type[errors.Unreachable]
    match error:
        case aiohttp.ClientConnectorCertificateError(certificate_error=why):
            is_out_of_time = getattr(why, "verify_code", None) in _OUT_OF_TIME
            kind = errors.CertificateNotValid if is_out_of_time else errors.NotTrusted
            return kind, f"the server's certificate is not trusted: {getattr(why, 'verify_message', '') or why}"
        case aiohttp.ClientConnectorDNSError():
            return errors.HostUnknown, "the host name cannot be resolved"
        case aiohttp.ClientProxyConnectionError():
            return errors.ProxyFailed, f"connection to it failed: {_reason_of(error.os_error)}"
        case aiohttp.ClientSSLError():
            return errors.NotTrusted, f"connection failed: {_reason_of(error.os_error)}"
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            return errors.ConnectionRefused, f"connection failed: {_reason_of(error.os_error)}"
        case aiohttp.ClientConnectorError():
            return errors.Unreachable, f"connection failed: {_reason_of(error.os_error)}"
        case aiohttp.ClientHttpProxyError(status=407):
            return errors.ProxyFailed, "it wants a user and a password: HTTP status 407"
        case aiohttp.ClientHttpProxyError():
            return errors.ProxyFailed, f"it refused the connection: HTTP status {error.status}"
        case TimeoutError():
            return errors.TimedOut, f"no answer within {limit:g} s"
    kind = errors.NotTrusted if isinstance(error, ssl.SSLError) else errors.Unreachable
    return kind, f"connection broken: {error.__class__.__name__}"


def _reason_of(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"no TLS with this server: {(error.reason or error.__class__.__name__).replace('_', ' ').lower()}"
    # The event loop replaces the message of the operating system by the address.
    return os.strerror(error.errno) if error.errno else error.__class__.__name__
