"""Informers of an API server in memory: versions, broken watches, outages."""

import asyncio
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from harvester_ccm.kube import informer as informer_module
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.errors import Answer, KubeError, NotFound, UnexpectedAnswer, Unreachable
from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.core import SERVICES, Service
from tests.support.background import running
from tests.support.builders import service
from tests.support.clock import jumping_time, until
from tests.support.memory_server import Call, Document, MemoryClient, MemoryServer, refused

KEY = "shop/web"


def decoded(document: Document) -> Service:
    """Return the response to a write."""
    return SERVICES.decode(msgspec.json.encode(document))


def followed(server: MemoryServer) -> Informer[Service]:
    return Informer(MemoryClient(server, cluster="guest"), SERVICES)


@asynccontextmanager
async def following() -> AsyncIterator[tuple[MemoryServer, Informer[Service], Service]]:
    """Follow a server with one Service: return it as well, after the watch has begun."""
    server = MemoryServer()
    server.put(SERVICES, service())
    informer = followed(server)
    async with running(informer.run()):
        await informer.wait_synced()
        await asyncio.sleep(1)
        item = informer.get(KEY)
        assert item is not None
        yield server, informer, item


@jumping_time
@pytest.mark.kube("The response to a write is in the store at once, and never replaces a newer object")
async def test_response_to_a_write_is_stored_unless_the_watch_is_ahead_of_it() -> None:
    server = MemoryServer()
    informer = followed(server)
    async with running(informer.run()):
        await informer.wait_synced()
        server.lagging = True
        informer.observe(decoded(server.put(SERVICES, service())))
        assert informer.get(KEY) is not None
        server.lagging = False
        late = server.change(SERVICES, KEY, {"metadata": {"labels": {"a": "b"}}})
        server.remove(SERVICES, KEY)
        await asyncio.sleep(1)
        informer.observe(decoded(late))
        assert informer.get(KEY) is None


@jumping_time
async def test_late_deletion_does_not_remove_the_object_that_was_created_again_since() -> None:
    async with following() as (server, informer, _item):
        removed: list[str] = []
        informer.on_change(lambda old, new: removed.append(KEY) if new is None else None)
        server.lagging = True
        server.remove(SERVICES, KEY)
        again = decoded(server.put(SERVICES, service(uid="new")))
        informer.observe(again)
        server.catch_up()
        await asyncio.sleep(1)
        assert (removed, informer.get(KEY)) == ([], again)


@jumping_time
@pytest.mark.parametrize("recreated", [False, True])
async def test_response_without_the_last_finalizer_removes_the_object_with_its_uid(*, recreated: bool) -> None:
    server = MemoryServer()
    informer = followed(server)
    async with running(informer.run()):
        await informer.wait_synced()
        server.put(SERVICES, service(ours=True, deleting=True))
        await asyncio.sleep(1)
        known = informer.get(KEY)
        assert known is not None
        server.lagging = not recreated
        last = server.change(SERVICES, KEY, {"metadata": {"finalizers": None}})
        if recreated:
            server.put(SERVICES, service(uid="new"))
            await asyncio.sleep(1)
        stored = informer.get(KEY)
        assert stored is not None
        informer.observe_current(known, decoded(last))
        assert informer.get(KEY) == (stored if recreated else None)
        await asyncio.sleep(1)
        assert lists(server) == 1


BROKEN = Unreachable("the connection was lost")
HTML = UnexpectedAnswer("HTML instead of an event")
EXPIRED = refused(410, "Expired", "too old")
FAILED = refused(500, "InternalError", "etcd is unavailable")


@jumping_time
@pytest.mark.parametrize(
    ("end", "every", "delay", "relists"),
    [(BROKEN, 1, 0.3, False), (BROKEN, 10, 0.3, False), (FAILED, 240, 2, True), (EXPIRED, 240, 2, True)],
)
async def test_working_watch_that_ends_is_opened_again_from_its_version_or_after_a_list(
    end: KubeError, every: float, delay: float, *, relists: bool
) -> None:
    server = MemoryServer()
    informer, delays = followed(server), []
    async with running(informer.run()):
        await informer.wait_synced()
        for number in range(30):
            await asyncio.sleep(every)
            server.break_watches(end)
            await asyncio.sleep(0.01)
            delays.append(await seconds_until_seen(server, informer, f"web-{number}"))
    assert max(delays) <= delay
    assert lists(server) >= 30 if relists else lists(server) == 1


