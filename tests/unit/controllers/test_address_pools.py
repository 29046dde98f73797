"""The review of the rights on Harvester's IP pools."""

import asyncio

from harvester_ccm.controllers.address_pools import AddressPools
from harvester_ccm.controllers.caches import Caches
from harvester_ccm.model.harvester import IP_POOLS
from tests.support.background import running
from tests.support.builders import CLUSTER
from tests.support.clock import jumping_time, until
from tests.support.memory_server import MemoryClient, MemoryServer, page

POOL = {"apiGroups": [IP_POOLS.group], "resources": [IP_POOLS.plural], "resourceNames": ["lan"]}


@jumping_time
async def test_proxy_without_a_route_is_no_answer_about_the_rights() -> None:
    """A Service whose request was taken for one without the rights would get any address, and keep it."""
    server = MemoryServer()
    server.permissions.rules = lambda _by: [{**POOL, "verbs": ["get", "patch"]}]
    server.fault = lambda _call: page()
    client = MemoryClient(server, cluster="harvester", namespace=CLUSTER.namespace)
    caches = Caches(MemoryClient(MemoryServer(), cluster="guest"), client, CLUSTER)
    async with running(AddressPools(client, caches).run()):
        await asyncio.sleep(30)
        assert not caches.pool_rights.are_known
        server.fault = None
        await until(lambda: caches.pool_rights.permit("lan"))
