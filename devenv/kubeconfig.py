"""Kubeconfig files of the development environment."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from devenv.pki import KeyPair


@dataclass(frozen=True)
class Endpoint:
    """The address of an API server, and the authority that signed its certificate."""

    url: str
    ca_file: Path


def write_certificate_kubeconfig(path: Path, endpoint: Endpoint, *, client: KeyPair) -> Path:
    """Write a kubeconfig with an embedded client certificate and return its path."""
    user = {
        "client-certificate-data": _embedded(client.certificate),
        "client-key-data": _embedded(client.key),
    }
    return _write(path, endpoint, user=user, namespace="default")


def write_token_kubeconfig(path: Path, endpoint: Endpoint, *, token: str, namespace: str) -> Path:
    """Write a kubeconfig with a bearer token and return its path.

    Cluster, user and context are all named ``default``, and the context has a namespace, as in the file that Harvester
    creates for the nodes of a guest cluster.
    """
    return _write(path, endpoint, user={"token": token}, namespace=namespace)


def merge_kubeconfigs(path: Path, files: Mapping[str, Path]) -> Path:
    """Write a kubeconfig with a context for each of the files of this module; the first is the current one."""
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
    # An existing file keeps its mode, a new one is private.
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def _embedded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
