"""Load balancers that cannot be listed or decoded: Services keep their addresses, new ones wait with an Event."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from harvester_ccm.kube.errors import KubeError, UnexpectedAnswer
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import LB_SERVICE_NAME, SERVICE_FINALIZER, Reason
from tests.support.builders import CLUSTER
from tests.support.clock import jumping_time
from tests.support.memory_server import Call, page, refused
from tests.support.program_world import Harvester, Program, demo_program, guest_server

NOT_CONVERTED = refused(
    500, "InternalError", "conversion webhook for loadbalancer.harvesterhci.io/v1alpha1 failed: no kind"
)


def no_list(call: Call) -> Any:
    """Respond as Harvester does if it cannot convert a load balancer."""
    return NOT_CONVERTED if call.verb == "GET" and call.path == LOAD_BALANCERS.path(CLUSTER.namespace) else None


@asynccontextmanager
async def restarted(*names: str) -> AsyncIterator[tuple[Program, Harvester]]:
    """Run a program that created these load balancers before it was restarted and can no longer list them."""
    _, harvester, program = demo_program()
    async with program.live():
        program.create(*names)
        await asyncio.sleep(5)
    harvester.fault = no_list
    async with program.live():
        await asyncio.sleep(30)
        yield program, harvester


def names_of(harvester: Harvester) -> list[str]:
    return sorted(one["metadata"]["labels"][LB_SERVICE_NAME] for one in harvester.items(LOAD_BALANCERS))


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(NOT_CONVERTED, id="error"),
        pytest.param(refused(403, "Forbidden", "cannot list"), id="no permission"),
        pytest.param(UnexpectedAnswer("login page"), id="page of a proxy"),
    ],
)
@jumping_time
async def test_services_keep_their_addresses_while_load_balancers_cannot_be_listed(error: KubeError) -> None:
    _, harvester, program = demo_program()
    async with program.live():
        program.create("web")
        await asyncio.sleep(5)
        before, writes = program.service("web"), harvester.writes()
        assert program.address("web")
        harvester.fault = lambda call: error if no_list(call) else None
        harvester.compact()
        harvester.break_watches(refused(410, "Expired", "too old resource version"))
        await asyncio.sleep(600)
    # A restarted process has no objects from an earlier list.
    async with program.live():
        await asyncio.sleep(600)
    assert program.service("web") == before
    assert harvester.writes() == writes
    assert program.reasons() == []


@jumping_time
async def test_new_service_waits_with_an_event_for_the_list() -> None:
    async with restarted("web") as (program, harvester):
        program.create("new")
        await asyncio.sleep(600)
        assert names_of(harvester) == ["web"]
        assert program.reasons() == ["new: HarvesterUnavailable"]
        assert "conversion webhook" in program.warnings("new")[0]
        harvester.fault = None
        await asyncio.sleep(120)
        assert names_of(harvester) == ["new", "web"]


@jumping_time
async def test_deleted_service_waits_for_the_list() -> None:
    async with restarted("web") as (program, harvester):
        program.guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(600)
        assert program.service("web")["metadata"]["finalizers"] == [SERVICE_FINALIZER]
        assert names_of(harvester) == ["web"]
        assert program.reasons() == ["web: HarvesterUnavailable"]
        harvester.fault = None
        await asyncio.sleep(120)
        assert "shop/web" not in program.guest.of(SERVICES)
        assert names_of(harvester) == []


@jumping_time
async def test_load_balancer_that_cannot_be_decoded_counts_as_present() -> None:
    async with restarted("web") as (program, harvester):
        ((key, before),) = harvester.of(LOAD_BALANCERS).items()
        written = len(harvester.writes())
        harvester.change(LOAD_BALANCERS, key, {"spec": {"ipam": ["pool"]}})
        harvester.fault = None
        await asyncio.sleep(120)
        address = before["status"]["allocatedAddress"]["ip"]
        assert program.address("web") == address
        assert len(harvester.writes()) == written
        program.guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(120)
        assert program.service("web")["metadata"]["finalizers"] == [SERVICE_FINALIZER]
        harvester.change(LOAD_BALANCERS, key, {"spec": before["spec"]})
        await asyncio.sleep(120)
        assert "shop/web" not in program.guest.of(SERVICES)
        assert names_of(harvester) == []


@jumping_time
async def test_objects_that_cannot_be_decoded_are_logged_once_each() -> None:
    harvester = Harvester()
    for number in range(100):
        metadata = {"name": f"broken-{number}", "namespace": CLUSTER.namespace}
        harvester.put(LOAD_BALANCERS, {"metadata": metadata, "spec": {"ipam": ["pool"]}})
    program = Program(guest_server(), harvester, "demo")
    key = f"{CLUSTER.namespace}/broken-0"
    with capture_logs() as logs:
        async with program.live():
            await asyncio.sleep(5)
            for number in range(200):
                harvester.change(LOAD_BALANCERS, key, {"metadata": {"labels": {"number": str(number)}}})
                await asyncio.sleep(1)
            # Two lists and what came with the first watch.
            await asyncio.sleep(2 * 3600)
            assert len([entry for entry in logs if "not decoded" in entry["event"]]) == 11
            harvester.change(LOAD_BALANCERS, key, {"spec": {"ipam": "pool"}})
            await asyncio.sleep(1)
            harvester.change(LOAD_BALANCERS, key, {"spec": {"ipam": ["pool"]}})
            await asyncio.sleep(1)
    skipped = [entry for entry in logs if "not decoded" in entry["event"]]
    assert [entry["objects"] for entry in skipped if entry["event"] == "more objects not decoded"] == [90]
    assert [entry.get("name") for entry in skipped].count(key) == 2
    assert "array" in skipped[-1]["error"]


@jumping_time
async def test_harvester_before_1_2_is_reported_and_listed_after_its_upgrade() -> None:
    harvester = Harvester()
    program = Program(guest_server(), harvester, "demo")
    harvester.fault = lambda call: page() if LOAD_BALANCERS.plural in call.path else None
    async with program.live():
        program.create("web")
        await asyncio.sleep(600)
        (warning,) = [event for event in program.guest.events() if event["reason"] == Reason.HARVESTER_UNAVAILABLE]
        assert "Harvester before 1.2 is not supported: upgrade it" in warning["message"]
        harvester.fault = None
        await asyncio.sleep(120)
        assert program.address()
