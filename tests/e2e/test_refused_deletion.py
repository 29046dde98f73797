"""Services that were refused an address, and go or ask for another pool just when Harvester books one for them.

Harvester writes to the pool first and to the load balancer when its turn comes, two thirds of a second later here.
"""

from __future__ import annotations

import pytest

from devenv.ccm import CcmProcess
from devenv.harvester import EVERYBODY
from devenv.harvester.queue import Pace
from devenv.harvester.records import POOLS
from devenv.stage import Stage, until
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import IP_POOL, LB_SERVICE_NAME, Reason
from tests.e2e.observing import caught_up, writes

pytestmark = [pytest.mark.apiserver, pytest.mark.parametrize("pace", [Pace(1.5, burst=1)], ids=["slow"])]

ONE = "127.77.0.9/32"
BALANCERS = "/loadbalancers"


@pytest.fixture
async def poolless_ccm(stage: Stage) -> CcmProcess:
    """The program, leading, with no pool at all."""
    run = stage.run(proxied=True)
    await stage.logged(run, "service controller started")
    return run


async def refused(stage: Stage, name: str, **annotations: str) -> LoadBalancer:
    """Create a Service and return its load balancer once it was refused an address."""
    await stage.create_service(name, annotations=annotations)
    await stage.hears(name, Reason.ADDRESS_PENDING, within=60)

    async def held() -> LoadBalancer | None:
        for one in await stage.load_balancers():
            if one.metadata.label(LB_SERVICE_NAME) == name and one.metadata.finalizers and one.ready:
                return one
        return None

    return await until(held, within=60, what="Harvester's finalizer")


async def being_booked(stage: Stage, load_balancer: LoadBalancer) -> None:
    """Return as soon as a pool holds an address for a load balancer, which does not show it yet."""

    async def booked() -> bool:
        return load_balancer.metadata.key in (await stage.harvester.bookings()).values()

    await until(booked, within=60, what="a booking")


def methods(stage: Stage) -> list[str]:
    """Return what was sent of load balancers since the proxy was told to forget."""
    return [record.method for record in writes(stage.harvester_proxy, BALANCERS)]


@pytest.mark.usefixtures("poolless_ccm")
async def test_pool_gets_an_address_free(stage: Stage) -> None:
    await stage.harvester.create_pool("tiny", ONE)
    await stage.create_service("first")
    await stage.served("first", within=60)
    second = await refused(stage, "second")

    await stage.delete_service("first")
    await being_booked(stage, second)
    await stage.delete_service("second")

    await stage.gone("first", "second", within=60)
    await stage.nothing_left(within=60)


@pytest.mark.usefixtures("poolless_ccm")
async def test_pool_begins_to_fit(stage: Stage) -> None:
    await stage.harvester.create_pool("lan", "127.77.0.0/24", selector={"scope": []})
    web = await refused(stage, "web")

    await stage.host.merge_patch(POOLS, "lan", {"spec": {"selector": EVERYBODY}})
    await being_booked(stage, web)
    await stage.delete_service("web")

    await stage.gone("web", within=60)
    await stage.nothing_left(within=60)


@pytest.mark.usefixtures("poolless_ccm")
async def test_another_pool_is_asked_for(stage: Stage) -> None:
    await stage.harvester.create_pool("tiny", ONE, selector={"scope": []})
    await stage.harvester.create_pool("wide", "127.77.1.0/24", selector={"scope": []})
    await stage.create_service("first", annotations={IP_POOL: "tiny"})
    await stage.served("first", within=60)
    second = await refused(stage, "second", **{IP_POOL: "tiny"})

    await stage.delete_service("first")
    await being_booked(stage, second)
    await stage.change_service("second", {"metadata": {"annotations": {IP_POOL: "wide"}}})
    (served,) = await stage.served("second", within=60)
    assert list(await stage.harvester.bookings()) == list(served.addresses)
    await stage.delete_service("second")

    await stage.gone("first", "second", within=60)
    await stage.nothing_left(within=60)


@pytest.mark.usefixtures("poolless_ccm")
async def test_nothing_is_booked_and_little_is_asked(stage: Stage) -> None:
    await stage.harvester.create_pool("tiny", ONE)
    await stage.create_service("first")
    await stage.served("first", within=60)
    await refused(stage, "second")
    await refused(stage, "third", **{IP_POOL: "dmz"})
    await caught_up(stage)
    stage.harvester_proxy.forget()

    await stage.delete_service("second")
    await stage.gone("second", within=60)
    assert methods(stage) == ["PUT", "DELETE"], "the pool is named"
    stage.harvester_proxy.forget()
    await stage.delete_service("third")
    await stage.gone("third", within=60)
    assert methods(stage) == ["PUT", "DELETE"], "it is asked again"
    await stage.delete_service("first")
    await stage.nothing_left(within=60)
