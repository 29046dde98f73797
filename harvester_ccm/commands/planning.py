"""The plans of Services, made again after everything was read that the controller reads besides the lists."""

import asyncio
from collections.abc import Collection, Sequence

from harvester_ccm.commands.clusters import ClusterStore, request_or_error
from harvester_ccm.commands.states import Planned, service_status
from harvester_ccm.config import Settings
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import KubeError, NotFound
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import IP_POOLS
from harvester_ccm.plan.service.allocation.address_pools import ObservedPool
from harvester_ccm.plan.service.announcing.endpoints import Reading


async def plan_services(
    store: ClusterStore, services: Sequence[Service], settings: Settings, guest: ApiClient, harvester: ApiClient
) -> list[Planned]:
    """Return Services with their plans, in the same order.

    The IP pools are read in which Services without a load balancer request an address, and the endpoints of Services
    with an address: kube-vip announces none without an endpoint.
    """
    planned = [service_status(store, service, settings) for service in services]
    pools = [entry.snapshot.request.ip_pool for entry in planned if entry.plan.reads_pool]
    if pools:
        await _read_pools(store, harvester, pools)
        planned = [service_status(store, service, settings) for service in services]
    await _read_endpoints(store, planned, guest)
    return [service_status(store, entry.service, settings) if _is_changed(store, entry) else entry for entry in planned]


async def _read_pools(store: ClusterStore, harvester: ApiClient, names: Collection[str]) -> None:
    """Read IP pools into the store. One that cannot be read is a note of it."""
    wanted = sorted(set(names))
    found = await asyncio.gather(*(request_or_error(harvester.get(IP_POOLS, name)) for name in wanted))
    for name, answer in zip(wanted, found, strict=True):
        if isinstance(answer, NotFound):
            store.pools[name] = ObservedPool(name, None)
        elif isinstance(answer, KubeError):
            store.lists = {**store.lists, f"IP pool {name}": answer}
        else:
            store.pools[name] = ObservedPool(name, answer)


async def _read_endpoints(store: ClusterStore, planned: Sequence[Planned], guest: ApiClient) -> None:
    """Read the endpoints of Services with an address, and of those whose plan depends on them."""
    wanted = [entry for entry in planned if entry.plan.reads_endpoints or _is_shown(entry)]
    if wanted:
        is_needed = any(entry.plan.reads_endpoints for entry in wanted)
        await store.read_endpoints(guest, [entry.service for entry in wanted], is_needed=is_needed)


def _is_shown(entry: Planned) -> bool:
    return bool(entry.service.addresses) and entry.snapshot.scope.is_managed


def _is_changed(store: ClusterStore, entry: Planned) -> bool:
    """Return whether the plan or its text depends on the endpoints that were read."""
    endpoints = store.endpoints.get(entry.service.metadata.key)
    return entry.plan.reads_endpoints or (endpoints is not None and endpoints.reading is Reading.MISSING)
