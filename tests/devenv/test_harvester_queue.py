"""The work queue: one worker per key, no lost key, client-go's backoff and token bucket."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from devenv.background import Background
from devenv.harvester.queue import Reconcile, Retry, TokenBucket, WorkQueue, retry_seconds
from tests.support.waiting import wait_for


@asynccontextmanager
async def queue_of(reconcile: Reconcile, *, workers: int = 2) -> AsyncIterator[WorkQueue]:
    queue = WorkQueue("test", reconcile, workers=workers)
    background = Background("queue", [queue.run])
    await background.start([], within=1)
    try:
        yield queue
    finally:
        await background.stop()


async def test_key_has_one_worker_and_is_reconciled_again() -> None:
    running: Counter[str] = Counter()
    done: Counter[str] = Counter()
    gate = asyncio.Event()

    async def reconcile(key: str) -> None:
        running[key] += 1
        assert running[key] == 1
        await gate.wait()
        running[key] -= 1
        done[key] += 1

    async with queue_of(reconcile) as queue:
        for key in ("a", "b", "a"):
            queue.add(key)
        await wait_for(lambda: running["a"] and running["b"])
        queue.add("a")
        queue.add("a")
        gate.set()
        await wait_for(lambda: done["a"] == 2 and queue.idle)
    assert done == {"a": 2, "b": 1}


async def test_backoff_grows_and_a_change_retries_immediately() -> None:
    times: list[float] = []
    loop = asyncio.get_running_loop()

    async def reconcile(_key: str) -> None:
        times.append(loop.time())
        raise Retry("no")

    async with queue_of(reconcile) as queue:
        queue.add("a")
        await wait_for(lambda: len(times) == 6)
        gaps = [after - before for before, after in itertools.pairwise(times)]
        for number, gap in enumerate(gaps, start=1):
            assert gap >= retry_seconds(number) * 0.9
        queue.add("a")
        await wait_for(lambda: len(times) == 7)
        assert times[-1] - times[-2] < retry_seconds(6)


async def test_handler_wakes_with_a_backoff_that_a_success_ends() -> None:
    times: list[float] = []
    loop = asyncio.get_running_loop()

    async def reconcile(_key: str) -> None:
        times.append(loop.time())

    async with queue_of(reconcile) as queue:
        for _ in range(2):
            began = loop.time()
            times.clear()
            queue.add_limited("a")
            queue.add_limited("a")
            assert queue.failures("a") == 2
            await wait_for(lambda: times and queue.idle)
            assert times[0] - began >= retry_seconds(1) * 0.9
            assert queue.failures("a") == 0


async def test_token_bucket() -> None:
    bucket = TokenBucket(qps=50, burst=3)
    loop = asyncio.get_running_loop()
    started = loop.time()
    for _ in range(3):
        await bucket.take()
    assert loop.time() - started < 0.02
    for _ in range(5):
        await bucket.take()
    assert loop.time() - started >= 5 / 50 * 0.95
