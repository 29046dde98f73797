"""VMs with two networks: every Node keeps its addresses when the controller replaces the Go provider."""

import pytest

from devenv.harvester.machines import Machine
from devenv.kubelets import Kubelet
from devenv.stage import Stage
from harvester_ccm.model.core import NODES
from tests.e2e.nodes.cluster import Cluster, addresses_of
from tests.e2e.observing import writes

pytestmark = pytest.mark.apiserver

FIRST, SECOND = "10.0.0.{}", "192.168.5.{}"
NETWORKS = ("default/mgmt", "default/vlan5")


async def initialised_by_go(
    stage: Stage, cluster: Cluster, number: int, addresses: tuple[str, ...], *, node_ip: str = ""
) -> Machine:
    """Make a VM with two interfaces and its Node, as the Go provider left it; ``addresses`` are ``type address``."""
    vm = Machine(f"w{number}", networks=NETWORKS)
    uid = await cluster.boot(vm, FIRST.format(number), SECOND.format(number))
    await cluster.kubelets.register(
        Kubelet(vm.name, system_uuid=vm.system_uuid, node_ip=node_ip.format(number) if node_ip else "")
    )
    shown = [entry.format(number).split() for entry in (*addresses, f"Hostname {vm.name}")]
    documents = [{"type": kind, "address": address} for kind, address in shown]
    await stage.guest.merge_patch(NODES, vm.name, {"spec": {"providerID": f"harvester://{uid}", "taints": None}})
    await stage.guest.merge_patch(NODES, vm.name, {"status": {"addresses": documents}}, subresource="status")
    return vm


@pytest.mark.parametrize(
    ("addresses", "node_ip"),
    [
        pytest.param(
            (f"ExternalIP {FIRST}", f"InternalIP {SECOND}"), SECOND, id="v0.1.5 to v0.2.5, address of the kubelet"
        ),
        pytest.param((f"InternalIP {SECOND}",), "", id="v0.1.5 to v0.2.5, kubelet without one"),
        pytest.param((f"InternalIP {FIRST}",), "", id="v0.2.6 and later"),
    ],
)
async def test_swap_of_the_image_changes_no_address_of_a_ready_node(
    stage: Stage, cluster: Cluster, addresses: tuple[str, ...], node_ip: str
) -> None:
    vms = [await initialised_by_go(stage, cluster, number, addresses, node_ip=node_ip) for number in (1, 2, 3)]
    internal = [addresses[-1].format(number) for number in (1, 2, 3)]
    run = stage.run(flags={"node-monitor-period": "500ms"}, proxied=True)
    try:
        await stage.logged(run, "became leader")
        # A Node that joins later is initialized later.
        await cluster.boot(Machine("w4", networks=NETWORKS), FIRST.format(4), SECOND.format(4))
        await cluster.kubelets.register(Kubelet("w4", node_ip=SECOND.format(4)))
        await cluster.initialised("w4")
        assert addresses_of(cluster.node("w4")) == [f"InternalIP {SECOND.format(4)}", "Hostname w4"]
        for vm, address in zip(vms, internal, strict=True):
            # One report of the guest agent lacks the interface with the InternalIP.
            both = (FIRST.format(vm.name[1:]), SECOND.format(vm.name[1:]))
            await cluster.machines.report(vm, *(() if address.endswith(both[0]) else both[:1]))
            await cluster.machines.report(vm, *both)
        # A Node that is initialized later is reconciled after those reports.
        await cluster.boot(Machine("w5", networks=NETWORKS), FIRST.format(5), SECOND.format(5))
        await cluster.kubelets.register(Kubelet("w5"))
        await cluster.initialised("w5")
        for vm, address in zip(vms, internal, strict=True):
            assert address in addresses_of(cluster.node(vm.name))
            assert writes(stage.guest_proxy, f"/nodes/{vm.name}/status") == []
            assert writes(stage.guest_proxy, f"/nodes/{vm.name}$") == []
    finally:
        run.terminate(0)
        await stage.ended(run)
