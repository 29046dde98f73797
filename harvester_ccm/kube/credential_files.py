"""Files that hold credentials: read with a sentence about what is wrong, seen to change, and shown to OpenSSL."""

from __future__ import annotations

import hashlib
import os
import ssl
import stat
from pathlib import Path

from harvester_ccm.errors import CredentialError

Fingerprint = tuple[int, int, int, int]


def read_text(path: Path) -> str:
    """Return the text of a file. Raises CredentialError with a sentence that says why it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CredentialError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise CredentialError(
            f"{path}: is a directory, not a file; the host path probably did not exist when it was mounted"
        ) from None
    except PermissionError:
        raise CredentialError(
            f"{path}: not readable by user {os.geteuid()}; check owner, mode and SELinux label"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialError(f"{path}: cannot be read: {error.__class__.__name__}") from error


def is_missing_or_empty(path: Path) -> bool:
    """Return whether there is no such file, or nothing in it; one that cannot be looked at counts as there."""
    try:
        status = path.stat()
        return stat.S_ISREG(status.st_mode) and status.st_size == 0
    except FileNotFoundError:
        return True
    except OSError:
        return False


def fingerprint(*paths: Path) -> tuple[Fingerprint, ...]:
    """Return what changes when one of the files, or what a link points to, is written, replaced or mounted anew.

    A file that cannot be read is told by zeros.
    """
    return tuple(_state(path) for path in paths)


def _state(path: Path) -> Fingerprint:
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0, 0)
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)


def contents(*paths: Path) -> tuple[str, ...]:
    """Return what changes when there are other bytes in one of the files.

    What is no file that can be read is told by its fingerprint.
    """
    return tuple(_content(path) for path in paths)


def _content(path: Path) -> str:
    try:
        # A pipe or a terminal would be waited for.
        if path.is_file():
            return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        pass
    return repr(_state(path))


def readable_by_all(path: Path) -> bool:
    """Return whether every user of the host may read a file. A mounted Secret, a link, is seen by one pod only."""
    return not path.is_symlink() and bool(path.stat().st_mode & stat.S_IROTH)


def load_certificate(context: ssl.SSLContext, pem: bytes) -> None:
    """Have a context show a certificate with its unencrypted key. Raises ssl.SSLError.

    OpenSSL only reads certificates from files: an anonymous one in memory never touches a disk.
    """
    with open(os.memfd_create("certificate"), "wb") as stream:
        stream.write(pem)
        stream.flush()
        # Without a password function OpenSSL would ask on the terminal for that of an encrypted key.
        context.load_cert_chain(f"/proc/self/fd/{stream.fileno()}", password=lambda: b"")
