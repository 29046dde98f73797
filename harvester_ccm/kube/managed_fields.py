"""Who writes a field of an object, as the API server keeps it in ``metadata.managedFields``.

See https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management. No view has them: they are as
large as the object, and asked for only when somebody is to be told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from harvester_ccm.errors import CCMError
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.session import AGENT
from harvester_ccm.model.meta import ObjectMeta, Resource

NAMED: Final = 3
"""So many writers are told at most."""


async def ask_writers(
    client: ApiClient, resource: Resource[Any], meta: ObjectMeta, path: Sequence[str]
) -> tuple[str, ...]:
    """Return who writes a field of an object, by one request; nobody when that cannot be answered."""
    try:
        document = await client.get(resource.whole(), meta.name, namespace=meta.namespace or None)
    except CCMError:
        return ()
    return writers_of(document, path)


def writers_of(document: Mapping[str, Any], path: Sequence[str]) -> tuple[str, ...]:
    """Return the managers of a field, the latest first: others than this program, if there are any.

    Nobody manages what was removed: then it is who was the last to write the object.
    """
    entries = (document.get("metadata") or {}).get("managedFields") or ()
    latest = sorted(entries, key=lambda one: str(one.get("time") or ""), reverse=True)
    names = [str(one.get("manager")) for one in latest if _manages(one.get("fieldsV1") or {}, path)]
    others = dict.fromkeys(name for name in names if name != AGENT)
    if not names:
        return next(((str(one["manager"]),) for one in latest if one.get("manager") not in (None, AGENT)), ())
    return tuple(others)[:NAMED] or (f"{AGENT}, another process of this program",)


def _manages(fields: Any, path: Sequence[str]) -> bool:
    """Return whether the field is among these; a list that is written as a whole has no entries there."""
    for name in path:
        found = [content for key, content in fields.items() if _is(key, name)]
        if not found:
            return name == path[-1] and not fields
        fields = found[0]
    return True


def _is(key: str, name: str) -> bool:
    """Return whether a key of ``fieldsV1`` is this field, or the entry of a list that goes by this name."""
    return key == f"f:{name}" or (key[:2] in {"v:", "k:"} and f'"{name}"' in key)
