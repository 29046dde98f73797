"""Rate limit of the writes that concern one object.

Two controllers that insist on different values of one field write forever, each as fast as the API server responds. One
limit per object covers every write that a controller sends on its behalf, also those to other objects. It is a token
bucket: a burst of writes is always allowed, so ordinary operation never waits. Each interval permits one more.
"""

from collections.abc import Iterable
from typing import Final

from harvester_ccm.kube.clock import loop_time

WRITE_BURST: Final = 20
"""Maximum number of writes for one object without a pause: several times what a new object takes."""
WRITE_INTERVAL_SECONDS: Final = 10.0
"""Time between two writes for an object whose burst is used up."""
WRITE_LIMIT: Final = f"after {WRITE_BURST} writes in a short time, there is one every {WRITE_INTERVAL_SECONDS:.0f} s"
"""The limit in words, for Events."""
MAX_OBJECTS: Final = 4096
"""Maximum number of objects with a token bucket."""


class WriteRateLimiter:
    """Token bucket for each object: ``burst`` writes, then one per ``interval`` seconds."""

    def __init__(self, burst: int = WRITE_BURST, interval: float = WRITE_INTERVAL_SECONDS) -> None:
        self._interval = interval
        self._burst_seconds = (burst - 1) * interval
        """Time after which the bucket is full again if one token was left."""
        self._full_at: dict[str, float] = {}
        """Loop time at which a bucket is full again, by UID, the least recently used first."""
        self._fields: dict[str, set[str]] = {}
        """The fields that were written since a bucket was full, by UID."""

    def delay(self, uid: str, *, is_urgent: bool = False) -> float:
        """Return the seconds until a write is allowed for the object with this UID.

        An urgent write never waits. The deletion of an object is urgent: earlier writes must not keep its finalizer.
        """
        if is_urgent or uid not in self._full_at:
            return 0.0
        return max(0.0, self._full_at[uid] - loop_time() - self._burst_seconds)

    def fields(self, uid: str) -> list[str]:
        """Return the fields that were written since the bucket of an object was full, sorted."""
        return sorted(self._fields.get(uid, ()))

    def record(self, uid: str, fields: Iterable[str] = ()) -> None:
        """Count one write of these fields for the object."""
        now = loop_time()
        # The most recently used one is the last.
        full_at = self._full_at.pop(uid, now)
        written = self._fields.pop(uid, set()) if full_at > now else set()
        self._full_at[uid] = max(now, full_at) + self._interval
        self._fields[uid] = written.union(fields)
        if len(self._full_at) > MAX_OBJECTS:
            oldest = next(iter(self._full_at))
            del self._full_at[oldest], self._fields[oldest]
