"""Incomplete reports and lists change no InternalIP and delete no Node."""

import asyncio
from collections.abc import Callable
from typing import Final

import pytest

from harvester_ccm.names import KUBE_VIP_ADDRESSES, KUBE_VIP_HOST
from tests.support.clock import jumping_time
from tests.support.memory_server import refused
from tests.support.node_objects import DEFAULTS
from tests.support.node_world import (
    BALANCER,
    NAMESPACE,
    NODE,
    SERVICE,
    VM,
    NodeWorld,
    joined,
    machine,
    machines,
)

LONG: Final = 20 * DEFAULTS.address_grace_seconds
W1: Final = machine("w1", networks=("default/mgmt", "default/vlan5"))
FIRST, SECOND, VIP = "10.0.0.1", "192.168.5.1", "192.168.5.100"


def initialised_by_go(scene: NodeWorld) -> None:
    """Store the VM with two interfaces and its Node, whose InternalIP is the address of the second."""
    uid = scene.boot(W1, FIRST, SECOND)
    document = scene.join("w1", system_uuid=W1.system_uuid)
    addresses = [{"type": "InternalIP", "address": SECOND}, {"type": "Hostname", "address": "w1"}]
    status = {**document["status"], "addresses": addresses}
    scene.guest_server.put(NODE, {**document, "spec": {"providerID": f"harvester://{uid}"}, "status": status})


def claim(scene: NodeWorld) -> None:
    """A tenant writes the address of the Node to Services."""
    for name, kind in (("plain", "ClusterIP"), ("other", "LoadBalancer")):
        claims = {KUBE_VIP_ADDRESSES: SECOND, KUBE_VIP_HOST: "w1"}
        meta = {"name": name, "namespace": "shop", "annotations": claims}
        status = {"loadBalancer": {"ingress": [{"ip": SECOND}]}}
        scene.guest_server.put(SERVICE, {"metadata": meta, "spec": {"type": kind}, "status": status})


def announce(scene: NodeWorld) -> None:
    """A load balancer has an address, and the guest agent reports that address only."""
    meta = {"name": "lb", "namespace": NAMESPACE}
    scene.harvester_server.put(BALANCER, {"metadata": meta, "status": {"address": VIP}})
    scene.report_lists(W1, [FIRST], [VIP])


@pytest.mark.parametrize(
    "happen",
    [
        pytest.param(lambda _scene: None, id="two interfaces and no flag"),
        pytest.param(lambda scene: scene.report_lists(W1, [FIRST], []), id="second interface reports nothing"),
        pytest.param(lambda scene: scene.report(W1), id="guest agent reports nothing"),
        pytest.param(announce, id="guest agent reports a virtual IP"),
        pytest.param(claim, id="annotation of a tenant"),
    ],
)
@pytest.mark.parametrize("at_start", [True, False], ids=["at the start", "later"])
@pytest.mark.guarantee("A Node keeps an InternalIP that its VM reports")
@jumping_time
async def test_internal_ip_stays(happen: Callable[[NodeWorld], None], *, at_start: bool) -> None:
    scene = NodeWorld()
    initialised_by_go(scene)
    if at_start:
        happen(scene)
    async with scene.live():
        await asyncio.sleep(30)
        happen(scene)
        await asyncio.sleep(LONG)
    assert [one for one in scene.addresses("w1") if one.startswith("Internal")] == ["InternalIP " + SECOND]


def relist(scene: NodeWorld) -> None:
    """End all watches of Harvester, so that it is listed again."""
    scene.harvester_server.compact()
    scene.harvester_server.break_watches(refused(410, "Expired", "too old"))


@pytest.mark.parametrize("ready", ["True", "Unknown"])
@pytest.mark.guarantee("The Node of an existing VM is never deleted")
@jumping_time
async def test_list_that_lacks_half_of_the_vms_deletes_no_node(ready: str) -> None:
    scene = NodeWorld()
    async with scene.live():
        server = scene.harvester_server
        for vm in (await joined(scene, machines(6)))[:3]:
            document = server.of(VM).pop(f"{NAMESPACE}/{vm.name}")
            server.answers[f"/apis/kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachines/{vm.name}"] = document
            scene.say_ready(vm.name, ready)
        relist(scene)
        await asyncio.sleep(3600)
        assert len(scene.names()) == 6
        assert bool(scene.asked("/virtualmachines/")) is (ready != "True")
