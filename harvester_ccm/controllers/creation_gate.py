"""Admits one load balancer creation at a time, in the order of the requests.

Harvester's controller allocates addresses with two workers that collide on the pool. Each collision costs one of its
five writes per second, and sometimes the allocation itself: 100 Services take 39 s with one creation in flight, and
78 s if all are created at once. The deletion of a load balancer writes to the same pool, so it counts as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from harvester_ccm.config import ClusterIdentity
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.plan.service.messages import is_in_progress
from harvester_ccm.plan.service.ownership import seems_ours

RESPONSE_SECONDS: Final = 10.0
"""Maximum time for which a load balancer that Harvester does not respond to delays the others."""


class CreationGate:
    """Queue of the Services whose load balancers are to be created."""

    def __init__(self, enqueue: Callable[[str], None], cluster: ClusterIdentity) -> None:
        """``enqueue`` enqueues the Service that is next when the gate becomes free."""
        self._enqueue = enqueue
        self._cluster = cluster
        self._queue: dict[str, None] = {}
        """Keys of the queued Services; the first one stays until the reconcile that creates its load balancer ends."""
        self._operations: dict[str, asyncio.TimerHandle] = {}
        """Operations in progress in Harvester that have not timed out."""

    def admit(self, key: str) -> bool:
        """Return whether the Service can create its load balancer now; otherwise it is queued."""
        self._queue.setdefault(key)
        return not self._operations and next(iter(self._queue)) == key

    def reconciled(self, key: str, *, queued: bool) -> None:
        """Record that the reconcile of a Service ended, and whether it is still waiting for admission."""
        if not queued and key in self._queue:
            del self._queue[key]
            self._enqueue_next()

    def observe(self, old: LoadBalancer | None, new: LoadBalancer | None) -> None:
        """Record a change of a load balancer in the cache."""
        before, after = self._operation(old), self._operation(new)
        if before == after:
            return
        if (timer := self._operations.pop(before, None)) is not None:
            timer.cancel()
        if after:
            loop = asyncio.get_running_loop()
            self._operations[after] = loop.call_later(RESPONSE_SECONDS, self._timed_out, after)
        self._enqueue_next()

    def _operation(self, load_balancer: LoadBalancer | None) -> str:
        """Return the operation in progress for a load balancer of this cluster; empty if there is none."""
        if load_balancer is None or not seems_ours(load_balancer, self._cluster) or not is_in_progress(load_balancer):
            return ""
        return f"{'delete' if load_balancer.metadata.deleting else 'create'} {load_balancer.metadata.uid}"

    def _timed_out(self, operation: str) -> None:
        del self._operations[operation]
        self._enqueue_next()

    def _enqueue_next(self) -> None:
        if self._queue and not self._operations:
            self._enqueue(next(iter(self._queue)))
