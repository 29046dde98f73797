"""The fence that stops writes without the Lease."""

import asyncio
import math
from collections.abc import Callable, Coroutine

from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.errors import KubeError


class NotLeading(KubeError):
    """Raised instead of sending a write when it is not certain that this process holds the Lease."""


class WriteFence:
    """The only way for writes of the clients that share it: none is sent after the renew deadline of the Lease.

    The elector moves the deadline with each renewal. It is loop time: a process that was stopped (SIGSTOP) finds the
    fence shut before it learns that it lost the Lease. An API server completes a request whose client disconnected. So
    a write continues in the background when its caller is cancelled, and ``answered`` returns when no write is in
    flight: only then can the Lease be released.
    """

    def __init__(self, *, shut: bool = False) -> None:
        """``shut`` until an elector sets a deadline; otherwise always open."""
        self.deadline = -math.inf if shut else math.inf
        """Loop time from which no write is sent."""
        self._in_flight: set[asyncio.Task[bytes]] = set()

    async def send(self, exchange: Callable[[], Coroutine[None, None, bytes]], name: str) -> bytes:
        """Make the exchange and return the body of the response. Raises NotLeading, and what the exchange raises."""
        if loop_time() >= self.deadline:
            raise NotLeading("not sent, because the Lease was not renewed in time and may be another's")
        task = asyncio.create_task(exchange(), name=name)
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        # Retrieve the exception: the caller can be cancelled. From Python 3.14 on, shield would log it then.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait((task,))
        return task.result()

    async def answered(self) -> None:
        """Return when no write is in flight."""
        while self._in_flight:
            await asyncio.wait(self._in_flight)

    def cut(self) -> None:
        """Cancel the writes in flight."""
        for task in self._in_flight:
            task.cancel()
