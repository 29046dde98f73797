"""Which word counts when an informer hears of an object twice, and what it trusts: on a server in memory."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from harvester_ccm.errors import CCMError, UnexpectedAnswer, Unreachable
from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.core import SERVICES, Service
from tests.worlds.background import running
from tests.worlds.builders import service
from tests.worlds.clock import jumping_time, until
from tests.worlds.memory_server import Document, MemoryClient, MemoryServer, refused

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


@jumping_time
@pytest.mark.parametrize("recreated", [False, True])
async def test_answer_without_the_last_finalizer_deletes_the_object_it_names(*, recreated: bool) -> None:
    server = MemoryServer()
    informer = Informer(MemoryClient(server, cluster="guest"), SERVICES)
    async with running(informer.run()):
        await informer.wait_synced()
        server.put(SERVICES, service(ours=True, deleting=True))
        await asyncio.sleep(1)
        server.lagging = not recreated
        last = server.change(SERVICES, KEY, {"metadata": {"finalizers": None}})
        if recreated:
            server.put(SERVICES, service(uid="of the new one"))
            await asyncio.sleep(1)
        stored = informer.get(KEY)
        assert stored is not None
        informer.observe(answer(last))
        assert informer.get(KEY) == (stored if recreated else None)


@jumping_time
@pytest.mark.parametrize("every", [1.0, 10.0])
async def test_watches_that_work_and_are_cut_are_opened_again_at_once(every: float) -> None:
    server = MemoryServer()
    informer = Informer(MemoryClient(server, cluster="guest"), SERVICES)
    problems: list[CCMError | None] = []
    informer.on_state(lambda: problems.append(informer.problem))
    late = []
    async with running(informer.run()):
        await informer.wait_synced()
        for number in range(60):
            await asyncio.sleep(every)
            server.break_watches(Unreachable("the connection was lost"))
            await asyncio.sleep(0.01)
            late.append(await seconds_until_seen(server, informer, f"web-{number}"))
    assert max(late) <= 0.3
    assert problems == [None]
    assert lists(server) == 1


@jumping_time
@pytest.mark.parametrize(
    "said",
    [
        UnexpectedAnswer("a page in the place of an event"),
        refused(500, "InternalError", "etcd is away"),
    ],
    ids=lambda one: type(one).__name__,
)
async def test_watch_that_worked_and_then_says_what_is_no_change_is_followed_by_a_list(said: CCMError) -> None:
    server = MemoryServer()
    informer = Informer(MemoryClient(server, cluster="guest"), SERVICES)
    problems: list[CCMError | None] = []
    informer.on_state(lambda: problems.append(informer.problem))
    async with running(informer.run()):
        await informer.wait_synced()
        await asyncio.sleep(60)
        server.break_watches(said)
        assert await seconds_until_seen(server, informer, "web") <= 2
        assert (lists(server), problems) == (2, [None, said, None])


@jumping_time
@pytest.mark.parametrize("said", [refused(500, "InternalError", "etcd is away"), refused(410, "Expired", "too old")])
async def test_watches_that_last_are_no_failures_in_a_row_whatever_ends_them(said: CCMError) -> None:
    server = MemoryServer()
    informer = Informer(MemoryClient(server, cluster="guest"), SERVICES)
    late = []
    async with running(informer.run()):
        await informer.wait_synced()
        for number in range(60):
            await asyncio.sleep(240)
            server.break_watches(said)
            await asyncio.sleep(0.01)
            late.append(await seconds_until_seen(server, informer, f"web-{number}"))
    assert max(late) <= 2
    assert lists(server) >= 60


@jumping_time
async def test_watches_that_always_say_what_is_no_change_are_asked_for_slower_and_slower() -> None:
    server = MemoryServer()
    informer = Informer(MemoryClient(server, cluster="guest"), SERVICES)

    async def talk() -> None:
        while True:
            await asyncio.sleep(1)
            server.break_watches(UnexpectedAnswer("a page in the place of an event"))

    async with running(informer.run()), running(talk()):
        await asyncio.sleep(600)
    assert lists(server) < 80


@jumping_time
@pytest.mark.parametrize(("away", "longest"), [(20.0, 2.7), (35.0, 3.8)])
async def test_work_goes_on_soon_after_an_outage(away: float, longest: float) -> None:
    server = MemoryServer()
    informer = Informer(MemoryClient(server, cluster="guest"), SERVICES)
    late = []
    async with running(informer.run()):
        await informer.wait_synced()
        for number in range(30):
            await asyncio.sleep(60)
            server.fault = lambda _call: Unreachable("connection refused")
            server.break_watches(Unreachable("the connection was lost"))
            await asyncio.sleep(away)
            server.fault = None
            late.append(await seconds_until_seen(server, informer, f"web-{number}"))
    assert max(late) <= longest


@jumping_time
async def test_watches_that_die_at_once_are_asked_for_slower_and_slower() -> None:
    server = MemoryServer()
    server.fault = lambda call: Unreachable("the connection was lost") if call.verb == "WATCH" else None
    informer = Informer(MemoryClient(server, cluster="guest"), SERVICES)
    async with running(informer.run()):
        await asyncio.sleep(600)
    asked = [call.at for call in server.calls if call.verb == "WATCH"]
    assert len(asked) < 80
    # What they do not tell the lists do.
    assert lists(server) >= len(asked)


@jumping_time
@pytest.mark.parametrize("away", [4.0, 25.0])
async def test_server_that_is_back_is_read_soon(away: float) -> None:
    server = MemoryServer()
    informer = Informer(MemoryClient(server, cluster="guest"), SERVICES)
    async with running(informer.run()):
        await informer.wait_synced()
        await asyncio.sleep(60)
        server.fault = lambda call: Unreachable("connection refused")
        server.break_watches(Unreachable("the connection was lost"))
        await asyncio.sleep(away)
        server.fault = None
        assert await seconds_until_seen(server, informer, "web") <= max(2.0, away / 5)


@jumping_time
async def test_server_that_was_away_is_listed_because_it_may_have_been_restored() -> None:
    server, backup = MemoryServer(), MemoryServer()
    for each in (server, backup):
        each.put(SERVICES, service(name="kept"))
    backup.version = 500
    backup.put(SERVICES, service(name="lost"))
    server.put(SERVICES, service(name="made-since"))
    informer = Informer(MemoryClient(server, cluster="guest"), SERVICES)
    async with running(informer.run()):
        await informer.wait_synced()
        server.fault = lambda call: Unreachable("connection refused")
        server.break_watches(Unreachable("the connection was lost"))
        await asyncio.sleep(5)
        # Its versions have overtaken those that we know.
        server.restore(backup)
        server.fault = None
        await asyncio.sleep(5)
        assert sorted(one.metadata.name for one in informer.all()) == ["kept", "lost"]


@jumping_time
async def test_list_replaces_a_newer_object_and_removes_none_that_it_has_unreadable() -> None:
    server, backup = MemoryServer(), MemoryServer()
    for each in (server, backup):
        each.put(SERVICES, service())
        each.put(SERVICES, service(name="unreadable"))
    server.put(SERVICES, service(labels={"written": "after-the-backup"}))
    backup.change(SERVICES, "shop/unreadable", {"spec": {"ports": 1}})
    informer = Informer(MemoryClient(server, cluster="guest"), SERVICES)
    async with running(informer.run()):
        await informer.wait_synced()
        server.restore(backup)
        server.break_watches(Unreachable("the connection was lost"))
        await until(lambda: informer.unread == {"shop/unreadable"})
        assert informer.get("shop/unreadable") is not None
        found = informer.get(KEY)
        assert found is not None
        assert found.metadata.labels == {}


@jumping_time
async def test_collection_is_listed_now_and_then_whatever_the_watch_says() -> None:
    server = MemoryServer()
    informer = Informer(MemoryClient(server, cluster="guest"), SERVICES)
    async with running(informer.run()):
        await informer.wait_synced()
        await asyncio.sleep(4 * 3600)
    assert 4 <= lists(server) <= 9


def lists(server: MemoryServer) -> int:
    """Return how often the collection was listed."""
    return sum(call.verb == "GET" for call in server.calls)


async def seconds_until_seen(server: MemoryServer, informer: Informer[Service], name: str) -> float:
    """Create a Service; return how long the copy lacks it."""
    seen = asyncio.Event()
    informer.on_change(lambda _old, new: seen.set() if new is not None and new.metadata.name == name else None)
    began = asyncio.get_running_loop().time()
    server.put(SERVICES, service(name=name))
    await seen.wait()
    return asyncio.get_running_loop().time() - began
