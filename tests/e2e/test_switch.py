"""Changing the workload type of a load balancer that serves: only by the annotation, with the same address."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator

import pytest

from devenv.demo.requests import ask
from devenv.faults import Answer
from devenv.guestnodes import GuestNodes
from devenv.harvester.records import SLICES
from devenv.kubevip import Transition
from devenv.stage import Stage, until
from harvester_ccm.kube_vip_names import ANNOUNCE_AGAIN, KUBE_VIP_ADDRESSES, KUBE_VIP_IGNORE
from harvester_ccm.model.core import SERVICE_LABEL
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import (
    HEALTH_CHECK_PORT,
    LB_SERVICE_NAME,
    LB_TOUCH,
    MOVING,
    WORKLOAD_TYPE,
    Reason,
)
from tests.e2e.observing import caught_up, give_endpoints, retouched, writes

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("lan")]

HTTP = {"name": "http", "port": 8080, "protocol": "TCP"}
SEED_VARIABLE = "SWITCH_SEED"
"""Environment variable with the seed of a run that is to be repeated."""
KILLS = 6
PAUSE = 2.0
"""Seconds between the old load balancer and the new one, in the place of five: Harvester's parts of the old one are
collected after one here."""
TIMES = {"plan.service.create.REPLACEMENT_PAUSE": PAUSE}
SWITCH_SECONDS = 4.0
"""About as long as one run takes to switch a load balancer; after a kill the pause in it begins anew."""
SEVERAL = [f"web-{number}" for number in range(6)]


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
        done = service.metadata.annotation(MOVING) is None and len(found) == 1 and not found[0].metadata.deleting
        served = done and found[0].spec.workload_type == workload and found[0].address and found[0].allocated_ip
        return found[0] if served and service.addresses == (found[0].address,) else None

    return await until(complete, within=within, what=f"{name} with a load balancer of type {workload}")


async def test_there_and_back_with_the_same_name_and_address(stage: Stage, nodes: GuestNodes) -> None:
    run = stage.run(proxied=True, times=TIMES)
    await stage.logged(run, "became leader")
    await give_endpoints(stage, "web")
    service = await stage.create_service("web", ports=[HTTP])
    first = await switched(stage, "web", "cluster")
    address = first.address

    await want(stage, "web", "vm")
    await nodes.listen(service)
    await stage.hears("web", Reason.SWITCHING)
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
    assert ANNOUNCE_AGAIN not in (await stage.service_document("web"))["metadata"]["annotations"]
    assert [one.status for one in writes(stage.guest_proxy, "/endpointslices/")] == [200]
    assert await stage.told("web", Reason.NOT_ANNOUNCED) == []


async def test_without_the_right_it_is_told_that_traffic_stays_away(stage: Stage, nodes: GuestNodes) -> None:
    run = stage.run(proxied=True, times=TIMES)
    await stage.logged(run, "became leader")
    stage.guest_proxy.inject(Answer(403, "endpointslices is forbidden", "Forbidden"), path="/endpointslices")
    await give_endpoints(stage, "web")
    service = await stage.create_service("web", ports=[HTTP])
    first = await switched(stage, "web", "cluster")
    await want(stage, "web", "vm")
    await nodes.listen(service)
    await switched(stage, "web", "vm")
    await want(stage, "web", "cluster")

    told = await stage.hears("web", Reason.NOT_ANNOUNCED)
    assert "Traffic stays away" in told.message
    await switched(stage, "web", "cluster")
    await caught_up(stage)
    assert (told.type, await stage.told("web", Reason.NOT_ANNOUNCED)) == ("Warning", [told])
    assert stage.kube_vip.announced == {}
    # What it says to do helps.
    command = told.message.partition("run: kubectl ")[2].partition(", or restart")[0]
    assert command.startswith(f"--namespace default annotate endpointslices --selector {SERVICE_LABEL}=web --overwrite")
    change = {"metadata": {"annotations": {"touched": "1"}}}
    await stage.guest.merge_patch(SLICES, "web-1", change, namespace="default")

    async def announced() -> bool:
        return set(stage.kube_vip.announced) == {first.address}

    await until(announced, within=60, what="announcement by kube-vip")


async def told_before_and_after(stage: Stage, address: str) -> None:
    """Check the Events of a Service that became a VM load balancer and then a cluster load balancer again."""
    told = {(one.reason, one.message) for one in await stage.told("web") if "Switch" in one.reason}
    for workload in ("vm", "cluster"):
        becomes = (
            f"The load balancer becomes one of workload type {workload}: it is deleted now and created again within "
            f"about {PAUSE:.0f} s. Its address is kept where Harvester allows it"
        )
        assert (str(Reason.SWITCHING), becomes) in told
    done = [text for reason, text in sorted(told) if reason == Reason.SWITCHED]
    one_of = "The load balancer is one of workload type"
    assert done == [f"{one_of} {workload} now, address {address}" for workload in ("cluster", "vm")]
    assert len(told) == 4


async def touched(stage: Stage) -> None:
    """Return when the program has written the new load balancer once more, as it notes on it that it will."""

    async def written_again() -> bool:
        (balancer,) = await balancers_of(stage, "web")
        return balancer.metadata.annotation(LB_TOUCH) is None

    (balancer,) = await balancers_of(stage, "web")
    assert balancer.metadata.annotation(LB_TOUCH) == "true"
    await until(written_again, within=60, what="second write of the new load balancer")


async def test_health_check_alone_switches_nothing(stage: Stage) -> None:
    run = stage.run(proxied=True, times=TIMES)
    await stage.logged(run, "became leader")
    await stage.create_service("web", ports=[HTTP])
    before = await switched(stage, "web", "cluster")

    await stage.change_service("web", {"metadata": {"annotations": {HEALTH_CHECK_PORT: "http"}}})

    told = await stage.hears("web", Reason.IGNORED)
    await retouched(stage, "web")
    for words in (HEALTH_CHECK_PORT, f"Set annotation {WORKLOAD_TYPE} to vm", "traffic stops for some seconds"):
        assert words in told.message
    (after,) = await balancers_of(stage, "web")
    assert after.metadata.uid == before.metadata.uid
    assert await stage.told("web", Reason.IGNORED) == [told]


@pytest.mark.usefixtures("nodes")
async def test_kills_in_the_middle_change_nothing_about_the_end(stage: Stage) -> None:
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(2**32))
    print(f"seed {seed}: set {SEED_VARIABLE}={seed} to repeat")  # noqa: T201 - shown when the test fails
    dice = random.Random(seed)
    run = stage.run(flags={"leader-elect": "false"}, times=TIMES)
    for name in SEVERAL:
        await stage.create_service(name, ports=[HTTP])
    before = {name: await switched(stage, name, "cluster") for name in SEVERAL}

    for name in SEVERAL:
        await want(stage, name, "vm")
    for _ in range(KILLS):
        await asyncio.sleep(dice.choice([dice.uniform(0, 1), dice.uniform(1, SWITCH_SECONDS)]))
        run.kill()
        # Somebody is always on the way.
        chosen = dice.choice(SEVERAL)
        await want(stage, chosen, dice.choice(["vm", "cluster"]))
        run = stage.run(flags={"leader-elect": "false"}, times=TIMES)
    for name in SEVERAL:
        await want(stage, name, "vm")

    for name in SEVERAL:
        after = await switched(stage, name, "vm", within=60)
        assert (after.metadata.name, after.address) == (before[name].metadata.name, before[name].address)
        assert after.metadata.uid != before[name].metadata.uid
    assert len(await stage.load_balancers()) == (await stage.harvester.counts()).booked == len(SEVERAL)
    assert stage.kube_vip.announced == {}
