"""A small synchronous client of the Kubernetes REST API, for set-up and checks in tests and in the demo.

It can be used from any thread. It is no part of the product, whose own client is the thing under test.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import urllib3
import yaml

from devenv.process import DevenvError

Json = dict[str, Any]
"""A Kubernetes object or list as it is on the wire."""

REQUEST_SECONDS = 30.0
CRD_SECONDS = 30.0
_POLL_SECONDS = 0.05
_CONFLICT_TRIES = 5
RETRIES = urllib3.Retry(1, redirect=False, allowed_methods=["GET"], respect_retry_after_header=False)
"""A GET that meets a connection which the server has closed since is sent again."""


class RefusedError(DevenvError):
    """Raised when the server answered with an error status.

    ``status`` is the HTTP status, ``answer`` the Status object (empty when the body was none).
    """

    def __init__(self, request: str, status: int, answer: Json) -> None:
        super().__init__(f"{request}: HTTP {status}: {answer.get('message', 'no message')}")
        self.status = status
        self.answer = answer


_NAMESPACE = "{namespace}"
"""Where the namespace stands in the path of a kind's objects."""


class RestClient:
    """Requests as one identity to one API server."""

    def __init__(self, url: str, context: ssl.SSLContext, *, token: str | None = None) -> None:
        """``context`` carries the authority and, where it is the identity, the client certificate."""
        self.url = url
        self._pool = urllib3.PoolManager(ssl_context=context, timeout=REQUEST_SECONDS)
        self.token = token
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._places: dict[tuple[str, str], str] = {}

    @classmethod
    def from_kubeconfig(cls, path: Path) -> Self:
        """The identity of a kubeconfig written by ``devenv.kubeconfig`` (embedded data, one context)."""
        document: Json = yaml.safe_load(path.read_text())
        cluster: Json = document["clusters"][0]["cluster"]
        user: Json = document["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=authority)
        if "client-key-data" in user:
            # The ssl module loads a client key from a file only.
            with tempfile.NamedTemporaryFile(suffix=".pem") as pem:
                pem.write(base64.b64decode(user["client-certificate-data"]))
                pem.write(base64.b64decode(user["client-key-data"]))
                pem.flush()
                context.load_cert_chain(pem.name)
        return cls(cluster["server"], context, token=user.get("token"))

    def request(self, method: str, path: str, *, body: Json | None = None, accept: str = "application/json") -> Json:
        """Send one request and return the decoded answer, ``{"text": …}`` if it is no JSON.

        A PATCH is a JSON merge patch. Raises RefusedError on an error status, OSError when there is no
        answer.
        """
        headers = {**self._headers, "Accept": accept}
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
        content = None if body is None else json.dumps(body)
        try:
            response = self._pool.request(method, self.url + path, body=content, headers=headers, retries=RETRIES)
        except urllib3.exceptions.HTTPError as error:
            raise ConnectionError(f"{method} {path}: {error}") from error
        answer = _decoded(response.data)
        if response.status >= http.client.BAD_REQUEST:
            raise RefusedError(f"{method} {path}", response.status, answer)
        return answer

    def get_or_none(self, path: str) -> Json | None:
        """The object at ``path``, or None when the server answers 404."""
        try:
            return self.request("GET", path)
        except RefusedError as refusal:
            if refusal.status == http.client.NOT_FOUND:
                return None
            raise

    def apply(self, *objects: Json | Path) -> None:
        """Create or replace objects, in order; a path is a file with YAML or JSON documents.

        A CustomResourceDefinition is waited for until its resources can be used. Where a resource has a
        status subresource, the status is left alone, as with every write to the main resource. Raises
        RefusedError when the server refuses one, DevenvError when its kind is unknown or a CRD is not
        established in time.
        """
        for manifest in _manifests(objects):
            self._create_or_replace(manifest)
            if manifest["kind"] == "CustomResourceDefinition":
                self._await_crd(manifest)

    def _create_or_replace(self, manifest: Json) -> None:
        collection = self.collection_path(
            manifest["apiVersion"], manifest["kind"], namespace=manifest["metadata"].get("namespace")
        )
        path = f"{collection}/{manifest['metadata']['name']}"
        for attempt in range(_CONFLICT_TRIES):
            present = self.get_or_none(path)
            try:
                if present is None:
                    self.request("POST", collection, body=manifest)
                else:
                    version = {"resourceVersion": present["metadata"]["resourceVersion"]}
                    replacement = manifest | {"metadata": manifest["metadata"] | version}
                    self.request("PUT", path, body=replacement)
            except RefusedError as refusal:
                if refusal.status != http.client.CONFLICT or attempt == _CONFLICT_TRIES - 1:
                    raise
            else:
                return

    def collection_path(self, api_version: str, kind: str, *, namespace: str | None = None) -> str:
        """The path of a kind's objects, found by discovery once; ``default`` is used where a namespace is needed.

        Raises DevenvError when the server does not know the kind.
        """
        place = self._places.get((api_version, kind)) or self._discover(api_version, kind, namespace=_NAMESPACE)
        if place is None:
            raise DevenvError(f"{self.url} has no kind {kind} in {api_version}: apply its CRD first")
        self._places[api_version, kind] = place
        return place.replace(_NAMESPACE, namespace or "default")

    def _discover(self, api_version: str, kind: str, *, namespace: str) -> str | None:
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        for resource in (self.get_or_none(root) or {}).get("resources", ()):
            if resource["kind"] == kind and "/" not in resource["name"]:
                scope = f"/namespaces/{namespace}" if resource["namespaced"] else ""
                return f"{root}{scope}/{resource['name']}"
        return None

    def _await_crd(self, manifest: Json) -> None:
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{manifest['metadata']['name']}"
        group, names = manifest["spec"]["group"], manifest["spec"]["names"]
        served = [f"{group}/{version['name']}" for version in manifest["spec"]["versions"] if version["served"]]

        def usable() -> bool:
            conditions = self.request("GET", path).get("status", {}).get("conditions") or ()
            if not any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
                return False
            # Discovery and the resource itself follow the condition, each a little later.
            return all(
                self._discover(version, names["kind"], namespace="default") is not None
                and self.get_or_none(f"/apis/{version}/{names['plural']}?limit=1") is not None
                for version in served
            )

        wait_until(usable, seconds=CRD_SECONDS, what=f"CRD {manifest['metadata']['name']}")


def wait_until(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Poll ``condition`` until it holds. Raises DevenvError naming ``what`` after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise DevenvError(f"{what} was not ready within {seconds:g} s")
        time.sleep(_POLL_SECONDS)


def _decoded(raw: bytes) -> Json:
    try:
        answer = json.loads(raw)
    except ValueError:
        return {"text": raw.decode(errors="replace")}
    return answer if isinstance(answer, dict) else {"text": raw.decode()}


def _manifests(objects: tuple[Mapping[str, Any] | Path, ...]) -> Iterator[Json]:
    for one in objects:
        if isinstance(one, Path):
            yield from (document for document in yaml.safe_load_all(one.read_text()) if document)
        else:
            yield dict(one)
