"""The Service of a load balancer as the API server has it now, for whoever is about to delete the load balancer."""

from __future__ import annotations

from harvester_ccm.errors import NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.plan.service.ownership import service_key


async def live_service(guest: ApiClient, load_balancer: LoadBalancer) -> Service | None:
    """Return the Service that the labels name. Raises CCMError: no answer but "not found" means none."""
    namespace, _, name = service_key(load_balancer).partition("/")
    try:
        return await guest.get(SERVICES, name, namespace=namespace)
    except NotFound:
        return None
