"""Harvester is away for seconds, on real connections, with every Node not ready: nothing is lost, and it goes on.

The monitor period is 0.2 s instead of 5 s, so the program takes as many looks as in a minute of a real outage. An
hour of it, and more kinds of answers, are in ``tests/program``, on a clock that jumps.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping

import pytest

from devenv.ccm import CcmProcess
from devenv.faults import Answer, Drop, Fault, Hang
from devenv.harvester.machines import Machine
from devenv.stage import Stage
from tests.e2e.nodes.cluster import Cluster, Elsewhere, addresses_of, taints_of
from tests.e2e.observing import writes

COUNT = 5
OUTAGE_SECONDS = 1.5
FLAGS = {"node-monitor-period": "200ms"}
FAULTS: dict[str, Fault] = {
    "401": Answer(401, "Unauthorized", "Unauthorized"),
    "403": Answer(403, 'virtualmachines.kubevirt.io is forbidden: User "x" cannot list', "Forbidden"),
    "page": Answer(200, body=b"<html>log in</html>", content_type="text/html"),
    "dropped": Drop(),
    "hanging": Hang(),
}

pytestmark = [pytest.mark.apiserver, pytest.mark.parametrize("flags", [FLAGS], ids=["fast"])]


@pytest.fixture
async def vms(cluster: Cluster) -> list[Machine]:
    """VMs that run, and Nodes that are not looked at yet."""
    vms = [Machine(f"w{number}") for number in range(COUNT)]
    await asyncio.gather(*(cluster.boot(vm, f"10.0.0.{number + 1}") for number, vm in enumerate(vms)))
    await cluster.join(*vms)
    return vms


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_outage(
    stage: Stage,
    cluster: Cluster,
    vms: list[Machine],
    program: CcmProcess,
    fault: Fault,
    record_property: Callable[[str, object], None],
) -> None:
    names = [vm.name for vm in vms]
    await cluster.initialised(*names)
    for name in names:
        await cluster.hears(name, "Synced")
    before = {name: addresses_of(cluster.node(name)) for name in names}
    stage.harvester_proxy.inject(fault)
    stage.harvester_proxy.cut_watches()
    stage.guest_proxy.forget()
    for name in names:
        await cluster.kubelets.report(name, "Unknown")
    await asyncio.sleep(OUTAGE_SECONDS)

    assert program.exit_code is None
    events = stage.guest_proxy.count(method="POST", path="/events")
    record_property("events", events)
    sys.stdout.write(f"{OUTAGE_SECONDS:g} s of {fault}: {events} Events\n")
    assert {name: addresses_of(cluster.node(name)) for name in names} == before
    assert writes(stage.guest_proxy, "/nodes") == []
    assert events == 0

    stage.harvester_proxy.heal()
    stage.harvester_proxy.cut_hanging()
    await cluster.machines.report(vms[0], "10.0.0.99")
    await cluster.shows("w0", "InternalIP 10.0.0.99", "Hostname w0", within=60)
    assert all("shutdown" not in str(taints_of(cluster.node(name))) for name in names)


async def test_node_that_joins_meanwhile_is_told_why_it_waits(
    stage: Stage, cluster: Cluster, vms: list[Machine], flags: Mapping[str, str]
) -> None:
    rule = stage.harvester_proxy.inject(FAULTS["403"])
    run = stage.run(flags=flags, proxied=True)
    await stage.logged(run, "became leader")
    message = await cluster.hears("w0", "HarvesterForbidden")
    assert "Bind the ClusterRole harvesterhci.io:cloudprovider" in message
    stage.harvester_proxy.heal(rule)
    await cluster.initialised(*(vm.name for vm in vms), within=60)
    await cluster.hears("w0", "Synced")
    told = await cluster.told("w0")
    # One for each kind that may not be listed: their rights come back one after the other.
    assert told.count("HarvesterForbidden") in (1, 2)
    assert told.count("Synced") == 1
    assert [event["count"] for event in await stage.events("Node", "w0")] == [1] * len(told)


async def test_cloud_config_for_the_wrong_namespace(
    stage: Stage,
    cluster: Cluster,
    vms: list[Machine],
    program: CcmProcess,
    flags: Mapping[str, str],
    elsewhere: Elsewhere,
) -> None:
    """All lists are empty and every VM is a plain 404: just what the end of all VMs looks like."""
    names = [vm.name for vm in vms]
    await cluster.initialised(*names)
    program.terminate(0)
    await stage.ended(program)
    before = {name: addresses_of(cluster.node(name)) for name in names}
    for name in names:
        await cluster.kubelets.report(name, "Unknown")
    run = stage.run(flags=flags, cloud_config=elsewhere.cloud_config)
    await stage.logged(run, "became leader")
    for name in names:
        assert "Check the namespace in the cloud-config" in await cluster.hears(name, "VMInOtherNamespace")
    assert {name: addresses_of(cluster.node(name)) for name in names} == before
    assert "node deleted" not in run.log
