"""Events: one per state for the objects that need an action, and later if the token bucket of the object is empty."""

import asyncio

import pytest

from harvester_ccm.kube.errors import KubeError, Unreachable
from harvester_ccm.kube.events import BURST, REFILL_SECONDS, REPEAT_SECONDS
from harvester_ccm.kube.workqueue import RESYNC_SECONDS
from harvester_ccm.model.core import SERVICES
from harvester_ccm.names import IPAM
from tests.support.clock import jumping_time
from tests.support.conflicts import SERVICE, ConflictWorld
from tests.support.memory_server import refused
from tests.support.program_world import Harvester, Program, guest_server


@jumping_time
async def test_warning_of_a_service_is_emitted_by_a_resync_when_its_token_bucket_was_empty() -> None:
    world = ConflictWorld()
    async with world.at_rest():
        for number in range(BURST + 5):
            world.guest.change(SERVICES, SERVICE, {"metadata": {"annotations": {IPAM: f"wrong-{number}"}}})
            await asyncio.sleep(1)
        assert not any(f"wrong-{number}" in text for text in world.warnings("web"))
        await asyncio.sleep(REFILL_SECONDS + RESYNC_SECONDS)
        assert sum(f"wrong-{number}" in text for text in world.warnings("web")) == 1
        emitted = len(world.warnings("web"))
        await asyncio.sleep(2 * (REPEAT_SECONDS + RESYNC_SECONDS))
        assert len(world.warnings("web")) == emitted + 2, "only the one that holds"


OUTAGES = {"credential rejected": refused(401, "Unauthorized", "Unauthorized"), "unreachable": Unreachable("no route")}


@pytest.mark.parametrize("running", [True, False], ids=["running", "at start"])
@pytest.mark.parametrize("error", OUTAGES.values(), ids=OUTAGES.keys())
@jumping_time
async def test_outage_of_harvester_is_reported_only_on_services_that_wait_for_it(
    error: KubeError, *, running: bool
) -> None:
    harvester = Harvester()
    program = Program(guest_server(), harvester, "demo")
    program.create("retyped", "deleted", *(f"ready-{number}" for number in range(15)))
    async with program.live():
        await asyncio.sleep(10)
    if not running:
        harvester.fault = lambda _call: error
    async with program.live():
        await asyncio.sleep(10)
        harvester.fault = lambda _call: error
        harvester.break_watches(error)
        await asyncio.sleep(1)
        program.create("new")
        program.change("retyped", spec={"type": "ClusterIP"})
        program.guest.delete(SERVICES, "shop/deleted")
        await asyncio.sleep(600)
    assert set(program.reasons()) == {f"{name}: HarvesterUnavailable" for name in ("retyped", "deleted", "new")}
