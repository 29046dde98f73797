"""An instant allocator in the place of Harvester's load balancer controller.

It answers every new LoadBalancer with one write: an address, the Ready condition and the controller's finalizer; one
that is being deleted loses the finalizer. One name always gets the same address, as in Harvester. What remains of a
measured time is that of the program and of the API servers.

``python -m benchmarks.allocator KUBECONFIG NAMESPACE`` runs until it is ended. It is a process of its own, so that it
shares no interpreter lock with the load.
"""

from __future__ import annotations

import asyncio
import ipaddress
import sys
from pathlib import Path
from typing import Final

from devenv.harvester.records import LOAD_BALANCERS
from devenv.watch import Document, Mirror
from harvester_ccm.errors import Conflict, NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_kubeconfig
from harvester_ccm.names import LB_CONTROLLER_FINALIZER, VM_NAME

FIRST_ADDRESS: Final = ipaddress.IPv4Address("198.18.0.1")
"""In the network that RFC 2544 reserves for benchmarks; nothing is ever sent to it."""


def answered(document: Document, address: str) -> Document | None:
    """Return the load balancer as Harvester writes it next, or None if nothing is left to do."""
    metadata, status = document["metadata"], document.get("status") or {}
    finalizers = set(metadata.get("finalizers") or ())
    if metadata.get("deletionTimestamp"):
        if LB_CONTROLLER_FINALIZER not in finalizers:
            return None
        return {**document, "metadata": {**metadata, "finalizers": sorted(finalizers - {LB_CONTROLLER_FINALIZER})}}
    if (status.get("allocatedAddress") or {}).get("ip"):
        return None
    allocated = {"ip": address, "ipPool": "benchmark", "mask": "255.254.0.0", "gateway": "198.19.255.254"}
    status = {**status, "allocatedAddress": allocated, "conditions": [{"type": "Ready", "status": "True"}]}
    if document["spec"].get("workloadType") != "cluster":
        status["address"] = address
        status["backendServers"] = (document["spec"].get("backendServerSelector") or {}).get(VM_NAME, [])
    finalizers |= {LB_CONTROLLER_FINALIZER}
    return {**document, "metadata": {**metadata, "finalizers": sorted(finalizers)}, "status": status}


class Allocator:
    """Answers every load balancer of one namespace, all of them at once."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._addresses: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.balancers = Mirror(client, LOAD_BALANCERS, namespace=namespace)
        self.balancers.subscribe(self._changed)

    def _changed(self, _before: Document | None, after: Document | None) -> None:
        if after is not None:
            task = asyncio.create_task(self._answer(after))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, document: Document) -> None:
        name = document["metadata"]["name"]
        address = self._addresses.setdefault(name, str(FIRST_ADDRESS + len(self._addresses)))
        wanted = answered(document, address)
        if wanted is not None:
            try:
                await self._client.replace(LOAD_BALANCERS, name, wanted, namespace=self._namespace)
            except (Conflict, NotFound):
                return  # the next event has the newer object


async def _run(kubeconfig: Path, namespace: str) -> None:
    async with ApiClient(load_kubeconfig(kubeconfig), cluster="harvester-admin", patience=120.0) as client:
        await Allocator(client, namespace).balancers.run()


if __name__ == "__main__":
    asyncio.run(_run(Path(sys.argv[1]), sys.argv[2]))
