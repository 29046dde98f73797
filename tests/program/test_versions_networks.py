"""A Service that requests a network, on Harvesters of all versions: the address is one of that network, or it waits."""

import asyncio
from typing import Final

import pytest

from devenv.harvester.machines import Kind
from harvester_ccm.model.core import CONFIG_MAPS
from harvester_ccm.names import (
    IP_POOL,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_INTERFACE,
    NETWORK,
    Reason,
)
from tests.support.builders import service
from tests.support.clock import jumping_time
from tests.support.versioned_harvester import FIRST, SECOND, World, machine_of

OLD: Final = ("1.3", "1.4", "1.6", "1.7", "1.8")
"""Versions that select the network by the first NIC of a VM, whatever a Service requests."""
MAPPING: Final = {"interface-nad-mapping": f'{{"{FIRST}": "enp1s0", "{SECOND}": "enp2s0"}}'}


async def world_with_two_networks(world: World, kind: Kind = Kind.RANCHER) -> None:
    """Add two networks with a pool each, and a VM with a NIC in both."""
    await world.put_networks()
    world.put_machine(machine_of(kind, 1, FIRST, SECOND), "10.1.0.200")
    metadata = {"name": "harvester-nad-mapping", "namespace": "kube-system"}
    world.guest.put(CONFIG_MAPS, {"metadata": metadata, "data": MAPPING})


@pytest.mark.parametrize("number", [*OLD, "1.9"])
@jumping_time
async def test_pool_that_a_service_names_gives_an_address_of_its_network(number: str) -> None:
    world = World()
    async with world.on(number):
        await world_with_two_networks(world)
        async with world.live_with(service(annotations={NETWORK: SECOND, IP_POOL: "second"})):
            assert world.address().startswith("10.2.0.")
            assert world.annotations()[KUBE_VIP_INTERFACE] == "enp2s0"
            assert world.warnings() == []


@pytest.mark.guarantee("A new address is announced only in its network")
@pytest.mark.parametrize("number", OLD)
@jumping_time
async def test_new_address_of_another_network_is_not_announced(number: str) -> None:
    world = World()
    async with world.on(number):
        await world_with_two_networks(world)
        async with world.live_with(service(annotations={NETWORK: SECOND})):
            assert world.books("first"), "Harvester took the pool of the first network"
            assert (world.address(), world.annotations()[KUBE_VIP_ADDRESSES]) == ("", "")
            assert (world.condition()["status"], world.condition()["reason"]) == ("False", Reason.OTHER_NETWORK)
            (text,) = world.warnings()
            assert f"'{FIRST}'" in text
            assert f"'{SECOND}'" in text
            assert IP_POOL in text
            world.change(metadata={"annotations": {IP_POOL: "second"}})
            await asyncio.sleep(60)
            assert world.address().startswith("10.2.0."), "the way that the Warning names"
            assert world.annotations()[KUBE_VIP_INTERFACE] == "enp2s0"
            assert world.condition()["status"] == "True"
            assert not world.books("first")
            assert len(world.warnings()) == 1, "no other Warning"


@pytest.mark.parametrize("number", OLD)
@jumping_time
async def test_pool_that_was_chosen_without_a_network_is_a_warning(number: str) -> None:
    world = World()
    async with world.on(number):
        await world_with_two_networks(world, Kind.PLAIN)
        world.put_pool("lan", "10.3.0.0/24")
        async with world.live_with(service(annotations={NETWORK: SECOND})):
            assert world.address().startswith("10.3.0.")
            assert world.annotations()[KUBE_VIP_INTERFACE] == "enp2s0"
            assert world.condition()["status"] == "True"
            (text,) = world.warnings()
            assert f"'{SECOND}'" in text
            assert IP_POOL in text


@pytest.mark.parametrize("network", [SECOND, "vms/unknown"])
@pytest.mark.parametrize("number", OLD)
@jumping_time
async def test_network_that_harvester_rewrites_at_random_causes_no_loop_of_writes(number: str, network: str) -> None:
    world = World()
    async with world.on(number):
        await world_with_two_networks(world)
        for other, in_network in ((2, SECOND), (3, FIRST)):
            world.put_machine(machine_of(Kind.RANCHER, other, in_network), f"10.1.0.20{other}")
        async with world.live_with(service(annotations={NETWORK: network})):
            writes = len(world.harvester.writes()), len(world.guest.writes())
            await asyncio.sleep(3600)
            own = len(world.harvester.writes()) - writes[0], len(world.guest.writes()) - writes[1]
            assert own[0] == 0
            assert own[1] <= 2, "at most a repeated Event"
