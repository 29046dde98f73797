"""The limit on writes that concern one object, on simulated time."""

from __future__ import annotations

import asyncio

import pytest

from harvester_ccm.kube.flowcontrol import WRITE_BURST, WRITE_INTERVAL_SECONDS, WriteRateLimiter
from tests.worlds.clock import jumping_time


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
