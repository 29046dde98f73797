"""Services with a mistake, and Services that change while no controller runs: what public reports say goes wrong."""

import asyncio
from collections.abc import Mapping
from typing import Final

import pytest

from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
    HEALTH_CHECK_PORT,
    IP_POOL,
    IPAM,
    KUBE_VIP_HOST,
    NETWORK,
    PRIMARY_SERVICE,
)
from tests.support.builders import CLUSTER, service
from tests.support.clock import jumping_time, until
from tests.support.program_world import Harvester, Program, guest_server, with_machines, with_nodes

MISTAKES: Final[Mapping[str, Mapping[str, str]]] = {
    "unknown ipam": {IPAM: "static"},
    "no such port": {HEALTH_CHECK_PORT: "99999"},
    "pool with a namespace": {IP_POOL: "default/lan"},
    "network with three parts": {NETWORK: "a/b/c"},
    "primary without a namespace": {PRIMARY_SERVICE: "main"},
    "primary that does not exist": {PRIMARY_SERVICE: "shop/none"},
}


def new_program() -> Program:
    """Return a program whose Harvester allocates an address for each Service."""
    return Program(with_nodes(guest_server()), with_machines(Harvester()), CLUSTER.name)


@pytest.mark.parametrize("annotations", MISTAKES.values(), ids=MISTAKES.keys())
@jumping_time
async def test_service_with_a_mistake_is_deleted(annotations: Mapping[str, str]) -> None:
    program = new_program()
    program.put(service(annotations=annotations))
    async with program.live():
        await asyncio.sleep(120)
        assert program.warnings(), "the mistake is reported"
        program.guest.delete(SERVICES, "shop/web")
        await until(lambda: not program.guest.items(SERVICES), 30.0, what="the deletion of the Service")
    assert program.harvester.items(LOAD_BALANCERS) == []


@pytest.mark.parametrize("has_finalizer", [False, True], ids=["of MetalLB", "of K3s ServiceLB"])
@jumping_time
async def test_address_that_another_controller_left_is_no_lost_load_balancer(*, has_finalizer: bool) -> None:
    program = new_program()
    program.put(service(address="192.0.2.55", ours=has_finalizer, condition=False))
    async with program.live():
        await asyncio.sleep(30)
        assert program.condition()["status"] == "True"
        assert program.reasons() == []


@jumping_time
async def test_services_that_change_while_no_controller_runs_leave_nothing() -> None:
    program = new_program()
    program.create("retyped", "deleted", "kept")
    async with program.live():
        await asyncio.sleep(10)
        for name in ("retyped", "deleted", "kept"):
            program.change(name, metadata={"annotations": {KUBE_VIP_HOST: "node-1"}})
        await asyncio.sleep(10)
    address = program.address("retyped")
    # The API server empties the status with the type.
    program.change("retyped", spec={"type": "ClusterIP"}, status={"loadBalancer": None})
    program.guest.delete(SERVICES, "shop/deleted")
    async with program.live():
        await asyncio.sleep(30)
        assert {one["metadata"]["name"] for one in program.guest.items(SERVICES)} == {"retyped", "kept"}
        (left,) = program.harvester.items(LOAD_BALANCERS)
        assert left["metadata"]["name"].startswith("demo-shop-kept-")
        assert program.service("retyped")["metadata"]["finalizers"] == []
        assert program.condition("retyped") == {}
        (warning,) = program.warnings("retyped")
        assert address in warning
        assert program.reasons() == ["retyped: AddressStillAnnounced"]