@jumping_time
@pytest.mark.parametrize("end", [HTML, FAILED], ids=["HTML", "error"])
@pytest.mark.kube(
    "No error ends an informer: the store keeps its objects, and ``problem`` says why it may not be current"
)
async def test_error_of_a_watch_is_the_problem_until_the_next_list(end: KubeError) -> None:
    server = MemoryServer()
    informer, problems = followed(server), list[KubeError | None]()
    informer.on_state(lambda: problems.append(informer.problem))
    async with running(informer.run()):
        await informer.wait_synced()
        await asyncio.sleep(60)
        server.break_watches(end)
        assert await seconds_until_seen(server, informer, "web") <= 2
        assert (lists(server), problems) == (2, [None, end, None])


@jumping_time
@pytest.mark.parametrize("error", [BROKEN, EXPIRED, None], ids=["broken", "expired", "HTML after a second"])
async def test_watches_that_never_work_are_opened_with_backoff(error: KubeError | None) -> None:
    server = MemoryServer()
    server.fault = lambda call: error if call.verb == "WATCH" else None

    async def answer_with_html() -> None:
        while error is None:
            await asyncio.sleep(1)
            server.break_watches(HTML)

    async with running(followed(server).run()), running(answer_with_html()):
        await asyncio.sleep(600)
    assert lists(server) < 80


@jumping_time
@pytest.mark.parametrize(("outage", "delay"), [(4.0, 2.0), (20.0, 2.7), (35.0, 3.8)])
@pytest.mark.kube(
    "After an outage, the store is current within two seconds and a tenth of the time that the outage lasted"
)
async def test_collection_is_current_soon_after_an_outage(outage: float, delay: float) -> None:
    server = MemoryServer()
    informer, delays = followed(server), []
    async with running(informer.run()):
        await informer.wait_synced()
        for number in range(30):
            await asyncio.sleep(60)
            server.fault = lambda _call: Unreachable("connection refused")
            server.break_watches(BROKEN)
            await asyncio.sleep(outage)
            server.fault = None
            delays.append(await seconds_until_seen(server, informer, f"web-{number}"))
    assert max(delays) <= delay


@jumping_time
async def test_server_is_listed_after_an_outage_because_it_may_have_been_restored() -> None:
    server, backup = MemoryServer(), MemoryServer()
    for each in (server, backup):
        each.put(SERVICES, service(name="both"))
    backup.version = 500
    backup.put(SERVICES, service(name="lost"))
    server.put(SERVICES, service(name="made-since"))
    informer = followed(server)
    async with running(informer.run()):
        await informer.wait_synced()
        server.fault = lambda call: Unreachable("connection refused")
        server.break_watches(BROKEN)
        await asyncio.sleep(5)
        # Its versions are newer than those in the cache.
        server.restore(backup)
        server.fault = None
        await asyncio.sleep(5)
        assert sorted(one.metadata.name for one in informer.all()) == ["both", "lost"]


@jumping_time
async def test_response_of_a_server_with_older_data_is_stored() -> None:
    server, backup = MemoryServer(), MemoryServer()
    for number in range(9):
        server.put(SERVICES, service(name=f"web-{number}"))
    informer = followed(server)
    async with running(informer.run()):
        await informer.wait_synced()
        server.restore(backup)
        server.break_watches(BROKEN)
        await until(lambda: not len(informer))
        server.lagging = True
        informer.observe(decoded(server.put(SERVICES, service())))
        assert informer.get(KEY) is not None


