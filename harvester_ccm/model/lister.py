"""A collection as whoever decides sees it: kept by a watch, or listed once. Informers are listers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from harvester_ccm.errors import CCMError
from harvester_ccm.model.meta import ObjectT

T_co = TypeVar("T_co", covariant=True)


class Lister(Protocol[T_co]):
    """One collection as it is known now."""

    @property
    def synced(self) -> bool:
        """Whether it was read completely at least once."""

    @property
    def problem(self) -> CCMError | None:
        """Why it cannot be read at the moment; what was read before is still there."""

    @property
    def unread(self) -> frozenset[str]:
        """Keys of objects that are there and could not be decoded."""

    def get(self, key: str) -> T_co | None:
        """Return the object with this ``namespace/name``, or name."""

    def all(self) -> tuple[T_co, ...]:
        """Return the objects."""

    def by_index(self, index: str, value: str) -> tuple[T_co, ...]:
        """Return the objects that stand in the index under this value."""


class Listed(Generic[ObjectT]):
    """A collection as a complete list."""

    def __init__(
        self,
        items: Iterable[ObjectT],
        indexes: Mapping[str, Callable[[ObjectT], Iterable[str]]] | None = None,
        *,
        problem: CCMError | None = None,
        unread: frozenset[str] = frozenset(),
    ) -> None:
        """``indexes`` return the values of an object in each index; ``problem`` says why there is no list."""
        self._items = {item.metadata.key: item for item in items}
        self._index_values = dict(indexes or {})
        self._indexes: dict[str, dict[str, list[ObjectT]]] = {}
        """Those that were asked for."""
        self.problem = problem
        self.unread = unread

    @property
    def synced(self) -> bool:
        """Whether there is a list."""
        return self.problem is None

    def get(self, key: str) -> ObjectT | None:
        """Return the object with this ``namespace/name``, or name."""
        return self._items.get(key)

    def all(self) -> tuple[ObjectT, ...]:
        """Return the objects."""
        return tuple(self._items.values())

    def by_index(self, index: str, value: str) -> tuple[ObjectT, ...]:
        """Return the objects that stand in the index under this value."""
        if index not in self._indexes:
            found = self._indexes[index] = dict[str, list[ObjectT]]()
            for item in self._items.values():
                for one in dict.fromkeys(self._index_values[index](item)):
                    found.setdefault(one, []).append(item)
        return tuple(self._indexes[index].get(value, ()))
