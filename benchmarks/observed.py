"""The program, which tells on a signal how busy its event loop is: ``python -m benchmarks.observed FLAGS``.

SIGUSR1 has it write to standard error the longest step of the event loop since it was asked the last time, with what
that was, the most processor time that one step took, and how many tasks there are:
``longest step: WALL PROCESSOR MOST WHAT`` and ``asyncio tasks: NUMBER``.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FrameType
from typing import Final

from harvester_ccm.cli import main

TASKS: Final = "asyncio tasks: "
STEP: Final = "longest step: "
_RUN: Final = "_run"
_CALLBACK: Final = "_callback"


@dataclass(frozen=True)
class Step:
    """What the event loop did without looking at anything else."""

    seconds: float = 0.0
    processor: float = 0.0
    """Seconds of processor time in it: less, where others had the machine."""
    most: float = 0.0
    """The most that any step took; one that others held up need not be the one."""
    what: str = "nothing"

    def line(self) -> str:
        """Return it as one line."""
        return f"{STEP}{self.seconds:.6f} {self.processor:.6f} {self.most:.6f} {self.what}"

    @classmethod
    def last_of(cls, log: str) -> Step:
        """Return the last one that a log tells of."""
        seconds, processor, most, what = log.rpartition(STEP)[2].partition("\n")[0].split(" ", 3)
        return cls(float(seconds), float(processor), float(most), what)


class Steps:
    """Remembers the longest step of event loops."""

    def __init__(self) -> None:
        self._longest = Step()

    def measure(self) -> None:
        """Have every step of every event loop of this process measured from now on."""
        # What asyncio measures itself in its debug mode, at a cost that would be most of what is measured here.
        run: Callable[[asyncio.Handle], None] = getattr(asyncio.Handle, _RUN)

        def timed(handle: asyncio.Handle) -> None:
            callback = getattr(handle, _CALLBACK)
            began, used = time.perf_counter(), time.thread_time()
            run(handle)
            seconds, processor = time.perf_counter() - began, time.thread_time() - used
            if seconds > self._longest.seconds or processor > self._longest.most:
                self._note(seconds, processor, callback)

        setattr(asyncio.Handle, _RUN, timed)

    def _note(self, seconds: float, processor: float, callback: object) -> None:
        most = max(processor, self._longest.most)
        if seconds > self._longest.seconds:
            self._longest = Step(seconds, processor, most, _name_of(callback))
        else:
            self._longest = replace(self._longest, most=most)

    def take(self) -> Step:
        """Return the longest step since this was called the last time."""
        longest, self._longest = self._longest, Step()
        return longest


def _name_of(callback: object) -> str:
    """Return what a callback belongs to: the name of its task, or its own."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return owner.get_name()
    return str(getattr(callback, "__qualname__", callback))


def tell(steps: Steps) -> None:
    """Write the longest step, and how many tasks there are."""
    try:
        count = len(asyncio.all_tasks())
    except RuntimeError:
        # No loop runs yet, or any more.
        count = 0
    sys.stderr.write(f"{steps.take().line()}\n{TASKS}{count}\n")
    sys.stderr.flush()


def _run() -> int:
    steps = Steps()
    steps.measure()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        tell(steps)

    signal.signal(signal.SIGUSR1, on_signal)
    return main()


if __name__ == "__main__":
    sys.exit(_run())
