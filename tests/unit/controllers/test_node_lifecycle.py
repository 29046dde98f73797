"""Shutdown taint and deletion of Nodes, on API servers in memory and a clock that jumps."""

from __future__ import annotations

import asyncio
import copy

import pytest

from devenv.harvester.machines import Machine, machine_document
from harvester_ccm.names import GO_MACHINE_RECORD, MACHINE_RECORD
from harvester_ccm.plan.node.lifecycle import CONTRADICTION_SECONDS, DELETION_PERCENT, DELETION_WINDOW
from tests.worlds.clock import jumping_time, until
from tests.worlds.memory_server import refused
from tests.worlds.node_objects import DEFAULTS
from tests.worlds.node_world import NODE, VM, VMI, NodeWorld, initialised, machine

HOUR = 3600
SOME_WINDOWS = 3 * DELETION_WINDOW
"""More than there are rounds of deletions in a cluster of six Nodes."""


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


@pytest.mark.parametrize("broken", ["/virtualmachineinstances", "/loadbalancers"])
def test_shutdown_taint_of_a_stopped_vm_needs_no_vmi_and_no_load_balancer(broken: str) -> None:
    @jumping_time
    async def run() -> None:
        scene = NodeWorld()
        document = {**machine_document(machine("w0")), "status": {"printableStatus": "Stopped"}}
        uid = scene.harvester_server.put(VM, document)["metadata"]["uid"]
        stored = scene.join("w0", ready="Unknown")
        scene.guest_server.put(NODE, {**stored, "spec": {"providerID": f"harvester://{uid}"}})
        denied = refused(503, "ServiceUnavailable", "away")
        scene.harvester_server.fault = lambda call: denied if call.path.endswith(broken) else None
        async with scene.live():
            await until(lambda: scene.taints("w0") == ["shutdown"])

    run()


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


