"""The review of the rights on Harvester's IP pools."""

import asyncio

import pytest

from harvester_ccm.controllers.address_pools import AddressPools
from harvester_ccm.controllers.caches import Caches
from harvester_ccm.kube.errors import KubeError
from harvester_ccm.model.harvester import IP_POOLS
from tests.support.background import running
from tests.support.builders import CLUSTER
from tests.support.clock import jumping_time, until
from tests.support.memory_server import MemoryClient, MemoryServer, page, refused

POOL = {"apiGroups": [IP_POOLS.group], "resources": [IP_POOLS.plural], "resourceNames": ["lan"]}


def refusal() -> KubeError:
    return refused(403, "Forbidden", "the cluster role is being replaced")


class World:
    """A Harvester that grants requests in pool ``lan`` once it answers, and the review."""

    def __init__(self, fault: KubeError) -> None:
        self.server = MemoryServer()
        self.server.permissions.rules = lambda _by: [{**POOL, "verbs": ["get", "patch"]}]
        self.server.fault = lambda _call: fault
        client = MemoryClient(self.server, cluster="harvester", namespace=CLUSTER.namespace)
        self.caches = Caches(MemoryClient(MemoryServer(), cluster="guest"), client, CLUSTER)
        self.pools = AddressPools(client, self.caches)


@jumping_time
@pytest.mark.parametrize("fault", [page(), refusal()], ids=["no route", "no role"])
async def test_review_that_fails_for_some_time_is_no_answer_about_the_rights(fault: KubeError) -> None:
    """A Service whose request was taken for one without the rights would get any address, and keep it."""
    world = World(fault)
    async with running(world.pools.run()):
        await asyncio.sleep(90)
        assert not world.caches.pool_rights.are_known
        world.server.fault = None
        await until(lambda: world.caches.pool_rights.permit("lan"), 60)


@jumping_time
async def test_review_that_is_refused_again_and_again_means_no_rights() -> None:
    world = World(refusal())
    async with running(world.pools.run()):
        await until(lambda: world.caches.pool_rights.are_known, 180)
        assert not world.caches.pool_rights.permit("lan")
