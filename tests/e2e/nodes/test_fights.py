"""Somebody insists on labels or addresses of a Node: the real program backs off, and says once who it is."""

from __future__ import annotations

import pytest

from devenv.harvester.machines import Machine
from devenv.stage import Stage
from harvester_ccm.kube.brakes import UNDONE_AT_ONCE
from harvester_ccm.model.core import NODES
from harvester_ccm.names import ZONE, NodeReason
from tests.e2e.nodes.cluster import Cluster
from tests.e2e.observing import writes
from tests.e2e.test_fights import insisting

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.usefixtures("program"),
    pytest.mark.parametrize("flags", [{"node-monitor-period": "100ms"}], ids=["fast"]),
]


async def test_another_labeller_insists_on_the_zone(stage: Stage, cluster: Cluster) -> None:
    vm = Machine("w1", zone="zone-a")
    await cluster.boot(vm, "10.0.0.1")
    await cluster.join(vm)
    await cluster.initialised("w1")
    stage.guest_proxy.forget()
    labels = {"metadata": {"labels": {ZONE: "rack-7"}}}
    async with insisting(stage, NODES.path(None, "w1"), labels, "labeller"):
        told = await cluster.hears("w1", NodeReason.CONTESTED)
        # An address is no label: it follows while the fight goes on.
        await cluster.machines.report(vm, "10.0.0.2")
        await cluster.shows("w1", "InternalIP 10.0.0.2", "Hostname w1")
    assert told.startswith("Somebody else (labeller")
    assert f"label {ZONE} is 'rack-7'" in told
    patches = [one.path for one in writes(stage.guest_proxy)]
    assert patches.count("/api/v1/nodes/w1") <= UNDONE_AT_ONCE
    assert patches.count("/api/v1/nodes/w1/status") == 2
    assert (await cluster.told("w1")).count(NodeReason.CONTESTED) == 1


async def test_kubelet_insists_on_its_own_addresses(stage: Stage, cluster: Cluster) -> None:
    vm = Machine("w1")
    await cluster.boot(vm, "10.0.0.1")
    await cluster.machines.report_lists(vm, ["10.0.0.1", "fd00::1"])
    await cluster.join(vm)
    await cluster.initialised("w1")
    stage.guest_proxy.forget()
    shown = [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "w1"}]
    async with insisting(stage, NODES.path(None, "w1", "status"), {"status": {"addresses": shown}}, "kubelet"):
        told = await cluster.hears("w1", NodeReason.CONTESTED)
        # One that joins meanwhile is served, and nothing more is written to this one.
        late = Machine("w2")
        await cluster.boot(late, "10.0.0.2")
        await cluster.join(late)
        await cluster.initialised("w2")
    assert told.startswith("Somebody else (kubelet")
    assert "kubelet run without --cloud-provider=external" in told
    assert len(writes(stage.guest_proxy, "/nodes/w1")) <= UNDONE_AT_ONCE
    reasons = await cluster.told("w1")
    assert [reasons.count(one) for one in (NodeReason.CONTESTED, NodeReason.INTERNAL_IP_CHANGED)] == [1, 1]
