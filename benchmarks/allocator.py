"""An instant allocator instead of Harvester's load balancer controller.

It responds to each new LoadBalancer with one write: an address, the Ready condition and the controller's finalizer. It
removes the finalizer of a LoadBalancer that is being deleted. One name always gets the same address, as in Harvester.
The rest of a measured time is spent in the controller and in the API servers.

``python -m benchmarks.allocator KUBECONFIG NAMESPACE`` is a separate process, because the load would share its
interpreter lock.
"""

import asyncio
import ipaddress
import sys
from pathlib import Path
from typing import Final

from devenv.harvester.records import LOAD_BALANCERS
from devenv.watch import Document, Mirror
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_credentials
from harvester_ccm.kube.errors import Conflict, NotFound
from harvester_ccm.names import LB_CONTROLLER_FINALIZER

FIRST_ADDRESS: Final = ipaddress.IPv4Address("198.18.0.1")
"""In the network that RFC 2544 reserves for benchmarks. No packet is sent to it."""


def allocated(document: Document, address: str) -> Document | None:
    """Return the load balancer as Harvester writes it next, or None if there is nothing to write."""
    metadata, status = document["metadata"], document.get("status") or {}
    finalizers = set(metadata.get("finalizers") or ())
    if metadata.get("deletionTimestamp"):
        if LB_CONTROLLER_FINALIZER not in finalizers:
            return None
        return {**document, "metadata": {**metadata, "finalizers": sorted(finalizers - {LB_CONTROLLER_FINALIZER})}}
    if (status.get("allocatedAddress") or {}).get("ip"):
        return None
    address_status = {"ip": address, "ipPool": "benchmark", "mask": "255.254.0.0", "gateway": "198.19.255.254"}
    status = {**status, "allocatedAddress": address_status, "conditions": [{"type": "Ready", "status": "True"}]}
    finalizers |= {LB_CONTROLLER_FINALIZER}
    return {**document, "metadata": {**metadata, "finalizers": sorted(finalizers)}, "status": status}


class Allocator:
    """Responds to all load balancers of one namespace at once."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._addresses: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.balancers = Mirror(client, LOAD_BALANCERS, namespace=namespace)
        self.balancers.subscribe(self._changed)

    def _changed(self, _before: Document | None, after: Document | None) -> None:
        if after is not None:
            task = asyncio.create_task(self._allocate(after))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _allocate(self, document: Document) -> None:
        name = document["metadata"]["name"]
        address = self._addresses.setdefault(name, str(FIRST_ADDRESS + len(self._addresses)))
        body = allocated(document, address)
        if body is not None:
            try:
                await self._client.replace(LOAD_BALANCERS, name, body, namespace=self._namespace)
            except (Conflict, NotFound):
                return  # the next event has the newer object


async def _run(kubeconfig: Path, namespace: str) -> None:
    async with ApiClient(load_credentials(kubeconfig), cluster="harvester-admin", timeout=120.0) as client:
        await Allocator(client, namespace).balancers.run()


if __name__ == "__main__":
    asyncio.run(_run(Path(sys.argv[1]), sys.argv[2]))
