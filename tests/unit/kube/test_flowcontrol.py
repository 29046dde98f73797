"""Delays between attempts, and the limit on writes for one object."""

from __future__ import annotations

import asyncio

import pytest

from harvester_ccm.errors import UnexpectedAnswer
from harvester_ccm.kube.flowcontrol import WRITE_BURST, WRITE_INTERVAL_SECONDS, WriteRateLimiter, pause_after
from tests.worlds.clock import jumping_time


@pytest.mark.parametrize(
    ("failures", "shortest", "longest"), [(1, 0.5, 1), (2, 1, 1.5), (5, 8, 8.5), (9, 30, 30), (5000, 30, 30)]
)
def test_delay_doubles_with_jitter_up_to_the_maximum(failures: int, shortest: float, longest: float) -> None:
    assert all(shortest <= pause_after(None, failures) <= longest for _ in range(50))


def test_retry_after_of_the_server_is_the_delay() -> None:
    error = UnexpectedAnswer("a page")
    error.retry_after = 45.0
    assert pause_after(error, failures=5) == 45.0


@jumping_time
async def test_burst_is_free_and_then_one_write_per_interval() -> None:
    limiter = WriteRateLimiter()
    for _ in range(WRITE_BURST):
        assert limiter.delay("a") == 0
        limiter.record("a")
    assert limiter.delay("a") == WRITE_INTERVAL_SECONDS
    await asyncio.sleep(WRITE_INTERVAL_SECONDS)
    assert limiter.delay("a") == 0
    limiter.record("a")
    assert limiter.delay("a") == WRITE_INTERVAL_SECONDS
    assert limiter.delay("b") == 0


@jumping_time
async def test_terminating_object_never_waits() -> None:
    limiter = WriteRateLimiter()
    for _ in range(3 * WRITE_BURST):
        limiter.record("a")
    assert limiter.delay("a", terminating=True) == 0


@pytest.mark.parametrize(
    ("sent", "seconds"), [(10, 0), (11, WRITE_INTERVAL_SECONDS), (20, 10 * WRITE_INTERVAL_SECONDS)]
)
@jumping_time
async def test_several_writes_wait_until_all_of_them_are_allowed(sent: int, seconds: float) -> None:
    limiter = WriteRateLimiter()
    for _ in range(sent):
        limiter.record("a")
    assert limiter.delay("a", writes=10) == seconds


@jumping_time
async def test_objects_with_a_full_bucket_are_not_tracked() -> None:
    limiter = WriteRateLimiter()
    for number in range(3000):
        limiter.record(f"uid-{number}")
        await asyncio.sleep(1)
    assert len(limiter._buckets) <= 1025
