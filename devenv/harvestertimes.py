"""Harvester's times and rates, which recordings of states do not show: measured on the real and on the emulated one."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from devenv.harvester.loadbalancers import FINALIZER
from devenv.harvester.records import LOAD_BALANCERS, POOLS
from devenv.harvesterscenarios import (
    FREE_SUBNET,
    ONLY_BY_NAME,
    bystander,
    create,
    delete,
    pool,
    scope,
    span,
)
from devenv.player import NAMESPACE, Step
from devenv.watch import Document
from harvester_ccm.kube.client import ApiClient

MANY: Final = 30
SERVED: Final = 27
"""How many of them are waited for: before Harvester 1.5.1, a conflict of its workers can leave one without an address
for ever."""
POOL_COMES_AFTER: Final = 13.0
"""Between two attempts of a backoff, after 10 and after 20 s."""
REST_SECONDS: Final = 4.0
"""Until the writes that Harvester may send at once are available again."""
FREE_AFTER: Final = 45.0
"""After the last doubling of the backoff, at 41 s: the next attempt is 30 s later."""
LOOK_SECONDS: Final = 0.1
LONGEST: Final = 150.0

Write = Callable[[Step, ApiClient], Awaitable[None]]
"""Sends the write of a step."""


async def measure(client: ApiClient, write: Write) -> Mapping[str, float]:
    """Return seconds by what they are the time of, in an empty Harvester. What was created stays."""
    await write(bystander(NAMESPACE), client)
    await asyncio.sleep(LOOK_SECONDS)
    many = await _many(client, write)
    late, freed = await asyncio.gather(_late_pool(client, write), _freed_address(client, write))
    return {
        f"{SERVED} of {MANY} load balancers at once": many,
        "pool that comes late": late,
        "address that is free late": freed,
    }


async def _many(client: ApiClient, write: Write) -> float:
    """Return the time until nearly all of many load balancers that are created at once have their addresses."""
    await write(pool("many", scope=ONLY_BY_NAME), client)
    await _has_ranges("many", client)
    began = _now()
    names = [f"many-{number}" for number in range(MANY)]
    await asyncio.gather(*(write(create(name, ipPool="many", finalizers=[FINALIZER]), client) for name in names))
    async with asyncio.timeout(LONGEST):
        while await _served(client) < SERVED:  # noqa: ASYNC110 - remote state
            await asyncio.sleep(LOOK_SECONDS)
    taken = _now() - began
    await asyncio.gather(*(write(delete(name), client) for name in names))
    while (await client.list(LOAD_BALANCERS)).items:  # noqa: ASYNC110 - remote state
        await asyncio.sleep(LOOK_SECONDS)
    await asyncio.sleep(REST_SECONDS)
    return taken


async def _late_pool(client: ApiClient, write: Write) -> float:
    """Return the time until a load balancer has its address whose pool comes late."""
    began = _now()
    await write(create("early"), client)
    await asyncio.sleep(POOL_COMES_AFTER)
    await write(pool("lan", FREE_SUBNET), client)
    await _has_address("early", client)
    return _now() - began


async def _freed_address(client: ApiClient, write: Write) -> float:
    """Return the time until a load balancer has its address that waits for one in a full pool."""
    await write(pool("full", span(10, 10, "172.31.12.0/24"), scope=[scope(namespace="elsewhere")]), client)
    await _has_ranges("full", client)
    await write(create("holder", ipPool="full"), client)
    await _has_address("holder", client)
    began = _now()
    await write(create("waiting", ipPool="full"), client)
    await asyncio.sleep(FREE_AFTER)
    await write(delete("holder"), client)
    await _has_address("waiting", client)
    return _now() - began


async def _has_ranges(name: str, client: ApiClient) -> None:
    """Return when Harvester has counted the addresses of a pool. Raises TimeoutError."""
    async with asyncio.timeout(LONGEST):
        while not ((await client.get(POOLS, name)).get("status") or {}).get("total"):  # noqa: ASYNC110 - remote state
            await asyncio.sleep(LOOK_SECONDS)


async def _has_address(name: str, client: ApiClient) -> None:
    """Return when a load balancer has an address. Raises TimeoutError."""
    async with asyncio.timeout(LONGEST):
        while not await _address(name, client):  # noqa: ASYNC110 - remote state
            await asyncio.sleep(LOOK_SECONDS)


async def _address(name: str, client: ApiClient) -> str:
    return _address_in(await client.get(LOAD_BALANCERS, name, namespace=NAMESPACE))


async def _served(client: ApiClient) -> int:
    """Return the number of load balancers with an address."""
    return sum(bool(_address_in(balancer)) for balancer in (await client.list(LOAD_BALANCERS)).items)


def _address_in(balancer: Document) -> str:
    return str(((balancer.get("status") or {}).get("allocatedAddress") or {}).get("ip") or "")


def _now() -> float:
    return asyncio.get_running_loop().time()
