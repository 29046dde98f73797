"""Nodes that are no machines of ours, beside VMs that look like them: whatever happens, nothing of them is changed.

A Node with a provider ID of ours loses the shutdown taint when it is Ready, also if its VM is not found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, Final

import pytest

from harvester_ccm.kube.workqueue import WRITE_BURST, WRITE_INTERVAL_SECONDS
from harvester_ccm.names import MACHINE_RECORD, SHUTDOWN_TAINT, ZONE
from tests.worlds.clock import jumping_time, until
from tests.worlds.memory_server import Document
from tests.worlds.node_world import NAMESPACE, NODE, PERIOD, TAINT, VM, VMI, NodeWorld, initialised, machine

NAMESAKE: Final = machine("w1", cluster="", zone="zone-a")
"""A VM without a mark, as made by hand."""
ELSEWHERE: Final = "00112233-4455-6677-8899-aabbccddeeff"
SHUT_DOWN: Final = {"key": SHUTDOWN_TAINT, "effect": "NoSchedule"}
STRANGERS: Final[Mapping[str, tuple[str, str]]] = {
    "of another provider": ("k3s://w1", NAMESAKE.system_uuid),
    "of another provider, new": ("aws:///eu/i-1", NAMESAKE.system_uuid),
    "machine of nobody": ("", ELSEWHERE),
    "machine of another namespace": ("harvester://elsewhere", ELSEWHERE),
}


def stranger(kind: str) -> Document:
    """Return a Node as something else keeps it."""
    provider_id, system_uuid = STRANGERS[kind]
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


def happen(scene: NodeWorld, dice: Random) -> None:
    """Let something happen to the namesake of w1, or to the Node by another's hand."""
    running = f"{NAMESPACE}/w1" in scene.harvester_server.objects.get(VMI, {})
    events: dict[str, Callable[[], object]] = {
        "report": lambda: scene.report(NAMESAKE, *dice.sample(["10.9.9.9", "10.9.9.8", "fd00::9"], dice.randint(0, 2))),
        "move": lambda: scene.harvester_server.change(
            VMI, f"{NAMESPACE}/w1", {"metadata": {"annotations": {ZONE: dice.choice(["zone-b", None])}}}
        ),
        "stop": lambda: scene.stop(NAMESAKE),
        "start": lambda: scene.start(NAMESAKE, "10.9.9.9"),
        "ready": lambda: scene.say_ready("w1", dice.choice(["True", "False", "Unknown"])),
        "taint": lambda: scene.guest_server.change(NODE, "w1", {"spec": {"taints": [dice.choice([EXTRA, SHUT_DOWN])]}}),
    }
    others = ["ready", "taint"]
    events[dice.choice([*others, *(["report", "move", "stop"] if running else ["start"])])]()


EXTRA: Final = {"key": "example.com/other", "effect": "NoSchedule"}


def changed_of(scene: NodeWorld, name: str) -> Iterator[tuple[str, str]]:
    """Yield the fields that were written of a Node; taints only as one without the shutdown taint."""
    for call in scene.guest_server.calls:
        if not call.is_write or f"/nodes/{name}" not in call.path:
            continue
        for part, fields in call.body.items():
            assert SHUTDOWN_TAINT not in str(fields)
            yield from ((part, field) for field in fields if field not in {"uid", "resourceVersion"})


@pytest.mark.parametrize("kind", ["of another provider", "machine of nobody"])
def test_shutdown_taint_of_a_node_without_our_provider_id_stays(kind: str) -> None:
    @jumping_time
    async def run() -> None:
        scene = NodeWorld()
        scene.boot(NAMESAKE, "10.9.9.9")
        document = stranger(kind)
        document["spec"]["taints"] = [EXTRA, SHUT_DOWN]
        scene.guest_server.put(NODE, document)
        async with scene.live():
            await asyncio.sleep(600)
        assert scene.taints("w1") == ["other", "shutdown"]
        assert scene.node_writes() == []

    run()


