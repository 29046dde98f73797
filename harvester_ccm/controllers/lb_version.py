"""The version of Harvester's load balancer API: chosen by what Harvester serves, again after an upgrade of it.

The newest is taken for granted until Harvester answers that it is not there, so that it costs no request. While an
older one is spoken Harvester is asked for the newer again and again, some times a minute at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog

from harvester_ccm.errors import CCMError, NotServed
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.informer import Informer, Selection
from harvester_ccm.kube.versions import versions_serving
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer, choose_load_balancers
from harvester_ccm.model.meta import Resource

JUST_ASKED_SECONDS: Final = 1.0
"""An answer so new is not asked for again."""
EARLY_SECONDS: Final = 15.0
"""A watch that ends sooner than this after the last question may have ended because versions change."""
SETTLING_SECONDS: Final = 2.0
"""What a server says of its versions follows a change of them, which ends all watches, a moment later."""

log = structlog.get_logger(__name__)


class HarvesterVersion:
    """The choice, and when it was last looked at."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._resource = LOAD_BALANCERS
        self._asked = float("-inf")
        self._told = ""
        self._trouble: type[CCMError] | None = None

    async def choose(self, error: CCMError | None) -> Resource[LoadBalancer]:
        """Return the resource to read, after the question to Harvester where it may be another one by now."""
        age = asyncio.get_running_loop().time() - self._asked
        if isinstance(error, NotServed):
            await self._look()
        elif self._resource != LOAD_BALANCERS and age >= JUST_ASKED_SECONDS:
            if age < EARLY_SECONDS:
                await asyncio.sleep(SETTLING_SECONDS)
            await self._look()
        return self._resource

    async def _look(self) -> None:
        self._asked = asyncio.get_running_loop().time()
        try:
            served = await versions_serving(self._client, LOAD_BALANCERS.group, LOAD_BALANCERS.plural)
        except CCMError as error:
            if self._trouble is not type(error):
                log.warning("harvester not asked for its load balancer API", error=str(error))
            self._trouble = type(error)
            return
        self._trouble = None
        chosen = choose_load_balancers(served, self._resource)
        if chosen != self._resource:
            self._resource = chosen
            self.tell()

    def tell(self) -> None:
        """Log the choice, unless that was done."""
        if self._told != self._resource.version:
            self._told = self._resource.version
            log.info("harvester load balancer API", version=self._told)


def follow_load_balancers(
    client: ApiClient, selection: Selection, *, indexes: Mapping[str, Callable[[LoadBalancer], Iterable[str]]]
) -> Informer[LoadBalancer]:
    """Return the informer of Harvester's load balancers, in whichever version it serves them."""
    version = HarvesterVersion(client)
    informer = Informer(client, LOAD_BALANCERS, selection, indexes=indexes, choose=version.choose)

    def tell() -> None:
        if informer.synced:
            version.tell()

    informer.on_state(tell)
    return informer
