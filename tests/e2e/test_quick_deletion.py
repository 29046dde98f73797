"""Services that are deleted within a second after their creation leave nothing."""

import asyncio
from collections.abc import Sequence

import pytest

from devenv.ccm import CcmProcess
from devenv.harvester.queue import FAST
from devenv.stage import Stage, until
from harvester_ccm.names import LB_SERVICE_NAME
from tests.e2e.observing import FAST_ORPHANS, writes

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("ccm")]

BALANCERS = "/loadbalancers"


@pytest.fixture
async def ccm(stage: Stage, lan: None) -> CcmProcess:
    """The leader, with all its requests through the proxies, and with a short grace period of orphans."""
    run = stage.run(proxied=True, times=FAST_ORPHANS)
    await stage.logged(run, "service controller started")
    return run


async def live_briefly(stage: Stage, name: str, seconds: float, *, created: bool) -> None:
    """Create a Service and delete it ``seconds`` later, or ``seconds`` after its load balancer is ``created``."""
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
    """Delete ``per_life`` Services after each of the times, and wait until nothing of them is left.

    Unless they are deleted after the creation of their load balancer, many are still queued for it.
    """
    names: list[str] = []
    gate = asyncio.Semaphore(at_once)

    async def live(name: str, seconds: float) -> None:
        async with gate:
            await live_briefly(stage, name, seconds, created=created)

    for index, seconds in enumerate(lives):
        batch = [f"brief-{index}-{number}" for number in range(per_life)]
        await asyncio.gather(*(live(name, seconds) for name in batch))
        names += batch
    await stage.gone(*names, within=60)
    # The load balancer of a Service that was deleted without the finalizer is deleted after a grace period.
    await stage.nothing_left(within=60)
    made = [record for record in writes(stage.harvester_proxy, BALANCERS) if record.method == "POST"]
    assert made, "every Service was gone before it was seen: this test shows nothing"


@pytest.mark.parametrize("pace", [FAST], ids=["fast"])
@pytest.mark.guarantee("Deleting a Service leaves nothing in Harvester")
async def test_services_deleted_within_half_a_second_leave_nothing(stage: Stage) -> None:
    await live_and_leave(stage, (0.0, 0.005, 0.05, 0.5), 10, at_once=10)