def test_shutdown_taint_on_a_ready_node_with_our_provider_id_is_removed() -> None:
    @jumping_time
    async def run() -> None:
        scene = NodeWorld()
        scene.boot(NAMESAKE, "10.9.9.9")
        document = stranger("machine of another namespace")
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
                await asyncio.sleep(10)
        assert len(scene.node_writes()) <= WRITE_BURST + 600 / WRITE_INTERVAL_SECONDS
        assert scene.told("w1").count("FieldConflict") == 1

    run()


@pytest.mark.parametrize("kind", STRANGERS)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.guarantee("Nodes of other providers and machines never change")
def test_whatever_happens_nothing_of_a_stranger_is_changed(kind: str, seed: int) -> None:
    @jumping_time
    async def run() -> None:
        dice, scene = Random(f"{kind} {seed}"), NodeWorld()
        scene.boot(NAMESAKE, "10.9.9.9")
        scene.guest_server.put(NODE, stranger(kind))
        # Without a VM that is found nothing would ever be deleted.
        ours = machine("w2")
        scene.boot(ours, "10.0.0.2")
        async with scene.live():
            scene.join("w2", system_uuid=ours.system_uuid)
            await initialised(scene, ["w2"])
            for _ in range(30):
                happen(scene, dice)
                await asyncio.sleep(dice.choice([0, 0.1, 1, 30]))
            await asyncio.sleep(900)
        managed = kind == "machine of another namespace"
        assert set(changed_of(scene, "w1")) <= ({("spec", "taints")} if managed else set())
        assert scene.addresses("w1") == ["InternalIP 172.16.0.5", "Hostname w1"]
        assert scene.names() == {"w1", "w2"}

    run()


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        pytest.param("of another provider", [], id="another provider's Node is none of our business"),
        pytest.param("of another provider, new", ["ProviderMismatch"], id="but one that waits is told why"),
        pytest.param("machine of nobody", ["VMIdentityMismatch"], id="a VM has its name"),
        pytest.param(
            "machine of another namespace", ["VMIdentityMismatch"], id="a VM has its name in a wrong namespace"
        ),
    ],
)
def test_stranger_is_told_once(kind: str, told: list[str]) -> None:
    @jumping_time
    async def run() -> None:
        scene = NodeWorld()
        scene.boot(NAMESAKE, "10.9.9.9")
        scene.guest_server.put(NODE, stranger(kind))
        async with scene.live():
            await asyncio.sleep(2 * PERIOD)
            for address in ("10.9.9.8", "10.9.9.7"):
                scene.report(NAMESAKE, address)
                scene.say_ready("w1", "Unknown")
                await asyncio.sleep(400)
        assert scene.told("w1") == told

    run()


@jumping_time
async def test_shutdown_taint_is_not_set_because_of_a_name() -> None:
    """No UUID is known on either side, and the Node has no provider ID: only the name is the VM's."""
    scene = NodeWorld()
    scene.boot(NAMESAKE, "172.16.0.5")
    document = stranger("machine of nobody")
    document["status"]["nodeInfo"]["systemUUID"] = ""
    scene.guest_server.put(NODE, document)
    async with scene.live():
        await until(lambda: scene.vms.vms.synced)
        scene.stop(NAMESAKE)
        scene.say_ready("w1", "False")
        await asyncio.sleep(600)
    assert scene.taints("w1") == []


@jumping_time
async def test_vm_that_took_the_name_of_one_that_is_gone_does_not_shut_the_node_down() -> None:
    """The live request for the VM by its recorded name is answered with another VM, which no list shows yet."""
    scene = NodeWorld()
    async with scene.live():
        vms = [machine("w1"), machine("w2")]
        for vm in vms:
            scene.boot(vm, "10.0.0.1")
            scene.join(vm.name, system_uuid=vm.system_uuid)
        await initialised(scene, ["w1", "w2"])
        scene.destroy(vms[0])
        await until(lambda: scene.machines.get(f"{NAMESPACE}/w1") is None)
        scene.harvester_server.lagging = True
        scene.create(machine("w1", cluster=""))
        scene.harvester_server.change(VM, f"{NAMESPACE}/w1", {"status": {"printableStatus": "Stopped"}})
        scene.say_ready("w1", "False")
        await until(lambda: scene.asked("/virtualmachines/w1"))
        await asyncio.sleep(300)
    assert scene.taints("w1") == []
    assert scene.names() == {"w1", "w2"}


