"""Services that share the address of a primary Service, while writes are slow."""

import asyncio
from typing import Any

import pytest

from harvester_ccm.kube.errors import KubeError
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    WORKLOAD_TYPE,
)
from tests.support.builders import ADDRESS, CLUSTER, allocated, served, service
from tests.support.clock import jumping_time, until
from tests.support.memory_server import Call, document_of
from tests.support.program_world import Harvester, Program, guest_server, with_machines, with_nodes

SLOW = 10.0
SHARED: dict[str, Any] = {"annotations": {PRIMARY_SERVICE: "shop/web"}, "ports": [{"port": 9, "nodePort": 30009}]}


def with_primary() -> Program:
    program = Program(guest_server(), Harvester(), CLUSTER.name, "--concurrent-service-syncs=16")
    program.put(served())
    program.harvester.put(LOAD_BALANCERS, document_of(allocated()))
    return program


def slow_patches(program: Program, name: str) -> None:
    """Delay the patches of a Service from now on."""
    path = f"/services/{name}"
    program.guest.delay = lambda call: SLOW if call.verb == "PATCH" and path in call.path else 0.002


@jumping_time
@pytest.mark.guarantee("An address is withdrawn before it is released")
async def test_secondary_that_appears_during_the_withdrawal_keeps_the_load_balancer() -> None:
    """It appears if a former leader sent its patch before it lost the Lease."""
    program = with_primary()
    async with program.live():
        await asyncio.sleep(1)
        slow_patches(program, "web")
        program.guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(1)
        program.put(served("other", uid="2", labels={PRIMARY_SERVICE_LABEL: "shop.web"}, **SHARED))
        await asyncio.sleep(100)
        assert program.harvester.writes("/loadbalancers/") == []
        assert "web: DeletionPending" in program.reasons()
        program.guest.delete(SERVICES, "shop/other")
        await until(lambda: "shop/web" not in program.guest.of(SERVICES), seconds=100)
    assert program.harvester.of(LOAD_BALANCERS) == {}


@jumping_time
async def test_deletion_of_a_primary_waits_for_the_patch_of_a_secondary() -> None:
    program = with_primary()
    async with program.live():
        await asyncio.sleep(1)
        slow_patches(program, "other")
        program.put(service("other", uid="2", **SHARED))
        await asyncio.sleep(1)
        program.guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(3 * SLOW)
        assert program.address("other") == ADDRESS
        assert program.harvester.writes("/loadbalancers/") == [], "the secondary has the address now"


def deletions_during_publications(program: Program, name: str) -> list[str]:
    """Return the list to which deletions are added that arrive while a Service is being given ``ADDRESS``."""
    publications: list[Call] = []
    deletions: list[str] = []

    def sent(call: Call) -> None:
        if call.verb == "PATCH" and f"/services/{name}/" in call.path and ADDRESS in str(call.body):
            publications.append(call)

    def answered(call: Call, _error: KubeError | None) -> None:
        if call in publications:
            publications.remove(call)

    def arrived(call: Call) -> None:
        if call.verb == "DELETE" and publications:
            deletions.append(call.path)

    program.guest.on_sent.append(sent)
    program.guest.on_answered.append(answered)
    program.harvester.on_arrived.append(arrived)
    return deletions


@jumping_time
@pytest.mark.guarantee("An address is withdrawn before it is released")
async def test_replacement_of_the_load_balancer_of_a_primary_waits_for_the_patch_of_a_secondary() -> None:
    program = with_primary()
    with_nodes(program.guest)
    with_machines(program.harvester)
    early = deletions_during_publications(program, "other")
    async with program.live():
        await asyncio.sleep(1)
        slow_patches(program, "other")
        program.put(service("other", uid="2", **SHARED))
        await asyncio.sleep(1)
        program.change(metadata={"annotations": {WORKLOAD_TYPE: "vm"}})
        await asyncio.sleep(300)
        (load_balancer,) = program.harvester.items(LOAD_BALANCERS)
        assert load_balancer["spec"]["workloadType"] == "vm"
        assert program.address("other") == program.address() != ""
    assert early == []
