"""What reading a collection gives: pages of a list, lines of a watch, and objects that could not be decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Page(Generic[T]):
    """Result of a list: the objects that could be decoded, and the version to watch from."""

    items: tuple[T, ...]
    resource_version: str
    unread: frozenset[str] = frozenset()
    """Keys of the objects that could not."""


@dataclass(frozen=True)
class WatchEvent(Generic[T]):
    """One line of a watch. ``BOOKMARK`` carries a version and no object."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: T | None
    resource_version: str
    unread: str = ""
    """Key of the object when it could not be decoded; there is none then."""


@dataclass(frozen=True)
class Unread:
    """An object that could not be decoded."""

    key: str
