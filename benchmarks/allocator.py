"""An instant allocator: what Harvester's controller does to a LoadBalancer, in one write and without a pause.

Every load balancer without an address gets the next one, the Ready condition and the controller's finalizer by a single
PUT; one that is being deleted loses the finalizer. One name always gets the same address, as in Harvester. What remains
of the measured time is that of the program and of the API servers.

``python -m benchmarks.allocator KUBECONFIG NAMESPACE`` runs until it is ended. It is a process of its own so that it
shares no interpreter lock with the load.
"""

from __future__ import annotations

import asyncio
import ipaddress
import sys
from contextlib import aclosing
from itertools import count
from pathlib import Path
from typing import Final

from devenv.watch import Document, documents
from harvester_ccm.errors import Conflict, NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_kubeconfig
from harvester_ccm.names import LB_CONTROLLER_FINALIZER, VM_NAME

LOAD_BALANCERS: Final = documents("loadbalancer.harvesterhci.io", "v1beta1", "loadbalancers", kind="LoadBalancer")
FIRST_ADDRESS: Final = int(ipaddress.IPv4Address("198.18.0.1"))
"""In the network that RFC 2544 sets aside for benchmarks; nothing is ever sent to it."""
POOL: Final = "benchmark"
MISSING_POOL: Final = "no-such-pool"
"""A load balancer that asks for it gets no address, and a condition that says why."""
SILENCE: Final = 150.0
"""Seconds without a line after which a watch counts as dead."""
WATCH_SECONDS: Final = 3600
REQUEST_SECONDS: Final = 120.0
"""Time limit of a request: it is the measured program that may not be slow."""


def answer(document: Document, address: str) -> Document | None:
    """Return the load balancer as Harvester would write it next, or None when nothing is to be done.

    ``address`` is the one it gets if it has none.
    """
    metadata = document["metadata"]
    finalizers = metadata.get("finalizers") or []
    if metadata.get("deletionTimestamp"):
        kept = [name for name in finalizers if name != LB_CONTROLLER_FINALIZER]
        return {**document, "metadata": {**metadata, "finalizers": kept}} if kept != finalizers else None
    status = document.get("status") or {}
    if (status.get("allocatedAddress") or {}).get("ip"):
        return None
    if document["spec"].get("ipPool") == MISSING_POOL:
        return _refused(document)
    wanted = {
        **status,
        "allocatedAddress": {"ip": address, "ipPool": POOL, "mask": "255.254.0.0", "gateway": "198.19.255.254"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    if document["spec"].get("workloadType") != "cluster":
        wanted["address"] = address
        wanted["backendServers"] = (document["spec"].get("backendServerSelector") or {}).get(VM_NAME, [])
    return {
        **document,
        "metadata": {**metadata, "finalizers": _with_ours(finalizers)},
        "status": wanted,
    }


def _refused(document: Document) -> Document | None:
    """Return the load balancer as Harvester writes it for a pool that does not exist, or None when that is done."""
    metadata, status = document["metadata"], document.get("status") or {}
    if status.get("conditions"):
        return None
    condition = {"type": "Ready", "status": "False", "message": f"fail to get allocator {MISSING_POOL}"}
    return {
        **document,
        "metadata": {**metadata, "finalizers": _with_ours(metadata.get("finalizers") or [])},
        "status": {**status, "conditions": [condition]},
    }


def _with_ours(finalizers: list[str]) -> list[str]:
    return finalizers if LB_CONTROLLER_FINALIZER in finalizers else [*finalizers, LB_CONTROLLER_FINALIZER]


class Allocator:
    """Answers every load balancer of one namespace: one write at a time for each, all of them at once."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._addresses: dict[str, str] = {}
        self._numbers = count(FIRST_ADDRESS)
        self._latest: dict[str, Document] = {}
        self._active: set[str] = set()

    async def run(self) -> None:
        """Work until cancelled. Raises the errors of ``harvester_ccm.errors`` when the server goes away."""
        page = await self._client.list(LOAD_BALANCERS, namespace=self._namespace)
        version = page.resource_version
        async with asyncio.TaskGroup() as group:
            for document in page.items:
                self._take(document, group)
            while True:
                version = await self._follow(version, group)

    async def _follow(self, version: str, group: asyncio.TaskGroup) -> str:
        """Answer events until the server ends the watch; return the version to go on from."""
        params = {"resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS)}
        watch = self._client.watch(LOAD_BALANCERS, namespace=self._namespace, params=params, silence=SILENCE)
        async with aclosing(watch) as events:
            async for event in events:
                version = event.resource_version or version
                if event.object is not None and event.type != "DELETED":
                    self._take(event.object, group)
        return version

    def _take(self, document: Document, group: asyncio.TaskGroup) -> None:
        name = document["metadata"]["name"]
        self._latest[name] = document
        if name not in self._active:
            self._active.add(name)
            group.create_task(self._work(name), name=name)

    async def _work(self, name: str) -> None:
        try:
            while (document := self._latest.pop(name, None)) is not None:
                await self._write(name, document)
        finally:
            self._active.discard(name)

    async def _write(self, name: str, document: Document) -> None:
        wanted = answer(document, self._address(name))
        if wanted is None:
            return
        try:
            await self._client.replace(LOAD_BALANCERS, name, wanted, namespace=self._namespace)
        except (Conflict, NotFound):
            # Somebody was faster; the event that tells of it brings the newer object.
            return

    def _address(self, name: str) -> str:
        if name not in self._addresses:
            self._addresses[name] = str(ipaddress.IPv4Address(next(self._numbers)))
        return self._addresses[name]


async def _serve(kubeconfig: Path, namespace: str) -> None:
    credentials = load_kubeconfig(kubeconfig)
    async with ApiClient(credentials, cluster="harvester-admin", patience=REQUEST_SECONDS) as client:
        await Allocator(client, namespace).run()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2]))
