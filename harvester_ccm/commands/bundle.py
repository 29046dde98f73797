"""A support bundle: what the program reads of both clusters in one file, without secrets, to look at elsewhere.

A ``tar.gz``. ``objects.json`` is a List of what the program itself decodes of Services, Nodes, load balancers and VMs:
a VM's start-up data, environment variables and the like are not in it. Annotations that this program does not know keep
their names and lose their values. Over everything goes the redaction of the log.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from harvester_ccm.commands.beside import WAYS
from harvester_ccm.commands.call import FILENAME, refuse
from harvester_ccm.commands.inventory import COLLECTIONS, Inventory
from harvester_ccm.commands.render import Document
from harvester_ccm.errors import CCMError
from harvester_ccm.flags import FLAGS, FlagValue, FlagValues, Grammar
from harvester_ccm.model.meta import Object
from harvester_ccm.names import CATALOGUE
from harvester_ccm.redaction import REMOVED, redact

GZIP: Final = b"\x1f\x8b"
"""The first bytes of a bundle."""
OBJECTS: Final = "objects.json"
FACTS: Final = "facts.json"
LARGEST: Final = 256 * 2**20
"""No file in a bundle is read beyond so many bytes."""

_KNOWN: Final = frozenset(key.name for key in CATALOGUE)
DEFAULTS: Final = Grammar(FLAGS).defaults
"""The values of all flags of the program where none is given."""


class Facts(Struct, frozen=True):
    """What is known besides the objects."""

    version: str
    taken: str
    """Time of the collection."""
    flags: Mapping[str, object]
    """Flags that were given, without secrets."""
    namespace: str
    """Namespace in Harvester."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Why a collection could not be read, by the plural of its resource."""

    @property
    def time(self) -> datetime:
        """The time of the collection."""
        return datetime.fromisoformat(self.taken)


class Bundle(Struct, frozen=True):
    """What a bundle says."""

    objects: str
    """JSON of a List."""
    facts: Facts


def objects_of(inventory: Inventory) -> Document:
    """Return the objects as a List, each with what the program decodes and nothing secret."""
    found: list[Document] = []
    for name, resource in COLLECTIONS.items():
        items: tuple[Object, ...] = getattr(inventory, name)
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        # A load balancer has its whole document, and says by itself in which version it was read.
        found += [{**kind, **one.document()} for one in items]
    return {"apiVersion": "v1", "kind": "List", "items": [_without_secrets(one) for one in found]}


def _without_secrets(document: Document) -> Document:
    plain = cast("dict[str, Any]", redact(document))
    metadata = plain.get("metadata") or {}
    metadata.pop("managedFields", None)
    annotations = metadata.get("annotations") or {}
    if annotations:
        metadata["annotations"] = {key: value if key in _KNOWN else REMOVED for key, value in annotations.items()}
    return plain


def facts_of(version: str, flags: FlagValues, inventory: Inventory) -> Facts:
    """Return what goes beside the objects."""
    names = sorted(name for name, value in DEFAULTS.items() if flags.values.get(name, value) != value)
    given = {name: flags.values[name] for name in names}
    return Facts(
        version=version,
        taken=datetime.now(UTC).isoformat(timespec="seconds"),
        flags=cast("Document", redact(given)),
        namespace=inventory.namespace,
        problems={plural: str(error) for plural, error in inventory.problems.items()},
    )


def packed(files: Mapping[str, str]) -> bytes:
    """Return the bytes of a bundle with these files."""
    buffer, now = io.BytesIO(), int(datetime.now(UTC).timestamp())
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            content = text.encode()
            entry = tarfile.TarInfo(f"harvester-ccm/{name}")
            entry.size, entry.mtime, entry.mode = len(content), now, 0o600
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def with_flags_of(bundle: Bundle, flags: FlagValues) -> FlagValues:
    """Return the flags with those of the bundle where the command line is silent; none says how to reach a cluster."""
    facts = bundle.facts
    recorded = {name: tuple(value) if isinstance(value, list) else value for name, value in facts.flags.items()}
    asked = DEFAULTS.keys() - WAYS - flags.explicit
    taken = {name: value for name, value in recorded.items() if name in asked}
    values = cast("Mapping[str, FlagValue]", {**flags.values, **taken})
    return replace(flags, values=values)


def recorded_flags(flags: FlagValues) -> FlagValues | None:
    """Return the flags with those of the bundle among the files; None where there is none."""
    name = next((name for name in flags.words(FILENAME.name) if is_bundle(name)), None)
    if name is None:
        return None
    try:
        return with_flags_of(read_bundle(name), flags)
    except CCMError as error:
        raise refuse(str(error)) from None


def is_bundle(name: str) -> bool:
    """Return whether a file begins as a bundle does; False for one that cannot be read."""
    try:
        with Path(name).open("rb") as file:
            return file.read(2) == GZIP
    except OSError:
        return False


def read_bundle(name: str) -> Bundle:
    """Return what a bundle says. Raises CCMError where it is none."""
    try:
        with tarfile.open(name, mode="r:gz") as archive:
            texts = {one: _member(archive, f"harvester-ccm/{one}") for one in (OBJECTS, FACTS)}
        return Bundle(texts[OBJECTS], msgspec.json.decode(texts[FACTS], type=Facts))
    except (OSError, KeyError, EOFError, tarfile.TarError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CCMError(f"{name}: no bundle of 'harvester-ccm collect' ({error.__class__.__name__})") from error


def _member(archive: tarfile.TarFile, name: str) -> str:
    file = archive.extractfile(name)
    return file.read(LARGEST).decode() if file else ""
