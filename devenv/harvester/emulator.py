"""The emulator as a whole: mirrors, controllers and webhook of one Harvester API server.

    async with HarvesterEmulator(client) as harvester:
        await harvester.create_pool("lan", "127.77.0.0/24")

It needs an administrator's client of an API server that has Harvester's resource definitions, and works on all
namespaces. On entry everything is in sync; on exit nothing of it runs any more. An unexpected error in one of its
parts is raised on exit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import structlog

from devenv.background import Background, Job
from devenv.harvester.backends import Backends, Collections
from devenv.harvester.forwarding import Forwarding
from devenv.harvester.hosts import Collector, HostVip
from devenv.harvester.ippools import FINALIZER as POOL_FINALIZER
from devenv.harvester.ippools import PoolController
from devenv.harvester.loadbalancers import LoadBalancerController
from devenv.harvester.pool_admission import labelled
from devenv.harvester.queue import STOCK, Pace, TokenBucket, WorkQueue
from devenv.harvester.records import INSTANCES, LOAD_BALANCERS, MACHINES, POOLS, SERVICES, SLICES, Records, is_ready
from devenv.harvester.removal import ClusterRemoval
from devenv.harvester.routes import Routes
from devenv.harvester.webhook import NETWORKS, Webhook
from devenv.watch import Document, Mirror, key_of
from harvester_ccm.errors import CCMError, NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.meta import Resource

START_SECONDS: Final = 60.0
WORKERS: Final = 2
POLL_SECONDS: Final = 0.01
EFFECT_SECONDS: Final = 60.0

log = structlog.get_logger(__name__)

EVERYBODY: Final[Document] = {"scope": [{"project": "*", "namespace": "*", "guestCluster": "*"}]}
"""Selector of a pool that serves everybody."""


@dataclass(frozen=True)
class Counts:
    """How much exists."""

    balancers: int
    booked: int
    """Addresses booked in all pools."""


@dataclass(frozen=True)
class DataPath:
    """How VM load balancers are served."""

    routes: Mapping[str, str] = field(default_factory=dict)
    """VM address to loopback address, beside the rule of ``devenv.harvester.routes``."""
    dhcp_range: tuple[str, str] | None = None
    """First and last address that the host network's DHCP server leases; None means that nobody answers."""
    announce_delay: float = 0.05
    """Seconds until Harvester's kube-vip gives a Service its address."""
    collection_delay: float = 1.0
    """Seconds until generated objects of a deleted load balancer are collected."""


