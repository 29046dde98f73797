"""Writes to load balancers: what happens if the plan was based on another version."""

import pytest

from harvester_ccm.controllers.service_writes import BalancerWrites
from harvester_ccm.kube.errors import Conflict
from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import LB_CLUSTER
from harvester_ccm.plan.service.desired import ChangeLoadBalancer
from tests.support.background import running
from tests.support.builders import ADDRESS, CLUSTER, LB_NAME, allocated
from tests.support.clock import jumping_time
from tests.support.memory_server import MemoryClient, MemoryServer, document_of

KEY = f"{CLUSTER.namespace}/{LB_NAME}"


@pytest.mark.guarantee("Objects of other clusters and clones never change")
@jumping_time
async def test_load_balancer_that_another_client_changed_since_the_plan_is_read_again_and_not_written() -> None:
    server = MemoryServer()
    server.put(LOAD_BALANCERS, document_of(allocated()))
    client = MemoryClient(server, cluster="harvester", namespace=CLUSTER.namespace)
    cache = Informer(client, LOAD_BALANCERS, namespace=CLUSTER.namespace)
    async with running(cache.run()):
        await cache.wait_synced()
        planned = cache.get(KEY)
        assert planned is not None
        server.lagging = True
        server.change(LOAD_BALANCERS, KEY, {"metadata": {"labels": {LB_CLUSTER: "another"}}})
        change = ChangeLoadBalancer(LB_NAME, labels={LB_CLUSTER: CLUSTER.name}, status={"address": ADDRESS})
        with pytest.raises(Conflict):
            await BalancerWrites(client, cache, CLUSTER.namespace).change(planned, change)
        assert server.writes() == []
        current = cache.get(KEY)
        assert current is not None
        assert current.metadata.label(LB_CLUSTER) == "another"
