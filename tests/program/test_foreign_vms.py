"""A Node whose provider ID names a VM that cannot be its own: of another cluster, or another machine."""

import asyncio
from typing import Any

import pytest

from devenv.harvester.machines import Machine
from harvester_ccm.model.core import NODES
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.names import VM_CLUSTER, WORKLOAD_TYPE
from tests.support.builders import CLUSTER, service
from tests.support.clock import jumping_time
from tests.support.node_world import NAMESPACE, NodeWorld, initialised, machine
from tests.support.program_world import Harvester, Program, guest_server

OTHER_UUID = "5f3c0000-0000-4000-8000-00000000000b"


class World(Program):
    """A Service with a VM load balancer, an initialized Node and a VM that a second Node claims."""

    def __init__(self, claimed: Machine) -> None:
        super().__init__(guest_server(), Harvester(), CLUSTER.name, "--controllers=*", namespace=NAMESPACE)
        self.nodes = NodeWorld()
        self.nodes.guest_server, self.nodes.harvester_server = self.guest, self.harvester
        self.put(service(annotations={WORKLOAD_TYPE: "vm"}))
        self.own, self.claimed = machine("own"), claimed
        self.nodes.boot(self.own, "10.9.0.1")
        self.nodes.join("own", system_uuid=self.own.system_uuid)
        self.uid = self.nodes.boot(claimed, "10.9.0.2")

    def claim(self, system_uuid: str) -> None:
        """Register a Node with the UID of the claimed VM, as a kubelet with ``--provider-id``."""
        self.nodes.join("rogue", system_uuid=system_uuid)
        self.guest.change(NODES, "rogue", {"spec": {"providerID": f"harvester://{self.uid}"}})

    @property
    def backends(self) -> list[str]:
        (balancer,) = self.harvester.items(LOAD_BALANCERS)
        return list(balancer["spec"]["backendServerSelector"]["harvesterhci.io/vmName"])


FOREIGN = machine("stolen", cluster="other")
OWN = machine("stolen")
CASES: dict[str, tuple[Machine, str, str]] = {
    "VM of another cluster": (FOREIGN, FOREIGN.system_uuid, "VMClusterMismatch"),
    "VM of another cluster, other UUID": (FOREIGN, OTHER_UUID, "VMClusterMismatch"),
    "other UUID": (OWN, OTHER_UUID, "VMIdentityMismatch"),
}


@pytest.mark.parametrize(("claimed", "system_uuid", "reason"), CASES.values(), ids=CASES.keys())
@jumping_time
@pytest.mark.guarantee("Nodes of other providers and machines never change")
async def test_new_node_is_not_a_vm_that_its_provider_id_names_wrongly(
    claimed: Machine, system_uuid: str, reason: str
) -> None:
    world = World(claimed)
    async with world.live():
        await initialised(world.nodes, ["own"])
        world.claim(system_uuid)
        await asyncio.sleep(120)
        assert world.nodes.taints("rogue") == ["uninitialized"]
        assert not any("10.9.0.2" in address for address in world.nodes.addresses("rogue"))
        assert world.backends == ["own"]
        assert reason in world.nodes.told("rogue")


@jumping_time
async def test_new_node_is_not_a_vm_of_another_cluster_by_its_system_uuid() -> None:
    world = World(FOREIGN)
    async with world.live():
        await initialised(world.nodes, ["own"])
        world.nodes.join("rogue", system_uuid=FOREIGN.system_uuid)
        await asyncio.sleep(120)
        assert world.nodes.taints("rogue") == ["uninitialized"]
        assert world.backends == ["own"]
        assert "VMClusterMismatch" in world.nodes.told("rogue")


RELABELED: dict[str, Any] = {"metadata": {"labels": {VM_CLUSTER: "other"}}}
OTHER_FIRMWARE: dict[str, Any] = {"spec": {"domain": {"firmware": {"uuid": OTHER_UUID}}}}


@pytest.mark.parametrize(
    ("change", "reason"),
    [(RELABELED, "VMClusterMismatch"), (OTHER_FIRMWARE, "VMIdentityMismatch")],
    ids=["relabeled", "other UUID"],
)
@jumping_time
async def test_initialized_node_keeps_its_vm_addresses_and_backends(change: dict[str, Any], reason: str) -> None:
    world = World(OWN)
    async with world.live():
        world.nodes.join("stolen", system_uuid=OWN.system_uuid)
        await initialised(world.nodes, ["own", "stolen"])
        before = world.nodes.stored("stolen")
        key = f"{NAMESPACE}/stolen"
        world.harvester.change(INSTANCES, key, change)
        world.harvester.change(VIRTUAL_MACHINES, key, {"metadata": change.get("metadata", {})})
        if change is OTHER_FIRMWARE:
            # It is another machine that reports now.
            world.nodes.report(OWN, "10.9.0.3")
        await asyncio.sleep(600)
        assert world.nodes.stored("stolen")["status"]["addresses"] == before["status"]["addresses"]
        assert world.nodes.stored("stolen")["spec"] == before["spec"]
        assert sorted(world.backends) == ["own", "stolen"]
        assert reason in world.nodes.told("stolen")
