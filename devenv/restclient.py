"""A small synchronous client of the Kubernetes REST API, for set-up and checks in tests and in the demo.

It may be used from any thread: a connection serves one request at a time, and is used again. It is no part of the
product, whose own client is the thing under test.
"""

from __future__ import annotations

import base64
import http.client
import json
import select
import ssl
import tempfile
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import yaml

from devenv.process import DevenvError

Json = dict[str, Any]
"""A Kubernetes object or list as it is on the wire."""

REQUEST_SECONDS = 30.0
CRD_SECONDS = 30.0
_POLL_SECONDS = 0.05
_CONFLICT_TRIES = 5


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
        self._address = urlsplit(url).netloc
        self._context = context
        self.token = token
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._idle: deque[http.client.HTTPSConnection] = deque()
        self._places: dict[tuple[str, str], str] = {}
        weakref.finalize(self, _close, self._idle)

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
        status, raw = self._exchange(method, path, None if body is None else json.dumps(body), headers)
        answer = _decoded(raw)
        if status >= http.client.BAD_REQUEST:
            raise RefusedError(f"{method} {path}", status, answer)
        return answer

    def _exchange(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        while True:
            connection, used = self._open_connection()
            try:
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                raw = response.read()
            except BaseException as error:
                connection.close()
                # The server was started anew since, or closed a connection that nobody used. Whether it has done what
                # it was asked for is not known: what changes nothing may be asked again.
                if used and method == "GET" and isinstance(error, ConnectionError | ssl.SSLError):
                    continue
                raise
            self._idle.append(connection)
            return response.status, raw

    def _open_connection(self) -> tuple[http.client.HTTPSConnection, bool]:
        """Return a connection, and whether it was used before; not one that the server has closed since."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._connection(), False
            if not _is_dropped(connection):
                return connection, True
            connection.close()

    def _connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._address, context=self._context, timeout=REQUEST_SECONDS)

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


def _is_dropped(connection: http.client.HTTPSConnection) -> bool:
    """Return whether it was closed here, or there is something to read where nothing was asked: the end."""
    if connection.sock is None:
        return True
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _close(connections: deque[http.client.HTTPSConnection]) -> None:
    while connections:
        connections.pop().close()


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
