"""Store: the objects of a collection, with indexes and change callbacks."""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic

from harvester_ccm.kube.documents import Unread
from harvester_ccm.kube.errors import KubeError
from harvester_ccm.kube.objects import ObjectT

Change = Callable[[ObjectT | None, ObjectT | None], None]
"""Called with the old and the new object; None for the old one if it was created, for the new one if it was deleted."""


class Store(Generic[ObjectT]):
    """Objects by key, with change callbacks and indexes."""

    def __init__(
        self,
        items: Iterable[ObjectT] = (),
        indexes: Mapping[str, Callable[[ObjectT], Iterable[str]]] = {},
        *,
        problem: KubeError | None = None,
        unread: Mapping[str, Unread] = {},
    ) -> None:
        """``indexes`` maps the name of an index to the function that returns the values of an object in it."""
        self._objects: dict[str, ObjectT] = {}
        self._index_functions = indexes
        self._indexes: dict[str, dict[str, dict[str, None]]] = {name: {} for name in indexes}
        """Of each index, the keys of the objects that have one value, in the order in which they got it."""
        self._callbacks: list[Change[ObjectT]] = []
        self.problem = problem
        """Why the list or watch failed now; None if it can. Objects that were read before are kept."""
        self.unread: dict[str, Unread] = dict(unread)
        """Objects that could not be decoded, by key. They exist although the store may lack them."""
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
            before = set(values_of(old)) if old is not None else set()
            after = set(values_of(new)) if new is not None else set()
            self._index(self._indexes[name], key, before, after)
        if new is not None:
            self._objects[key] = new
        else:
            del self._objects[key]
        return old, new

    @staticmethod
    def _index(index: dict[str, dict[str, None]], key: str, before: set[str], after: set[str]) -> None:
        for value in before - after:
            del index[value][key]
            if not index[value]:
                del index[value]
        for value in after - before:
            index.setdefault(value, {})[key] = None

    def _notify(self, old: ObjectT | None, new: ObjectT | None) -> None:
        for callback in self._callbacks:
            callback(old, new)
