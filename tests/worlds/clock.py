"""An event loop whose clock jumps over waiting, for tests of what takes minutes."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import ParamSpec, TypeVarTuple

P = ParamSpec("P")
Ts = TypeVarTuple("Ts")

_STUCK_SECONDS = 1.0
_ROUNDS_A_LOOK = 8
"""While the loop has something to do, connections and other threads are looked at in every so manieth round only: that
is a call of the kernel, and most loops have neither."""
_LONG_MOMENT = 100
"""Rounds of the loop at one moment after which time passes a little."""
_TICK = 2e-9
"""A loop calls timers up to its clock's resolution (a nanosecond) early. Code that then waits for the rest would do so
for ever at one moment; in a real loop the work itself takes time."""


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for a timer it moves the clock to it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._rounds = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._rounds += 1
        if timeout == 0:
            if self._rounds >= _LONG_MOMENT:
                self.now += _TICK
                self._rounds = 0
            return super().select(0) if self._rounds % _ROUNDS_A_LOOK == 0 else []
        ready = super().select(_STUCK_SECONDS if timeout is None else 0)
        if not ready and timeout is None:
            raise RuntimeError("the test waits for something that nobody will ever do")
        if not ready and timeout:
            self.now += timeout
            self._rounds = 0
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop in which time passes only when nothing else is to be done, and then at once."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the seconds since the loop was made."""
        return self._jumping.now

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call something at a time; what floating point has left of a pause that is over takes a moment, too."""
        soon = self.time() + _TICK
        return super().call_at(soon if self.time() < when < soon else when, callback, *args, context=context)


def jumping_time(test: Callable[P, Coroutine[None, None, None]]) -> Callable[P, None]:
    """Have an async test run in a loop of its own whose time jumps."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
