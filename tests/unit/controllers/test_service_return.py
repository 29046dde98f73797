"""What the Service controller remembers of load balancers that are gone."""

from __future__ import annotations

import asyncio

from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.model.outcome import Done, Wait
from harvester_ccm.names import LB_TOUCH, WORKLOAD_TYPE
from harvester_ccm.plan.service.create import REPLACEMENT_PAUSE
from tests.worlds.background import running
from tests.worlds.builders import LB_NAME, allocated, service
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Document
from tests.worlds.service_controller_world import ServiceControllerWorld

KEY = "shop/web"
BALANCER = f"vms/{LB_NAME}"
VM = {WORKLOAD_TYPE: "vm"}


def stored(stage: ServiceControllerWorld) -> Document | None:
    """Return the load balancer."""
    return stage.harvester.of(LOAD_BALANCERS).get(BALANCER)


@jumping_time
async def test_service_that_comes_back_waits_for_harvester() -> None:
    stage = ServiceControllerWorld()
    stage.guest.put(SERVICES, service(annotations=VM, ours=True))
    stage.harvester.put(LOAD_BALANCERS, allocated(spec={"workloadType": "vm"}))
    await stage.start()
    await stage.reconcile(KEY)

    stage.guest.put(SERVICES, service(annotations=VM, ours=True, kind="ClusterIP"))
    assert await stage.reconcile(KEY) == Done()
    assert stored(stage) is None
    await asyncio.sleep(1)
    stage.guest.put(SERVICES, service(annotations=VM))
    assert await stage.reconcile(KEY) == Wait("switching", REPLACEMENT_PAUSE - 1)
    await asyncio.sleep(REPLACEMENT_PAUSE)
    await stage.reconcile(KEY)

    made = stored(stage)
    assert made is not None
    assert made["metadata"]["annotations"][LB_TOUCH] == "true"


@jumping_time
async def test_of_services_from_before_the_start_nothing_is_known() -> None:
    stage = ServiceControllerWorld()
    stage.guest.put(SERVICES, service(annotations=VM))
    stage.guest.put(SERVICES, service("plain"))
    await stage.start()
    async with running(stage.controller.run()):
        await asyncio.sleep(0.1)
    await stage.reconcile(KEY)

    made = stored(stage)
    assert made is not None
    assert made["metadata"]["annotations"][LB_TOUCH] == "true"


@jumping_time
async def test_new_service_is_not_written_twice() -> None:
    stage = ServiceControllerWorld()
    await stage.start()
    async with running(stage.controller.run()):
        await asyncio.sleep(0.1)
    stage.guest.put(SERVICES, service(annotations=VM))
    await stage.reconcile(KEY)

    made = stored(stage)
    assert made is not None
    assert LB_TOUCH not in made["metadata"]["annotations"]
