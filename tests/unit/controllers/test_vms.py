"""What a change of a VM costs: whom it wakes, and the join of Nodes and VMs that is kept up to date by it."""

from __future__ import annotations

import asyncio

import pytest

from devenv.harvester.machines import interfaces_of
from tests.worlds.clock import jumping_time, until
from tests.worlds.node_world import NAMESPACE, NODE, VM, VMI, NodeWorld, initialised, machine

OURS = machine("w1")
STEPS = 60


def wakes(scene: NodeWorld) -> list[str]:
    """Return what is looked at from now on: the names of Nodes, and the networks of their VMs."""
    woken: list[str] = []
    scene.vms.on_wake(woken.append)
    scene.vms.on_networks(lambda: woken.append("networks"))
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
            assert set(woken) <= {"networks"}, "no Node is reconciled"

    run()


@jumping_time
async def test_network_mapping_looks_when_what_it_depends_on_has_changed() -> None:
    scene = NodeWorld()
    vm = machine("w1", cluster="")
    scene.boot(vm, "10.0.0.1")
    async with scene.live():
        await asyncio.sleep(1)
        looked: list[str] = []
        scene.vms.on_networks(lambda: looked.append("networks"))
        scene.join("w1", system_uuid=vm.system_uuid)
        await initialised(scene, ["w1"])
        assert len(looked) == 1, "the VM is a Node's now"
        scene.report(vm, "10.0.0.2")
        scene.harvester_server.change(VM, f"{NAMESPACE}/w1", {"status": {"printableStatus": "Migrating"}})
        await until(lambda: "InternalIP 10.0.0.2" in scene.addresses("w1"), seconds=90)
        assert len(looked) == 1, "neither an address nor the status of a VM is in the mapping"
        scene.report(vm)
        await until(lambda: len(looked) == 2, what="a device that is not reported any more")
        scene.guest_server.remove(NODE, "w1")
        await until(lambda: len(looked) == 3, what="a VM that is no Node's any more")
