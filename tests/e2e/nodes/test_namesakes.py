"""VMs that have the names of Nodes and are none of them: nothing of the Nodes changes, and the VMs get no traffic."""

from __future__ import annotations

import asyncio

import pytest

from devenv.harvester.machines import Machine
from devenv.kubelets import Kubelet
from devenv.stage import Stage, until
from devenv.watch import Document
from harvester_ccm.model.core import NODES
from harvester_ccm.names import VM_NAME, WORKLOAD_TYPE, Reason
from tests.e2e.nodes.cluster import Cluster, Elsewhere

pytestmark = pytest.mark.apiserver

FAST = {"node-monitor-period": "500ms"}


def kept(node: Document) -> Document:
    """Return what nobody but the kubelet's Ready condition may have changed."""
    metadata, status = node["metadata"], node["status"]
    return {
        "labels": metadata.get("labels"),
        "annotations": metadata.get("annotations"),
        "spec": node["spec"],
        "addresses": status["addresses"],
    }


async def initialised_before(stage: Stage, cluster: Cluster, vm: Machine, provider_id: str, address: str) -> None:
    """Register a Node and make of it what another program has left."""
    await cluster.kubelets.register(Kubelet(vm.name, system_uuid=vm.system_uuid))
    addresses = [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": vm.name}]
    await stage.guest.merge_patch(NODES, vm.name, {"spec": {"providerID": provider_id, "taints": None}})
    await stage.guest.merge_patch(NODES, vm.name, {"status": {"addresses": addresses}}, subresource="status")


@pytest.mark.parametrize("same_uuids", [False, True], ids=["UUIDs of their own", "UUIDs from the names"])
async def test_wrong_namespace_full_of_namesakes_changes_nothing(
    stage: Stage, cluster: Cluster, elsewhere: Elsewhere, same_uuids: bool
) -> None:
    names = ["w0", "w1", "w2"]
    copies = [Machine(name, namespace=elsewhere.namespace, uuid_from_name=same_uuids) for name in (*names, "alien")]
    for number, name in enumerate(names):
        vm, address = Machine(name, uuid_from_name=same_uuids), f"10.0.0.{number + 1}"
        uid = await cluster.boot(vm, address)
        await initialised_before(stage, cluster, vm, f"harvester://{uid}", address)
    await initialised_before(stage, cluster, copies[-1], "k3s://alien", "172.16.0.5")
    for copy in copies:
        await cluster.machines.create(copy, "10.9.9.9")
    before = {copy.name: kept(cluster.node(copy.name)) for copy in copies}

    run = stage.run(flags=FAST, cloud_config=elsewhere.cloud_config)
    try:
        await asyncio.gather(*(cluster.hears(name, "VMOfOtherMachine") for name in names))
        # The copies live on, and the Nodes' own machines do too.
        for copy in copies:
            await cluster.machines.report(copy, "10.9.9.8")
        for name in ("w0", "alien"):
            await cluster.machines.stop(next(copy for copy in copies if copy.name == name))
            await cluster.kubelets.report(name, "Unknown")
        await cluster.machines.delete(copies[1])
        await cluster.kubelets.report("w1", "Unknown")
        # One that joins is served after all that; there it is the right machine.
        late = Machine("late", namespace=elsewhere.namespace)
        await cluster.machines.create(late, "10.9.9.7")
        await cluster.join(late)
        await cluster.initialised("late")
        await cluster.hears("w1", "NodeDeletionHeld")
        assert {copy.name: kept(cluster.node(copy.name)) for copy in copies} == before
        told = {name: await cluster.told(name) for name in ("w0", "w2", "alien")}
        assert told == {"w0": ["VMOfOtherMachine"], "w2": ["VMOfOtherMachine"], "alien": []}
    finally:
        run.terminate(0)
        await stage.ended(run)


async def test_vm_of_another_cluster_gets_no_traffic(stage: Stage, cluster: Cluster) -> None:
    """Its namespace and its name are those of a Node; its label says whose it is."""
    ours, theirs = Machine("w0"), Machine("w6", cluster="someone-else")
    uid = await cluster.boot(ours, "192.0.2.1")
    await cluster.boot(theirs, "192.0.2.66")
    await initialised_before(stage, cluster, ours, f"harvester://{uid}", "192.0.2.1")
    await cluster.kubelets.register(Kubelet(theirs.name))
    await stage.guest.merge_patch(NODES, theirs.name, {"spec": {"taints": None}})
    run = stage.run(flags=FAST)
    try:
        await stage.create_service("web", annotations={WORKLOAD_TYPE: "vm"})

        async def selected() -> list[str]:
            selectors = [one.spec.backend_server_selector or {} for one in await stage.load_balancers()]
            return [name for one in selectors for name in one.get(VM_NAME) or ()]

        await until(selected, within=60, what="load balancer")
        told = await stage.hears("web", Reason.NODES_WITHOUT_VM)
        assert told.message.startswith("Harvester sends no traffic to w6: for these nodes no VM in the namespace")
        assert await selected() == ["w0"]
        assert "but its label guestcluster.harvesterhci.io/name is 'someone-else'" in await cluster.hears(
            "w6", "VMOfOtherCluster"
        )
    finally:
        run.terminate(0)
        await stage.ended(run)