@jumping_time
@pytest.mark.kube("An object that cannot be decoded is never removed from the store by that")
async def test_list_replaces_newer_objects_and_keeps_those_that_it_has_unreadable() -> None:
    server, backup = MemoryServer(), MemoryServer()
    for each in (server, backup):
        each.put(SERVICES, service())
        each.put(SERVICES, service(name="unreadable"))
    server.put(SERVICES, service(labels={"written": "after-the-backup"}))
    backup.change(SERVICES, "shop/unreadable", {"spec": {"ports": 1}})
    informer = followed(server)
    async with running(informer.run()):
        await informer.wait_synced()
        server.restore(backup)
        server.break_watches(BROKEN)
        await until(lambda: set(informer.unread) == {"shop/unreadable"})
        assert informer.get("shop/unreadable") is not None
        found = informer.get(KEY)
        assert found is not None
        assert found.metadata.labels == {}


@jumping_time
async def test_object_that_is_deleted_while_the_watch_is_interrupted_is_removed_by_the_next_list() -> None:
    server = MemoryServer()
    server.put(SERVICES, service())
    informer, reported = followed(server), set[str]()
    informer.on_change(lambda old, new: reported.add(old.metadata.key) if old is not None and new is None else None)
    async with running(informer.run()):
        await informer.wait_synced()
        server.fault = lambda _call: BROKEN
        server.break_watches(BROKEN)
        await asyncio.sleep(1)
        server.remove(SERVICES, KEY)
        server.compact()
        server.fault = None
        await asyncio.sleep(60)
    assert (informer.get(KEY), reported) == (None, {KEY})


@jumping_time
async def test_collection_is_listed_every_30_to_60_minutes() -> None:
    server = MemoryServer()
    informer = followed(server)
    async with running(informer.run()):
        await informer.wait_synced()
        await asyncio.sleep(4 * 3600)
    assert 4 <= lists(server) <= 9


@jumping_time
async def test_collection_is_listed_every_minute_if_watching_is_forbidden() -> None:
    server = MemoryServer()
    server.fault = lambda call: refused(403, "Forbidden", "no watch") if call.verb == "WATCH" else None
    async with running(followed(server).run()):
        await asyncio.sleep(600)
    assert 10 <= lists(server) <= 11


@jumping_time
async def test_event_of_a_watch_is_a_contact() -> None:
    async with following() as (server, informer, _item):
        await asyncio.sleep(60)
        server.put(SERVICES, service(name="new"))
        await asyncio.sleep(1)
        assert loop_time() - informer.last_contact < 2


@jumping_time
async def test_object_that_cannot_be_decoded_is_logged_once_until_it_can_be() -> None:
    async with following() as (server, informer, _item):
        with capture_logs() as logs:
            server.change(SERVICES, KEY, {"spec": {"ports": 1}})
            await asyncio.sleep(3 * 3600)
        assert [entry["event"] for entry in logs].count("object not decoded") == 1
        server.change(SERVICES, KEY, {"spec": {"ports": []}})
        await asyncio.sleep(1)
        assert not informer.unread
        assert informer.get(KEY) is not None
        server.change(SERVICES, KEY, {"spec": {"ports": 1}})
        server.remove(SERVICES, KEY)
        await asyncio.sleep(1)
        assert (informer.unread, informer.get(KEY)) == ({}, None)


def lists(server: MemoryServer) -> int:
    return sum(call.verb == "GET" and call.path == SERVICES.path() for call in server.calls)


async def seconds_until_seen(server: MemoryServer, informer: Informer[Service], name: str) -> float:
    seen = asyncio.Event()
    informer.on_change(lambda _old, new: seen.set() if new is not None and new.metadata.name == name else None)
    began = asyncio.get_running_loop().time()
    server.put(SERVICES, service(name=name))
    await seen.wait()
    return asyncio.get_running_loop().time() - began


@jumping_time
async def test_problem_keeps_no_response_in_memory() -> None:
    server = MemoryServer()
    server.put(SERVICES, {"metadata": {"name": 5, "namespace": "shop"}})
    informer = followed(server)
    async with running(informer.run()):
        await until(lambda: informer.problem is not None)
        problem = informer.problem
        assert problem is not None
        await asyncio.sleep(1)
        assert (problem.__cause__, problem.__context__) == (None, None)
        frames = [frame for frame, _ in traceback.walk_tb(problem.__traceback__)]
        assert {frame.f_code.co_filename for frame in frames} <= {informer_module.__file__}


