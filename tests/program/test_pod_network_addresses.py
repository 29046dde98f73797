"""Nodes whose kubelet names an address behind Harvester's management (pod) network, where every VM has the same one."""

import asyncio

import pytest

from devenv.harvester.machines import Machine
from harvester_ccm.names import PROVIDED_NODE_IP
from tests.support.clock import jumping_time
from tests.support.memory_server import Document
from tests.support.node_world import NODE, NodeWorld, machine

MASQUERADE = "10.0.2.2"
POD_IP = "10.52.0.7"
REASON = "NodeIPInPodNetwork"
BOTH = ("", "default/vlan1")


def message(scene: NodeWorld, name: str) -> str:
    (event,) = [
        event
        for event in scene.guest_server.events()
        if event["reason"] == REASON and event["involvedObject"]["name"] == name
    ]
    return str(event["message"])


@pytest.mark.parametrize(
    ("networks", "reported", "provided"),
    [
        pytest.param(BOTH, (MASQUERADE, "192.0.2.31"), MASQUERADE, id="reported by the guest agent"),
        pytest.param(BOTH, (POD_IP, "192.0.2.31"), POD_IP, id="pod IP"),
        pytest.param(BOTH, (), MASQUERADE, id="no guest agent"),
        pytest.param(("",), (MASQUERADE,), MASQUERADE, id="no VM network"),
        pytest.param(("",), (), MASQUERADE, id="no VM network, no guest agent"),
    ],
)
@jumping_time
async def test_address_behind_the_pod_network_is_never_the_internal_ip_of_a_new_node(
    networks: tuple[str, ...], reported: tuple[str, ...], provided: str
) -> None:
    scene = NodeWorld()
    for name in ("w1", "w2"):
        vm = machine(name, networks=networks)
        scene.boot(vm, *reported)
        scene.join(name, system_uuid=vm.system_uuid, **{PROVIDED_NODE_IP: provided})
    async with scene.live():
        await asyncio.sleep(1800)
    for name in ("w1", "w2"):
        assert scene.addresses(name) == [f"Hostname {name}"]
        assert scene.taints(name) == ["uninitialized"]
        assert scene.told(name) == [REASON]
        assert provided in message(scene, name)
        assert "--node-ip" in message(scene, name)
    assert scene.node_writes() == []


@jumping_time
async def test_kubelet_that_registers_with_a_provider_id_and_addresses_is_new() -> None:
    """A kubelet writes its address to the status of its Node, and with ``--provider-id`` the provider ID."""
    scene = NodeWorld()
    vm = machine("w1", networks=BOTH)
    uid = scene.boot(vm, MASQUERADE, "192.0.2.31")
    scene.join("w1", system_uuid=vm.system_uuid, **{PROVIDED_NODE_IP: MASQUERADE})
    addresses = [{"type": "InternalIP", "address": MASQUERADE}, {"type": "Hostname", "address": "w1"}]
    change = {"spec": {"providerID": f"harvester://{uid}"}, "status": {"addresses": addresses}}
    scene.guest_server.change(NODE, "w1", change)
    async with scene.live():
        await asyncio.sleep(1800)
        assert scene.taints("w1") == ["uninitialized"]
        assert scene.told("w1") == [REASON]


def initialized_node(scene: NodeWorld, vm: Machine, **annotations: str) -> Document:
    """Register a Node that another provider initialized with the masquerade address."""
    uid = scene.boot(vm, MASQUERADE, *["192.0.2.31"] * (len(vm.networks) - 1))
    scene.join(vm.name, system_uuid=vm.system_uuid, **annotations)
    addresses = [{"type": "InternalIP", "address": MASQUERADE}, {"type": "Hostname", "address": vm.name}]
    change = {"spec": {"taints": None, "providerID": f"harvester://{uid}"}, "status": {"addresses": addresses}}
    return scene.guest_server.change(NODE, vm.name, change)


@pytest.mark.parametrize("networks", [BOTH, ("",)], ids=["VM network", "pod network only"])
@pytest.mark.parametrize("provided", [MASQUERADE, ""], ids=["kubelet names it", "kubelet names none"])
@jumping_time
async def test_initialized_node_keeps_it_with_a_warning(networks: tuple[str, ...], provided: str) -> None:
    scene = NodeWorld()
    annotations = {PROVIDED_NODE_IP: provided} if provided else {}
    initialized_node(scene, machine("w1", networks=networks), **annotations)
    async with scene.live():
        await asyncio.sleep(1800)
    assert scene.addresses("w1")[0] == f"InternalIP {MASQUERADE}"
    assert REASON in scene.told("w1")
    assert "keeps it" in message(scene, "w1")
