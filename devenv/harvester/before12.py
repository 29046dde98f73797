"""A Harvester before 1.2: load balancers of v1alpha1, no IP pools, no webhook.

Its controller makes a Service and an EndpointSlice from what the load balancer says, probes the addresses in it, and
copies the address that kube-vip gives the Service. Addresses of ``pool`` come from kube-vip's side, which has a range
for the namespace; nothing is noted on the load balancer but the address.
"""

from __future__ import annotations

import asyncio
import ipaddress
from types import TracebackType
from typing import Final, Self

import structlog

from devenv.background import Background
from devenv.harvester.conversion import converted
from devenv.harvester.definitions import serve_before_1_2, serve_now
from devenv.harvester.emulator import START_SECONDS, DataPath, enqueue
from devenv.harvester.endpoints import (
    SERVICE_LABEL,
    external_address,
    generated_service,
    generated_slice,
    is_ready,
    judged,
    slice_ports,
    updated_service,
)
from devenv.harvester.forwarding import Forwarding
from devenv.harvester.hosts import DHCP_ADDRESS, Collector, HostVip
from devenv.harvester.loadbalancers import FINALIZER, now_text
from devenv.harvester.probes import Check, Probes
from devenv.harvester.queue import TokenBucket, WorkQueue
from devenv.harvester.records import (
    INSTANCES,
    LOAD_BALANCERS,
    LOAD_BALANCERS_V1ALPHA1,
    SERVICES,
    SLICES,
    Records,
    is_deleting,
    with_condition,
    with_finalizer,
    without_finalizer,
)
from devenv.harvester.routes import Routes
from devenv.watch import Document, Mirror, key_of, labels_of
from harvester_ccm.errors import CCMError, Conflict, NotFound
from harvester_ccm.kube.client import ApiClient

WORKERS: Final = 1
"""One, because it also gives the addresses, one after the other."""
NO_BUCKET: Final = TokenBucket(None, 1)

log = structlog.get_logger(__name__)


