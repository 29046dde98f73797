"""A tenant writes the addresses of Nodes on Services of its own: the real program gives none of them up for it."""

from __future__ import annotations

import pytest

from devenv.harvester.machines import Machine
from devenv.stage import Stage
from harvester_ccm.model.core import SERVICES
from harvester_ccm.names import KUBE_VIP_ADDRESSES, KUBE_VIP_HOST
from tests.e2e.nodes.cluster import Cluster
from tests.e2e.observing import writes

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.usefixtures("program"),
    pytest.mark.parametrize("flags", [{"node-monitor-period": "100ms"}], ids=["fast"]),
]

CLAIMED = "10.0.0.1,10.0.0.2,fd00::1,10.0.0.7"


async def test_services_of_a_tenant_take_no_address_and_stop_no_join(stage: Stage, cluster: Cluster) -> None:
    old, new = Machine("w1"), Machine("w2")
    await cluster.boot(old, "10.0.0.1")
    await cluster.machines.report_lists(old, ["10.0.0.1", "fd00::1", "10.0.0.7"])
    await cluster.join(old)
    await cluster.initialised("w1")
    stage.guest_proxy.forget()
    claims = {KUBE_VIP_ADDRESSES: CLAIMED, KUBE_VIP_HOST: "w1"}
    await stage.create_service("plain", annotations=claims, spec={"type": "ClusterIP"})
    await stage.create_service("classed", annotations=claims, spec={"loadBalancerClass": "example.com/other"})
    # Whoever may write its status may write any address there.
    ingress = [{"ip": address} for address in CLAIMED.split(",")]
    status = {"status": {"loadBalancer": {"ingress": ingress}}}
    await stage.guest.merge_patch(SERVICES, "classed", status, namespace="default", subresource="status")
    # The VM of one reports something else, another one joins.
    await cluster.machines.report_lists(old, ["10.0.0.7", "10.0.0.1", "fd00::1", "10.0.0.8"])
    await cluster.boot(new, "10.0.0.2")
    await cluster.join(new)
    await cluster.shows("w2", "InternalIP 10.0.0.2", "Hostname w2")
    shown = [f"InternalIP {one}" for one in ("10.0.0.1", "fd00::1")]
    await cluster.shows("w1", *shown, "ExternalIP 10.0.0.7", "ExternalIP 10.0.0.8", "Hostname w1")
    for name in ("plain", "classed"):
        await stage.guest.delete(SERVICES, name, namespace="default")
    await cluster.machines.report_lists(old, ["10.0.0.1", "fd00::1", "10.0.0.7"])
    await cluster.shows("w1", *shown, "ExternalIP 10.0.0.7", "Hostname w1")
    assert len(writes(stage.guest_proxy, "/nodes/w1/status")) == 2, "those of the ExternalIP that came and went"
    assert await cluster.told("w1") == ["Synced"]
