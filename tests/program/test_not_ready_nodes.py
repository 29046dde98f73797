"""A Node that is not Ready has an Event with the cause, as far as Harvester shows it."""

import asyncio

from harvester_ccm.kube.errors import Unreachable
from tests.support.clock import jumping_time, until
from tests.support.node_world import NodeWorld, joined, machine

MACHINE = machine("w1")


@jumping_time
async def test_state_from_before_an_outage_neither_sets_nor_removes_the_taint() -> None:
    """A VM that was started while Harvester cannot be read is not shut down."""
    scene = NodeWorld()
    other = machine("w2")
    async with scene.live():
        await joined(scene, [MACHINE, other])
        scene.stop(MACHINE)
        scene.say_ready("w1", "Unknown")
        await until(lambda: scene.taints("w1") == ["shutdown"])
        scene.harvester_server.fault = lambda _call: Unreachable("no answer within 10 s")
        scene.harvester_server.break_watches()
        await asyncio.sleep(60)
        scene.start(MACHINE, "10.0.0.1")
        scene.say_ready("w1", "True")
        await until(lambda: scene.taints("w1") == [])
        scene.say_ready("w1", "Unknown")
        scene.stop(other)
        scene.say_ready("w2", "Unknown")
        await asyncio.sleep(600)
        assert scene.taints("w1") == scene.taints("w2") == []
        scene.harvester_server.fault = None
        await until(lambda: scene.taints("w2") == ["shutdown"])
        await asyncio.sleep(60)
        assert scene.taints("w1") == []
