"""Load balancers are created one at a time, in the order of their Services, on a Harvester that needs time for each."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from harvester_ccm.controllers.creation_gate import RESPONSE_SECONDS
from harvester_ccm.kube.errors import KubeError, Unreachable
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.names import LB_CLUSTER, LB_SERVICE_NAME
from harvester_ccm.plan.service.allocation.creation import CREATION_QUEUED, QUEUED_GRACE_SECONDS
from harvester_ccm.plan.service.allocation.state import is_in_progress
from harvester_ccm.plan.service.messages import CONTROLLER_GRACE_SECONDS
from tests.support.builders import service
from tests.support.clock import jumping_time
from tests.support.memory_server import Call, Document, MemoryServer, Where, name_of, refused
from tests.support.program_world import Program, guest_server
from tests.support.waiting import wait_for

EXHAUSTED = "fail to get ip from pool lan, error: no IP addresses available in range set: 10.0.0.1-10.0.0.9"
RESERVING = "fail to get ip from pool lan, error: fail to reserve 10.0.0.1 into lan"
AWAY = 'failed calling webhook "validator": connection refused'


class SlowHarvester(MemoryServer):
    """Allocates addresses one after another, each in the same number of seconds."""

    def __init__(self, seconds: float = 0.4, *, deletes_in: float = 0.0) -> None:
        """``deletes_in`` is the time until a deleted load balancer loses its finalizer."""
        super().__init__()
        self.seconds = seconds
        self.deletes_in = deletes_in
        self.pending: deque[str] = deque()
        self.max_pending = 0
        self.processed: list[str] = []
        """Names of Services, in the order of the responses."""
        self.rejects: Callable[[str], bool] = lambda _service: False
        self.ignores: Callable[[str], bool] = lambda _service: False
        self.message = EXHAUSTED
        """The message of a rejection."""

    def create(self, collection: Where, body: Document) -> Document:
        """Store a new object; a load balancer is processed after those before it."""
        created = super().create(collection, body)
        if name_of(collection) == name_of(LOAD_BALANCERS):
            self.pending.append(created["metadata"]["name"])
            self.max_pending = max(self.max_pending, len(self.pending))
            if len(self.pending) == 1:
                asyncio.get_running_loop().call_later(self.seconds, self._process)
        return created

    def delete(self, collection: Where, key: str, preconditions: Any = None) -> None:
        super().delete(collection, key, preconditions)
        if name_of(collection) == name_of(LOAD_BALANCERS):
            patch = {"metadata": {"finalizers": None}}
            asyncio.get_running_loop().call_later(self.deletes_in, lambda: self.change(collection, key, patch))

    def _process(self) -> None:
        name = self.pending.popleft()
        document = self.of(LOAD_BALANCERS).get(f"vms/{name}")
        if document is not None and not self.ignores(service_of(document)):
            self._respond(f"vms/{name}", service_of(document))
        if self.pending:
            asyncio.get_running_loop().call_later(self.seconds, self._process)

    def _respond(self, key: str, service: str) -> None:
        self.processed.append(service)
        status: Document = {"conditions": [{"type": "Ready", "status": "False", "message": self.message}]}
        if not self.rejects(service):
            number = len(self.processed)
            allocated = {"ip": f"10.0.{number // 250}.{1 + number % 250}", "ipPool": "lan"}
            status = {"allocatedAddress": allocated, "conditions": [{"type": "Ready", "status": "True"}]}
        self.change(LOAD_BALANCERS, key, {"status": status})


def service_of(balancer: Document) -> str:
    return str(balancer["metadata"]["labels"][LB_SERVICE_NAME])


class World(Program):
    """The program on such a Harvester."""

    harvester: SlowHarvester

    def __init__(self, harvester: SlowHarvester | None = None, guest: MemoryServer | None = None) -> None:
        super().__init__(guest or guest_server(), harvester or SlowHarvester(), "demo", "--concurrent-service-syncs=16")

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Run the controller for the time of the block, which begins when its caches are synced."""
        async with super().live():
            await asyncio.sleep(5)
            yield

    async def addresses(self, *names: str, within: float = 300) -> None:
        await wait_for(lambda: all(map(self.address, names[::-1])), within, what=f"addresses of {names}")

    def balancers(self) -> list[str]:
        return [service_of(one) for one in self.harvester.of(LOAD_BALANCERS).values()]


