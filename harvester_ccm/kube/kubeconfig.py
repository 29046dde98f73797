"""Kubeconfig files, and what one context of them names: a server, a user, a namespace.

Several files are read as one, by the rules of client-go for ``KUBECONFIG``: of entries with the same name the first
holds whole, ``current-context`` is that of the first file that sets it, a file that is missing or empty is left out as
long as another one is there. What an entry names by a relative path is looked for beside the file that has the entry.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Sequence
from dataclasses import dataclass, field  # noqa: TID251  # a field must not be printed
from pathlib import Path
from typing import cast

import yaml
from msgspec import Struct

from harvester_ccm.errors import CredentialError
from harvester_ccm.kube.credential_files import PIPE_SECONDS, is_missing_or_empty, read_text
from harvester_ccm.kube.tokens import Section
from harvester_ccm.model.meta import DNS_LABEL


@dataclass(frozen=True)
class Entry:
    """One named part of a kubeconfig."""

    path: Path
    """The file that has it."""
    kind: str
    """``cluster``, ``user`` or ``context``."""
    name: str
    section: Section = field(repr=False)

    def __str__(self) -> str:
        """Return where it is, for messages."""
        return f"{self.path}: {self.kind} {self.name!r}"

    def text(self, key: str) -> str:
        """Return a text without the white space around it; empty when there is none.

        Raises CredentialError where something else stands there: left out, it would make another credential.
        """
        value = self.section.get(key)
        if value is not None and not isinstance(value, str):
            raise CredentialError(f"{self} has {key} that is no text; put it in quotes")
        return (value or "").strip()


class NamedContext(Struct, frozen=True):
    """What one context names."""

    namespace: str
    """Empty when the context names none."""
    cluster: Entry
    user: Entry
    """Without content when the context names no user."""


def read_kubeconfig(paths: Sequence[Path], context: str = "", *, pipe_seconds: float = PIPE_SECONDS) -> NamedContext:
    """Return what a context names, the current one unless told. Raises CredentialError.

    ``pipe_seconds``: so long a file may take that comes through a pipe.
    """
    present = [path for path in paths if not is_missing_or_empty(path)] or paths[:1]
    documents = [(path, _read_document(path, pipe_seconds)) for path in present]
    where = os.pathsep.join(map(str, present))
    wanted = context or next(filter(None, (str(one.get("current-context") or "").strip() for _, one in documents)), "")
    if not wanted:
        raise CredentialError(f"{where}: no current-context is set; name the context to use in it")
    found = _entry(where, documents, "contexts", wanted)
    user, namespace = found.text("user"), found.text("namespace")
    if namespace and not DNS_LABEL.fullmatch(namespace):
        raise CredentialError(f"{found} has namespace {namespace!r}, which is no name of a namespace")
    return NamedContext(
        namespace=namespace,
        cluster=_entry(where, documents, "clusters", found.text("cluster")),
        user=_entry(where, documents, "users", user) if user else Entry(found.path, "user", "", {}),
    )


def _entry(where: str, documents: Sequence[tuple[Path, Section]], kind: str, name: str) -> Entry:
    """Return the first entry of that name; ``where`` says which files these are."""
    known = set()
    for path, document in documents:
        entries = document.get(kind)
        for entry in entries if isinstance(entries, list) else ():
            if not isinstance(entry, dict):
                continue
            if entry.get("name") == name:
                value = entry.get(kind.removesuffix("s"))
                return Entry(
                    path, kind.removesuffix("s"), name, cast("Section", value) if isinstance(value, dict) else {}
                )
            known.add(str(entry.get("name")))
    listed = ", ".join(sorted(known)) or "none"
    files = "the file; it has" if len(documents) == 1 else "these files; they have"
    raise CredentialError(f"{where}: {kind.removesuffix('s')} {name!r} is not in {files}: {listed}")


def _read_document(path: Path, pipe_seconds: float) -> Section:
    text = read_text(path, pipe_seconds=pipe_seconds)
    if not text.strip():
        raise CredentialError(f"{path}: the file is empty; expected a kubeconfig")
    try:
        document = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe loaders
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # The library makes dates and numbers of what looks like one, and fails in its own way where there is none.
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise CredentialError(f"{path}: not valid YAML{where}; expected a kubeconfig") from None
    if isinstance(document, str):
        raise CredentialError(f"{path}: {_describe_text(document)}")
    if not isinstance(document, dict):
        raise CredentialError(f"{path}: not a kubeconfig; expected a document with clusters, contexts and users")
    kind = document.get("kind", "Config")
    if kind != "Config":
        raise CredentialError(f"{path}: the file holds a {kind}, not a kubeconfig (kind Config)")
    return cast("Section", document)


def _describe_text(text: str) -> str:
    try:
        decoded = base64.b64decode(text, validate=False)
    except (binascii.Error, ValueError):
        decoded = b""
    if b"clusters:" in decoded or b'"clusters"' in decoded:
        return "the kubeconfig is base64-encoded once too often; store the decoded text"
    return "plain text, not a kubeconfig; expected a document with clusters, contexts and users"
