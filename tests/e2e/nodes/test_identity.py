"""Which VM a Node is: host names that differ, clones, strangers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from devenv.ccm import CcmProcess
from devenv.harvester.guestagent import GuestAgentApi
from devenv.harvester.machines import Machine
from devenv.harvester.records import INSTANCES, MACHINES
from devenv.kubelets import Kubelet
from devenv.stage import VM_NAMESPACE, Stage
from tests.e2e.nodes.cluster import Cluster, addresses_of
from tests.e2e.observing import writes

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.usefixtures("program"),
    pytest.mark.parametrize("flags", [{"node-monitor-period": "500ms"}], ids=["told soon"]),
]


@pytest.fixture
async def agents(stage: Stage) -> AsyncIterator[GuestAgentApi]:
    """Guest agents that answer."""
    async with GuestAgentApi(stage.host) as api:
        yield api


async def test_host_name_that_differs_from_the_vms(stage: Stage, cluster: Cluster, agents: GuestAgentApi) -> None:
    agents.hostnames[f"{VM_NAMESPACE}/pool1-abc"] = "W1.example.com"
    uid = await cluster.boot(Machine("pool1-abc"), "10.0.0.1")
    await cluster.boot(Machine("stranger", cluster="other"), "10.0.0.2")
    await cluster.kubelets.register(Kubelet("w1"))
    await cluster.initialised("w1", within=60)
    assert cluster.node("w1")["spec"]["providerID"] == f"harvester://{uid}"
    assert addresses_of(cluster.node("w1")) == ["InternalIP 10.0.0.1", "Hostname w1"]
    asked = stage.harvester_proxy.matching(path="guestosinfo")
    assert [one.path.split("/")[-2] for one in asked] == ["pool1-abc"]


async def test_two_vms_that_claim_one_host_name(cluster: Cluster, agents: GuestAgentApi, stage: Stage) -> None:
    for name, address in (("pool1-abc", "10.0.0.1"), ("pool1-xyz", "10.0.0.2")):
        agents.hostnames[f"{VM_NAMESPACE}/{name}"] = "w1"
        await cluster.boot(Machine(name), address)
    await cluster.kubelets.register(Kubelet("w1"))
    message = await cluster.hears("w1", "VMAmbiguous")
    assert "pool1-abc, pool1-xyz" in message
    assert writes(stage.guest_proxy, "/nodes/") == []
    # A person acts.
    await cluster.machines.delete(Machine("pool1-xyz"))
    await cluster.initialised("w1", within=60)
    assert addresses_of(cluster.node("w1")) == ["InternalIP 10.0.0.1", "Hostname w1"]


async def test_vm_of_another_cluster_with_the_nodes_name(cluster: Cluster) -> None:
    await cluster.boot(Machine("w1", cluster="other"), "10.0.0.1")
    await cluster.kubelets.register(Kubelet("w1"))
    message = await cluster.hears("w1", "VMOfOtherCluster")
    assert "'other'" in message
    assert "'demo'" in message


async def test_strangers_and_oddities_are_passed_over(stage: Stage, cluster: Cluster, program: CcmProcess) -> None:
    await cluster.boot(Machine("of-another-cluster", cluster="other"), "10.0.0.7")
    metadata = {"name": "without-anything", "namespace": VM_NAMESPACE}
    for resource in (MACHINES, INSTANCES):
        bare = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": {}}
        await stage.host.create(resource, bare, namespace=VM_NAMESPACE)
    odd = {
        "apiVersion": MACHINES.api_version,
        "kind": MACHINES.kind,
        "metadata": {"name": "unreadable", "namespace": VM_NAMESPACE},
        "spec": {"template": {"spec": {"networks": 1}}},
    }
    await stage.host.create(MACHINES, odd, namespace=VM_NAMESPACE)
    vm = Machine("w1")
    await cluster.boot(vm, "10.0.0.1")
    await cluster.join(vm)
    await cluster.initialised("w1", within=60)
    strangers = ("of-another-cluster", "without-anything", "unreadable")
    lines = [line for line in program.log.splitlines() if any(name in line for name in strangers)]
    assert [line for line in lines if " DEBUG " not in line] == []
    assert any("object skipped" in line for line in lines)
    assert stage.harvester_proxy.count(path="guestosinfo") == 0
