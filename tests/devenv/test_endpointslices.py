"""The EndpointSlices of a stage: one for each IP family of each Service with a selector, also without Pods."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from devenv.endpointslices import EndpointSlices
from devenv.harvester.records import SERVICES, SLICES
from devenv.watch import Document, annotations_of, labels_of
from tests.devenv.emulated import service
from tests.support.clock import jumping_time, until
from tests.support.memory_server import MemoryClient, MemoryServer

SELECTOR: dict[str, Any] = {"selector": {"app": "web"}}


@asynccontextmanager
async def controller(server: MemoryServer) -> AsyncIterator[EndpointSlices]:
    async with EndpointSlices(MemoryClient(server, cluster="guest"), node="n1") as running:
        yield running


def with_spec(name: str = "web", **fields: Any) -> Document:
    document = service(name=name)
    return {**document, "spec": {**document["spec"], **fields}}


def pods_of(server: MemoryServer) -> dict[str, int]:
    """Return the number of endpoints of each slice, by IP family."""
    return {one["addressType"]: len(one["endpoints"]) for one in server.items(SLICES)}


@jumping_time
async def test_slice_follows_the_pods_and_the_ports_of_its_service() -> None:
    server = MemoryServer()
    async with controller(server) as slices:
        server.put(SERVICES, with_spec(**SELECTOR))
        await until(lambda: pods_of(server) == {"IPv4": 1})
        (document,) = server.items(SLICES)
        assert labels_of(document)["kubernetes.io/service-name"] == "web"
        (endpoint,) = document["endpoints"]
        assert (endpoint["nodeName"], endpoint["conditions"]["serving"]) == ("n1", True)
        key = f"shop/{document['metadata']['name']}"
        server.change(SLICES, key, {"metadata": {"annotations": {"example.com/touched": "1"}}})
        slices.scale("web", 0, namespace="shop")
        await until(lambda: pods_of(server) == {"IPv4": 0})
        server.change(SERVICES, "shop/web", {"spec": {"ports": [{"port": 81}]}})
        await until(lambda: server.get(SLICES, key)["ports"] == [{"name": "", "port": 81, "protocol": "TCP"}])
        assert annotations_of(server.get(SLICES, key)) == {"example.com/touched": "1"}
        server.remove(SERVICES, "shop/web")
        await slices.collected("web", namespace="shop")
        assert not server.items(SLICES)
