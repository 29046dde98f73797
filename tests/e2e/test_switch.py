"""Changing the workload type of a load balancer that serves: it keeps its name and address."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from devenv.demo.requests import ask
from devenv.guestnodes import GuestNodes
from devenv.kubevip import Transition
from devenv.stage import Stage, until
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import (
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_IGNORE,
    LB_SERVICE_NAME,
    LB_TOUCH,
    WORKLOAD_TYPE,
    Reason,
)
from tests.e2e.observing import caught_up, give_endpoints, writes

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("lan")]

HTTP = {"name": "http", "port": 8080, "protocol": "TCP"}


@pytest.fixture
async def nodes(stage: Stage) -> AsyncIterator[GuestNodes]:
    """One node of the guest."""
    async with GuestNodes(stage.guest, stage.host) as nodes:
        await nodes.add(1)
        yield nodes


async def want(stage: Stage, name: str, workload: str) -> None:
    """Ask for another workload type."""
    await stage.change_service(name, {"metadata": {"annotations": {WORKLOAD_TYPE: workload}}})


async def balancers_of(stage: Stage, name: str) -> list[LoadBalancer]:
    """Return the load balancers that exist for a Service."""
    return [one for one in await stage.load_balancers() if one.metadata.label(LB_SERVICE_NAME) == name]


async def switched(stage: Stage, name: str, workload: str, *, within: float = 60) -> LoadBalancer:
    """Return the one load balancer of a Service when it has this type, an address, and all is done about it."""

    async def complete() -> LoadBalancer | None:
        found, service = await balancers_of(stage, name), await stage.service(name)
        assert service is not None
        done = len(found) == 1 and not found[0].metadata.deleting
        served = done and found[0].spec.workload_type == workload and found[0].address and found[0].allocated_ip
        return found[0] if served and service.addresses == (found[0].address,) else None

    return await until(complete, within=within, what=f"{name} with a load balancer of type {workload}")


async def test_there_and_back_with_the_same_name_and_address(stage: Stage, nodes: GuestNodes) -> None:
    run = stage.run(proxied=True)
    await stage.logged(run, "became leader")
    await give_endpoints(stage, "web")
    service = await stage.create_service("web", ports=[HTTP])
    first = await switched(stage, "web", "cluster")
    address = first.address

    await want(stage, "web", "vm")
    await nodes.listen(service)
    await stage.hears("web", Reason.REPLACING)
    second = await switched(stage, "web", "vm")
    assert await ask("TCP", address, 8080) == "node-1"
    await touched(stage)
    await want(stage, "web", "cluster")
    third = await switched(stage, "web", "cluster")

    for after in (second, third):
        assert (after.metadata.name, after.address) == (first.metadata.name, first.address)
        assert after.metadata.uid != first.metadata.uid
    await caught_up(stage)
    assert (await stage.harvester.counts()).booked == 1
    annotations = (await stage.service_document("web"))["metadata"]["annotations"]
    assert KUBE_VIP_IGNORE not in annotations
    assert annotations[KUBE_VIP_ADDRESSES] == address
    await told_before_and_after(stage, address)
    await announced_by_kube_vip(stage, address)


async def announced_by_kube_vip(stage: Stage, address: str) -> None:
    """Check that kube-vip let go of the address and took it again, for which the endpoints were touched once."""
    announced = Transition("announce", address, "default/web")

    async def again() -> bool:
        return stage.kube_vip.transitions == [announced, Transition("withdraw", address, "default/web"), announced]

    await until(again, within=60, what="announcement by kube-vip")
    await caught_up(stage)
    assert [one.status for one in writes(stage.guest_proxy, "/endpointslices/")] == [200]
    assert await stage.told("web", Reason.NOT_ANNOUNCED) == []


async def told_before_and_after(stage: Stage, address: str) -> None:
    """Check the Events of a Service that became a VM load balancer and then a cluster load balancer again."""
    told = [one.message for one in await stage.told("web", Reason.REPLACING)]
    assert sorted(told) == [
        f"The load balancer is replaced by one of workload type {workload}: it is deleted now and created again. Its "
        "address is kept if Harvester allows it"
        for workload in ("cluster", "vm")
    ]
    (ensured,) = {one.message for one in await stage.told("web", Reason.ENSURED) if "backends" not in one.message}
    assert ensured == f"Ensured load balancer, address {address}"


async def touched(stage: Stage) -> None:
    """Return when the program has written the new load balancer once more, as it notes on it that it will."""

    async def written_again() -> bool:
        (balancer,) = await balancers_of(stage, "web")
        return balancer.metadata.annotation(LB_TOUCH) is None

    (balancer,) = await balancers_of(stage, "web")
    assert balancer.metadata.annotation(LB_TOUCH) == "true"
    await until(written_again, within=60, what="second write of the new load balancer")
