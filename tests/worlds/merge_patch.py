"""The JSON merge patch of RFC 7386, for every world of the tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merged(document: Any, patch: Any) -> Any:
    """Return the document after a merge patch; the document itself stays as it is."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(document) if isinstance(document, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
