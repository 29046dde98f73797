"""Where a bearer token comes from, and when it ends: a fixed text, or a file that is rotated.

A source is asked for every request and keeps what it got for as long as it is good. Nothing read here is ever logged.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

import msgspec

from harvester_ccm.errors import CredentialError
from harvester_ccm.kube.credential_files import read_text

TOKEN_FILE_LIFETIME: Final = 60.0
"""Seconds for which a token read from a file is used before the file is read again."""

Section = Mapping[str, object]
"""A mapping of a kubeconfig as it was read."""


def checked_token(text: str, what: str) -> str:
    """Return a token without the white space around it. Raises CredentialError: a header cannot carry it."""
    token = text.strip()
    if not token:
        raise CredentialError(f"{what} is empty")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise CredentialError(f"{what} is no single word of ASCII characters; was more than the token pasted?")
    return token


class TokenSource(Protocol):
    """What gives the bearer token of a credential."""

    renewed: bool = False
    """Whether it sees to it by itself that there is always one that has not expired."""
    certificates: int = 0
    """How many client certificates came with the tokens; a connection keeps the one it was opened with."""

    def get(self) -> str | None:
        """Return the token there is, None for none. Raises CredentialError."""

    def forget(self) -> None:
        """Fetch a new one next time: the server refused this one."""

    async def fetch(self) -> str | None:
        """Return the token to send now without blocking the event loop. Raises CredentialError."""
        return self.get()


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
            self._token = checked_token(read_text(self._path), f"{self._path}: the token")
            self._read_at = now
        return self._token

    def forget(self) -> None:
        """Read the file again next time."""
        self._read_at = float("-inf")


class _Claims(msgspec.Struct):
    exp: float | None = None
    sub: object = ""


_SERVICE_ACCOUNT: Final = re.compile(r"system:serviceaccount:([a-z0-9][a-z0-9-]{0,62}):([a-z0-9][a-z0-9.-]{0,252})")
_decode_claims = msgspec.json.Decoder(_Claims).decode


def fixed_end(source: TokenSource) -> datetime | None:
    """Return when a token expires that nobody renews; None where it does not say, and where it is renewed."""
    return token_end(source.get()) if isinstance(source, FixedToken) else None


def fixed_account(source: TokenSource) -> str:
    """Return whose token it says it is that nobody renews, as ``token_account``; empty for one that is renewed."""
    return token_account(source.get()) if isinstance(source, FixedToken) else ""


def token_end(token: str | None) -> datetime | None:
    """Return when a token expires; None for one that is no JSON web token or does not say.

    The signature is not looked at: only the server can tell whether a token is good.
    """
    claims = _claims(token)
    return None if claims is None else _end(claims)


def token_account(token: str | None) -> str:
    """Return ``namespace/name`` of the ServiceAccount whose token it says it is; empty for any other."""
    claims = _claims(token)
    match = _SERVICE_ACCOUNT.fullmatch(str(claims.sub)) if claims is not None else None
    return f"{match[1]}/{match[2]}" if match is not None else ""


def why_refused(token: str | None, now: datetime) -> str:
    """Return what a token that was refused at ``now`` says of its end; empty for one that is no JSON web token."""
    claims = _claims(token)
    if claims is None:
        return ""
    end = _end(claims)
    if end is not None and end <= now:
        return f"which expired on {end:%Y-%m-%d %H:%M} UTC"
    until = f"which says that it is good until {end:%Y-%m-%d %H:%M} UTC" if end else "which does not expire by itself"
    return f"{until}: it was revoked, or is another cluster's"


def _end(claims: _Claims) -> datetime | None:
    try:
        return None if claims.exp is None else datetime.fromtimestamp(claims.exp, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _claims(token: str | None) -> _Claims | None:
    parts = (token or "").split(".")
    if len(parts) != 3:
        return None
    try:
        return _decode_claims(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, msgspec.MsgspecError):
        return None
