"""A flag that changes which Services are managed, set or removed by a restart: no address loses its owner."""

import asyncio
from typing import Any, Final

import pytest

from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import KUBE_VIP_ADDRESSES, LOAD_BALANCER_CLASS, PRIMARY_SERVICE
from tests.support.builders import CLUSTER, service
from tests.support.clock import jumping_time, until
from tests.support.program_world import Harvester, Program, guest_server

CLASS_ONLY: Final = "--require-load-balancer-class"
NAMESPACE_ONLY: Final = "--shared-address-scope=namespace"
SHARED: Final[dict[str, Any]] = {"annotations": {PRIMARY_SERVICE: "shop/web"}, "ports": [{"port": 9}]}
CHANGES: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "class, set": ((), (CLASS_ONLY,)),
    "class, removed": ((CLASS_ONLY,), ()),
    "scope, set": ((), (NAMESPACE_ONLY,)),
    "scope, removed": ((NAMESPACE_ONLY,), ()),
}
"""Flags before and after the restart."""


async def start() -> Program:
    """Return a cluster with a primary, its secondary and a Service of its own, all without a class, that are served."""
    program = Program(guest_server(), Harvester(), CLUSTER.name)
    program.put(service())
    program.put(service("api", uid="2", **SHARED))
    program.put(service("alone", uid="3"))
    async with program.live():
        await until(lambda: program.address("api") == program.address() != "", seconds=60)
        await until(lambda: bool(program.address("alone")), seconds=60)
    return program


def restarted(program: Program, *flags: str) -> Program:
    """Return a program with other flags in the same cluster."""
    return Program(program.guest, program.harvester, CLUSTER.name, *flags)


def allocated_to(program: Program) -> set[str]:
    """Return the addresses that Harvester has allocated."""
    return {document["status"]["allocatedAddress"]["ip"] for document in program.harvester.items(LOAD_BALANCERS)}


@pytest.mark.guarantee("An announced address is never released")
@pytest.mark.parametrize(("before", "after"), CHANGES.values(), ids=CHANGES.keys())
@jumping_time
async def test_address_is_released_only_after_the_last_service_that_has_it(
    before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    program = restarted(await start(), *before)
    async with program.live():
        await asyncio.sleep(60)
    program = restarted(program, *after)
    address = program.address()
    async with program.live():
        await asyncio.sleep(60)
        program.guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(60)
        assert program.annotations("api")[KUBE_VIP_ADDRESSES] == address
        assert address in allocated_to(program)
        assert "web: DeletionPending" in program.reasons()
        program.guest.delete(SERVICES, "shop/api")
        program.guest.delete(SERVICES, "shop/alone")
        await until(lambda: not program.guest.of(SERVICES), seconds=60)
    assert allocated_to(program) == set()


@jumping_time
async def test_service_without_a_class_is_managed_with_the_flag_if_it_was_managed_before() -> None:
    program = restarted(await start(), CLASS_ONLY)
    program.put(service("new", uid="4"))
    program.put(service("of-class", uid="5", spec={"loadBalancerClass": LOAD_BALANCER_CLASS}))
    async with program.live():
        await until(lambda: bool(program.address("of-class")), seconds=60)
        program.change("alone", metadata={"annotations": {KUBE_VIP_ADDRESSES: "10.9.9.9"}})
        await asyncio.sleep(60)
    assert program.address("new") == ""
    assert program.condition("new") == {}
    for name in ("web", "api", "alone"):
        assert program.condition(name)["status"] == "True"
    assert program.annotations("alone")[KUBE_VIP_ADDRESSES] == program.address("alone")
