"""Shutdown taint and deletion of Nodes, on API servers in memory and a clock that jumps."""

from __future__ import annotations

import asyncio
import copy

import pytest

from devenv.harvester.machines import Machine
from harvester_ccm.names import MACHINE_RECORD
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import refused
from tests.worlds.node_objects import DEFAULTS, node_settings
from tests.worlds.node_world import NODE, VM, NodeWorld, initialised, machine, until


async def joined(scene: NodeWorld, count: int) -> list[Machine]:
    """Boot VMs and have their Nodes initialised."""
    vms = [machine(f"w{number}") for number in range(count)]
    for number, vm in enumerate(vms):
        scene.boot(vm, f"10.0.0.{number + 1}")
        scene.join(vm.name, system_uuid=vm.system_uuid)
    await initialised(scene, [vm.name for vm in vms])
    return vms


def deletions(scene: NodeWorld) -> list[str]:
    """Return the DELETE requests."""
    return [call.path for call in scene.guest_server.calls if call.verb == "DELETE"]


@jumping_time
async def test_shutdown_taint_comes_with_the_stop_and_goes_when_the_vm_runs_again() -> None:
    scene = NodeWorld()
    async with scene.live():
        vm, _ = await joined(scene, 2)
        scene.stop(vm)
        scene.say_ready("w0", "Unknown")
        assert await until(lambda: scene.taints("w0") == ["shutdown"]) < 0.2
        await asyncio.sleep(600)
        assert scene.names() == {"w0", "w1"}
        scene.start(vm, "10.0.0.1")
        assert await until(lambda: scene.taints("w0") == []) < 0.2
        assert scene.stored("w0")["status"]["conditions"][0]["status"] == "Unknown", "still not ready"
        assert scene.asked() == []


@jumping_time
async def test_node_is_deleted_after_confirmations_by_live_requests() -> None:
    scene = NodeWorld()
    async with scene.live():
        vm, *_ = await joined(scene, 4)
        uid = scene.stored("w0")["metadata"]["uid"]
        scene.destroy(vm)
        await asyncio.sleep(60)
        assert scene.names() == {"w0", "w1", "w2", "w3"}, "a ready Node is never looked at"
        scene.say_ready("w0", "Unknown")
        took = 0.0
        while "w0" in scene.names():
            # Looks are many, questions are few.
            scene.say_ready("w0", "False" if int(took) % 2 else "Unknown")
            await asyncio.sleep(0.5)
            took += 0.5
        await until(lambda: "DeletingNode" in scene.told("w0"))
    assert took >= 2 * DEFAULTS.confirmation_spacing
    assert len(scene.asked("/virtualmachines/w0")) == DEFAULTS.deletion_confirmations
    event = next(event for event in scene.guest_server.events() if event["reason"] == "DeletingNode")
    assert event["message"] == "Deleting node w0 because it does not exist in the cloud provider"
    assert event["involvedObject"]["uid"] == uid


@jumping_time
async def test_vm_that_comes_back_between_confirmations_saves_its_node() -> None:
    scene = NodeWorld()
    async with scene.live():
        vm, *_ = await joined(scene, 3)
        stored = scene.harvester_server.objects[VM]["default/w0"]
        scene.destroy(vm)
        scene.say_ready("w0", "Unknown")
        await until(lambda: len(scene.asked("/virtualmachines/w0")) == 2)
        scene.harvester_server.put(VM, stored)
        scene.start(vm, "10.0.0.1")
        await asyncio.sleep(600)
        assert scene.names() == {"w0", "w1", "w2"}
        assert scene.told("w0") == ["Synced"]
        assert deletions(scene) == []


@pytest.mark.parametrize("gone", [2, 3])
def test_no_more_than_the_share_is_deleted(gone: int) -> None:
    @jumping_time
    async def run() -> None:
        scene = NodeWorld(node_settings(deletion_max_share=0.25))
        async with scene.live():
            vms = await joined(scene, 8)
            for vm in vms[:gone]:
                scene.destroy(vm)
                scene.say_ready(vm.name, "Unknown")
            await asyncio.sleep(300)
            held = [name for name in scene.names() if "NodeDeletionHeld" in scene.told(name)]
            assert len(scene.names()) == (6 if gone == 2 else 8)
            assert len(held) == (0 if gone == 2 else 3)
            await asyncio.sleep(1800)
            assert scene.told().count("NodeDeletionHeld") == len(held), "said once"

    run()


