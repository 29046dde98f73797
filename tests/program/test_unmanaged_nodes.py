"""Nodes of other providers and machines next to VMs with the same name, firmware UUID or label do not change.

A Node with a provider ID of this provider loses the shutdown taint when it is Ready, even if its VM is not found.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, Final

import pytest

from harvester_ccm.names import SHUTDOWN_TAINT, ZONE
from tests.support.clock import jumping_time
from tests.support.memory_server import Document
from tests.support.node_world import NAMESPACE, NODE, TAINT, VMI, NodeWorld, joined, machine

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
