"""The whole program on a slow Harvester: load balancers are created one at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from harvester_ccm.controllers.service import RESPONSE_SECONDS
from harvester_ccm.errors import CCMError, Unreachable
from harvester_ccm.kube.flowcontrol import MAX_BACKOFF_SECONDS
from harvester_ccm.model.core import NODES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
    EXCLUDE_NODE_LABEL,
    LB_CLUSTER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    WORKLOAD_TYPE,
)
from harvester_ccm.plan.service.decision import CREATION_QUEUED, QUEUED_SECONDS
from tests.program.test_new_harvester import with_machines, with_nodes
from tests.worlds.builders import service
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Call, Document, MemoryServer, Where, name_of, refused
from tests.worlds.program_world import Program, guest_server
from tests.worlds.waiting import wait_for

NO_POOL = "no matched IPPool with requirement &{Network: Project: Namespace:vms Cluster:demo}"


RESERVING = "fail to get ip from pool lan, error: fail to reserve 10.0.0.1 into lan"
EXHAUSTED = "fail to get ip from pool lan, error: no IP addresses available in range set: 10.0.0.1-10.0.0.9"
AWAY = 'failed calling webhook "validator": connection refused'


class PacedHarvester(MemoryServer):
    """Answers for one load balancer after the other, in the order in which they came, in ``seconds`` each."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.unanswered: deque[str] = deque()
        self.most = 0
        """So many were without an answer at once."""
        self.answered: list[str] = []
        """Names of Services, in the order of the answers."""
        self.refuses: Callable[[str], bool] = lambda _service: False
        self.ignores: Callable[[str], bool] = lambda _service: False
        self.message = NO_POOL
        self._given = 0

    def create(self, collection: Where, body: Document) -> Document:
        """Store a new object; a load balancer is answered for when those before it are."""
        created = super().create(collection, body)
        if name_of(collection) == name_of(LOAD_BALANCERS):
            self.look_at(created["metadata"]["name"])
        return created

    def look_at(self, name: str) -> None:
        """Answer for a load balancer when those before it are answered for."""
        self.unanswered.append(name)
        self.most = max(self.most, len(self.unanswered))
        if len(self.unanswered) == 1:
            asyncio.get_running_loop().call_later(self.seconds, self._answer)

    def delete(self, collection: Where, key: str, preconditions: Any = None) -> None:
        """Delete an object; Harvester lets a load balancer go at once."""
        super().delete(collection, key, preconditions)
        if name_of(collection) == name_of(LOAD_BALANCERS):
            self.change(collection, key, {"metadata": {"finalizers": None}})

    def _answer(self) -> None:
        name = self.unanswered.popleft()
        document = self.of(LOAD_BALANCERS).get(f"vms/{name}")
        if document is not None:
            self._answer_for(document)
        if self.unanswered:
            asyncio.get_running_loop().call_later(self.seconds, self._answer)

    def _answer_for(self, document: Document) -> None:
        service = document["metadata"]["labels"][LB_SERVICE_NAME]
        if self.ignores(service):
            return
        self.answered.append(service)
        if self.refuses(service):
            status: Document = {"conditions": [{"type": "Ready", "status": "False", "message": self.message}]}
        else:
            self._given += 1
            ip = f"10.0.{self._given // 250}.{1 + self._given % 250}"
            status = {
                "allocatedAddress": {"ip": ip, "ipPool": "lan"},
                "conditions": [{"type": "Ready", "status": "True"}],
            }
        self.change(LOAD_BALANCERS, f"vms/{document['metadata']['name']}", {"status": status})


class ContendedHarvester(PacedHarvester):
    """Has two workers: while one books an address the other one fails to, says so and tries again."""

    def __init__(self) -> None:
        super().__init__(0.4)
        self.told: list[str] = []
        """Names of load balancers for which an address could not be booked at the first try."""

    def _answer_for(self, document: Document) -> None:
        super()._answer_for(document)
        for name in list(self.unanswered)[:1]:
            condition = {"type": "Ready", "status": "False", "message": RESERVING}
            self.told.append(name)
            self.change(LOAD_BALANCERS, f"vms/{name}", {"status": {"conditions": [condition]}})


class LeavingHarvester(PacedHarvester):
    """Takes its time to let a load balancer go."""

    def __init__(self, leaves_in: float) -> None:
        super().__init__(0.4)
        self.leaves_in = leaves_in

    def delete(self, collection: Where, key: str, preconditions: Any = None) -> None:
        """Delete an object; a load balancer is gone a while later."""
        MemoryServer.delete(self, collection, key, preconditions)
        if name_of(collection) == name_of(LOAD_BALANCERS):
            gone = {"metadata": {"finalizers": None}}
            asyncio.get_running_loop().call_later(self.leaves_in, lambda: self.change(LOAD_BALANCERS, key, gone))


