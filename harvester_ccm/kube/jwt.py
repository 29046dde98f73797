"""What a bearer token says about itself, where it is a JSON web token. Nothing here is proof of anything."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime

import msgspec


class _Claims(msgspec.Struct):
    exp: float | None = None


_decode = msgspec.json.Decoder(_Claims).decode


def token_expiry(token: str | None) -> float | None:
    """Return when a token expires, in seconds since the epoch; None for tokens that do not say so.

    The signature is not looked at: only the server can tell whether a token is good.
    """
    parts = (token or "").split(".")
    if len(parts) != 3:
        return None
    try:
        return _decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))).exp
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        return None


def token_end(token: str | None) -> datetime | None:
    """Return the same as a date."""
    seconds = token_expiry(token)
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None
