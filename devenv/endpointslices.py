"""The EndpointSlices of the guest cluster, as Kubernetes' own controllers maintain them.

Every Service with a selector has a slice for each of its IP families, also an empty one. It has as many ready endpoints
as the Service has Pods: one, unless ``scale`` says otherwise. It is deleted after its Service.
"""

import asyncio
from contextlib import suppress
from typing import Final, Self

from devenv.announcement import SERVICE_NAME_LABEL
from devenv.background import Background
from devenv.harvester.records import SERVICES, SLICES
from devenv.watch import Document, Mirror, key_of, labels_of
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import AlreadyExists, KubeError, NotFound

START_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 0.2
POLL_SECONDS: Final = 0.02
POD_ADDRESSES: Final = {"IPv4": "10.42.0.", "IPv6": "fd42::"}
"""Addresses of Pods without their last number, by IP family."""
MANAGED_BY: Final = {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}


class EndpointSlices:
    """The EndpointSlice controller of one cluster. Use as an async context manager."""

    def __init__(self, client: ApiClient, *, node: str) -> None:
        """``node`` is where all Pods run."""
        self._client = client
        self._node = node
        self._pods: dict[str, int] = {}
        """Number of ready Pods of Services that do not have one."""
        self._services = Mirror(client, SERVICES)
        self._services.subscribe(self._on_service)
        self._due: asyncio.Queue[tuple[str, Document | None]] = asyncio.Queue()
        """Keys of Services, each with the Service if it was deleted."""
        self._background = Background("endpoint slices", [self._services.run, self._work])

    async def __aenter__(self) -> Self:
        await self._background.start([self._services.wait_synced], within=START_SECONDS)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._background.stop()

    def scale(self, name: str, pods: int, *, namespace: str = "default") -> None:
        """Let a Service have this number of ready Pods, also one that will be created later."""
        key = f"{namespace}/{name}"
        self._pods[key] = pods
        self._due.put_nowait((key, None))

    async def collected(self, name: str, *, namespace: str = "default") -> None:
        """Return once the slices of a deleted Service of this name are deleted. Raises TimeoutError.

        kube-vip would take their deletion for one of the slices of the next Service of the name, and withdraw it.
        """
        async with asyncio.timeout(START_SECONDS):
            while await self._is_uncollected(name, namespace):  # noqa: ASYNC110 - an API server
                await asyncio.sleep(POLL_SECONDS)

    async def _is_uncollected(self, name: str, namespace: str) -> bool:
        try:
            await self._client.get(SERVICES, name, namespace=namespace)
        except NotFound:
            slices = (await self._client.list(SLICES, namespace=namespace)).items
            return any(labels_of(found).items() >= _labels_of(name).items() for found in slices)
        return False

    def _on_service(self, before: Document | None, after: Document | None) -> None:
        if after is not None:
            self._due.put_nowait((key_of(after), None))
        elif before is not None:
            self._due.put_nowait((key_of(before), before))

    async def _work(self) -> None:
        while True:
            key, deleted = await self._due.get()
            try:
                if deleted is not None:
                    await self._delete_slices(deleted)
                else:
                    await self._write_slices(key)
            except KubeError:
                await asyncio.sleep(RETRY_SECONDS)
                self._due.put_nowait((key, deleted))

    async def _write_slices(self, key: str) -> None:
        service = self._services.get(key)
        if service is None or not service["spec"].get("selector"):
            return
        for wanted in self._slices_of(service):
            await self._write(wanted)

    async def _write(self, wanted: Document) -> None:
        name, namespace = wanted["metadata"]["name"], wanted["metadata"]["namespace"]
        try:
            found = await self._client.get(SLICES, name, namespace=namespace)
        except NotFound:
            with suppress(AlreadyExists):
                await self._client.create(SLICES, wanted, namespace=namespace)
            return
        content = {"endpoints": wanted["endpoints"], "ports": wanted["ports"]}
        if any(found.get(field) != value for field, value in content.items()):
            await self._client.merge_patch(SLICES, name, content, namespace=namespace)

    async def _delete_slices(self, service: Document) -> None:
        for document in self._slices_of(service):
            with suppress(NotFound):
                await self._client.delete(
                    SLICES, document["metadata"]["name"], namespace=document["metadata"]["namespace"]
                )

    def _slices_of(self, service: Document) -> list[Document]:
        """Return the slices of a Service as they should be."""
        families = service["spec"].get("ipFamilies") or ["IPv4"]
        return [self._slice_of(service, family) for family in families]

    def _slice_of(self, service: Document, family: str) -> Document:
        metadata = service["metadata"]
        owner = {"apiVersion": "v1", "kind": "Service", "name": metadata["name"], "uid": metadata["uid"]}
        conditions = {"ready": True, "serving": True, "terminating": False}
        pods = self._pods.get(key_of(service), 1)
        return {
            "apiVersion": SLICES.api_version,
            "kind": SLICES.kind,
            "metadata": {
                "name": f"{metadata['name']}-{family.lower()}-{metadata['uid'][:5]}",
                "namespace": metadata["namespace"],
                "labels": _labels_of(metadata["name"]),
                "ownerReferences": [owner],
            },
            "addressType": family,
            "endpoints": [
                {"addresses": [f"{POD_ADDRESSES[family]}{number}"], "conditions": conditions, "nodeName": self._node}
                for number in range(1, pods + 1)
            ],
            "ports": [_port_of(port) for port in service["spec"].get("ports") or ()],
        }


def _labels_of(name: str) -> dict[str, str]:
    """Return the labels of the slices of a Service."""
    return {SERVICE_NAME_LABEL: name, **MANAGED_BY}


def _port_of(port: Document) -> Document:
    """Return the port of the Pods for a port of a Service."""
    target = port.get("targetPort")
    number = target if isinstance(target, int) else port["port"]
    return {"name": port.get("name") or "", "port": number, "protocol": port.get("protocol", "TCP")}
