"""Load balancers that cannot be listed: Services wait and keep what they have, and their users are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import LB_SERVICE_NAME, SERVICE_FINALIZER
from tests.worlds.builders import CLUSTER
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Call, refused
from tests.worlds.program_world import Harvester, Program, guest_server

SPOILED = refused(500, "InternalError", "conversion webhook for loadbalancer.harvesterhci.io/v1alpha1 failed: no kind")


def no_list(call: Call) -> Any:
    """Answer a list of load balancers as Harvester does when one of them cannot be converted."""
    return SPOILED if call.verb == "GET" and call.path == LOAD_BALANCERS.path(CLUSTER.namespace) else None


@asynccontextmanager
async def restarted(*names: str) -> AsyncIterator[tuple[Program, Harvester]]:
    """Run a program that has served these Services before and finds no list any more."""
    guest, harvester = guest_server(), Harvester()
    program = Program(guest, harvester, "demo")
    async with program.live():
        program.create(*names)
        await asyncio.sleep(5)
    harvester.fault = no_list
    async with program.live():
        await asyncio.sleep(30)
        yield program, harvester


def served_names(harvester: Harvester) -> list[str]:
    """Return the names of the Services that have load balancers."""
    return sorted(one["metadata"]["labels"][LB_SERVICE_NAME] for one in harvester.items(LOAD_BALANCERS))


@jumping_time
async def test_nothing_is_created_and_who_waits_is_told() -> None:
    async with restarted("web") as (program, harvester):
        program.create("new")
        await asyncio.sleep(600)
        assert served_names(harvester) == ["web"]
        assert program.told() == ["new: HarvesterUnavailable"]
        assert "conversion webhook" in program.warnings("new")[0]
        harvester.fault = None
        await asyncio.sleep(120)
        assert served_names(harvester) == ["new", "web"]


@jumping_time
async def test_a_deleted_service_waits_for_the_list() -> None:
    async with restarted("web") as (program, harvester):
        program.guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(600)
        assert program.service("web")["metadata"]["finalizers"] == [SERVICE_FINALIZER]
        assert served_names(harvester) == ["web"]
        assert program.told() == ["web: HarvesterUnavailable"]
        harvester.fault = None
        await asyncio.sleep(120)
        assert "shop/web" not in program.guest.of(SERVICES)
        assert served_names(harvester) == []


@jumping_time
async def test_a_load_balancer_that_cannot_be_decoded_counts_as_present() -> None:
    async with restarted("web") as (program, harvester):
        ((key, before),) = harvester.of(LOAD_BALANCERS).items()
        harvester.change(LOAD_BALANCERS, key, {"spec": {"ipam": ["pool"]}})
        harvester.fault = None
        await asyncio.sleep(120)
        address = before["status"]["allocatedAddress"]["ip"]
        assert program.address("web") == address
        program.guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(120)
        assert program.service("web")["metadata"]["finalizers"] == [SERVICE_FINALIZER]
        harvester.change(LOAD_BALANCERS, key, {"spec": before["spec"]})
        await asyncio.sleep(120)
        assert "shop/web" not in program.guest.of(SERVICES)
        assert served_names(harvester) == []