@pytest.mark.parametrize("label", ["", "demo"], ids=["no mark", "mark of this cluster"])
@pytest.mark.parametrize("seed", range(6))
def test_wrong_namespace_full_of_namesakes_changes_nothing(label: str, seed: int) -> None:
    """A staging copy, or another Harvester: names, marks and UUIDs are the same, only the UIDs of the VMs not."""

    @jumping_time
    async def run() -> None:
        dice, scene = Random(seed), NodeWorld()
        names = ["w1", "w2", "w3"]
        for number, name in enumerate(names):
            copy = machine(name, cluster=label, zone="zone-x", uuid_from_name=True)
            scene.boot(copy, "10.9.9.9")
            document = stranger("machine of another namespace")
            document["metadata"]["name"] = name
            document["status"]["addresses"][0]["address"] = f"172.16.0.{number}"
            document["spec"]["providerID"] = f"harvester://elsewhere-{name}"
            document["status"]["nodeInfo"]["systemUUID"] = copy.system_uuid
            scene.guest_server.put(NODE, document)
        async with scene.live():
            await asyncio.sleep(2 * PERIOD)
            assert scene.told() == ["VMIdentityMismatch"] * 3
            for _ in range(30):
                happen(scene, dice)
                await asyncio.sleep(dice.choice([0, 0.1, 1, 30]))
            scene.destroy(machine("w2"))
            scene.say_ready("w2", "False")
            await asyncio.sleep(1800)
        assert {field for name in names for field in changed_of(scene, name)} <= {("spec", "taints")}
        assert scene.names() == set(names)
        assert set(scene.told()) - {"FieldConflict"} == {"VMIdentityMismatch", "NodeDeletionBlocked"}
        assert scene.asked() == []

    run()


@jumping_time
async def test_two_programs_of_one_cluster_leave_each_others_nodes_alone() -> None:
    """Machine pools in two namespaces, and a program for each; the VM of a Node of the other one is never missing."""
    scene = NodeWorld()
    ours, theirs = machine("w1"), "w9"
    scene.boot(ours, "10.0.0.1")
    async with scene.live():
        scene.join("w1", system_uuid=ours.system_uuid)
        await initialised(scene, ["w1"])
        assert scene.stored("w1")["metadata"]["annotations"][MACHINE_RECORD] == f"{NAMESPACE}/w1"
        document = stranger("machine of another namespace")
        document["metadata"] |= {"name": theirs, "annotations": {MACHINE_RECORD: "staging/w9"}}
        scene.guest_server.put(NODE, document)
        written = len(scene.node_writes())
        for ready in ("False", "Unknown"):
            scene.say_ready(theirs, ready)
            await asyncio.sleep(900)
        assert scene.names() == {"w1", "w9"}
        assert (scene.asked(), scene.node_writes()[written:], scene.told("w9")) == ([], [], ["NodeDeletionBlocked"])


@jumping_time
async def test_copy_of_a_vm_that_is_gone() -> None:
    scene, vm, copy = NodeWorld(), machine("w1"), machine("copy")
    scene.boot(vm, "10.0.0.1")
    scene.boot(machine("w2"), "10.0.0.2")
    async with scene.live():
        for one in (vm, machine("w2")):
            scene.join(one.name, system_uuid=one.system_uuid)
        await initialised(scene, ["w1", "w2"])
        scene.boot(copy)
        domain = {"domain": {"firmware": {"uuid": vm.system_uuid}}}
        for collection, spec in ((VM, {"template": {"spec": domain}}), (VMI, domain)):
            scene.harvester_server.change(collection, f"{NAMESPACE}/copy", {"spec": spec})
        scene.report(copy, "10.0.0.9")
        scene.destroy(vm)
        scene.say_ready("w1", "Unknown")
        await asyncio.sleep(300)
        scene.stop(copy)
        await asyncio.sleep(3600)
        assert scene.addresses("w1") == ["InternalIP 10.0.0.1", "Hostname w1"]
        assert scene.taints("w1") == []
        assert scene.told("w1") == ["Synced", "VMIdentityMismatch"]
