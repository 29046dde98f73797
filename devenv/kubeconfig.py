"""Writes kubeconfig files of the shapes that the development environment hands out."""

from __future__ import annotations

import base64
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
