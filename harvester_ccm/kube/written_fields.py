"""The fields that a patch writes, by the names that messages use."""

from collections.abc import Mapping
from typing import Any, Final, cast

_PRECONDITIONS: Final = frozenset({"uid", "resourceVersion"})
"""Fields of the metadata that a patch only compares."""


def fields_of_patch(patch: Mapping[str, object]) -> list[str]:
    """Return the fields of a patch.

    >>> fields_of_patch({"metadata": {"uid": "1", "annotations": {"a/b": None}}, "status": {"x": [1]}})
    ['annotation a/b', 'status.x']
    """
    fields: list[str] = []
    for part, content in cast("Mapping[str, Mapping[str, Any]]", patch).items():
        for name, value in content.items():
            if part != "metadata":
                fields.append(f"{part}.{name}")
            elif name in {"annotations", "labels"}:
                kind = name.removesuffix("s")
                fields.extend(f"{kind} {key}" for key in value)
            elif name not in _PRECONDITIONS:
                fields.append(f"metadata.{name}")
    return fields
