"""The plans of Services, made again after everything was read that the controller reads besides the lists."""

from collections.abc import Sequence

from harvester_ccm.commands.address_pools import read_pools
from harvester_ccm.commands.clusters import ClusterStore
from harvester_ccm.commands.states import Planned, service_status
from harvester_ccm.config import Settings
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.core import Service


async def plan_services(
    store: ClusterStore, services: Sequence[Service], settings: Settings, guest: ApiClient, harvester: ApiClient
) -> list[Planned]:
    """Return Services with their plans, in the same order.

    The IP pools are read in which Services without a load balancer request an address, and the endpoints of Services
    that nobody seems to announce.
    """
    planned = [service_status(store, service, settings) for service in services]
    pools = [entry.snapshot.request.ip_pool for entry in planned if entry.plan.reads_pool]
    if pools:
        await read_pools(store, harvester, pools)
        planned = [service_status(store, service, settings) for service in services]
    unexplained = [entry.service for entry in planned if entry.plan.reads_endpoints]
    if not unexplained:
        return planned
    await store.read_endpoints(guest, unexplained)
    again = {service.metadata.key: service_status(store, service, settings) for service in unexplained}
    return [again.get(entry.service.metadata.key, entry) for entry in planned]
