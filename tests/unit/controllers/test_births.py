"""Who made a load balancer, of those that appear while this process leads."""

from __future__ import annotations

import asyncio

from harvester_ccm.controllers.births import LATE_CREATION, Births
from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.harvester import LOAD_BALANCERS
from tests.worlds.builders import CLUSTER, load_balancer
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import MemoryClient, MemoryServer


@jumping_time
async def test_what_comes_back_is_known_and_only_so_much_is_remembered() -> None:
    harvester = MemoryServer()
    informer = Informer(MemoryClient(harvester, cluster="harvester", namespace=CLUSTER.namespace), LOAD_BALANCERS)
    births = Births(informer, memory=2)
    births.lead(lambda _load_balancer: True)
    documents = {number: load_balancer(f"lb-{number}", uid=f"uid-{number}").document() for number in range(4)}
    following = asyncio.create_task(informer.run())
    try:
        await asyncio.sleep(LATE_CREATION + 1)
        for number in range(3):
            births.making(f"lb-{number}")
            harvester.put(LOAD_BALANCERS, documents[number])
            await asyncio.sleep(1)
            harvester.remove(LOAD_BALANCERS, f"vms/lb-{number}")
            await asyncio.sleep(1)
        for document in documents.values():
            harvester.put(LOAD_BALANCERS, document)
        await asyncio.sleep(1)
        assert births.strange == {"uid-0", "uid-3"}, "one made by another hand, and one that is forgotten"
        harvester.remove(LOAD_BALANCERS, "vms/lb-3")
        await asyncio.sleep(1)
        assert births.strange == {"uid-0"}
    finally:
        following.cancel()
