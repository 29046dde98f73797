"""Where a bearer token comes from: a fixed text or a file that is rotated (plugins: ``execplugin``).

A source is asked for every request and keeps what it got for as long as it is good. Nothing read here is ever logged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from harvester_ccm.kube.credential_files import read_text

TOKEN_FILE_LIFETIME: Final = 60.0
"""Seconds for which a token read from a file is used before the file is read again."""

Section = Mapping[str, object]
"""A mapping of a kubeconfig as it was read."""


class TokenSource(Protocol):
    """What gives the bearer token of a credential."""

    blocking: bool = False
    """Whether ``get`` may take long, so that it has to be called outside the event loop."""
    certificates: int = 0
    """How many client certificates came with the tokens; a connection keeps the one it was opened with."""

    def get(self) -> str | None:
        """Return the token to send now, None for none. Raises CredentialError."""

    def forget(self) -> None:
        """Fetch a new one next time: the server refused this one."""

    async def fetch(self) -> str | None:
        """Return the token to send now without blocking the event loop. Raises CredentialError."""
        return await asyncio.to_thread(self.get) if self.blocking else self.get()


class FixedToken(TokenSource):
    """A token that never changes, or none."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def get(self) -> str | None:
        return self._token

    def forget(self) -> None:
        """There is no other one."""


class FileToken(TokenSource):
    """A token that the kubelet rotates in place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""
        self._read_at = float("-inf")

    def get(self) -> str:
        now = time.monotonic()
        if now - self._read_at >= TOKEN_FILE_LIFETIME:
            self._token = read_text(self._path).strip()
            self._read_at = now
        return self._token

    def forget(self) -> None:
        """Read the file again next time."""
        self._read_at = float("-inf")