async def removed_without_an_event(server: MemoryServer, informer: Informer[Service]) -> KubeError:
    """Delete a Service, lose the event, and report the 404 of a request to the informer."""
    item = informer.get(KEY)
    assert item is not None
    server.watch_drops = lambda _watch, _kind: True
    server.remove(SERVICES, KEY)
    server.watch_drops = lambda _watch, _kind: False
    try:
        server.get(SERVICES, KEY)
    except NotFound as error:
        informer.not_found(item, error)
        return error
    raise AssertionError(KEY)


@jumping_time
@pytest.mark.kube("A deletion that the watch has lost is found by a 404 of any request, and then by a list")
async def test_404_that_names_the_object_removes_it_and_a_lost_deletion_causes_a_list() -> None:
    server = MemoryServer()
    server.put(SERVICES, service())
    informer = followed(server)
    async with running(informer.run()):
        await informer.wait_synced()
        await removed_without_an_event(server, informer)
        assert informer.get(KEY) is None
        before = lists(server)
        await asyncio.sleep(40)
        assert lists(server) == before + 1
        await asyncio.sleep(1700)
        assert lists(server) == before + 1


@jumping_time
async def test_404_and_a_reported_deletion_cause_no_list() -> None:
    async with following() as (server, informer, item):
        server.lagging = True
        server.remove(SERVICES, KEY)
        informer.not_found(item, NotFound(Answer(404, "NotFound", "not found", "web")))
        server.catch_up()
        await asyncio.sleep(1700)
        assert lists(server) == 1


@jumping_time
async def test_object_that_exists_is_not_hidden_by_a_404() -> None:
    """The 404 was another server's, or a late event comes after it."""
    async with following() as (server, informer, item):
        about_namespace = NotFound(Answer(404, "NotFound", "not found", "other"))
        informer.not_found(item, about_namespace)
        assert informer.get(KEY) == item
        informer.not_found(item, NotFound(Answer(404, "NotFound", "not found", "web")))
        assert informer.get(KEY) is None
        await asyncio.sleep(40)
        assert informer.get(KEY) == item
        # Created again under its name: the 404 was for the one before.
        server.remove(SERVICES, KEY)
        server.put(SERVICES, service(uid="new"))
        await asyncio.sleep(1)
        informer.not_found(item, NotFound(Answer(404, "NotFound", "not found", "web")))
        assert informer.get(KEY) is not None


@jumping_time
async def test_404s_that_follow_each_other_do_not_delay_the_list() -> None:
    server = MemoryServer()
    names = [f"web-{number}" for number in range(20)]
    for name in names:
        server.put(SERVICES, service(name=name, uid=name))
    informer = followed(server)
    async with running(informer.run()):
        await informer.wait_synced()
        await asyncio.sleep(1)
        for name in names:
            item = informer.get(f"shop/{name}")
            if item is None:
                break
            informer.not_found(item, NotFound(Answer(404, "NotFound", "not found", name)))
            await asyncio.sleep(10)
        lists = [call.at for call in server.calls if call.verb == "GET"]
        assert 29 < lists[1] - lists[0] < 35


@jumping_time
async def test_refresh_reads_a_change_that_the_watch_lost() -> None:
    async with following() as (server, informer, item):
        server.watch_drops = lambda _watch, _kind: True
        server.change(SERVICES, KEY, {"metadata": {"labels": {"team": "web"}}})
        server.watch_drops = lambda _watch, _kind: False
        # The watch delivers a later version.
        server.put(SERVICES, service(name="api"))
        await asyncio.sleep(1)
        server.fault = lambda _call: refused(503, "ServiceUnavailable", "busy")
        await informer.refresh(item)
        assert informer.get(KEY) == item
        server.fault = None
        await informer.refresh(item)
        assert informer.get(KEY) == decoded(server.get(SERVICES, KEY))


