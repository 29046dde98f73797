"""Requests that change something: none leaves while another process may hold the Lease, and none is forgotten.

A server goes on with a request whose sender has hung up. So a write that was sent is waited for in the background when
the one who asked for it is cancelled, and ``answered`` tells when none is left: only then may the Lease be given up.
Neither holds for what every process may write: reviews of callers, the Lease itself, and Events.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Final

from harvester_ccm.errors import CCMError

_BOOKKEEPING: Final = re.compile(
    r"/apis/(?:authentication|authorization|coordination)\.k8s\.io/|/api/v1/(?:namespaces/[^/]+/)?events(?:/|$)"
)


class NotLeading(CCMError):
    """Raised instead of sending a write when it is not certain that this process holds the Lease."""


class Writes:
    """The writes of one client."""

    def __init__(self) -> None:
        self._open: set[asyncio.Task[bytes]] = set()
        self.permitted: Callable[[], bool] = lambda: True
        """Asked before every write that only the holder of the Lease may make."""

    async def send(self, path: str, exchange: Callable[[], Coroutine[None, None, bytes]]) -> bytes:
        """Make the exchange and return the body of the answer; it goes on when the caller is cancelled.

        Raises NotLeading, and what the exchange raises.
        """
        if _BOOKKEEPING.match(path):
            return await exchange()
        if not self.permitted():
            raise NotLeading("not sent, because the Lease was not renewed in time and may be another's")
        task = asyncio.create_task(exchange(), name=f"write {path}")
        self._open.add(task)
        task.add_done_callback(self._close)
        return await asyncio.shield(task)

    def _close(self, task: asyncio.Task[bytes]) -> None:
        self._open.discard(task)
        if not task.cancelled():
            # Seen here, because nobody else may be there to see it.
            task.exception()

    async def answered(self) -> None:
        """Return when every write that was sent has an answer, or will have none."""
        while self._open:
            await asyncio.wait(self._open)

    def cut(self) -> None:
        """Wait for no answer any more."""
        for task in self._open:
            task.cancel()
