"""Requests that change something: none leaves while another process may hold the Lease, and none is forgotten.

One fence stands around all clients of a process. The elector opens it for as long as nobody else can hold the Lease;
a process that was halted for a while finds it shut by the clock, before it finds out that it lost. A server goes on
with a request whose sender has hung up. So a write that was sent is waited for in the background when the one who
asked for it is cancelled, and ``answered`` tells when none is left: only then may the Lease be given up.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine

from harvester_ccm.errors import CCMError


class NotLeading(CCMError):
    """Raised instead of sending a write when it is not certain that this process holds the Lease."""


class WriteFence:
    """What every write of the clients that share it goes through."""

    def __init__(self, *, shut: bool = False) -> None:
        """Build it; ``shut`` until an elector opens it, otherwise open for ever."""
        self._open_until = -math.inf if shut else math.inf
        self._under_way: set[asyncio.Task[bytes]] = set()

    @property
    def is_open(self) -> bool:
        """Whether nobody else can hold the Lease."""
        return asyncio.get_running_loop().time() < self._open_until

    def open_until(self, at: float) -> None:
        """Let writes pass until this loop time."""
        self._open_until = at

    def shut(self) -> None:
        """Let no write pass from now on."""
        self._open_until = -math.inf

    async def send(self, exchange: Callable[[], Coroutine[None, None, bytes]], name: str) -> bytes:
        """Make the exchange and return the body of the answer; it goes on when the caller is cancelled.

        Raises NotLeading, and what the exchange raises.
        """
        if not self.is_open:
            raise NotLeading("not sent, because the Lease was not renewed in time and may be another's")
        task = asyncio.create_task(exchange(), name=name)
        self._under_way.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[bytes]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            # Seen here, because nobody else may be there to see it.
            task.exception()

    async def answered(self) -> None:
        """Return when every write that was sent has an answer, or will have none."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def cut(self) -> None:
        """Wait for no answer any more."""
        for task in self._under_way:
            task.cancel()
