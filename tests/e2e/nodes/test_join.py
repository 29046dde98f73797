"""Nodes that join while their VMs start: writes, latency and Events."""

from collections.abc import Mapping

import pytest

from devenv.ccm import CcmProcess
from devenv.harvester.machines import REGION, ZONE, Machine
from devenv.stage import Stage, until
from tests.e2e.nodes.cluster import Cluster, addresses_of, label_of, single_reads
from tests.e2e.observing import writes

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("program")]

NODE = "/api/v1/nodes/w1"


@pytest.mark.parametrize("flags", [{"node-monitor-period": "500ms"}], ids=["fast"])
async def test_events_and_writes_of_a_node_that_joins(stage: Stage, cluster: Cluster, flags: Mapping[str, str]) -> None:
    assert flags
    vm = Machine("w1", zone="zone-a", region="north")
    await cluster.join(vm)
    assert "No VM in namespace" in await cluster.hears("w1", "VMNotFound")
    uid = await cluster.define(vm)
    assert "(status Starting), so it has no address yet" in await cluster.hears("w1", "VMNotRunning")
    await cluster.machines.start(vm)
    assert "Check that qemu-guest-agent runs in the VM" in await cluster.hears("w1", "NoAddress")
    assert writes(stage.guest_proxy, NODE) == []

    await cluster.machines.report(vm, "10.0.0.1")
    await cluster.initialised("w1", within=60)
    node = cluster.node("w1")
    assert addresses_of(node) == ["InternalIP 10.0.0.1", "Hostname w1"]
    assert node["spec"]["providerID"] == f"harvester://{uid}"
    assert (label_of(node, ZONE), label_of(node, REGION)) == ("zone-a", "north")
    assert [(one.method, one.path) for one in writes(stage.guest_proxy, NODE)] == [
        ("PATCH", f"{NODE}/status"),
        ("PATCH", NODE),
    ]
    assert await cluster.hears("w1", "Synced") == "Node synced successfully"
    assert await cluster.told("w1") == ["VMNotFound", "VMNotRunning", "NoAddress", "Synced"]
    assert single_reads(stage.harvester_proxy.requests) == []


async def test_restart_causes_no_write(stage: Stage, cluster: Cluster, program: CcmProcess) -> None:
    vms = [Machine(f"w{number}", zone="zone-a") for number in range(3)]
    for number, vm in enumerate(vms):
        await cluster.boot(vm, f"10.0.0.{number + 1}")
    await cluster.join(*vms)
    await cluster.initialised(*(vm.name for vm in vms))
    await until(cluster.mapping, within=60, what="network mapping")
    program.terminate(0)
    await stage.ended(program)
    stage.guest_proxy.forget()
    again = stage.run(proxied=True)
    await stage.logged(again, "became leader")
    late = Machine("late")
    await cluster.boot(late, "10.0.0.9")
    await cluster.join(late)
    await cluster.initialised("late")
    assert {one.path for one in writes(stage.guest_proxy)} == {"/api/v1/nodes/late", "/api/v1/nodes/late/status"}
