"""Which worker gets which tests: all are run, and what needs servers by those that have some, while there are any."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.scheduling import Scheduling

SERVED = ["tests/e2e/test_a.py::test", "tests/e2e/test_b.py::test", "tests/deploy/test_c.py::test"]
ALONE = ["tests/unit/test_d.py::test", "tests/program/test_e.py::test", "tests/unit/test_f.py::test"]


class Worker:
    """A worker that runs at once what it is given."""

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.shutting_down = False
        self.given: list[int] = []
        self.ran = 0

    def send_runtest_some(self, indexes: list[int]) -> None:
        """Take tests, by their numbers."""
        assert not self.shutting_down
        self.given += indexes

    def shutdown(self) -> None:
        """Take no more."""
        self.shutting_down = True


def play(workers: list[Worker], tests: list[str]) -> dict[str, set[str]]:
    """Return which tests each worker has run once all are over."""
    tx = [f"{len(workers)}*popen"]
    config = SimpleNamespace(getvalue=lambda _name: tx, option=SimpleNamespace(loadscopereorder=True))
    scheduling = Scheduling(config, None)  # type: ignore[arg-type]  # all of it that is looked at
    for worker in workers:
        scheduling.add_node(worker)
        scheduling.add_node_collection(worker, tests)
    scheduling.schedule()
    while any(worker.ran < len(worker.given) for worker in workers):
        for worker in workers:
            if worker.ran < len(worker.given):
                worker.ran += 1
                scheduling.mark_test_complete(worker, worker.given[worker.ran - 1])
    assert not scheduling.workqueue
    return {worker.gateway.id: {tests[index] for index in worker.given} for worker in workers}


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_all_is_run_and_the_last_third_of_the_workers_needs_no_servers(count: int) -> None:
    ran = play([Worker(number) for number in range(count)], [*SERVED, *ALONE])
    assert set().union(*ran.values()) == {*SERVED, *ALONE}
    for number in range(count - count // 3, count):
        assert not ran[f"gw{number}"] & {*SERVED}


def test_workers_without_servers_take_what_is_left_when_the_others_are_gone() -> None:
    # With more workers than units those go that were ready last.
    ran = play([Worker(number) for number in (4, 5, 0, 1, 2, 3)], SERVED[:2])
    assert ran["gw4"] | ran["gw5"] == {*SERVED[:2]}


def test_worker_with_servers_runs_what_needs_them_first() -> None:
    worker = Worker(0)
    play([worker], [*ALONE, *SERVED])
    assert [index >= len(ALONE) for index in worker.given] == [True] * len(SERVED) + [False] * len(ALONE)
