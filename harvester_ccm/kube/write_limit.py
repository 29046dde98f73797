"""Rate limit of the writes that concern one object: a token bucket, so ordinary operation never waits.

Two controllers that insist on different values of one field write forever, each as fast as the API server responds. One
limit per object covers every write that a controller sends on its behalf, also those to other objects.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from harvester_ccm.kube.clock import loop_time

WRITE_BURST: Final = 20
"""Maximum number of writes for one object without a pause: several times what a new object takes."""
WRITE_INTERVAL_SECONDS: Final = 10.0
"""Time between two writes for an object whose burst is used up."""
WRITE_LIMIT: Final = f"after {WRITE_BURST} writes in a short time, there is one every {WRITE_INTERVAL_SECONDS:.0f} s"
"""The limit in words, for Events."""
MAX_OBJECTS: Final = 4096
"""Maximum number of objects with a token bucket."""


class _Bucket(NamedTuple):
    """The token bucket of an object."""

    full_at: float
    """Loop time at which it is full again."""
    fields: frozenset[str] = frozenset()
    """The fields that were written since it was full."""


class WriteRateLimiter:
    """Token bucket for each object: ``burst`` writes, then one per ``interval`` seconds."""

    def __init__(self, burst: int = WRITE_BURST, interval: float = WRITE_INTERVAL_SECONDS) -> None:
        self._interval = interval
        self._burst_seconds = (burst - 1) * interval
        """Time after which the bucket is full again if one token was left."""
        self._buckets: dict[str, _Bucket] = {}
        """By UID, the least recently used first."""

    def delay(self, uid: str, *, is_urgent: bool = False) -> float:
        """Return the seconds until a write is allowed for the object with this UID.

        An urgent write never waits. The deletion of an object is urgent: earlier writes must not keep its finalizer.
        """
        bucket = self._buckets.get(uid)
        if is_urgent or bucket is None:
            return 0.0
        return max(0.0, bucket.full_at - loop_time() - self._burst_seconds)

    def fields(self, uid: str) -> list[str]:
        """Return the fields that were written since the bucket of an object was full, sorted."""
        bucket = self._buckets.get(uid)
        return [] if bucket is None else sorted(bucket.fields)

    def record(self, uid: str, fields: Iterable[str] = ()) -> None:
        """Count one write of these fields for the object."""
        now = loop_time()
        # The most recently used one is the last.
        bucket = self._buckets.pop(uid, None)
        if bucket is None or bucket.full_at <= now:
            bucket = _Bucket(now)
        self._buckets[uid] = _Bucket(bucket.full_at + self._interval, bucket.fields.union(fields))
        if len(self._buckets) > MAX_OBJECTS:
            del self._buckets[next(iter(self._buckets))]
