"""The emulator as a whole: mirrors, controllers and webhook of one Harvester API server.

    async with HarvesterEmulator(client, version="1.8") as harvester:
        await harvester.create_pool("lan", "127.77.0.0/24")

It needs an administrator's client of an API server with Harvester's resource definitions, and handles all namespaces.
On entry all caches are synced; on exit it is stopped, and an unexpected error in one of its parts is raised.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Self

from devenv.background import Background
from devenv.harvester import versions
from devenv.harvester.allocators import Allocators
from devenv.harvester.backends import Backends
from devenv.harvester.blocking import BlockingBackends
from devenv.harvester.cleanup import CleanUp
from devenv.harvester.hosts import Collector, HostVip
from devenv.harvester.ippools import FINALIZER as POOL_FINALIZER
from devenv.harvester.ippools import PoolController
from devenv.harvester.loadbalancers import LoadBalancerController
from devenv.harvester.pool_admission import labelled
from devenv.harvester.pools import Pick
from devenv.harvester.probes import Connects, connects
from devenv.harvester.queue import STOCK, Pace, TokenBucket, WorkQueue
from devenv.harvester.records import INSTANCES, LOAD_BALANCERS, MACHINES, POOLS, SERVICES, SLICES, Records, is_ready
from devenv.harvester.versions import NEWEST, Serving
from devenv.harvester.webhook import Webhook
from devenv.watch import Document, Mirror, key_of
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import NotFound

START_SECONDS: Final = 60.0
WORKERS: Final = 2
POLL_SECONDS: Final = 0.01
EFFECT_SECONDS: Final = 60.0

EVERYBODY: Final[Document] = {"scope": [{"project": "*", "namespace": "*", "guestCluster": "*"}]}
"""Selector of a pool for all projects, namespaces and guest clusters."""


@dataclass(frozen=True)
class Counts:
    """Numbers of objects."""

    balancers: int
    booked: int
    """Allocated addresses in all pools."""


@dataclass(frozen=True)
class Substitutes:
    """What a test in memory has in the place of chance and network."""

    pick: Pick
    """Selects one of several entries of a map."""
    connects: Connects
    """Says whether a backend accepts a connection."""


class HarvesterEmulator:
    """Harvester's handling of LoadBalancers and IPPools. Use as an async context manager."""

    def __init__(  # noqa: PLR0913 - what a Harvester consists of
        self,
        client: ApiClient,
        *,
        pace: Pace = STOCK,
        webhook: bool = True,
        dhcp_range: tuple[str, str] | None = None,
        collection_seconds: float = 1.0,
        substitutes: Substitutes | None = None,
        version: str = NEWEST,
    ) -> None:
        """``version``: of Harvester, one of ``versions.VERSIONS``.

        ``pace`` applies to its controllers. Services and EndpointSlices have separate buckets of the same size.

        ``dhcp_range``: first and last address of the DHCP server in the hosts' network; None means that no DHCP server
        responds. ``collection_seconds``: delay until generated objects of a deleted load balancer are deleted.
        """
        rules = versions.version(version)
        pick = substitutes.pick if substitutes else random.choice
        accepts = substitutes.connects if substitutes else connects
        self._client = client
        self._created: list[str] = []

        def bucket() -> TokenBucket:
            return TokenBucket(pace.qps, pace.burst)

        of_both = bucket()
        self.balancers = Records(client, LOAD_BALANCERS, bucket=of_both, lags=pace.lags)
        self.pools = Records(client, POOLS, bucket=of_both, lags=pace.lags)
        self.webhook = Webhook(client, rules) if webhook else None
        self.services = Records(client, SERVICES, bucket=bucket(), lags=pace.lags)
        self.slices = Records(client, SLICES, bucket=bucket(), lags=pace.lags)
        self.instances = Mirror(client, INSTANCES)
        machines = Mirror(client, MACHINES)
        self._mirrors: list[Mirror] = [
            *(self.pools, self.balancers, self.services, self.slices, self.instances, machines),
            *(self.webhook.rules.mirrors if self.webhook else ()),
        ]
        parts = (self.balancers, self.instances, self.services, self.slices)
        self._backends: Backends
        if rules.serving is Serving.BLOCKING:
            self._backends = BlockingBackends(*parts, connects=accepts)
        else:
            self._backends = Backends(*parts, connects=accepts, words=rules.words)
        clean_up = CleanUp(self.balancers, machines)
        self.host_vip = HostVip(self.services, dhcp_range)
        collector = Collector(self.balancers, (self.services, self.slices), delay=collection_seconds)
        self._allocators = Allocators()
        balancers = LoadBalancerController(
            self.balancers, self.pools, self._allocators, self._backends, pick=pick, version=rules
        )
        self._queue = WorkQueue("loadbalancers", balancers.reconcile, workers=WORKERS)
        self.balancers.subscribe(enqueue(self._queue))
        self._backends.on_wake(self._queue.add_limited)
        pool_controller = PoolController(self.pools, self.balancers, self._allocators, pick=pick, version=rules)
        self._pool_queue = WorkQueue("ippools", pool_controller.reconcile, workers=WORKERS)
        self.pools.subscribe(enqueue(self._pool_queue))
        self._caches = Background("harvester-caches", [mirror.run for mirror in self._mirrors])
        jobs = [
            self._backends.run,
            self.host_vip.run,
            collector.run,
            self._pool_queue.run,
            self._queue.run,
        ]
        if rules.cleans_up:
            jobs.append(clean_up.run)
        self._background = Background("harvester", jobs)

    async def __aenter__(self) -> Self:
        await self._start()
        try:
            if self.webhook is not None:
                await self.webhook.__aenter__()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if self.webhook is not None:
                await self.webhook.__aexit__()
        finally:
            try:
                await self._stop()
            finally:
                await self._delete_pools()

    @asynccontextmanager
    async def stopped(self) -> AsyncIterator[None]:
        """Stop the controllers during the block. The webhook continues to respond."""
        await self._stop()
        try:
            yield
        finally:
            await self._start()

    async def _start(self) -> None:
        self._allocators.clear()
        await self._caches.start([mirror.wait_synced for mirror in self._mirrors], within=START_SECONDS)
        # A controller reconciles everything at its start. The mirrors report only what has changed meanwhile.
        for records, queue in ((self.pools, self._pool_queue), (self.balancers, self._queue)):
            for document in records.all():
                queue.add(key_of(document))
        await self._background.start([], within=START_SECONDS)

    async def _stop(self) -> None:
        try:
            await self._background.stop()
        finally:
            await self._caches.stop()

    async def create_pool(self, name: str, *ranges: str | Document, selector: Document | None = None) -> Document:
        """Create a pool and return it once it is ready. It is deleted when the emulator stops.

        A range is a CIDR or an entry of ``spec.ranges``. Without a selector the pool is for all clusters. Raises
        AdmissionDenied if the webhook rejects it, TimeoutError if it does not become ready.
        """
        entries = [{"subnet": entry} if isinstance(entry, str) else entry for entry in ranges]
        pool = {
            "apiVersion": POOLS.api_version,
            "kind": POOLS.kind,
            "metadata": {"name": name},
            "spec": {"ranges": entries, "selector": EVERYBODY if selector is None else selector},
        }
        await self._client.create(POOLS, pool if self.webhook else labelled(pool))
        self._created.append(name)

        def usable() -> Document | None:
            known = self.pools.get(name)
            if known is None or not is_ready(known):
                return None
            if self.webhook is not None and self.webhook.rules.pools.get(name) is None:
                return None
            return known if POOL_FINALIZER in known["metadata"].get("finalizers", ()) else None

        async with asyncio.timeout(EFFECT_SECONDS):
            while (found := usable()) is None:  # noqa: ASYNC110 - a mirror has no event per object
                await asyncio.sleep(POLL_SECONDS)
        return found

    async def counts(self, namespace: str | None = None) -> Counts:
        """Return the numbers of load balancers and of allocated addresses, by a live list.

        With ``namespace``, only load balancers of that namespace and their addresses count.
        """
        return await counts_of(self._client, namespace)

    def failures(self, key: str) -> int:
        """Return the number of consecutive failures of the load balancer ``namespace/name``."""
        return self._queue.failures(key)

    async def _delete_pools(self) -> None:
        for name in self._created:
            with suppress(NotFound):
                await self._client.merge_patch(POOLS, name, {"metadata": {"finalizers": None}})
                await self._client.delete(POOLS, name)


def enqueue(queue: WorkQueue) -> Callable[[Document | None, Document | None], None]:
    """Return a subscriber that enqueues the key of the changed object."""

    def changed(before: Document | None, after: Document | None) -> None:
        document = after or before
        if document is not None:
            queue.add(key_of(document))

    return changed


async def counts_of(client: ApiClient, namespace: str | None = None) -> Counts:
    """Return the numbers of load balancers and of allocated addresses of a Harvester, by a live list."""
    balancers = await client.list(LOAD_BALANCERS, namespace=namespace)
    pools = (await client.list(POOLS)).items
    owners = [owner for pool in pools for owner in ((pool.get("status") or {}).get("allocated") or {}).values()]
    booked = [owner for owner in owners if namespace is None or owner.startswith(f"{namespace}/")]
    return Counts(len(balancers.items), len(booked))
