"""Running what never ends by itself for the time of a block."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


END_SECONDS = 5.0


@asynccontextmanager
async def running(
    work: Coroutine[None, None, T], *, until: type[Exception] | None = None
) -> AsyncIterator[asyncio.Task[T]]:
    """Run ``work`` until the block ends, then cancel it.

    With ``until``, wait at the end of the block for the work to raise that by itself. Anything else that it raises is
    raised at the end of the block.
    """
    task = asyncio.create_task(work, name="background")
    try:
        yield task
        if until is not None:
            await asyncio.wait([task], timeout=END_SECONDS)
            assert task.done(), f"{until.__name__} was not raised within {END_SECONDS:g} s"
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, until or ()):
        raise error
