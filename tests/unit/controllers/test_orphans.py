"""The orphan collector on API servers in memory, with simulated time."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from harvester_ccm.config import OrphanPolicy, ServiceSettings
from harvester_ccm.controllers.orphans import DELETION_PAUSE, RETRY_SECONDS, OrphanCollector
from harvester_ccm.errors import CCMError, Unreachable
from harvester_ccm.kube.identity import GuestIdentity
from harvester_ccm.kube.informer import Informer, Selection
from harvester_ccm.model.core import NAMESPACES, SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
    LB_CLUSTER,
    LB_CONTROLLER_FINALIZER,
    LB_OWNER,
    LB_SERVICE_UID,
    LB_SERVICE_UUID,
)
from harvester_ccm.plan.service.orphans import ORPHAN_GRACE
from harvester_ccm.plan.service.snapshot import LOAD_BALANCER_INDEXES, SERVICE_INDEXES
from tests.worlds.builders import ADDRESS, CLUSTER, LB_NAME, UID, allocated
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Call, Document, MemoryClient, MemoryServer, page, refused

SERVICE: Final = "v1/services"
BALANCER: Final = "loadbalancer.harvesterhci.io/v1beta1/loadbalancers"
PERIOD: Final = 600.0
KEY: Final = f"{CLUSTER.namespace}/{LB_NAME}"
LATER: Final = "uid-of-a-later-one"
"""Of a Service that has taken the load balancer over: nobody sees the one go that it was made for."""


def service_document(name: str = "web", uid: str = UID, *, kind: str = "LoadBalancer", address: str = "") -> Document:
    """Return a Service."""
    status = {"loadBalancer": {"ingress": [{"ip": address}]}} if address else {}
    metadata = {"name": name, "namespace": "shop", "uid": uid}
    return {"metadata": metadata, "spec": {"type": kind}, "status": status}


@pytest.fixture(autouse=True)
def only_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what is stored here without a word to the watchers unseen, however long it takes."""
    monkeypatch.setattr("harvester_ccm.kube.informer.RELIST_SECONDS", (1e9, 1e9))


class OrphanWorld:
    """Two servers in memory and the collector on them."""

    def __init__(self, policy: OrphanPolicy = OrphanPolicy.DELETE) -> None:
        self.guest, self.harvester = MemoryServer(), MemoryServer(prompt=[LB_CONTROLLER_FINALIZER])
        guest = MemoryClient(self.guest, cluster="guest")
        harvester = MemoryClient(self.harvester, cluster="harvester", namespace=CLUSTER.namespace)
        services = Informer(guest, SERVICES, indexes=SERVICE_INDEXES)
        balancers = Informer(harvester, LOAD_BALANCERS, Selection(CLUSTER.namespace), indexes=LOAD_BALANCER_INDEXES)
        settings = ServiceSettings(concurrent_syncs=1, orphan_lbs=policy, orphan_period=PERIOD, class_only=False)
        identity = GuestIdentity(guest)
        identity.uid = CLUSTER.uid
        self.guest.put(NAMESPACES, {"metadata": {"name": "kube-system", "uid": CLUSTER.uid}})
        self.collector = OrphanCollector(identity, harvester, services, balancers, cluster=CLUSTER, settings=settings)
        self._parts = (services, balancers, self.collector)

    def put_balancer(self, **more: Any) -> None:
        """Store the load balancer of Service shop/web."""
        document: Document = allocated(**more).document()
        self.harvester.put(BALANCER, {"apiVersion": LOAD_BALANCERS.api_version, **document})

    def remove_service(self) -> None:
        """Let shop/web go without anybody having waited for its finalizer."""
        self.guest.remove(SERVICE, "shop/web")

    @property
    def left(self) -> set[str]:
        """The load balancers that exist."""
        return set(self.harvester.objects.get(BALANCER, {}))

    @property
    def deletions(self) -> list[float]:
        """When deletions were asked for."""
        return [call.at for call in self.harvester.calls if call.verb == "DELETE"]

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Run everything for the block."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part.run()) for part in self._parts]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()


