"""The JSON merge patch of RFC 7386, and the strategic one of Kubernetes, for the servers in memory."""

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


class Strategic(dict[str, Any]):
    """A strategic merge patch: of lists that belong to many it names only the entries that are to be changed."""


def merged_strategically(document: Any, patch: Any) -> Any:
    """Return the document after a strategic merge patch; finalizers and conditions belong to many."""
    metadata = {key: value for key, value in patch.get("metadata", {}).items() if key != _REMOVED}
    result = merged(document, {**patch, "metadata": metadata})
    removed = patch.get("metadata", {}).get(_REMOVED, ())
    if "finalizers" in metadata:
        there = document["metadata"].get("finalizers") or []
        every = dict.fromkeys([*there, *metadata["finalizers"]])
        result["metadata"]["finalizers"] = [one for one in every if one not in removed]
    conditions = {one["type"]: one for one in (document.get("status") or {}).get("conditions") or ()}
    for one in (patch.get("status") or {}).get("conditions") or ():
        if one.get("$patch") == "delete":
            conditions.pop(one["type"], None)
        else:
            conditions[one["type"]] = merged(conditions.get(one["type"]), one)
    if "conditions" in (patch.get("status") or {}):
        result["status"]["conditions"] = list(conditions.values())
    return result


_REMOVED = "$deleteFromPrimitiveList/finalizers"
