"""Objects from files: YAML or JSON, one document or many, single objects or Lists, as ``kubectl get -o yaml`` prints.

What a file does not say is supposed, and every supposition is a sentence in the inventory. A file that cannot be used
is a ``ConfigurationError`` that names the file, the object and the field.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec
import yaml
from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.commands.call import Call, harvester_namespace, refuse
from harvester_ccm.commands.inventory import COLLECTIONS, Inventory
from harvester_ccm.commands.render import Document
from harvester_ccm.model.core import SERVICES, parse_provider_id
from harvester_ccm.model.harvester import VirtualMachine
from harvester_ccm.model.meta import Object, ObjectMeta, Resource

STANDARD_INPUT: Final = "-"
DEFAULT_NAMESPACE: Final = "default"

T = TypeVar("T", bound=Object)
_KINDS: Final = {resource.kind: (field, resource) for field, resource in COLLECTIONS.items()}
_HARVESTER: Final = frozenset({"load_balancers", "vms", "vmis", "slices"})
"""Those that are in Harvester."""


class _Found(Struct, frozen=True):
    """One object of a file."""

    document: Document
    where: str

    @property
    def kind(self) -> str:
        return _text(self.document, "kind")

    @property
    def group(self) -> str:
        group, slash, _ = _text(self.document, "apiVersion").partition("/")
        return group if slash else ""

    @property
    def known(self) -> bool:
        return self.kind in _KINDS and self.group == _KINDS[self.kind][1].group

    @property
    def metadata(self) -> Document:
        metadata = self.document.get("metadata")
        return cast("Document", metadata) if isinstance(metadata, dict) else {}

    @property
    def title(self) -> str:
        namespace, name = _text(self.metadata, "namespace"), _text(self.metadata, "name")
        return f"{self.kind or 'object'} {namespace}/{name}" if namespace else f"{self.kind or 'object'} {name}"


def read_recorded(call: Call, *, once_meant: bool = False) -> Inventory:
    """Return what is in the files of a command line, with a VM for every instance that has none in them.

    ``once_meant`` as for ``harvester_namespace``.
    """
    return _with_stand_ins(read_files(call.files, namespace=harvester_namespace(call, once_meant=once_meant)))


def read_files(names: Sequence[str], *, namespace: str) -> Inventory:
    """Return all objects of the files that count for an explanation.

    ``namespace`` is the one in Harvester; where it is empty, that of the objects is taken. Raises ConfigurationError
    for what cannot be read.
    """
    found = [one for name in names for one in _objects(_read(name), _title(name))]
    known = [one for one in found if one.known]
    others = ", ".join(one.title for one in found if not one.known)
    assumptions = [f"not looked at: {others}"] if others else []
    chosen = namespace or _harvester_namespace(known)
    if not chosen:
        chosen = DEFAULT_NAMESPACE
        assumptions.append(f"namespace in Harvester: {DEFAULT_NAMESPACE}; --harvester-namespace names another")
    collected: dict[str, list[Object]] = {}
    for one in known:
        field, resource = _KINDS[one.kind]
        home = chosen if field in _HARVESTER else DEFAULT_NAMESPACE
        item = _decode(one, resource, home if resource.namespaced else "", assumptions)
        # The program reads one namespace of Harvester only.
        if field not in _HARVESTER or item.metadata.namespace == chosen:
            collected.setdefault(field, []).append(item)
        else:
            assumptions.append(f"{one.title} is left out: the namespace in Harvester is {chosen}")
    contents: dict[str, Any] = {field: tuple(items) for field, items in collected.items()}
    return Inventory(**contents, namespace=chosen).assuming(*assumptions)


def _with_stand_ins(inventory: Inventory) -> Inventory:
    """Return the inventory with a VM for every instance that has none."""
    present = {one.metadata.name for one in inventory.vms}
    missing = [one.metadata for one in inventory.vmis if one.metadata.name not in present]
    if not missing:
        return inventory
    names = ", ".join(one.name for one in missing)
    sentence = f"a VM of the same name for VirtualMachineInstance {names}; its UID is not known"
    return _with(inventory, missing).assuming(sentence)


def with_vms_of_nodes(inventory: Inventory) -> Inventory:
    """Return the inventory with a VM for every Node, where none is in the files."""
    if inventory.vms or not inventory.nodes:
        return inventory
    metas = (ObjectMeta(name=one.metadata.name, namespace=inventory.namespace) for one in inventory.nodes)
    return _with(inventory, metas).assuming("each Node is the VM of its name: no VM is in the files")


def _with(inventory: Inventory, metas: Iterable[ObjectMeta]) -> Inventory:
    """Return the inventory with VMs of these names; each has the UID of the Node of its name, where that says one."""
    uids = {one.metadata.name: parse_provider_id(one.spec.provider_id) for one in inventory.nodes}
    made = (
        ObjectMeta(
            name=one.name, namespace=one.namespace, uid=uids.get(one.name) or f"uid-of-vm-{one.name}", labels=one.labels
        )
        for one in metas
    )
    return replace(inventory, vms=(*inventory.vms, *(VirtualMachine(metadata=one) for one in made)))


def _title(name: str) -> str:
    return "standard input" if name == STANDARD_INPUT else name


def _read(name: str) -> str:
    try:
        return sys.stdin.read() if name == STANDARD_INPUT else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise refuse(f"{_title(name)}: not UTF-8 text; expected YAML or JSON") from None
    except OSError as error:
        raise refuse(f"{_title(name)}: {(error.strerror or error.__class__.__name__).lower()}") from None


def _objects(text: str, where: str) -> Iterator[_Found]:
    for document in _documents(text, where):
        if document is None:
            continue
        if not isinstance(document, dict):
            raise refuse(f"{where}: a document is no Kubernetes object; expected a mapping with kind and metadata")
        yield from _flat(cast("Document", document), where)


def _documents(text: str, where: str) -> Iterable[object]:
    if text.lstrip().startswith("{"):
        try:
            return _json_documents(text)
        except ValueError:
            pass  # a YAML mapping may begin with a brace as well
    try:
        return list(yaml.load_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        position = f" at line {mark.line + 1}" if mark else ""
        raise refuse(f"{where}: neither YAML nor JSON{position}") from None


def _json_documents(text: str) -> list[object]:
    decoder, documents, position = json.JSONDecoder(), [], 0
    while position < len(text):
        document, position = decoder.raw_decode(text, position)
        documents.append(document)
        position += len(text[position:]) - len(text[position:].lstrip())
    return documents


class _Loader(yaml.SafeLoader):
    """Reads times as the text that they are in the API."""


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _flat(document: Document, where: str) -> Iterator[_Found]:
    """Yield the object, or the objects of a List; items of a typed list may leave out their kind."""
    items, kind = document.get("items"), _text(document, "kind")
    if not kind.endswith("List") or not isinstance(items, list):
        yield _Found(document, where)
        return
    common = {"apiVersion": document.get("apiVersion", ""), "kind": kind.removesuffix("List")}
    for item in items:
        if isinstance(item, dict):
            yield from _flat({**(common if kind != "List" else {}), **cast("Document", item)}, where)


def _harvester_namespace(known: Iterable[_Found]) -> str:
    """Return the namespace of the objects of Harvester; empty when none of them names one."""
    ours = [one for one in known if _KINDS[one.kind][0] in _HARVESTER]
    namespaces = sorted({_text(one.metadata, "namespace") for one in ours} - {""})
    if len(namespaces) > 1:
        raise refuse(
            f"the files have objects of several namespaces in Harvester ({', '.join(namespaces)}); choose one with "
            "--harvester-namespace"
        )
    return namespaces[0] if namespaces else ""


def _decode(one: _Found, resource: Resource[T], namespace: str, assumptions: list[str]) -> T:
    """Return the object with what it lacks filled in, which is added to the assumptions."""
    if not _text(one.metadata, "name"):
        raise refuse(f"{one.where}: a {one.kind} has no metadata.name")
    metadata = dict(one.metadata)
    if namespace and not _text(metadata, "namespace"):
        metadata["namespace"] = namespace
        assumptions.append(f"{one.title} has no namespace: {namespace} is taken")
    if resource is SERVICES and not _text(metadata, "uid"):
        assumptions.append(f"{one.title} has no UID: the name of its load balancer cannot be told for certain")
    try:
        return resource.decode(json.dumps({**one.document, "metadata": metadata}).encode())
    except msgspec.MsgspecError as error:
        raise refuse(f"{one.where}: {one.title}: {error}") from None
    except TypeError:
        raise refuse(f"{one.where}: {one.title}: holds values that JSON does not have") from None


def _text(document: Mapping[str, object], key: str) -> str:
    value = document.get(key)
    return value if isinstance(value, str) else ""