@jumping_time
async def test_deleted_after_the_grace_and_not_before() -> None:
    world = OrphanWorld()
    world.put_balancer()
    with capture_logs() as logs:
        async with world.live():
            await asyncio.sleep(ORPHAN_GRACE - 1)
            assert world.left == {KEY}
            await asyncio.sleep(2)
            assert world.left == set()
    assert world.collector.deleted == 1
    (said,) = [entry for entry in logs if entry["event"] == "orphaned load balancer found"]
    assert (said["log_level"], said["lb"], said["service"]) == ("warning", KEY, "shop/web")


@jumping_time
async def test_service_that_comes_back_in_time_keeps_it_and_starts_the_grace_anew() -> None:
    world = OrphanWorld()
    world.put_balancer()
    async with world.live():
        await asyncio.sleep(ORPHAN_GRACE - 1)
        world.guest.put(SERVICE, service_document(uid=LATER))
        await asyncio.sleep(2 * PERIOD)
        assert world.left == {KEY}
        world.guest.remove(SERVICE, "shop/web")
        gone_at = asyncio.get_running_loop().time()
        await asyncio.sleep(ORPHAN_GRACE + 1)
    assert world.left == set()
    assert world.deletions[0] - gone_at >= ORPHAN_GRACE


@jumping_time
async def test_service_that_the_cache_does_not_know_is_looked_for() -> None:
    world = OrphanWorld()
    world.put_balancer()
    async with world.live():
        await asyncio.sleep(1)
        # Stored without a word to the watchers.
        world.guest.objects[SERVICE] = {"shop/web": service_document(uid=LATER)}
        await asyncio.sleep(2 * PERIOD)
        assert world.left == {KEY}
        assert world.deletions == []
        world.guest.objects[SERVICE] = {}
        await asyncio.sleep(PERIOD + 1)
    assert world.left == set()


def internal(address: str = "") -> Document:
    """Return shop/web after somebody made it internal and took our finalizer off."""
    return {**service_document(uid=LATER, address=address), "spec": {"type": "ClusterIP"}}


@jumping_time
async def test_service_that_has_no_load_balancer_any_more_does_not_keep_one() -> None:
    world = OrphanWorld()
    world.put_balancer()
    world.guest.put(SERVICE, internal())
    async with world.live():
        await asyncio.sleep(ORPHAN_GRACE + 1)
    assert world.left == set()


@jumping_time
async def test_service_that_got_its_load_balancer_back_unseen_keeps_it() -> None:
    world = OrphanWorld()
    world.put_balancer()
    world.guest.put(SERVICE, internal())
    async with world.live():
        await asyncio.sleep(1)
        # Stored without a word to the watchers.
        for document in (service_document(uid=LATER), internal(ADDRESS)):
            world.guest.objects[SERVICE] = {"shop/web": document}
            await asyncio.sleep(2 * PERIOD)
            assert world.deletions == []
        world.guest.objects[SERVICE] = {"shop/web": internal()}
        await asyncio.sleep(PERIOD + 1)
    assert world.left == set()


