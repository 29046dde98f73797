"""The pool controller: allocators, the Ready condition and the counts of pools, and releases by an administrator."""

import random
from collections.abc import Callable
from typing import Final

import structlog

from devenv.harvester.allocators import Allocators
from devenv.harvester.loadbalancers import now_text
from devenv.harvester.pools import Pick, PoolProblem, RangeProblem, counted, given_back
from devenv.harvester.queue import Retry
from devenv.harvester.records import (
    Records,
    is_deleting,
    with_condition,
    with_finalizer,
    without_finalizer,
)
from devenv.harvester.versions import V1_9, Version
from devenv.watch import Document, annotations_of, key_of
from harvester_ccm.kube.errors import KubeError

FINALIZER: Final = "wrangler.cattle.io/harvester-ipam-controller"
RELEASE: Final = "loadbalancer.harvesterhci.io/manuallyReleaseIP"
"""Annotation by which an administrator releases an allocation whose load balancer is gone: ``ip: namespace/name``."""

log = structlog.get_logger(__name__)


class PoolController:
    """Reconciles pools."""

    def __init__(
        self,
        pools: Records,
        balancers: Records,
        allocators: Allocators,
        *,
        now: Callable[[], str] = now_text,
        pick: Pick = random.choice,
        version: Version = V1_9,
    ) -> None:
        self._pools = pools
        self._balancers = balancers
        self._allocators = allocators
        self._now = now
        self._pick = pick
        self._version = version

    async def reconcile(self, key: str) -> float | None:
        """Reconcile one pool. Raises Retry or KubeError for a backoff."""
        pool = self._pools.get(key)
        if pool is None:
            return None
        if is_deleting(pool):
            await self._remove(key, pool)
            return None
        failure: Retry | KubeError | None = None
        try:
            await self._ensure_allocator(pool)
        except (Retry, KubeError) as error:
            failure = error
        # Other handlers follow, also after an error, with the same copy: after a write of its status, it is outdated.
        pool = await self._release_by_hand(pool)
        owned = with_finalizer(pool, FINALIZER)
        if owned is not pool:
            await self._pools.put(owned)
        if failure is not None:
            raise failure
        return None

    async def _remove(self, key: str, pool: Document) -> None:
        bare = without_finalizer(pool, FINALIZER)
        if bare is not pool:
            self._allocators.drop(key)
            await self._pools.put(bare)

    async def _ensure_allocator(self, pool: Document) -> None:
        """Build the allocator for new ranges, and write the status of the pool once."""
        if self._allocators.fits(pool):
            return
        try:
            self._allocators.build(pool)
            wanted = counted(pool)
        except (PoolProblem, RangeProblem) as problem:
            log.warning("pool unusable", pool=key_of(pool), error=str(problem))
            raise Retry(str(problem)) from problem
        status = with_condition(wanted["status"], ready=True, message="", now=self._now())
        if status != pool.get("status"):
            await self._pools.put({**pool, "status": status})

    async def _release_by_hand(self, pool: Document) -> Document:
        """Release the allocation that the annotation names, and return the pool without the annotation."""
        order = annotations_of(pool).get(RELEASE, "")
        if not order or not self._version.releases_by_hand:
            return pool
        owner = self._owner_to_release(pool, order)
        if owner:
            if self._allocators.ranges_of(key_of(pool)) is None:
                raise Retry(f"IP Pool {key_of(pool)} has a manual IP release request {order}, fail to get allocator")
            await self._pools.put(given_back(pool, owner, self._pick))
        annotations = {key: value for key, value in annotations_of(pool).items() if key != RELEASE}
        return await self._pools.put({**pool, "metadata": {**pool["metadata"], "annotations": annotations}})

    def _owner_to_release(self, pool: Document, order: str) -> str:
        """Return the owner of the allocation; empty if there is no such allocation or its load balancer exists."""
        address, _, owner = order.strip(" ").partition(":")
        owner = owner.strip(" ")
        if ((pool.get("status") or {}).get("allocated") or {}).get(address) != owner:
            return ""
        return "" if self._balancers.get(owner) is not None else owner