class Scene:
    """A program on such a Harvester."""

    def __init__(
        self, seconds: float, harvester: PacedHarvester | None = None, guest: MemoryServer | None = None
    ) -> None:
        self.harvester = harvester or PacedHarvester(seconds)
        self.program = Program(guest or guest_server(), self.harvester, "demo", "--concurrent-service-syncs=16")
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Scene:
        await self._stack.enter_async_context(self.program.live())
        await asyncio.sleep(5)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def served(self, *names: str, within: float = 300) -> None:
        """Return once all of the Services have an address."""
        last_first = names[::-1]
        await wait_for(lambda: all(map(self.program.address, last_first)), within, what=f"addresses of {names}")

    def balancers(self) -> list[str]:
        """Return the names of the Services that have a load balancer."""
        return [one["metadata"]["labels"][LB_SERVICE_NAME] for one in self.harvester.of(LOAD_BALANCERS).values()]


def names(count: int) -> list[str]:
    return [f"web-{number:03}" for number in range(count)]


@jumping_time
async def test_hundred_load_balancers_are_created_one_at_a_time_in_the_order_of_the_services() -> None:
    async with Scene(0.4) as scene:
        began = asyncio.get_running_loop().time()
        scene.program.create(*names(100))
        await scene.served(*names(100))
        took = asyncio.get_running_loop().time() - began
        await asyncio.sleep(5)
    assert scene.harvester.most == 1
    # As many Services as there are workers are prepared at the same time.
    assert all(abs(names(100).index(name) - place) <= 16 for place, name in enumerate(scene.harvester.answered))
    assert took < 100 * 0.45
    writes = scene.harvester.writes("loadbalancers")
    assert [write.partition(" ")[0] for write in writes].count("POST") == 100
    assert len(writes) == 200


@jumping_time
async def test_a_service_that_waits_for_its_turn_says_so_after_a_while_and_is_prepared() -> None:
    async with Scene(QUEUED_SECONDS) as scene:
        scene.harvester.ignores = lambda _service: True
        scene.program.create(*names(12))
        await asyncio.sleep(QUEUED_SECONDS - 1)
        assert CREATION_QUEUED.message not in [text for name in names(12) for text in scene.program.warnings(name)]
        await asyncio.sleep(2)
        last = next(name for name in names(12) if name not in scene.balancers())
        assert scene.program.warnings(last) == [CREATION_QUEUED.message]
        found = scene.program.service(last)
        assert found["metadata"]["finalizers"]
        assert found["status"]["conditions"][0]["reason"] == "CreationQueued"
        assert last not in scene.balancers()


@jumping_time
async def test_one_that_is_not_answered_for_holds_the_others_up_for_a_bounded_time() -> None:
    async with Scene(0.4) as scene:
        scene.harvester.ignores = lambda service: service == "web-001"
        scene.program.create(*names(5))
        await scene.served("web-000", "web-002", "web-003", "web-004", within=RESPONSE_SECONDS + 5)
        assert not scene.program.address("web-001")


@jumping_time
async def test_one_that_is_not_answered_for_gets_no_more_time_by_nodes_that_come_and_go() -> None:
    harvester = PacedHarvester(0.4)
    harvester.ignores = lambda service: service == "web-000"
    async with Scene(0.4, with_machines(harvester), with_nodes(guest_server())) as scene:
        waits = service("web-000", uid="uid-of-web-000", annotations={WORKLOAD_TYPE: "vm"})
        scene.program.put(waits)
        await wait_for(lambda: harvester.unanswered or scene.balancers(), 5, what="a load balancer without an answer")
        scene.program.create(*names(3)[1:])
        for second in range(int(RESPONSE_SECONDS) + 5):
            excluded = "true" if second % 2 else None
            scene.program.guest.change(NODES, "node-0", {"metadata": {"labels": {EXCLUDE_NODE_LABEL: excluded}}})
            await asyncio.sleep(1)
        assert all(map(scene.program.address, names(3)[1:])), scene.balancers()


@pytest.mark.parametrize("leads_in", [0.0, 1.0], ids=["at once", "when the caches are filled"])
@jumping_time
async def test_one_that_was_asked_for_before_the_program_began_has_its_turn_still(leads_in: float) -> None:
    harvester = PacedHarvester(8.0)
    async with Scene(8.0, harvester) as scene:
        scene.program.create("web-000")
        await wait_for(lambda: harvester.unanswered, 5, what="the first load balancer")
    guest = scene.program.guest
    guest.delay = lambda call: leads_in if call.path.endswith("/namespaces/kube-system") else 0.002
    scene.program.create("web-001")
    async with Scene(8.0, harvester, guest) as scene:
        await scene.served("web-000", "web-001", within=30)
    assert harvester.most == 1


@jumping_time
async def test_one_whose_creation_was_not_answered_has_its_turn_still() -> None:
    harvester = PacedHarvester(4.0)
    lost: list[str] = []

    def answer(call: Call) -> CCMError | None:
        if call.verb != "POST" or "loadbalancers" not in call.path or lost:
            return None
        lost.append(call.path)
        harvester.create(LOAD_BALANCERS, dict(call.body))
        return Unreachable("connection reset by peer")

    async with Scene(4.0, harvester) as scene:
        harvester.fault = answer
        scene.program.create(*names(3))
        await scene.served(*names(3), within=60)
    assert harvester.most == 1


