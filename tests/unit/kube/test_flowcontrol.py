"""Rate limit of writes, and the Event recorder that uses it, on simulated time."""

import asyncio

import pytest

from harvester_ccm.kube.events import BURST, QUEUE_LENGTH, REFILL_SECONDS, REPEAT_SECONDS, EventRecorder
from harvester_ccm.kube.objects import ObjectMeta
from harvester_ccm.kube.write_limit import (
    MAX_OBJECTS,
    WRITE_BURST,
    WRITE_INTERVAL_SECONDS,
    WRITES_OF_A_ROUND,
    WriteRateLimiter,
)
from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.plan import REPLACEMENT_WRITES
from tests.support.background import running
from tests.support.clock import jumping_time
from tests.support.memory_server import MemoryClient, MemoryServer
from tests.support.offline import offline_client


@pytest.mark.parametrize(("sent", "writes", "delay"), [(19, 1, 0), (20, 1, 1), (19, 10, 0), (20, 10, 1)])
@jumping_time
@pytest.mark.kube("Two writers that insist on different values of a field cause one write of it per interval")
async def test_burst_is_free_and_then_one_write_per_interval(sent: int, writes: int, delay: float) -> None:
    assert WRITE_BURST == 20
    limiter = WriteRateLimiter()
    for _ in range(sent):
        limiter.record("a")
    assert limiter.delay("a", writes=writes) == delay * WRITE_INTERVAL_SECONDS
    assert limiter.delay("b") == limiter.delay("a", is_urgent=True) == 0
    await asyncio.sleep(delay * WRITE_INTERVAL_SECONDS)
    assert limiter.delay("a", writes=writes) == 0


FINALIZER, ADDRESS, STATUS = {"metadata.finalizers": "[x]"}, {"annotation a": "10.0.0.1"}, {"status.loadBalancer": "[]"}


def exhausted() -> WriteRateLimiter:
    """Return a limiter of an object with no write left, whose last one was that of the finalizer."""
    limiter = WriteRateLimiter()
    for _ in range(WRITE_BURST):
        limiter.record("a", FINALIZER)
    return limiter


@jumping_time
@pytest.mark.kube("Two writers that insist on different values of a field cause one write of it per interval")
async def test_round_is_completed_by_fields_and_values_that_it_has_not_written() -> None:
    limiter = exhausted()
    await asyncio.sleep(WRITE_INTERVAL_SECONDS)
    limiter.record("a", {"annotation a": ""})
    allowed = (ADDRESS, FINALIZER, {**ADDRESS, **STATUS})
    for fields in allowed:
        assert limiter.delay("a", fields) == 0
        limiter.record("a", fields)
    for fields in ({"annotation a": ""}, *allowed, STATUS, {}):
        assert limiter.delay("a", fields) == WRITE_INTERVAL_SECONDS
    assert limiter.delay("a", {"status.loadBalancer": "[1]"}, writes=2) == WRITE_INTERVAL_SECONDS
    await asyncio.sleep(WRITE_INTERVAL_SECONDS)
    assert limiter.delay("a", {"annotation a": ""}) == 0


@jumping_time
async def test_number_of_writes_of_a_round_is_limited() -> None:
    limiter = exhausted()
    await asyncio.sleep(WRITE_INTERVAL_SECONDS)
    for number in range(WRITES_OF_A_ROUND):
        assert limiter.delay("a", {"annotation a": str(number)}) == 0
        limiter.record("a", {"annotation a": str(number)})
    assert limiter.delay("a", STATUS) == WRITE_INTERVAL_SECONDS


@jumping_time
async def test_round_that_takes_long_does_not_delay_the_next_one() -> None:
    limiter = exhausted()
    await asyncio.sleep(WRITE_INTERVAL_SECONDS)
    limiter.record("a", ADDRESS)
    await asyncio.sleep(WRITE_INTERVAL_SECONDS - 1)
    assert limiter.delay("a", STATUS) == 0
    limiter.record("a", STATUS)
    assert limiter.delay("a", STATUS, writes=WRITES_OF_A_ROUND) == 1


@pytest.mark.parametrize("left", range(1, 4))
@jumping_time
async def test_all_writes_that_belong_together_are_allowed_once_the_first_is(left: int) -> None:
    limiter = WriteRateLimiter()
    for _ in range(WRITE_BURST - left):
        limiter.record("a", FINALIZER)
    assert limiter.delay("a", {"annotation a": "0"}, writes=WRITES_OF_A_ROUND) == 0
    for number in range(WRITES_OF_A_ROUND):
        assert limiter.delay("a", {"annotation a": str(number)}) == 0
        limiter.record("a", {"annotation a": str(number)})


def test_one_round_has_room_for_what_belongs_together() -> None:
    assert REPLACEMENT_WRITES <= WRITES_OF_A_ROUND


@jumping_time
async def test_fields_that_were_written_repeatedly_are_known_until_the_burst_is_whole_again() -> None:
    limiter = WriteRateLimiter()
    assert limiter.repeated("a") == ()
    limiter.record("a", FINALIZER)
    for _ in range(6):
        limiter.record("a", STATUS)
    for _ in range(3):
        limiter.record("a", ADDRESS)
    assert limiter.repeated("a") == ("annotation a", "status.loadBalancer")
    await asyncio.sleep(10 * WRITE_INTERVAL_SECONDS)
    limiter.record("a", FINALIZER)
    assert limiter.repeated("a") == ("metadata.finalizers",)


@jumping_time
async def test_number_of_tracked_objects_is_limited() -> None:
    limiter = WriteRateLimiter(burst=1)
    for number in range(MAX_OBJECTS + 1):
        limiter.record(f"uid-{number}")
    assert [limiter.delay(f"uid-{number}") > 0 for number in (0, 1, MAX_OBJECTS)] == [False, True, True]


def warn(recorder: EventRecorder, name: str, message: str) -> None:
    service = Service(metadata=ObjectMeta(name=name, namespace="shop", uid=name))
    recorder.emit(SERVICES, service, EventMessage("Warning", Reason.SYNC_FAILED, message), component="test")


@jumping_time
@pytest.mark.kube("An equal Event on an object is written again only after an hour in which it was not emitted")
async def test_event_is_written_again_after_an_hour_without_it() -> None:
    server = MemoryServer()
    recorder = EventRecorder(MemoryClient(server, cluster="guest"), host="node-1")
    async with running(recorder.run()):
        for _ in range(20):
            warn(recorder, "web", "no pool")
            await asyncio.sleep(REPEAT_SECONDS - 1)
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
    await asyncio.sleep(REFILL_SECONDS)
    warn(recorder, "one", "later")
    assert recorder.dropped == 1
    warn(recorder, "one", "at once")
    assert recorder.dropped == 2


@jumping_time
@pytest.mark.kube("Emitting never waits: what exceeds the queue or the limit of an object is dropped and counted")
async def test_event_is_dropped_if_the_queue_is_full() -> None:
    recorder = EventRecorder(offline_client("guest"), host="node-1")
    for number in range(QUEUE_LENGTH + 3):
        warn(recorder, f"web-{number}", "no pool")
    assert recorder.dropped == 3
