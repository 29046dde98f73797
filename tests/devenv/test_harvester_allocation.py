"""Load balancers of type cluster on a real API server: sequences of writes, waiting, changes and leaks."""

import pytest

from devenv.harvester import HarvesterEmulator
from devenv.harvester.loadbalancers import FINALIZER
from devenv.harvester.queue import Pace
from devenv.harvester.records import LOAD_BALANCERS, POOLS
from devenv.watch import Document
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import NotFound
from tests.devenv.emulated import balancer, watching
from tests.support.waiting import wait_for

pytestmark = pytest.mark.apiserver

LAN: Document = {"subnet": "127.77.0.0/24", "rangeStart": "127.77.0.10", "rangeEnd": "127.77.0.50"}
TWO: Document = {"subnet": "127.77.0.0/24", "rangeStart": "127.77.0.10", "rangeEnd": "127.77.0.11"}
ALLOCATED = {"ip": "127.77.0.10", "ipPool": "lan", "mask": "255.255.255.0", "gateway": "127.77.0.1"}


def books(emulator: HarvesterEmulator, name: str = "lan") -> dict[str, str]:
    pool = emulator.pools.get(name)
    assert pool is not None
    allocated: dict[str, str] = pool["status"].get("allocated") or {}
    return allocated


async def test_golden_sequence_of_a_pool(
    emulator: HarvesterEmulator, harvester_admin: ApiClient, vm_namespace: str
) -> None:
    await emulator.create_pool("lan", LAN)
    async with watching(harvester_admin, "web", vm_namespace) as journal:
        await harvester_admin.create(LOAD_BALANCERS, balancer("web", vm_namespace), namespace=vm_namespace)
        await wait_for(lambda: len(journal.entries) == 3, what="address and finalizer")
        assert journal.steps() == ["ADDED", "status", "finalizers"]
        first, second, third = (entry for entry in journal.entries if entry is not None)
        assert "status" not in first
        assert first["metadata"]["annotations"] == {
            "loadbalancer.harvesterhci.io/cluster": "demo",
            "loadbalancer.harvesterhci.io/namespace": vm_namespace,
            "loadbalancer.harvesterhci.io/project": "",
            "loadbalancer.harvesterhci.io/network": "",
        }
        assert second["status"]["allocatedAddress"] == ALLOCATED
        condition = second["status"]["conditions"][0]
        assert condition.keys() == {"type", "status", "lastUpdateTime"}
        assert (condition["type"], condition["status"]) == ("Ready", "True")
        assert third["metadata"]["finalizers"] == [FINALIZER]
        pool = emulator.pools.get("lan")
        assert pool is not None
        versions = [int(o["metadata"]["resourceVersion"]) for o in (first, pool, second)]
        assert versions == sorted(versions), "the pool is booked between creation and status"

        await harvester_admin.delete(LOAD_BALANCERS, "web", namespace=vm_namespace)
        await wait_for(lambda: journal.last is None, what="deletion")
        assert journal.steps()[3:] == ["deletion", "DELETED"]
    assert (await emulator.counts(vm_namespace)).booked == 0
    assert (await harvester_admin.get(POOLS, "lan"))["status"]["allocatedHistory"] == {
        "127.77.0.10": f"{vm_namespace}/web"
    }


async def test_without_a_pool_it_retries_every_second(
    emulator: HarvesterEmulator, harvester_admin: ApiClient, vm_namespace: str
) -> None:
    async with watching(harvester_admin, "web", vm_namespace) as journal:
        await harvester_admin.create(LOAD_BALANCERS, balancer("web", vm_namespace), namespace=vm_namespace)
        await wait_for(lambda: len(journal.entries) == 3, what="condition and finalizer")
        assert journal.steps() == ["ADDED", "status", "finalizers"]
        assert journal.status()["allocatedAddress"] == {}
        requirement = f"&{{Network: Project: Namespace:{vm_namespace} Cluster:demo}}"
        assert journal.message() == f"no matched IPPool with requirement {requirement}"
        await emulator.create_pool("lan", LAN)
        await wait_for(lambda: journal.message() == "", 2.0, what="an address")
        assert journal.steps() == ["ADDED", "status", "finalizers", "status"]


async def test_exhausted_pool_backs_off_and_a_write_retries(
    emulator: HarvesterEmulator, harvester_admin: ApiClient, vm_namespace: str
) -> None:
    await emulator.create_pool("lan", TWO)
    for name in ("a", "b"):
        await harvester_admin.create(LOAD_BALANCERS, balancer(name, vm_namespace), namespace=vm_namespace)
    await wait_for(lambda: len(books(emulator)) == 2)
    async with watching(harvester_admin, "web", vm_namespace) as journal:
        await harvester_admin.create(LOAD_BALANCERS, balancer("web", vm_namespace), namespace=vm_namespace)
        text = "fail to get ip from pool lan, error: no IP addresses available in range set: 127.77.0.10-127.77.0.11"
        await wait_for(lambda: journal.message() == text, what="the message of an exhausted pool")
        await wait_for(lambda: len(journal.entries) == 3)
        # From the tenth failure on the pause is longer than this test.
        await wait_for(lambda: emulator.failures(f"{vm_namespace}/web") >= 10, what="ten tries")
        (freed,) = (address for address, owner in books(emulator).items() if owner == f"{vm_namespace}/a")
        await harvester_admin.delete(LOAD_BALANCERS, "a", namespace=vm_namespace)
        await wait_for(lambda: len(books(emulator)) == 1)
        assert journal.message() == text
        change = {"metadata": {"annotations": {"touched": "yes"}}}
        await harvester_admin.merge_patch(LOAD_BALANCERS, "web", change, namespace=vm_namespace)
        await wait_for(lambda: journal.message() == "", 1.0, what="an address after the write")
        assert journal.status()["allocatedAddress"]["ip"] == freed


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


async def test_change_of_pool_moves_the_address(
    emulator: HarvesterEmulator, harvester_admin: ApiClient, vm_namespace: str
) -> None:
    await emulator.create_pool("lan", LAN)
    await emulator.create_pool("wan", "127.77.1.0/24", selector={"scope": []})
    async with watching(harvester_admin, "web", vm_namespace) as journal:
        document = balancer("web", vm_namespace, ipPool="lan")
        await harvester_admin.create(LOAD_BALANCERS, document, namespace=vm_namespace)
        await wait_for(lambda: len(journal.entries) == 3)
        change = {"spec": {"ipPool": "wan"}}
        await harvester_admin.merge_patch(LOAD_BALANCERS, "web", change, namespace=vm_namespace)
        await wait_for(lambda: journal.status().get("allocatedAddress", {}).get("ipPool") == "wan")
        blank = [e for e in journal.entries[3:] if e is not None and e["status"]["allocatedAddress"] == {}]
        assert [c["status"] for e in blank for c in e["status"]["conditions"]] == ["True"]
        assert not books(emulator, "lan")
        assert books(emulator, "wan") == {"127.77.1.2": f"{vm_namespace}/web"}
