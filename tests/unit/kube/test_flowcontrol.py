"""Rate limit of writes, and the Event recorder that uses it, on simulated time."""

import asyncio

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
    service = Service(metadata=ObjectMeta(name=name, namespace="shop", uid=f"uid of {name}"))
    recorder.emit(SERVICES, service, EventMessage("Warning", Reason.SYNC_FAILED, message), component="test")


@jumping_time
@pytest.mark.kube("An equal Event on an object is written again only after an hour in which it was not emitted")
async def test_event_is_written_again_after_an_hour_without_it() -> None:
    assert RESYNC_SECONDS < REPEAT_SECONDS, "a resync emits the Events of all states again"
    server = MemoryServer()
    recorder = EventRecorder(MemoryClient(server, cluster="guest"), host="node-1")
    async with running(recorder.run()):
        for _ in range(20):
            warn(recorder, "web", "no pool")
            await asyncio.sleep(3600 - 1)
        assert len(server.calls) == 1
        await asyncio.sleep(2)
        warn(recorder, "web", "no pool")
        warn(recorder, "other", "no pool")
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
        warn(recorder, name, "no pool")
    assert [uid for uid, _, _ in recorder._last_seen] == ["uid of first", "uid of third"]
