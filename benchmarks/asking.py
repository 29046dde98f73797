"""Asks a running program how busy its event loop was (see ``observed``, which must not carry what is imported here)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.observed import TASKS, Step
from devenv.stage import until


@dataclass(frozen=True)
class Answer:
    """What the program has told."""

    step: Step
    """The longest one since it was asked before."""
    tasks: int


async def ask(pid: int, log: Callable[[], str], *, within: float) -> Answer:
    """Have a process tell; ``log`` returns its log. Raises TimeoutError."""
    before = log().count(TASKS)
    os.kill(pid, signal.SIGUSR1)

    async def told() -> bool:
        return log().count(TASKS) > before

    await until(told, within=within, what=f"what process {pid} tells of its event loop")
    found = log()
    return Answer(Step.last_of(found), int(found.rpartition(TASKS)[2].split()[0]))