@jumping_time
async def test_refresh_removes_an_object_that_is_gone() -> None:
    async with following() as (server, informer, item):
        server.lagging = True
        server.remove(SERVICES, KEY)
        await informer.refresh(item)
        assert informer.get(KEY) is None


@pytest.mark.parametrize("event", ["change", "deletion"])
@jumping_time
async def test_refresh_does_not_replace_what_the_watch_delivers_meanwhile(event: str) -> None:
    async with following() as (server, informer, item):

        def change_after(call: Call, _error: KubeError | None) -> None:
            if call.verb != "GET":
                return
            if event == "change":
                server.change(SERVICES, KEY, {"metadata": {"labels": {"team": "web"}}})
            else:
                server.remove(SERVICES, KEY)

        server.change(SERVICES, KEY, {"metadata": {"labels": {"team": "api"}}})
        server.on_answered.append(change_after)
        server.way_back = lambda _call: 1.0
        await informer.refresh(item)
        stored = server.of(SERVICES).get(KEY)
        expected = None if stored is None else decoded(stored)
        assert informer.get(KEY) == expected


@jumping_time
async def test_read_of_another_object_with_the_same_version_causes_a_list() -> None:
    """After the restore, the object was created again, and got the version of the earlier one by chance."""
    async with following() as (server, informer, item):
        known = replace(item, metadata=replace(item.metadata, uid="uid before the restore"))
        await informer.refresh(known)
        await asyncio.sleep(1)
        assert lists(server) == 2


@jumping_time
async def test_response_to_a_patch_with_older_data_causes_a_list() -> None:
    """The same patch would be planned until the next list: its response is older than the store, and is not stored."""
    async with following() as (server, informer, item):
        newer = replace(item, metadata=replace(item.metadata, resource_version=f"{item.metadata.resource_version}0"))
        informer.observe(newer)
        patched = decoded(server.change(SERVICES, KEY, {"metadata": {"labels": {"team": "web"}}}))
        informer.observe_current(newer, patched)
        await asyncio.sleep(1)
        assert informer.get(KEY) == patched
        assert lists(server) == 2


@jumping_time
async def test_object_created_in_older_data_causes_a_list() -> None:
    """The same object would be created again until the next list: its version is below that of the watch."""
    async with following() as (server, informer, _):
        await server.lose_changes(SERVICES, KEY)
        seen = informer.version
        created = decoded(server.create(SERVICES, {"metadata": {"name": "new", "namespace": "shop"}}))
        informer.observe_missing(created, seen)
        assert informer.get("shop/new") == created
        await asyncio.sleep(1)
        assert lists(server) == 2


@jumping_time
async def test_responses_without_comparable_versions_cause_no_list() -> None:
    async with following() as (server, informer, item):
        strange = replace(item, metadata=replace(item.metadata, resource_version="a"))
        informer.observe_current(item, strange)
        informer.observe_missing(replace(strange, metadata=replace(strange.metadata, name="new")), informer.version)
        await asyncio.sleep(1)
        assert lists(server) == 1


@jumping_time
@pytest.mark.kube("A server that was restored from a backup replaces the store, although its versions are older")
async def test_read_of_older_data_causes_a_list() -> None:
    """The server was restored while this process was suspended, so the watch ended without an error."""
    async with following() as (server, informer, item):
        newer = replace(item, metadata=replace(item.metadata, resource_version=f"{item.metadata.resource_version}0"))
        informer.observe(newer)
        assert informer.get(KEY) == newer
        await asyncio.sleep(60)
        assert informer.get(KEY) == newer
        await informer.refresh(newer)
        await asyncio.sleep(1)
        assert informer.get(KEY) == item
        assert lists(server) == 2


@jumping_time
async def test_of_large_objects_that_a_watch_adds_little_is_kept() -> None:
    async with following() as (server, informer, _item):
        for number in range(20):
            metadata = {"name": f"web-{number}", "namespace": "shop", "annotations": {"a": "x" * 1_000_000}}
            server.put(SERVICES, {"metadata": metadata})
        await asyncio.sleep(1)
        assert len(informer) == 21
        assert len(msgspec.json.encode(informer.all())) < 40_000
