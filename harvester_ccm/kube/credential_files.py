"""Credential files: bounded reads, detection of changes, and certificates for OpenSSL."""

from __future__ import annotations

import os
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Final

from harvester_ccm.errors import CredentialError

Fingerprint = tuple[int, int, int, int]

FILE_LIMIT: Final = 4 * 1024 * 1024
"""Maximum size of a file in bytes; a Secret has at most 1 MiB."""


def read_bytes(path: Path, *, allow_pipe: bool = False) -> bytes:
    """Return the contents of a file or, if allowed, of a pipe such as a shell's ``<(…)``. Raises CredentialError."""
    try:
        # Opening a pipe waits for a process that writes to it.
        if path.is_fifo() and not allow_pipe:
            raise CredentialError(f"{path}: not a regular file")
        with path.open("rb") as stream:
            content = stream.read(FILE_LIMIT + 1)
    except (OSError, ValueError) as error:
        # ValueError: a path in a file can contain a null character.
        raise CredentialError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > FILE_LIMIT:
        raise CredentialError(f"{path}: larger than {FILE_LIMIT // 2**20} MiB")
    return content


def fingerprint(*paths: Path) -> tuple[Fingerprint, ...]:
    """Return a value that changes if a file, or the target of a symbolic link, is written or replaced."""
    found = []
    for path in paths:
        with suppress(OSError, ValueError):
            status = path.stat()
            found.append((status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(found)


def load_certificate(context: ssl.SSLContext, pem: bytes) -> None:
    """Use a certificate with its unencrypted key in a TLS context. Raises ssl.SSLError.

    OpenSSL reads certificates only from files: an anonymous file in memory never touches a disk.
    """
    with open(os.memfd_create("certificate"), "wb") as stream:
        stream.write(pem)
        stream.flush()
        # Without a password function, OpenSSL prompts on the terminal for the password of an encrypted key.
        context.load_cert_chain(f"/proc/self/fd/{stream.fileno()}", password=lambda: b"")
