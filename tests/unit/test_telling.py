"""What the budget of Events does not allow at the moment is told when it does: the whole program in memory."""

from __future__ import annotations

import asyncio

from harvester_ccm.kube.events import BURST, REFILL_SECONDS
from harvester_ccm.model.core import NODES, SERVICES
from harvester_ccm.names import ADDITIONAL_INTERNAL_IPS, IPAM
from tests.worlds.clock import jumping_time
from tests.worlds.fights import NODE, SERVICE, Arena


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
