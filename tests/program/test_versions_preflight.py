"""``preflight`` on Harvesters of all versions: what becomes of the network that a Service requests."""

import asyncio

import pytest

from devenv.harvester.machines import Kind, Machine
from harvester_ccm.commands.preflight import Result, check_network
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import IP_POOL
from tests.devenv.emulated import balancer
from tests.support.builders import CLUSTER
from tests.support.clock import jumping_time
from tests.support.memory_server import MemoryClient
from tests.support.versioned_harvester import FIRST, SECOND, World

OLD = ("1.3", "1.4", "1.6", "1.7", "1.8")
BODY = balancer("preflight", CLUSTER.namespace, cluster=CLUSTER.name)


async def finding(world: World, management_network: str = "") -> tuple[Result, str, str] | None:
    client = MemoryClient(world.harvester, cluster="harvester", namespace=CLUSTER.namespace)
    await asyncio.sleep(1)
    return await check_network(client, BODY, management_network)


def world_with_a_machine(kind: Kind) -> World:
    world = World()
    machine = Machine.of_kind(kind, 1, CLUSTER.name, namespace=CLUSTER.namespace, networks=(FIRST, SECOND))
    world.put_machine(machine, "10.1.0.200")
    return world


@pytest.mark.parametrize("number", OLD)
@jumping_time
async def test_network_that_harvester_replaces_is_found_before_the_first_service(number: str) -> None:
    world = world_with_a_machine(Kind.RANCHER)
    async with world.on(number):
        result, detail, advice = await finding(world) or (Result.SKIPPED, "", "")
        assert (result, f"of network '{FIRST}'" in detail) == (Result.OK, True)
        assert IP_POOL in advice
        result, detail, advice = await finding(world, SECOND) or (Result.SKIPPED, "", "")
        assert (result, f"--management-network={SECOND}" in detail) == (Result.WARNING, True)
        assert await finding(world, FIRST) == await finding(world), "the flag names the network that Harvester takes"


@pytest.mark.parametrize("number", OLD)
@jumping_time
async def test_network_that_harvester_drops_is_found_before_the_first_service(number: str) -> None:
    world = world_with_a_machine(Kind.PLAIN)
    async with world.on(number):
        result, detail, advice = await finding(world) or (Result.SKIPPED, "", "")
        assert (result, "without a network" in detail, IP_POOL in advice) == (Result.OK, True, True)


@jumping_time
async def test_network_that_selects_the_pool_is_no_finding() -> None:
    world = world_with_a_machine(Kind.RANCHER)
    async with world.on("1.9"):
        assert await finding(world, SECOND) == (
            Result.OK,
            "the network that a Service requests selects the IP pool",
            "",
        )


@jumping_time
async def test_network_is_not_judged_without_a_webhook() -> None:
    world = World()
    assert await finding(world) is None
    async with world.on("1.3"):
        assert await finding(world) is None, "no load balancer is accepted, as the row of the webhook tells"
    assert world.harvester.of(LOAD_BALANCERS) == {}, "all were dry runs"
