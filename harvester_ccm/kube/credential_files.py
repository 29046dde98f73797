"""Files that hold credentials: read with a sentence about what is wrong, seen to change, and shown to OpenSSL."""

from __future__ import annotations

import hashlib
import os
import select
import ssl
import stat
import time
from pathlib import Path
from typing import Final

from harvester_ccm.errors import CredentialError

Fingerprint = tuple[int, int, int, int]

FILE_LIMIT: Final = 4 * 1024 * 1024
"""Largest file that is read, in bytes; a Secret holds 1 MiB."""
PIPE_SECONDS: Final = 30.0
"""Time limit for what comes through a pipe at the start of a command or the program: it may have to be decrypted."""
RELOAD_PIPE_SECONDS: Final = 5.0
"""The same while the program runs, whose end waits for it."""


def read_text(path: Path, *, pipe_seconds: float = 0.0) -> str:
    """Return the text of a file. Raises CredentialError with a sentence that says why it cannot be read.

    ``pipe_seconds``: so long it may take through a pipe, as from a shell's ``<(…)``; 0 for none.
    """
    try:
        return read_bytes(path, pipe_seconds=pipe_seconds).decode("utf-8")
    except UnicodeDecodeError:
        raise CredentialError(f"{path}: is no text; expected UTF-8") from None


def read_bytes(path: Path, *, pipe_seconds: float = 0.0) -> bytes:
    """Return what is in a file. Raises CredentialError as ``read_text`` does; waits for nothing but a pipe."""
    try:
        with open(path, "rb", buffering=0, opener=_open_at_once) as stream:
            mode = os.fstat(stream.fileno()).st_mode
            if stat.S_ISFIFO(mode) and pipe_seconds:
                return _read_pipe(stream.fileno(), path, pipe_seconds)
            if not stat.S_ISREG(mode):
                raise CredentialError(f"{path}: is {_kind(mode)}, not a file")
            return _within_limit(stream.read(FILE_LIMIT + 1), path)
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
    except (OSError, ValueError) as error:
        # Names of files come out of files, too: they may be too long, or hold a zero.
        reason = (isinstance(error, OSError) and error.strerror) or error.__class__.__name__
        raise CredentialError(f"{path}: cannot be read: {reason}") from error


def _open_at_once(path: str, flags: int) -> int:
    # Without a writer the open of a pipe would wait.
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _read_pipe(pipe: int, path: Path, seconds: float) -> bytes:
    """Return what comes through a pipe up to its end."""
    content, deadline = bytearray(), time.monotonic() + seconds
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while poll.poll(max(deadline - time.monotonic(), 0.0) * 1000):
        piece = os.read(pipe, FILE_LIMIT)
        if not piece:
            return bytes(content)
        content += _within_limit(piece, path, len(content))
    raise CredentialError(f"{path}: is a pipe that does not end within {seconds:g} s")


def _within_limit(piece: bytes, path: Path, before: int = 0) -> bytes:
    if before + len(piece) > FILE_LIMIT:
        raise CredentialError(f"{path}: is larger than {FILE_LIMIT // 2**20} MiB")
    return piece


def _kind(mode: int) -> str:
    return "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"


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
        return hashlib.sha256(read_bytes(path)).hexdigest()
    except CredentialError:
        return repr(_state(path))


def readable_by_all(path: Path) -> bool:
    """Return whether every user of the host may read a file. A mounted Secret, a link, is seen by one pod only."""
    try:
        return not path.is_symlink() and bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        # Gone since it was read.
        return False


def load_certificate(context: ssl.SSLContext, pem: bytes) -> None:
    """Have a context show a certificate with its unencrypted key. Raises ssl.SSLError.

    OpenSSL only reads certificates from files: an anonymous one in memory never touches a disk.
    """
    with open(os.memfd_create("certificate"), "wb") as stream:
        stream.write(pem)
        stream.flush()
        # Without a password function OpenSSL would ask on the terminal for that of an encrypted key.
        context.load_cert_chain(f"/proc/self/fd/{stream.fileno()}", password=lambda: b"")