ANSWERS: dict[str, Callable[[], CCMError]] = {
    "401": lambda: refused(401, "Unauthorized", "Unauthorized"),
    "403": lambda: refused(403, "Forbidden", "services is forbidden"),
    "a page": page,
    "429": lambda: refused(429, "TooManyRequests", "busy"),
    "500": lambda: refused(500, "InternalError", "broken"),
    "unreachable": lambda: Unreachable("no answer"),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
def test_no_answer_but_not_found_means_gone(answer: Callable[[], CCMError]) -> None:
    @jumping_time
    async def run() -> None:
        world = OrphanWorld()
        world.put_balancer()

        def fault(call: Call) -> CCMError | None:
            return answer() if call.verb == "GET" and call.path.endswith("/services/web") else None

        world.guest.fault = fault
        async with world.live():
            await asyncio.sleep(2 * PERIOD)
            assert world.left == {KEY}
            world.guest.fault = None
            await asyncio.sleep(PERIOD + ORPHAN_GRACE)
        assert world.left == set()

    run()


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
def test_nothing_is_deleted_while_the_guest_does_not_say_who_it_is(answer: Callable[[], CCMError]) -> None:
    @jumping_time
    async def run() -> None:
        world = OrphanWorld()
        world.put_balancer()
        world.guest.fault = lambda call: answer() if call.path.endswith("/namespaces/kube-system") else None
        async with world.live():
            await asyncio.sleep(2 * PERIOD)
            assert world.left == {KEY}
            world.guest.fault = None
            await asyncio.sleep(PERIOD + ORPHAN_GRACE)
        assert world.left == set()

    run()


@pytest.mark.parametrize("blind", ["guest", "harvester"])
def test_nothing_is_deleted_while_a_cluster_cannot_be_read(blind: str) -> None:
    @jumping_time
    async def run() -> None:
        world = OrphanWorld()
        world.put_balancer()
        server = world.guest if blind == "guest" else world.harvester

        def fault(call: Call) -> CCMError | None:
            reading = call.verb == "WATCH" or re.search("/(services|loadbalancers)$", call.path)
            return refused(503, "ServiceUnavailable", "away") if reading else None

        async with world.live():
            await asyncio.sleep(1)
            server.fault = fault
            server.break_watches()
            await asyncio.sleep(2 * PERIOD)
            assert world.left == {KEY}
            assert world.deletions == []
            server.fault = None
            await asyncio.sleep(PERIOD + 1)
        assert world.left == set()

    run()


@jumping_time
async def test_kept_while_another_service_shows_its_address() -> None:
    world = OrphanWorld()
    world.put_balancer()
    world.guest.put(SERVICE, service_document("other", "other", address=ADDRESS))
    async with world.live():
        await asyncio.sleep(PERIOD + ORPHAN_GRACE)
        assert world.left == {KEY}
        world.guest.put(SERVICE, service_document("other", "other"))
        await asyncio.sleep(RETRY_SECONDS + 1)
    assert world.left == set()


@jumping_time
async def test_kept_until_harvester_has_booked_its_address() -> None:
    world = OrphanWorld()
    world.put_balancer(finalizer=False)
    async with world.live():
        await asyncio.sleep(PERIOD)
        assert world.left == {KEY}
        world.put_balancer()
        await asyncio.sleep(ORPHAN_GRACE + 1)
    assert world.left == set()


@jumping_time
async def test_pool_of_a_rejected_one_is_blocked_before_it_is_deleted() -> None:
    world = OrphanWorld()
    refusal = "fail to get ip from pool lan, error: no IP addresses available in range set: 10.0.0.1-10.0.0.2"
    world.put_balancer(ip="", address="", message=refusal)
    async with world.live():
        await asyncio.sleep(2 * ORPHAN_GRACE)
        assert world.left == {KEY}, "Harvester might still allocate an address"
        world.harvester.change(BALANCER, KEY, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
        await asyncio.sleep(1)
    assert world.left == set()
    writes = [call for call in world.harvester.calls if call.is_write]
    assert [call.verb for call in writes] == ["PUT", "DELETE"]
    assert writes[0].body["status"]["allocatedAddress"] == {"ipPool": "lan"}


@jumping_time
async def test_load_balancer_that_changed_since_the_decision_is_not_deleted() -> None:
    world = OrphanWorld()
    world.put_balancer()

    def change(call: Call) -> None:
        if call.verb == "DELETE" and len(world.deletions) == 1:
            world.harvester.change(BALANCER, KEY, {"metadata": {"annotations": {LB_OWNER: "another"}}})

    world.harvester.fault = change
    async with world.live():
        await asyncio.sleep(2 * PERIOD)
    assert world.left == {KEY}
    assert len(world.deletions) == 1


@jumping_time
async def test_another_one_of_its_name_has_a_grace_of_its_own() -> None:
    world = OrphanWorld()
    world.put_balancer()
    async with world.live():
        await asyncio.sleep(ORPHAN_GRACE - 1)
        world.harvester.remove(BALANCER, KEY)
        world.put_balancer(uid="another")
        made_at = asyncio.get_running_loop().time()
        await asyncio.sleep(ORPHAN_GRACE + 2)
    assert world.left == set()
    assert world.deletions[0] - made_at >= ORPHAN_GRACE


@jumping_time
async def test_foreign_ones_are_left_alone() -> None:
    world = OrphanWorld()
    world.put_balancer(annotations={LB_OWNER: "another"})
    async with world.live():
        await asyncio.sleep(2 * PERIOD)
    assert world.left == {KEY}
    assert [call for call in world.guest.calls if call.path.endswith("/web")] == []


@jumping_time
async def test_report_says_it_once_and_deletes_nothing() -> None:
    world = OrphanWorld(OrphanPolicy.REPORT)
    world.put_balancer()
    with capture_logs() as logs:
        async with world.live():
            await asyncio.sleep(3 * PERIOD)
    assert world.left == {KEY}
    assert [entry["event"] for entry in logs].count("orphaned load balancer found") == 1
    assert world.collector.deleted == 0


@jumping_time
async def test_off_looks_at_nothing() -> None:
    world = OrphanWorld(OrphanPolicy.OFF)
    world.put_balancer()
    with capture_logs() as logs:
        async with world.live():
            await asyncio.sleep(3 * PERIOD)
    assert world.left == {KEY}
    assert [entry for entry in logs if entry["event"] == "orphaned load balancer found"] == []


@jumping_time
async def test_one_of_an_earlier_provider_is_told_by_the_uid_of_its_service_and_reported_only() -> None:
    world = OrphanWorld()
    meta = {"name": "kubernetes-shop-web-1234", "namespace": CLUSTER.namespace, "labels": {LB_CLUSTER: CLUSTER.name}}
    world.harvester.put(BALANCER, {"metadata": {**meta, "annotations": {LB_SERVICE_UUID: "uid-of-web"}}})
    stored = service_document(uid=LATER)
    world.guest.put(SERVICE, {**stored, "metadata": {**stored["metadata"], "uid": "uid-of-web"}})
    with capture_logs() as logs:
        async with world.live():
            await asyncio.sleep(2 * PERIOD)
            assert reports(logs) == []
            world.guest.remove(SERVICE, "shop/web")
            await asyncio.sleep(2 * PERIOD)
    assert reports(logs) == ["uid-of-web"]
    assert world.deletions == []


def reports(logs: list[Any]) -> list[str]:
    """Return the Services whose load balancers were reported as left over."""
    return [entry["service"] for entry in logs if entry["event"] == "orphaned load balancer found"]


@jumping_time
async def test_load_balancer_created_after_its_service_was_deleted_is_deleted() -> None:
    world = OrphanWorld()
    world.guest.put(SERVICE, service_document())
    async with world.live():
        await asyncio.sleep(1)
        world.remove_service()
        await asyncio.sleep(10)
        # The request that created it timed out.
        world.put_balancer()
        await asyncio.sleep(ORPHAN_GRACE + 1)
    assert world.left == set()


@jumping_time
async def test_new_service_of_the_same_name_adopts_it() -> None:
    world = OrphanWorld()
    world.guest.put(SERVICE, service_document())
    world.put_balancer()
    async with world.live():
        await asyncio.sleep(1)
        world.remove_service()
        world.guest.put(SERVICE, service_document(uid="another"))
        await asyncio.sleep(2 * PERIOD)
    assert world.left == {KEY}


@jumping_time
async def test_many_are_deleted_with_a_pause_between_two_deletions() -> None:
    world = OrphanWorld()
    for number in range(50):
        mark = {LB_SERVICE_UID: f"uid-{number}"}
        world.put_balancer(name=f"left-{number}", uid=f"lb-uid-{number}", annotations=mark)
    async with world.live():
        await asyncio.sleep(ORPHAN_GRACE + 60 * DELETION_PAUSE)
    assert world.left == set()
    pauses = [later - earlier for earlier, later in itertools.pairwise(world.deletions)]
    assert len(pauses) == 49
    assert min(pauses) >= DELETION_PAUSE
