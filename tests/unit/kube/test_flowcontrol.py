"""Rate limit of writes, and the Event recorder that uses it, on simulated time."""

import asyncio
from itertools import pairwise

import pytest

from harvester_ccm.kube import events
from harvester_ccm.kube.events import BURST, REPEAT_SECONDS, EventRecorder
from harvester_ccm.kube.objects import ObjectMeta
from harvester_ccm.kube.workqueue import RESYNC_SECONDS
from harvester_ccm.kube.write_limit import (
    MAX_OBJECTS,
    WRITE_BURST,
    WRITE_INTERVAL_SECONDS,
    WriteRateLimiter,
)
from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import Reason
from tests.support.background import running
from tests.support.clock import jumping_time
from tests.support.memory_server import MemoryClient, MemoryServer
from tests.support.offline import offline_client


@jumping_time
@pytest.mark.kube("Two writers that insist on different values of a field cause one write of it per interval")
async def test_burst_is_free_and_then_one_write_per_interval() -> None:
    limiter = WriteRateLimiter()
    for _ in range(WRITE_BURST):
        assert limiter.delay("a") == 0
        limiter.record("a")
    assert limiter.delay("a") == WRITE_INTERVAL_SECONDS
    assert limiter.delay("b") == limiter.delay("a", is_urgent=True) == 0
    for _ in range(3):
        await asyncio.sleep(WRITE_INTERVAL_SECONDS)
        assert limiter.delay("a") == 0
        limiter.record("a")
        assert limiter.delay("a") == WRITE_INTERVAL_SECONDS
    await asyncio.sleep(WRITE_BURST * WRITE_INTERVAL_SECONDS)
    for _ in range(WRITE_BURST - 1):
        limiter.record("a")
    assert limiter.delay("a") == 0


@jumping_time
async def test_fields_are_those_that_were_written_since_the_bucket_was_full() -> None:
    limiter = WriteRateLimiter()
    limiter.record("a", ["of long ago"])
    await asyncio.sleep(WRITE_INTERVAL_SECONDS)
    limiter.record("a", ["annotation x"])
    limiter.record("a", ["condition", "annotation x"])
    limiter.record("b", ["other"])
    assert limiter.fields("a") == ["annotation x", "condition"]
    assert limiter.fields("c") == []


@jumping_time
async def test_number_of_tracked_objects_is_limited() -> None:
    limiter = WriteRateLimiter(burst=1)
    for number in range(MAX_OBJECTS + 1):
        limiter.record(f"uid-{number}")
    assert [limiter.delay(f"uid-{number}") > 0 for number in (0, 1, MAX_OBJECTS)] == [False, True, True]


def warn(recorder: EventRecorder, name: str, message: str) -> None:
    emit(recorder, name, EventMessage("Warning", Reason.SYNC_FAILED, message))


def emit(recorder: EventRecorder, name: str, event: EventMessage) -> None:
    service = Service(metadata=ObjectMeta(name=name, namespace="shop", uid=f"uid of {name}"))
    recorder.emit(SERVICES, service, event, component="test")


@jumping_time
@pytest.mark.kube("A Warning that holds is written again before the API server deletes it")
async def test_warning_that_holds_is_in_the_cluster_at_any_time() -> None:
    server = MemoryServer()
    recorder = EventRecorder(MemoryClient(server, cluster="guest"), host="node-1")
    async with running(recorder.run()):
        for _ in range(8 * 3600 // int(RESYNC_SECONDS)):
            warn(recorder, "web", "no pool")
            await asyncio.sleep(RESYNC_SECONDS)
    times = [call.at for call in server.calls]
    gaps = [after - before for before, after in pairwise(times)]
    assert 8 <= len(times) <= 11, "and no more often than that needs"
    assert max(gaps) < 3600, "the default TTL of Events"


@jumping_time
@pytest.mark.kube("Another equal Event on an object is written again only after 45 minutes in which it was not emitted")
async def test_normal_event_is_written_again_after_a_time_without_it() -> None:
    assert RESYNC_SECONDS < REPEAT_SECONDS, "a resync emits the Events of all states again"
    server = MemoryServer()
    recorder = EventRecorder(MemoryClient(server, cluster="guest"), host="node-1")
    event = EventMessage("Normal", Reason.ENSURED, "has an address")
    async with running(recorder.run()):
        for _ in range(20):
            emit(recorder, "web", event)
            await asyncio.sleep(REPEAT_SECONDS - 1)
        assert len(server.calls) == 1
        await asyncio.sleep(2)
        emit(recorder, "web", event)
        emit(recorder, "other", event)
        await asyncio.sleep(1)
    assert len(server.calls) == 3
    assert recorder.dropped == 0


@jumping_time
@pytest.mark.kube("Emitting never waits: what exceeds the queue or the limit of an object is dropped and counted")
async def test_events_of_one_object_are_limited() -> None:
    recorder = EventRecorder(offline_client("guest"), host="node-1")
    for number in range(BURST + 1):
        warn(recorder, "one", str(number))
    warn(recorder, "other", "first")
    assert recorder.dropped == 1
    await asyncio.sleep(300)
    warn(recorder, "one", "later")
    assert recorder.dropped == 1
    warn(recorder, "one", "at once")
    assert recorder.dropped == 2


@jumping_time
async def test_event_that_was_repeated_least_recently_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_TRACKED", 2)
    recorder = EventRecorder(offline_client("guest"), host="node-1")
    for name in ("first", "second", "first", "third"):
        emit(recorder, name, EventMessage("Normal", Reason.ENSURED, "has an address"))
    assert [uid for uid, _, _ in recorder._last_seen] == ["uid of first", "uid of third"]
