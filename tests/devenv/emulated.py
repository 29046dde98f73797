"""Objects and observers for the tests of the emulators."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from devenv.background import Background
from devenv.harvester.records import LOAD_BALANCERS
from devenv.watch import Document, Mirror
from harvester_ccm.kube.client import ApiClient

LISTENER: Document = {"name": "http", "port": 8080, "protocol": "TCP", "backendPort": 30080}


def balancer(name: str, namespace: str = "default", *, cluster: str = "demo", **spec: Any) -> Document:
    """Return a cluster load balancer with an address from a pool, unless ``spec`` says otherwise."""
    return {
        "apiVersion": LOAD_BALANCERS.api_version,
        "kind": LOAD_BALANCERS.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {"loadbalancer.harvesterhci.io/cluster": cluster},
        },
        "spec": {"ipam": "pool", "workloadType": "cluster", **spec},
    }


def vm_balancer(name: str, namespace: str = "default", **spec: Any) -> Document:
    """Return a VM load balancer with one TCP listener, 8080 to 30080, unless ``spec`` says otherwise."""
    return balancer(name, namespace, **{"workloadType": "vm", "listeners": [LISTENER], **spec})


class Journal:
    """The states of an object, oldest first; None is a deletion."""

    def __init__(self) -> None:
        self.entries: list[Document | None] = []

    @property
    def last(self) -> Document | None:
        """The newest state."""
        return self.entries[-1] if self.entries else None

    def status(self) -> Document:
        """Return the newest status, which can be empty."""
        return (self.last or {}).get("status") or {}

    def message(self) -> str | None:
        """Return the message of the Ready condition; empty if Ready, None without a condition."""
        for condition in self.status().get("conditions") or ():
            return "" if condition["status"] == "True" else str(condition["message"])
        return None


@asynccontextmanager
async def watching(client: ApiClient, name: str, namespace: str) -> AsyncIterator[Journal]:
    journal = Journal()
    mirror = Mirror(client, LOAD_BALANCERS, namespace=namespace)

    def note(before: Document | None, after: Document | None) -> None:
        document = after or before
        if document is not None and document["metadata"]["name"] == name:
            journal.entries.append(after)

    mirror.subscribe(note)
    background = Background("journal", [mirror.run])
    await background.start([mirror.wait_synced], within=60)
    try:
        yield journal
    finally:
        await background.stop()


@asynccontextmanager
async def backend(address: str, port: int) -> AsyncIterator[None]:
    """Accept and close TCP connections."""
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), address, port, reuse_address=True)
    try:
        yield
    finally:
        server.close()
