"""What is measured of one work queue: who waits since when, who is being worked on, and what keys wait for."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct
from prometheus_client import Counter, Histogram

from harvester_ccm.kube.workqueue import QueueObserver

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class QueueMetrics(Struct, frozen=True):
    """The metrics of queues that cannot be computed at scrape time."""

    adds: Counter
    retries: Counter
    queue_seconds: Histogram
    work_seconds: Histogram


class Queue(QueueObserver):
    """Observer of one queue."""

    def __init__(self, name: str, metrics: QueueMetrics, clock: Callable[[], float]) -> None:
        self.name = name
        self._adds = metrics.adds.labels(name)
        self._retries = metrics.retries.labels(name)
        self._queue_seconds = metrics.queue_seconds.labels(name)
        self._work_seconds = metrics.work_seconds.labels(name)
        self._clock = clock
        self._waiting: dict[str, float] = {}
        self._working: dict[str, float] = {}
        self._reasons: dict[str, str] = {}

    def added(self, key: str) -> None:
        """The key waits for a worker."""
        self._waiting[key] = self._clock()
        self._adds.inc()

    def started(self, key: str) -> None:
        """A worker has taken the key."""
        now = self._clock()
        self._queue_seconds.observe(now - self._waiting.pop(key, now))
        self._working[key] = now

    def finished(self, key: str) -> None:
        """The worker is done with the key, whatever came of it."""
        now = self._clock()
        self._work_seconds.observe(now - self._working.pop(key, now))

    def answered(self, key: str, waits_for: str) -> None:
        """The work on the key succeeded; ``waits_for`` is what it still needs, empty for nothing."""
        if waits_for:
            self._reasons[key] = waits_for
        else:
            self._reasons.pop(key, None)

    def failed(self, key: str, error: Exception) -> None:
        """The work on the key failed and will be tried again."""
        self._retries.inc()
        self._reasons[key] = _WORD_START.sub("_", type(error).__name__).lower()

    def reason(self, key: str) -> str:
        """Return in one word what the key waits for; empty when nothing is known."""
        return self._reasons.get(key, "")

    @property
    def depth(self) -> int:
        """Keys that wait for a worker."""
        return len(self._waiting)

    @property
    def oldest_seconds(self) -> float:
        """Seconds for which the first key has waited; 0 when none does."""
        return self._age(next(iter(self._waiting.values()), None))

    @property
    def unfinished_seconds(self) -> float:
        """Seconds spent on the keys that are being worked on, added up."""
        now = self._clock()
        return sum(now - since for since in self._working.values())

    @property
    def longest_seconds(self) -> float:
        """Seconds spent on the key that is being worked on for longest; 0 when none is."""
        return self._age(min(self._working.values(), default=None))

    def _age(self, since: float | None) -> float:
        return 0.0 if since is None else self._clock() - since
