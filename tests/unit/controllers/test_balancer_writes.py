"""Writes to load balancers: what happens if the plan was based on another version."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from harvester_ccm.controllers.service_writes import BalancerWrites
from harvester_ccm.kube.errors import BadRequest, Conflict
from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.names import LB_CLUSTER
from harvester_ccm.plan.service.desired import ChangeLoadBalancer
from tests.support.background import running
from tests.support.builders import ADDRESS, CLUSTER, LB_NAME, allocated
from tests.support.clock import jumping_time
from tests.support.memory_server import MemoryClient, MemoryServer, document_of, refused

KEY = f"{CLUSTER.namespace}/{LB_NAME}"


@asynccontextmanager
async def writing(server: MemoryServer) -> AsyncIterator[tuple[BalancerWrites, Informer[LoadBalancer]]]:
    client = MemoryClient(server, cluster="harvester", namespace=CLUSTER.namespace)
    cache = Informer(client, LOAD_BALANCERS, namespace=CLUSTER.namespace)
    async with running(cache.run()):
        await cache.wait_synced()
        yield BalancerWrites(client, cache, CLUSTER.namespace), cache


@pytest.mark.guarantee("Objects of other clusters and clones never change")
@jumping_time
async def test_load_balancer_that_another_client_changed_since_the_plan_is_read_again_and_not_written() -> None:
    server = MemoryServer()
    server.put(LOAD_BALANCERS, document_of(allocated()))
    async with writing(server) as (writes, cache):
        planned = cache.get(KEY)
        assert planned is not None
        server.lagging = True
        server.change(LOAD_BALANCERS, KEY, {"metadata": {"labels": {LB_CLUSTER: "another"}}})
        change = ChangeLoadBalancer(LB_NAME, labels={LB_CLUSTER: CLUSTER.name}, status={"address": ADDRESS})
        with pytest.raises(Conflict):
            await writes.change(planned, change)
        assert server.writes() == []
        assert [one.metadata.label(LB_CLUSTER) for one in cache.all()] == ["another"]


@pytest.mark.parametrize("is_cached", [True, False])
@jumping_time
async def test_load_balancer_that_exists_is_read_instead_of_created(*, is_cached: bool) -> None:
    server = MemoryServer()
    server.lagging = not is_cached
    async with writing(server) as (writes, cache):
        server.put(LOAD_BALANCERS, document_of(allocated()))
        await asyncio.sleep(1)
        server.lagging = True
        server.change(LOAD_BALANCERS, KEY, {"metadata": {"labels": {LB_CLUSTER: "another"}}})
        with pytest.raises(Conflict):
            await writes.create(LB_NAME, allocated().document())
        assert [one.metadata.label(LB_CLUSTER) for one in cache.all()] == ["another"]


@jumping_time
async def test_webhook_without_dry_runs_rejects_none() -> None:
    server = MemoryServer()
    server.faults = [refused(400, "BadRequest", text) for text in ("x does not support dry run", "no such field")]
    async with writing(server) as (writes, _):
        await writes.check(allocated().document())
        with pytest.raises(BadRequest):
            await writes.check(allocated().document())