@pytest.mark.parametrize(
    ("count", "gone", "pauses"),
    [
        pytest.param(8, 2, 0, id="within the share"),
        pytest.param(8, 3, 1, id="one more than the share"),
        pytest.param(8, 4, 1, id="half of the Nodes"),
        pytest.param(5, 2, 1, id="two of five"),
        pytest.param(4, 2, 1, id="two of four"),
    ],
)
def test_no_more_than_the_share_is_deleted_within_some_minutes(count: int, gone: int, pauses: int) -> None:
    @jumping_time
    async def run() -> None:
        scene = NodeWorld()
        async with scene.live():
            vms = await joined(scene, count)
            for vm in vms[:gone]:
                scene.destroy(vm)
                scene.say_ready(vm.name, "Unknown")
            at_once = max(1, count * DELETION_PERCENT // 100)
            await until(lambda: len(scene.names()) == count - at_once)
            first = asyncio.get_running_loop().time()
            await asyncio.sleep(0.1)
            held = [name for name in scene.names() if "NodeDeletionHeld" in scene.told(name)]
            await asyncio.sleep(DELETION_WINDOW - 60)
            assert len(scene.names()) == count - at_once
            await until(lambda: len(scene.names()) == count - gone, seconds=1000 * (pauses + 1))
            assert (asyncio.get_running_loop().time() - first >= DELETION_WINDOW) == bool(pauses)
            await asyncio.sleep(1800)
            assert sorted(scene.names()) == sorted(vm.name for vm in vms[gone:])
            assert len(deletions(scene)) == gone
            assert scene.told().count("NodeDeletionHeld") == len(held) == gone - at_once, "said once"

    run()


@jumping_time
async def test_a_node_that_joined_anew_counts_once_more() -> None:
    scene = NodeWorld()
    async with scene.live():
        vms = await joined(scene, 6)
        for vm in (vms[0], vms[1]):
            scene.destroy(vm)
            scene.say_ready(vm.name, "Unknown")
        await until(lambda: len(scene.names()) == 4)
        first = asyncio.get_running_loop().time()
        scene.boot(vms[0], "10.0.0.1")
        scene.join("w0", system_uuid=vms[0].system_uuid)
        await initialised(scene, ["w0"])
        scene.destroy(vms[0])
        scene.say_ready("w0", "Unknown")
        await until(lambda: "w0" not in scene.names(), seconds=1000)
        assert asyncio.get_running_loop().time() - first >= DELETION_WINDOW
        assert len(deletions(scene)) == 3


@pytest.mark.parametrize("restarts", [1, 5])
def test_restarts_delete_no_more_than_the_share(restarts: int) -> None:
    """As when the program ran on one of the VMs that were removed, or cannot stay up."""

    @jumping_time
    async def run() -> None:
        scene = NodeWorld()
        async with scene.live():
            vms = await joined(scene, 6)
        for vm in vms[:3]:
            scene.destroy(vm)
            scene.say_ready(vm.name, "Unknown")
        for _ in range(restarts):
            scene = NodeWorld(after=scene)
            async with scene.live():
                await asyncio.sleep(DELETION_WINDOW - 60)
                assert len(scene.names()) == 6
        scene = NodeWorld(after=scene)
        async with scene.live():
            started = asyncio.get_running_loop().time()
            await until(lambda: len(scene.names()) == 4, seconds=700)
            assert asyncio.get_running_loop().time() - started >= DELETION_WINDOW
            await asyncio.sleep(DELETION_WINDOW - 60)
            assert len(scene.names()) == 4
            await until(lambda: len(scene.names()) == 3, seconds=200)

    run()


@pytest.mark.parametrize("slow", ["DELETE", "GET"])
def test_deletions_under_way_count(slow: str) -> None:
    """A slow GET is the one by which the identity of the cluster is confirmed before each deletion."""

    @jumping_time
    async def run() -> None:
        scene = NodeWorld()
        scene.guest_server.delay = lambda call: 3.0 if call.verb == slow else 0.002
        async with scene.live():
            vms = await joined(scene, 5)
            for vm in vms[:2]:
                scene.destroy(vm)
                scene.say_ready(vm.name, "Unknown")
            await until(lambda: deletions(scene), what="the first deletion")
            await asyncio.sleep(300)
            assert len(deletions(scene)) == 1
            assert len(scene.names()) == 4

    run()


@jumping_time
async def test_ready_node_without_vm_holds_others_for_some_minutes_only() -> None:
    scene = NodeWorld()
    async with scene.live():
        vms = await joined(scene, 5)
        elsewhere = {**scene.stored("w4"), "spec": {"providerID": "harvester://moved-to-another-namespace"}}
        scene.guest_server.put(NODE, elsewhere)
        scene.harvester_server.remove(VMI, "default/w4")
        scene.harvester_server.remove(VM, "default/w4")
        scene.destroy(vms[0])
        scene.say_ready("w0", "Unknown")
        await until(lambda: "NodeDeletionHeld" in scene.told("w0"))
        took = await until(lambda: "w0" not in scene.names(), seconds=1000)
        assert took >= CONTRADICTION_SECONDS - 2 * DEFAULTS.confirmation_spacing
        await asyncio.sleep(3600)
        assert scene.names() == {"w1", "w2", "w3", "w4"}
        told = [event["message"] for event in scene.guest_server.events() if event["reason"] == "NodeDeletionHeld"]
        assert len(told) == 1
        assert "ready Nodes have no VM either (w4)" in told[0]
        assert "cloud-config" not in told[0], "its VM was seen in that namespace"


@pytest.mark.parametrize(
    "gone",
    [pytest.param(6, id="all"), pytest.param(4, id="most"), pytest.param(3, id="half, and no Node is ready")],
)
def test_no_node_is_deleted_when_too_few_can_confirm_that_vms_went(gone: int) -> None:
    @jumping_time
    async def run() -> None:
        scene = NodeWorld()
        async with scene.live():
            vms = await joined(scene, 6)
            for vm in vms[:gone]:
                scene.destroy(vm)
            for vm in vms if gone == 3 else vms[:gone]:
                scene.say_ready(vm.name, "Unknown")
            await asyncio.sleep(SOME_WINDOWS)
            assert deletions(scene) == []
            assert len(scene.names()) == 6

    run()


@pytest.mark.parametrize(
    ("copies", "ready"),
    [
        (0, "Unknown"),
        pytest.param(1, "True", marks=pytest.mark.thorough),
        pytest.param(1, "Unknown", marks=pytest.mark.thorough),
        (2, "True"),
        (2, "Unknown"),
        (3, "True"),
        (3, "Unknown"),
        pytest.param(4, "True", marks=pytest.mark.thorough),
        pytest.param(4, "Unknown", marks=pytest.mark.thorough),
        (5, "True"),
        (5, "Unknown"),
    ],
)
def test_another_harvester_in_the_cloud_config_deletes_nothing(copies: int, ready: str, *, thorough: bool) -> None:
    """With copies of some VMs, as in a staging or recovery site: same names and firmware UUIDs, other UIDs."""

    @jumping_time
    async def run() -> None:
        before = NodeWorld()
        async with before.live():
            vms = await joined(before, 6)
        after = NodeWorld(after=before)
        after.harvester_server.objects.clear()
        for number, vm in enumerate(vms[:copies]):
            after.boot(vm, f"10.9.0.{number + 1}")
        for number, vm in enumerate(vms):
            after.say_ready(vm.name, ready if number < copies else "Unknown")
        async with after.live():
            await asyncio.sleep(HOUR if thorough else SOME_WINDOWS)
        assert deletions(after) == []
        assert len(after.names()) == 6

    run()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('nodes "w0" is forbidden: User "ccm" cannot delete resource "nodes"', id="no right"),
        pytest.param("nodes \"w0\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no", id="policy"),
    ],
)
@jumping_time
async def test_deletion_that_is_not_granted_is_told_once_and_does_no_harm(text: str) -> None:
    scene = NodeWorld()
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
async def test_deletion_that_a_policy_refuses_does_not_count_as_done() -> None:
    scene = NodeWorld()
    denied = refused(403, "Forbidden", "nodes \"w0\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no")
    scene.guest_server.fault = lambda call: denied if (call.verb, call.path[-2:]) == ("DELETE", "w0") else None
    async with scene.live():
        vm, other, *_ = await joined(scene, 5)
        for one, name in ((vm, "w0"), (other, "w1")):
            scene.destroy(one)
            scene.say_ready(name, "Unknown")
            await asyncio.sleep(300)
        await until(lambda: "w1" not in scene.names(), seconds=1800)
        assert "w0" in scene.names()


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
async def test_node_that_the_go_provider_recorded_goes_with_its_vm_that_was_never_seen() -> None:
    before = NodeWorld()
    async with before.live():
        vm, *_ = await joined(before, 4)
    before.destroy(vm)
    records = {MACHINE_RECORD: None, GO_MACHINE_RECORD: "w0"}
    before.guest_server.change(NODE, "w0", {"metadata": {"annotations": records}})
    before.say_ready("w0", "Unknown")
    scene = NodeWorld(after=before)
    async with scene.live():
        await until(lambda: "w0" not in scene.names())
    assert len(scene.asked("/virtualmachines/w0")) == DEFAULTS.deletion_confirmations


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
