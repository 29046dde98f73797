"""Requests that change something: none is sent after the renew deadline of the Lease, and none is forgotten.

All clients of a process share one fence. The elector moves its deadline with each renewal of the Lease. The deadline is
loop time: a process that was stopped (SIGSTOP) finds the fence shut before it learns that it lost the Lease. A leader
whose virtual machine was paused together with its clocks learns it at its next renewal; until then preconditions limit
its writes. An API server completes a request whose client has disconnected. So a write goes on in the background when
its caller is cancelled, and ``answered`` returns when no write is under way: only then may the Lease be released.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine

from harvester_ccm.errors import CCMError
from harvester_ccm.kube.flowcontrol import loop_time


class NotLeading(CCMError):
    """Raised instead of sending a write when it is not certain that this process holds the Lease."""


class WriteFence:
    """The only way for a write of the clients that share it."""

    def __init__(self, *, shut: bool = False) -> None:
        """``shut`` until an elector sets a deadline; otherwise always open."""
        self.deadline = -math.inf if shut else math.inf
        """Loop time from which no write is sent."""
        self._under_way: set[asyncio.Task[bytes]] = set()

    async def send(self, exchange: Callable[[], Coroutine[None, None, bytes]], name: str) -> bytes:
        """Make the exchange and return the body of the response; it goes on when the caller is cancelled.

        Raises NotLeading, and what the exchange raises.
        """
        if loop_time() >= self.deadline:
            raise NotLeading("not sent, because the Lease was not renewed in time and may be another's")
        task = asyncio.create_task(exchange(), name=name)
        self._under_way.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[bytes]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            # Retrieve the exception: the caller may have been cancelled.
            task.exception()

    async def answered(self) -> None:
        """Return when no write is under way."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def cut(self) -> None:
        """Cancel the writes that are under way."""
        for task in self._under_way:
            task.cancel()
