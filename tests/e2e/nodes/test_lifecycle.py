"""Nodes that are not ready: shutdown, restart, deletion, and its conditions."""

import asyncio

import pytest

from devenv.ccm import CcmProcess
from devenv.harvester.machines import Machine
from devenv.stage import Stage, until
from harvester_ccm.names import SHUTDOWN_TAINT
from tests.e2e.nodes.cluster import Cluster, has_taint

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


async def marked(cluster: Cluster, name: str, *, shut_down: bool, within: float = 60) -> None:
    """Return once the Node has the shutdown taint, or does not have it."""

    async def as_wanted() -> bool:
        return has_taint(cluster.node(name), SHUTDOWN_TAINT) == shut_down

    await until(as_wanted, within=within, what=f"shutdown taint {shut_down}")


async def gone(cluster: Cluster, name: str, within: float = 60) -> None:
    """Return once there is no such Node."""

    async def absent() -> bool:
        return not cluster.node(name)

    await until(absent, within=within, what=f"end of Node {name}")


async def test_shutdown_taint_follows_the_vm(cluster: Cluster, vms: list[Machine]) -> None:
    await cluster.machines.stop(vms[0])
    await cluster.kubelets.report("w0", "Unknown")
    await marked(cluster, "w0", shut_down=True)
    await cluster.machines.start(vms[0], "10.0.0.1")
    await marked(cluster, "w0", shut_down=False)
    assert cluster.node("w0")["status"]["conditions"][0]["status"] == "Unknown"


async def test_node_without_vm_is_deleted(stage: Stage, cluster: Cluster, vms: list[Machine]) -> None:
    await cluster.machines.delete(vms[0])
    await cluster.kubelets.report("w0", "Unknown")
    await gone(cluster, "w0")
    assert await cluster.hears("w0", "DeletingNode")
    probes = stage.harvester_proxy.matching(method="GET", path="/virtualmachines/w0$")
    assert [probe.status for probe in probes] == [404, 404, 404]
    assert sorted(cluster.nodes.get(f"w{n}") is not None for n in range(4)) == [False, True, True, True]


@pytest.mark.guarantee("Deletions without a finalizer are rate-limited")
async def test_one_node_is_deleted_per_minute(stage: Stage, cluster: Cluster, vms: list[Machine]) -> None:
    lost = {vm.name for vm in vms[:2]}
    for vm in vms[:2]:
        await cluster.machines.delete(vm)
    # Both at once: each is reconciled while the request for the other can be in flight.
    await asyncio.gather(*(cluster.kubelets.report(name, "Unknown") for name in lost))

    async def one_left() -> str:
        left = [name for name in lost if cluster.node(name)]
        return left[0] if len(left) == 1 else ""

    left = await until(one_left, within=60, what="deletion of one Node")
    # A change of the Node causes another reconcile, and no other deletion.
    for ready in ("False", "Unknown", "False"):
        await cluster.kubelets.report(left, ready)
    await cluster.machines.report(vms[3], "10.0.0.77")
    await cluster.shows("w3", "InternalIP 10.0.0.77", "Hostname w3")
    assert stage.guest_proxy.count(method="DELETE") == 1
    assert {name for name in ("w0", "w1", "w2", "w3") if cluster.node(name)} == {left, "w2", "w3"}


async def test_node_of_a_recreated_vm_gets_an_event_and_the_new_addresses(cluster: Cluster, vms: list[Machine]) -> None:
    before = cluster.node("w0")["spec"]["providerID"]
    await cluster.machines.delete(vms[0])
    await cluster.kubelets.report("w0", "Unknown")
    uid = await cluster.boot(vms[0], "10.0.0.9")
    message = await cluster.hears("w0", "VMReplaced")
    assert uid in message
    assert "delete the Node to let it join with the new one" in message
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
