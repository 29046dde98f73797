"""Which objects of a collection have something in common, kept up to date."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic

from harvester_ccm.model.meta import ObjectT


class Index(Generic[ObjectT]):
    """Keys of objects by values that a function names for each of them.

    Most values stand for one object only, and thousands of sets for one key each would be larger than the objects.
    """

    def __init__(self, values_of: Callable[[ObjectT], Iterable[str]]) -> None:
        """``values_of`` returns the values of an object."""
        self._values_of = values_of
        self._keys: dict[str, str | dict[str, None]] = {}

    def keys(self, value: str) -> tuple[str, ...]:
        """Return the keys of the objects with this value, in the order in which they got it."""
        found = self._keys.get(value, ())
        return (found,) if isinstance(found, str) else tuple(found)

    def change(self, key: str, old: ObjectT | None, new: ObjectT | None) -> None:
        """Take an object in the place of another; None is no object."""
        for value in self._values_of(old) if old is not None else ():
            self._remove(value, key)
        for value in self._values_of(new) if new is not None else ():
            self._add(value, key)

    def _add(self, value: str, key: str) -> None:
        found = self._keys.get(value)
        if found is None:
            self._keys[value] = key
        elif isinstance(found, dict):
            found[key] = None
        elif found != key:
            self._keys[value] = {found: None, key: None}

    def _remove(self, value: str, key: str) -> None:
        found = self._keys.get(value)
        if isinstance(found, dict):
            found.pop(key, None)
            if not found:
                del self._keys[value]
        elif found == key:
            del self._keys[value]
