"""Requests that change something: none leaves while another process may hold the Lease, and none is forgotten.

One fence stands around all clients of a process. The elector opens it for as long as nobody else can hold the Lease;
a process that was halted for a while finds it shut by the clock, before it finds out that it lost. A virtual machine
that was paused finds no such thing: all its clocks stood still. So a write that is the first for a moment waits until
the Lease was renewed for it, which tells who holds it now; those that follow within ``FRESH_SECONDS`` do not, unless an
answer shows that the server's clock has gained on ours (``ServerClock``). A server goes on
with a request whose sender has hung up. So a write that was sent is waited for in the background when the one who
asked for it is cancelled, and ``answered`` tells when none is left: only then may the Lease be given up.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Final

from harvester_ccm.errors import CCMError

Check = Callable[[], None]
"""Raises a CCMError when a write is not right any more: what it was decided on may change while it waits."""
FRESH_SECONDS: Final = 0.5
"""For so long writes may follow the first for which the Lease was renewed."""


class NotLeading(CCMError):
    """Raised instead of sending a write when it is not certain that this process holds the Lease."""


class WriteFence:
    """What every write of the clients that share it goes through."""

    def __init__(self, *, shut: bool = False) -> None:
        """Build it; ``shut`` until an elector opens it, otherwise open for ever."""
        self._open_until = self._fresh_until = -math.inf if shut else math.inf
        self._renewed_at = self._doubted_at = -math.inf
        self._asked_at = math.inf
        """Since when a write waits for a renewal; infinite when none does."""
        self._asked, self._changed = asyncio.Event(), asyncio.Event()
        self._under_way: set[asyncio.Task[bytes]] = set()

    @property
    def is_open(self) -> bool:
        """Whether nobody else can hold the Lease."""
        return asyncio.get_running_loop().time() < self._open_until

    @property
    def has_waiting(self) -> bool:
        """Whether a write waits for the Lease to be renewed."""
        return self._asked.is_set()

    def open_until(self, at: float, *, renewed_at: float) -> None:
        """Let writes pass until this loop time; ``renewed_at`` is when the renewal was begun that allows it."""
        opening = not self.is_open
        self._open_until, self._renewed_at = at, renewed_at
        if renewed_at >= self._doubted_at and (opening or renewed_at >= self._asked_at):
            # Not after every renewal: a machine that is paused between two of them must not find one that is fresh.
            self._fresh_until = renewed_at + FRESH_SECONDS
            self._asked_at = math.inf
            self._asked.clear()
        self._tell()

    def shut(self) -> None:
        """Let no write pass from now on."""
        self._open_until = -math.inf
        self._asked_at = math.inf
        self._asked.clear()
        self._tell()

    def doubt(self) -> None:
        """Let no write pass before a renewal that is begun later: time went by that this machine did not see."""
        if self._open_until < math.inf:
            self._doubted_at = asyncio.get_running_loop().time()
            self._fresh_until = -math.inf

    async def renewal_asked(self, seconds: float) -> None:
        """Return when a write waits for the Lease to be renewed, or after that time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._asked.wait()

    async def send(
        self, exchange: Callable[[], Coroutine[None, None, bytes]], name: str, *, check: Check | None = None
    ) -> bytes:
        """Make the exchange and return the body of the answer; it goes on when the caller is cancelled.

        ``check`` is called after a wait for the Lease. Raises NotLeading, and what ``check`` and the exchange raise.
        """
        waits = asyncio.get_running_loop().time() >= self._fresh_until
        if not await self._certain():
            raise NotLeading("not sent, because the Lease was not renewed in time and may be another's")
        if waits and check is not None:
            check()
        task = asyncio.create_task(exchange(), name=name)
        self._under_way.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    async def _certain(self) -> bool:
        """Return whether nobody else can hold the Lease, also if all clocks stood still until now."""
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        while self.is_open and loop.time() >= self._fresh_until:
            if self._renewed_at >= max(asked_at, self._doubted_at):
                break
            self._asked_at = min(self._asked_at, asked_at)
            self._asked.set()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._open_until):
                    await self._changed.wait()
        return self.is_open

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

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
