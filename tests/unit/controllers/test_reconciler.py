"""The shape of all controllers: observe, plan, send, within the rate limit."""

import asyncio
import math
from collections.abc import Iterable

import pytest
from msgspec import Struct

from harvester_ccm.controllers.caches import Caches
from harvester_ccm.controllers.reconciler import LimitedWrite, QueueName, Reconciler, Shared
from harvester_ccm.kube.errors import Answer, Conflict
from harvester_ccm.kube.events import EventRecorder
from harvester_ccm.kube.fence import NotLeading, WriteFence
from harvester_ccm.kube.outcome import Outcome
from harvester_ccm.kube.write_limit import WRITE_BURST, WRITE_INTERVAL_SECONDS
from harvester_ccm.model.core import NODES
from harvester_ccm.names import Reason
from tests.support.builders import CLUSTER
from tests.support.clock import jumping_time
from tests.support.offline import offline_client


class CountPlan(Struct, frozen=True):
    write: int | None


class Counter(Reconciler[int, CountPlan]):
    """Writes the next number until it has reached a target."""

    def __init__(self, target: int, outcome: Outcome | None = None) -> None:
        caches = Caches(offline_client(), offline_client("harvester"), CLUSTER)
        self.fence = WriteFence()
        shared = Shared(caches, EventRecorder(offline_client(), host="test"), fence=self.fence)
        super().__init__(QueueName.NODE, shared, resource=NODES, component="test", workers=1)
        self.number = 0
        self.target = target
        self.settled: Outcome = Outcome() if outcome is None else outcome
        self.fails = False
        self.conflicts: list[list[str]] = []
        self.emitted: list[bool] = []

    async def wait_synced(self) -> None:
        """Nothing is awaited."""

    def keys(self) -> Iterable[str]:
        return ["a"]

    async def observe(self, key: str) -> int | None:
        return self.number if key == "a" else None

    def plan(self, snapshot: int) -> CountPlan:
        return CountPlan(snapshot + 1 if snapshot < self.target else None)

    async def send(self, write: int, _plan: CountPlan, _snapshot: int) -> Outcome | None:
        if self.fails:
            raise Conflict(Answer(409, "Conflict", "changed"))
        self.number = write
        return None

    async def settle(self, _plan: CountPlan, _snapshot: int) -> Outcome:
        return self.settled

    def limited(self, _write: int, _snapshot: int) -> LimitedWrite:
        return LimitedWrite("uid", {"number": "same"})

    def report_conflict(self, fields: list[str], _snapshot: int) -> None:
        self.conflicts.append(fields)

    def emit_planned(self, _plan: CountPlan, _snapshot: int, *, is_sent_now: bool) -> None:
        self.emitted.append(is_sent_now)


@jumping_time
async def test_writes_are_sent_until_a_plan_has_none() -> None:
    counter = Counter(3)
    assert await counter.reconcile("a") == Outcome()
    assert counter.number == 3
    assert counter.emitted == [True, True, True, True]


@jumping_time
async def test_object_without_a_snapshot_is_done() -> None:
    counter = Counter(3)
    assert await counter.reconcile("other") == Outcome()
    assert counter.emitted == []


@jumping_time
async def test_process_that_does_not_lead_plans_and_emits_nothing() -> None:
    counter = Counter(3)
    counter.fence.deadline = -math.inf
    with pytest.raises(NotLeading):
        await counter.reconcile("a")
    assert counter.number == 0
    assert counter.emitted == []


@jumping_time
async def test_write_beyond_the_limit_is_reported_and_repeated() -> None:
    counter = Counter(WRITE_BURST + 5, Outcome())
    outcome = await counter.reconcile("a")
    assert outcome.reason == Reason.FIELD_CONFLICT
    assert outcome.at_most == pytest.approx(WRITE_INTERVAL_SECONDS)
    assert counter.number == WRITE_BURST
    assert counter.conflicts == [["number"]]
    assert counter.emitted[-1] is False
    await asyncio.sleep(WRITE_INTERVAL_SECONDS)
    await counter.reconcile("a")
    assert counter.number == WRITE_BURST + 1


@jumping_time
async def test_failed_write_is_raised_and_does_not_count() -> None:
    counter = Counter(1)
    counter.fails = True
    for _ in range(2 * WRITE_BURST):
        with pytest.raises(Conflict):
            await counter.reconcile("a")
    counter.fails = False
    assert await counter.reconcile("a") == Outcome()


@jumping_time
async def test_controllers_of_one_process_share_the_limit_of_an_object() -> None:
    first = Counter(WRITE_BURST)
    second = Counter(1)
    second.limiter = first.limiter
    await first.reconcile("a")
    await second.reconcile("a")
    assert (first.number, second.number) == (WRITE_BURST, 0)
