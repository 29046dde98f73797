"""Two API servers on loopback that return fixed objects: enough for commands, without etcd.

They have no permissions, admission and watches, and store nothing: those are tested on real servers.
"""

import json
import socketserver
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

Json = dict[str, Any]

TOKEN = "token-of-a-test"


@dataclass
class LoopbackApi:
    """The objects and responses of a server."""

    objects: list[Json] = field(default_factory=list)
    groups: dict[str, list[str]] = field(default_factory=dict)
    """API groups and their versions, or API versions and their resources."""
    rules: list[Json] = field(default_factory=list)
    """What the client may do, as it is reviewed."""
    denied: frozenset[str] = frozenset()
    """Verbs and resources of access reviews that are not allowed, with ``/name`` only those about this object."""
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Method and path to status and message of a refusal."""
    refusal: tuple[int, str] | None = None
    """Status and message of a refusal of everything."""
    seen: list[str] = field(default_factory=list)
    """Method and path of every request."""
    url: str = ""

    def answer(self, method: str, target: str, body: Json) -> tuple[int, Json]:
        path = urlsplit(target).path
        self.seen.append(f"{method} {path}")
        refused = self.refusal or self.refusals.get(f"{method} {path}")
        if refused is not None:
            status, message = refused
            failure: Json = {"kind": "Status", "status": "Failure", "reason": "InternalError", "message": message}
            if status == 403:
                failure["reason"] = "Forbidden"
            elif message.startswith("namespaces "):
                failure |= {"reason": "NotFound", "details": {"name": path.split("/")[-2]}}
            return status, failure
        if path == "/version":
            return 200, {"gitVersion": "v1.35.0"}
        if path.removeprefix("/apis/") in self.groups:
            names = self.groups[path.removeprefix("/apis/")]
            return 200, {"versions": [{"version": one} for one in names], "resources": [{"name": one} for one in names]}
        if method == "POST":
            asked = body.get("spec", {}).get("resourceAttributes", {})
            about = f"{asked.get('verb')} {asked.get('resource')}"
            is_allowed = not self.denied & {about, f"{about}/{asked.get('name')}"}
            review = {"userInfo": {"username": "tester"}, "allowed": is_allowed, "resourceRules": self.rules}
            return 201, {**body, "status": review}
        return self._read(path)

    def _read(self, path: str) -> tuple[int, Json]:
        places = {_place(one): one for one in self.objects}
        if path in places:
            return 200, places[path]
        parts = path.split("/")
        items = [one for place, one in places.items() if _is_in(place.split("/"), parts)]
        if items or parts[-1] in _PLURALS.values():
            return 200, {"metadata": {"resourceVersion": "7"}, "items": items}
        status = {"kind": "Status", "reason": "NotFound", "message": "not found", "details": {"name": parts[-1]}}
        return 404, status


_PLURALS = {
    "Pod": "pods",
    "Service": "services",
    "Node": "nodes",
    "Namespace": "namespaces",
    "ConfigMap": "configmaps",
    "LoadBalancer": "loadbalancers",
    "VirtualMachine": "virtualmachines",
    "VirtualMachineInstance": "virtualmachineinstances",
    "EndpointSlice": "endpointslices",
    "Lease": "leases",
    "Event": "events",
    "ServiceCIDR": "servicecidrs",
    "IPPool": "ippools",
}


def _place(one: Json) -> str:
    version, meta = one["apiVersion"], one["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    home = f"/namespaces/{meta['namespace']}" if meta.get("namespace") else ""
    return f"{root}{home}/{_PLURALS[one['kind']]}/{meta['name']}"


def _is_in(place: Sequence[str], collection: Sequence[str]) -> bool:
    everywhere = [*place[:-4], place[-2]] if "namespaces" in place[:-1] else place[:-1]
    return list(collection) in (list(place[:-1]), list(everywhere))


@contextmanager
def serving(api: LoopbackApi) -> Iterator[None]:
    """Serve it over http on a port of loopback, which ``url`` says."""

    class Handler(socketserver.StreamRequestHandler):
        """As much of HTTP as clients of these servers speak: the library's server takes three times as long."""

        def handle(self) -> None:
            while line := self.rfile.readline().decode():
                method, target, _ = line.split()
                headers = dict(field.lower().split(": ", 1) for field in iter(self._field, ""))
                body = self.rfile.read(int(headers.get("content-length", "0")))
                status, found = api.answer(method, target, json.loads(body or b"{}"))
                content = json.dumps(found).encode()
                head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Length: {len(content)}\r\n\r\n"
                # A command that has failed does not wait for its other requests.
                with suppress(ConnectionError):
                    self.wfile.write(head.encode() + content)

        def _field(self) -> str:
            return self.rfile.readline().decode().rstrip("\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        api.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def two_clusters(guest: LoopbackApi, harvester: LoopbackApi, directory: Path, namespace: str) -> Iterator[list[str]]:
    with ExitStack() as stack:
        flags = ["--cluster-name=demo"]
        for name, api in (("cloud-config", harvester), ("kubeconfig", guest)):
            stack.enter_context(serving(api))
            file = directory / name
            file.write_text(kubeconfig(api.url, namespace if name == "cloud-config" else "", TOKEN))
            file.chmod(0o600)
            flags.append(f"--{name}={file}")
        yield flags


def kubeconfig(server: str, namespace: str, token: str) -> str:
    context = {"cluster": "c", "user": "u", **({"namespace": namespace} if namespace else {})}
    return str(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "x",
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {"token": token}}],
                "contexts": [{"name": "x", "context": context}],
            }
        )
    )
