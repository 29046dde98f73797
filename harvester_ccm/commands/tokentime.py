"""When a bearer token ends, where the token itself says so. Nothing of a token is ever shown."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime

import msgspec


class _Claims(msgspec.Struct):
    exp: float | None = None


def expiry_of(token: str | None) -> datetime | None:
    """Return the end of a JSON web token; None for tokens of other kinds and for those that never end."""
    parts = (token or "").split(".")
    if len(parts) != 3:
        return None
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), type=_Claims)
        return datetime.fromtimestamp(claims.exp, UTC) if claims.exp is not None else None
    except (binascii.Error, ValueError, OverflowError, msgspec.MsgspecError):
        return None
