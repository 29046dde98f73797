"""Shutdown taint and deletion of Nodes, on API servers in memory and a clock that jumps."""

from __future__ import annotations

import asyncio
import copy
import itertools

import pytest

from devenv.harvester.machines import Machine, machine_document
from harvester_ccm.controllers.node_lifecycle import DELETION_INTERVAL_SECONDS
from harvester_ccm.errors import CCMError, ClusterReplaced
from harvester_ccm.kube.identity import IDENTITY_NAMESPACE
from harvester_ccm.model.core import NAMESPACES
from harvester_ccm.names import GO_MACHINE_RECORD, MACHINE_RECORD, SHUTDOWN_TAINT
from tests.worlds.clock import jumping_time, until
from tests.worlds.memory_server import Call, refused
from tests.worlds.node_objects import DEFAULTS
from tests.worlds.node_world import NODE, VM, NodeWorld, initialised, machine

HOUR = 3600
SOME_INTERVALS = 20 * DELETION_INTERVAL_SECONDS
"""Enough to delete all Nodes of a cluster of six."""


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
    (delete,) = [call for call in scene.guest_server.calls if call.verb == "DELETE"]
    assert delete.body["preconditions"].keys() == {"uid", "resourceVersion"}


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


@pytest.mark.parametrize(("count", "gone"), [(5, 2), (8, 4), (2, 1)])
@pytest.mark.parametrize("slow", ["", "DELETE", "GET"])
def test_scale_down_deletes_one_node_per_minute(count: int, gone: int, slow: str) -> None:
    """A slow GET is the one that confirms the identity of the guest cluster before each deletion."""

    @jumping_time
    async def run() -> None:
        scene = NodeWorld()
        scene.guest_server.delay = lambda call: 3.0 if call.verb == slow else 0.002
        async with scene.live():
            vms = await joined(scene, count)
            for vm in vms[:gone]:
                scene.destroy(vm)
                scene.say_ready(vm.name, "Unknown")
            await until(lambda: len(scene.names()) == count - gone, seconds=1000)
            await asyncio.sleep(SOME_INTERVALS)
            assert sorted(scene.names()) == sorted(vm.name for vm in vms[gone:])
            times = [call.at for call in scene.guest_server.calls if call.verb == "DELETE"]
            assert len(times) == gone
            pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
            assert all(pause >= DELETION_INTERVAL_SECONDS for pause in pauses)
            assert "NodeDeletionBlocked" not in scene.told()

    run()


@jumping_time
async def test_ready_node_without_vm_blocks_deletions() -> None:
    scene = NodeWorld()
    async with scene.live():
        vms = await joined(scene, 5)
        scene.destroy(vms[4])
        scene.destroy(vms[0])
        scene.say_ready("w0", "Unknown")
        await asyncio.sleep(HOUR)
        assert scene.names() == {"w0", "w1", "w2", "w3", "w4"}
        told = [event["message"] for event in scene.guest_server.events() if event["reason"] == "NodeDeletionBlocked"]
        assert len(told) == 1
        assert "Nodes without a VM are Ready: w4" in told[0]
        scene.say_ready("w4", "Unknown")
        await until(lambda: scene.names() == {"w1", "w2", "w3"}, seconds=300)


@pytest.mark.parametrize("provider_id", ["", "k3s://w9", "harvester://"])
@pytest.mark.parametrize("taints", [[], [{"key": SHUTDOWN_TAINT, "effect": "NoSchedule"}]], ids=["", "shutdown taint"])
def test_bare_metal_node_is_never_changed(provider_id: str, taints: list[dict[str, str]]) -> None:
    @jumping_time
    async def run() -> None:
        scene = NodeWorld()
        async with scene.live():
            await joined(scene, 3)
            stored = scene.join("w9")
            node = {**stored, "spec": {"providerID": provider_id, "taints": taints}}
            scene.guest_server.put(NODE, node)
            before = scene.node_writes()
            for ready in ("Unknown", "False", "True", "Unknown"):
                scene.say_ready("w9", ready)
                await asyncio.sleep(600)
            assert scene.names() == {"w0", "w1", "w2", "w9"}
            assert (scene.node_writes(), scene.asked()) == (before, [])

    run()


@pytest.mark.parametrize(("copies", "ready"), [(0, "Unknown"), (3, "True"), (3, "Unknown"), (5, "True")])
def test_another_harvester_in_the_cloud_config_deletes_nothing(copies: int, ready: str) -> None:
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
            await asyncio.sleep(SOME_INTERVALS)
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
        for number in range(100):
            scene.say_ready("w0", "False" if number % 2 else "Unknown")
            await asyncio.sleep(30)
        assert scene.told("w0") == ["Synced", "DeletingNodeFailed"]
        assert len(deletions(scene)) <= 51, "one attempt per minute"
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
async def test_only_404s_in_a_row_count() -> None:
    scene = NodeWorld()
    async with scene.live():
        vm, *_ = await joined(scene, 4)
        scene.destroy(vm)
        failing = refused(500, "InternalError", "boom")
        gets: list[str] = []

        def every_third(call: Call) -> CCMError | None:
            if not call.path.endswith("/virtualmachines/w0"):
                return None
            gets.append(call.path)
            return failing if len(gets) % DEFAULTS.deletion_confirmations == 0 else None

        scene.harvester_server.fault = every_third
        scene.say_ready("w0", "Unknown")
        await asyncio.sleep(1800)
        assert len(gets) > 2 * DEFAULTS.deletion_confirmations
        assert deletions(scene) == []


@jumping_time
async def test_no_node_is_deleted_when_another_guest_cluster_responds() -> None:
    scene = NodeWorld()

    async def lose_a_vm() -> None:
        async with scene.live():
            vm, *_ = await joined(scene, 4)
            scene.guest_server.put(NAMESPACES, {"metadata": {"name": IDENTITY_NAMESPACE, "uid": "another-cluster"}})
            scene.destroy(vm)
            scene.say_ready("w0", "Unknown")
            await asyncio.sleep(1800)

    with pytest.raises(ExceptionGroup) as raised:
        await lose_a_vm()
    assert raised.group_contains(ClusterReplaced)
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
        assert scene.told("w9").count("NodeDeletionBlocked") == 1
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
