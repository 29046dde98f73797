"""Virtual IPs that a Service no longer has."""

import asyncio

import pytest

from harvester_ccm.controllers.caches import Caches
from harvester_ccm.controllers.virtual_addresses import LINGER_SECONDS, VirtualAddresses
from tests.support.builders import ADDRESS, CLUSTER, UID, served
from tests.support.clock import jumping_time
from tests.support.offline import offline_client


@pytest.mark.parametrize(
    ("spec", "owner"),
    [({}, "Service shop/web, which had it in the last 120 s"), ({"loadBalancerClass": "example.com/other"}, "")],
    ids=["of this controller", "of another one"],
)
@jumping_time
async def test_former_address_of_a_service_counts_for_some_time(spec: dict[str, str], owner: str) -> None:
    caches = Caches(offline_client(), offline_client("harvester"), CLUSTER)
    addresses = VirtualAddresses(caches.services, caches.load_balancers, CLUSTER)
    caches.services.observe(served(spec=spec))
    caches.services.remove("shop/web", UID)
    assert addresses.owner(ADDRESS) == owner
    await asyncio.sleep(LINGER_SECONDS)
    assert addresses.owner(ADDRESS) == ""
