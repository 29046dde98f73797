"""The load: Services created and deleted as fast as the API server takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.core import SERVICES

NAMESPACE: Final = "default"
CONNECTIONS: Final = 10
"""Requests at once. More only wait for each other on the allocation of node ports, and a connection costs CPU."""

T = TypeVar("T")
Body = Mapping[str, object]


@dataclass(frozen=True)
class Span:
    """When a bulk of requests began and ended, in loop time."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """Length."""
        return self.ended - self.began


def service_body(
    name: str, annotations: Mapping[str, str] | None = None, *, port: int = 80, node_ports: bool = True
) -> Body:
    """Return a Service of type LoadBalancer with one port; a cluster has about 2,700 node ports."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": dict(annotations or {})},
        "spec": {
            "type": "LoadBalancer",
            "ports": [{"name": "http", "port": port}],
            **({} if node_ports else {"allocateLoadBalancerNodePorts": False}),
        },
    }


def names_of(prefix: str, count: int) -> list[str]:
    """Return ``count`` names that sort in order."""
    return [f"{prefix}-{number:03}" for number in range(count)]


class Load:
    """Creates and deletes Services over a few connections."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def open_connections(self) -> None:
        """Have the connections ready, so that their TLS handshakes are not in the measured time."""
        paths = [SERVICES.path(NAMESPACE)] * CONNECTIONS
        await asyncio.gather(*(self._client.request("GET", path, params={"limit": "1"}) for path in paths))

    async def create(self, bodies: Sequence[Body]) -> Span:
        """Create Services; return when the first request left and the last answer came."""

        async def create_one(body: Body) -> None:
            await self._client.create(SERVICES, body, namespace=NAMESPACE)

        return await self._each(create_one, bodies)

    async def delete(self, names: Sequence[str]) -> Span:
        """Ask for the deletion of Services; return when the first request left and the last answer came."""

        async def delete_one(name: str) -> None:
            await self._client.delete(SERVICES, name, namespace=NAMESPACE)

        return await self._each(delete_one, names)

    async def _each(self, action: Callable[[T], Awaitable[None]], items: Sequence[T]) -> Span:
        await self.open_connections()
        loop = asyncio.get_running_loop()
        waiting = iter(items)

        async def work() -> None:
            for item in waiting:
                await action(item)

        began = loop.time()
        async with asyncio.TaskGroup() as group:
            for number in range(min(CONNECTIONS, len(items))):
                group.create_task(work(), name=f"load-{number}")
        return Span(began, loop.time())
