"""Requests and watches that fail: the final state is the same, with few Events."""

import asyncio
import random

import pytest

from devenv.faults import Answer, Cut, Drop, Fault, Lose
from devenv.harvester import FAST
from devenv.stage import Stage, until
from harvester_ccm.names import LB_SERVICE_NAME, Reason
from tests.e2e.observing import caught_up, completed

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.usefixtures("ccm"),
    pytest.mark.parametrize("pace", [FAST], ids=["fast"]),
]
MAX_EVENTS = 6
"""About a Service, from its creation to its address."""
PAGE = Answer(404, body=b"404 page not found\n", content_type="text/plain")
CONFLICT = Answer(409, "the object has been modified; please apply your changes to the latest version", "Conflict")
BUSY = Answer(429, "too many requests", "TooManyRequests", retry_after=1)
BROKEN = Answer(500, "etcdserver: request timed out", "InternalError")
FAULTS: tuple[Fault, ...] = (BROKEN, CONFLICT, BUSY, Drop(), Lose(), Cut())


@pytest.mark.guarantee("Only a 404 that names the object proves a deletion")
async def test_service_keeps_its_load_balancer_when_a_proxy_returns_404_pages(stage: Stage) -> None:
    await stage.create_service("web")
    before = await completed(stage, "web")
    await caught_up(stage)
    patch = stage.guest_proxy.inject(PAGE, method="PATCH", path="/services/web", times=1)
    stage.guest_proxy.inject(PAGE, method="GET", path="/services/web$", times=1)

    ports = [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "more", "port": 8080, "protocol": "TCP"}]
    await stage.change_service("web", {"spec": {"ports": ports}})

    async def followed() -> bool:
        service = await stage.service("web")
        return service is not None and [len(one.ports) for one in service.status.load_balancer.ingress] == [2]

    await until(followed, within=60, what="both ports in the status")
    assert patch.hits == 1
    await caught_up(stage)
    (after,) = await stage.load_balancers()
    assert (after.metadata.uid, after.address) == (before.metadata.uid, before.address)
    assert [told.reason for told in await stage.told("web")] == [Reason.ENSURING, Reason.ENSURED]


async def fail_randomly(stage: Stage, dice: random.Random) -> None:
    """Let requests and watches of both servers fail until cancelled."""
    while True:
        proxy = dice.choice([stage.guest_proxy, stage.harvester_proxy])
        if dice.random() < 0.05:
            proxy.cut_watches()
        else:
            proxy.inject(dice.choice(FAULTS), method=dice.choice(["POST", "PUT", "PATCH", "DELETE"]), times=1)
        await asyncio.sleep(dice.uniform(0, 0.1))


async def test_services_get_addresses_after_random_failures_of_requests_and_watches(stage: Stage) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    names = [f"web-{number}" for number in range(12)]
    stay, leave = names[::2], names[1::2]
    failures = asyncio.create_task(fail_randomly(stage, random.Random(seed)), name="failures")
    try:
        for name in names:
            await stage.create_service(name)
            await stage.next_request()
        for name in leave:
            await stage.delete_service(name)
            await stage.next_request()
    finally:
        failures.cancel()
        await asyncio.wait([failures])
        stage.guest_proxy.heal()
        stage.harvester_proxy.heal()

    await stage.gone(*leave, within=90)
    await stage.served(*stay, within=90)

    async def complete() -> bool:
        balancers = [one.metadata.label(LB_SERVICE_NAME) for one in await stage.load_balancers()]
        return sorted(str(name) for name in balancers) == sorted(stay)

    await until(complete, within=60, what="one load balancer for each Service that stays")
    assert (await stage.harvester.counts()).booked == len(stay)
    await caught_up(stage)
    for name in stay:
        told = await stage.told(name)
        assert sum(event.count for event in told) <= MAX_EVENTS, told
