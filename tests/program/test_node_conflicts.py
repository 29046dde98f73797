"""Two Nodes with one InternalIP or one VM: the initialized one keeps it. A VM that does not run blocks no Node."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from devenv.harvester.machines import Machine
from harvester_ccm.kube.errors import KubeError
from harvester_ccm.names import PROVIDED_NODE_IP
from tests.support.clock import jumping_time, until
from tests.support.memory_server import Call, Document, refused
from tests.support.node_objects import DEFAULTS
from tests.support.node_world import NAMESPACE, NODE, VM, VMI, NodeWorld, initialised, machine

SHARED = "10.0.0.1"
GRACE_SECONDS = DEFAULTS.address_grace_seconds
FIRST, SECOND = machine("w1"), machine("w2")


def joining(scene: NodeWorld, vm: Machine, *addresses: str, provided: str = "") -> None:
    """Start a VM and register its Node."""
    scene.boot(vm, *addresses)
    annotations = {PROVIDED_NODE_IP: provided} if provided else {}
    scene.join(vm.name, system_uuid=vm.system_uuid, **annotations)


def messages(scene: NodeWorld, name: str, reason: str) -> list[str]:
    """Return the texts of the Events with a reason on a Node."""
    return [
        str(event["message"])
        for event in scene.guest_server.events()
        if event["reason"] == reason and event["involvedObject"]["name"] == name
    ]


def internal_ips(scene: NodeWorld, name: str) -> set[str]:
    """Return the InternalIPs of a Node."""
    return {text.split()[1] for text in scene.addresses(name) if text.startswith("InternalIP")}


def is_told_on_both(scene: NodeWorld, reason: str) -> bool:
    """Return whether both Nodes have an Event that names the other."""
    on_first, on_second = messages(scene, "w1", reason), messages(scene, "w2", reason)
    return any("w2" in text for text in on_first) and any("w1" in text for text in on_second)


@pytest.mark.parametrize("provided", ["", SHARED], ids=["reported", "named by the kubelet"])
@pytest.mark.parametrize(
    "way_out",
    [
        lambda scene: scene.report(SECOND, "10.0.0.2"),
        lambda scene: scene.stop(FIRST),
        lambda scene: scene.destroy(FIRST),
        lambda scene: scene.guest_server.remove(NODE, "w1"),
        lambda scene: scene.harvester_server.change(VMI, f"{NAMESPACE}/w1", {"status": {"phase": "Succeeded"}}),
    ],
    ids=["other address", "VM stopped", "VM deleted", "Node deleted", "VM ended"],
)
@pytest.mark.guarantee("Two Nodes whose VMs both run never get one InternalIP or one VM")
def test_new_node_does_not_get_the_internal_ip_of_a_running_one(
    provided: str, way_out: Callable[[NodeWorld], None]
) -> None:
    @jumping_time
    async def run() -> None:
        scene = NodeWorld()
        joining(scene, FIRST, SHARED)
        async with scene.live():
            await initialised(scene, ["w1"])
            before = scene.stored("w1")
            joining(scene, SECOND, SHARED, provided=provided)
            await until(lambda: is_told_on_both(scene, "InternalIPInUse"))
            told = [one["message"] for one in scene.guest_server.events() if one["reason"] == "InternalIPInUse"]
            assert all("check --node-ip of the kubelets, static addresses" in message for message in told)
            await asyncio.sleep(1800)
            assert scene.taints("w2") == ["uninitialized"]
            assert internal_ips(scene, "w2") == set()
            assert scene.stored("w1") == before
            if provided:
                scene.guest_server.change(NODE, "w2", {"metadata": {"annotations": {PROVIDED_NODE_IP: None}}})
            way_out(scene)
            assert await initialised(scene, ["w2"]) < 1

    run()


@jumping_time
async def test_new_node_gets_another_address_of_its_interface() -> None:
    scene = NodeWorld()
    joining(scene, FIRST, SHARED)
    async with scene.live():
        await initialised(scene, ["w1"])
        joining(scene, SECOND)
        scene.report_lists(SECOND, [SHARED, "10.0.0.2"])
        await initialised(scene, ["w2"])
        await asyncio.sleep(600)
    assert internal_ips(scene, "w1") == {SHARED}
    assert scene.addresses("w2") == ["InternalIP 10.0.0.2", "Hostname w2"]
    assert scene.told("w2") == ["Synced"]


def name_vms(scene: NodeWorld) -> None:
    """Set the provider IDs, as kubelets with ``--provider-id`` do at their registration."""
    for name in ("w1", "w2"):
        uid = scene.harvester_server.of(VM)[f"{NAMESPACE}/{name}"]["metadata"]["uid"]
        if not scene.provider_id(name):
            scene.guest_server.change(NODE, name, {"spec": {"providerID": f"harvester://{uid}"}})


@pytest.mark.parametrize("seed", range(20))
def test_only_one_of_two_nodes_that_join_at_once_gets_the_address(seed: int) -> None:
    dice = Random(seed)

    @jumping_time
    async def run() -> None:
        scene = NodeWorld()
        scene.guest_server.delay = lambda _call: dice.choice([0, 0.01, 0.5, 2])
        async with scene.live():
            await asyncio.sleep(dice.choice([0, 10]))
            joining(scene, FIRST, SHARED, provided=dice.choice(["", SHARED]))
            await asyncio.sleep(dice.choice([0, 0.01, 0.4, 1, 3]))
            joining(scene, SECOND, SHARED, provided=dice.choice(["", SHARED]))
            if dice.random() < 0.5:
                name_vms(scene)
            await asyncio.sleep(600)
            released = [name for name in ("w1", "w2") if scene.taints(name) == []]
            assert len(released) == 1, scene.node_writes()
            (waiting,) = {"w1", "w2"} - {*released}
            assert internal_ips(scene, waiting) == set()
            assert is_told_on_both(scene, "InternalIPInUse")
            writes = len(scene.node_writes())
            await asyncio.sleep(3600)
            assert len(scene.node_writes()) == writes

    run()


@jumping_time
async def test_kubelet_cannot_take_the_internal_ip_of_another_node() -> None:
    scene = NodeWorld()
    joining(scene, FIRST, SHARED)
    joining(scene, SECOND, "10.0.0.2")
    async with scene.live():
        await initialised(scene, ["w1", "w2"])
        scene.report_lists(SECOND, ["10.0.0.2", SHARED])
        scene.guest_server.change(NODE, "w2", {"metadata": {"annotations": {PROVIDED_NODE_IP: SHARED}}})
        await until(lambda: is_told_on_both(scene, "InternalIPInUse"))
        await asyncio.sleep(1800)
        assert internal_ips(scene, "w1") == {SHARED}
        assert internal_ips(scene, "w2") == {"10.0.0.2"}


@jumping_time
async def test_missing_internal_ip_is_not_replaced_by_that_of_another_node() -> None:
    scene = NodeWorld()
    joining(scene, FIRST, SHARED)
    joining(scene, SECOND, "10.0.0.2")
    async with scene.live():
        await initialised(scene, ["w1", "w2"])
        scene.report(SECOND, SHARED)
        await until(lambda: is_told_on_both(scene, "InternalIPInUse"))
        await asyncio.sleep(10 * GRACE_SECONDS)
        assert internal_ips(scene, "w2") == {"10.0.0.2"}
        scene.stop(FIRST)
        await until(lambda: internal_ips(scene, "w2") == {SHARED}, seconds=2 * GRACE_SECONDS)


def initialized_by_another(scene: NodeWorld, vm: Machine, uid: str, address: str, name: str = "") -> Document:
    """Register a Node that another provider initialized."""
    name = name or vm.name
    scene.join(name, system_uuid=vm.system_uuid)
    addresses = [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}]
    change = {"spec": {"taints": None, "providerID": f"harvester://{uid}"}, "status": {"addresses": addresses}}
    return scene.guest_server.change(NODE, name, change)


@jumping_time
async def test_two_initialized_nodes_keep_the_address_with_a_warning_each() -> None:
    scene = NodeWorld()
    before = [initialized_by_another(scene, vm, scene.boot(vm, SHARED), SHARED) for vm in (FIRST, SECOND)]
    async with scene.live():
        await until(lambda: is_told_on_both(scene, "InternalIPInUse"))
        await asyncio.sleep(1800)
    for name, node in zip(("w1", "w2"), before, strict=True):
        assert scene.stored(name)["status"]["addresses"] == node["status"]["addresses"]
        assert scene.stored(name)["spec"] == node["spec"]
        assert set(scene.told(name)) == {"InternalIPInUse"}


@pytest.mark.parametrize("by", ["system UUID", "provider ID"])
@pytest.mark.guarantee("Two Nodes whose VMs both run never get one InternalIP or one VM")
def test_new_node_does_not_get_the_vm_of_another_node(by: str) -> None:
    @jumping_time
    async def run() -> None:
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

    run()


@jumping_time
async def test_two_initialized_nodes_of_one_vm_keep_it_with_a_warning_each() -> None:
    scene = NodeWorld()
    uid = scene.boot(FIRST, SHARED)
    before = [initialized_by_another(scene, FIRST, uid, SHARED, name) for name in ("w1", "w2")]
    async with scene.live():
        await until(lambda: is_told_on_both(scene, "VMInUse"))
        await asyncio.sleep(1800)
    for name, node in zip(("w1", "w2"), before, strict=True):
        assert scene.stored(name)["status"]["addresses"] == node["status"]["addresses"]
        assert scene.stored(name)["spec"] == node["spec"]


def fail(scene: NodeWorld, vm: Machine) -> None:
    """Delete a VM; its kubelet stops."""
    scene.destroy(vm)
    scene.say_ready(vm.name, "Unknown")


def shut_down(scene: NodeWorld, vm: Machine) -> None:
    """Stop a VM; its kubelet stops."""
    scene.stop(vm)
    scene.say_ready(vm.name, "Unknown")


def terminate(scene: NodeWorld, vm: Machine) -> None:
    """Begin the deletion of a VM, which takes its time; its kubelet stops."""
    deleting = {"metadata": {"deletionTimestamp": "2026-11-21T08:00:00Z"}}
    scene.harvester_server.change(VMI, f"{NAMESPACE}/{vm.name}", deleting)
    scene.harvester_server.change(VM, f"{NAMESPACE}/{vm.name}", deleting)
    scene.say_ready(vm.name, "Unknown")


@pytest.mark.parametrize("end", [fail, shut_down, terminate])
@pytest.mark.parametrize("provided", ["", SHARED], ids=["reported", "named by the kubelet"])
def test_replacement_with_the_address_of_its_predecessor_is_initialized(
    end: Callable[[NodeWorld, Machine], None], provided: str
) -> None:
    """The ClusterRole of the Go provider does not permit to delete Nodes, so the Node of the predecessor stays."""

    def forbidden(call: Call) -> KubeError | None:
        is_deletion = call.verb == "DELETE" and "/nodes/" in call.path
        return refused(403, "Forbidden", "nodes is forbidden: cannot delete") if is_deletion else None

    @jumping_time
    async def run() -> None:
        scene = NodeWorld()
        scene.guest_server.fault = forbidden
        joining(scene, machine("other"), "10.0.0.9")
        joining(scene, FIRST, SHARED)
        async with scene.live():
            await initialised(scene, ["w1", "other"])
            end(scene, FIRST)
            joining(scene, SECOND, SHARED, provided=provided)
            assert await initialised(scene, ["w2"]) < 1
            await asyncio.sleep(1800)
            assert internal_ips(scene, "w2") == {SHARED}
            assert "w1" in scene.names()
            assert scene.told("w2") == ["Synced"]

    run()
