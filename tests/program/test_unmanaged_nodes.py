"""Nodes of other providers and machines next to VMs with the same name, firmware UUID or label do not change.

A Node with a provider ID of this provider loses the shutdown taint when it is Ready, even if its VM is not found.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, Final

import pytest

from harvester_ccm.kube.write_limit import WRITE_BURST, WRITE_INTERVAL_SECONDS
from harvester_ccm.names import SHUTDOWN_TAINT, VM_ANNOTATION, ZONE
from tests.support.clock import jumping_time, until
from tests.support.memory_server import Document
from tests.support.node_world import NAMESPACE, NODE, PERIOD, TAINT, VM, VMI, NodeWorld, joined, machine

SAME_NAME: Final = machine("w1", cluster="", zone="zone-a")
"""A VM with the name of the Node, without a cluster label."""
ELSEWHERE: Final = "00112233-4455-6677-8899-aabbccddeeff"
SHUT_DOWN: Final = {"key": SHUTDOWN_TAINT, "effect": "NoSchedule"}
KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "of another provider": ("k3s://w1", SAME_NAME.system_uuid),
    "of another provider, new": ("aws:///eu/i-1", SAME_NAME.system_uuid),
    "of no VM": ("", ELSEWHERE),
    "of another namespace": ("harvester://elsewhere", ELSEWHERE),
}


def node_of(kind: str) -> Document:
    """Return a Node that this controller does not initialize."""
    provider_id, system_uuid = KINDS[kind]
    spec: dict[str, Any] = {"taints": [TAINT] if kind.endswith("new") else []}
    return {
        "metadata": {"name": "w1"},
        "spec": {**spec, **({"providerID": provider_id} if provider_id else {})},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "172.16.0.5"}, {"type": "Hostname", "address": "w1"}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"systemUUID": system_uuid},
        },
    }


def change(scene: NodeWorld, dice: Random) -> None:
    """Change the VM, or the Node as another controller."""
    running = f"{NAMESPACE}/w1" in scene.harvester_server.objects.get(VMI, {})
    events: dict[str, Callable[[], object]] = {
        "report": lambda: scene.report(
            SAME_NAME, *dice.sample(["10.9.9.9", "10.9.9.8", "fd00::9"], dice.randint(0, 2))
        ),
        "move": lambda: scene.harvester_server.change(
            VMI, f"{NAMESPACE}/w1", {"metadata": {"annotations": {ZONE: dice.choice(["zone-b", None])}}}
        ),
        "stop": lambda: scene.stop(SAME_NAME),
        "start": lambda: scene.start(SAME_NAME, "10.9.9.9"),
        "ready": lambda: scene.say_ready("w1", dice.choice(["True", "False", "Unknown"])),
        "taint": lambda: scene.guest_server.change(NODE, "w1", {"spec": {"taints": [dice.choice([EXTRA, SHUT_DOWN])]}}),
    }
    others = ["ready", "taint"]
    events[dice.choice([*others, *(["report", "move", "stop"] if running else ["start"])])]()


EXTRA: Final = {"key": "example.com/other", "effect": "NoSchedule"}


def changed_of(scene: NodeWorld, name: str) -> Iterator[tuple[str, str]]:
    """Yield the written fields of a Node; a write of the shutdown taint is an error."""
    for call in scene.guest_server.calls:
        if not call.is_write or f"/nodes/{name}" not in call.path:
            continue
        for part, fields in call.body.items():
            assert SHUTDOWN_TAINT not in str(fields)
            yield from ((part, field) for field in fields if field not in {"uid", "resourceVersion"})


@jumping_time
async def test_shutdown_taint_of_a_ready_node_with_provider_id_of_this_provider_is_removed() -> None:
    scene = NodeWorld()
    scene.boot(SAME_NAME, "10.9.9.9")
    document = node_of("of another namespace")
    document["spec"]["taints"] = [EXTRA, SHUT_DOWN]
    document["status"]["conditions"][0]["status"] = "Unknown"
    scene.guest_server.put(NODE, document)
    async with scene.live():
        await asyncio.sleep(600)
        assert scene.taints("w1") == ["other", "shutdown"]
        scene.say_ready("w1", "True")
        await until(lambda: scene.taints("w1") == ["other"])
        # Another controller sets the taint again and again.
        scene.guest_server.calls.clear()
        for _ in range(60):
            scene.guest_server.change(NODE, "w1", {"spec": {"taints": [EXTRA, SHUT_DOWN]}})
            await asyncio.sleep(WRITE_INTERVAL_SECONDS / 2)
    assert len(scene.node_writes()) <= WRITE_BURST + 60 / 2
    assert scene.told("w1").count("FieldConflict") == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.guarantee("Nodes of other providers and machines never change")
@jumping_time
async def test_unmanaged_node_never_changes(kind: str, seed: int) -> None:
    dice, scene = Random(f"{kind} {seed}"), NodeWorld()
    scene.boot(SAME_NAME, "10.9.9.9")
    scene.guest_server.put(NODE, node_of(kind))
    # Without any Node whose VM is found, no Node is deleted.
    async with scene.live():
        await joined(scene, [machine("w2")])
        for _ in range(30):
            change(scene, dice)
            await asyncio.sleep(dice.choice([0, 0.1, 1, 30]))
        await asyncio.sleep(900)
    managed = kind == "of another namespace"
    assert set(changed_of(scene, "w1")) <= ({("spec", "taints")} if managed else set())
    assert scene.addresses("w1") == ["InternalIP 172.16.0.5", "Hostname w1"]
    assert scene.names() == {"w1", "w2"}


@pytest.mark.parametrize(
    ("kind", "events"),
    [
        pytest.param("of another provider", [], id="another provider"),
        pytest.param("of another provider, new", ["ProviderMismatch"], id="another provider, uninitialized"),
        pytest.param("of no VM", ["VMIdentityMismatch"], id="a VM has its name"),
        pytest.param("of another namespace", ["VMIdentityMismatch"], id="a VM in another namespace has its name"),
    ],
)
@jumping_time
async def test_unmanaged_node_gets_one_event(kind: str, events: list[str]) -> None:
    scene = NodeWorld()
    scene.boot(SAME_NAME, "10.9.9.9")
    scene.guest_server.put(NODE, node_of(kind))
    async with scene.live():
        await asyncio.sleep(2 * PERIOD)
        for address in ("10.9.9.8", "10.9.9.7"):
            scene.report(SAME_NAME, address)
            scene.say_ready("w1", "Unknown")
            await asyncio.sleep(400)
    assert scene.told("w1") == events


@jumping_time
async def test_shutdown_taint_is_not_set_because_of_a_name() -> None:
    """The Node has neither a UUID nor a provider ID."""
    scene = NodeWorld()
    scene.boot(SAME_NAME, "172.16.0.5")
    document = node_of("of no VM")
    document["status"]["nodeInfo"]["systemUUID"] = ""
    scene.guest_server.put(NODE, document)
    async with scene.live():
        await until(lambda: scene.caches.vms.synced)
        scene.stop(SAME_NAME)
        scene.say_ready("w1", "False")
        await asyncio.sleep(600)
    assert scene.taints("w1") == []


@jumping_time
async def test_vm_with_the_name_of_a_deleted_one_sets_no_shutdown_taint() -> None:
    """The live request by the recorded name returns another VM, which is not in the cache yet."""
    scene = NodeWorld()
    async with scene.live():
        vms = await joined(scene, [machine("w1"), machine("w2")])
        scene.destroy(vms[0])
        await until(lambda: scene.caches.vms.get(f"{NAMESPACE}/w1") is None)
        scene.harvester_server.lagging = True
        scene.create(machine("w1", cluster=""))
        scene.harvester_server.change(VM, f"{NAMESPACE}/w1", {"status": {"printableStatus": "Stopped"}})
        scene.say_ready("w1", "False")
        await until(lambda: scene.asked("/virtualmachines/w1"))
        await asyncio.sleep(300)
    assert scene.taints("w1") == []
    assert scene.names() == {"w1", "w2"}


@pytest.mark.parametrize("label", ["", "demo"], ids=["no label", "label of this cluster"])
@pytest.mark.parametrize("seed", range(6))
@jumping_time
async def test_namespace_with_a_clone_of_each_vm_changes_nothing(label: str, seed: int) -> None:
    """Names, labels and firmware UUIDs are the same, the UIDs of the VMs are not."""
    dice, scene = Random(seed), NodeWorld()
    names = ["w1", "w2", "w3"]
    for number, name in enumerate(names):
        clone = machine(name, cluster=label, zone="zone-x", uuid_from_name=True)
        scene.boot(clone, "10.9.9.9")
        document = node_of("of another namespace")
        document["metadata"]["name"] = name
        document["status"]["addresses"][0]["address"] = f"172.16.0.{number}"
        document["spec"]["providerID"] = f"harvester://elsewhere-{name}"
        document["status"]["nodeInfo"]["systemUUID"] = clone.system_uuid
        scene.guest_server.put(NODE, document)
    async with scene.live():
        await asyncio.sleep(2 * PERIOD)
        assert scene.told() == ["VMIdentityMismatch"] * 3
        for _ in range(30):
            change(scene, dice)
            await asyncio.sleep(dice.choice([0, 0.1, 1, 30]))
        scene.destroy(machine("w2"))
        scene.say_ready("w2", "False")
        await asyncio.sleep(1800)
    assert {field for name in names for field in changed_of(scene, name)} <= {("spec", "taints")}
    assert scene.names() == set(names)
    assert set(scene.told()) - {"FieldConflict"} == {"VMIdentityMismatch", "NodeDeletionBlocked"}
    assert scene.asked() == []


@jumping_time
async def test_two_controllers_of_one_cluster_ignore_each_others_nodes() -> None:
    """Machine pools in two namespaces with a controller for each."""
    scene = NodeWorld()
    theirs = "w9"
    async with scene.live():
        await joined(scene, [machine("w1")])
        assert scene.stored("w1")["metadata"]["annotations"][VM_ANNOTATION] == f"{NAMESPACE}/w1"
        document = node_of("of another namespace")
        document["metadata"] |= {"name": theirs, "annotations": {VM_ANNOTATION: "staging/w9"}}
        scene.guest_server.put(NODE, document)
        written = len(scene.node_writes())
        for ready in ("False", "Unknown"):
            scene.say_ready(theirs, ready)
            await asyncio.sleep(900)
        assert scene.names() == {"w1", "w9"}
        assert (scene.asked(), scene.node_writes()[written:], scene.told("w9")) == ([], [], ["NodeDeletionBlocked"])


@jumping_time
async def test_clone_of_a_deleted_vm_is_not_the_vm_of_the_node() -> None:
    scene, vm, clone = NodeWorld(), machine("w1"), machine("clone")
    async with scene.live():
        await joined(scene, [vm, machine("w2")])
        scene.boot(clone)
        domain = {"domain": {"firmware": {"uuid": vm.system_uuid}}}
        for collection, spec in ((VM, {"template": {"spec": domain}}), (VMI, domain)):
            scene.harvester_server.change(collection, f"{NAMESPACE}/clone", {"spec": spec})
        scene.report(clone, "10.0.0.9")
        scene.destroy(vm)
        scene.say_ready("w1", "Unknown")
        await asyncio.sleep(300)
        scene.stop(clone)
        await asyncio.sleep(3600)
        assert scene.addresses("w1") == ["InternalIP 10.0.0.1", "Hostname w1"]
        assert scene.taints("w1") == []
        assert scene.told("w1") == ["Synced", "VMIdentityMismatch"]
