"""Where a bearer token comes from: a fixed text or a file that is rotated (plugins: ``execplugin``).

A source is called for every request and keeps what it got for as long as it is good; ``forget`` makes it fetch a new
one. Every problem is a CredentialError. Nothing read here is ever logged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from harvester_ccm.errors import CredentialError

TOKEN_FILE_LIFETIME: Final = 60.0
"""Seconds for which a token read from a file is used before the file is read again."""

Section = Mapping[str, object]
"""A mapping of a kubeconfig as it was read."""
TokenSource = Callable[[], str | None]


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


class FixedToken:
    """A token that never changes, or none."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self) -> str | None:
        return self._token

    def forget(self) -> None:
        """There is no other one."""


class FileToken:
    """A token that the kubelet rotates in place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""
        self._read_at = float("-inf")

    def __call__(self) -> str:
        now = time.monotonic()
        if now - self._read_at >= TOKEN_FILE_LIFETIME:
            self._token = read_text(self._path).strip()
            self._read_at = now
        return self._token

    def forget(self) -> None:
        """Read the file again next time."""
        self._read_at = float("-inf")
