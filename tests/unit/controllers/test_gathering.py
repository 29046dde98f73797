"""When work that goes through everything is done."""

from __future__ import annotations

import asyncio

from harvester_ccm.controllers.gathering import GATHER_SECONDS, Gathering
from tests.worlds.clock import jumping_time


@jumping_time
async def test_at_once_and_then_once_for_all_that_ask_within_a_moment() -> None:
    loop, done = asyncio.get_running_loop(), list[float]()
    gathering = Gathering(lambda: done.append(loop.time()))
    began = loop.time()
    for _ in range(3):
        gathering.ask()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert done == [began], "nobody who changes one thing waits for it"
    for _ in range(10):
        gathering.ask()
        await asyncio.sleep(GATHER_SECONDS / 20)
    await asyncio.sleep(10)
    assert len(done) == 2
    gathering.ask()
    await asyncio.sleep(0.001)
    assert len(done) == 3


@jumping_time
async def test_what_asks_during_the_work_is_not_lost() -> None:
    done: list[int] = []

    def work() -> None:
        done.append(1)
        if len(done) < 3:
            gathering.ask()

    gathering = Gathering(work)
    gathering.ask()
    await asyncio.sleep(1)
    assert len(done) == 3
