"""Who is told what: Services that need something, and only of what somebody has to mend. Whole programs in memory."""

from __future__ import annotations

import asyncio

from harvester_ccm.model.harvester import LOAD_BALANCERS
from tests.worlds.clock import jumping_time
from tests.worlds.program_world import Harvester, Program, guest_server

CONTENDED = (
    "fail to update service, error: Operation cannot be fulfilled on services "
    '"demo-shop-web": the object has been modified; please apply your changes to the latest version and try again'
)


class Contended(Harvester):
    """Meets another writer of its own objects before it gives an address."""

    def __init__(self, *, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def _give_address(self, key: str) -> None:
        conditions = [{"type": "Ready", "status": "False", "message": CONTENDED}]
        self.change(LOAD_BALANCERS, key, {"status": {"allocatedAddress": {}, "conditions": conditions}})
        asyncio.get_running_loop().call_later(self._seconds, super()._give_address, key)


@jumping_time
async def test_harvester_meeting_its_own_writers_is_nothing_to_tell() -> None:
    program = Program(guest_server(), Contended(seconds=170), "demo")
    program.create("web")
    async with program.live():
        await asyncio.sleep(160)
        assert program.told() == []
        await asyncio.sleep(20)
        assert program.address("web")
    assert program.told() == []


@jumping_time
async def test_harvester_meeting_them_for_minutes_is_told_once_with_its_words() -> None:
    program = Program(guest_server(), Contended(seconds=1000), "demo")
    program.create("web")
    async with program.live():
        await asyncio.sleep(990)
        (said,) = program.warnings("web")
        assert "still working on the address" in said
        assert said.endswith(f"Harvester says: {CONTENDED}")
        await asyncio.sleep(20)
        assert program.address("web")
    assert program.told() == ["web: AddressPending"]
