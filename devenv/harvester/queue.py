"""A work queue with client-go's rules, and its token bucket.

One worker per key at a time; a key that is added during its reconcile is reconciled again afterwards. A failed key is
retried after 5 ms, doubling up to 30 s, and after 2 minutes from the 31st failure on; adding a key makes it due
immediately. These are the times of the real controller.

An unexpected error is a failure of its key too. It is raised when the queue stops.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog

from harvester_ccm.kube.errors import KubeError

FIRST_RETRY: Final = 0.005
LONGEST_RETRY: Final = 30.0
LATE_RETRY: Final = 120.0
LATE_FROM: Final = 31
"""Number of the failure from which on ``LATE_RETRY`` applies."""

log = structlog.get_logger(__name__)


class Retry(Exception):
    """Raised by a reconcile to be retried with backoff."""


def retry_seconds(failures: int) -> float:
    """Return the backoff after the n-th consecutive failure, in seconds.

    >>> [retry_seconds(n) for n in (1, 2, 14, 31)]
    [0.005, 0.01, 30.0, 120.0]
    """
    if failures >= LATE_FROM:
        return LATE_RETRY
    return min(FIRST_RETRY * 2.0 ** (failures - 1), LONGEST_RETRY)


Reconcile = Callable[[str], Awaitable[float | None]]
"""Reconciles one key; returns the seconds until its next call, or None."""


class WorkQueue:
    """Queued keys and their workers."""

    def __init__(self, name: str, reconcile: Reconcile, *, workers: int) -> None:
        self._name = name
        self._reconcile = reconcile
        self._workers = workers
        self._due: asyncio.Queue[str] = asyncio.Queue()
        self._dirty: set[str] = set()
        self._busy: set[str] = set()
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._unexpected: dict[str, Exception] = {}
        """The first unexpected error of each key."""

    def add(self, key: str) -> None:
        """Make the key due now."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._busy:
            self._due.put_nowait(key)

    def add_limited(self, key: str) -> None:
        """Make the key due after a backoff, as for a failure: the handlers of Harvester wake load balancers so."""
        self._failures[key] = self._failures.get(key, 0) + 1
        self._add_later(key, retry_seconds(self._failures[key]))

    def _add_later(self, key: str, seconds: float) -> None:
        """Make the key due later, unless it will be earlier anyway."""
        loop = asyncio.get_running_loop()
        known = self._timers.get(key)
        if known is not None and known.when() <= loop.time() + seconds:
            return
        if known is not None:
            known.cancel()
        self._timers[key] = loop.call_later(seconds, self.add, key)

    def failures(self, key: str) -> int:
        """Return the number of consecutive failures of the key."""
        return self._failures.get(key, 0)

    @property
    def idle(self) -> bool:
        """Whether no key is due or reconciled; keys with a timer do not count."""
        return not self._dirty and not self._busy

    async def run(self) -> None:
        """Reconcile until cancelled; then drop queued keys. Raises the unexpected errors."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._workers):
                    group.create_task(self._work(), name=f"{self._name}-{number}")
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()
            self._failures.clear()
            self._dirty.clear()
            self._due = asyncio.Queue()
            unexpected, self._unexpected = self._unexpected, {}
            if unexpected:
                raise ExceptionGroup(f"{self._name}: {', '.join(unexpected)}", list(unexpected.values()))

    async def _work(self) -> None:
        while True:
            key = await self._due.get()
            self._dirty.discard(key)
            self._busy.add(key)
            try:
                pause = await self._attempt(key)
            finally:
                self._busy.discard(key)
            if key in self._dirty:
                self._due.put_nowait(key)
            elif pause is not None:
                self._add_later(key, pause)

    async def _attempt(self, key: str) -> float | None:
        try:
            pause = await self._reconcile(key)
        except (Retry, KubeError) as error:
            self._failures[key] = self._failures.get(key, 0) + 1
            log.debug("reconcile failed", queue=self._name, key=key, error=str(error))
            return retry_seconds(self._failures[key])
        except Exception as error:
            # An error of the emulator, or an unexpected object.
            self._failures[key] = self._failures.get(key, 0) + 1
            if key not in self._unexpected:
                log.exception("unexpected error in reconcile", queue=self._name, key=key)
                self._unexpected[key] = error
            return retry_seconds(self._failures[key])
        self._failures.pop(key, None)
        return pause


@dataclass(frozen=True)
class Pace:
    """The write rate of a controller, and whether its caches are stale after a write."""

    qps: float | None
    """Writes per second, for load balancers and pools together; None means unlimited."""
    burst: int = 10
    """Writes without delay after a pause."""
    lags: bool = True
    """Whether its caches are updated only by watches, also after its own writes."""


STOCK: Final = Pace(qps=5.0)
"""Harvester as it is installed: client-go's limits, and informers."""
FAST: Final = Pace(qps=None, lags=False)
"""Unlike any Harvester: for tests and measurements of the controller alone."""


class TokenBucket:
    """Allows ``qps`` calls per second after a first ``burst``; unlimited if ``qps`` is None."""

    def __init__(self, qps: float | None, burst: int) -> None:
        self._qps = qps
        self._burst = burst
        self._next = float("-inf")
        """Time of the next token if the bucket had no burst."""

    async def take(self) -> None:
        """Wait for a token. Tokens are assigned in the order of the calls."""
        if self._qps is None:
            return
        now = asyncio.get_running_loop().time()
        self._next = max(self._next, now - self._burst / self._qps) + 1 / self._qps
        if self._next > now:
            await asyncio.sleep(self._next - now)
