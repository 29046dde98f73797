"""Which Nodes a change of a VM enqueues."""

from __future__ import annotations

import asyncio

import pytest

from devenv.harvester.machines import interfaces_of
from tests.worlds.clock import jumping_time, until
from tests.worlds.node_world import NAMESPACE, NODE, VM, VMI, NodeWorld, initialised, machine

OURS = machine("w1")
STEPS = 60


def wakes(scene: NodeWorld) -> list[str]:
    """Return the names of the Nodes that are enqueued from now on."""
    woken: list[str] = []
    scene.vms.on_wake(woken.append)
    return woken


@jumping_time
async def test_pods_in_a_guest_wake_nobody() -> None:
    scene = NodeWorld()
    scene.boot(OURS, "10.0.0.1")
    async with scene.live():
        scene.join("w1", system_uuid=OURS.system_uuid)
        await initialised(scene, ["w1"])
        await asyncio.sleep(1)
        woken = wakes(scene)
        for pod in range(20):
            device = {"interfaceName": f"cali{pod:011x}", "ipAddress": "fe80::ecee:eeff:feee:eeee"}
            interfaces = [*interfaces_of(OURS, "10.0.0.1"), device]
            scene.harvester_server.change(VMI, f"{NAMESPACE}/w1", {"status": {"interfaces": interfaces}})
            await asyncio.sleep(0.1)
        assert woken == []
        scene.report(OURS, "10.0.0.2")
        await until(lambda: "InternalIP 10.0.0.2" in scene.addresses("w1"), seconds=90)


@jumping_time
async def test_heartbeats_of_kubelets_wake_nobody() -> None:
    scene = NodeWorld()
    scene.boot(OURS, "10.0.0.1")
    async with scene.live():
        scene.join("w1", system_uuid=OURS.system_uuid)
        await initialised(scene, ["w1"])
        await asyncio.sleep(1)
        woken = wakes(scene)
        for beat in range(20):
            ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-01-01T00:00:{beat:02}Z"}
            scene.guest_server.change(NODE, "w1", {"status": {"conditions": [ready], "images": [{"sizeBytes": beat}]}})
            await asyncio.sleep(0.1)
        assert woken == []
        scene.say_ready("w1", "Unknown")
        await until(lambda: woken == ["w1"])


@pytest.mark.parametrize("cluster", ["other", ""], ids=["of another cluster", "of nobody"])
def test_vms_of_strangers_wake_nobody(cluster: str) -> None:
    @jumping_time
    async def run() -> None:
        scene = NodeWorld()
        scene.boot(OURS, "10.0.0.1")
        stranger = machine("s1", cluster=cluster, networks=("default/else",))
        async with scene.live():
            scene.join("w1", system_uuid=OURS.system_uuid)
            await initialised(scene, ["w1"])
            await asyncio.sleep(1)
            woken = wakes(scene)
            scene.boot(stranger, "10.0.7.1")
            scene.report(stranger, "10.0.7.2")
            await asyncio.sleep(1)
            scene.stop(stranger)
            scene.harvester_server.remove(VM, f"{NAMESPACE}/s1")
            await asyncio.sleep(1)
            assert woken == []

    run()