class HarvesterBefore12:
    """What such a Harvester does with load balancers. Use as an async context manager.

    On entry the API server's resource definitions become those of that time; ``serve_now`` takes that back.
    """

    def __init__(self, client: ApiClient, *, pool: tuple[str, str], data_path: DataPath) -> None:
        """``pool`` is the first and last address for load balancers with ipam ``pool``."""
        self._client = client
        self._pool = pool
        self.balancers = Records(client, LOAD_BALANCERS_V1ALPHA1, bucket=NO_BUCKET)
        self.services = Records(client, SERVICES, bucket=NO_BUCKET)
        self.slices = Records(client, SLICES, bucket=NO_BUCKET)
        routes = Routes(data_path.routes)
        host_vip = HostVip(self.services, delay=data_path.announce_delay, dhcp=data_path.dhcp_range)
        forwarding = Forwarding(self.services, self.slices, routes, lambda: host_vip.announced)
        host_vip.on_change(forwarding.look)
        collector = Collector(self.balancers, (self.services, self.slices), delay=data_path.collection_delay)
        self._probes = Probes(routes, self._on_verdict)
        self._verdicts = asyncio.Lock()
        queue = WorkQueue("loadbalancers", self._reconcile, workers=WORKERS)
        self.balancers.subscribe(enqueue(queue))
        self.services.subscribe(enqueue(queue))
        self._mirrors: list[Mirror] = [self.balancers, self.services, self.slices]
        jobs = [host_vip.run, forwarding.run, collector.run, self._probes.run, queue.run]
        self._background = Background("harvester before 1.2", [*(mirror.run for mirror in self._mirrors), *jobs])

    async def __aenter__(self) -> Self:
        await serve_before_1_2(self._client)
        await self._background.start([m.wait_synced for m in self._mirrors], within=START_SECONDS)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._background.stop()

    async def upgrade(self, *, pool: str) -> dict[str, str]:
        """End this Harvester and leave what 1.2 finds: its definitions, and converted load balancers.

        Returns the addresses from the pool with the load balancers that have them, to be booked in the IP pool named
        ``pool``. Whoever reads a load balancer before it is converted finds it without backends.
        """
        await self._background.stop()
        balancers = (await self._client.list(LOAD_BALANCERS_V1ALPHA1)).items
        instances = (await self._client.list(INSTANCES)).items
        machines = {
            nic["ipAddress"]: one["metadata"]["name"]
            for one in instances
            for nic in (one.get("status") or {}).get("interfaces") or ()
            if nic.get("ipAddress")
        }
        await serve_now(self._client)
        for one in balancers:
            await self._put_converted(converted(one, pool=pool, machines=machines))
        return {
            one["status"]["address"]: key_of(one)
            for one in balancers
            if one["spec"]["ipam"] == "pool" and one["status"].get("address")
        }

    async def _put_converted(self, balancer: Document) -> None:
        meta = balancer["metadata"]
        while True:
            present = await self._client.get(LOAD_BALANCERS, meta["name"], namespace=meta["namespace"])
            document = {**balancer, "metadata": present["metadata"]}
            try:
                await self._client.replace(LOAD_BALANCERS, meta["name"], document, namespace=meta["namespace"])
            except Conflict:
                continue
            return

    async def _reconcile(self, key: str) -> float | None:
        balancer = self.balancers.get(key)
        if balancer is None:
            self._probes.want(key, None, frozenset())
            return None
        if is_deleting(balancer):
            await self._remove(key, balancer)
            return None
        service = await self._ensure_service(key, balancer)
        await self._ensure_slice(key, balancer)
        addresses = balancer["spec"].get("backendServers") or []
        self._probes.want(key, _check_of(balancer), frozenset(addresses))
        address = external_address(service)
        status = {**(balancer.get("status") or {}), **({"address": address} if address else {})}
        status = with_condition(status, ready=True, message="", now=now_text())
        if status != balancer.get("status"):
            balancer = await self.balancers.put({**balancer, "status": status})
        owned = with_finalizer(balancer, FINALIZER)
        if owned is not balancer:
            await self.balancers.put(owned)
        return None

    async def _remove(self, key: str, balancer: Document) -> None:
        self._probes.want(key, None, frozenset())
        bare = without_finalizer(balancer, FINALIZER)
        if bare is not balancer:
            try:
                await self.balancers.put(bare)
            except NotFound:
                log.debug("load balancer already gone", key=key)

    async def _ensure_service(self, key: str, balancer: Document) -> Document:
        service, from_dhcp = self.services.get(key), balancer["spec"]["ipam"] == "dhcp"
        if service is None:
            service = await self.services.create(generated_service(balancer, DHCP_ADDRESS if from_dhcp else ""))
        address = service["spec"].get("loadBalancerIP") or ""
        if not from_dhcp:
            # The part of kube-vip's cloud provider.
            address = address or self._free_address()
        elif not external_address(service):
            address = DHCP_ADDRESS
        return await self.services.put(updated_service(service, balancer, address))

    def _free_address(self) -> str:
        generated = [one for one in self.services.all() if SERVICE_LABEL in labels_of(one)]
        taken = {one["spec"].get("loadBalancerIP") for one in generated}
        first, last = (int(ipaddress.ip_address(end)) for end in self._pool)
        candidates = (str(ipaddress.ip_address(number)) for number in range(first, last + 1))
        return next((address for address in candidates if address not in taken), "")

    async def _ensure_slice(self, key: str, balancer: Document) -> None:
        stored = self.slices.get(key)
        checked = _check_of(balancer) is not None
        known = {one["addresses"][0]: is_ready(one) for one in (stored or {}).get("endpoints") or ()}
        endpoints = [
            {"addresses": [address], "conditions": {"ready": known.get(address, True) if checked else True}}
            for address in balancer["spec"].get("backendServers") or ()
        ]
        if stored is None:
            await self.slices.create(generated_slice(balancer, endpoints))
            return
        wanted = {**stored, "ports": slice_ports(balancer), "endpoints": endpoints}
        if wanted != stored:
            await self.slices.put(wanted)

    async def _on_verdict(self, key: str, address: str, healthy: bool) -> None:
        async with self._verdicts:
            stored = self.slices.get(key)
            if stored is None:
                return
            endpoints = [judged(entry, address, healthy=healthy) for entry in stored.get("endpoints") or ()]
            if endpoints == stored.get("endpoints"):
                return
            try:
                await self.slices.put({**stored, "endpoints": endpoints})
            except CCMError as error:
                # Said again one threshold later.
                log.warning("health not written", balancer=key, address=address, error=str(error))


def _check_of(balancer: Document) -> Check | None:
    source = balancer["spec"].get("healthCheck")
    return Check.of({"healthCheck": {**source, "periodSeconds": source["PeriodSeconds"]}}) if source else None
