"""Objects: their metadata, their resource types, and the base of views of them.

Decoding is lenient: unknown fields are ignored, and lists and maps can be ``null``, because an unexpected object must
not hide the others.
"""

import re
from collections.abc import Callable
from datetime import datetime
from itertools import islice
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from harvester_ccm.redaction import MAX_FOREIGN_TEXT, cut

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""RFC 1123: name of a namespace."""
DNS_SUBDOMAIN: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""RFC 1123: name of most objects and of hosts."""
LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


MAX_NOTICED: Final = 50
"""Most labels and annotations of which only the key is kept, and most finalizers, of one object."""


class Model(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of all views: immutable, JSON names in camelCase.

    The garbage collector ignores them: decoded values are trees without reference cycles, and traversing thousands of
    objects would block the event loop.
    """


class ObjectMeta(Model, frozen=True, kw_only=True):
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
        value = self.long_annotation(key)
        return None if value is None else cut(value)

    def long_annotation(self, key: str) -> str | None:
        """Return as much of the annotation's value as was kept, for a value that is a document; None if not set."""
        return (self.annotations or {}).get(key)

    def label(self, key: str) -> str | None:
        """Return the label's value, or None if it is not set."""
        return (self.labels or {}).get(key)

    def has_finalizer(self, name: str) -> bool:
        """Return whether the finalizer is on the object."""
        return name in (self.finalizers or ())


class Kept(Struct, frozen=True):
    """What is kept of the metadata of a type of object: what the program reads, and no text of any length."""

    keys: frozenset[str] = frozenset()
    """Labels and annotations whose values are kept."""
    noticed: Callable[[str], bool] = lambda _key: False
    """Whether the key of another label or annotation is kept, without its value."""
    longest: int = MAX_FOREIGN_TEXT
    """Characters that are kept of a value."""
    finalizers: frozenset[str] = frozenset()
    """Finalizers that are kept, however many others there are."""

    def reduce(self, meta: ObjectMeta) -> ObjectMeta:
        """Return the metadata with what is kept of it."""
        return replace(
            meta,
            labels=self._texts(meta.labels),
            annotations=self._texts(meta.annotations),
            finalizers=self._finalizers(meta.finalizers),
        )

    def _texts(self, texts: dict[str, str] | None) -> dict[str, str] | None:
        if not texts:
            return texts
        kept = {key: texts[key][: self.longest] for key in texts if key in self.keys}
        noticed = (cut(key) for key in texts if key not in self.keys and self.noticed(key))
        return kept | dict.fromkeys(islice(noticed, MAX_NOTICED), "")

    def _finalizers(self, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if not names:
            return names
        return tuple(cut(name) for number, name in enumerate(names) if number < MAX_NOTICED or name in self.finalizers)


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


class ResourceRule(Model, frozen=True, kw_only=True):
    """What a credential may do: an entry of the answer to a SelfSubjectRulesReview."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] | None = None
    resources: tuple[str, ...] | None = None
    resource_names: tuple[str, ...] | None = None
    """Empty: all objects."""

    def covers(self, verb: str, group: str, resource: str) -> bool:
        """Return whether the rule permits a verb on some or all objects of a resource."""
        return _has(self.verbs, verb) and _has(self.api_groups or (), group) and _has(self.resources or (), resource)


def _has(granted: tuple[str, ...], wanted: str) -> bool:
    return "*" in granted or wanted in granted


def decoder(view: type[T]) -> Callable[[bytes], T]:
    """Return a function that decodes JSON bytes to ``view``."""
    return msgspec.json.Decoder(view, strict=False).decode


def reducing_decoder(view: type[ObjectT], kept: Kept) -> Callable[[bytes], ObjectT]:
    """Return a function that decodes JSON bytes to ``view`` and keeps a part of the metadata."""
    decode = decoder(view)

    def decode_reduced(source: bytes) -> ObjectT:
        item = decode(source)
        # The object is new, and nobody else has it yet.
        force_setattr(item, "metadata", kept.reduce(item.metadata))
        return item

    return decode_reduced
