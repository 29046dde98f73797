"""Writes as ``explain`` prints them: a line for each field that they change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from harvester_ccm.commands.render import Document

_PRECONDITIONS: Final = frozenset({"metadata.uid", "metadata.resourceVersion"})


def write(request: str, lines: Iterable[str] = ()) -> Document:
    """Return the document of a write: method and object, and a line for each changed field."""
    return {"request": request, "diff": list(lines)}


def plain(view: Struct) -> Document:
    """Return a view of an object as a JSON document."""
    return msgspec.json.decode(msgspec.json.encode(view), type=Document)


def diff(
    before: Mapping[str, Any], after: Mapping[str, Any], path: str = "", *, complete: bool = False
) -> Iterator[str]:
    """Yield a line for each value that a write removes (``-``) or sets (``+``), without its preconditions.

    ``after`` is a merge patch, or the ``complete`` object.

    >>> list(diff({"spec": {"a": 1, "b": 2}}, {"metadata": {"uid": "1"}, "spec": {"a": 2, "b": None}}))
    ['- spec.a: 1', '+ spec.a: 2', '- spec.b: 2']
    """
    for key in {**before, **after} if complete else after:
        old, new, name = before.get(key), after.get(key), f"{path}{key}"
        if isinstance(new, Mapping):
            yield from diff(old if isinstance(old, Mapping) else {}, new, f"{name}.", complete=complete)
        elif old != new and name not in _PRECONDITIONS:
            if old not in (None, []):
                yield f"- {name}: {json.dumps(old, ensure_ascii=False)}"
            if new is not None:
                yield f"+ {name}: {json.dumps(new, ensure_ascii=False)}"
