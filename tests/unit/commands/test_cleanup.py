"""``cleanup --yes``: how long it waits for Harvester, which lets about two load balancers a second go."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from harvester_ccm.commands.cleanup import delete_leftovers, judge_leftovers
from harvester_ccm.model.harvester import LOAD_BALANCERS
from tests.unit.commands import objects
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import MemoryClient, MemoryServer

NUMBER = 80


async def lets_go(server: MemoryServer, *, number: int, pause: float) -> None:
    """Take the finalizer from so many load balancers that are being deleted, one after the other."""
    for _ in range(number):
        await asyncio.sleep(pause)
        leaving = (one for one in server.items(LOAD_BALANCERS) if one["metadata"].get("deletionTimestamp"))
        one = next(leaving, None)
        if one is not None:
            key = f"{objects.VMS}/{one['metadata']['name']}"
            server.change(LOAD_BALANCERS, key, {"metadata": {"finalizers": None}})


@pytest.mark.parametrize(("released", "left"), [(NUMBER, 0), (NUMBER - 3, 3), (0, NUMBER)])
def test_it_waits_as_long_as_one_goes_after_the_other(released: int, left: int) -> None:
    @jumping_time
    async def run() -> None:
        server = MemoryServer()
        for number in range(NUMBER):
            server.put(LOAD_BALANCERS, objects.balancer(name=f"lb-{number}", address="10.0.0.7"))
        found = tuple(LOAD_BALANCERS.decode(msgspec.json.encode(one)) for one in server.items(LOAD_BALANCERS))
        client = MemoryClient(server, cluster="harvester", namespace=objects.VMS)
        controller = asyncio.create_task(lets_go(server, number=released, pause=5.0))
        result = await delete_leftovers(client, judge_leftovers("demo", objects.VMS, found, []))
        await controller
        assert (len(result.deleted), len(result.going), result.failed) == (NUMBER - left, left, {})

    run()
