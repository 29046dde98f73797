"""Credential files: bounded reads, detection of changes, and certificates for OpenSSL."""

from __future__ import annotations

import os
import select
import ssl
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from harvester_ccm.errors import CredentialError

Fingerprint = tuple[int, int, int, int]

FILE_LIMIT: Final = 4 * 1024 * 1024
"""Maximum size of a file in bytes; a Secret has at most 1 MiB."""


def read_bytes(path: Path, *, pipe_seconds: float = 0.0) -> bytes:
    """Return the contents of a file. Raises CredentialError with the reason.

    Only a regular file is read or, for up to ``pipe_seconds``, a pipe such as a shell's ``<(…)``.
    """
    content, deadline, poll = b"", time.monotonic() + pipe_seconds, select.poll()
    try:
        # A blocking open of a pipe waits for a writer.
        with open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
            mode = os.fstat(stream.fileno()).st_mode
            if not (stat.S_ISREG(mode) or (stat.S_ISFIFO(mode) and pipe_seconds)):
                raise CredentialError(f"{path}: not a regular file")
            # A regular file is always ready.
            poll.register(stream, select.POLLIN)
            while poll.poll(max(deadline - time.monotonic(), 0.0) * 1000):
                piece = stream.read(FILE_LIMIT)
                content += piece
                if len(content) > FILE_LIMIT:
                    raise CredentialError(f"{path}: larger than {FILE_LIMIT // 2**20} MiB")
                if not piece:
                    return content
    except (OSError, ValueError) as error:
        # ValueError: a path in a file can contain a null character.
        raise CredentialError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    raise CredentialError(f"{path}: the pipe was not closed within {pipe_seconds:g} s")


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
