"""Nodes join while their VMs start: what is written, how soon, and what is said until then."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping

import pytest

from devenv.ccm import CcmProcess
from devenv.harvester.guestagent import GuestAgentApi
from devenv.harvester.machines import REGION, ZONE, Machine
from devenv.kubelets import Kubelet
from devenv.stage import VM_NAMESPACE, Stage, until
from tests.e2e.nodes.cluster import Cluster, addresses_of, label_of, single_reads
from tests.e2e.observing import writes

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("program")]

NODE = "/api/v1/nodes/w1"
SPREAD_SECONDS = 2.5
"""Over so long the VMs get their addresses."""


@pytest.mark.parametrize("flags", [{"node-monitor-period": "500ms"}], ids=["told soon"])
async def test_one_node_step_by_step(stage: Stage, cluster: Cluster, flags: Mapping[str, str]) -> None:
    assert flags
    vm = Machine("w1", zone="zone-a", region="north")
    await cluster.join(vm)
    assert "No VM in namespace" in await cluster.hears("w1", "VMNotFound")
    uid = await cluster.define(vm)
    assert "is not running" in await cluster.hears("w1", "VMNotRunning")
    await cluster.machines.start(vm)
    assert "Does qemu-guest-agent run in the guest?" in await cluster.hears("w1", "NoAddress")
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


@pytest.mark.parametrize("count", [1, 20])
async def test_many_nodes_at_once(
    stage: Stage, cluster: Cluster, count: int, record_property: Callable[[str, object], None]
) -> None:
    vms = [Machine(f"w{number}", zone="zone-a") for number in range(count)]
    await cluster.join(*vms)
    await asyncio.gather(*(cluster.boot(vm) for vm in vms))

    async def report(number: int, vm: Machine) -> None:
        await asyncio.sleep(number * SPREAD_SECONDS / count)
        await cluster.machines.report(vm, f"10.0.0.{number + 1}")

    await asyncio.gather(*(report(number, vm) for number, vm in enumerate(vms)))
    await cluster.initialised(*(vm.name for vm in vms))

    async def all_told() -> bool:
        return stage.guest_proxy.count(method="POST", path="/namespaces/default/events") >= count

    await until(all_told, within=60, what="an Event per Node")
    waits = sorted(cluster.untainted[vm.name] - cluster.addressed[vm.name] for vm in vms)
    slow = waits[-(len(waits) // 20) - 1]
    patches = len(writes(stage.guest_proxy, "/api/v1/nodes/"))
    events = stage.guest_proxy.count(method="POST", path="/namespaces/default/events")
    reads = len(single_reads(stage.harvester_proxy.requests))
    for name, value in (("p95", slow), ("patches", patches), ("events", events), ("reads", reads)):
        record_property(name, value)
    sys.stdout.write(
        f"{count} nodes: p95 {slow * 1000:.0f} ms from address to no taint; per node {patches / count:g} patches, "
        f"{events / count:g} Events, {reads / count:g} reads on Harvester\n"
    )
    assert patches == 2 * count
    assert patches + events <= 4 * count
    assert reads == 0


@pytest.mark.parametrize("flags", [{"node-monitor-period": "200ms"}], ids=["fast"])
@pytest.mark.parametrize(
    ("networks", "reported", "external"),
    [
        pytest.param(("default/vlan1",), (), (), id="no agent"),
        pytest.param(("default/vlan1",), ("fd00::8",), ("ExternalIP fd00::8",), id="other family first"),
        pytest.param((), (), (), id="pod network only"),
    ],
)
async def test_kubelets_address_is_waited_for_and_then_used(
    cluster: Cluster,
    flags: Mapping[str, str],
    networks: tuple[str, ...],
    reported: tuple[str, ...],
    external: tuple[str, ...],
) -> None:
    assert flags
    vm = Machine("w1", networks=networks)
    await cluster.boot(vm, *reported)
    await cluster.kubelets.register(Kubelet("w1", system_uuid=vm.system_uuid, node_ip="10.0.0.8"))
    assert "names 10.0.0.8" in await cluster.hears("w1", "ProvidedNodeIPNotFound")
    await cluster.initialised("w1")
    await cluster.shows("w1", "InternalIP 10.0.0.8", *external, "Hostname w1")


async def test_deleted_node_that_joins_again_is_initialised_again(cluster: Cluster) -> None:
    vm = Machine("w1")
    await cluster.boot(vm, "10.0.0.1")
    await cluster.join(vm)
    await cluster.initialised("w1")
    first = cluster.node("w1")["metadata"]["uid"]
    await cluster.kubelets.remove("w1")
    await cluster.join(vm)

    async def again() -> bool:
        return bool(cluster.node("w1")) and cluster.node("w1")["metadata"]["uid"] != first

    await until(again, within=60, what="the new Node")
    await cluster.initialised("w1")
    assert addresses_of(cluster.node("w1")) == ["InternalIP 10.0.0.1", "Hostname w1"]


async def test_restart_of_the_program_writes_nothing(stage: Stage, cluster: Cluster, program: CcmProcess) -> None:
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


@pytest.mark.parametrize("flags", [{"disable-hostname-lookup": "true", "node-monitor-period": "500ms"}])
async def test_without_the_host_names_of_guests(stage: Stage, cluster: Cluster, flags: Mapping[str, str]) -> None:
    assert flags
    vm = Machine("w2")
    async with GuestAgentApi(stage.host) as agents:
        agents.hostnames[f"{VM_NAMESPACE}/pool1-abc"] = "w1"
        await cluster.boot(Machine("pool1-abc"), "10.0.0.1")
        await cluster.boot(vm, "10.0.0.2")
        await cluster.kubelets.register(Kubelet("w1"))
        await cluster.join(vm)
        await cluster.initialised("w2")
        assert "guests are not queried" in await cluster.hears("w1", "VMNotFound")
        assert stage.harvester_proxy.matching(path="guestosinfo") == []
        await until(cluster.mapping, within=60, what="the devices of networks")


@pytest.mark.parametrize("flags", [{"disable-vmi-controller": "true"}])
async def test_without_the_vmi_controller(cluster: Cluster, flags: Mapping[str, str]) -> None:
    vm = Machine("w1", zone="zone-a")
    await cluster.boot(vm, "10.0.0.1")
    await cluster.join(vm)
    await cluster.initialised("w1")
    assert label_of(cluster.node("w1"), ZONE) == "zone-a"
    assert await cluster.mapping() is None
