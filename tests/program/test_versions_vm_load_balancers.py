"""VM load balancers on Harvesters of all versions: what an old one refuses, waits for or does not tell."""

import asyncio
from typing import Final

import pytest

from devenv.harvester.machines import Kind
from harvester_ccm.model.core import NODES
from harvester_ccm.names import (
    EXCLUDE_NODE_LABEL,
    NETWORK,
    POOL_NAMESPACE,
    PRIMARY_SERVICE,
    PROJECT,
    WORKLOAD_TYPE,
    Reason,
)
from tests.support.builders import service
from tests.support.clock import jumping_time
from tests.support.versioned_harvester import World, machine_of, world_with_machines

SINGLE: Final = ("1.3", "1.4", "1.5.0")
"""Versions that take no two listeners with one port number."""
VM: Final = {WORKLOAD_TYPE: "vm"}
DNS: Final = (
    {"name": "dns", "port": 53, "protocol": "TCP", "nodePort": 30053},
    {"name": "dns-udp", "port": 53, "protocol": "UDP", "nodePort": 30053},
)


def listeners(world: World) -> list[str]:
    return sorted(one["protocol"] for one in world.balancer["spec"]["listeners"])


def backends(world: World) -> list[str]:
    return list(world.balancer["spec"]["backendServerSelector"]["harvesterhci.io/vmName"])


@pytest.mark.parametrize("number", ["1.6", "1.8", "1.9"])
@jumping_time
async def test_port_with_tcp_and_udp_is_served(number: str) -> None:
    world = world_with_machines(1)
    async with world.serving(number, service(annotations=VM, ports=DNS), seconds=120):
        assert world.address()
        assert listeners(world) == ["TCP", "UDP"]
        assert world.warnings() == []


@pytest.mark.parametrize("number", SINGLE)
@jumping_time
async def test_listener_that_harvester_refuses_is_left_out_and_the_rest_is_written(number: str) -> None:
    world = world_with_machines(1)
    async with world.serving(number, service(annotations=VM, ports=DNS), seconds=120):
        assert world.address()
        assert listeners(world) == ["TCP"]
        assert (world.condition()["status"], world.condition()["reason"]) == ("False", Reason.SYNC_FAILED)
        assert ["53/UDP" in text and "1.5.1" in text for text in world.warnings()] == [True]
        writes = len(world.harvester.writes("loadbalancers"))
        await asyncio.sleep(3000)
        assert len(world.harvester.writes("loadbalancers")) == writes, "the refused listener is not sent again"
        world.put_machine(machine_of(Kind.RANCHER, 2), "192.0.2.2")
        await asyncio.sleep(60)
        assert backends(world) == ["demo-pool-1", "demo-pool-2"], "the backends stay current"
        world.change(spec={"ports": [*DNS, {"name": "more", "port": 80, "protocol": "TCP", "nodePort": 30080}]})
        await asyncio.sleep(60)
        assert listeners(world) == ["TCP", "TCP"], "other listeners are written"
        world.change(spec={"ports": [DNS[1]]})
        await asyncio.sleep(60)
        assert listeners(world) == ["UDP"]
        assert world.condition()["status"] == "True"


@pytest.mark.parametrize("number", SINGLE)
@jumping_time
async def test_service_whose_port_harvester_refuses_on_a_shared_address_is_told_and_ready_once_it_is_served(
    number: str,
) -> None:
    world = world_with_machines(1)
    shares = {PRIMARY_SERVICE: "shop/web"}
    async with world.serving(number, service(annotations=VM, ports=DNS[:1])):
        world.put(service("api", uid="api", annotations=shares, ports=DNS[1:]))
        await asyncio.sleep(60)
        assert world.address("api") == world.address()
        assert listeners(world) == ["TCP"]
        assert (world.condition("api")["status"], world.condition("api")["reason"]) == ("False", Reason.SYNC_FAILED)
        assert ["53/UDP" in text for text in world.warnings("api")] == [True]
        assert world.condition()["status"] == "True"
        world.change(spec={"ports": [{"name": "dns", "port": 80, "protocol": "TCP", "nodePort": 30080}]})
        await asyncio.sleep(60)
        assert listeners(world) == ["TCP", "UDP"]
        assert world.condition("api")["status"] == "True"


@jumping_time
async def test_backends_stay_if_harvester_refuses_a_selector_without_a_running_vm() -> None:
    world = world_with_machines(1)
    async with world.serving("1.3", service(annotations=VM)):
        assert backends(world) == ["demo-pool-1"]
        world.guest.change(NODES, "demo-pool-1", {"metadata": {"labels": {EXCLUDE_NODE_LABEL: "true"}}})
        await asyncio.sleep(60)
        assert backends(world) == ["demo-pool-1"]
        assert world.condition()["reason"] == Reason.SYNC_FAILED
        assert "update Harvester to 1.4" in world.condition()["message"]
        world.put_machine(machine_of(Kind.RANCHER, 2), "192.0.2.2")
        await asyncio.sleep(60)
        assert backends(world) == ["demo-pool-2"]
        assert world.condition()["status"] == "True"


@pytest.mark.parametrize("number", ["1.3", "1.4", "1.6", "1.7", "1.8", "1.9"])
@jumping_time
async def test_network_and_project_that_harvester_drops_are_without_effect(number: str) -> None:
    world = world_with_machines(1)
    async with world.serving(number, service(annotations={**VM, NETWORK: "vms/first", PROJECT: "c-1/p-1"})):
        assert world.condition()["status"] == "True"
        ignored = [text for text in world.warnings() if "Without effect" in text][-1]
        is_dropped = number in {"1.3", "1.4", "1.6"}
        assert ("searched the pools without a network" in ignored) is is_dropped
        assert ("searched the pools without a project" in ignored) is is_dropped
        assert ("beyond the choice of a pool" in ignored) is not is_dropped


@pytest.mark.parametrize("number", ["1.4", "1.8", "1.9"])
@jumping_time
async def test_warning_about_stopped_vms_does_not_blame_their_labels(number: str) -> None:
    world = world_with_machines(1)
    async with world.serving(number, service(annotations=VM)):
        world.stop_machine(machine_of(Kind.RANCHER, 1))
        await asyncio.sleep(120)
        condition = world.condition()
        assert condition["status"] == "False"
        assert "no running VM of this cluster has label" in condition["message"]
        assert "Start the VMs. If they run" in condition["message"]


@pytest.mark.parametrize("number", ["1.6", "1.9"])
@jumping_time
async def test_namespace_that_harvester_replaces_is_without_effect(number: str) -> None:
    world = world_with_machines(1)
    async with world.serving(number, service(annotations={**VM, POOL_NAMESPACE: "other"})):
        (ignored,) = {text for text in world.warnings() if "Without effect" in text}
        assert "searched the pools for namespace" in ignored
