"""The addresses of load balancers as they come and go: read once for all who ask, and anew after a change."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address

from harvester_ccm.controllers.virtual_addresses import LINGER_SECONDS, VirtualAddresses
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from tests.worlds.background import running
from tests.worlds.builders import service
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import MemoryClient, MemoryServer

ADDRESS = ip_address("10.0.0.1")


@jumping_time
async def test_addresses_are_collected_once_until_one_changes() -> None:
    guest, harvester = MemoryServer(), MemoryServer()
    services = Informer(MemoryClient(guest, cluster="guest"), SERVICES)
    balancers = Informer(MemoryClient(harvester, cluster="harvester"), LOAD_BALANCERS)
    found = VirtualAddresses(services, balancers)
    async with running(services.run()), running(balancers.run()):
        await services.wait_synced()
        await balancers.wait_synced()
        assert found.complete
        guest.put(SERVICES, service(ours=True, annotations={KUBE_VIP_ADDRESSES: str(ADDRESS)}))
        await asyncio.sleep(1)
        known = found.current()
        assert ADDRESS in known.addresses
        guest.put(SERVICES, service(name="other"))
        await asyncio.sleep(1)
        assert found.current().addresses is known.addresses
        guest.remove(SERVICES, "shop/web")
        await asyncio.sleep(1)
        assert found.current().addresses[ADDRESS].endswith("until lately")
        await asyncio.sleep(LINGER_SECONDS)
        assert ADDRESS not in found.current().addresses
        assert ADDRESS in known.addresses
