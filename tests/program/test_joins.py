"""Many Nodes that join at once."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from harvester_ccm.controllers import device_mapping
from harvester_ccm.controllers.caches import Caches
from harvester_ccm.controllers.wake import BACKENDS_SECONDS
from harvester_ccm.plan.node.device_mapping import plan_device_mapping
from tests.support.clock import jumping_time
from tests.support.node_world import NAMESPACE, NodeWorld, initialised, machine
from tests.support.program_world import Harvester, Program, guest_server

NODES = 60


@pytest.mark.parametrize("label", ["demo", ""], ids=["cluster label", "no label"])
@jumping_time
async def test_refreshes_are_coalesced_while_many_nodes_join(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refreshes: dict[str, int] = {}

    def counted(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **known: Any) -> Any:
            refreshes[name] = refreshes.get(name, 0) + 1
            return work(*args, **known)

        return count

    monkeypatch.setattr(device_mapping, "plan_device_mapping", counted("networks", plan_device_mapping))
    monkeypatch.setattr(Caches, "refresh_backends", counted("backends", Caches.refresh_backends))
    world, dice = NodeWorld(), Random(1)
    world.guest_server, world.harvester_server = guest, harvester = guest_server(), Harvester()
    guest.delay = lambda _call: dice.uniform(0, 0.2)
    vms = [machine(f"w{number}", cluster=label) for number in range(NODES)]
    for vm in vms:
        world.boot(vm)
        world.join(vm.name, system_uuid=vm.system_uuid)
    async with Program(guest, harvester, "demo", "--controllers=*", namespace=NAMESPACE).live():
        await asyncio.sleep(60)
        refreshes.clear()
        for number, vm in enumerate(vms):
            world.report(vm, f"10.0.0.{number}")
        took = await initialised(world, [vm.name for vm in vms])
        await asyncio.sleep(1)
    most = 2 + (took + 1) / BACKENDS_SECONDS
    assert refreshes.keys() == {"networks", "backends"}
    assert max(refreshes.values()) <= most
