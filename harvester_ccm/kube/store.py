"""The objects of a collection as they are known, and who is told of their changes.

A list replaces the store. Between two lists the server's versions decide: an older object never replaces a newer one.
A list that was requested before a write and received after it can bring back an older object. The watch, which starts
at the version of the list, corrects that; until then preconditions refuse a write that is based on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Generic

from harvester_ccm.kube.collection import WatchEvent
from harvester_ccm.kube.index import Index
from harvester_ccm.model.meta import ObjectT

Change = Callable[[ObjectT | None, ObjectT | None], None]
"""Called with (old, new); old is None for a new object, new is None for a deleted one."""

_DIGITS: Final = 20
"""Of the largest version."""


class Store(Generic[ObjectT]):
    """Objects with change callbacks and indexes."""

    def __init__(self, indexes: Mapping[str, Callable[[ObjectT], Iterable[str]]] | None = None) -> None:
        """``indexes`` return the values of an object in each index."""
        self._objects: dict[str, ObjectT] = {}
        self._indexes = {name: Index(values_of) for name, values_of in (indexes or {}).items()}
        self._callbacks: list[Change[ObjectT]] = []
        self._untold: deque[tuple[ObjectT | None, ObjectT | None]] = deque()
        """Changes that the callbacks have not been told of."""
        self._seen = 0
        self.unread: frozenset[str] = frozenset()
        """Keys of objects that could not be decoded: that the store lacks them does not mean that they are gone."""

    def on_change(self, callback: Change[ObjectT]) -> None:
        """Have every change delivered to ``callback``, which must not block or raise."""
        self._callbacks.append(callback)

    def get(self, key: str) -> ObjectT | None:
        """Return the object with this ``namespace/name`` or name."""
        return self._objects.get(key)

    def all(self) -> tuple[ObjectT, ...]:
        """Return all objects."""
        return tuple(self._objects.values())

    def by_index(self, index: str, value: str) -> tuple[ObjectT, ...]:
        """Return the objects for which the index function named ``value``."""
        return tuple(self._objects[key] for key in self._indexes[index].keys(value))

    def __len__(self) -> int:
        return len(self._objects)

    def observe(self, item: ObjectT) -> None:
        """Take the answer to a write of ours into the store, so that nothing is decided on what it replaced."""
        if _version(item) > self._seen:
            self._tell(len(self._untold))
            self._put(item)

    def _apply(self, event: WatchEvent[ObjectT]) -> None:
        """Take in a change."""
        self._seen = max(self._seen, _number(event.resource_version))
        key = event.unread if event.object is None else event.object.metadata.key
        if not key:
            return
        self.unread -= {key}
        if event.type == "DELETED":
            current = self._objects.get(key)
            if current is not None and _version(current) <= _number(event.resource_version):
                self._deliver(self._store(key, None))
        elif event.object is None:
            self.unread |= {key}
        else:
            self._put(event.object)

    def _take_in(self, items: Collection[ObjectT], version: str, unread: frozenset[str]) -> None:
        """Replace the store with a list; the callbacks get the changes later.

        ``unread`` has the keys of listed objects that could not be decoded: the store keeps what it knows of them.
        """
        self._seen = _number(version)
        self.unread = unread
        present = set(unread)
        for item in items:
            key = item.metadata.key
            present.add(key)
            if item != self._objects.get(key):
                self._untold.append(self._store(key, item))
        for key in [key for key in self._objects if key not in present]:
            self._untold.append(self._store(key, None))

    def _put(self, item: ObjectT) -> None:
        old = self._objects.get(item.metadata.key)
        if old is None or _supersedes(item, old):
            self._deliver(self._store(item.metadata.key, item))

    def _store(self, key: str, new: ObjectT | None) -> tuple[ObjectT | None, ObjectT | None]:
        """Put an object into the store, or take it out; return the change that has to be delivered."""
        old = self._objects.get(key)
        for index in self._indexes.values():
            index.change(key, old, new)
        if new is not None:
            self._objects[key] = new
        else:
            del self._objects[key]
        return old, new

    def _tell(self, most: int) -> None:
        """Deliver so many of the changes that wait for it."""
        for _ in range(min(most, len(self._untold))):
            self._deliver(self._untold.popleft())

    def _deliver(self, change: tuple[ObjectT | None, ObjectT | None]) -> None:
        for callback in self._callbacks:
            callback(*change)


def _supersedes(new: ObjectT, old: ObjectT) -> bool:
    return not _version(old) >= _version(new) > 0


def _version(item: ObjectT) -> int:
    return _number(item.metadata.resource_version)


def _number(version: str) -> int:
    # Versions of one server are comparable numbers (KEP-5504); with any others every event counts as new.
    return int(version) if version.isdecimal() and len(version) <= _DIGITS else 0
