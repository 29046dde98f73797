"""Deletion of Nodes, on API servers in memory and simulated time."""

import asyncio
import itertools

import pytest

from harvester_ccm.controllers.node_lifecycle import DELETION_INTERVAL_SECONDS
from harvester_ccm.kube.builtin import NAMESPACES
from harvester_ccm.kube.errors import ClusterReplaced, KubeError, Unreachable
from harvester_ccm.kube.identity import IDENTITY_NAMESPACE
from harvester_ccm.names import VM_ANNOTATION
from tests.support.clock import jumping_time, until
from tests.support.memory_server import Call, page, refused
from tests.support.node_objects import DEFAULTS, vm_not_found
from tests.support.node_world import NODE, NodeWorld, joined, machines

HOUR = 3600
SOME_INTERVALS = 20 * DELETION_INTERVAL_SECONDS
"""Enough to delete all Nodes of a cluster of six."""


def deletions(scene: NodeWorld) -> list[str]:
    return [call.path for call in scene.guest_server.calls if call.verb == "DELETE"]


@jumping_time
async def test_node_is_deleted_after_confirmations_by_live_requests() -> None:
    scene = NodeWorld()
    async with scene.live():
        vm, *_ = await joined(scene, machines(4))
        uid = scene.stored("w0")["metadata"]["uid"]
        scene.destroy(vm)
        await asyncio.sleep(60)
        assert scene.names() == {"w0", "w1", "w2", "w3"}, "a Ready Node is never deleted"
        scene.say_ready("w0", "Unknown")
        took = 0.0
        while "w0" in scene.names():
            # Many reconciles cause few requests.
            scene.say_ready("w0", "False" if int(took) % 2 else "Unknown")
            await asyncio.sleep(0.5)
            took += 0.5
        await until(lambda: "DeletingNode" in scene.told("w0"))
    assert took >= 2 * DEFAULTS.confirmation_spacing
    assert len(scene.asked("/virtualmachines/w0")) == DEFAULTS.deletion_confirmations
    event = next(event for event in scene.guest_server.events() if event["reason"] == "DeletingNode")
    # The beginning is the text of every cloud provider.
    assert event["message"].startswith("Deleting node w0 because it does not exist in the cloud provider: VM w0 does ")
    assert "If it does exist, correct the namespace" in event["message"]
    assert event["involvedObject"]["uid"] == uid
    (delete,) = [call for call in scene.guest_server.calls if call.verb == "DELETE"]
    assert delete.body["preconditions"].keys() == {"uid", "resourceVersion"}


@jumping_time
async def test_deletion_that_the_api_server_rejects_is_said_and_tried_again() -> None:
    scene = NodeWorld()
    async with scene.live():
        vm, *_ = await joined(scene, machines(4))
        scene.destroy(vm)
        rejection = refused(403, "Forbidden", 'nodes "w0" is forbidden: User "u" cannot delete resource "nodes"')
        scene.guest_server.fault = lambda call: rejection if call.verb == "DELETE" else None
        scene.say_ready("w0", "Unknown")
        await until(lambda: "DeletingNodeFailed" in scene.told("w0"))
        event = next(event for event in scene.guest_server.events() if event["reason"] == "DeletingNodeFailed")
        assert event["message"].startswith("Failed deleting node w0. ")
        assert 'cannot delete resource "nodes"' in event["message"]
        assert event["message"].endswith("Run: kubectl delete node w0")
        scene.guest_server.fault = None
        await until(lambda: "w0" not in scene.names(), seconds=2 * DELETION_INTERVAL_SECONDS)


@pytest.mark.parametrize(("count", "gone"), [(5, 2), (8, 4), (2, 1)])
@pytest.mark.parametrize("slow", ["", "DELETE", "GET"])
@pytest.mark.guarantee("Deletions without a finalizer are rate-limited")
@jumping_time
async def test_scale_down_deletes_one_node_per_minute(count: int, gone: int, slow: str) -> None:
    """A slow GET is the one that confirms the identity of the guest cluster before each deletion."""
    scene = NodeWorld()
    scene.guest_server.delay = lambda call: 3.0 if call.verb == slow else 0.002
    async with scene.live():
        vms = await joined(scene, machines(count))
        for vm in vms[:gone]:
            scene.destroy(vm)
            scene.say_ready(vm.name, "Unknown")
        await until(lambda: len(scene.names()) == count - gone, seconds=1000)
        await asyncio.sleep(SOME_INTERVALS)
        assert sorted(scene.names()) == sorted(vm.name for vm in vms[gone:])
        times = [call.at for call in scene.guest_server.calls if call.verb == "DELETE"]
        assert len(times) == gone
        pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert all(pause >= 60 for pause in pauses)
        assert "NodeDeletionBlocked" not in scene.told()


@pytest.mark.parametrize(("copies", "ready"), [(0, "Unknown"), (3, "True"), (3, "Unknown"), (5, "True")])
@jumping_time
async def test_another_harvester_in_the_cloud_config_deletes_nothing(copies: int, ready: str) -> None:
    """With copies of some VMs, as in a staging or recovery site: same names and firmware UUIDs, other UIDs."""
    before = NodeWorld()
    async with before.live():
        vms = await joined(before, machines(6))
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


@jumping_time
async def test_node_is_deleted_without_a_record_if_this_process_saw_its_vm() -> None:
    scene = NodeWorld()
    async with scene.live():
        vm, *_ = await joined(scene, machines(4))
        scene.guest_server.change(NODE, "w0", {"metadata": {"annotations": {VM_ANNOTATION: None}}})
        scene.destroy(vm)
        scene.say_ready("w0", "Unknown")
        await until(lambda: "w0" not in scene.names())


