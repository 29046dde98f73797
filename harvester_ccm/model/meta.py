"""Object metadata, and what makes a resource type known to the client.

Decoding is lenient: unknown fields are passed over, and lists and maps that a server sends as ``null`` read as empty
ones, because one odd object must not hide the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from sys import intern
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

T = TypeVar("T")

DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""RFC 1123: what a namespace is called."""
DNS_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""RFC 1123: what most objects and hosts are called, however long."""
OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""The letters and the length of such a name; looser about dots."""
LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class Model(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of all views: immutable, JSON names in camelCase.

    The garbage collector passes them over: decoded values are trees, which cannot hold themselves alive, and to go
    through those of thousands of objects takes it longer than the event loop may stand still.
    """


def read_note(text: str, shape: type[T]) -> T:
    """Return the JSON in an annotation or a ConfigMap. Raises msgspec.DecodeError, also for what is nested too deep."""
    try:
        return msgspec.json.decode(text, type=shape)
    except RecursionError:
        raise msgspec.DecodeError("nested too deep") from None


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
        """Keep once what thousands of objects have in common: the keys of maps are a third of what they take."""
        force_setattr(self, "namespace", intern(self.namespace))
        if self.finalizers:
            force_setattr(self, "finalizers", tuple(map(intern, self.finalizers)))
        for name, entries in (("labels", self.labels), ("annotations", self.annotations)):
            if entries:
                force_setattr(self, name, {intern(key): value for key, value in entries.items()})

    @property
    def key(self) -> str:
        """``namespace/name``, or the name alone for a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def deleting(self) -> bool:
        """Whether deletion was asked for and finalizers still hold the object."""
        return self.deletion_timestamp is not None

    @property
    def created(self) -> float | None:
        """When the object was created, in seconds since the epoch; None where it does not say."""
        try:
            return datetime.fromisoformat(self.creation_timestamp or "").timestamp()
        except ValueError:
            return None

    def annotation(self, key: str) -> str | None:
        """Return the annotation's value, or None when it is not set."""
        return (self.annotations or {}).get(key)

    def label(self, key: str) -> str | None:
        """Return the label's value, or None when it is not set."""
        return (self.labels or {}).get(key)

    def has_finalizer(self, name: str) -> bool:
        """Return whether the finalizer is on the object."""
        return name in (self.finalizers or ())


class Object(Model, frozen=True, kw_only=True):
    """Anything with metadata."""

    metadata: ObjectMeta = ObjectMeta()


ObjectT = TypeVar("ObjectT", bound=Object)


class Resource(Struct, Generic[T], frozen=True):
    """A resource type of an API server and the view its objects are decoded to.

    ``decode`` raises msgspec.DecodeError on bytes that do not fit the view.
    """

    group: str
    version: str
    plural: str
    kind: str
    decode: Callable[[bytes], T]
    namespaced: bool = True
    strangers: bool = False
    """Whether the collection also holds objects that are none of this program's business."""
    fenced: bool = True
    """Whether only who holds the Lease may write it."""

    @property
    def api_version(self) -> str:
        """``group/version``, or ``v1`` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the URL path of the collection, of one object, or of its subresource."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts)

    def whole(self) -> Resource[dict[str, object]]:
        """Return the same resource for callers that need all of an object: decoded to a plain dictionary."""
        return replace(cast("Resource[Any]", self), decode=decoder(dict[str, object]))


def decoder(view: type[T]) -> Callable[[bytes], T]:
    """Return a function that decodes JSON bytes to ``view``."""
    return msgspec.json.Decoder(view, strict=False).decode
