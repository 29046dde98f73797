"""What a brake holds back holds back what goes by it."""

from __future__ import annotations

import asyncio

import pytest

from harvester_ccm.kube.brakes import MADE_AT_ONCE, MADE_PAUSE
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.model.outcome import Wait, WaitReason
from harvester_ccm.names import SERVICE_FINALIZER
from tests.worlds.builders import ADDRESS, LB_NAME, marked, service
from tests.worlds.clock import jumping_time
from tests.worlds.service_controller_world import ServiceControllerWorld

KEY = "shop/web"
LB_KEY = f"vms/{LB_NAME}"


@pytest.mark.parametrize("deleted", [False, True], ids=["another type", "deleted"])
def test_service_is_not_let_go_while_its_deletion_is_held(deleted: bool) -> None:
    """A load balancer that comes and goes again and again: the last deletion has to wait, and so has the rest."""

    @jumping_time
    async def run() -> None:
        world = ServiceControllerWorld()
        world.guest.put(SERVICES, service())
        await world.start()
        times = MADE_AT_ONCE // 2
        for number in range(times + 1):
            if number == times:
                # As long as one creation has to wait: the deletion after it does, too.
                await asyncio.sleep(MADE_PAUSE)
            await twice(world)
            found = world.harvester.of(LOAD_BALANCERS)[LB_KEY]["metadata"]
            world.harvester.put(LOAD_BALANCERS, marked(uid=found["uid"], ip=ADDRESS, pool="lan"))
            await twice(world)
            if deleted and number == times:
                world.guest.delete(SERVICES, KEY)
            else:
                other = {"spec": {"type": "ClusterIP"}, "status": {"loadBalancer": None}}
                world.guest.change(SERVICES, KEY, other)
            await twice(world)
            if number < times:
                assert LB_KEY not in world.harvester.of(LOAD_BALANCERS)
                world.guest.change(SERVICES, KEY, {"spec": {"type": "LoadBalancer"}})
        outcome = await world.reconcile(KEY)
        assert isinstance(outcome, Wait)
        assert outcome.reason is WaitReason.BRAKED
        assert LB_KEY in world.harvester.of(LOAD_BALANCERS)
        assert SERVICE_FINALIZER in world.guest.of(SERVICES)[KEY]["metadata"]["finalizers"]

    run()


async def twice(world: ServiceControllerWorld) -> None:
    for _ in range(2):
        await world.reconcile(KEY)
