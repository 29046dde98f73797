"""Load balancers that cannot be listed: what is known by its name is deleted and changed, nothing is made anew."""

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
async def test_a_deleted_service_is_let_go_and_its_load_balancer_deleted() -> None:
    async with restarted("web", "other") as (program, harvester):
        program.guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(60)
        assert set(program.guest.of(SERVICES)) == {"shop/other"}
        assert served_names(harvester) == ["other"]
        assert program.told() == [], "nothing that is needed is missing"


@jumping_time
async def test_a_changed_service_is_followed() -> None:
    async with restarted("web") as (program, harvester):
        ports = [{"port": 443, "protocol": "TCP"}]
        notes = {"cloudprovider.harvesterhci.io/description": "ours"}
        program.guest.change(SERVICES, "shop/web", {"metadata": {"annotations": notes}, "spec": {"ports": ports}})
        await asyncio.sleep(60)
        assert program.service("web")["status"]["loadBalancer"]["ingress"][0]["ports"] == ports
        assert [one["spec"]["description"] for one in harvester.items(LOAD_BALANCERS)] == ["ours"]


@jumping_time
async def test_nothing_is_made_anew_and_who_waits_is_told() -> None:
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
async def test_a_service_that_another_load_balancer_may_serve_waits_for_the_list() -> None:
    async with restarted("web") as (program, harvester):
        (found,) = harvester.items(LOAD_BALANCERS)
        name = found["metadata"]["name"]
        harvester.remove(LOAD_BALANCERS, f"{CLUSTER.namespace}/{name}")
        program.guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(600)
        assert program.service("web")["metadata"]["finalizers"] == [SERVICE_FINALIZER]
        assert program.told() == ["web: HarvesterUnavailable"]
        harvester.fault = None
        await asyncio.sleep(120)
        assert "shop/web" not in program.guest.of(SERVICES)


@jumping_time
async def test_what_serves_is_not_replaced() -> None:
    async with restarted("web") as (program, harvester):
        before = harvester.items(LOAD_BALANCERS)[0]["metadata"]["uid"]
        notes = {"cloudprovider.harvesterhci.io/workload-type": "vm"}
        program.guest.change(SERVICES, "shop/web", {"metadata": {"annotations": notes}})
        await asyncio.sleep(600)
        assert [one["metadata"]["uid"] for one in harvester.items(LOAD_BALANCERS)] == [before]
        assert program.address("web")
