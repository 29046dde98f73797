"""The queue behind every reconciler, on a clock that jumps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from harvester_ccm.controllers.runner import CONFLICT_RETRY, QUICK_CONFLICTS, SWEEP_SHARE, Runner
from harvester_ccm.errors import Answer, Conflict, ServerError, Throttled, Unreachable
from harvester_ccm.kube.backoff import LONGEST_PAUSE
from harvester_ccm.model.outcome import Done, Outcome, Refused, Retry, Wait
from tests.worlds.background import running
from tests.worlds.clock import jumping_time

CONFLICT = Conflict(Answer(409, "Conflict", "changed", "PUT /a"))
DONE = Done()


class Work:
    """A reconciler that does what the test says and notes when it was called."""

    def __init__(
        self,
        *script: Outcome | Exception,
        workers: int = 2,
        serial: Callable[[str], str | None] | None = None,
        is_worth_a_look: Callable[[str], bool] = lambda _key: True,
    ) -> None:
        self.script = list(script)
        self.calls: list[tuple[str, float]] = []
        self.busy = 0
        self.busiest = 0
        self.gates: dict[str, asyncio.Event] = {}
        self.runner = Runner("test", self.reconcile, workers=workers, serial=serial, is_worth_a_look=is_worth_a_look)

    async def reconcile(self, key: str) -> Outcome:
        """Return or raise the next entry of the script; Done when it is used up."""
        self.calls.append((key, asyncio.get_running_loop().time()))
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        try:
            if key in self.gates:
                await self.gates[key].wait()
        finally:
            self.busy -= 1
        outcome = self.script.pop(0) if self.script else DONE
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @property
    def times(self) -> list[float]:
        """When it was called, in seconds since the start."""
        return [at for _, at in self.calls]

    @property
    def keys(self) -> list[str]:
        """For which keys it was called, in order."""
        return [key for key, _ in self.calls]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Runner]:
        """Run the runner for the time of the block."""
        async with running(self.runner.run()):
            yield self.runner


@jumping_time
async def test_key_that_is_enqueued_often_is_worked_on_once() -> None:
    work = Work()
    for _ in range(3):
        work.runner.enqueue("a")
    assert work.runner.depth == 1

    async with work.running():
        await asyncio.sleep(1)

    assert work.keys == ["a"]


@jumping_time
async def test_key_that_is_enqueued_while_active_runs_again_and_never_twice_at_once() -> None:
    work = Work(workers=4)
    work.gates["a"] = asyncio.Event()
    async with work.running() as runner:
        runner.enqueue("a")
        await asyncio.sleep(1)
        runner.enqueue("a")
        runner.enqueue("a")
        await asyncio.sleep(1)
        assert (work.keys, runner.busy) == (["a"], 1)

        work.gates["a"].set()
        await asyncio.sleep(1)

    assert work.keys == ["a", "a"]
    assert work.busiest == 1


@jumping_time
async def test_slow_key_does_not_hold_up_others() -> None:
    work = Work(workers=2)
    work.gates["slow"] = asyncio.Event()
    async with work.running() as runner:
        for key in ("slow", *(f"key-{n}" for n in range(50))):
            runner.enqueue(key)
        await asyncio.sleep(0.001)

        assert len(work.calls) == 51
        assert runner.busy == 1


@jumping_time
async def test_as_many_keys_run_at_once_as_there_are_workers() -> None:
    work = Work(workers=3)
    gate = asyncio.Event()
    work.gates = dict.fromkeys("abcde", gate)
    async with work.running() as runner:
        for key in work.gates:
            runner.enqueue(key)
        await asyncio.sleep(1)
        assert (runner.busy, runner.depth) == (3, 2)

        gate.set()
        await asyncio.sleep(1)
        assert (runner.busy, runner.depth) == (0, 0)

    assert sorted(work.keys) == list("abcde")


@pytest.mark.parametrize(
    ("outcome", "times"),
    [
        (Done(), [0]),
        (Refused("bad value"), [0]),
        (Wait("an event"), [0]),
        (Wait("an event", at_most=30), [0, 30]),
        (Retry(after=7), [0, 7]),
    ],
)
def test_answer_decides_when_the_key_runs_again(outcome: Outcome, times: list[float]) -> None:
    @jumping_time
    async def scenario() -> None:
        work = Work(outcome)
        async with work.running() as runner:
            runner.enqueue("a")
            await asyncio.sleep(1000)
        assert work.times == times

    scenario()


@jumping_time
async def test_event_wakes_a_waiting_key_and_takes_its_timer_away() -> None:
    work = Work(Wait("an event", at_most=30))
    async with work.running() as runner:
        runner.enqueue("a")
        await asyncio.sleep(10)
        runner.enqueue("a")
        await asyncio.sleep(1000)

    assert work.times == [0, 10]


@jumping_time
async def test_earlier_of_two_delays_counts() -> None:
    work = Work()
    async with work.running() as runner:
        runner.enqueue_after("a", 20)
        runner.enqueue_after("a", 5)
        runner.enqueue_after("a", 50)
        await asyncio.sleep(1000)

    assert work.times == [5]


@jumping_time
async def test_failing_key_is_tried_with_growing_pauses_up_to_a_limit() -> None:
    work = Work(*(Unreachable("down") for _ in range(12)))
    async with work.running() as runner:
        runner.enqueue("a")
        await asyncio.sleep(20)
        assert runner.failures("a") == len(work.calls)
        await asyncio.sleep(1000)
        assert runner.failures("a") == 0

    pauses = [later - earlier for earlier, later in zip(work.times, work.times[1:], strict=False)]
    for number, pause in enumerate(pauses):
        shortest = 0.5 * 2**number
        assert min(shortest, LONGEST_PAUSE) - 0.001 <= pause <= min(shortest + 0.5, LONGEST_PAUSE) + 0.001
    assert len(pauses) == 12


@jumping_time
async def test_failure_is_logged_once_until_its_text_changes() -> None:
    work = Work(*(Unreachable(text) for text in ("down", "down", "down", "refused")))
    with capture_logs() as logs:
        async with work.running() as runner:
            runner.enqueue("a")
            await asyncio.sleep(100)

    assert [(entry["event"], entry.get("error")) for entry in logs] == [
        ("reconcile failed", "down"),
        ("reconcile failed", "refused"),
        ("reconcile works again", None),
    ]


@jumping_time
async def test_conflict_is_tried_again_quickly_and_is_no_failure() -> None:
    work = Work(CONFLICT)
    with capture_logs() as logs:
        async with work.running() as runner:
            runner.enqueue("a")
            await asyncio.sleep(100)

    assert work.times == pytest.approx([0, CONFLICT_RETRY])
    assert logs == []


@jumping_time
async def test_conflict_that_stays_becomes_a_failure() -> None:
    work = Work(*[CONFLICT] * 100)
    async with work.running() as runner:
        runner.enqueue("a")
        await asyncio.sleep(60)
        assert runner.failures("a") > 0

    assert QUICK_CONFLICTS < len(work.calls) < 2 * QUICK_CONFLICTS + 5


@jumping_time
async def test_server_that_names_a_time_is_asked_then() -> None:
    work = Work(Throttled(Answer(429, "TooManyRequests", "busy", "PUT /a", retry_after=17)))
    async with work.running() as runner:
        runner.enqueue("a")
        await asyncio.sleep(100)

    assert work.times == [0, 17]


@jumping_time
async def test_fault_of_ours_on_one_key_does_not_stop_others() -> None:
    work = Work(KeyError("spec"), workers=1)
    with capture_logs() as logs:
        async with work.running() as runner:
            runner.enqueue("bad")
            runner.enqueue("good")
            await asyncio.sleep(10)

    assert work.keys == ["bad", "good", "bad"]
    assert logs[0]["event"] == "reconcile broke"
    assert (logs[0]["key"], logs[0]["exc_info"]) == ("bad", True)


@jumping_time
async def test_retry_keeps_the_count_of_failures_and_done_clears_it() -> None:
    work = Work(ServerError(Answer(500, "", "oops", "PUT /a")), Retry(after=1), Done())
    async with work.running() as runner:
        runner.enqueue("a")
        await asyncio.sleep(1.5)
        assert runner.failures("a") == 1
        await asyncio.sleep(10)
        assert runner.failures("a") == 0


@jumping_time
async def test_drain_lets_active_keys_finish_and_takes_no_more() -> None:
    work = Work()
    work.gates["a"] = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with work.running() as runner:
        runner.enqueue("a")
        runner.enqueue_after("later", 5)
        await asyncio.sleep(1)
        runner.enqueue("a")
        loop.call_later(2, work.gates["a"].set)

        await runner.drain(10)

        assert loop.time() == 3
        runner.enqueue("b")
        await asyncio.sleep(100)
    assert work.keys == ["a"]


@jumping_time
async def test_drain_ends_at_its_time_limit() -> None:
    work = Work(workers=1)
    work.gates["a"] = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with work.running() as runner:
        runner.enqueue("a")
        runner.enqueue("b")
        await asyncio.sleep(1)

        await runner.drain(10)

        assert (loop.time(), runner.busy) == (11, 1)
    assert work.keys == ["a"]


def letter(key: str) -> str | None:
    """Return the group of ``a-1``; a key without a hyphen has none."""
    return key.partition("-")[0] if "-" in key else None


class SlowWork(Work):
    """Every key takes a second, and which were worked on at once is on record."""

    def __init__(self, *script: Outcome | Exception, workers: int = 16, serial: Callable[[str], str | None] = letter):
        super().__init__(*script, workers=workers, serial=serial)
        self.active: set[str] = set()
        self.together: set[frozenset[str]] = set()

    async def reconcile(self, key: str) -> Outcome:
        """Work on the key for a second."""
        self.active.add(key)
        self.together.add(frozenset(self.active))
        try:
            await asyncio.sleep(1)
            return await super().reconcile(key)
        finally:
            self.active.discard(key)


@jumping_time
async def test_keys_of_a_group_are_worked_on_one_at_a_time_and_in_order() -> None:
    work = SlowWork()
    keys = [f"a-{number}" for number in range(40)]
    async with work.running() as runner:
        for key in keys:
            runner.enqueue(key)
        await asyncio.sleep(0.5)
        assert (runner.busy, runner.depth) == (1, 39)
        await asyncio.sleep(60)
        assert (runner.busy, runner.depth) == (0, 0)

    assert work.calls == [(key, number + 1) for number, key in enumerate(keys)]


async def test_others_have_their_turn_between_keys_that_wait_for_nothing() -> None:
    work = Work(workers=2)
    for number in range(100):
        work.runner.enqueue(f"key-{number}")
    done: list[int] = [0]
    async with work.running():
        while done[-1] < 100:
            await asyncio.sleep(0)
            done.append(len(work.calls))
    assert max(after - before for before, after in pairwise(done)) <= 2, "one key of each worker"


@jumping_time
async def test_keys_that_wait_for_their_turn_hold_no_worker() -> None:
    work = SlowWork(workers=2)
    async with work.running() as runner:
        for number in range(40):
            runner.enqueue(f"a-{number}")
        await asyncio.sleep(0.5)
        for key in ("single", "b-0", "c-0"):
            runner.enqueue(key)
        await asyncio.sleep(100)

    # The second worker was free at once for the first of them, and the groups take turns with everybody else.
    assert [key for key in work.keys[:6] if not key.startswith("a-")] == ["single", "b-0", "c-0"]
    assert [key for key in work.keys if key.startswith("a-")] == [f"a-{number}" for number in range(40)]


@jumping_time
async def test_groups_as_many_as_workers_do_not_keep_the_others_out() -> None:
    work = SlowWork(workers=2)
    async with work.running() as runner:
        for group in "ab":
            for number in range(10):
                runner.enqueue(f"{group}-{number}")
        await asyncio.sleep(5.5)
        runner.enqueue("single")
        await asyncio.sleep(100)

    assert dict(work.calls)["single"] == 7, "it waits for one round, not for the end of the groups"
    for group in "ab":
        assert [key for key in work.keys if key[0] == group] == [f"{group}-{number}" for number in range(10)]
    assert all(len({key[0] for key in active}) == len(active) for active in work.together)


@jumping_time
async def test_key_of_a_group_that_is_enqueued_while_active_waits_behind_the_others() -> None:
    work = SlowWork()
    async with work.running() as runner:
        runner.enqueue("a-1")
        runner.enqueue("a-2")
        await asyncio.sleep(0.5)
        for key in ("a-1", "a-2", "a-3", "a-1"):
            runner.enqueue(key)
        await asyncio.sleep(100)

    assert work.keys == ["a-1", "a-2", "a-3", "a-1"]


@jumping_time
async def test_failure_gives_the_turn_to_the_next_key() -> None:
    work = SlowWork(Unreachable("down"), KeyError("spec"), CONFLICT)
    async with work.running() as runner:
        for number in range(4):
            runner.enqueue(f"a-{number}")
        await asyncio.sleep(100)

    assert work.keys[:4] == [f"a-{number}" for number in range(4)]
    assert sorted(work.keys[4:]) == ["a-0", "a-1", "a-2"]
    assert all(len(active) == 1 for active in work.together)


@pytest.mark.parametrize("wave", [1, 2, 3, 7])
def test_group_is_asked_for_when_the_key_is_taken(wave: int) -> None:
    @jumping_time
    async def scenario() -> None:
        """The groups of keys change while they wait; none is lost, and none runs beside one of its group."""
        groups = {f"key-{number}": "left" for number in range(12)}
        broken: list[frozenset[str]] = []

        class Watched(SlowWork):
            async def reconcile(self, key: str) -> Outcome:
                started_in[key] = groups[key]
                together = [started_in[one] for one in (*self.active, key)]
                if len(set(together)) < len(together):
                    broken.append(frozenset((*self.active, key)))
                return await super().reconcile(key)

        started_in: dict[str, str] = {}
        work = Watched(serial=groups.__getitem__)
        async with work.running() as runner:
            for key in groups:
                runner.enqueue(key)
            await asyncio.sleep(0.5)
            for number, key in enumerate(groups):
                if number % wave == 0:
                    groups[key] = "right"
            await asyncio.sleep(3)
            groups.update({"key-9": "alone", "key-10": "left"})
            await asyncio.sleep(100)
            assert (runner.busy, runner.depth) == (0, 0)
            runner.enqueue("key-0")
            await asyncio.sleep(2)

        assert sorted(work.keys) == sorted([*groups, "key-0"])
        assert broken == []

    scenario()


@jumping_time
async def test_key_that_leaves_its_group_goes_on_without_it() -> None:
    groups: dict[str, str | None] = {"first": "a", "second": "a", "third": "a"}
    work = SlowWork(serial=groups.__getitem__)
    async with work.running() as runner:
        for key in groups:
            runner.enqueue(key)
        await asyncio.sleep(0.5)
        groups["second"] = None
        await asyncio.sleep(100)

    assert work.calls == [("first", 1), ("second", 2), ("third", 2)]


@jumping_time
async def test_drain_forgets_who_waits_for_a_turn() -> None:
    work = SlowWork()
    async with work.running() as runner:
        for number in range(5):
            runner.enqueue(f"a-{number}")
        await asyncio.sleep(0.5)

        await runner.drain(10)

        assert (asyncio.get_running_loop().time(), runner.depth) == (1, 0)
        await asyncio.sleep(100)
    assert work.keys == ["a-0"]


@jumping_time
async def test_a_thousand_keys_of_a_group_are_asked_about_a_few_times_each() -> None:
    asked = 0

    def serial(_key: str) -> str:
        nonlocal asked
        asked += 1
        return "a"

    work = Work(workers=16, serial=serial)
    async with work.running() as runner:
        for number in range(1000):
            runner.enqueue(f"key-{number}")
        await asyncio.sleep(1)

    assert len(work.keys) == 1000
    assert asked <= 2000


@jumping_time
async def test_end_while_keys_wait_for_their_turn() -> None:
    work = SlowWork()
    async with work.running() as runner:
        for number in range(5):
            runner.enqueue(f"a-{number}")
        await asyncio.sleep(0.5)
    assert (work.keys, work.active) == ([], set())


@jumping_time
async def test_what_something_happened_to_goes_before_a_sweep() -> None:
    work = Work(workers=1)
    work.runner.sweep(f"old-{number}" for number in range(3 * SWEEP_SHARE))
    work.runner.enqueue("new")
    assert work.runner.depth == 3 * SWEEP_SHARE + 1
    async with work.running() as runner:
        await asyncio.sleep(1)
        runner.sweep(["old-0", "old-1"])
        await asyncio.sleep(1)
    assert work.keys[:3] == ["new", "old-0", "old-1"]
    assert len(work.keys) == 3 * SWEEP_SHARE + 3
    assert work.runner.depth == 0


@jumping_time
async def test_those_of_a_sweep_that_come_first_wait_for_nothing_of_an_earlier_one() -> None:
    work = Work(workers=1)
    work.runner.sweep(["a", "b", "c", "d"])
    work.runner.sweep(["a", "b", "c", "d", "e"], first=["c", "e", "unknown"])
    async with work.running():
        await asyncio.sleep(1)
    assert work.keys == ["c", "e", "a", "b", "d"]


@jumping_time
async def test_one_that_comes_first_passes_those_of_an_earlier_sweep_once() -> None:
    looks: list[str] = []

    async def look(key: str) -> Outcome:
        looks.append(key)
        await asyncio.sleep(1)
        return DONE

    runner = Runner("test", look, workers=1)
    async with running(runner.run()):
        runner.sweep(["a", "b", "c"], first=["c"])
        await asyncio.sleep(0.5)
        runner.sweep(["a", "b", "c", "d"], first=["c", "d"])
        await asyncio.sleep(1)
        runner.sweep(["new", "a", "b", "c", "d"], first=["c", "d"])
        await asyncio.sleep(10)
        assert looks == ["c", "d", "a", "b", "c", "d", "new"]
        # Nothing was left, so it may pass again.
        runner.sweep(["a", "b"])
        runner.sweep(["a", "b", "c"], first=["c"])
        await asyncio.sleep(10)
    assert looks[7:] == ["c", "a", "b"]


@jumping_time
async def test_sweeps_without_end_leave_nothing_out() -> None:
    served, waiting = [f"served-{number}" for number in range(400)], [f"waiting-{number}" for number in range(600)]
    looks: list[str] = []

    async def look(key: str) -> Outcome:
        await asyncio.sleep(0.1)
        looks.append(key)
        return DONE

    runner = Runner("test", look, workers=1)
    async with running(runner.run()):
        for _ in range(60):
            runner.sweep([*served, *waiting], first=waiting)
            await asyncio.sleep(10)
    assert looks[:600] == waiting
    assert set(looks) == {*served, *waiting}


@jumping_time
async def test_a_sweep_gets_its_share_of_a_line_that_never_ends() -> None:
    work = Work(workers=1)
    work.runner.sweep(["old-1", "old-2"])
    for number in range(5 * SWEEP_SHARE):
        work.runner.enqueue(f"new-{number}")
    async with work.running():
        await asyncio.sleep(1)
    # In line behind all that are there at its turn, which end.
    assert {"old-1", "old-2"} <= set(work.keys)
    line = Work(workers=1)
    line.runner.sweep(["old-1", "old-2"])

    async def again(key: str) -> Outcome:
        line.calls.append((key, 0.0))
        if key == "busy" and len(line.calls) < 10 * SWEEP_SHARE:
            line.runner.enqueue(key)
        return DONE

    line.runner._reconcile = again
    line.runner.enqueue("busy")
    async with line.running():
        await asyncio.sleep(1)
    assert line.keys.index("old-2") < 3 * SWEEP_SHARE


@jumping_time
async def test_a_key_of_a_sweep_is_worked_on_once_also_if_something_happens_to_it() -> None:
    work = Work(workers=1)
    work.runner.enqueue("c")
    work.runner.sweep(["a", "b", "c"])
    work.runner.enqueue("b")
    assert work.runner.depth == 3
    async with work.running():
        await asyncio.sleep(1)
    assert work.keys == ["c", "b", "a"]


@jumping_time
async def test_a_key_that_is_worked_on_during_a_sweep_is_worked_on_again() -> None:
    work = Work(workers=2)
    work.gates["a"] = asyncio.Event()
    async with work.running() as runner:
        runner.enqueue("a")
        await asyncio.sleep(1)
        runner.sweep(["a", "b"])
        await asyncio.sleep(1)
        assert work.keys == ["a", "b"]
        work.gates["a"].set()
        await asyncio.sleep(1)
    assert work.keys == ["a", "b", "a"]


@jumping_time
async def test_a_sweep_passes_over_what_is_not_worth_a_look() -> None:
    work = Work(is_worth_a_look=lambda key: key != "other")
    work.runner.sweep(["a", "other", "b"])
    async with work.running() as runner:
        await asyncio.sleep(1)
        runner.enqueue("other")
        await asyncio.sleep(1)
    assert work.keys == ["a", "b", "other"]


@jumping_time
async def test_nothing_of_a_sweep_is_begun_after_the_end() -> None:
    work = Work(workers=1)
    async with work.running() as runner:
        runner.sweep(["a", "b"])
        await runner.drain(0.1)
        runner.sweep(["c"])
        await asyncio.sleep(1)
    assert work.keys == []
    assert work.runner.depth == 0
