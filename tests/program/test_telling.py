"""What the budget of Events does not allow at the moment is told when it does: the whole program in memory."""

from __future__ import annotations

import asyncio

from harvester_ccm.kube.events import BURST, REFILL_SECONDS
from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES
from harvester_ccm.model.core import NODES, SERVICES
from harvester_ccm.names import ADDITIONAL_INTERNAL_IPS, IPAM, Reason
from tests.worlds.clock import jumping_time
from tests.worlds.fights import NODE, SERVICE, Arena, strip_annotation


@jumping_time
async def test_a_service_hears_later_what_it_could_not_be_told() -> None:
    arena = Arena()
    async with arena.at_rest():
        for number in range(BURST + 5):
            arena.guest.change(SERVICES, SERVICE, {"metadata": {"annotations": {IPAM: f"wrong-{number}"}}})
            await asyncio.sleep(1)
        assert not any(f"wrong-{number}" in text for text in arena.program.warnings("web"))
        await asyncio.sleep(REFILL_SECONDS)
        assert any(f"wrong-{number}" in text for text in arena.program.warnings("web"))
        told = len(arena.program.warnings("web"))
        await asyncio.sleep(10 * REFILL_SECONDS)
        assert len(arena.program.warnings("web")) == told, "once, and nothing that does not hold any more"


@jumping_time
async def test_a_node_hears_later_what_it_could_not_be_told() -> None:
    arena = Arena()
    async with arena.at_rest():
        for number in range(BURST + 5):
            annotations = {ADDITIONAL_INTERNAL_IPS: f"wrong-{number}"}
            arena.guest.change(NODES, NODE, {"metadata": {"annotations": annotations}})
            await asyncio.sleep(6)
        assert not any(f"wrong-{number}" in text for text in arena.program.warnings(NODE))
        await asyncio.sleep(REFILL_SECONDS)
        assert any(f"wrong-{number}" in text for text in arena.program.warnings(NODE))


@jumping_time
async def test_an_annotation_that_was_taken_off_a_served_service_is_set_again_and_told() -> None:
    arena = Arena()
    async with arena.at_rest():
        strip_annotation(arena)
        await asyncio.sleep(1)
        assert arena.address_annotation() == arena.program.address("web")
        ((count, text),) = arena.told("web", Reason.ANNOTATION_RESTORED)
        assert count == 1
        assert f"Somebody took {KUBE_VIP_ADDRESSES} off" in text
        await asyncio.sleep(600)
        strip_annotation(arena)
        await asyncio.sleep(1)
        assert [count for count, _ in arena.told("web", Reason.ANNOTATION_RESTORED)] == [2], "each time"