def names(count: int) -> list[str]:
    return [f"web-{number:03}" for number in range(count)]


@jumping_time
async def test_hundred_load_balancers_are_created_one_at_a_time_in_the_order_of_the_services() -> None:
    world = World()
    async with world.live():
        began = asyncio.get_running_loop().time()
        world.create(*names(100))
        await world.addresses(*names(100))
        took = asyncio.get_running_loop().time() - began
        await asyncio.sleep(5)
    assert world.harvester.max_pending == 1
    # As many Services as there are workers are prepared at the same time.
    assert all(abs(names(100).index(name) - place) <= 16 for place, name in enumerate(world.harvester.processed))
    assert took < 100 * 0.45
    assert len(world.guest.writes("/services/")) == 200, "two patches for each Service"
    assert {world.condition(name)["status"] for name in names(100)} == {"True"}
    assert world.reasons() == []
    verbs = [write.partition(" ")[0] for write in world.harvester.writes("loadbalancers")]
    assert (verbs.count("POST"), len(verbs)) == (100, 200)


@jumping_time
@pytest.mark.guarantee("A Service does not block other Services")
async def test_namespaces_take_turns() -> None:
    """Services of another namespace, one of which is deleted while it is queued, wait for one creation each."""
    world = World()
    async with world.live():
        world.create(*names(200))
        await wait_for(lambda: len(world.harvester.processed) == 3, 60, what="the first addresses")
        for name in ("other-0", "other-1", "other-2"):
            world.put(service(name, namespace="elsewhere", uid=f"uid-of-{name}"))
        await wait_for(lambda: "other-0" in world.harvester.processed, 300, what="the address of another namespace")
        world.guest.delete(SERVICES, "elsewhere/other-1")
        await wait_for(lambda: "other-2" in world.harvester.processed, 300, what="the next one")
    ahead = [name for name in world.harvester.processed if not name.startswith("other")]
    assert len(ahead) <= 3 + 5, world.harvester.processed


@jumping_time
async def test_text_of_load_balancers_of_another_cluster_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def observed(load_balancer: LoadBalancer) -> bool:
        read.append(load_balancer.metadata.labels[LB_CLUSTER] if load_balancer.metadata.labels else "")
        return is_in_progress(load_balancer)

    monkeypatch.setattr("harvester_ccm.controllers.creation_gate.is_in_progress", observed)
    world = World()
    foreign = {"metadata": {"name": "foreign", "namespace": "vms", "labels": {LB_CLUSTER: "another"}}}
    async with world.live():
        world.harvester.put(LOAD_BALANCERS, foreign)
        world.create("web-000")
        await world.addresses("web-000")
        world.harvester.change(LOAD_BALANCERS, "vms/foreign", {"status": {"conditions": [{"type": "Ready"}]}})
        await asyncio.sleep(1)
    assert set(read) == {"demo"}


@jumping_time
async def test_only_the_services_whose_creation_is_in_progress_report_a_harvester_that_processes_nothing() -> None:
    world = World(SlowHarvester(QUEUED_GRACE_SECONDS))
    async with world.live():
        world.harvester.ignores = lambda _service: True
        world.create(*names(12))
        await asyncio.sleep(CONTROLLER_GRACE_SECONDS + 1)
        reported = [name for name in names(12) if world.warnings(name)]
        assert reported == world.balancers()[:1]
        await asyncio.sleep(QUEUED_GRACE_SECONDS - CONTROLLER_GRACE_SECONDS)
        last = next(name for name in names(12) if name not in world.balancers())
        assert world.warnings(last) == []
        assert world.service(last)["metadata"]["finalizers"]
        assert world.condition(last)["reason"] == "CreationQueued"
        assert world.condition(last)["message"] == CREATION_QUEUED.message


