"""What is measured of a queue, by a real runner and by hand."""

from __future__ import annotations

import asyncio
import functools

from harvester_ccm.errors import Answer, Conflict, Unreachable
from harvester_ccm.kube.workqueue import WorkQueue
from harvester_ccm.model.outcome import Done, Outcome, Refused, Wait
from harvester_ccm.telemetry.metrics import Telemetry
from harvester_ccm.telemetry.queues import Queue
from tests.unit.telemetry.test_metrics import samples
from tests.worlds.background import running
from tests.worlds.clock import jumping_time
from tests.worlds.waiting import wait_for

NAME = (("name", "service"),)


class TimedQueue:
    """A queue under a clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.telemetry = Telemetry("1", clock=lambda: self.now)
        self.queue = self.telemetry.queue("service")

    def shown(self, name: str) -> float:
        return samples(self.telemetry)[name][NAME]


def test_waiting_and_work_are_timed() -> None:
    scene = TimedQueue()
    scene.queue.added("shop/a")
    scene.now += 2
    scene.queue.added("shop/b")
    scene.now += 3
    assert scene.shown("workqueue_depth") == 2
    assert scene.shown("harvester_ccm_queue_oldest_seconds") == 5

    scene.queue.started("shop/a")
    scene.now += 4
    scene.queue.started("shop/b")
    scene.now += 1

    assert scene.shown("workqueue_depth") == 0
    assert scene.shown("harvester_ccm_queue_oldest_seconds") == 0
    assert scene.shown("workqueue_unfinished_work_seconds") == 6
    assert scene.shown("workqueue_longest_running_processor_seconds") == 5

    scene.queue.finished("shop/a")
    scene.queue.finished("shop/b")

    assert scene.shown("workqueue_longest_running_processor_seconds") == 0
    assert scene.shown("workqueue_adds_total") == 2
    assert scene.shown("workqueue_queue_duration_seconds_sum") == 12
    assert scene.shown("workqueue_work_duration_seconds_sum") == 6


def test_a_queue_remembers_what_a_key_waits_for() -> None:
    queue = TimedQueue().queue
    assert queue.reason("shop/a") == ""
    queue.answered("shop/a", "pool_exhausted")
    assert queue.reason("shop/a") == "pool_exhausted"
    queue.failed("shop/a", Unreachable("no route"))
    assert queue.reason("shop/a") == "unreachable"
    queue.answered("shop/a", "")
    assert queue.reason("shop/a") == ""


def test_an_error_has_a_name_as_labels_are_written() -> None:
    class AdmissionDenied(Exception):
        pass

    class APIError(Exception):
        pass

    queue = TimedQueue().queue
    queue.failed("shop/a", AdmissionDenied())
    assert queue.reason("shop/a") == "admission_denied"
    queue.failed("shop/a", APIError())
    assert queue.reason("shop/a") == "api_error"


async def give(answers: list[Outcome | Exception], _key: str) -> Outcome:
    answer = answers.pop(0)
    if isinstance(answer, Exception):
        raise answer
    return answer


def observed(telemetry: Telemetry, answers: list[Outcome | Exception]) -> tuple[WorkQueue, Queue]:
    runner = WorkQueue("service", functools.partial(give, answers), workers=1)
    queue = telemetry.queue("service")
    runner.observer = queue
    return runner, queue


@jumping_time
async def test_a_runner_tells_what_happens() -> None:
    telemetry = Telemetry("1", clock=asyncio.get_running_loop().time)
    conflict = Conflict(Answer(409, "Conflict", "changed", "PUT /x"))
    answers: list[Outcome | Exception] = [conflict, Unreachable("no route"), ValueError("a fault"), Wait("dhcp")]
    runner, queue = observed(telemetry, answers)

    async with running(runner.run()):
        runner.enqueue("shop/a")
        runner.enqueue("shop/a")
        assert queue.depth == 1
        await wait_for(lambda: not answers and not runner._active, 60)
        assert queue.reason("shop/a") == "dhcp"
        answers.append(Refused("not_servable"))
        runner.enqueue("shop/a")
        await wait_for(lambda: queue.reason("shop/a") == "not_servable")
        answers.append(Done())
        runner.enqueue("shop/a")
        await wait_for(lambda: queue.reason("shop/a") == "")

    shown = samples(telemetry)
    assert shown["workqueue_adds_total"][NAME] == 6
    assert shown["workqueue_retries_total"][NAME] == 3
    assert shown["workqueue_work_duration_seconds_count"][NAME] == 6
    assert queue.depth == 0
    assert queue.longest_seconds == 0


async def test_work_that_is_cut_short_is_over() -> None:
    telemetry = Telemetry("1")

    async def never(_key: str) -> Outcome:
        await asyncio.Event().wait()
        return Done()

    runner = WorkQueue("service", never, workers=1)
    queue = runner.observer = telemetry.queue("service")
    async with running(runner.run()):
        runner.enqueue("shop/a")
        await wait_for(lambda: queue.longest_seconds > 0)

    assert queue.longest_seconds == 0
