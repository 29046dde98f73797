"""Credential files: their contents, and certificates for OpenSSL."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable
from pathlib import Path

from harvester_ccm.errors import CredentialError


def read_bytes(path: Path) -> bytes:
    """Return the contents of a file. Raises CredentialError."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        # ValueError: a path in a file can contain a null character.
        raise CredentialError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def read_all(paths: Iterable[Path]) -> dict[Path, bytes]:
    """Return the contents of files, empty for those that cannot be read. Raises nothing."""
    contents = {}
    for path in paths:
        try:
            contents[path] = read_bytes(path)
        except CredentialError:
            contents[path] = b""
    return contents


def load_certificate(context: ssl.SSLContext, pem: bytes) -> None:
    """Use a certificate with its unencrypted key in a TLS context. Raises OSError, of which ssl.SSLError is one.

    OpenSSL reads certificates only from files: an anonymous file in memory never touches a disk.
    """
    with open(os.memfd_create("certificate"), "wb") as stream:
        stream.write(pem)
        stream.flush()
        # Without a password function, OpenSSL prompts on the terminal for the password of an encrypted key.
        context.load_cert_chain(f"/proc/self/fd/{stream.fileno()}", password=lambda: b"")
