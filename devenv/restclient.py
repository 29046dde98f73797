"""A synchronous client of the Kubernetes REST API for tests and the demo, based on the official Python client.

It can be used in any thread. Tests verify with it what the controller, which has its own client, has written. Models of
the official client are not used: JSON documents contain all fields.
"""

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import urllib3
import yaml
from kubernetes import config

from devenv.process import DevenvError

Json = dict[str, Any]
"""A Kubernetes object or list in JSON."""

REQUEST_SECONDS = 30.0
CRD_SECONDS = 30.0
_POLL_SECONDS = 0.05
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
"""Server-side apply; JSON is valid YAML."""


class RefusedError(DevenvError):
    """Raised if the response has an error status.

    ``status`` is the HTTP status, ``answer`` the Status object (empty if the body has none).
    """

    def __init__(self, request: str, status: int, answer: Json) -> None:
        super().__init__(f"{request}: HTTP {status}: {answer.get('message', 'no message')}")
        self.status = status
        self.answer = answer


_NAMESPACE = "{namespace}"
"""Placeholder for the namespace in the path of a kind's objects."""


class RestClient:
    """Requests with the credentials of one kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self._client: Any = config.new_client_from_config(str(kubeconfig), persist_config=False)
        self.url = str(self._client.configuration.host)
        self._places: dict[tuple[str, str], str] = {}

    def request(self, method: str, path: str, *, body: Json | None = None, patch: str = MERGE) -> Json:
        """Send one request and return the decoded response, ``{"text": …}`` if it is not a JSON object.

        ``patch`` is the content type of a PATCH. Raises RefusedError on an error status, OSError without a response.
        """
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = patch if method == "PATCH" else "application/json"
        request = self._client.param_serialize(
            method, path, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        try:
            response = self._client.call_api(*request, _request_timeout=REQUEST_SECONDS)
            answer = _decoded(response.read())
        except urllib3.exceptions.HTTPError as error:
            raise ConnectionError(f"{method} {path}: {error}") from error
        if response.status >= http.client.BAD_REQUEST:
            raise RefusedError(f"{method} {path}", response.status, answer)
        return answer

    def get_or_none(self, path: str) -> Json | None:
        """Return the object at ``path``, or None if the status is 404."""
        try:
            return self.request("GET", path)
        except RefusedError as refusal:
            if refusal.status == http.client.NOT_FOUND:
                return None
            raise

    def apply(self, *objects: Json | Path) -> None:
        """Apply objects on the server, in order; a path is a file with YAML or JSON documents.

        Returns once the resources of a CustomResourceDefinition can be used. Does not write the status of a resource
        with a status subresource. Raises RefusedError if the server rejects one, DevenvError if its kind is unknown
        or a CRD is not established in time.
        """
        for manifest in _manifests(objects):
            name, namespace = manifest["metadata"]["name"], manifest["metadata"].get("namespace")
            collection = self.collection_path(manifest["apiVersion"], manifest["kind"], namespace=namespace)
            self.request("PATCH", f"{collection}/{name}?fieldManager=devenv&force=true", body=manifest, patch=APPLY)
            if manifest["kind"] == "CustomResourceDefinition":
                self._await_crd(manifest)

    def collection_path(self, api_version: str, kind: str, *, namespace: str | None = None) -> str:
        """Return the path of a kind's objects, by discovery; the namespace is ``default`` if none is given.

        Raises DevenvError if the server does not have the kind.
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
            # Discovery and the resource itself follow the condition, each after a delay.
            return all(
                self._discover(version, names["kind"], namespace="default") is not None
                and self.get_or_none(f"/apis/{version}/{names['plural']}?limit=1") is not None
                for version in served
            )

        wait_until(usable, seconds=CRD_SECONDS, what=f"CRD {manifest['metadata']['name']}")


def status_of(client: RestClient, method: str, path: str, body: Json | None = None) -> int:
    """Return the status of the response to a request, 200 for every successful one."""
    try:
        client.request(method, path, body=body)
    except RefusedError as refusal:
        return refusal.status
    return http.client.OK


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
