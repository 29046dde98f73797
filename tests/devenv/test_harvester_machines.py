"""VMs as node tests drive them, read through the product's own views and rights."""

from __future__ import annotations

from pathlib import Path

import pytest

from devenv.harvester.guestagent import GuestAgentApi
from devenv.harvester.machines import Machine, Machines
from devenv.harvester.records import MACHINES
from harvester_ccm.errors import Conflict, Forbidden, NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_kubeconfig
from harvester_ccm.model.harvester import GUEST_OS_INFO, INSTANCES, VIRTUAL_MACHINES

pytestmark = pytest.mark.apiserver


async def test_life_of_a_machine(harvester_admin: ApiClient, harvester_kubeconfig: Path, vm_namespace: str) -> None:
    machines = Machines(harvester_admin)
    node = Machine("n1", vm_namespace, networks=("default/a", "default/b"), zone="z1", region="r1")
    async with ApiClient(load_kubeconfig(harvester_kubeconfig), cluster="harvester") as product:
        made = await machines.create(node, "192.0.2.11", "198.51.100.11")
        vm = await product.get(VIRTUAL_MACHINES, "n1", namespace=vm_namespace)
        assert vm.metadata.uid == made["metadata"]["uid"]
        assert vm.metadata.label("guestcluster.harvesterhci.io/name") == "demo"
        assert vm.status
        assert (vm.status.ready, vm.status.created, vm.status.printable_status) == (True, True, "Running")

        vmi = await product.get(INSTANCES, "n1", namespace=vm_namespace)
        assert vmi.metadata.annotation("topology.kubernetes.io/zone") == "z1"
        assert vmi.metadata.label("harvesterhci.io/vmName") == "n1"
        assert vmi.spec.domain
        assert vmi.spec.domain.firmware
        assert vmi.spec.domain.firmware.uuid == node.system_uuid
        assert vmi.status
        assert [i.ip_address for i in vmi.status.interfaces or ()] == ["192.0.2.11", "198.51.100.11"]

        await machines.begin_migration(node, "harvester-2")
        moving = (await product.get(INSTANCES, "n1", namespace=vm_namespace)).status
        assert moving
        assert moving.migration_state
        assert (moving.node_name, moving.migration_state.completed) == ("harvester-1", False)
        await machines.finish_migration(node, "harvester-2")
        moved = (await product.get(INSTANCES, "n1", namespace=vm_namespace)).status
        assert moved
        assert moved.migration_state
        assert (moved.node_name, moved.migration_state.completed) == ("harvester-2", True)

        await machines.stop(node)
        with pytest.raises(NotFound):
            await product.get(INSTANCES, "n1", namespace=vm_namespace)
        halted = await product.get(VIRTUAL_MACHINES, "n1", namespace=vm_namespace)
        assert halted.status
        stored = await harvester_admin.get(MACHINES, "n1", namespace=vm_namespace)
        assert (halted.status.ready, stored["spec"]["runStrategy"]) == (False, "Halted")
        await machines.delete(node)
        with pytest.raises(NotFound):
            await machines.delete(node)


async def test_guest_agent_answers_under_the_products_rights(
    harvester_admin: ApiClient, harvester_kubeconfig: Path, vm_namespace: str
) -> None:
    machines, node = Machines(harvester_admin), Machine("n1", vm_namespace)
    await machines.create(node)
    async with (
        GuestAgentApi(harvester_admin) as agents,
        ApiClient(load_kubeconfig(harvester_kubeconfig), cluster="harvester") as product,
    ):

        async def hostname(name: str, namespace: str = vm_namespace) -> str:
            info = await product.get(GUEST_OS_INFO, name, namespace=namespace, subresource="guestosinfo")
            return info.hostname

        with pytest.raises(Conflict, match="VMI does not have guest agent connected"):
            await hostname("n1")
        await machines.report(node, "192.0.2.11")
        assert await hostname("n1") == "n1"
        agents.hostnames[f"{vm_namespace}/n1"] = "n1.example.test"
        assert await hostname("n1") == "n1.example.test"
        with pytest.raises(NotFound):
            await hostname("nobody")
        with pytest.raises(Forbidden):
            await hostname("n1", "default")
    await machines.delete(node)
