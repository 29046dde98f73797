"""What went wrong with a connection, in words for operators. Nothing of a request or of a credential is in them."""

from __future__ import annotations

import os
import ssl

import aiohttp


def describe_connection_error(error: BaseException, *, limit: float) -> str:
    """Return one plain sentence part for a failed connection; ``limit`` is the time in seconds it was given."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
        return f"the server's certificate is not trusted: {reason}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "the host name cannot be resolved"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy refused the connection: HTTP status {error.status}"
    if isinstance(error, aiohttp.ClientConnectorError):
        what = "connection to the proxy" if isinstance(error, aiohttp.ClientProxyConnectionError) else "connection"
        return f"{what} failed: {_reason_of(error.os_error)}"
    if isinstance(error, TimeoutError):
        return f"no answer within {limit:g} s"
    return f"connection broken: {error.__class__.__name__}"


def _reason_of(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"no TLS with this server: {(error.reason or error.__class__.__name__).replace('_', ' ').lower()}"
    # The event loop puts the address in the place of the system's own words.
    return os.strerror(error.errno) if error.errno else error.__class__.__name__
