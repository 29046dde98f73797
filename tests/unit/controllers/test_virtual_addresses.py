"""The addresses of load balancers count until some time after their removal."""

from __future__ import annotations

import asyncio

from harvester_ccm.controllers.virtual_addresses import LINGER_SECONDS
from harvester_ccm.model.core import SERVICES
from harvester_ccm.names import KUBE_VIP_ADDRESSES
from tests.worlds.builders import service
from tests.worlds.clock import jumping_time, until
from tests.worlds.node_world import BALANCER, NAMESPACE, NodeWorld

ADDRESS = "10.0.0.1"


@jumping_time
async def test_address_lingers() -> None:
    scene = NodeWorld()
    found, lb = scene.virtual_addresses, {"metadata": {"name": "lb", "namespace": NAMESPACE}}
    assert not found.listed
    async with scene.live():
        await until(lambda: found.listed)
        scene.guest_server.put(SERVICES, service(ours=True, annotations={KUBE_VIP_ADDRESSES: ADDRESS}))
        scene.harvester_server.put(BALANCER, {**lb, "status": {"address": ADDRESS}})
        await until(lambda: found.owner(ADDRESS) == "Service shop/web")
        scene.guest_server.remove(SERVICES, "shop/web")
        await until(lambda: found.owner(ADDRESS) == f"load balancer {NAMESPACE}/lb in Harvester")
        scene.harvester_server.remove(BALANCER, f"{NAMESPACE}/lb")
        await until(lambda: "recently" in found.owner(ADDRESS))
        await asyncio.sleep(LINGER_SECONDS - 1)
        assert found.owner(ADDRESS)
        await asyncio.sleep(1)
        assert found.owner(ADDRESS) == found.owner("10.0.0.2") == ""
