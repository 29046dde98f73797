"""Writes kubeconfig files of the shapes that the development environment hands out."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from devenv.pki import KeyPair


@dataclass(frozen=True)
class Endpoint:
    """Where an API server is reached, and the authority that signed its certificate."""

    url: str
    ca_file: Path


def write_certificate_kubeconfig(path: Path, endpoint: Endpoint, *, client: KeyPair) -> Path:
    """A kubeconfig that authenticates by client certificate. Certificate and key are embedded."""
    return _write(
        path,
        endpoint,
        user={
            "client-certificate-data": _embedded(client.certificate),
            "client-key-data": _embedded(client.key),
        },
        namespace="default",
    )


def write_token_kubeconfig(path: Path, endpoint: Endpoint, *, token: str, namespace: str) -> Path:
    """A kubeconfig that authenticates by bearer token.

    Cluster, user and context are all called ``default``, and the context carries a namespace: so does the
    file that Harvester makes for the nodes of a guest cluster.
    """
    return _write(path, endpoint, user={"token": token}, namespace=namespace)


def merge_kubeconfigs(path: Path, files: Mapping[str, Path]) -> Path:
    """One kubeconfig with a context for each of the files, which this module wrote; the first is the current one."""
    document: dict[str, object] = {"apiVersion": "v1", "kind": "Config", "current-context": next(iter(files))}
    merged: dict[str, list[dict[str, object]]] = {"clusters": [], "users": [], "contexts": []}
    for name, file in files.items():
        source = yaml.safe_load(file.read_text())
        for kind, entries in merged.items():
            entries.append({**source[kind][0], "name": name})
        merged["contexts"][-1]["context"] = {**source["contexts"][0]["context"], "cluster": name, "user": name}
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump({**document, **merged}, sort_keys=False))
    return path


def _write(path: Path, endpoint: Endpoint, *, user: dict[str, str], namespace: str) -> Path:
    cluster = {"server": endpoint.url, "certificate-authority-data": _embedded(endpoint.ca_file)}
    context = {"cluster": "default", "user": "default", "namespace": namespace}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default", "cluster": cluster}],
        "users": [{"name": "default", "user": user}],
        "contexts": [{"name": "default", "context": context}],
        "current-context": "default",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    # A rewritten file keeps its mode, a new one is private from the start.
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def _embedded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
