"""What a change of a VM costs: whom it wakes, and the join of Nodes and VMs that is kept up to date by it."""

from __future__ import annotations

import asyncio
import random

import pytest

from devenv.harvester.machines import Machine, interfaces_of
from harvester_ccm.controllers.vms import VMCache
from harvester_ccm.plan.node.vms import VMIndex
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
        index, woken = scene.vms.index(), wakes(scene)
        for pod in range(20):
            device = {"interfaceName": f"cali{pod:011x}", "ipAddress": "fe80::ecee:eeff:feee:eeee"}
            interfaces = [*interfaces_of(OURS, "10.0.0.1"), device]
            scene.harvester_server.change(VMI, f"{NAMESPACE}/w1", {"status": {"interfaces": interfaces}})
            await asyncio.sleep(0.1)
        assert scene.vms.index() is index
        assert woken == []
        scene.report(OURS, "10.0.0.2")
        await until(lambda: "InternalIP 10.0.0.2" in scene.addresses("w1"))


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
        await until(lambda: "InternalIP 10.0.0.2" in scene.addresses("w1"))
        assert len(looked) == 1, "neither an address nor the status of a VM is in the mapping"
        scene.report(vm)
        await until(lambda: len(looked) == 2, what="a device that is not reported any more")
        scene.guest_server.remove(NODE, "w1")
        await until(lambda: len(looked) == 3, what="a VM that is no Node's any more")


@pytest.mark.parametrize("seed", range(4))
def test_join_that_is_kept_up_to_date_is_the_one_made_anew(seed: int) -> None:
    @jumping_time
    async def run() -> None:
        scene, dice = NodeWorld(), random.Random(seed)
        async with scene.live():
            await asyncio.sleep(1)
            for step in range(STEPS):
                _happens(scene, dice)
                if dice.random() < 0.4:
                    continue
                await asyncio.sleep(0.1)
                anew = VMCache(scene.nodes, scene.machines, scene.instances, scene.vms.cluster)
                for vmi in scene.instances.all():
                    hostname = f"guest-{dice.randrange(2)}"
                    scene.vms.set_hostname(vmi, hostname)
                    anew.set_hostname(vmi, hostname)
                assert by_identity(scene.vms.index()) == by_identity(anew.index()), f"step {step}"

    run()


def _happens(scene: NodeWorld, dice: random.Random) -> None:
    """Let anything happen to one VM or one Node; some kubelets name the VM themselves, be it another Node's."""
    vm = Machine(f"w{dice.randrange(4)}", cluster=dice.choice(["demo", "other", ""]))
    key = f"{NAMESPACE}/{vm.name}"
    there = key in scene.harvester_server.objects.get(VM, {})
    runs = key in scene.harvester_server.objects.get(VMI, {})
    match dice.randrange(8):
        case 0 if not there:
            scene.boot(vm, "10.0.0.1")
        case 1 if there and not runs:
            scene.start(vm, "10.0.0.1")
        case 2 if runs:
            scene.stop(vm)
        case 3 if runs:
            scene.destroy(vm)
        case 4 if runs:
            scene.report(vm, f"10.0.0.{dice.randrange(4)}")
            firmware = {"domain": {"firmware": {"uuid": dice.choice(["aa", "bb"])}}}
            scene.harvester_server.change(VMI, key, {"spec": firmware})
        case 5 if vm.name not in scene.names():
            scene.join(vm.name, system_uuid=vm.system_uuid)
        case 6 if vm.name in scene.names():
            scene.guest_server.remove(NODE, vm.name)
        case 7 if there:
            other, uid = f"x{dice.randrange(2)}", scene.harvester_server.of(VM)[key]["metadata"]["uid"]
            scene.join(other)
            scene.guest_server.change(NODE, other, {"spec": {"providerID": f"harvester://{uid}"}})
        case _:
            pass


def by_identity(index: VMIndex) -> dict[str, object]:
    """Return all that an index says, without an order."""
    groups = {"by_firmware": index.by_firmware, "by_short_hostname": index.by_short_hostname}
    unordered = {
        name: {key: sorted(vm.uid for vm in group) for key, group in by_key.items()} for name, by_key in groups.items()
    }
    return {"synced": index.synced, "by_uid": index.by_uid, "by_name": index.by_name, **unordered, "of": index.claims}
