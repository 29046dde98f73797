"""When to send: the clock, backoff after failures, token buckets, and the limit on writes that concern one object.

Two controllers that insist on different values of one field write forever, each as fast as the API server responds. One
limit per object covers every write that this controller sends on its behalf: to the Service and its load balancer, or
to the Node. It needs neither the field nor the other writer: a burst of writes is always allowed, so ordinary
operation never waits, and afterwards one write per interval keeps the object correct most of the time.
"""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from typing import Final

from harvester_ccm.errors import CCMError

BACKOFF_SECONDS: Final = 0.5
MAX_BACKOFF_SECONDS: Final = 30.0
"""First and longest delay after failures."""
_MAX_EXPONENT: Final = 64
"""A larger exponent would overflow a float."""
WRITE_BURST: Final = 20
"""Maximum number of writes for one object without a pause; a Service takes four from its creation to its address."""
WRITE_INTERVAL_SECONDS: Final = 30.0
"""Time between two writes for an object whose burst is used up."""
MAX_OBJECTS: Final = 4096
"""Maximum number of objects with a token bucket."""


def loop_time() -> float:
    """Return the monotonic time of the running event loop, in seconds. Tests advance it."""
    return asyncio.get_running_loop().time()


def wall_time() -> str:
    """Return the wall time in the format of the Kubernetes API."""
    return time_text(datetime.now(UTC))


def time_text(time: datetime) -> str:
    """Return a time in the format of the Kubernetes API, such as ``2026-01-31T12:00:00Z``."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pause_after(error: BaseException | None, failures: int, *, growth: float = 2.0) -> float:
    """Return the delay in seconds after the n-th failure in a row.

    It is the server's Retry-After, or else grows exponentially by the factor ``growth``, with jitter.
    """
    if isinstance(error, CCMError) and error.retry_after is not None:
        return error.retry_after
    return min(MAX_BACKOFF_SECONDS, BACKOFF_SECONDS * (growth ** min(failures - 1, _MAX_EXPONENT) + random.random()))


class WriteRateLimiter:
    """Token bucket for each object: ``burst`` writes, then one per ``interval`` seconds, whatever their cause."""

    def __init__(self, burst: int = WRITE_BURST, interval: float = WRITE_INTERVAL_SECONDS) -> None:
        self._burst = burst
        self._interval = interval
        self._full_at: dict[str, float] = {}
        """Loop time at which the bucket of each UID is full again, the least recently used first."""

    def delay(self, uid: str, *, writes: int = 1, terminating: bool = False) -> float:
        """Return the seconds until this number of writes is allowed for the object with this UID.

        A terminating object never waits: its finalizer must not stay because of earlier writes.
        """
        if terminating or uid not in self._full_at:
            return 0.0
        return max(0.0, self._full_at[uid] - loop_time() + (writes - self._burst) * self._interval)

    def record(self, uid: str) -> None:
        """Count one write for the object. The bucket can become overdrawn."""
        self._full_at[uid] = max(loop_time(), self._full_at.pop(uid, 0.0)) + self._interval
        if len(self._full_at) > MAX_OBJECTS:
            del self._full_at[next(iter(self._full_at))]
