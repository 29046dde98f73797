"""A change that no watch told of: what is written by the old version is refused until the collection is listed."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from harvester_ccm.kube.informer import CATCH_UP_SECONDS
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from tests.worlds.clock import jumping_time, until
from tests.worlds.memory_server import refused
from tests.worlds.node_world import NODE, NodeWorld, initialised, machine
from tests.worlds.program_world import Harvester, Program, guest_server

SOON = 300.0
"""Seconds; collections are listed anew after half an hour at the earliest."""


@jumping_time
async def test_a_load_balancer_that_changed_unseen_is_deleted_soon_all_the_same() -> None:
    harvester = Harvester()
    program = Program(guest_server(), harvester, "demo")
    program.create("web")
    async with program.live():
        await asyncio.sleep(10)
        (key,) = harvester.of(LOAD_BALANCERS)
        harvester.watch_drops = lambda _watch: True
        harvester.change(LOAD_BALANCERS, key, {"metadata": {"labels": {"changed": "unseen"}}})
        harvester.watch_drops = lambda _watch: False
        harvester.calls.clear()
        program.guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(SOON)
        assert harvester.items(LOAD_BALANCERS) == []
    lists = [call for call in harvester.calls if call.verb == "GET" and call.path.endswith("/loadbalancers")]
    assert len(lists) == 1


@jumping_time
async def test_conflicts_without_end_lead_to_a_list_a_minute_at_most() -> None:
    harvester = Harvester()
    program = Program(guest_server(), harvester, "demo")
    program.create("web")
    changed = refused(409, "Conflict", "the object has been modified")
    async with program.live():
        await asyncio.sleep(10)
        harvester.calls.clear()
        harvester.fault = lambda call: changed if call.verb == "DELETE" else None
        program.guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(SOON)
    lists = [call.at for call in harvester.calls if call.verb == "GET" and call.path.endswith("/loadbalancers")]
    assert len(lists) > 2
    assert all(later - earlier >= CATCH_UP_SECONDS for earlier, later in pairwise(lists))


@jumping_time
async def test_a_node_that_changed_unseen_gets_its_taint_soon_all_the_same() -> None:
    scene = NodeWorld()
    async with scene.live():
        vms = [machine("w1"), machine("w2")]
        for number, vm in enumerate(vms):
            scene.boot(vm, f"10.0.0.{number}")
            scene.join(vm.name, system_uuid=vm.system_uuid)
        await initialised(scene, ["w1", "w2"])
        scene.say_ready("w1", "False")
        await asyncio.sleep(10)
        scene.guest_server.watch_drops = lambda _watch: True
        scene.guest_server.change(NODE, "w1", {"metadata": {"labels": {"changed": "unseen"}}})
        scene.guest_server.watch_drops = lambda _watch: False
        scene.stop(vms[0])
        assert await until(lambda: scene.taints("w1") == ["shutdown"], seconds=SOON) < SOON
