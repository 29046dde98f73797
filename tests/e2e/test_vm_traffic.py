"""Requests through VM load balancers: they reach the nodes, and go on when nodes fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress

import pytest

from devenv.demo.requests import ask_once
from devenv.guestnodes import GuestNodes
from devenv.harvester.records import SERVICES
from devenv.stage import Stage, until
from harvester_ccm.errors import NotFound
from harvester_ccm.model.core import Service
from harvester_ccm.names import (
    HEALTH_CHECK_FAILURE_THRESHOLD,
    HEALTH_CHECK_PERIOD,
    HEALTH_CHECK_PORT,
    HEALTH_CHECK_TIMEOUT,
    WORKLOAD_TYPE,
    Reason,
)

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("ccm")]

HTTP = {"name": "http", "port": 8080, "protocol": "TCP"}
DNS = {"name": "dns", "port": 5353, "protocol": "UDP"}
QUICK_CHECK = {
    HEALTH_CHECK_PORT: "http",
    HEALTH_CHECK_FAILURE_THRESHOLD: "1",
    HEALTH_CHECK_PERIOD: "1",
    HEALTH_CHECK_TIMEOUT: "1",
}
BOTH = {"node-1", "node-2"}


@pytest.fixture
async def nodes(stage: Stage) -> AsyncIterator[GuestNodes]:
    """Two nodes of the guest."""
    async with GuestNodes(stage.guest, stage.host) as nodes:
        await nodes.add(1, 2)
        yield nodes


async def served(stage: Stage, nodes: GuestNodes, name: str, ports: Iterable[dict[str, object]], **check: str) -> str:
    """Create a Service whose nodes answer, and return its address."""
    await nodes.listen(await stage.create_service(name, ports=list(ports), annotations=check))
    (service,) = await stage.served(name)
    return service.addresses[0]


async def answering(address: str, port: int, protocol: str = "TCP") -> set[str | None]:
    """Return the names of the nodes that answer to some requests in a row; None is among them if one is lost."""
    return {await ask_once(protocol, address, port) for _ in range(6)}


async def answer(address: str, nodes: set[str], port: int = 8080, protocol: str = "TCP") -> None:
    """Return when exactly these nodes answer on the port, each time at the first try."""

    async def only_these() -> bool:
        return await answering(address, port, protocol) == nodes

    await until(only_these, within=60, what=f"answers from {', '.join(sorted(nodes))}")


async def test_every_port_of_every_protocol_reaches_the_nodes(stage: Stage, nodes: GuestNodes) -> None:
    checked = await served(stage, nodes, "checked", [HTTP, DNS], **QUICK_CHECK)
    plain = await served(stage, nodes, "plain", [HTTP, DNS], **{WORKLOAD_TYPE: "vm"})

    await asyncio.gather(answer(checked, BOTH), answer(plain, BOTH))
    await asyncio.gather(answer(plain, BOTH, 5353, "UDP"), answer(checked, BOTH, 5353, "UDP"))

    await nodes.remove(1)
    await asyncio.gather(answer(checked, {"node-2"}), answer(plain, {"node-2"}))


async def test_service_that_was_internal_for_a_moment_is_reached_again(stage: Stage, nodes: GuestNodes) -> None:
    await served(stage, nodes, "web", [HTTP], **{WORKLOAD_TYPE: "vm"})
    await stage.change_service("web", {"spec": {"type": "ClusterIP"}})
    await stage.nothing_left()
    await stage.change_service("web", {"spec": {"type": "LoadBalancer"}})
    (service,) = await stage.served("web")
    await nodes.listen(service)

    # What Harvester made for the first load balancer goes with it, perhaps after the second one has found it there.
    # Then the second write of that one has Harvester make it again.
    (balancer,) = await stage.load_balancers()

    async def made_again() -> bool:
        with suppress(NotFound):
            generated = await stage.host.get(SERVICES, balancer.metadata.name, namespace="default")
            owners = [owner["uid"] for owner in generated["metadata"]["ownerReferences"]]
            return owners == [balancer.metadata.uid]
        return False

    await until(made_again, within=60, what="the parts of the second load balancer in Harvester")
    await answer(service.addresses[0], BOTH)


async def test_nodes_that_fail_are_left_out_until_they_are_back(stage: Stage, nodes: GuestNodes) -> None:
    address = await served(stage, nodes, "web", [HTTP], **QUICK_CHECK)
    await answer(address, BOTH)
    (service,) = await stage.served("web")

    nodes.fail(1)
    await answer(address, {"node-2"})
    await nodes.listen(service, 1)
    await answer(address, BOTH)
    assert await stage.told("web", Reason.BACKENDS_UNHEALTHY) == []

    await fails_and_recovers(stage, nodes, service)
    await answer(address, BOTH)
    assert len(await stage.told("web", Reason.BACKENDS_UNHEALTHY)) == 1
    assert len(await stage.told("web", Reason.BACKENDS_HEALTHY)) == 1


async def fails_and_recovers(stage: Stage, nodes: GuestNodes, service: Service) -> None:
    """Let all nodes fail and come back, and check what users are told."""
    nodes.fail(1, 2)
    told = await stage.hears("web", Reason.BACKENDS_UNHEALTHY, within=60)
    assert told.type == "Warning"
    for words in ("no node accepts connections on the health check port", "total:2, healthy:0"):
        assert words in told.message, told.message
    (now,) = await stage.served("web")
    assert now.addresses == service.addresses

    await nodes.listen(service)
    told = await stage.hears("web", Reason.BACKENDS_HEALTHY)
    assert told.type == "Normal"
    assert "192.0.2.1, 192.0.2.2" in told.message
