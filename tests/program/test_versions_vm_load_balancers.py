"""VM load balancers on Harvesters of all versions: what an old one refuses, waits for or does not tell."""

import asyncio
from typing import Any, Final

import pytest

from devenv.harvester.machines import Kind, Machine
from harvester_ccm.names import HEALTH_CHECK_PORT, WORKLOAD_TYPE
from tests.support.builders import CLUSTER, service
from tests.support.clock import jumping_time
from tests.support.versioned_harvester import World

VM: Final = {WORKLOAD_TYPE: "vm"}
DNS: Final = (
    {"name": "dns", "port": 53, "protocol": "TCP", "nodePort": 30053},
    {"name": "dns-udp", "port": 53, "protocol": "UDP", "nodePort": 30053},
)


def machine(number: int) -> Machine:
    return Machine.of_kind(Kind.RANCHER, number, CLUSTER.name, namespace=CLUSTER.namespace, networks=("",))


def world_with_machines(*numbers: int) -> World:
    world = World()
    for number in numbers:
        world.put_machine(machine(number), f"192.0.2.{number}")
    return world


def listeners(world: World) -> list[str]:
    return sorted(one["protocol"] for one in world.balancer["spec"]["listeners"])


def backends(world: World) -> list[str]:
    return list(world.balancer["spec"]["backendServerSelector"]["harvesterhci.io/vmName"])


@pytest.mark.parametrize("number", ["1.6", "1.8", "1.9"])
@jumping_time
async def test_port_with_tcp_and_udp_is_served(number: str) -> None:
    world = world_with_machines(1)
    async with world.on(number):
        world.put_pool("lan", "10.1.0.0/24")
        world.put(service(annotations=VM, ports=DNS))
        async with world.live():
            await asyncio.sleep(120)
            assert world.address()
            assert listeners(world) == ["TCP", "UDP"]
            assert world.warnings() == []


def _check(**more: Any) -> dict[str, str]:
    return {**VM, HEALTH_CHECK_PORT: "80", **more}
