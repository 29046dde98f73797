"""Services that can never be served: they hold up nobody, cost Harvester next to nothing, and users one Event."""

from __future__ import annotations

import asyncio

import pytest

from devenv.harvester import FAST
from devenv.stage import Stage, until
from harvester_ccm.names import IP_POOL, LB_SERVICE_NAME, Reason
from tests.e2e.observing import caught_up, writes

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.usefixtures("lan"),
    pytest.mark.parametrize("pace", [FAST], ids=["fast"]),
]

BALANCERS = "/loadbalancers"
GOOD = [f"good-{number}" for number in range(12)]
HOPELESS = [f"hopeless-{number}" for number in range(5)]


async def test_hopeless_services_hold_up_nobody(stage: Stage) -> None:
    # The only worker: a Service that kept it waiting would keep all others waiting, too.
    run = stage.run(flags={"concurrent-service-syncs": "1"}, proxied=True)
    await stage.logged(run, "became leader")
    wish = {IP_POOL: "no-such-pool"}
    await asyncio.gather(*(stage.create_service(name, annotations=wish) for name in HOPELESS))
    for name in HOPELESS:
        assert "no-such-pool" in (await stage.hears(name, Reason.ADDRESS_PENDING)).message
    stage.harvester_proxy.forget()
    await asyncio.gather(*(stage.create_service(name) for name in GOOD))
    await stage.served(*GOOD, within=60)
    await until(lambda: announced(stage, len(GOOD)), within=60, what="announcement of all addresses")

    await until(lambda: written(stage, 2 * len(GOOD)), within=60, what="one creation and one change for each")
    assert stage.harvester_proxy.matching(path=f"{BALANCERS}/demo-default-hopeless") == []
    await cost_nothing_more(stage)
    assert run.exit_code is None


async def written(stage: Stage, number: int) -> bool:
    """Return whether Harvester has taken so many writes about Services that can be served; fail if there are more."""
    good = rf"{BALANCERS}(/demo-default-good-[0-9a-f-]+)?$"
    taken = [one for one in writes(stage.harvester_proxy, good) if one.status in (200, 201)]
    assert len(taken) <= number
    return len(taken) == number


async def announced(stage: Stage, number: int) -> bool:
    """Return whether kube-vip announces so many addresses: a Service without one may not hold it up either."""
    return len(stage.kube_vip.announced) == number


async def cost_nothing_more(stage: Stage) -> None:
    """Check that hopeless Services lead to no request at Harvester and to no further Event, also when looked at."""
    balancers = {one.metadata.label(LB_SERVICE_NAME): one for one in await stage.load_balancers()}
    assert {balancers[name].spec.ip_pool for name in HOPELESS} == {"no-such-pool"}
    stage.harvester_proxy.forget()
    for name in HOPELESS:
        await stage.change_service(name, {"metadata": {"labels": {"touched": "yes"}}})
    await caught_up(stage)
    assert [one.path for one in stage.harvester_proxy.requests if BALANCERS in one.path and not one.watch] == []
    for name in HOPELESS:
        told = await stage.told(name)
        assert [(one.reason, one.count) for one in told] == [(Reason.ENSURING, 1), (Reason.ADDRESS_PENDING, 1)]
