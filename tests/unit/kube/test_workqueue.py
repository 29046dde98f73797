"""The work queue of a controller, on simulated time."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from harvester_ccm.kube.backoff import CONFLICT_SECONDS, MAX_BACKOFF_SECONDS
from harvester_ccm.kube.errors import Answer, ClusterReplaced, Conflict, Throttled, Unreachable
from harvester_ccm.kube.fence import NotLeading
from harvester_ccm.kube.outcome import Outcome
from harvester_ccm.kube.workqueue import RESYNC_SECONDS, WorkQueue
from tests.support.background import running
from tests.support.clock import jumping_time

CONFLICT = Conflict(Answer(409, "Conflict", "changed"))


class Reconciler:
    """Returns or raises the scripted results in order, then Done, and records each call."""

    def __init__(self, *results: Outcome | Exception, workers: int = 2, resync: Iterable[str] = ()) -> None:
        self.results = list(results)
        self.calls: list[tuple[str, float]] = []
        self.blocked: dict[str, asyncio.Event] = {}
        self.running: list[str] = []
        self.overlaps: set[str] = set()
        self.queue = WorkQueue("test", self.reconcile, workers=workers, resync=lambda: resync)

    async def reconcile(self, key: str) -> Outcome:
        self.calls.append((key, asyncio.get_running_loop().time()))
        self.overlaps |= {key} & set(self.running)
        self.running.append(key)
        try:
            if key in self.blocked:
                await self.blocked[key].wait()
        finally:
            self.running.remove(key)
        result = self.results.pop(0) if self.results else Outcome()
        if isinstance(result, Exception):
            raise result
        return result

    @property
    def keys(self) -> list[str]:
        return [key for key, _ in self.calls]

    @property
    def delays(self) -> list[float]:
        """Seconds between two calls."""
        return [after - before for (_, before), (_, after) in pairwise(self.calls)]

    @asynccontextmanager
    async def started(self) -> AsyncIterator[WorkQueue]:
        async with running(self.queue.run()):
            yield self.queue


@jumping_time
async def test_key_is_reconciled_once_when_it_is_enqueued_several_times() -> None:
    reconciler = Reconciler()
    for _ in range(3):
        reconciler.queue.enqueue("a")
    assert reconciler.queue.depth == 1
    async with reconciler.started():
        await asyncio.sleep(1)
    assert reconciler.keys == ["a"]


@jumping_time
@pytest.mark.kube("A key is reconciled by one worker at a time, and again if it was enqueued meanwhile")
async def test_key_is_reconciled_again_when_it_is_enqueued_during_its_reconcile() -> None:
    reconciler = Reconciler(workers=4)
    reconciler.blocked["a"] = asyncio.Event()
    async with reconciler.started() as queue:
        queue.enqueue("a")
        await asyncio.sleep(1)
        queue.enqueue("a")
        await asyncio.sleep(1)
        assert reconciler.keys == ["a"]
        reconciler.blocked["a"].set()
        await asyncio.sleep(1)
    assert reconciler.keys == ["a", "a"]
    assert not reconciler.overlaps


@jumping_time
@pytest.mark.kube("Keys of objects that changed come before the keys of a resync")
async def test_background_keys_wait_for_urgent_keys_and_can_become_urgent() -> None:
    reconciler = Reconciler(workers=1)
    queue = reconciler.queue
    queue.enqueue_background(["b1", "b2", "b3"])
    queue.enqueue("u1")
    queue.enqueue("b3")
    async with reconciler.started():
        await asyncio.sleep(1)
    assert reconciler.keys == ["u1", "b3", "b1", "b2"]


@jumping_time
async def test_resync_reconciles_every_key_once_per_interval() -> None:
    reconciler = Reconciler(resync=["a", "b"])
    async with reconciler.started():
        await asyncio.sleep(3 * RESYNC_SECONDS)
    assert 3 <= reconciler.keys.count("a") == reconciler.keys.count("b") <= 4


@jumping_time
@pytest.mark.kube("Keys of objects that changed come before the keys of a resync")
async def test_changed_key_comes_before_those_of_a_resync() -> None:
    reconciler = Reconciler(workers=1, resync=["a", "b"])
    reconciler.blocked["a"] = asyncio.Event()
    async with reconciler.started() as queue:
        await asyncio.sleep(RESYNC_SECONDS + 1)
        queue.enqueue("changed")
        reconciler.blocked["a"].set()
        await asyncio.sleep(1)
    assert reconciler.keys == ["a", "changed", "b"]


@jumping_time
async def test_key_whose_write_was_not_sent_without_the_lease_is_reconciled_again() -> None:
    reconciler = Reconciler(NotLeading("not sent"))
    reconciler.queue.enqueue("a")
    async with reconciler.started() as queue:
        await asyncio.sleep(10)
    assert (reconciler.keys, queue.retries) == (["a", "a"], 0)


@pytest.mark.parametrize(
    ("outcome", "calls"),
    [(Outcome(), 1), (Outcome("event"), 1), (Outcome("address", 5), 2)],
    ids=["done", "waits for an event", "waits at most 5 s"],
)
@jumping_time
async def test_outcome_determines_the_next_reconcile(outcome: Outcome, calls: int) -> None:
    reconciler = Reconciler(outcome)
    reconciler.queue.enqueue("a")
    async with reconciler.started():
        await asyncio.sleep(10)
    assert len(reconciler.calls) == calls
    assert reconciler.delays == [5] * (calls - 1)


@jumping_time
async def test_earliest_of_several_timers_is_used_and_an_event_replaces_it() -> None:
    reconciler = Reconciler()
    async with reconciler.started() as queue:
        queue.enqueue_after("a", 9)
        queue.enqueue_after("a", 3)
        queue.enqueue_after("a", 6)
        queue.enqueue_after("b", 5)
        queue.enqueue("b")
        await asyncio.sleep(20)
    assert [(key, round(at)) for key, at in reconciler.calls] == [("b", 0), ("a", 3)]


@jumping_time
@pytest.mark.kube("A failed key is retried with backoff, or when the server asks for it")
async def test_failures_back_off_up_to_the_maximum_and_are_logged_once() -> None:
    reconciler = Reconciler(*[Unreachable("no route")] * 12)
    reconciler.queue.enqueue("a")
    with capture_logs() as logs:
        async with reconciler.started():
            await asyncio.sleep(1000)
    assert len(reconciler.calls) == 13
    assert all(before <= after for before, after in pairwise(reconciler.delays[:5]))
    assert max(reconciler.delays) == pytest.approx(MAX_BACKOFF_SECONDS)
    assert [entry["event"] for entry in logs] == ["reconcile failed", "reconcile recovered"]
    assert reconciler.queue.failures("a") == 0


@jumping_time
@pytest.mark.kube("A failed key is retried with backoff, or when the server asks for it")
async def test_retry_after_of_the_server_is_the_delay() -> None:
    error = Throttled(Answer(429, "TooManyRequests", "busy"))
    error.retry_after = 7.0
    reconciler = Reconciler(error)
    reconciler.queue.enqueue("a")
    async with reconciler.started():
        await asyncio.sleep(20)
    assert reconciler.delays == [7]


@jumping_time
async def test_conflicts_are_retried_quickly_and_logged_when_they_last() -> None:
    reconciler = Reconciler(*[CONFLICT] * 8)
    reconciler.queue.enqueue("a")
    with capture_logs() as logs:
        async with reconciler.started() as queue:
            await asyncio.sleep(0.5)
            assert (queue.failures("a"), logs) == (5, [])
            await asyncio.sleep(60)
    assert reconciler.delays[0] <= 2 * CONFLICT_SECONDS
    assert reconciler.delays[-1] >= 2
    assert [entry["event"] for entry in logs] == ["reconcile failed", "reconcile recovered"]


@jumping_time
@pytest.mark.kube("A reconcile that fails, even by a bug, does not stop the reconciles of other keys")
async def test_reconcile_with_a_bug_is_repeated_and_does_not_stop_the_others() -> None:
    reconciler = Reconciler(KeyError("spec"), workers=1)
    reconciler.queue.enqueue("broken")
    reconciler.queue.enqueue("fine")
    async with reconciler.started():
        await asyncio.sleep(0.1)
        assert reconciler.keys == ["broken", "fine"]
        await asyncio.sleep(2)
    assert reconciler.keys == ["broken", "fine", "broken"]


@jumping_time
async def test_replaced_cluster_ends_the_queue() -> None:
    reconciler = Reconciler(ClusterReplaced("another cluster"))
    reconciler.queue.enqueue("a")
    with pytest.raises(ExceptionGroup) as raised:
        await reconciler.queue.run()
    assert raised.group_contains(ClusterReplaced)


@jumping_time
@pytest.mark.kube("Namespaces take turns: many keys of one namespace do not delay the keys of another")
async def test_namespaces_take_turns() -> None:
    reconciler = Reconciler(workers=1)
    for number in range(4):
        reconciler.queue.enqueue(f"a/{number}")
    reconciler.queue.enqueue("b/0")
    reconciler.queue.enqueue("b/1")
    reconciler.queue.enqueue("node-0")
    async with reconciler.started():
        await asyncio.sleep(1)
    assert reconciler.keys == ["a/0", "b/0", "node-0", "a/1", "b/1", "a/2", "a/3"]


@jumping_time
async def test_namespace_whose_key_is_being_reconciled_does_not_delay_the_next_one() -> None:
    reconciler = Reconciler(workers=2)
    reconciler.blocked["a/0"] = asyncio.Event()
    async with reconciler.started() as queue:
        queue.enqueue("a/0")
        await asyncio.sleep(1)
        for key in ("a/0", "a/1", "b/0"):
            queue.enqueue(key)
        await asyncio.sleep(1)
        assert reconciler.keys == ["a/0", "a/1", "b/0"]
        reconciler.blocked["a/0"].set()
        await asyncio.sleep(1)
    assert reconciler.keys == ["a/0", "a/1", "b/0", "a/0"]
