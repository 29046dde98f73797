"""A VM changes: its Node follows soon, by watches and not by polling."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from devenv.harvester.machines import REGION, ZONE, Machine
from devenv.harvester.records import INSTANCES
from devenv.stage import VM_NAMESPACE, Stage, until
from harvester_ccm.names import ZONE_BETA
from tests.e2e.nodes.cluster import Cluster, addresses_of, label_of
from tests.e2e.observing import writes

FLAGS = {"node-monitor-period": "100ms"}
"""An address that is not reported any more is waited for six times that."""

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.usefixtures("program"),
    pytest.mark.parametrize("flags", [FLAGS], ids=["fast"]),
]

SOON = 5.0
"""Far below the time of a full pass. The benchmark measures against the target of a second."""


@pytest.fixture
async def vm(cluster: Cluster) -> Machine:
    """The VM of the Node w1, both up."""
    vm = Machine("w1", zone="zone-a", region="north")
    await cluster.boot(vm, "10.0.0.1")
    await cluster.join(vm)
    await cluster.initialised("w1")
    await until(cluster.mapping, within=SOON, what="network mapping")
    return vm


async def annotate(stage: Stage, vm: Machine, **annotations: str | None) -> None:
    """Change annotations of the VM's instance."""
    keys = {"zone": ZONE, "region": REGION}
    patch = {"metadata": {"annotations": {keys[name]: value for name, value in annotations.items()}}}
    await stage.host.merge_patch(INSTANCES, vm.name, patch, namespace=VM_NAMESPACE)


async def follows(change: Awaitable[None], condition: Callable[[], bool], what: str) -> None:
    """Make the change and return once the Node shows it, which must be soon."""
    await change

    async def shown() -> bool:
        return condition()

    await until(shown, within=SOON, what=what)


async def test_address_zone_and_region(stage: Stage, cluster: Cluster, vm: Machine) -> None:
    stage.guest_proxy.forget()
    await follows(
        cluster.machines.report(vm, "10.0.0.2"),
        lambda: addresses_of(cluster.node("w1")) == ["InternalIP 10.0.0.2", "Hostname w1"],
        "new address",
    )
    await follows(
        annotate(stage, vm, zone="zone-b", region="south"),
        lambda: (label_of(cluster.node("w1"), ZONE), label_of(cluster.node("w1"), REGION)) == ("zone-b", "south"),
        "new zone and region",
    )
    assert label_of(cluster.node("w1"), ZONE_BETA) == "zone-b"
    # The new address is shown at once, and takes the place of the old one later.
    assert [one.path.removeprefix("/api/v1/nodes/") for one in writes(stage.guest_proxy)] == [*["w1/status"] * 2, "w1"]
    assert "node.cloudprovider.kubernetes.io/uninitialized" not in str(cluster.node("w1")["spec"])


async def test_heartbeats_cause_no_request(stage: Stage, cluster: Cluster, vm: Machine) -> None:
    await cluster.hears("w1", "Synced")
    stage.guest_proxy.forget()
    stage.harvester_proxy.forget()
    for beat in range(20):
        patch = {"metadata": {"labels": {"beat": str(beat)}}}
        await stage.host.merge_patch(INSTANCES, vm.name, patch, namespace=VM_NAMESPACE)
        await cluster.kubelets.report("w1", "True")
    await cluster.machines.report(vm, "10.0.0.2")
    await cluster.shows("w1", "InternalIP 10.0.0.2", "Hostname w1")
    assert len(writes(stage.guest_proxy)) == 2
    assert stage.harvester_proxy.requests == []


async def test_network_mapping_follows_the_vms(cluster: Cluster, vm: Machine) -> None:
    async def says(text: str) -> None:
        async def said() -> bool:
            return await cluster.mapping() == text

        await until(said, within=60, what=text)

    await says('{"default/vlan1":"enp1s0"}')
    second = Machine("w2", networks=("default/vlan2", "default/vlan1"))
    await cluster.boot(second, "10.0.0.2", "10.0.1.2")
    await cluster.join(second)
    await says("")
    await cluster.machines.delete(second)
    await says('{"default/vlan1":"enp1s0"}')
