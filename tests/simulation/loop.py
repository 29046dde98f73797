"""An event loop whose every choice comes from a seed.

Time passes only when nothing else is to be done, and then at once. Of the callbacks that are ready any may be the next
one, which is what a network and a busy machine do to a program. Nothing of the machine gets in: no sockets, no threads,
no signals, no clock, and no order of a set of tasks, which goes by their addresses in memory elsewhere.
"""

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any, Final, TypeVarTuple

PROCESS: Final[ContextVar[str]] = ContextVar("PROCESS", default="")
"""Name of the simulated process that a callback belongs to; empty for the world around."""
MOMENT: Final = 1e-6
"""Seconds that one callback takes."""
Ts = TypeVarTuple("Ts")
BUSY_STEPS: Final = 200_000
"""Callbacks without a wait after which a loop counts as endless."""


class Stuck(RuntimeError):
    """Raised if no callback is left, or if a loop is endless."""


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on where it is in memory."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], number: int, **more: Any) -> None:
        self._number = number
        super().__init__(coroutine, **more)

    def __hash__(self) -> int:
        return self._number


class _Due(float):
    """When a timer is due, and the timer: numbers are compared by the interpreter itself, timers by code."""

    __slots__ = ("timer",)
    timer: asyncio.TimerHandle


class SeededLoop(asyncio.BaseEventLoop):
    """One world's loop. ``after_step`` is called after every callback."""

    _ready: list[asyncio.Handle]
    _stopping: bool
    _scheduled: list[_Due]

    def __init__(self, seed: str) -> None:
        super().__init__()
        self._ready = []
        self._dice = random.Random(f"{seed} order")
        self._numbers = itertools.count(1)
        self._now = 0.0
        self._busy = 0
        self._halted: dict[str, list[asyncio.Handle]] = {}
        self.steps = 0
        """Callbacks so far."""
        self.signal_handlers: dict[tuple[str, int], Callable[[], object]] = {}
        """The handler of each process and signal."""
        self.after_step: Callable[[], None] = lambda: None
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        """Return the seconds since the loop was made."""
        return self._now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call something at a time."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        due = _Due(when)
        due.timer = timer
        heapq.heappush(self._scheduled, due)
        return timer

    def halt(self, process: str) -> None:
        """Let nothing of a process go on, as when its machine is suspended."""
        self._halted.setdefault(process, [])

    def is_halted(self, process: str) -> bool:
        return process in self._halted

    def go_on(self, process: str) -> None:
        self._ready.extend(self._halted.pop(process, ()))

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        self.signal_handlers[PROCESS.get(), sig] = lambda: callback(*args)

    def _make_task(
        self, _loop: asyncio.AbstractEventLoop, coroutine: Any, context: Context | None = None, **_more: Any
    ) -> asyncio.Task[Any]:
        return _Task(coroutine, next(self._numbers), loop=self, context=context)

    def _run_once(self) -> None:
        self._pass_time()
        handle = self._next()
        if handle is None:
            return
        self._now += MOMENT
        self.steps += 1
        self._busy += 1
        if self._busy > BUSY_STEPS:
            raise Stuck(f"endless loop at {self._now:.3f} s: {handle}")
        handle._run()
        self.after_step()

    def _pass_time(self) -> None:
        """Make ready what is due; jump to the next timer where nothing is."""
        timers = self._scheduled
        while timers and timers[0].timer._cancelled:
            heapq.heappop(timers)
        if not self._ready and not self._stopping:
            if not timers:
                raise Stuck("deadlock: no callback and no timer is left")
            if timers[0] > self._now:
                self._now = float(timers[0])
                self._busy = 0
        while timers and timers[0] <= self._now:
            self._ready.append(heapq.heappop(timers).timer)

    def _next(self) -> asyncio.Handle | None:
        """Take any of the callbacks that are ready."""
        ready = self._ready
        if not ready:
            return None
        index = int(self._dice.random() * len(ready)) if len(ready) > 1 else 0
        handle = ready[index]
        ready[index] = ready[-1]
        ready.pop()
        if handle._cancelled:
            return None
        if self._halted:
            process = handle._context.get(PROCESS, "")  # type: ignore[attr-defined]
            if process in self._halted:
                self._halted[process].append(handle)
                return None
        return handle

    def _write_to_self(self) -> None:
        """Do nothing: there is only one thread."""

    def _process_events(self, event_list: Any) -> None:
        """Do nothing: there are no file descriptors."""
