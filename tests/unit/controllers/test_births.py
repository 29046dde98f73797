"""Who made a load balancer, of those that appear while this process leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from harvester_ccm.controllers.births import LATE_CREATION, Births
from harvester_ccm.controllers.service import ServiceCaches
from harvester_ccm.controllers.vms import NODE_INDEXES, VM_INDEXES, VMCache
from harvester_ccm.errors import Unreachable
from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.core import CONFIG_MAPS, NODES, SERVICES
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.model.meta import Resource
from harvester_ccm.plan.service.situation import LOAD_BALANCER_INDEXES
from tests.worlds.builders import CLUSTER, load_balancer
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import MemoryClient, MemoryServer
from tests.worlds.node_objects import instance, vm


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


@asynccontextmanager
async def watched(
    witness: Resource[Any] = VIRTUAL_MACHINES,
) -> AsyncIterator[tuple[MemoryServer, MemoryServer, Births, Informer[Any], Informer[Any]]]:
    """Yield a Harvester, a backup of it with a load balancer, and who follows ``witness`` and the load balancers.

    The versions of the backup have overtaken those that are known, and only one object of ``witness`` contradicts it.
    """
    harvester, backup = MemoryServer(), MemoryServer()
    client = MemoryClient(harvester, cluster="harvester", namespace=CLUSTER.namespace)
    guest = MemoryClient(MemoryServer(), cluster="guest")
    nodes = Informer(guest, NODES, indexes=NODE_INDEXES)
    machines, instances = Informer(client, VIRTUAL_MACHINES, indexes=VM_INDEXES), Informer(client, INSTANCES)
    load_balancers = Informer(client, LOAD_BALANCERS, indexes=LOAD_BALANCER_INDEXES)
    vms = VMCache(nodes, machines, instances, CLUSTER)
    births = ServiceCaches(Informer(guest, SERVICES), load_balancers, vms, Informer(guest, CONFIG_MAPS)).births
    births.lead(lambda _load_balancer: True)
    for each in (harvester, backup):
        each.put(VIRTUAL_MACHINES, vm().document())
        each.put(INSTANCES, instance().document())
    harvester.change(witness, "prod/w1", {"metadata": {"labels": {"written": "after-the-backup"}}})
    backup.version = 500
    backup.put(LOAD_BALANCERS, load_balancer("lb", uid="from-before").document())
    told_by: Informer[Any] = machines if witness is VIRTUAL_MACHINES else instances
    following = [asyncio.create_task(one.run()) for one in (told_by, load_balancers)]
    try:
        await asyncio.sleep(LATE_CREATION + 1)
        yield harvester, backup, births, told_by, load_balancers
    finally:
        for task in following:
            task.cancel()


@pytest.mark.parametrize("witness", [VIRTUAL_MACHINES, INSTANCES], ids=["VMs", "their instances"])
@jumping_time
async def test_a_backup_that_only_the_virtual_machines_tell_of_counts(witness: Resource[Any]) -> None:
    async with watched(witness) as (harvester, backup, births, machines, load_balancers):
        harvester.restore(backup)
        machines.list_again()
        await asyncio.sleep(1)
        load_balancers.list_again()
        await asyncio.sleep(1)
        assert len(load_balancers) == 1
        assert births.strange == set()
        await asyncio.sleep(LATE_CREATION)
        harvester.put(LOAD_BALANCERS, load_balancer("other", uid="from-after").document())
        await asyncio.sleep(1)
        assert births.strange == {"from-after"}


@jumping_time
async def test_the_load_balancers_of_a_backup_may_be_seen_long_after_it_was_noticed() -> None:
    async with watched() as (harvester, backup, births, machines, load_balancers):
        harvester.fault = lambda call: Unreachable("connection refused") if "loadbalancers" in call.path else None
        harvester.restore(backup)
        for one in (load_balancers, machines):
            one.list_again()
        await asyncio.sleep(2 * LATE_CREATION)
        harvester.fault = None
        await asyncio.sleep(LATE_CREATION)
        assert len(load_balancers) == 1
        assert births.strange == set()
