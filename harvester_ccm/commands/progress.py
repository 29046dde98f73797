"""What a command waits for, once it takes longer than a person expects, and how slow each server is."""

import asyncio
from collections.abc import Callable
from typing import Final, TextIO

from harvester_ccm.names import PROGRAM

FIRST_SECONDS: Final = 1.0
"""Time without output after which the first line is printed."""
REPEAT_SECONDS: Final = 5.0
"""Time between two lines."""
SLOW_SECONDS: Final = 2.0
"""Time of a request from which a server is slow: an API server responds to a list of 500 objects in tenths of one."""


class Latency:
    """The longest response time of each cluster, as the observer of their clients."""

    def __init__(self) -> None:
        self._longest: dict[str, float] = {}

    def note(self, cluster: str, method: str, _path: str, status: int, seconds: float) -> None:
        """Record a request. One without a response is an error, and a dry run depends on webhooks as well."""
        if status and method == "GET":
            self._longest[cluster] = max(seconds, self.of(cluster))

    def of(self, cluster: str) -> float:
        """Return the longest response time in seconds; 0 before the first response."""
        return self._longest.get(cluster, 0.0)

    def is_slow(self, cluster: str) -> bool:
        """Return whether a response took unusually long."""
        return self.of(cluster) >= SLOW_SECONDS

    def has_answered(self, cluster: str) -> bool:
        """Return whether there was a response."""
        return cluster in self._longest


class Progress:
    """Prints what a command waits for, from its start until ``stop``."""

    def __init__(self, stream: TextIO, waits_for: Callable[[], str]) -> None:
        """``waits_for`` returns the name of what has not responded."""
        self._stream = stream
        self._waits_for = waits_for
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._timer = self._loop.call_later(FIRST_SECONDS, self._report)

    def stop(self) -> None:
        """Print nothing more."""
        self._timer.cancel()

    def _report(self) -> None:
        seconds = self._loop.time() - self._began
        self._stream.write(f"{PROGRAM}: waiting for {self._waits_for()} ({seconds:.0f} s)\n")
        self._stream.flush()
        self._timer = self._loop.call_later(REPEAT_SECONDS, self._report)
