"""The VMs behind VM load balancers follow the Nodes of the cluster; an Event names a request that keeps failing."""

import asyncio
from typing import Any

import pytest

from harvester_ccm.controllers.wake import BACKENDS_SECONDS
from harvester_ccm.model.core import NODES
from harvester_ccm.model.harvester import LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.names import EXCLUDE_NODE_LABEL, IP_POOL, WORKLOAD_TYPE, Reason
from tests.support.builders import CLUSTER, service
from tests.support.clock import jumping_time
from tests.support.memory_server import Call, refused
from tests.support.program_world import Harvester, Program, guest_server


class World(Program):
    """A Service with a VM load balancer, and a Node whose VM has another name."""

    def __init__(self) -> None:
        super().__init__(guest_server(), Harvester(), CLUSTER.name)
        self.put(service(annotations={WORKLOAD_TYPE: "vm"}))
        self.put_node("node-a", providerID="harvester://uid-vm-a")
        self.put_vm("vm-a")

    def put_node(self, name: str, labels: dict[str, str] | None = None, ready: str = "True", **spec: Any) -> None:
        status = {"conditions": [{"type": "Ready", "status": ready}]}
        self.guest.put(NODES, {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": status})

    def put_vm(self, name: str, **metadata: Any) -> None:
        place = {"name": name, "namespace": CLUSTER.namespace, "uid": f"uid-{name}"}
        self.harvester.put(VIRTUAL_MACHINES, {"metadata": {**place, **metadata}})

    @property
    def selected(self) -> list[str]:
        """The VM names that the load balancer selects."""
        (balancer,) = self.harvester.items(LOAD_BALANCERS)
        return list(balancer["spec"]["backendServerSelector"]["harvesterhci.io/vmName"])


@jumping_time
async def test_backends_follow_the_nodes() -> None:
    world = World()
    async with world.live():
        await asyncio.sleep(5)
        assert world.selected == ["vm-a"]
        world.put_vm("vm-b")
        world.put_node("vm-b")
        await asyncio.sleep(2 * BACKENDS_SECONDS)
        assert world.selected == ["vm-a", "vm-b"]
        world.put_node("vm-b", ready="False")
        await asyncio.sleep(5)
        assert world.selected == ["vm-a", "vm-b"], "Harvester checks the health of the backends"
        world.put_node("vm-b", {EXCLUDE_NODE_LABEL: "true"})
        await asyncio.sleep(2 * BACKENDS_SECONDS)
        assert world.selected == ["vm-a"]


@pytest.mark.parametrize(
    ("status", "selected"),
    [pytest.param(503, ["vm-a"], id="unavailable"), pytest.param(403, ["node-a"], id="forbidden")],
)
@jumping_time
async def test_backends_stay_while_vms_cannot_be_listed(status: int, selected: list[str]) -> None:
    """If the list of the VMs is forbidden, the names of the Nodes are used."""
    world = World()
    async with world.live():
        await asyncio.sleep(5)

    def fault(call: Call) -> Any:
        return refused(status, "", "no") if "virtualmachines" in call.path else None

    world.harvester.fault = fault
    async with world.live():
        await asyncio.sleep(60)
        assert world.selected == selected


REQUESTED = service("fixed", uid="uid-of-fixed", annotations={IP_POOL: "lan"}, spec={"loadBalancerIP": "10.0.0.7"})


@pytest.mark.parametrize(
    ("request_path", "name"),
    [("/virtualmachines", "web"), ("/virtualmachineinstances", "web"), ("selfsubjectrulesreviews", "fixed")],
    ids=["VMs", "instances of VMs", "permission for IP pools"],
)
@pytest.mark.guarantee("Every address is announced, or an Event reports the reason")
@jumping_time
async def test_service_that_waits_for_a_request_that_fails_has_an_event(request_path: str, name: str) -> None:
    world = World()
    world.put(REQUESTED)
    world.harvester.fault = lambda call: refused(503, "", "no") if call.path.endswith(request_path) else None
    async with world.live():
        await asyncio.sleep(30)
        assert world.condition(name)["reason"] == Reason.HARVESTER_UNAVAILABLE
        assert world.warnings(name)
