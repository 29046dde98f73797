"""SIGKILL at a random write: the next run completes it, once."""

import asyncio
import os
import random
from contextlib import suppress
from typing import Any

import pytest

from devenv.ccm import CcmProcess
from devenv.harvester import FAST
from devenv.stage import Stage, until
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import DHCP_ADDRESS, IPAM, LB_SERVICE_NAME
from tests.e2e.observing import FAST_ORPHANS, writes

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.usefixtures("lan"),
    pytest.mark.parametrize("pace", [FAST], ids=["fast"]),
]

SEED_VARIABLE = "CRASH_SEED"
"""Environment variable with the seed of a run that is to be repeated."""
KILLS = 12
"""On real connections; ``tests/simulation`` kills at any callback, in schedules by the thousand."""
DHCP = {"annotations": {IPAM: "dhcp"}}
KINDS: dict[str, dict[str, Any]] = {
    "web": {},
    "dns": {"ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]},
    "shop": {"ports": [{"name": "https", "port": 443}, {"name": "http", "port": 80}]},
    "wiki": DHCP,
    "syslog": {"ports": [{"name": "syslog", "port": 514, "protocol": "UDP"}], **DHCP},
}
"""The Services of the demo: addresses from the pool and by DHCP, TCP and UDP, one port and two."""
NAMES = list(KINDS)
POOLED = [name for name, kind in KINDS.items() if "annotations" not in kind]
LONGEST_LIFE = 10.0
"""Seconds after its start after which a run is killed even if it has written less than it was to."""
AT_REST = 2.0
"""Seconds without a request after which it is killed, too: it has nothing to do any more, at any load."""
MOST_WRITES = 8


async def shuffle_services(stage: Stage, dice: random.Random) -> None:
    for name in NAMES:
        if dice.random() < 0.5:
            continue
        service = await stage.service(name)
        if service is None:
            await stage.create_service(name, **KINDS[name])
        elif not service.metadata.deleting:
            await stage.delete_service(name)


def wrote(stage: Stage) -> int:
    """Return how much the present run has written so far."""
    return len(writes(stage.guest_proxy)) + len(writes(stage.harvester_proxy))


async def await_moment(stage: Stage, run: CcmProcess, dice: random.Random) -> None:
    """Return some writes, or some time, after the start: now and then in the middle of a request."""
    with suppress(TimeoutError):
        # How long a start takes is the machine's business; now and then it is not waited for.
        await stage.logged(run, "service controller started", within=dice.choice([0.5, 60, 60, 60]))
    wanted = dice.randint(1, MOST_WRITES)
    with suppress(TimeoutError):
        async with asyncio.timeout(LONGEST_LIFE):
            while wrote(stage) < wanted:
                await stage.next_request(within=AT_REST)
    await asyncio.sleep(dice.choice([0.0, dice.uniform(0, 0.02)]))


async def test_every_service_has_one_load_balancer_after_repeated_kills(stage: Stage) -> None:
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(2**32))
    print(f"seed {seed}: set {SEED_VARIABLE}={seed} to repeat")  # noqa: T201 - shown when the test fails
    dice = random.Random(seed)
    active = 0
    for _ in range(KILLS):
        stage.guest_proxy.forget()
        stage.harvester_proxy.forget()
        run = stage.run(flags={"leader-elect": "false"}, proxied=True)
        await shuffle_services(stage, dice)
        await await_moment(stage, run, dice)
        run.kill()
        active += wrote(stage) > 0
    assert active > KILLS / 2, f"only {active} runs came to write anything before they were killed"

    stage.run(flags={"leader-elect": "false"}, times=FAST_ORPHANS)
    leaving = [one for one in [await stage.service(name) for name in NAMES] if one and one.metadata.deleting]
    await stage.gone(*(one.metadata.name for one in leaving), within=60)
    for name in NAMES:
        if await stage.service(name) is None:
            await stage.create_service(name, **KINDS[name])

    async def exact() -> dict[str, LoadBalancer] | None:
        services = await stage.served(*NAMES, within=60)
        balancers = await stage.load_balancers()
        found = {str(one.metadata.label(LB_SERVICE_NAME)): one for one in balancers}
        agreed = {one.metadata.name: one.addresses for one in services} == {
            name: (one.address,) for name, one in found.items()
        }
        counts = await stage.harvester.counts()
        return found if agreed and (len(balancers), counts.booked) == (len(NAMES), len(POOLED)) else None

    # An API server may let a Service go in spite of a finalizer of that very moment: the sweep finds what that left.
    balancers = await until(exact, within=90, what="one load balancer and its address for each Service")
    for name, one in balancers.items():
        assert one.allocated_ip == (one.address if name in POOLED else DHCP_ADDRESS)

    for name in NAMES:
        await stage.delete_service(name)
    await stage.gone(*NAMES, within=60)
    await stage.nothing_left()
