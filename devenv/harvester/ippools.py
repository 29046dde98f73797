"""The pool controller: sets the Ready condition and the counts of pools."""

from collections.abc import Callable
from typing import Final

import structlog

from devenv.harvester.loadbalancers import now_text
from devenv.harvester.pools import RangeProblem, counted
from devenv.harvester.records import (
    Records,
    is_deleting,
    with_condition,
    with_finalizer,
    without_finalizer,
)

FINALIZER: Final = "wrangler.cattle.io/harvester-ipam-controller"

log = structlog.get_logger(__name__)


class PoolController:
    """Reconciles pools."""

    def __init__(self, pools: Records, *, now: Callable[[], str] = now_text) -> None:
        self._pools = pools
        self._now = now

    async def reconcile(self, key: str) -> float | None:
        """Reconcile one pool."""
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
        owned = with_finalizer(pool, FINALIZER)
        if owned is not pool:
            await self._pools.put(owned)
        return None
