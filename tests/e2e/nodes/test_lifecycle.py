"""Nodes whose VM is deleted, or created again."""

import asyncio

import pytest

from devenv.ccm import CcmProcess
from devenv.harvester.machines import Machine
from devenv.stage import Stage, until
from tests.e2e.nodes.cluster import Cluster

FLAGS = {"node-monitor-period": "200ms"}
"""Two confirmations are twice this apart."""

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.usefixtures("program"),
    pytest.mark.parametrize("flags", [FLAGS], ids=["fast"]),
]


@pytest.fixture
async def vms(cluster: Cluster, program: CcmProcess) -> list[Machine]:
    """Four VMs whose Nodes are initialized and ready."""
    assert program.exit_code is None
    vms = [Machine(f"w{number}") for number in range(4)]
    await asyncio.gather(*(cluster.boot(vm, f"10.0.0.{number + 1}") for number, vm in enumerate(vms)))
    await cluster.join(*vms)
    await cluster.initialised(*(vm.name for vm in vms))
    return vms


async def gone(cluster: Cluster, name: str, within: float = 60) -> None:
    """Return once there is no such Node."""

    async def absent() -> bool:
        return not cluster.node(name)

    await until(absent, within=within, what=f"end of Node {name}")


async def test_node_without_vm_is_deleted(stage: Stage, cluster: Cluster, vms: list[Machine]) -> None:
    await cluster.machines.delete(vms[0])
    await cluster.kubelets.report("w0", "Unknown")
    await gone(cluster, "w0")
    assert await cluster.hears("w0", "DeletingNode")
    probes = stage.harvester_proxy.matching(method="GET", path="/virtualmachines/w0$")
    assert [probe.status for probe in probes] == [404, 404, 404]
    assert sorted(cluster.nodes.get(f"w{n}") is not None for n in range(4)) == [False, True, True, True]


async def test_node_of_a_recreated_vm_gets_an_event_and_the_new_addresses(cluster: Cluster, vms: list[Machine]) -> None:
    before = cluster.node("w0")["spec"]["providerID"]
    await cluster.machines.delete(vms[0])
    await cluster.kubelets.report("w0", "Unknown")
    uid = await cluster.boot(vms[0], "10.0.0.9")
    message = await cluster.hears("w0", "VMReplaced")
    assert uid in message
    assert "to let the Node join with the new one, delete it and restart its kubelet" in message
    await cluster.shows("w0", "InternalIP 10.0.0.9", "Hostname w0")
    assert cluster.node("w0")["spec"]["providerID"] == before
    # The action in the message.
    await cluster.kubelets.remove("w0")
    await gone(cluster, "w0")
    await cluster.join(vms[0])

    async def renewed() -> bool:
        node = cluster.node("w0")
        return bool(node) and node["spec"].get("providerID") == f"harvester://{uid}"

    await until(renewed, within=60, what="new provider ID")
