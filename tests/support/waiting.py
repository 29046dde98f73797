"""Waiting for something to become true: the only place in the tests that polls, where time does not jump."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

from tests.support.clock import JumpingLoop

T = TypeVar("T")

POLL_SECONDS = 0.005


@overload
async def wait_for(condition: Callable[[], Awaitable[T]], seconds: float = 60.0, *, what: str = ...) -> T: ...
@overload
async def wait_for(condition: Callable[[], T], seconds: float = 60.0, *, what: str = ...) -> T: ...
async def wait_for(condition: Callable[[], object], seconds: float = 60.0, *, what: str = "the condition") -> object:
    """Return the first true result of ``condition``, which may be a coroutine function.

    Fails the test, naming ``what``, after ``seconds``.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        result = condition()
        if inspect.isawaitable(result):
            result = await result
        elif isinstance(loop, JumpingLoop):
            result = await loop.come_about(condition, seconds)
        if result:
            return result
        if loop.time() >= deadline:
            raise AssertionError(f"{what} did not come about within {seconds:g} s")
        await asyncio.sleep(POLL_SECONDS)