@pytest.mark.parametrize(("leaves_in", "waited"), [(4.0, 4.0), (1000.0, RESPONSE_SECONDS)], ids=["soon", "not soon"])
def test_one_that_goes_has_its_turn_before_the_next_one_is_asked_for(leaves_in: float, waited: float) -> None:
    """Harvester gives its address back to the same pool."""

    @jumping_time
    async def run() -> None:
        async with Scene(0.4, LeavingHarvester(leaves_in)) as scene:
            scene.program.create("web-000")
            await scene.served("web-000")
            scene.program.guest.delete("v1/services", "shop/web-000")
            await asyncio.sleep(0.5)
            scene.program.create("web-001")
            await asyncio.sleep(waited - 1)
            assert scene.balancers() == ["web-000"]
            await scene.served("web-001", within=3)

    run()


@jumping_time
async def test_one_that_is_refused_or_cannot_be_created_holds_up_nobody() -> None:
    async with Scene(0.4) as scene:
        scene.harvester.refuses = lambda service: service == "web-000"
        bad = refused(500, "InternalError", 'admission webhook "validator" denied the request: no')
        scene.harvester.fault = lambda call: bad if call.verb == "POST" and "web-001" in str(call.body) else None
        scene.program.create(*names(5))
        await scene.served("web-002", "web-003", "web-004", within=5)
        assert scene.harvester.answered[0] == "web-000"
        scene.harvester.fault = None
        await scene.served("web-001", within=70)


@jumping_time
async def test_one_that_harvester_tries_again_by_itself_keeps_its_turn() -> None:
    harvester = ContendedHarvester()
    async with Scene(0.4, harvester) as scene:
        labels = {LB_CLUSTER: "another", LB_SERVICE_NAMESPACE: "shop", LB_SERVICE_NAME: "web-000"}
        metadata = {"name": "another-web-000", "namespace": "vms", "labels": labels}
        harvester.create(LOAD_BALANCERS, {"metadata": metadata, "spec": {"ipam": "pool", "ipPool": "lan"}})
        scene.program.create(*names(20))
        await scene.served(*names(20))
    # The stranger's was in the way of the first. Had that been taken for an answer, each next one would meet another.
    assert len(harvester.told) == 1
    assert harvester.most == 2
    assert sorted(harvester.answered[1:]) == names(20)


@jumping_time
async def test_one_that_harvester_tries_again_for_ever_holds_the_others_up_for_a_moment() -> None:
    async with Scene(0.4) as scene:
        scene.harvester.message = RESERVING
        scene.harvester.refuses = lambda service: service in names(4)[:2]
        scene.program.create(*names(4))
        await scene.served(*names(4)[2:], within=2 * RESPONSE_SECONDS + 3)


@pytest.mark.parametrize("going", ["delete", "type"])
def test_a_service_that_goes_while_it_waits_asks_for_nothing(going: str) -> None:
    @jumping_time
    async def scene() -> None:
        async with Scene(0.4) as scene:
            scene.program.create(*names(20))
            await wait_for(lambda: len(scene.balancers()) == 3, 60)
            waiting = [name for name in names(20) if name not in scene.balancers()][:5]
            for name in waiting:
                if going == "delete":
                    scene.program.guest.delete("v1/services", f"shop/{name}")
                else:
                    scene.program.guest.change("v1/services", f"shop/{name}", {"spec": {"type": "ClusterIP"}})
            rest = [name for name in names(20) if name not in waiting]
            await scene.served(*rest, within=20)
            assert sorted(scene.balancers()) == rest
            assert sorted(scene.harvester.answered) == rest

    scene()


@jumping_time
async def test_services_that_wait_for_a_free_address_cause_no_writes() -> None:
    async with Scene(0.4) as scene:
        harvester = scene.harvester
        harvester.refuses, harvester.message = lambda _service: True, EXHAUSTED
        scene.program.create(*names(5))
        await asyncio.sleep(60)
        before = len(harvester.writes())
        await asyncio.sleep(600)
        assert len(harvester.writes()) == before


@jumping_time
async def test_failed_creations_are_retried_within_30_s_after_an_outage_one_at_a_time() -> None:
    async with Scene(0.4) as scene:
        away = refused(500, "InternalError", AWAY)
        scene.harvester.fault = lambda call: away if call.verb == "POST" and "loadbalancers" in call.path else None
        for name in names(10):
            # Each has a rhythm of its own.
            scene.program.create(name)
            await asyncio.sleep(13)
        await asyncio.sleep(200)
        failed = len(scene.harvester.writes("loadbalancers"))
        scene.harvester.fault = None
        await scene.served(*names(10), within=MAX_BACKOFF_SECONDS + 6)
        assert scene.harvester.most == 1
        assert len(scene.harvester.writes("loadbalancers")) - failed == 20
