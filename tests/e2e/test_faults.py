"""A network and servers that fail in the middle: in the end all is as if they had not, and users were not flooded."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import TypeAlias

import pytest

from devenv.faults import Answer, Cut, Drop, Fault, Lose, Rule, Silence
from devenv.harvester import FAST
from devenv.proxy import FaultProxy
from devenv.stage import Stage, until
from harvester_ccm.names import IPAM, LB_SERVICE_NAME, Reason
from tests.e2e.observing import caught_up, completed

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.usefixtures("ccm"),
    pytest.mark.parametrize("pace", [FAST], ids=["fast"]),
]

BALANCERS = "/loadbalancers"
SERVICES = "/services/"
MOST_EVENTS = 3
"""Events about a Service from its creation to its address: one of them may be about a fault."""
MOST_EVENTS_IN_A_STORM = 6
NAMES = ["web", "wiki", "shop"]
PAGE = Answer(404, body=b"404 page not found\n", content_type="text/plain")
CONFLICT = Answer(409, "the object has been modified; please apply your changes to the latest version", "Conflict")
BUSY = Answer(429, "too many requests", "TooManyRequests", retry_after=1)
BROKEN = Answer(500, "etcdserver: request timed out", "InternalError")

Faults: TypeAlias = Mapping[str, tuple[Fault, int]]
"""What happens to how many requests in a row, by a word for it; one run of the program meets one after the other."""
FAULTS: tuple[Fault, ...] = (BROKEN, CONFLICT, BUSY, Drop(), Lose(), Cut())


async def serve_all(stage: Stage, *, suffix: str = "") -> list[str]:
    """Create the Services, wait until they are served, check that all is as it should be, and return their names."""
    names = [f"{name}{suffix}" for name in NAMES]
    for name in names:
        await stage.create_service(name, annotations={IPAM: "dhcp" if name.startswith("wiki") else "pool"})
    await stage.served(*names, within=60)
    await check(stage, names)
    return names


async def check(stage: Stage, names: list[str]) -> None:
    """Check that each Service has one load balancer and the address of it, and was told little."""
    balancers = [one.metadata.label(LB_SERVICE_NAME) for one in await stage.load_balancers()]
    assert sorted(str(name) for name in balancers) == sorted(names)
    await caught_up(stage)
    for name in names:
        told = await stage.told(name)
        assert len(told) <= MOST_EVENTS, told
        assert all(event.count == 1 for event in told), told


async def remove_all(stage: Stage, names: list[str]) -> None:
    """Delete the Services and wait until nothing is left."""
    for name in names:
        await stage.delete_service(name)
    await stage.gone(*names, within=60)
    await stage.nothing_left()


@pytest.mark.parametrize(
    ("method", "faults"),
    [
        pytest.param(
            "POST",
            {"500": (BROKEN, 4), "429": (BUSY, 3), "lost": (Drop(), 4), "no-answer": (Lose(), 3), "half": (Cut(), 3)},
            id="creation",
        ),
        pytest.param("PUT", {"409": (CONFLICT, 8), "500": (BROKEN, 4), "no-answer": (Lose(), 3)}, id="change"),
        pytest.param("DELETE", {"500": (BROKEN, 4), "429": (BUSY, 3), "no-answer": (Lose(), 3)}, id="deletion"),
    ],
)
async def test_harvester_fails_a_write(stage: Stage, method: str, faults: Faults) -> None:
    for kind, (fault, times) in faults.items():
        rule = stage.harvester_proxy.inject(fault, method=method, path=BALANCERS, times=times)

        names = await serve_all(stage, suffix=f"-{kind}")
        await remove_all(stage, names)

        assert rule.hits >= 3, kind
        stage.harvester_proxy.heal(rule)


async def test_guest_fails_a_write(stage: Stage) -> None:
    faults: Faults = {"500": (BROKEN, 4), "409": (CONFLICT, 8), "429": (BUSY, 3), "no-answer": (Lose(), 4)}
    for kind, (fault, times) in faults.items():
        rule = stage.guest_proxy.inject(fault, method="PATCH", path=SERVICES, times=times)

        names = await serve_all(stage, suffix=f"-{kind}")
        assert rule.hits >= 3, kind
        rule.hits = 0
        await remove_all(stage, names)

        assert rule.hits >= 3, kind
        stage.guest_proxy.heal(rule)


@pytest.mark.guarantee("Only a 404 that names the object proves a deletion")
async def test_pages_without_a_status_do_not_mean_that_a_service_is_gone(stage: Stage) -> None:
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


async def test_page_in_answer_to_the_first_write_does_not_make_a_service_unseen(stage: Stage) -> None:
    rule = stage.guest_proxy.inject(PAGE, method="PATCH", path=SERVICES, times=len(NAMES))

    names = await serve_all(stage)
    await remove_all(stage, names)

    assert rule.hits == len(NAMES)


async def test_watches_end_again_and_again(stage: Stage) -> None:
    for end in (FaultProxy.cut_watches, FaultProxy.end_watches, FaultProxy.expire_watches):
        ended = 0
        names = [f"{name}-{end.__name__.partition('_')[0]}" for name in NAMES]
        for name in names:
            ended += end(stage.guest_proxy) + end(stage.harvester_proxy)
            await stage.create_service(name)
            ended += end(stage.guest_proxy) + end(stage.harvester_proxy)

        await stage.served(*names, within=60)
        await check(stage, names)
        ended += end(stage.guest_proxy) + end(stage.harvester_proxy)
        await remove_all(stage, names)

        assert ended > len(names), end


async def test_watch_falls_silent_and_is_cut_later(stage: Stage) -> None:
    silent = stage.harvester_proxy.inject(Silence(), watch=True, path=BALANCERS)
    stage.harvester_proxy.cut_watches(BALANCERS)
    await until_hit(silent)
    for name in NAMES:
        await stage.create_service(name)
    await caught_up(stage)
    (first,) = [one for one in [await stage.service(NAMES[0])] if one is not None]
    assert first.addresses == ()

    stage.harvester_proxy.heal()
    stage.harvester_proxy.cut_watches(BALANCERS)

    await stage.served(*NAMES, within=60)
    await check(stage, NAMES)
    await remove_all(stage, NAMES)


async def until_hit(rule: Rule) -> None:
    """Return once the rule has hit a request."""

    async def hit() -> int:
        return rule.hits

    await until(hit, within=60, what=f"a request for {rule.path}")


async def storm(stage: Stage, dice: random.Random) -> None:
    """Break one request or watch after the other, on both sides, until cancelled."""
    while True:
        proxy = dice.choice([stage.guest_proxy, stage.harvester_proxy])
        if dice.random() < 0.05:
            proxy.cut_watches()
        else:
            proxy.inject(dice.choice(FAULTS), method=dice.choice(["POST", "PUT", "PATCH", "DELETE"]), times=1)
        await asyncio.sleep(dice.uniform(0, 0.1))


async def test_everything_fails_now_and_then(stage: Stage) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    names = [f"web-{number}" for number in range(12)]
    stay, leave = names[::2], names[1::2]
    weather = asyncio.create_task(storm(stage, random.Random(seed)), name="storm")
    try:
        for name in names:
            await stage.create_service(name)
            await stage.next_request()
        for name in leave:
            await stage.delete_service(name)
            await stage.next_request()
    finally:
        weather.cancel()
        await asyncio.wait([weather])
        stage.guest_proxy.heal()
        stage.harvester_proxy.heal()

    await stage.gone(*leave, within=90)
    await stage.served(*stay, within=90)

    async def right() -> bool:
        balancers = [one.metadata.label(LB_SERVICE_NAME) for one in await stage.load_balancers()]
        return sorted(str(name) for name in balancers) == sorted(stay)

    await until(right, within=60, what="one load balancer for each Service that stays")
    assert (await stage.harvester.counts()).booked == len(stay)
    await caught_up(stage)
    for name in stay:
        told = await stage.told(name)
        assert sum(event.count for event in told) <= MOST_EVENTS_IN_A_STORM, told
