"""The line of Services that wait to have a load balancer created, by itself."""

from __future__ import annotations

import asyncio

from harvester_ccm.controllers.turns import Turns
from harvester_ccm.plan.service.pace import ANSWER_PATIENCE
from tests.worlds.builders import marked
from tests.worlds.clock import jumping_time


@jumping_time
async def test_one_that_appears_once_more_has_its_time_from_then_on() -> None:
    """Harvester went back to a backup, and what was told of the first one's end was lost."""
    turns = Turns(lambda _key: None)
    turns.appeared(marked())
    await asyncio.sleep(ANSWER_PATIENCE - 1)
    turns.appeared(marked())
    await asyncio.sleep(ANSWER_PATIENCE - 1)
    assert not turns.ask("shop/other", 0.0)
    await asyncio.sleep(2)
    assert turns.ask("shop/other", 0.0)
