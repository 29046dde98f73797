"""Load balancers of type vm: generated objects, real probes, and their deletion."""

from contextlib import AsyncExitStack
from typing import Any

import pytest

from devenv.harvester import HarvesterEmulator
from devenv.harvester.endpoints import DUMMY_ADDRESS
from devenv.harvester.machines import Machine, Machines
from devenv.harvester.probes import Check, Tally
from devenv.harvester.records import LOAD_BALANCERS
from devenv.watch import Document
from harvester_ccm.kube.client import ApiClient
from tests.devenv.emulated import backend, vm_balancer, watching
from tests.support.waiting import wait_for

LAN: Document = {"subnet": "127.77.0.0/24", "rangeStart": "127.77.0.10", "rangeEnd": "127.77.0.50"}
VIP = "127.77.0.10"
SELECTOR = {"harvesterhci.io/vmName": ["n1", "n2"]}
CHECK = {"port": 30080, "successThreshold": 1, "failureThreshold": 2, "periodSeconds": 1, "timeoutSeconds": 1}


@pytest.mark.parametrize(
    ("results", "verdicts"),
    [
        ("++++", [None, True, None, True]),
        ("---", [None, None, False]),
        ("+-+-", [None, None, None, None]),
        ("--+---", [None, None, None, None, None, False]),
        ("------", [None, None, False, None, None, False]),
    ],
)
def test_verdicts_need_a_row_of_results_and_are_repeated(results: str, verdicts: list[bool | None]) -> None:
    tally = Tally(success=2, failure=3)
    assert [tally.count(good=result == "+") for result in results] == verdicts


def test_check_without_thresholds_uses_the_controllers_own() -> None:
    assert Check.of({"healthCheck": {"port": 1}}) == Check(1, success=1, failure=3, period=5, timeout=3)
    assert Check.of({"healthCheck": {"port": 0}}) is None
    assert Check.of({}) is None


class Site:
    """Two VMs with a server each and an emulator."""

    def __init__(self, emulator: HarvesterEmulator, client: ApiClient, namespace: str) -> None:
        self.emulator = emulator
        self.client = client
        self.namespace = namespace
        self.machines = Machines(client)
        self.nodes = {
            "n1": Machine("n1", namespace),
            "n2": Machine("n2", namespace),
        }

    @property
    def key(self) -> str:
        return f"{self.namespace}/web"

    async def prepare(self) -> None:
        await self.emulator.create_pool("lan", LAN)
        await self.machines.create(self.nodes["n1"], "192.0.2.11")
        await self.machines.create(self.nodes["n2"], "192.0.2.12")

    async def create(self, **spec: Any) -> None:
        document = vm_balancer("web", self.namespace, **{"backendServerSelector": SELECTOR, **spec})
        await self.client.create(LOAD_BALANCERS, document, namespace=self.namespace)

    def endpoints(self) -> dict[str, bool]:
        entry = self.emulator.slices.get(self.key) or {}
        return {e["addresses"][0]: e["conditions"]["ready"] for e in entry.get("endpoints") or ()}

    def ready(self) -> set[str]:
        return {address for address, ready in self.endpoints().items() if ready}


@pytest.fixture
async def site(emulator: HarvesterEmulator, harvester_admin: ApiClient, vm_namespace: str) -> Site:
    made = Site(emulator, harvester_admin, vm_namespace)
    await made.prepare()
    return made


@pytest.mark.apiserver
async def test_states_of_a_checked_load_balancer(site: Site) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(backend("127.0.2.11", 30080))
        second = await stack.enter_async_context(AsyncExitStack())
        await second.enter_async_context(backend("127.0.2.12", 30080))
        journal = await stack.enter_async_context(watching(site.client, "web", site.namespace))
        await site.create(healthCheck=CHECK)
        await wait_for(lambda: journal.message() == "service is waiting for external IP")
        await wait_for(lambda: DUMMY_ADDRESS in site.endpoints())
        assert site.endpoints() == {"192.0.2.11": False, "192.0.2.12": False, DUMMY_ADDRESS: True}
        text = "running backend servers are not probed as healthy total:2, healthy:0"
        await wait_for(lambda: journal.message() == text)
        assert sorted(journal.status()["backendServers"]) == ["192.0.2.11", "192.0.2.12"]
        assert journal.status()["address"] == journal.status()["allocatedAddress"]["ip"] == VIP
        await wait_for(lambda: site.ready() == {"192.0.2.11", "192.0.2.12"}, what="both healthy")
        await wait_for(lambda: journal.message() == "")

        await second.aclose()
        await wait_for(lambda: site.ready() == {"192.0.2.11"}, what="the stopped one to be taken out")
        assert len(journal.status()["backendServers"]) == 2, "the status does not contain the health of backends"
        assert journal.message() == ""

        await stack.enter_async_context(backend("127.0.2.12", 30080))
        await wait_for(lambda: len(site.ready()) == 2, what="the restarted one to return")
