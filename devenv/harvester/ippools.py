"""The pool controller: makes pools ready, keeps their counts, and carries out manual releases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from devenv.harvester.loadbalancers import now_text
from devenv.harvester.pools import RangeProblem, counted, given_back
from devenv.harvester.records import (
    Records,
    is_deleting,
    with_condition,
    with_finalizer,
    without_finalizer,
)
from devenv.watch import Document, annotations_of

FINALIZER: Final = "wrangler.cattle.io/harvester-ipam-controller"
RELEASE_ANNOTATION: Final = "loadbalancer.harvesterhci.io/manuallyReleaseIP"
"""An administrator's order ``<ip>: <namespace>/<name>``: forget this booking. IPv4 only."""

log = structlog.get_logger(__name__)


class PoolController:
    """Brings pools up to date, one key at a time."""

    def __init__(self, pools: Records, balancers: Records, *, now: Callable[[], str] = now_text) -> None:
        self._pools = pools
        self._balancers = balancers
        self._now = now

    async def reconcile(self, key: str) -> float | None:
        """Bring one pool up to date."""
        pool = self._pools.get(key)
        if pool is None:
            return None
        if is_deleting(pool):
            bare = without_finalizer(pool, FINALIZER)
            if bare is not pool:
                await self._pools.put(bare)
            return None
        try:
            wanted = counted(pool)
        except RangeProblem as problem:
            log.warning("pool unusable", pool=key, error=str(problem))
            return None
        status = with_condition(wanted["status"], ready=True, message="", now=self._now())
        wanted = {**wanted, "status": status}
        if wanted != pool:
            pool = await self._pools.put(wanted)
        order = annotations_of(pool).get(RELEASE_ANNOTATION)
        if order is not None:
            pool = await self._carry_out(order, pool)
        owned = with_finalizer(pool, FINALIZER)
        if owned is not pool:
            await self._pools.put(owned)
        return None

    async def _carry_out(self, order: str, pool: Document) -> Document:
        """Carry out a manual release in a write of its own; the order itself is dropped in every case.

        Raises Conflict where there was something to release: the order is dropped from the copy of before, as the real
        controller does, so that the next try does it.
        """
        address, _, owner = (part.strip() for part in order.partition(":"))
        booked_for = ((pool.get("status") or {}).get("allocated") or {}).get(address)
        if booked_for == owner and self._balancers.get(owner) is None:
            await self._pools.put(given_back(pool, owner))
        kept = {k: v for k, v in annotations_of(pool).items() if k != RELEASE_ANNOTATION}
        return await self._pools.put({**pool, "metadata": {**pool["metadata"], "annotations": kept}})
