"""Addresses that a VM does not report: they are waited for, for a while, by a clock that jumps."""

from __future__ import annotations

import asyncio

import pytest

from harvester_ccm.names import PROVIDED_NODE_IP
from tests.worlds.clock import jumping_time, until
from tests.worlds.node_objects import DEFAULTS
from tests.worlds.node_world import NODE, PERIOD, TAINT, NodeWorld, initialised, machine

PATIENCE = DEFAULTS.address_patience
W1 = machine("w1")
NODE_PATH = "PATCH /api/v1/nodes/w1"


@pytest.mark.parametrize(
    ("reported", "provided", "expected"),
    [
        pytest.param(["fd00::1"], "10.0.0.9", ["InternalIP 10.0.0.9", "ExternalIP fd00::1"], id="other family"),
        pytest.param(["10.0.0.9"], "10.0.0.9,fd00::9", ["InternalIP 10.0.0.9", "InternalIP fd00::9"], id="half a pair"),
        pytest.param([], "10.0.0.9", ["InternalIP 10.0.0.9"], id="no agent"),
    ],
)
def test_new_node_waits_for_its_kubelets_address_and_then_has_it(
    reported: list[str], provided: str, expected: list[str]
) -> None:
    @jumping_time
    async def run() -> None:
        scene = NodeWorld()
        scene.boot(W1, *reported)
        async with scene.live():
            scene.join("w1", system_uuid=W1.system_uuid, **{PROVIDED_NODE_IP: provided})
            assert await until(lambda: scene.told("w1") == ["ProvidedNodeIPNotFound"]) < 2 * PERIOD
            assert scene.node_writes() == []
            assert PATIENCE - 2 * PERIOD < await initialised(scene, ["w1"]) < PATIENCE
            assert scene.addresses("w1") == [*expected, "Hostname w1"]
            await asyncio.sleep(600)
        assert scene.told("w1") == ["ProvidedNodeIPNotFound", "Synced"]
        assert scene.node_writes() == [f"{NODE_PATH}/status", NODE_PATH]

    run()


@jumping_time
async def test_kubelets_address_that_comes_soon_is_not_talked_about() -> None:
    scene = NodeWorld()
    scene.boot(W1, "10.0.0.9")
    async with scene.live():
        scene.join("w1", system_uuid=W1.system_uuid, **{PROVIDED_NODE_IP: "10.0.0.9,fd00::9"})
        await asyncio.sleep(PERIOD / 2)
        scene.report_lists(W1, ["10.0.0.9", "fd00::9"])
        assert await initialised(scene, ["w1"]) < 0.2
        await asyncio.sleep(60)
    assert scene.addresses("w1") == ["InternalIP 10.0.0.9", "InternalIP fd00::9", "Hostname w1"]
    assert scene.told("w1") == ["Synced"]


@jumping_time
async def test_blinks_move_nothing_and_what_lasts_does() -> None:
    scene = NodeWorld()
    scene.boot(W1)
    scene.report_lists(W1, ["10.0.0.1", "10.0.0.100"])
    async with scene.live():
        scene.join("w1", system_uuid=W1.system_uuid)
        await initialised(scene, ["w1"])
        before = scene.addresses("w1")
        scene.guest_server.calls.clear()
        for _ in range(5):
            scene.report(W1, "10.0.0.100")
            await asyncio.sleep(PATIENCE - 1)
            scene.report_lists(W1, ["10.0.0.100", "10.0.0.1"])
            await asyncio.sleep(1)
        # Silence says nothing, however long it is.
        scene.report(W1, "10.0.0.100")
        await asyncio.sleep(PATIENCE - 1)
        scene.report(W1)
        await asyncio.sleep(10 * PATIENCE)
        scene.report(W1, "10.0.0.100")
        await asyncio.sleep(PATIENCE - 1)
        assert (scene.addresses("w1"), scene.node_writes()) == (before, [])
        assert await until(lambda: "InternalIP 10.0.0.100" in scene.addresses("w1")) < 2
        await until(lambda: "InternalIPChanged" in scene.told("w1"))
        await asyncio.sleep(600)
    assert scene.node_writes() == [f"{NODE_PATH}/status"]


@jumping_time
async def test_taint_that_comes_back_forgets_nothing() -> None:
    nics = machine("w1", networks=("default/mgmt", "default/vlan5"))
    scene = NodeWorld()
    scene.boot(nics, "10.0.0.1", "192.168.5.1")
    async with scene.live():
        scene.join("w1", system_uuid=nics.system_uuid, **{PROVIDED_NODE_IP: "192.168.5.1"})
        await initialised(scene, ["w1"])
        before = scene.addresses("w1")
        scene.report(nics, "10.0.0.1", "192.168.5.100")
        document = scene.stored("w1")
        del document["metadata"]["annotations"][PROVIDED_NODE_IP]
        scene.guest_server.put(NODE, {**document, "spec": {**document["spec"], "taints": [TAINT]}})
        await initialised(scene, ["w1"])
        await asyncio.sleep(PATIENCE - 1)
    assert [one for one in scene.addresses("w1") if "Internal" in one] == [one for one in before if "Internal" in one]


@jumping_time
async def test_internal_ip_that_can_be_on_one_of_several_interfaces_is_never_replaced() -> None:
    nics = machine("w1", networks=("default/mgmt", "default/storage"))
    scene = NodeWorld()
    scene.boot(nics)
    scene.report_lists(nics, ["10.0.0.1", "fd00::1"], ["10.1.0.1"])
    async with scene.live():
        scene.join("w1", system_uuid=nics.system_uuid, **{PROVIDED_NODE_IP: "10.0.0.1,fd00::1"})
        await initialised(scene, ["w1"])
        before = scene.addresses("w1")
        document = scene.stored("w1")
        document["metadata"]["annotations"] = {}
        scene.guest_server.put(NODE, document)
        # A guest agent that reports nothing has no effect, however long it is.
        scene.report(nics)
        await asyncio.sleep(10 * PATIENCE)
        assert scene.told("w1") == ["Synced"]
        scene.report_lists(nics, ["10.0.0.9", "fd00::9"], ["10.1.0.1"])
        assert await until(lambda: scene.told("w1") == ["Synced", "NoInternalIP"]) < 2 * PERIOD
        await asyncio.sleep(600)
        assert scene.addresses("w1") == before
    assert scene.told("w1") == ["Synced", "NoInternalIP"]
