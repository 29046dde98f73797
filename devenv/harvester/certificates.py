"""Certificates of the servers that the API server calls."""

from __future__ import annotations

import base64
import ssl
import tempfile
from pathlib import Path

from devenv.pki import Authority


def serving_context(host: str) -> tuple[ssl.SSLContext, str]:
    """Return a serving context for the host and its authority as the base64 text that API objects carry."""
    with tempfile.TemporaryDirectory(prefix="harvester-") as directory:
        authority = Authority(f"authority of {host}", Path(directory))
        pair = authority.issue_server("serving", (host,))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        return context, base64.b64encode(authority.ca_file.read_bytes()).decode()
