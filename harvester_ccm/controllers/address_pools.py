"""The IP pools in which this cluster may request addresses: the review of the rights, and the requests themselves.

The credential of most clusters has no right on IP pools at all. Harvester's administrator grants some clusters ``get``
and ``patch`` on single pools, which one review shows. It is asked at the start and again with each resync, because the
administrator can change that at any time.
"""

import asyncio
import random
from typing import Final

import structlog

from harvester_ccm.controllers.caches import Caches
from harvester_ccm.kube.backoff import repeat
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import KubeError, NotFound
from harvester_ccm.kube.reviews import REFUSALS, RULES_REVIEWS, ReviewStatus, ask_review
from harvester_ccm.kube.workqueue import RESYNC_JITTER, RESYNC_SECONDS
from harvester_ccm.model.harvester import IP_POOLS
from harvester_ccm.plan.service.allocation.address_pools import ObservedPool, PoolRights, rights_of
from harvester_ccm.plan.service.desired import SeedPool

REFUSED_ATTEMPTS: Final = 10
"""Refusals in a row, in about two minutes, after which there are no rights."""

log = structlog.get_logger(__name__)


class AddressPools:
    """Harvester's IP pools, as far as this cluster may read and write them."""

    def __init__(self, harvester: ApiClient, caches: Caches) -> None:
        """``caches`` get the rights."""
        self._harvester = harvester
        self._caches = caches

    async def run(self) -> None:
        """Ask for the rights at once and with each resync, until cancelled."""
        while True:
            self._caches.set_pool_rights(await repeat(self.review, on=KubeError, what="review of permissions failed"))
            await asyncio.sleep(RESYNC_SECONDS * random.uniform(1 - RESYNC_JITTER, 1))

    async def review(self) -> PoolRights:
        """Return the rights; none if Harvester goes on refusing the question. Raises KubeError if it does not answer.

        A Service that is created without the rights gets any address and keeps it. So one refusal is not enough: the
        roles of this cluster may be being replaced.
        """
        try:
            answer = await repeat(self._ask, on=REFUSALS, attempts=REFUSED_ATTEMPTS)
        except REFUSALS as error:
            log.warning("review of permissions refused", effect="no address can be requested", error=str(error))
            return PoolRights()
        return rights_of(answer.resource_rules or ())

    async def _ask(self) -> ReviewStatus:
        return await ask_review(self._harvester, RULES_REVIEWS, {"namespace": self._harvester.namespace})

    async def read(self, name: str) -> ObservedPool:
        """Return an IP pool as it is now. Raises Forbidden and the other errors of a request."""
        try:
            return ObservedPool(name, await self._harvester.get(IP_POOLS, name))
        except NotFound:
            return ObservedPool(name, None)

    async def request(self, write: SeedPool) -> ObservedPool:
        """Request an address in its pool and return the pool. Raises Conflict if it has changed since it was read."""
        try:
            pool = await self._harvester.merge_patch(IP_POOLS, write.pool, write.patch)
        except NotFound:
            return ObservedPool(write.pool, None)
        log.info("address requested", pool=write.pool, address=write.address, lb=write.owner)
        return ObservedPool(write.pool, pool)
