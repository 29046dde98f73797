"""KubeVirt's subresource ``guestosinfo``, served beside the API server and registered with it.

The API server authenticates, checks the client's rights, and passes the request on, as it does to KubeVirt.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import structlog
from aiohttp import web

from devenv.harvester.records import INSTANCES
from devenv.harvester.tlsserver import TlsServer
from devenv.watch import Document, documents
from harvester_ccm.errors import AlreadyExists, NotFound
from harvester_ccm.kube.client import ApiClient

GROUP: Final = "subresources.kubevirt.io"
SERVICE: Final = "virt-api"
NAMESPACE: Final = "kube-system"
START_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.1

SERVICES: Final = documents("", "v1", "services", kind="Service")
API_SERVICES: Final = documents("apiregistration.k8s.io", "v1", "apiservices", kind="APIService", namespaced=False)

log = structlog.get_logger(__name__)


class GuestAgentApi:
    """Answers for the guest agents of all VMIs. Use as an async context manager.

    A VMI whose condition ``AgentConnected`` is True answers with its name as host name, or with what ``hostnames``
    has under its ``namespace/name``; any other one as KubeVirt does: 409.
    """

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        path = "/namespaces/{namespace}/virtualmachineinstances/{name}/guestosinfo"
        routes = [
            web.get(f"/apis/{GROUP}/v1", _discovery),
            web.get(f"/apis/{GROUP}/v1{path}", self._answer),
        ]
        self._server = TlsServer(f"{SERVICE}.{NAMESPACE}.svc", routes)
        self.hostnames: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        await self._server.start()
        try:
            await self._register(self._server.port, self._server.authority)
        except BaseException:
            await self._server.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with suppress(NotFound):
                await self._client.delete(API_SERVICES, f"v1.{GROUP}")
            with suppress(NotFound):
                await self._client.delete(SERVICES, SERVICE, namespace=NAMESPACE)
        finally:
            await self._server.stop()

    async def _register(self, port: int, authority: str) -> None:
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE, "namespace": NAMESPACE},
            # The API server takes no endpoints on loopback, but goes to a name that means it.
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
        with suppress(AlreadyExists):
            await self._client.create(SERVICES, service, namespace=NAMESPACE)
        with suppress(NotFound):
            await self._client.delete(API_SERVICES, f"v1.{GROUP}")
        await self._client.create(API_SERVICES, _api_service(port, authority))
        async with asyncio.timeout(START_SECONDS):
            while not await self._is_available():  # noqa: ASYNC110 - remote state
                await asyncio.sleep(POLL_SECONDS)

    async def _is_available(self) -> bool:
        registered = await self._client.get(API_SERVICES, f"v1.{GROUP}")
        conditions = (registered.get("status") or {}).get("conditions") or ()
        return any(c["type"] == "Available" and c["status"] == "True" for c in conditions)

    async def _answer(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        try:
            instance = await self._client.get(INSTANCES, name, namespace=namespace)
        except NotFound as error:
            return _failure(404, "NotFound", str(error), name)
        status = instance.get("status") or {}
        conflict = f'Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io "{name}": '
        if status.get("phase") != "Running":
            return _failure(409, "Conflict", f"{conflict}VMI is not running", name)
        if not any(c["type"] == "AgentConnected" and c["status"] == "True" for c in status.get("conditions") or ()):
            return _failure(409, "Conflict", f"{conflict}VMI does not have guest agent connected", name)
        hostname = self.hostnames.get(f"{namespace}/{name}", name)
        info = {
            "apiVersion": f"{GROUP}/v1",
            "kind": "VirtualMachineInstanceGuestAgentInfo",
            "guestAgentVersion": "9.0.0",
            "hostname": hostname,
            "os": {"name": "Ubuntu", "id": "ubuntu", "machine": "x86_64"},
            "timezone": "UTC, 0",
        }
        return web.json_response(info)


async def _discovery(_request: web.Request) -> web.Response:
    entry: Document = {
        "name": "virtualmachineinstances/guestosinfo",
        "singularName": "",
        "namespaced": True,
        "kind": "VirtualMachineInstanceGuestAgentInfo",
        "verbs": ["get"],
    }
    listed = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/v1", "resources": [entry]}
    return web.json_response(listed)


def _failure(code: int, reason: str, message: str, name: str) -> web.Response:
    details = {"name": name, "kind": "virtualmachineinstances"}
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "details": details}
    return web.json_response(status | {"code": code, "reason": reason, "message": message}, status=code)


def _api_service(port: int, authority: str) -> Document:
    return {
        "apiVersion": API_SERVICES.api_version,
        "kind": API_SERVICES.kind,
        "metadata": {"name": f"v1.{GROUP}"},
        "spec": {
            "group": GROUP,
            "version": "v1",
            "groupPriorityMinimum": 1000,
            "versionPriority": 15,
            "caBundle": authority,
            "service": {"namespace": NAMESPACE, "name": SERVICE, "port": port},
        },
    }
