"""The order in which load balancers are created in Harvester."""

import asyncio
from collections.abc import Callable
from typing import Final

from harvester_ccm.kube.turns import NamespaceTurns
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.plan.service.allocation.state import is_in_progress
from harvester_ccm.plan.service.ownership.owner import may_be_of_cluster

RESPONSE_SECONDS: Final = 10.0
"""Maximum time for which a load balancer that Harvester does not respond to delays the others."""


class CreationGate:
    """Admits one load balancer creation at a time: the namespaces in turn, and in the order of requests within each.

    Harvester's controller allocates addresses with two workers that collide on the pool. Each collision costs one of
    its five writes per second, and sometimes the allocation itself: 100 Services take 39 s with one creation in flight,
    and 78 s if all are created at once. The deletion of a load balancer writes to the same pool, so it counts as well,
    unless it began while the next creation was already waiting: somebody who deletes one load balancer after the other
    must not keep all others from getting theirs.
    """

    def __init__(self, enqueue: Callable[[str], None], cluster: ClusterIdentity) -> None:
        """``enqueue`` enqueues the Service that is next when the gate becomes free."""
        self._enqueue = enqueue
        self._cluster = cluster
        self._queue = NamespaceTurns()
        """Keys of the queued Services; the first one stays until the reconcile that creates its load balancer ends."""
        self._operations: dict[str, asyncio.TimerHandle] = {}
        """Operations in progress in Harvester that have not timed out."""
        self._delaying: set[str] = set()
        """Those of them that delay the next creation."""

    def admit(self, key: str) -> bool:
        """Return whether the Service can create its load balancer now; otherwise it is queued."""
        self._queue.add(key)
        return not self._delaying and self._queue.first() == key

    def reconciled(self, key: str, *, queued: bool) -> None:
        """Record that the reconcile of a Service ended, and whether it is still waiting for admission."""
        if queued or key not in self._queue:
            return
        if self._queue.first() == key:
            self._queue.take(key)
            # The next one waits for everything that is in progress now.
            self._delaying = set(self._operations)
        else:
            # It is not created any more, and its namespace keeps its turn.
            self._queue.remove(key)
        self._enqueue_next()

    def observe(self, old: LoadBalancer | None, new: LoadBalancer | None) -> None:
        """Record a change of a load balancer in the cache."""
        before = self._operation(old)
        after = self._operation(new)
        if before == after:
            return
        self._end(before)
        if after:
            self._begin(after, is_deletion=new is not None and new.metadata.deleting)
        self._enqueue_next()

    def _begin(self, operation: str, *, is_deletion: bool) -> None:
        loop = asyncio.get_running_loop()
        self._operations[operation] = loop.call_later(RESPONSE_SECONDS, self._timed_out, operation)
        if not is_deletion or not self._queue:
            self._delaying.add(operation)

    def _end(self, operation: str) -> None:
        """Forget an operation, if it is in progress."""
        timer = self._operations.pop(operation, None)
        if timer is not None:
            timer.cancel()
        self._delaying.discard(operation)

    def _operation(self, load_balancer: LoadBalancer | None) -> str:
        """Return the operation in progress for a load balancer of this cluster; empty if none exists."""
        if load_balancer is None:
            return ""
        # The text of a load balancer of another cluster is not even looked at.
        if not may_be_of_cluster(load_balancer, self._cluster):
            return ""
        if not is_in_progress(load_balancer):
            return ""
        verb = "delete" if load_balancer.metadata.deleting else "create"
        return f"{verb} {load_balancer.metadata.uid}"

    def _timed_out(self, operation: str) -> None:
        self._end(operation)
        self._enqueue_next()

    def _enqueue_next(self) -> None:
        key = self._queue.first()
        if key is not None and not self._delaying:
            self._enqueue(key)
