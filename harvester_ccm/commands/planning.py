"""The plans of Services, made again after everything was read that the controller reads besides the lists."""

import asyncio
import math
from collections.abc import Collection, Iterable, Sequence

from harvester_ccm.commands.clusters import ClusterStore, request_or_error
from harvester_ccm.commands.states import Planned, service_status
from harvester_ccm.config import Settings
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import KubeError, NotFound
from harvester_ccm.model.core import ENDPOINT_SLICES, SERVICE_LABEL, EndpointSlice
from harvester_ccm.model.harvester import IP_POOLS
from harvester_ccm.plan.service.allocation.address_pools import ObservedPool
from harvester_ccm.plan.service.announcing.endpoints import Endpoints, Reading, reading_of


async def plan_services(
    store: ClusterStore, settings: Settings, guest: ApiClient, harvester: ApiClient
) -> list[Planned]:
    """Return the Services with their plans.

    The IP pools are read in which Services without a load balancer request an address, and the endpoints of Services
    with an address: kube-vip announces none without an endpoint.
    """
    services = store.services.all()
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
    """Read the endpoints of Services with an address, and of those whose plan depends on them, into the store.

    That they cannot be read is a note of it only if a plan depends on them.
    """
    wanted = [entry for entry in planned if entry.plan.reads_endpoints or _is_shown(entry)]
    if not wanted:
        return
    found = await request_or_error(guest.list(ENDPOINT_SLICES))
    if any(entry.plan.reads_endpoints for entry in wanted):
        store.lists = {**store.lists, ENDPOINT_SLICES.plural: found}
    by_service = {} if isinstance(found, KubeError) else _slices_by_service(found.items)
    is_complete = not isinstance(found, KubeError) and not found.unread
    for entry in wanted:
        key = entry.service.metadata.key
        slices = by_service.get(key, [])
        store.endpoints[key] = Endpoints(reading_of(slices, entry.service, are_complete=is_complete), math.inf)
        if _is_unserved(slices):
            store.unserved.add(key)


def _slices_by_service(slices: Iterable[EndpointSlice]) -> dict[str, list[EndpointSlice]]:
    """Return EndpointSlices by the key of their Service."""
    by_service: dict[str, list[EndpointSlice]] = {}
    for endpoint_slice in slices:
        meta = endpoint_slice.metadata
        by_service.setdefault(f"{meta.namespace}/{meta.label(SERVICE_LABEL)}", []).append(endpoint_slice)
    return by_service


def _is_unserved(slices: Iterable[EndpointSlice]) -> bool:
    """Return whether there are endpoints, and none of them serves."""
    serving = [endpoint.is_serving for part in slices for endpoint in part.endpoints or ()]
    return bool(serving) and not any(serving)


def _is_shown(entry: Planned) -> bool:
    return bool(entry.service.addresses) and entry.snapshot.scope.is_managed


def _is_changed(store: ClusterStore, entry: Planned) -> bool:
    """Return whether the plan or its text depends on the endpoints that were read."""
    endpoints = store.endpoints.get(entry.service.metadata.key)
    return entry.plan.reads_endpoints or (endpoints is not None and endpoints.reading is Reading.MISSING)
