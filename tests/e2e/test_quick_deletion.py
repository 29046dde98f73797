"""Services deleted moments after their creation, while Harvester is in the middle of them: nothing may be left."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from devenv.background import Background
from devenv.eyes import SeenCopy
from devenv.faults import Delay
from devenv.harvester.queue import FAST, slowed
from devenv.stage import Stage, until
from devenv.watch import Document
from harvester_ccm.model.core import SERVICES
from harvester_ccm.names import LB_SERVICE_NAME, SERVICE_FINALIZER
from tests.e2e.observing import caught_up, writes

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("ccm")]

BALANCERS = "/loadbalancers"


@asynccontextmanager
async def lost_services(stage: Stage) -> AsyncIterator[set[str]]:
    """Collect the names of Services that went although they had the program's finalizer.

    An API server that has begun to delete an object without finalizers does not see one that is added meanwhile.
    """
    lost: set[str] = set()

    def changed(before: Document | None, after: Document | None) -> None:
        if after is None and before is not None:
            metadata = before["metadata"]
            if SERVICE_FINALIZER in metadata.get("finalizers", ()) and "deletionTimestamp" not in metadata:
                lost.add(metadata["name"])

    mirror = SeenCopy(stage.guest_eyes, SERVICES.path())
    mirror.subscribe(changed)
    background = Background("lost services", [mirror.run])
    await background.start([mirror.wait_synced], within=60)
    try:
        yield lost
    finally:
        await background.stop()


async def live_briefly(stage: Stage, name: str, seconds: float, *, created: bool) -> None:
    """Create a Service and delete it so many seconds later, or so many after its load balancer is ``created``."""
    await stage.create_service(name)

    async def there() -> bool:
        return name in {one.metadata.label(LB_SERVICE_NAME) for one in await stage.load_balancers()}

    if created:
        await until(there, within=60, what=f"load balancer of {name}")
    await asyncio.sleep(seconds)
    await stage.delete_service(name)


async def live_and_leave(
    stage: Stage, lives: Sequence[float], per_life: int, *, at_once: int, created: bool = False
) -> None:
    """Let Services live for each of the times, so many of them, and wait until nothing of them is left.

    Of those that are there at once many go before it is their turn to get a load balancer, unless they live until they
    have got it.
    """
    names: list[str] = []
    gate = asyncio.Semaphore(at_once)

    async def live(name: str, seconds: float) -> None:
        async with gate:
            await live_briefly(stage, name, seconds, created=created)

    async with lost_services(stage) as lost:
        for index, seconds in enumerate(lives):
            batch = [f"brief-{index}-{number}" for number in range(per_life)]
            await asyncio.gather(*(live(name, seconds) for name in batch))
            names += batch
        await stage.gone(*names, within=60)
        await stage.nothing_left(within=60)
    made = [record for record in writes(stage.harvester_proxy, BALANCERS) if record.method == "POST"]
    assert made, "every Service was gone before it was seen: this test shows nothing"
    log = stage.runs[0].log
    assert set(re.findall(r"load balancer of a lost service deleted .*service=default/(\S+)", log)) <= lost
    assert "orphaned load balancer deleted" not in log, "only the sweep has found what was left"


async def test_service_that_is_gone_before_it_has_the_finalizer_gets_no_load_balancer(stage: Stage) -> None:
    stage.harvester_proxy.forget()
    preparation = stage.guest_proxy.inject(Delay(0.3), method="PATCH", path="/services/brief")
    await stage.create_service("brief")

    async def asked() -> int:
        return preparation.hits

    await until(asked, within=60, what="preparation of the Service")
    await stage.delete_service("brief")
    await stage.gone("brief")

    async def answered() -> bool:
        return [one.status for one in stage.guest_proxy.matching(method="PATCH", path="/services/brief")] == [404]

    await until(answered, within=60, what="answer that the Service is gone")
    await caught_up(stage)

    assert writes(stage.harvester_proxy) == []


@pytest.mark.parametrize("pace", [FAST], ids=["fast"])
async def test_services_that_live_for_moments(stage: Stage) -> None:
    await live_and_leave(stage, (0.0, 0.005, 0.05, 0.5), 10, at_once=10)


@pytest.mark.parametrize("pace", [slowed(20.0)], ids=["slower"])
async def test_services_that_harvester_has_not_looked_at_when_they_go(stage: Stage) -> None:
    await live_and_leave(stage, (0.0, 0.05, 0.1, 0.2, 0.5), 3, at_once=2, created=True)
