"""Documents of lists and watches, and what is returned of them."""

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")


class Unread(Struct, frozen=True):
    """What is known of an object that could not be decoded."""

    key: str
    uid: str
    fault: str
    """Why it does not decode."""


class Page(Struct, Generic[T], frozen=True):
    """Result of a list: the objects that could be decoded, and the version to watch from."""

    items: tuple[T, ...]
    resource_version: str
    unread: Mapping[str, Unread] = {}
    """The objects that could not be decoded, by key."""


class WatchEvent(Struct, Generic[T], frozen=True):
    """One line of a watch: ADDED, MODIFIED or DELETED, or BOOKMARK, which has a version and no object."""

    type: str
    object: T | None
    resource_version: str
    unread: Unread | None = None
    """The object if it could not be decoded; ``object`` is None then."""


class ListMeta(Struct, rename="camel"):
    """The parts of the metadata of lists, bookmarks and objects that the client reads."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListDocument(Struct):
    """A page of a list; its objects stay bytes."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class EventDocument(Struct):
    """A line of a watch; its object stays bytes."""

    type: str
    object: msgspec.Raw


class Head(Struct):
    """Kind and metadata of an object, and the code of a Status."""

    kind: str = ""
    code: int = 500
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
