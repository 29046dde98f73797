"""Rate limit of the writes that concern one object.

Two controllers that insist on different values of one field write forever, each as fast as the API server responds. One
limit per object covers every write that a controller sends on its behalf, also those to other objects. It needs neither
the field nor the other writer: a burst of writes is always allowed, so ordinary operation never waits. Afterwards each
interval permits one write, and the writes that complete what it began: those of a field that this round has not written
with the same value. So the object has its last state after one interval, and another controller that reverts a field
causes one write of it per interval. A write that must not be the last one for an interval, because others belong to it,
waits for a new round, which has room for all of them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from harvester_ccm.kube.clock import loop_time

WRITE_BURST: Final = 20
"""Maximum number of writes for one object without a pause: several times what a new object takes."""
WRITE_INTERVAL_SECONDS: Final = 30.0
"""Time between two rounds of writes for an object whose burst is used up."""
WRITES_OF_A_ROUND: Final = 12
"""Maximum number of writes of one round, so the most that can belong together."""
WRITE_LIMIT: Final = (
    f"after {WRITE_BURST} writes in a short time, each field is written with the same value only every "
    f"{WRITE_INTERVAL_SECONDS:.0f} s"
)
"""The limit in words, for Events."""
MAX_OBJECTS: Final = 4096
"""Maximum number of objects with a token bucket."""


class _Bucket:
    """The token bucket of an object."""

    def __init__(self) -> None:
        self.full_at = 0.0
        """Loop time at which it is full again."""
        self.writes = 0
        """Writes of the present round, which began when a token was left."""
        self.round: set[tuple[str, int]] = set()
        """The fields of these writes, each with a hash of its value."""
        self.fields: Counter[str] = Counter()
        """How often each field was written since the bucket was full."""


class WriteRateLimiter:
    """Token bucket for each object: ``burst`` writes, then one round of writes per ``interval`` seconds."""

    def __init__(self, burst: int = WRITE_BURST, interval: float = WRITE_INTERVAL_SECONDS) -> None:
        self._burst = burst
        self._interval = interval
        self._buckets: dict[str, _Bucket] = {}
        """By UID, the least recently used first."""

    def delay(self, uid: str, fields: Mapping[str, str] = {}, *, writes: int = 1, is_urgent: bool = False) -> float:
        """Return the seconds until a write is allowed for the object with this UID.

        ``fields`` are its fields, as messages name them, with their new values. ``writes`` is the number of writes that
        belong together: this one, and others after it, each with a field or a value of its own. More than one begin
        with a new round, which has room for ``WRITES_OF_A_ROUND``. An urgent write never waits, such as one for an
        object that is being deleted: its finalizer must not stay because of earlier writes.
        """
        bucket = self._buckets.get(uid)
        if is_urgent or bucket is None:
            return 0.0
        if writes == 1 and self._completes_round(bucket, fields):
            return 0.0
        return max(0.0, self._until_token(bucket))

    def record(self, uid: str, fields: Mapping[str, str] = {}) -> None:
        """Count one write of these fields for the object."""
        now = loop_time()
        # The most recently used one is the last.
        bucket = self._buckets.pop(uid, None) or _Bucket()
        self._buckets[uid] = bucket
        if bucket.full_at <= now:
            bucket.fields.clear()
        if self._until_token(bucket) <= 0:
            bucket.round.clear()
            bucket.writes = 0
            # Only the first write of a round takes a token. Later ones, of which some come after many seconds, do not
            # delay the next round: the last of many changes would wait longer than one interval.
            bucket.full_at = max(now, bucket.full_at) + self._interval
        bucket.writes += 1
        bucket.round.update(_hashed(fields))
        bucket.fields.update(fields.keys())
        if len(self._buckets) > MAX_OBJECTS:
            del self._buckets[next(iter(self._buckets))]

    def repeated(self, uid: str, fields: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the fields of the object that were written most often since its bucket was full, sorted.

        They are all fields with at least half as many writes as the first one; without any, ``fields``, those of the
        write that has to wait.
        """
        bucket = self._buckets.get(uid)
        if bucket is None or not bucket.fields:
            return tuple(sorted(fields))
        most = max(bucket.fields.values())
        return tuple(sorted(name for name, writes in bucket.fields.items() if 2 * writes >= most))

    def _until_token(self, bucket: _Bucket) -> float:
        """Return the seconds until a token is there; not positive if there is one."""
        return bucket.full_at - loop_time() - (self._burst - 1) * self._interval

    def _completes_round(self, bucket: _Bucket, fields: Mapping[str, str]) -> bool:
        """Return whether a write belongs to the present round: it has a field or a value that is new there."""
        return bucket.writes < WRITES_OF_A_ROUND and not _hashed(fields) <= bucket.round


def _hashed(fields: Mapping[str, str]) -> set[tuple[str, int]]:
    """Return the fields with hashes of their values, which can be long."""
    return {(name, hash(value)) for name, value in fields.items()}
