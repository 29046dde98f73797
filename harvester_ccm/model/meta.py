"""Object metadata, resource types, responses to lists and watches, and the store of a collection.

Decoding is lenient: unknown fields are ignored, and lists and maps can be ``null``, because an unexpected object must
not hide the others.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from harvester_ccm.errors import CCMError
from harvester_ccm.redaction import MAX_FOREIGN_TEXT, cut

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""RFC 1123: name of a namespace."""
DNS_SUBDOMAIN: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""RFC 1123: name of most objects and of hosts."""
MAX_KEY: Final = 317
"""Longest key of a label or annotation: 253 characters, a slash and 63 characters."""
SHARED_STRINGS: Final = 4096
"""Strings that objects share at most; a cluster uses a few hundred keys and namespaces."""
LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class Model(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of all views: immutable, JSON names in camelCase.

    The garbage collector ignores them: decoded values are trees without reference cycles, and traversing thousands of
    objects would block the event loop.
    """


_strings: Final[dict[str, str]] = {}


def _shared(text: str) -> str:
    """Return an equal string that other objects have as well, if there is one.

    Not ``sys.intern``: Python 3.12 never frees an interned string, and tenants choose keys.
    """
    if len(text) > MAX_KEY:
        return text
    if len(_strings) >= SHARED_STRINGS:
        # The common keys are shared again as soon as they are read again.
        _strings.clear()
    return _strings.setdefault(text, text)


class ObjectMeta(Model, frozen=True, kw_only=True):
    """``metadata`` of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Share the strings that thousands of objects have in common: keys of maps are a third of their memory."""
        force_setattr(self, "namespace", _shared(self.namespace))
        for name, entries in (("labels", self.labels), ("annotations", self.annotations)):
            if entries:
                force_setattr(self, name, {_shared(key): value for key, value in entries.items()})

    @property
    def key(self) -> str:
        """``namespace/name``, or the name alone for a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def deleting(self) -> bool:
        """Whether the object is being deleted and has finalizers."""
        return self.deletion_timestamp is not None

    @property
    def created(self) -> float | None:
        """Time of creation in seconds since the epoch; None if it is not set."""
        try:
            return datetime.fromisoformat(self.creation_timestamp or "").timestamp()
        except (ValueError, OverflowError):
            return None

    def annotation(self, key: str) -> str | None:
        """Return the annotation's value, or None if it is not set. Users write values of any length: it is cut."""
        value = self.whole_annotation(key)
        return None if value is None else cut(value)

    def whole_annotation(self, key: str) -> str | None:
        """Return the annotation's value whatever its length, for a value that is a document; None if it is not set."""
        return (self.annotations or {}).get(key)

    def label(self, key: str) -> str | None:
        """Return the label's value, or None if it is not set."""
        return (self.labels or {}).get(key)

    def has_finalizer(self, name: str) -> bool:
        """Return whether the finalizer is on the object."""
        return name in (self.finalizers or ())


class Object(Model, frozen=True, kw_only=True):
    """Anything with metadata."""

    metadata: ObjectMeta = ObjectMeta()


ObjectT = TypeVar("ObjectT", bound=Object)


class Condition(Model, frozen=True, kw_only=True):
    """Entry of ``status.conditions``; there is one of each type."""

    type: str = ""
    status: str = ""
    message: str = ""

    def __post_init__(self) -> None:
        """Cut the message, which quotes what tenants wrote."""
        if len(self.message) > MAX_FOREIGN_TEXT:
            force_setattr(self, "message", cut(self.message))


class Resource(Struct, Generic[T_co], frozen=True):
    """A resource type of an API server and the view its objects are decoded to.

    ``decode`` raises msgspec.DecodeError on bytes that do not fit the view.
    """

    group: str
    version: str
    plural: str
    kind: str
    decode: Callable[[bytes], T_co]
    namespaced: bool = True
    fenced: bool = True
    """Whether only the leader writes it."""

    @property
    def api_version(self) -> str:
        """``group/version``, or ``v1`` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the URL path of the collection, of one object, or of its subresource."""
        api = ("/apis", self.group) if self.group else ("/api",)
        inside = ("namespaces", namespace) if self.namespaced and namespace is not None else ()
        parts = (*api, self.version, *inside, self.plural, name, subresource)
        return "/".join(part for part in parts if part is not None)

    def whole(self) -> "Resource[dict[str, object]]":
        """Return the same resource for callers that need all of an object: decoded to a plain dictionary."""
        return replace(cast("Resource[Any]", self), decode=decoder(dict[str, object]))


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
    """One line of a watch. ``BOOKMARK`` has a version and no object; the other types are those of the API."""

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


def decoder(view: type[T]) -> Callable[[bytes], T]:
    """Return a function that decodes JSON bytes to ``view``."""
    return msgspec.json.Decoder(view, strict=False).decode


Change = Callable[[ObjectT | None, ObjectT | None], None]
"""Called with the old and the new object; None for the old one if it was created, for the new one if it was deleted."""


_Keys = tuple[str, ...] | dict[str, None]
"""Keys of the objects that have one value in an index, in the order in which they got it.

Most values belong to one object, and a map for each of thousands would be larger than the objects. But thousands of
objects can have one value, and a tuple would be copied for each of them.
"""
_FEW_KEYS: Final = 8
"""Number of keys up to which a tuple is copied."""


def _with(keys: _Keys, key: str) -> _Keys:
    """Return the keys with one more; a map is changed in place."""
    if isinstance(keys, tuple) and len(keys) < _FEW_KEYS:
        return (*keys, key)
    if isinstance(keys, tuple):
        return dict.fromkeys((*keys, key))
    keys[key] = None
    return keys


def _without(keys: _Keys, key: str) -> _Keys:
    """Return the keys without one of them; a map is changed in place."""
    if isinstance(keys, tuple):
        return tuple(other for other in keys if other != key)
    del keys[key]
    return keys


class Store(Generic[ObjectT]):
    """Objects by key, with change callbacks and indexes."""

    def __init__(
        self,
        items: Iterable[ObjectT] = (),
        indexes: Mapping[str, Callable[[ObjectT], Iterable[str]]] = {},
        *,
        problem: CCMError | None = None,
        unread: Mapping[str, Unread] = {},
    ) -> None:
        """``indexes`` maps the name of an index to the function that returns the values of an object in it."""
        self._objects: dict[str, ObjectT] = {}
        self._index_functions = indexes
        self._indexes: dict[str, dict[str, _Keys]] = {name: {} for name in indexes}
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

    def first_by_index(self, index: str, value: str) -> ObjectT | None:
        """Return one of the objects that have this value in the index, or None: the one that has had it longest."""
        key = next(iter(self._indexes[index].get(value, ())), None)
        return None if key is None else self._objects[key]

    def __len__(self) -> int:
        return len(self._objects)

    def _set(self, key: str, new: ObjectT | None) -> tuple[ObjectT | None, ObjectT | None]:
        """Store or remove an object and update the indexes; return the old and the new one."""
        old = self._objects.get(key)
        for name, values_of in self._index_functions.items():
            index = self._indexes[name]
            before = set(values_of(old)) if old is not None else set()
            after = set(values_of(new)) if new is not None else set()
            for value in before - after:
                index[value] = _without(index[value], key)
                if not index[value]:
                    del index[value]
            for value in after - before:
                index[value] = _with(index.get(value, ()), key)
        if new is not None:
            self._objects[key] = new
        else:
            del self._objects[key]
        return old, new

    def _notify(self, old: ObjectT | None, new: ObjectT | None) -> None:
        for callback in self._callbacks:
            callback(old, new)
