"""IP pools of Harvesters of all versions: which one serves a Service, and what becomes of an interrupted allocation."""

import asyncio
from typing import Final

import pytest

from devenv.harvester.records import POOLS
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import IP_POOL, Reason
from tests.support.builders import CLUSTER, LB_NAME, service
from tests.support.clock import jumping_time
from tests.support.versioned_harvester import LAN, World, world_with_machines

EVERY: Final = ("1.3", "1.4", "1.5.0", "1.6", "1.7", "1.8", "1.9")
KEY: Final = f"{CLUSTER.namespace}/{LB_NAME}"
STUCK: Final = ("1.3", "1.4", "1.5.0")
"""Versions that do not release an entry of a pool that they chose themselves."""
LEFT: Final = "10.1.0.5"
OURS: Final = {"project": "*", "namespace": "*", "guestCluster": CLUSTER.name}


async def interrupted(world: World) -> None:
    """Have Harvester allocate an address to the load balancer, and record it only in the pool."""
    world.put_pool("lan", LAN)
    await asyncio.sleep(1)
    pool = world.harvester.of(POOLS)["lan"]
    world.harvester.put(POOLS, {**pool, "status": {**pool["status"], "allocated": {LEFT: KEY}}})
    await asyncio.sleep(1)


@pytest.mark.parametrize("number", ["1.4", "1.8", "1.9"])
@jumping_time
async def test_address_stays_when_a_better_pool_comes(number: str) -> None:
    world = world_with_machines(1)
    async with world.serving(number, service(), seconds=10):
        writes = len(world.harvester.writes("loadbalancers"))
        world.put_pool("close", "10.2.0.0/24", scope=[OURS])
        await asyncio.sleep(60)
        assert world.address().startswith("10.1.0.")
        assert len(world.harvester.writes("loadbalancers")) == writes
        assert "ipPool" not in world.balancer["spec"], "no version is asked, and nothing is pinned"


@pytest.mark.parametrize("number", ["1.6", "1.7", "1.8", "1.9"])
@jumping_time
async def test_interrupted_allocation_ends_by_itself(number: str) -> None:
    world = world_with_machines(1)
    async with world.on(number):
        await interrupted(world)
        async with world.live_with(service()):
            assert world.address()
            assert world.warnings() == []


@pytest.mark.parametrize("number", EVERY)
@jumping_time
async def test_pool_that_harvesters_user_interface_made_matches_or_is_explained(number: str) -> None:
    """Its form sets only the namespace."""
    world = world_with_machines(1)
    async with world.on(number):
        world.put_pool("lan", LAN, scope=[{"namespace": CLUSTER.namespace}])
        async with world.live_with(service()):
            if number in {"1.7", "1.8", "1.9"}:
                assert world.address().startswith("10.1.0.")
            else:
                (text,) = world.warnings()
                scope = f"scope covers namespace '{CLUSTER.namespace}' and guest cluster {CLUSTER.name}"
                assert scope in text, "what the pool has to say"


@pytest.mark.guarantee("No allocation is lost")
@pytest.mark.parametrize("number", EVERY)
@jumping_time
async def test_interrupted_allocation_of_a_named_pool_ends_by_itself(number: str) -> None:
    world = world_with_machines(1)
    async with world.on(number):
        await interrupted(world)
        async with world.live_with(service(annotations={IP_POOL: "lan"}), seconds=90):
            assert world.books("lan") == {world.address(): KEY}
            assert world.condition()["status"] == "True"


@pytest.mark.parametrize("number", STUCK)
@jumping_time
async def test_interrupted_allocation_of_an_unknown_pool_names_the_command_that_releases_it(number: str) -> None:
    world = world_with_machines(1)
    async with world.on(number):
        await interrupted(world)
        async with world.live_with(service(), seconds=120):
            assert world.condition()["reason"] == Reason.ALLOCATING
            (text,) = world.warnings()
            pool = world.harvester.of(POOLS)["lan"]
            assert f'[{{"op":"remove","path":"/status/allocated/{LEFT}"}}]' in text
            world.harvester.put(POOLS, {**pool, "status": {**pool["status"], "allocated": {}}})
            await asyncio.sleep(150)
            assert world.books("lan") == {world.address(): KEY}
            assert world.condition()["status"] == "True"


@pytest.mark.guarantee("Deleting a Service leaves nothing in Harvester")
@pytest.mark.parametrize("number", EVERY)
@pytest.mark.parametrize("seconds", [1, 20, 60])
@jumping_time
async def test_interrupted_allocation_of_a_named_pool_is_released_with_its_service(number: str, seconds: int) -> None:
    world = world_with_machines(1)
    async with world.on(number):
        await interrupted(world)
        async with world.live_with(service(annotations={IP_POOL: "lan"}), seconds=seconds):
            world.guest.delete(SERVICES, "shop/web")
            await asyncio.sleep(250)
            assert world.harvester.items(LOAD_BALANCERS) == []
            assert world.books("lan") == {}, "nothing was deleted by force"


@pytest.mark.parametrize("number", EVERY)
@jumping_time
async def test_pool_that_is_corrected_late_serves_without_another_warning(number: str) -> None:
    """Harvester begins again with a load balancer that changes, so it gets its time again."""
    world = world_with_machines(1)
    async with world.on(number):
        world.put_pool("lan", LAN)
        async with world.live_with(service(annotations={IP_POOL: "lann"}), seconds=90):
            world.change(metadata={"annotations": {IP_POOL: "lan"}})
            await asyncio.sleep(60)
            assert world.address()
            assert Reason.NOT_PROCESSED not in {event["reason"] for event in world.guest.events()}
