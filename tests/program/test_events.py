"""Events of the whole program: one per state, and later if the token bucket of the object is empty."""

from __future__ import annotations

import asyncio

from harvester_ccm.kube.events import BURST, REFILL_SECONDS, REPEAT_SECONDS
from harvester_ccm.kube.workqueue import RESYNC_SECONDS
from harvester_ccm.model.core import NODES, SERVICES
from harvester_ccm.names import ADDITIONAL_INTERNAL_IPS, IPAM, KUBE_VIP_ADDRESSES, Reason
from tests.worlds.clock import jumping_time
from tests.worlds.conflicts import NODE, SERVICE, STRIPPED_ANNOTATION, Arena


@jumping_time
async def test_warning_of_a_service_is_emitted_by_a_resync_when_its_token_bucket_was_empty() -> None:
    arena = Arena()
    async with arena.at_rest():
        for number in range(BURST + 5):
            arena.guest.change(SERVICES, SERVICE, {"metadata": {"annotations": {IPAM: f"wrong-{number}"}}})
            await asyncio.sleep(1)
        assert not any(f"wrong-{number}" in text for text in arena.program.warnings("web"))
        await asyncio.sleep(REFILL_SECONDS + RESYNC_SECONDS)
        assert sum(f"wrong-{number}" in text for text in arena.program.warnings("web")) == 1
        emitted = len(arena.program.warnings("web"))
        await asyncio.sleep(2 * REPEAT_SECONDS)
        assert len(arena.program.warnings("web")) == emitted


@jumping_time
async def test_warning_of_a_node_is_emitted_by_a_resync_when_its_token_bucket_was_empty() -> None:
    arena = Arena()
    async with arena.at_rest():
        for number in range(BURST + 5):
            annotations = {ADDITIONAL_INTERNAL_IPS: f"wrong-{number}"}
            arena.guest.change(NODES, NODE, {"metadata": {"annotations": annotations}})
            await asyncio.sleep(6)
        assert not any(f"wrong-{number}" in text for text in arena.program.warnings(NODE))
        await asyncio.sleep(REFILL_SECONDS + RESYNC_SECONDS)
        assert any(f"wrong-{number}" in text for text in arena.program.warnings(NODE))


@jumping_time
async def test_removed_address_annotation_is_restored_each_time_and_reported_once_an_hour() -> None:
    arena = Arena()
    async with arena.at_rest():
        for pause, emitted in ((0, 1), (REPEAT_SECONDS / 2, 1), (REPEAT_SECONDS, 2)):
            await asyncio.sleep(pause)
            STRIPPED_ANNOTATION.change(arena)
            await asyncio.sleep(1)
            assert arena.address_annotation() == arena.program.address("web")
            messages = arena.events("web", Reason.ANNOTATION_RESTORED)
            assert len(messages) == emitted
            assert KUBE_VIP_ADDRESSES in messages[0]
