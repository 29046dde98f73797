"""In-memory copy of a collection with indexes, as client-go's ``Indexer``.

A list replaces the whole store. Between two lists, resource versions decide: a watch event or the response to a write
never replaces a newer object. A list that was slow can bring back an older object for the milliseconds until the watch
delivers the newer one; writes that are planned on it fail by their preconditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic

from harvester_ccm.kube.collection import Page, WatchEvent
from harvester_ccm.model.meta import ObjectT

Change = Callable[[ObjectT | None, ObjectT | None], None]
"""Called with the old and the new object; None for the old one if it was created, for the new one if it was deleted."""

_MAX_DIGITS: Final = 20
"""Digits of the largest 64-bit resource version."""


class Store(Generic[ObjectT]):
    """Objects by key, with change callbacks and indexes."""

    def __init__(self, indexes: Mapping[str, Callable[[ObjectT], Iterable[str]]] | None = None) -> None:
        """``indexes`` return the values of an object in each index."""
        self._objects: dict[str, ObjectT] = {}
        self._index_functions = dict(indexes or {})
        # Tuples: most values belong to one object, and a set for each of thousands would be larger than the objects.
        self._indexes: dict[str, dict[str, tuple[str, ...]]] = {name: {} for name in self._index_functions}
        self._callbacks: list[Change[ObjectT]] = []
        self._version = 0
        """Resource version of the last list or watch event."""
        self.unread: frozenset[str] = frozenset()
        """Keys of objects that could not be decoded. They exist although the store lacks them."""

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

    def observe(self, item: ObjectT) -> None:
        """Store the response to a write, so that the next plan is not based on the object before it."""
        meta = item.metadata
        if meta.deleting and not meta.finalizers:
            # The API server deletes an object with its last finalizer; the response still has the version before.
            self.remove(meta.key, meta.uid)
        # The watch has already delivered everything up to its version, including a deletion of this object.
        elif _version(item) > self._version:
            self._put(item)

    def remove(self, key: str, uid: str) -> None:
        """Remove the object with this UID, which a response says is gone."""
        current = self._objects.get(key)
        if current is not None and current.metadata.uid == uid:
            self._notify(*self._set(key, None))

    def _replace_all(self, page: Page[ObjectT]) -> None:
        """Store a list and call the callbacks."""
        listed = {item.metadata.key: item for item in page.items}
        # An object that could not be decoded exists: keep its last version that could.
        removed = [key for key in self._objects if key not in listed and key not in page.unread]
        changed = [key for key, item in listed.items() if self._objects.get(key) != item]
        self._version, self.unread = _number(page.resource_version), page.unread
        # A callback must not see a half-filled store.
        changes = [self._set(key, listed.get(key)) for key in (*removed, *changed)]
        for old, new in changes:
            self._notify(old, new)

    def _apply(self, event: WatchEvent[ObjectT]) -> None:
        """Store the change that a watch event describes."""
        version = _number(event.resource_version)
        self._version = max(self._version, version)
        key = event.unread if event.object is None else event.object.metadata.key
        if not key:
            return
        self.unread -= {key}
        current = self._objects.get(key)
        if event.type == "DELETED":
            if current is not None and _version(current) <= version:
                self._notify(*self._set(key, None))
        elif event.object is None:
            self.unread |= {key}
        else:
            self._put(event.object)

    def _put(self, item: ObjectT) -> None:
        current = self._objects.get(item.metadata.key)
        if current is None or not _version(current) >= _version(item) > 0:
            self._notify(*self._set(item.metadata.key, item))

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


def _version(item: ObjectT) -> int:
    return _number(item.metadata.resource_version)


def _number(version: str) -> int:
    # Resource versions of one API server are comparable integers (KEP-5504). For any other format, each event is newer.
    return int(version) if version.isdecimal() and len(version) <= _MAX_DIGITS else 0
