"""Work that goes through everything: done at the first change, and once for all that changes in the moment after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

GATHER_SECONDS: Final = 0.2
"""From one time to the next: hundreds of Nodes join one after the other, and each is a change for all of them."""


class Gathering:
    """Does the same work again and again, but not at every change."""

    def __init__(self, work: Callable[[], None]) -> None:
        """Build it; ``work`` must not raise."""
        self._work = work
        self.due: asyncio.TimerHandle | None = None
        """When it is done next; None while nobody has asked for it."""
        self._last = float("-inf")

    def ask(self) -> None:
        """Have the work done soon; returns at once."""
        if self.due is None:
            loop = asyncio.get_running_loop()
            self.due = loop.call_at(max(loop.time(), self._last + GATHER_SECONDS), self._do)

    def _do(self) -> None:
        self.due, self._last = None, asyncio.get_running_loop().time()
        self._work()