@jumping_time
async def test_node_that_changed_meanwhile_is_not_deleted() -> None:
    scene = NodeWorld()
    async with scene.live():
        vm, *_ = await joined(scene, machines(4))
        scene.destroy(vm)
        scene.say_ready("w0", "Unknown")
        await until(lambda: len(scene.asked("/virtualmachines/w0")) == 2)
        # It joins again under its name, Ready, before the third confirmation.
        scene.guest_server.remove(NODE, "w0")
        scene.join("w0", system_uuid=vm.system_uuid)
        await asyncio.sleep(1800)
        assert "w0" in scene.names()
        assert deletions(scene) == []


@jumping_time
async def test_node_recreated_while_the_delete_request_is_sent_stays() -> None:
    scene = NodeWorld()

    def recreate(call: Call) -> None:
        if call.verb == "DELETE" and len(deletions(scene)) == 1:
            scene.guest_server.remove(NODE, "w0")
            scene.join("w0", ready="False")

    async with scene.live():
        vm, *_ = await joined(scene, machines(4))
        scene.guest_server.fault = recreate
        scene.destroy(vm)
        scene.say_ready("w0", "Unknown")
        await asyncio.sleep(1800)
        assert "w0" in scene.names()
        assert len(deletions(scene)) == 1
        assert "DeletingNodeFailed" not in scene.told("w0")


@jumping_time
async def test_node_that_somebody_else_deletes_first_is_not_reported_as_deleted() -> None:
    scene = NodeWorld()

    def delete_first(call: Call) -> None:
        if call.verb == "DELETE":
            scene.guest_server.remove(NODE, "w0")

    async with scene.live():
        vm, *_ = await joined(scene, machines(4))
        scene.guest_server.fault = delete_first
        scene.destroy(vm)
        scene.say_ready("w0", "Unknown")
        await until(lambda: "w0" not in scene.names())
        await asyncio.sleep(SOME_INTERVALS)
        assert len(deletions(scene)) == 1
        assert not {"DeletingNode", "DeletingNodeFailed"} & set(scene.told())


@jumping_time
async def test_only_404s_in_a_row_count() -> None:
    scene = NodeWorld()
    async with scene.live():
        vm, *_ = await joined(scene, machines(4))
        scene.destroy(vm)
        failing = refused(500, "InternalError", "boom")
        gets: list[str] = []

        def every_third(call: Call) -> KubeError | None:
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
async def test_404s_from_before_the_node_was_ready_again_do_not_count() -> None:
    scene = NodeWorld()
    async with scene.live():
        vm, *_ = await joined(scene, machines(4))
        scene.destroy(vm)
        for _ in range(DEFAULTS.deletion_confirmations):
            scene.harvester_server.calls.clear()
            scene.say_ready("w0", "Unknown")
            await until(lambda: scene.asked("/virtualmachines/w0") != [], seconds=600)
            await asyncio.sleep(1)
            scene.say_ready("w0", "True")
            await asyncio.sleep(1)
        assert deletions(scene) == []


@jumping_time
async def test_no_node_is_deleted_when_another_guest_cluster_responds() -> None:
    scene = NodeWorld()

    async def lose_a_vm() -> None:
        async with scene.live():
            vm, *_ = await joined(scene, machines(4))
            scene.guest_server.put(NAMESPACES, {"metadata": {"name": IDENTITY_NAMESPACE, "uid": "another-cluster"}})
            scene.destroy(vm)
            scene.say_ready("w0", "Unknown")
            await asyncio.sleep(1800)

    with pytest.raises(ExceptionGroup) as raised:
        await lose_a_vm()
    assert raised.group_contains(ClusterReplaced)
    assert deletions(scene) == []


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(vm_not_found("w2"), id="404 of another VM"),
        pytest.param(page(), id="404 of a proxy"),
        pytest.param(refused(404, "NotFound", "the server could not find the requested resource"), id="no kind"),
        pytest.param(refused(404, "NotFound", 'namespaces "prod" not found', about="prod"), id="no namespace"),
        pytest.param(refused(401, "", "Unauthorized"), id="401"),
        pytest.param(refused(403, "", "forbidden"), id="403"),
        pytest.param(refused(500, "", "boom"), id="500"),
        pytest.param(Unreachable("timeout"), id="unreachable"),
    ],
)
@jumping_time
async def test_only_a_404_that_names_the_vm_counts(error: KubeError) -> None:
    scene = NodeWorld()
    async with scene.live():
        vm, *_ = await joined(scene, machines(4))
        scene.destroy(vm)
        scene.harvester_server.fault = lambda call: error if call.path.endswith("/virtualmachines/w0") else None
        scene.say_ready("w0", "Unknown")
        await asyncio.sleep(3600)
        assert "w0" in scene.names()
        assert scene.told("w0") == ["Synced"]
        scene.harvester_server.fault = None
        await until(lambda: "w0" not in scene.names())


@jumping_time
async def test_node_is_deleted_after_a_restart() -> None:
    before = NodeWorld()
    async with before.live():
        vm, *_ = await joined(before, machines(4))
    before.destroy(vm)
    before.say_ready("w0", "Unknown")
    scene = NodeWorld(after=before)
    async with scene.live():
        await until(lambda: "w0" not in scene.names())
    assert len(scene.asked("/virtualmachines/w0")) == DEFAULTS.deletion_confirmations
