"""Load balancers that came to be while this process led, and that it has not made.

A copy of this cluster that was never renamed (machines of one golden image, a snapshot restored beside the original)
writes the same name and marks on its load balancers. Nothing that is written tells them apart, but only one process of
a cluster makes load balancers at a time. What another one makes meanwhile is a copy's.

That can be said once all that earlier leaders made has been seen. Harvester may be away when this process begins to
lead; what it shows when it is back may be the work of years. So may what it shows when a backup of it was restored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.plan.service.ownership import STRANGE, service_key

LATE_CREATION: Final = 60.0
"""Seconds after which no request of an earlier leader is under way any more, and nothing that it made is unseen."""
MEMORY: Final = 10_000
"""So many of those that are made, and of those that are gone, are remembered."""

log = structlog.get_logger(__name__)


class Births:
    """Knows whose hand made a load balancer, of those that were not there before."""

    def __init__(self, load_balancers: Informer[LoadBalancer], *, memory: int = MEMORY) -> None:
        """Build it before everybody who asks: it has to hear of a load balancer first."""
        self._memory = memory
        self._load_balancers = load_balancers
        self._led_since: float | None = None
        self._readable_since: float | None = None
        self._has_seen_all = False
        """Whether all that was made before this process led, or by itself, is known."""
        self._made: dict[str, None] = {}
        """Names, the oldest first."""
        self._gone: dict[str, None] = {}
        """UIDs: one that was there before has come back with the backup of a server."""
        self._strange_and_gone: dict[str, None] = {}
        """The same of those that were made by somebody else, which they are still when they come back."""
        self.strange: set[str] = set()
        """UIDs of load balancers that were made by somebody else and seem to be ours."""
        self._seems_ours: Callable[[LoadBalancer], bool] = lambda _load_balancer: True
        load_balancers.on_change(self._changed)
        load_balancers.on_state(self._state_changed)

    def lead(self, seems_ours: Callable[[LoadBalancer], bool]) -> None:
        """Take note that from now on this process alone makes load balancers for this cluster.

        Those that do not seem to be ours are made by ordinary clusters beside it.
        """
        self._seems_ours = seems_ours
        self._led_since = asyncio.get_running_loop().time()

    def making(self, name: str) -> None:
        """Take note that this process is about to make a load balancer."""
        self._remember(self._made, name)

    def _state_changed(self) -> None:
        self._look_back()
        if not self._load_balancers.synced or self._load_balancers.problem is not None:
            self._readable_since = None
        elif self._readable_since is None:
            self._readable_since = asyncio.get_running_loop().time()

    def _changed(self, old: LoadBalancer | None, new: LoadBalancer | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            was_strange = old.metadata.uid in self.strange
            self.strange.discard(old.metadata.uid)
            self._remember(self._strange_and_gone if was_strange else self._gone, old.metadata.uid)
        if new is None or (old is not None and new.metadata.uid == old.metadata.uid):
            return
        self._look_back()
        meta = new.metadata
        if meta.uid in self._strange_and_gone or (
            self._seems_ours(new) and meta.uid not in self._gone and meta.name not in self._made and self._has_seen_all
        ):
            self.strange.add(meta.uid)
            log.warning("load balancer made by somebody else", lb=meta.key, service=service_key(new), detail=STRANGE)

    def _look_back(self) -> None:
        """Find out whether Harvester has been readable for long enough since this process leads."""
        if self._led_since is None or self._readable_since is None:
            return
        now = asyncio.get_running_loop().time()
        self._has_seen_all |= now - max(self._led_since, self._readable_since) >= LATE_CREATION

    def _remember(self, known: dict[str, None], one: str) -> None:
        """Add to what is remembered; what has been there longest gives way."""
        known.pop(one, None)
        known[one] = None
        if len(known) > self._memory:
            del known[next(iter(known))]
