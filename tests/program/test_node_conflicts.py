"""Two Nodes with one InternalIP or one VM: the initialized one keeps it. A VM that does not run blocks no Node."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from devenv.harvester.machines import Machine
from harvester_ccm.names import PROVIDED_NODE_IP
from tests.support.clock import jumping_time, until
from tests.support.memory_server import Document
from tests.support.node_objects import DEFAULTS
from tests.support.node_world import NAMESPACE, NODE, VM, VMI, NodeWorld, initialised, machine

SHARED = "10.0.0.1"
GRACE_SECONDS = DEFAULTS.address_grace_seconds
FIRST, SECOND = machine("w1"), machine("w2")


def joining(scene: NodeWorld, vm: Machine, *addresses: str, provided: str = "") -> None:
    scene.boot(vm, *addresses)
    annotations = {PROVIDED_NODE_IP: provided} if provided else {}
    scene.join(vm.name, system_uuid=vm.system_uuid, **annotations)


def internal_ips(scene: NodeWorld, name: str) -> set[str]:
    return {text.split()[1] for text in scene.addresses(name) if text.startswith("InternalIP")}


def is_told_on_both(scene: NodeWorld, reason: str) -> bool:
    events = [event for event in scene.guest_server.events() if event["reason"] == reason]
    named = {
        event["involvedObject"]["name"] for event in events if "w1" in event["message"] and "w2" in event["message"]
    }
    return named == {"w1", "w2"}


def terminate(scene: NodeWorld) -> None:
    """Begin the deletion of the first VM, which takes its time."""
    deleting = {"metadata": {"deletionTimestamp": "2026-11-21T08:00:00Z", "finalizers": ["kubevirt.io/controller"]}}
    for collection in (VMI, VM):
        scene.harvester_server.change(collection, f"{NAMESPACE}/w1", deleting)


def end_instance(scene: NodeWorld) -> None:
    scene.harvester_server.change(VMI, f"{NAMESPACE}/w1", {"status": {"phase": "Succeeded"}})


WAYS_OUT = {
    "other address": lambda scene: scene.report(SECOND, "10.0.0.2"),
    "VM stopped": lambda scene: scene.stop(FIRST),
    "VM deleted": lambda scene: scene.destroy(FIRST),
    "VM is being deleted": terminate,
    "VM ended": end_instance,
    "Node deleted": lambda scene: scene.guest_server.remove(NODE, "w1"),
}


@pytest.mark.parametrize("provided", ["", SHARED], ids=["reported", "named by the kubelet"])
@pytest.mark.parametrize("way_out", WAYS_OUT.values(), ids=WAYS_OUT.keys())
@pytest.mark.guarantee("Two Nodes whose VMs both run are never initialized with one InternalIP or one VM")
@jumping_time
async def test_new_node_does_not_get_the_internal_ip_of_a_running_one(
    provided: str, way_out: Callable[[NodeWorld], None]
) -> None:
    scene = NodeWorld()
    joining(scene, FIRST, SHARED)
    async with scene.live():
        await initialised(scene, ["w1"])
        before = scene.stored("w1")
        joining(scene, SECOND, SHARED, provided=provided)
        await until(lambda: is_told_on_both(scene, "InternalIPInUse"))
        await asyncio.sleep(1800)
        assert scene.taints("w2") == ["uninitialized"]
        assert internal_ips(scene, "w2") == set()
        assert scene.stored("w1") == before
        if provided:
            scene.guest_server.change(NODE, "w2", {"metadata": {"annotations": {PROVIDED_NODE_IP: None}}})
        way_out(scene)
        assert await initialised(scene, ["w2"]) < 1


@pytest.mark.parametrize("seed", range(8))
@jumping_time
async def test_at_most_one_of_two_nodes_that_join_at_once_is_initialized(seed: int) -> None:
    """If both have written the address before they see each other, both wait until one gets another address."""
    dice = Random(seed)
    scene = NodeWorld()
    scene.guest_server.delay = lambda _call: dice.choice([0, 0.01, 0.5, 2])
    async with scene.live():
        joining(scene, FIRST, SHARED, provided=dice.choice(["", SHARED]))
        await asyncio.sleep(dice.choice([0, 0.01, 0.4, 1, 3]))
        joining(scene, SECOND, SHARED)
        await asyncio.sleep(600)
        waiting = [name for name in ("w1", "w2") if scene.taints(name)]
        assert waiting
        assert is_told_on_both(scene, "InternalIPInUse")
        writes = len(scene.node_writes())
        await asyncio.sleep(3600)
        assert len(scene.node_writes()) == writes
        scene.report(SECOND, "10.0.0.2")
        await initialised(scene, ["w1", "w2"], seconds=3 * GRACE_SECONDS)
        await until(lambda: internal_ips(scene, "w2") == {"10.0.0.2"}, seconds=3 * GRACE_SECONDS)
        assert (internal_ips(scene, "w1"), internal_ips(scene, "w2")) == ({SHARED}, {"10.0.0.2"})


def initialized_by_another(scene: NodeWorld, vm: Machine, uid: str, name: str) -> Document:
    """Register a Node that another provider initialized."""
    scene.join(name, system_uuid=vm.system_uuid)
    addresses = [{"type": "InternalIP", "address": SHARED}, {"type": "Hostname", "address": name}]
    change = {"spec": {"taints": None, "providerID": f"harvester://{uid}"}, "status": {"addresses": addresses}}
    return scene.guest_server.change(NODE, name, change)


@pytest.mark.parametrize(
    ("vms", "reason"), [((FIRST, SECOND), "InternalIPInUse"), ((FIRST, FIRST), "VMInUse")], ids=["address", "VM"]
)
@jumping_time
async def test_two_initialized_nodes_keep_what_they_share_with_a_warning_each(
    vms: tuple[Machine, Machine], reason: str
) -> None:
    scene = NodeWorld()
    uids = {vm.name: scene.boot(vm, SHARED) for vm in dict.fromkeys(vms)}
    names = ("w1", "w2")
    before = [initialized_by_another(scene, vm, uids[vm.name], name) for vm, name in zip(vms, names, strict=True)]
    async with scene.live():
        await until(lambda: is_told_on_both(scene, reason))
        await asyncio.sleep(1800)
    for name, node in zip(names, before, strict=True):
        assert scene.stored(name)["status"]["addresses"] == node["status"]["addresses"]
        assert scene.stored(name)["spec"] == node["spec"]
        assert reason in scene.told(name)


@pytest.mark.parametrize("by", ["system UUID", "provider ID"])
@pytest.mark.guarantee("Two Nodes whose VMs both run are never initialized with one InternalIP or one VM")
@jumping_time
async def test_new_node_does_not_get_the_vm_of_another_node(by: str) -> None:
    scene = NodeWorld()
    uid = scene.boot(FIRST)
    scene.report_lists(FIRST, [SHARED, "10.0.0.2"])
    scene.join("w1", system_uuid=FIRST.system_uuid)
    async with scene.live():
        await initialised(scene, ["w1"])
        before = scene.stored("w1")
        scene.join("w2", system_uuid=FIRST.system_uuid, **{PROVIDED_NODE_IP: "10.0.0.2"})
        if by == "provider ID":
            scene.guest_server.change(NODE, "w2", {"spec": {"providerID": f"harvester://{uid}"}})
        await until(lambda: is_told_on_both(scene, "VMInUse"))
        await asyncio.sleep(1800)
        assert scene.taints("w2") == ["uninitialized"]
        assert scene.stored("w1") == before
        scene.guest_server.remove(NODE, "w1")
        assert await initialised(scene, ["w2"]) < 1
        assert internal_ips(scene, "w2") == {"10.0.0.2"}
