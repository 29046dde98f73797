"""Which worker runs which test, and in which order: what takes long begins first, so that all end together.

The tests of a unit stay together, one after the other on one worker: what they start is started once. A unit is a file,
but for those that are named here.

Tests on real API servers wait for most of their time, those without reckon for all of it. So some workers run nothing
but the latter, from the beginning, without servers and with what processor time the others leave.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]
from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

INSTALLED: Final = (
    "tests/deploy/test_generate_addon.py",
    "tests/deploy/test_program_with_artefacts.py",
    "tests/deploy/test_chart_on_apiserver.py",
    "tests/deploy/test_e2e_kind.py",
    "tests/deploy/test_examples.py",
)
"""They share the clusters of ``tests/deploy/conftest.py``."""
LONGEST: Final = (
    *INSTALLED,
    "tests/e2e/test_soak.py",
    "tests/e2e/test_faults.py",
    "tests/e2e/test_crash.py",
    "tests/e2e/test_switch.py",
    "tests/e2e/test_refused_deletion.py",
    "tests/e2e/test_sharing.py",
    "tests/e2e/test_demo.py",
    "tests/e2e/test_handover.py",
    "tests/e2e/test_vm_traffic.py",
    "tests/e2e/test_strangers_run.py",
    "tests/e2e/test_demo_show.py",
)
SINGLY: Final = ("tests/program/test_node_crowd.py", "tests/program/test_schedules.py")
"""Their tests start nothing that others could share: each is a unit, so that no worker is left alone with all of them
when there is nothing else to do any more."""
SERVERLESS: Final = ("tests/program/", "tests/unit/")
"""Nothing in these asks for the servers of the session."""
ROOMS: Final = ("tests/e2e/", "tests/devenv/", "tests/apiserver/", "tests/deploy/", *SERVERLESS)
"""What is left, from that which takes long to that which takes no time."""


_MISSING: Final = [one for one in (*LONGEST, *SINGLY, *ROOMS) if not (Path(__file__).parent.parent / one).exists()]
assert not _MISSING, f"there is no {', '.join(_MISSING)}"


def is_serverless(worker: str, workers: int) -> bool:
    """Return whether a worker runs only tests that need no server: the last third of those that are there at first.

    ``worker`` is its name, as xdist gives it: ``gw0``.
    """
    return workers - workers // 3 <= int(worker.removeprefix("gw")) < workers


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out units in the order in which their tests were collected, to each worker such as it runs."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _reschedule(self, node: WorkerController) -> None:
        if self.workqueue and self._next_for(node) is None:
            node.shutdown()
        else:
            super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        unit = self._next_for(node)
        if unit is not None:
            self.workqueue.move_to_end(unit, last=False)
            super()._assign_work_unit(node)

    def _next_for(self, node: WorkerController) -> str | None:
        """Return the next unit for a worker; what a worker that crashed leaves is at the end, whatever it needs."""
        serverless = [unit for unit in self.workqueue if unit.startswith(SERVERLESS)]
        others = (unit for unit in self.workqueue if not unit.startswith(SERVERLESS))
        if self._only_serverless(node) and any(not self._only_serverless(one) for one in self.nodes):
            return next(iter(serverless), None)
        return next(others, None) or next(iter(serverless), None)

    def _only_serverless(self, node: WorkerController) -> bool:
        return node.shutting_down or is_serverless(node.gateway.id, self.numnodes)

    def _split_scope(self, nodeid: str) -> str:
        path = file_of(nodeid)
        if path in SINGLY:
            return nodeid
        return "installed" if path in INSTALLED else path


def file_of(nodeid: str) -> str:
    """Return the path of the file that a test is in."""
    return nodeid.partition("::")[0]


def rank(nodeid: str) -> tuple[int, int]:
    """Return a key that sorts tests into the order in which they are to begin."""
    path = file_of(nodeid)
    if path in LONGEST:
        return (0, LONGEST.index(path))
    return (1, next((number for number, room in enumerate(ROOMS) if path.startswith(room)), len(ROOMS)))
