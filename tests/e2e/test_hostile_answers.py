"""Answers of a Harvester that wants to exhaust the controller: its memory stays small, and the guest is served."""

import pytest

from devenv.ccm import CcmProcess
from devenv.faults import Fault, Flood
from devenv.harvester import FAST
from devenv.harvester.machines import Machine, Machines
from devenv.kubelets import DOCUMENTS, Kubelet, node_document
from devenv.stage import Stage, until
from harvester_ccm.names import UNINITIALIZED_TAINT

pytestmark = [pytest.mark.apiserver, pytest.mark.parametrize("pace", [FAST], ids=["fast"])]

WITHIN = 45.0
MIB = 2**20
CHART_LIMIT = 256 * MIB
"""Memory of the container in the chart."""
HUGE = 300 * MIB
BALANCERS = "/loadbalancers"
LISTS: dict[str, Fault] = {
    "list": Flood(HUGE),
    "error": Flood(HUGE, status=500),
    "gzip": Flood(HUGE, compressed=True),
}


async def joins(stage: Stage, machines: Machines, machine: Machine) -> None:
    """Return once a new Node of this VM is initialized, for which Harvester's load balancers are not needed."""
    await machines.create(machine, "192.0.2.9")
    await stage.guest.create(DOCUMENTS, node_document(Kubelet(machine.name, system_uuid=machine.system_uuid)))

    async def initialized() -> bool:
        found = (await stage.nodes())[machine.name]
        return all(taint.key != UNINITIALIZED_TAINT for taint in found.spec.taints)

    await until(initialized, within=WITHIN, what=f"initialization of {machine.name}")


async def is_told(stage: Stage, run: CcmProcess, *, watch: bool) -> None:
    """Return once the log names the failed list or watch for the second time, so that the answer was read."""

    async def failed_twice() -> bool:
        assert run.exit_code is None, run.log[-5000:]
        return stage.harvester_proxy.count(path=BALANCERS, watch=watch) >= 2 and "list or watch failed" in run.log

    await until(failed_twice, within=WITHIN, what="a warning, and another request")


async def is_unharmed(stage: Stage, run: CcmProcess) -> None:
    """Return once a Node joins while Harvester floods, and after its end a Service is served, with little memory."""
    machines, machine = Machines(stage.host), Machine("joining")
    before = (await stage.lease()).spec
    try:
        await joins(stage, machines, machine)
        stage.harvester_proxy.heal()
        await stage.create_service("web")
        await stage.served("web", within=WITHIN)
    finally:
        await stage.guest.delete(DOCUMENTS, machine.name)
        await machines.delete(machine)
    assert run.exit_code is None
    after = (await stage.lease()).spec
    assert (after.holder_identity, after.lease_transitions) == (before.holder_identity, before.lease_transitions)
    assert run.peak_memory() < CHART_LIMIT


@pytest.mark.usefixtures("lan")
@pytest.mark.parametrize("fault", LISTS.values(), ids=LISTS)
async def test_list_without_an_end(stage: Stage, fault: Fault) -> None:
    stage.harvester_proxy.inject(fault, method="GET", path=BALANCERS, watch=False)
    run = stage.run(proxied=True)
    await stage.logged(run, "became leader")
    await is_told(stage, run, watch=False)
    await is_unharmed(stage, run)


@pytest.mark.usefixtures("lan")
async def test_line_of_a_watch_without_an_end(stage: Stage) -> None:
    stage.harvester_proxy.inject(Flood(HUGE), method="GET", path=BALANCERS, watch=True)
    run = stage.run(proxied=True)
    await stage.logged(run, "became leader")
    await is_told(stage, run, watch=True)
    await is_unharmed(stage, run)