class HarvesterEmulator:
    """What Harvester does with LoadBalancers and IPPools. Use as an async context manager."""

    def __init__(
        self,
        client: ApiClient,
        *,
        pace: Pace = STOCK,
        webhook: bool = True,
        data_path: DataPath | None = None,
    ) -> None:
        """``pace`` is that of its controllers.

        Services and EndpointSlices have buckets of the same size, each its own.
        """
        self._client = client
        self._made: list[tuple[Resource[Document], str, str | None]] = []

        def bucket() -> TokenBucket:
            return TokenBucket(pace.qps, pace.burst)

        of_both = bucket()
        self.balancers = Records(client, LOAD_BALANCERS, bucket=of_both, lags=pace.lags)
        self.pools = Records(client, POOLS, bucket=of_both, lags=pace.lags)
        self.webhook = Webhook(client) if webhook else None
        self.services = Records(client, SERVICES, bucket=bucket())
        self.slices = Records(client, SLICES, bucket=bucket())
        self.instances = Mirror(client, INSTANCES)
        self.machines = Mirror(client, MACHINES)
        self._copies: list[Mirror] = [
            self.pools, self.balancers, self.services, self.slices, self.instances, self.machines,
        ]  # fmt: skip
        self._mirrors = [*self._copies, *(self.webhook.mirrors if self.webhook else ())]
        jobs = [*self._build_data_path(data_path or DataPath()), *self._build_controllers()]
        self._background = Background("harvester", [*(mirror.run for mirror in self._mirrors), *jobs])

    def _build_data_path(self, options: DataPath) -> list[Job]:
        routes = Routes(options.routes)
        collections = Collections(self.balancers, self.instances, self.services, self.slices)
        self._backends = Backends(collections, routes)
        self.host_vip = HostVip(self.services, delay=options.announce_delay, dhcp=options.dhcp_range)
        self.forwarding = Forwarding(self.services, self.slices, routes, lambda: self.host_vip.announced)
        self.host_vip.on_change(self.forwarding.look)
        collector = Collector(self.balancers, (self.services, self.slices), delay=options.collection_delay)
        return [self._backends.run, self.host_vip.run, self.forwarding.run, collector.run]

    def _build_controllers(self) -> list[Job]:
        balancers = LoadBalancerController(self.balancers, self.pools, self._backends)
        pools = PoolController(self.pools, self.balancers)
        removal = ClusterRemoval(self.machines, self.balancers)
        self._queue = WorkQueue("loadbalancers", balancers.reconcile, workers=WORKERS)
        pool_queue = WorkQueue("ippools", pools.reconcile, workers=WORKERS)
        self.balancers.subscribe(enqueue(self._queue))
        self._backends.on_wake(self._queue.add)
        self.pools.subscribe(enqueue(pool_queue))
        return [pool_queue.run, self._queue.run, removal.run]

    async def __aenter__(self) -> Self:
        await self._start()
        try:
            if self.webhook is not None:
                await self.webhook.__aenter__()
        except BaseException:
            await self._background.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.webhook is not None:
                await self.webhook.__aexit__(kind, value, trace)
        finally:
            try:
                await self._background.stop()
            finally:
                await self._remove_made()

    @asynccontextmanager
    async def stopped(self) -> AsyncIterator[None]:
        """Have the controllers stopped meanwhile; afterwards they start anew and know what they list.

        For what restarts a real Harvester, as a restored etcd does: a controller that went on with copies of before
        would take a booking that came back for released. The webhook answers on, from what it knew.
        """
        await self._background.stop()
        for copy in self._copies:
            copy.forget()
        try:
            yield
        finally:
            await self._start()

    async def _start(self) -> None:
        await self._background.start([mirror.wait_synced for mirror in self._mirrors], within=START_SECONDS)

    async def create_pool(self, name: str, *ranges: str | Document, selector: Document | None = None) -> Document:
        """Create a pool and return it when it can be used. It is removed when the emulator ends.

        A range is a CIDR or an entry of ``spec.ranges``. Without a selector the pool serves everybody. Raises
        AdmissionDenied when the webhook refuses it, TimeoutError when it does not become ready.
        """
        entries = [{"subnet": entry} if isinstance(entry, str) else entry for entry in ranges]
        pool = {
            "apiVersion": POOLS.api_version,
            "kind": POOLS.kind,
            "metadata": {"name": name},
            "spec": {"ranges": entries, "selector": EVERYBODY if selector is None else selector},
        }
        await self._client.create(POOLS, pool if self.webhook else labelled(pool))
        self._made.append((POOLS, name, None))

        def usable() -> Document | None:
            known = self.pools.get(name)
            if known is None or not is_ready(known):
                return None
            if self.webhook is not None and self.webhook.pools.get(name) is None:
                return None
            return known if POOL_FINALIZER in known["metadata"].get("finalizers", ()) else None

        return await _known(usable)

    async def create_network(self, name: str, *, namespace: str = "default") -> None:
        """Create a network and return when pools for it are accepted. It is removed when the emulator ends.

        Raises AlreadyExists, and TimeoutError when the webhook does not come to know it.
        """
        network = {
            "apiVersion": NETWORKS.api_version,
            "kind": NETWORKS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"config": "{}"},
        }
        await self._client.create(NETWORKS, network, namespace=namespace)
        self._made.append((NETWORKS, name, namespace))
        if self.webhook is not None:
            mirror = self.webhook.networks
            await _known(lambda: mirror.get(f"{namespace}/{name}"))

    async def counts(self, namespace: str | None = None) -> Counts:
        """Return how many load balancers exist and how many addresses are booked, as the API server says now.

        With ``namespace``, only what belongs to load balancers of that namespace counts.
        """
        balancers = await self._client.list(LOAD_BALANCERS, namespace=namespace)
        owners = (await self.bookings()).values()
        booked = [owner for owner in owners if namespace is None or owner.startswith(f"{namespace}/")]
        return Counts(len(balancers.items), len(booked))

    async def bookings(self) -> dict[str, str]:
        """Return the booked addresses of all pools, each with the load balancer ``namespace/name`` it is booked for."""
        pools = await self._client.list(POOLS)
        return {
            ip: owner for p in pools.items for ip, owner in ((p.get("status") or {}).get("allocated") or {}).items()
        }

    def failures(self, key: str) -> int:
        """Return how often in a row the load balancer ``namespace/name`` failed: its next try is a back-off away."""
        return self._queue.failures(key)

    async def _remove_made(self) -> None:
        for resource, name, namespace in reversed(self._made):
            try:
                await self._client.merge_patch(resource, name, {"metadata": {"finalizers": None}}, namespace=namespace)
                await self._client.delete(resource, name, namespace=namespace)
            except NotFound:
                continue
            except CCMError as error:
                log.warning("not removed", resource=resource.plural, name=name, error=str(error))


async def _known(look: Callable[[], Document | None]) -> Document:
    """Return what ``look`` finds, once it finds something. Raises TimeoutError."""
    async with asyncio.timeout(EFFECT_SECONDS):
        while (found := look()) is None:  # noqa: ASYNC110 - a mirror has no event per object
            await asyncio.sleep(POLL_SECONDS)
    return found


def enqueue(queue: WorkQueue) -> Callable[[Document | None, Document | None], None]:
    """Return a subscriber that makes the key of what changed due."""

    def changed(before: Document | None, after: Document | None) -> None:
        document = after or before
        if document is not None:
            queue.add(key_of(document))

    return changed