@jumping_time
async def test_deletion_that_is_not_granted_is_told_once_and_does_no_harm() -> None:
    scene = NodeWorld()
    text = 'nodes "w0" is forbidden: User "ccm" cannot delete resource "nodes"'
    denied = refused(403, "Forbidden", text)
    scene.guest_server.fault = lambda call: denied if call.verb == "DELETE" else None
    async with scene.live():
        vm, *_ = await joined(scene, 4)
        scene.destroy(vm)
        for look in range(120):
            scene.say_ready("w0", "False" if look % 2 else "Unknown")
            await asyncio.sleep(30)
        assert scene.told("w0") == ["Synced", "DeletingNodeFailed"]
        assert len(deletions(scene)) <= 7, "tried again every ten minutes"
        scene.guest_server.fault = None
        await until(lambda: "w0" not in scene.names(), seconds=700)


@jumping_time
async def test_node_that_changed_meanwhile_is_not_deleted() -> None:
    scene = NodeWorld()
    async with scene.live():
        vm, *_ = await joined(scene, 4)
        scene.destroy(vm)
        scene.say_ready("w0", "Unknown")
        await until(lambda: len(scene.asked("/virtualmachines/w0")) == 2)
        # It joins again under its name, ready, before the third confirmation is acted on.
        scene.guest_server.remove(NODE, "w0")
        scene.join("w0", system_uuid=vm.system_uuid)
        await asyncio.sleep(1800)
        assert "w0" in scene.names()
        assert deletions(scene) == []


@jumping_time
async def test_only_a_404_for_this_very_vm_means_gone() -> None:
    scene = NodeWorld()
    async with scene.live():
        vm, *_ = await joined(scene, 4)
        scene.destroy(vm)
        wrong = refused(404, "NotFound", "the server could not find the requested resource")
        scene.harvester_server.fault = lambda call: wrong if call.path.endswith("/virtualmachines/w0") else None
        scene.say_ready("w0", "Unknown")
        await asyncio.sleep(3600)
        assert "w0" in scene.names()
        assert scene.told("w0") == ["Synced"]
        scene.harvester_server.fault = None
        await until(lambda: "w0" not in scene.names())


@jumping_time
async def test_node_is_deleted_also_after_a_restart() -> None:
    before = NodeWorld()
    async with before.live():
        vm, *_ = await joined(before, 4)
    before.destroy(vm)
    before.say_ready("w0", "Unknown")
    scene = NodeWorld(after=before)
    async with scene.live():
        await until(lambda: "w0" not in scene.names())
    assert len(scene.asked("/virtualmachines/w0")) == DEFAULTS.deletion_confirmations


@jumping_time
async def test_node_whose_vm_has_another_name_outlives_a_restart_while_the_vm_cannot_be_read() -> None:
    before = NodeWorld()
    async with before.live():
        await joined(before, 4)
        other = machine("vm-of-w9")
        before.boot(other, "10.0.0.9")
        before.join("w9", system_uuid=other.system_uuid)
        await initialised(before, ["w9"])
    stored = before.harvester_server.objects[VM]["default/vm-of-w9"]
    good = copy.deepcopy(stored)
    # A shape that no version of the API has had so far.
    before.harvester_server.change(VM, "default/vm-of-w9", {"spec": {"template": {"spec": {"networks": 1}}}})
    before.guest_server.change(NODE, "w9", {"metadata": {"annotations": {MACHINE_RECORD: None}}})
    before.say_ready("w9", "Unknown")
    scene = NodeWorld(after=before)
    async with scene.live():
        await asyncio.sleep(1800)
        assert "w9" in scene.names()
        assert scene.asked("/virtualmachines/w9") == []
        assert scene.told("w9").count("NodeDeletionHeld") == 1
        scene.harvester_server.put(VM, good)
        await asyncio.sleep(60)
        assert not scene.vms.vms.unread | scene.vms.vmis.unread
        assert "w9" in scene.names()


@jumping_time
async def test_node_whose_vm_was_never_seen_is_held() -> None:
    before = NodeWorld()
    async with before.live():
        vm, *_ = await joined(before, 4)
    before.destroy(vm)
    before.guest_server.change(NODE, "w0", {"metadata": {"annotations": {MACHINE_RECORD: None}}})
    before.say_ready("w0", "Unknown")
    scene = NodeWorld(after=before)
    async with scene.live():
        await asyncio.sleep(1800)
        assert "w0" in scene.names()
        assert scene.told("w0").count("NodeDeletionHeld") == 1
        assert scene.asked("/virtualmachines/w0") == []


@jumping_time
async def test_vm_that_becomes_unreadable_is_kept_as_it_was_until_it_is_gone() -> None:
    scene = NodeWorld()
    async with scene.live():
        await joined(scene, 2)
        scene.harvester_server.change(VM, "default/w0", {"spec": {"template": {"spec": {"networks": 1}}}})
        await until(lambda: scene.vms.vms.unread | scene.vms.vmis.unread == {"default/w0"})
        assert scene.machines.get("default/w0") is not None
        scene.harvester_server.remove(VM, "default/w0")
        await until(lambda: not scene.vms.vms.unread | scene.vms.vmis.unread)
        assert scene.machines.get("default/w0") is None
