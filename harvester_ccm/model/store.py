"""In-memory copy of a collection with indexes, as client-go's ``Indexer``: followed by an informer, or listed once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic

from harvester_ccm.errors import CCMError
from harvester_ccm.model.meta import ObjectT

Change = Callable[[ObjectT | None, ObjectT | None], None]
"""Called with the old and the new object; None for the old one if it was created, for the new one if it was deleted."""


class Store(Generic[ObjectT]):
    """Objects by key, with change callbacks and indexes."""

    def __init__(
        self,
        items: Iterable[ObjectT] = (),
        indexes: Mapping[str, Callable[[ObjectT], Iterable[str]]] | None = None,
        *,
        problem: CCMError | None = None,
        unread: frozenset[str] = frozenset(),
    ) -> None:
        """``indexes`` maps the name of an index to the function that returns the values of an object in it."""
        self._objects: dict[str, ObjectT] = {}
        self._index_functions = dict(indexes or {})
        # Tuples: most values belong to one object, and a set for each of thousands would be larger than the objects.
        self._indexes: dict[str, dict[str, tuple[str, ...]]] = {name: {} for name in self._index_functions}
        self._callbacks: list[Change[ObjectT]] = []
        self.problem = problem
        """Why the collection cannot be read now; None if it can. Objects that were read before are kept."""
        self.unread = unread
        """Keys of objects that could not be decoded. They exist although the store lacks them."""
        for item in items:
            self._set(item.metadata.key, item)

    @property
    def synced(self) -> bool:
        """Whether the collection was listed completely at least once."""
        return self.problem is None

    def on_change(self, callback: Change[ObjectT]) -> None:
        """Call ``callback`` for every change, after the store contains it. It must not block or raise."""
        self._callbacks.append(callback)

    def get(self, key: str) -> ObjectT | None:
        """Return the object with this ``namespace/name`` or name."""
        return self._objects.get(key)

    def all(self) -> tuple[ObjectT, ...]:
        """Return all objects."""
        return tuple(self._objects.values())

    def by_index(self, index: str, value: str) -> tuple[ObjectT, ...]:
        """Return the objects that have this value in the index."""
        return tuple(self._objects[key] for key in self._indexes[index].get(value, ()))

    def __len__(self) -> int:
        return len(self._objects)

    def _set(self, key: str, new: ObjectT | None) -> tuple[ObjectT | None, ObjectT | None]:
        """Store or remove an object and update the indexes; return the old and the new one."""
        old = self._objects.get(key)
        for name, values_of in self._index_functions.items():
            index = self._indexes[name]
            before = dict.fromkeys(values_of(old)) if old is not None else {}
            after = dict.fromkeys(values_of(new)) if new is not None else {}
            for value in before.keys() - after.keys():
                index[value] = tuple(other for other in index[value] if other != key)
                if not index[value]:
                    del index[value]
            for value in after.keys() - before.keys():
                index[value] = (*index.get(value, ()), key)
        if new is not None:
            self._objects[key] = new
        else:
            del self._objects[key]
        return old, new

    def _notify(self, old: ObjectT | None, new: ObjectT | None) -> None:
        for callback in self._callbacks:
            callback(old, new)