@jumping_time
@pytest.mark.guarantee("A Service does not block other Services")
async def test_load_balancer_without_response_delays_the_others_for_a_limited_time() -> None:
    world = World()
    async with world.live():
        world.harvester.ignores = lambda service: service == "web-001"
        world.create(*names(5))
        await world.addresses("web-000", "web-002", "web-003", "web-004", within=RESPONSE_SECONDS + 5)
        assert not world.address("web-001")


@pytest.mark.parametrize("delay", [0.002, 1.0], ids=["at once", "after the caches are synced"])
@jumping_time
async def test_creation_of_a_former_process_counts(delay: float) -> None:
    harvester = SlowHarvester(8.0)
    world = World(harvester)
    async with world.live():
        world.create("web-000")
        await wait_for(lambda: harvester.pending, 5, what="the first load balancer")
    guest = world.guest
    guest.delay = lambda call: delay if call.path.endswith("/namespaces/kube-system") else 0.002
    world.create("web-001")
    world = World(harvester, guest)
    async with world.live():
        await world.addresses("web-000", "web-001", within=30)
    assert harvester.max_pending == 1


@jumping_time
async def test_creation_whose_response_is_lost_counts() -> None:
    harvester = SlowHarvester(4.0)
    lost: list[str] = []

    def lose(call: Call) -> KubeError | None:
        if call.verb != "POST" or lost:
            return None
        lost.append(call.path)
        return Unreachable("connection reset by peer")

    world = World(harvester)
    async with world.live():
        harvester.lost = lose
        world.create(*names(3))
        await world.addresses(*names(3), within=60)
    assert harvester.max_pending == 1


@pytest.mark.parametrize(
    ("seconds", "delay"), [(4.0, 4.0), (1000.0, RESPONSE_SECONDS)], ids=["soon", "later than the timeout"]
)
@jumping_time
async def test_creation_waits_for_a_deletion(seconds: float, delay: float) -> None:
    """Harvester releases the address to the same pool."""
    world = World(SlowHarvester(deletes_in=seconds))
    async with world.live():
        world.create("web-000")
        await world.addresses("web-000")
        world.guest.delete(SERVICES, "shop/web-000")
        await asyncio.sleep(0.5)
        world.create("web-001")
        await asyncio.sleep(delay - 1)
        assert world.balancers() == ["web-000"]
        await world.addresses("web-001", within=3)


@jumping_time
@pytest.mark.guarantee("A Service does not block other Services")
async def test_creation_does_not_wait_for_deletions_that_begin_later() -> None:
    """Somebody deletes one Service a second, and each takes longer than that."""
    world = World(SlowHarvester(deletes_in=3.0))
    async with world.live():
        world.create(*names(40))
        await world.addresses(*names(40))
        for name in names(40):
            world.guest.delete(SERVICES, f"shop/{name}")
            await asyncio.sleep(1)
            if name == names(40)[1]:
                world.put(service("other", namespace="elsewhere", uid="other"))
            if name == names(40)[9]:
                assert "other" in world.harvester.processed


@jumping_time
async def test_rejected_load_balancer_or_creation_does_not_delay_the_others() -> None:
    world = World()
    async with world.live():
        world.harvester.rejects = lambda service: service == "web-000"
        denied = refused(500, "InternalError", 'admission webhook "validator" denied the request: no')
        world.harvester.fault = lambda call: denied if call.verb == "POST" and "web-001" in str(call.body) else None
        world.create(*names(5))
        await world.addresses("web-002", "web-003", "web-004", within=5)
        assert world.harvester.processed[0] == "web-000"
        world.harvester.fault = None
        await world.addresses("web-001", within=70)


@jumping_time
async def test_allocation_that_harvester_retries_delays_the_others_for_a_limited_time() -> None:
    world = World()
    async with world.live():
        world.harvester.message = RESERVING
        world.harvester.rejects = lambda service: service in names(4)[:2]
        world.create(*names(4))
        await asyncio.sleep(RESPONSE_SECONDS)
        assert not any(map(world.address, names(4)))
        await world.addresses(*names(4)[2:], within=RESPONSE_SECONDS + 3)
