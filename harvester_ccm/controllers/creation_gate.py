"""Admits one load balancer creation at a time, in the order of the requests.

Harvester's controller allocates addresses with two workers that collide on the pool. Each collision costs one of its
five writes per second, and sometimes the allocation itself: 100 Services take 39 s with one creation in flight, and
78 s if all are created at once. The deletion of a load balancer writes to the same pool, so it counts as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.plan.service.pending import is_in_progress

RESPONSE_SECONDS: Final = 10.0
"""Maximum time for which a load balancer that Harvester does not respond to delays the others."""

_Operation = tuple[str, bool]
"""UID of a load balancer, and whether it is its deletion."""


class CreationGate:
    """Queue of the Services whose load balancers are to be created."""

    def __init__(self, enqueue: Callable[[str], None]) -> None:
        """``enqueue`` enqueues the Service that is next when the gate becomes free."""
        self._enqueue = enqueue
        self._queue: dict[str, None] = {}
        """Keys of the queued Services, the first one first."""
        self._admitted = ""
        """Key of the Service whose reconcile is creating a load balancer."""
        self._operations: dict[_Operation, asyncio.TimerHandle | None] = {}
        """Timers of the operations in progress in Harvester; None if one has timed out."""

    def admit(self, key: str) -> bool:
        """Return whether the Service can create its load balancer now; otherwise it is queued."""
        self._queue.setdefault(key)
        if self._is_busy() or next(iter(self._queue)) != key:
            return False
        self._admitted = key
        return True

    def reconciled(self, key: str, *, queued: bool) -> None:
        """Record that the reconcile of a Service ended, and whether it is still waiting for admission."""
        was_admitted = self._admitted == key
        if was_admitted:
            self._admitted = ""
        if not queued and key in self._queue:
            del self._queue[key]
            was_admitted = True
        if was_admitted:
            self._enqueue_next()

    def observe(self, load_balancer: LoadBalancer, *, gone: bool = False) -> None:
        """Record the state of a load balancer of this cluster in the cache; ``gone`` if it does not exist any more."""
        meta = load_balancer.metadata
        for operation in ((meta.uid, False), (meta.uid, True)):
            if not gone and operation[1] is meta.deleting and is_in_progress(load_balancer):
                if operation not in self._operations:
                    loop = asyncio.get_running_loop()
                    self._operations[operation] = loop.call_later(RESPONSE_SECONDS, self._timed_out, operation)
            elif (timer := self._operations.pop(operation, None)) is not None:
                timer.cancel()
                self._enqueue_next()

    def _timed_out(self, operation: _Operation) -> None:
        self._operations[operation] = None
        self._enqueue_next()

    def _is_busy(self) -> bool:
        return bool(self._admitted) or any(timer is not None for timer in self._operations.values())

    def _enqueue_next(self) -> None:
        if self._queue and not self._is_busy():
            self._enqueue(next(iter(self._queue)))
