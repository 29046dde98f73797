"""An event loop whose clock jumps to the next timer, for tests of minutes and hours."""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, ParamSpec, TypeVar, TypeVarTuple

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_STUCK_SECONDS = 1.0
_ROUNDS_PER_POLL = 8
"""While callbacks are ready, connections and threads are polled only in each eighth round: that is a system call."""
_MAX_ROUNDS = 100
"""Rounds of the loop after which time passes a little."""
_TICK = 2e-9
"""A loop calls timers up to its clock's resolution (a nanosecond) early. If no time passed, code that waits for the
rest would never end."""


class _JumpingSelector(selectors.DefaultSelector):
    """Moves the clock to the next timer instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.has_threads = False
        """Whether another thread was ever used."""
        self.awaited: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        """Conditions that are checked before time passes, and their waiters."""
        self._rounds = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._rounds += 1
        if timeout == 0:
            if self._rounds >= _MAX_ROUNDS:
                self.now += _TICK
                self._rounds = 0
            return super().select(0) if self._rounds % _ROUNDS_PER_POLL == 0 and not self._is_alone else []
        if self._has_come_about():
            return []
        ready = [] if timeout and self._is_alone else super().select(_STUCK_SECONDS if timeout is None else 0)
        if not ready and timeout is None:
            raise RuntimeError("the test waits for something that never happens")
        if not ready and timeout:
            self.now += timeout
            self._rounds = 0
        return ready

    @property
    def _is_alone(self) -> bool:
        """Whether the loop has only timers and callbacks: no thread and no connection."""
        return not self.has_threads and len(self.get_map()) == 1

    def _has_come_about(self) -> bool:
        """Resume the waiters whose condition is true; return whether there was one."""
        resumed = False
        for condition, waiter in self.awaited:
            try:
                if not waiter.done() and (result := condition()):
                    waiter.set_result(result)
                    resumed = True
            except Exception as error:
                waiter.set_exception(error)
                resumed = True
        return resumed


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop in which time passes only if nothing is ready, and then at once."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the seconds since the loop was created."""
        return self._jumping.now

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call something at a time; a rounding error of a past timer takes a tick."""
        soon = self.time() + _TICK
        return super().call_at(soon if self.time() < when < soon else when, callback, *args, context=context)

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Run a function in another thread, which is polled from now on."""
        self._jumping.has_threads = True
        return super().run_in_executor(executor, func, *args)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - of the base class
        """Wait for the threads; with the timeout that ``asyncio.run`` sets, the clock would jump to its end."""
        await super().shutdown_default_executor()

    async def come_about(self, condition: Callable[[], T], seconds: float) -> T:
        """Return the first true result of a condition, or a false one after ``seconds``.

        It is checked whenever time is about to pass: before that, nothing changes.
        """
        if result := condition():
            return result
        waiter: asyncio.Future[T] = self.create_future()
        self._jumping.awaited.append((condition, waiter))
        try:
            async with asyncio.timeout(seconds):
                return await waiter
        except TimeoutError:
            return condition()
        finally:
            self._jumping.awaited.remove((condition, waiter))


def jumping_time(test: Callable[P, Coroutine[None, None, None]]) -> Callable[P, None]:
    """Run an async test in a ``JumpingLoop``."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


async def until(condition: Callable[[], object], seconds: float = 60.0, *, what: str = "the condition") -> float:
    """Wait, in time that jumps, until the condition holds; return how long it took."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, JumpingLoop)
    started = loop.time()
    assert await loop.come_about(condition, seconds), f"{what} did not come about within {seconds:g} s"
    return loop.time() - started
