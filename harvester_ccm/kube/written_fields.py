"""The fields that a patch writes, by the names that messages use."""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

_PRECONDITIONS: Final = frozenset({"uid", "resourceVersion"})
"""Fields of the metadata that a patch only compares."""


def fields_of_patch(patch: Mapping[str, object]) -> dict[str, str]:
    """Return the fields of a patch with their new values as text.

    >>> fields_of_patch({"metadata": {"uid": "1", "annotations": {"a/b": None}}, "status": {"x": [1]}})
    {'annotation a/b': 'null', 'status.x': '[1]'}
    """
    fields: dict[str, str] = {}
    for part, content in cast("Mapping[str, Mapping[str, Any]]", patch).items():
        for name, value in content.items():
            if part != "metadata":
                fields[f"{part}.{name}"] = _text(value)
            elif name in {"annotations", "labels"}:
                kind = name.removesuffix("s")
                fields.update({f"{kind} {key}": _text(entry) for key, entry in value.items()})
            elif name not in _PRECONDITIONS:
                fields[f"metadata.{name}"] = _text(value)
    return fields


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)
