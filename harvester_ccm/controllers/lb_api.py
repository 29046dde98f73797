"""Harvester's load balancers, read and written in the version of its API that Harvester serves, also after an upgrade.

The newest is taken for granted until Harvester answers that it is not there, so that it costs no request. While an
older one is spoken Harvester is asked for the newer again and again, some times a minute at most.

A load balancer is written in the version in which it was read, and only while the cache reads that version. In the
older one it is written only after a look that Harvester does not serve the newer one yet: a Harvester that has just
been upgraded drops from such a write what only the newer version has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog

from harvester_ccm.errors import AlreadyExists, Answer, CCMError, Conflict, NotFound, NotServed
from harvester_ccm.kube.brakes import Path
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.informer import Informer, Selection
from harvester_ccm.kube.managed_fields import ask_writers
from harvester_ccm.kube.versions import versions_serving
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer, choose_load_balancers, load_balancers_in
from harvester_ccm.model.meta import Resource
from harvester_ccm.plan.service.load_balancer import Document, LoadBalancerChange, changed_document

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


class BalancerWrites:
    """Writes to the load balancers of one namespace, with the answers in the cache at once."""

    def __init__(
        self,
        harvester: ApiClient,
        cache: Informer[LoadBalancer],
        namespace: str,
        *,
        making: Callable[[str], None] = lambda _name: None,
    ) -> None:
        """``making`` is told the name of each load balancer that is about to be created."""
        self._harvester = harvester
        self._cache = cache
        self._namespace = namespace
        self._making = making

    def get(self, name: str) -> LoadBalancer | None:
        """Return the load balancer of a name as it is known."""
        return self._cache.get(f"{self._namespace}/{name}")

    async def writers(self, load_balancer: LoadBalancer, path: Path) -> tuple[str, ...]:
        """Return who writes a field of a load balancer."""
        return await ask_writers(self._harvester, self._cache.resource, load_balancer.metadata, path)

    async def look(self, name: str) -> tuple[LoadBalancer, ...] | None:
        """Return the load balancer of a name, or that there is none; None where that cannot be known either."""
        try:
            return (await self._harvester.get(self._cache.resource, name, namespace=self._namespace),)
        except NotFound:
            return ()
        except CCMError as error:
            log.debug("load balancer not looked up", lb=name, error=str(error))
            return None

    async def create(self, name: str, body: Document) -> None:
        """Create a load balancer. Raises Conflict when it exists: the cache is behind, and what exists decides."""
        resource = load_balancers_in(str(body["apiVersion"]))
        await self._check(str(body["apiVersion"]), name)
        self._making(name)
        try:
            created = await self._harvester.create(resource, body, namespace=self._namespace)
        except AlreadyExists as error:
            self._observe(await self._harvester.get(resource, name, namespace=self._namespace))
            raise Conflict(error.answer) from error
        self._observe(created)

    async def replace(self, name: str, document: Document, change: LoadBalancerChange) -> LoadBalancer:
        """Write a load balancer whole, as it is with a change made, and return it.

        Raises Conflict when it is gone or not the cached one any more, or when Harvester did not take the change, as
        one in the middle of an upgrade does: to repeat that at once would be to repeat it without end.
        """
        resource = load_balancers_in(str(document["apiVersion"]))
        await self._check(str(document["apiVersion"]), name)
        try:
            written = await self._harvester.replace(resource, name, document, namespace=self._namespace)
        except NotFound as error:
            raise Conflict(error.answer) from error
        if resource != LOAD_BALANCERS and changed_document(written, change) != written.document():
            raise _conflict(name, f"Harvester did not take a change of it in {resource.version}; is it being upgraded?")
        self._observe(written)
        return written

    async def delete(self, name: str, uid: str, version: str, *, is_right: Callable[[], bool]) -> bool:
        """Delete that very load balancer as it was in this version; return whether it was there.

        ``is_right`` says, when the request has waited for the Lease, whether it still should leave. Raises Conflict
        where it should not, and when it is another load balancer or has changed: what it was decided on is past.
        """
        resource, namespace = self._cache.resource, self._namespace
        try:
            await self._harvester.delete(
                resource, name, namespace=namespace, uid=uid, version=version, is_right=is_right
            )
        except NotFound:
            return False
        return True

    async def _check(self, version: str, name: str) -> None:
        """Raise Conflict unless load balancers may be written in this version."""
        if load_balancers_in(version) != self._cache.resource:
            raise _conflict(name, f"load balancers are read in {self._cache.resource.version} by now")
        if self._cache.resource != LOAD_BALANCERS and await self._serves_newest(name):
            raise _conflict(name, "Harvester was upgraded; load balancers are read in its newer version in a moment")

    async def _serves_newest(self, name: str) -> bool:
        """Return whether Harvester serves the newest version now; what it says of its versions comes a moment later."""
        try:
            await self._harvester.get(LOAD_BALANCERS, name, namespace=self._namespace)
        except NotFound:
            return True
        except NotServed:
            return False
        return True

    def _observe(self, written: LoadBalancer) -> None:
        """Take an answer into the cache, unless that reads another version by now."""
        if load_balancers_in(written.api_version) == self._cache.resource:
            self._cache.observe(written)


def _conflict(name: str, message: str) -> Conflict:
    return Conflict(Answer(409, "Conflict", f"load balancer {name}: {message}", f"PUT {name}"))
