"""Which word counts when an informer hears of an object twice: on a server in memory."""

from __future__ import annotations

import asyncio

import msgspec

from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.core import SERVICES, Service
from tests.worlds.background import running
from tests.worlds.builders import service
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Document, MemoryClient, MemoryServer

KEY = "shop/web"


def answer(document: Document) -> Service:
    """Return an object as the answer to a write shows it."""
    return SERVICES.decode(msgspec.json.encode(document))


@jumping_time
async def test_answer_to_a_write_is_seen_before_the_watch_tells_of_it() -> None:
    server = MemoryServer()
    informer = Informer(MemoryClient(server, cluster="guest"), SERVICES)
    async with running(informer.run()):
        await informer.wait_synced()
        server.lagging = True
        informer.observe(answer(server.put(SERVICES, service())))
        assert informer.get(KEY) is not None


@jumping_time
async def test_answer_that_comes_late_brings_nothing_back() -> None:
    server = MemoryServer()
    informer = Informer(MemoryClient(server, cluster="guest"), SERVICES)
    async with running(informer.run()):
        await informer.wait_synced()
        server.put(SERVICES, service())
        late = server.change(SERVICES, KEY, {"metadata": {"labels": {"written": "by us"}}})
        server.remove(SERVICES, KEY)
        await asyncio.sleep(1)
        informer.observe(answer(late))
        assert informer.get(KEY) is None
