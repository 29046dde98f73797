"""Load balancers that are deleted so early that their address stays allocated."""

import pytest

from devenv.harvester import HarvesterEmulator
from devenv.harvester.loadbalancers import FINALIZER
from devenv.harvester.queue import Pace
from devenv.harvester.records import LOAD_BALANCERS
from devenv.watch import Document
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import NotFound
from tests.devenv.emulated import balancer, watching
from tests.support.waiting import wait_for

pytestmark = pytest.mark.apiserver

LAN: Document = {"subnet": "127.77.0.0/24", "rangeStart": "127.77.0.10", "rangeEnd": "127.77.0.50"}


def books(emulator: HarvesterEmulator, name: str = "lan") -> dict[str, str]:
    pool = emulator.pools.get(name)
    assert pool is not None
    allocated: dict[str, str] = pool["status"].get("allocated") or {}
    return allocated


async def test_deletion_before_the_finalizer_leaks_the_address(harvester_admin: ApiClient, vm_namespace: str) -> None:
    # Two writes per second: the pool is written immediately, the status half a second later.
    async with HarvesterEmulator(harvester_admin, pace=Pace(2.0, 1, lags=False), webhook=False) as emulator:
        await emulator.create_pool("lan", LAN)
        await harvester_admin.create(LOAD_BALANCERS, balancer("web", vm_namespace), namespace=vm_namespace)
        await wait_for(lambda: books(emulator), what="the allocation")
        await harvester_admin.delete(LOAD_BALANCERS, "web", namespace=vm_namespace)
        with pytest.raises(NotFound):
            await harvester_admin.get(LOAD_BALANCERS, "web", namespace=vm_namespace)
        await wait_for(lambda: emulator.balancers.get(f"{vm_namespace}/web") is None)
        counts = await emulator.counts(vm_namespace)
        assert (counts.balancers, counts.booked) == (0, 1)

        # A new load balancer of the same name releases it.
        async with watching(harvester_admin, "web", vm_namespace) as journal:
            await harvester_admin.create(LOAD_BALANCERS, balancer("web", vm_namespace), namespace=vm_namespace)
            await wait_for(lambda: journal.message() == "", what="an address")
            messages = [_message(entry) for entry in journal.entries]
            assert (
                f"fail to get ip from pool lan, error: 127.77.0.10 has been allocated to {vm_namespace}/web, "
                "duplicate allocation is not allowed"
            ) in messages
            assert journal.status()["allocatedAddress"]["ip"] == "127.77.0.10"


def _message(entry: Document | None) -> str:
    conditions = ((entry or {}).get("status") or {}).get("conditions") or [{}]
    return conditions[0].get("message") or ""


async def test_finalizer_of_the_client_does_not_prevent_the_leak(harvester_admin: ApiClient, vm_namespace: str) -> None:
    async with HarvesterEmulator(harvester_admin, pace=Pace(2.0, 1, lags=False), webhook=False) as emulator:
        await emulator.create_pool("lan", LAN)
        document = balancer("web", vm_namespace)
        document["metadata"]["finalizers"] = [FINALIZER]
        await harvester_admin.create(LOAD_BALANCERS, document, namespace=vm_namespace)
        await wait_for(lambda: books(emulator), what="the allocation")
        await harvester_admin.delete(LOAD_BALANCERS, "web", namespace=vm_namespace)
        await wait_for(lambda: emulator.balancers.get(f"{vm_namespace}/web") is None, what="deletion")
        assert (await emulator.counts(vm_namespace)).booked == 1
