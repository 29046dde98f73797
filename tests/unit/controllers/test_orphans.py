"""The sweep of left-over load balancers, on API servers in memory and with a clock that jumps."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from harvester_ccm.config import OrphanPolicy
from harvester_ccm.controllers.orphans import OrphanSweep, SweepPolicy
from harvester_ccm.errors import CCMError, Unreachable
from harvester_ccm.kube.informer import Informer, Selection
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import LB_CLUSTER, LB_CONTROLLER_FINALIZER, LB_OWNER, LB_SERVICE_UUID
from harvester_ccm.plan.service.ownership import ORPHAN_GRACE
from tests.worlds.builders import ADDRESS, CLUSTER, LB_NAME, allocated
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Call, Document, MemoryClient, MemoryServer, refused

SERVICE: Final = "v1/services"
BALANCER: Final = "loadbalancer.harvesterhci.io/v1beta1/loadbalancers"
PERIOD: Final = 600.0
KEY: Final = f"{CLUSTER.namespace}/{LB_NAME}"


def service_document(name: str = "web", address: str = "") -> Document:
    """Return a Service of type LoadBalancer."""
    status = {"loadBalancer": {"ingress": [{"ip": address}]}} if address else {}
    metadata = {"name": name, "namespace": "shop"}
    return {"metadata": metadata, "spec": {"type": "LoadBalancer"}, "status": status}


class SweepScene:
    """Two servers in memory and the sweep on them."""

    def __init__(self, orphans: OrphanPolicy = OrphanPolicy.DELETE) -> None:
        self.guest, self.harvester = MemoryServer(), MemoryServer(prompt=[LB_CONTROLLER_FINALIZER])
        guest = MemoryClient(self.guest, cluster="guest")
        harvester = MemoryClient(self.harvester, cluster="harvester", namespace=CLUSTER.namespace)
        self.services = Informer(guest, SERVICES)
        self.balancers = Informer(harvester, LOAD_BALANCERS, Selection(CLUSTER.namespace))
        policy = SweepPolicy(orphans, PERIOD)
        self.sweep = OrphanSweep(guest, harvester, self.services, self.balancers, cluster=CLUSTER, policy=policy)

    def put_balancer(self, **more: Any) -> None:
        """Store the load balancer of Service shop/web."""
        document: Document = allocated(**more).document()
        self.harvester.put(BALANCER, document)

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
        """Run informers and sweep for the block."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part.run()) for part in (self.services, self.balancers, self.sweep)]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()


@jumping_time
async def test_deleted_after_the_grace_and_not_before() -> None:
    scene = SweepScene()
    scene.put_balancer()
    with capture_logs() as logs:
        async with scene.live():
            await asyncio.sleep(ORPHAN_GRACE - 1)
            assert scene.left == {KEY}
            await asyncio.sleep(2)
            assert scene.left == set()
    assert scene.sweep.deleted == 1
    (said,) = [entry for entry in logs if entry["event"] == "load balancer without service"]
    assert (said["log_level"], said["lb"], said["service"]) == ("warning", KEY, "shop/web")


@jumping_time
async def test_service_that_comes_back_in_time_keeps_it_and_starts_the_grace_anew() -> None:
    scene = SweepScene()
    scene.put_balancer()
    async with scene.live():
        await asyncio.sleep(ORPHAN_GRACE - 1)
        scene.guest.put(SERVICE, service_document())
        await asyncio.sleep(2 * PERIOD)
        assert scene.left == {KEY}
        scene.guest.remove(SERVICE, "shop/web")
        gone_at = asyncio.get_running_loop().time()
        await asyncio.sleep(ORPHAN_GRACE + 1)
    assert scene.left == set()
    assert scene.deletions[0] - gone_at >= ORPHAN_GRACE


@jumping_time
async def test_service_that_the_cache_does_not_know_is_looked_for() -> None:
    scene = SweepScene()
    scene.put_balancer()
    async with scene.live():
        await asyncio.sleep(1)
        # Stored without a word to the watchers.
        scene.guest.objects[SERVICE] = {"shop/web": service_document()}
        await asyncio.sleep(2 * PERIOD)
        assert scene.left == {KEY}
        assert scene.deletions == []
        scene.guest.objects[SERVICE] = {}
        await asyncio.sleep(PERIOD + 1)
    assert scene.left == set()


def internal(address: str = "") -> Document:
    """Return shop/web after somebody made it internal and took our finalizer off."""
    return {**service_document(address=address), "spec": {"type": "ClusterIP"}}


@jumping_time
async def test_service_that_has_no_load_balancer_any_more_does_not_keep_one() -> None:
    scene = SweepScene()
    scene.put_balancer()
    scene.guest.put(SERVICE, internal())
    async with scene.live():
        await asyncio.sleep(ORPHAN_GRACE + 1)
    assert scene.left == set()


@jumping_time
async def test_service_that_got_its_load_balancer_back_unseen_keeps_it() -> None:
    scene = SweepScene()
    scene.put_balancer()
    scene.guest.put(SERVICE, internal())
    async with scene.live():
        await asyncio.sleep(1)
        # Stored without a word to the watchers.
        for document in (service_document(), internal(ADDRESS)):
            scene.guest.objects[SERVICE] = {"shop/web": document}
            await asyncio.sleep(2 * PERIOD)
            assert scene.deletions == []
        scene.guest.objects[SERVICE] = {"shop/web": internal()}
        await asyncio.sleep(PERIOD + 1)
    assert scene.left == set()


ANSWERS: dict[str, Callable[[], CCMError]] = {
    "401": lambda: refused(401, "Unauthorized", "Unauthorized"),
    "403": lambda: refused(403, "Forbidden", "services is forbidden"),
    "429": lambda: refused(429, "TooManyRequests", "busy"),
    "500": lambda: refused(500, "InternalError", "broken"),
    "unreachable": lambda: Unreachable("no answer"),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
def test_no_answer_but_not_found_means_gone(answer: Callable[[], CCMError]) -> None:
    @jumping_time
    async def run() -> None:
        scene = SweepScene()
        scene.put_balancer()

        def fault(call: Call) -> CCMError | None:
            return answer() if call.verb == "GET" and call.path.endswith("/services/web") else None

        scene.guest.fault = fault
        async with scene.live():
            await asyncio.sleep(2 * PERIOD)
            assert scene.left == {KEY}
            scene.guest.fault = None
            await asyncio.sleep(PERIOD + ORPHAN_GRACE)
        assert scene.left == set()

    run()


@pytest.mark.parametrize("blind", ["guest", "harvester"])
def test_nothing_is_deleted_while_a_cluster_cannot_be_read(blind: str) -> None:
    @jumping_time
    async def run() -> None:
        scene = SweepScene()
        scene.put_balancer()
        server = scene.guest if blind == "guest" else scene.harvester

        def fault(call: Call) -> CCMError | None:
            reading = call.verb == "WATCH" or re.search("/(services|loadbalancers)$", call.path)
            return refused(503, "ServiceUnavailable", "away") if reading else None

        async with scene.live():
            await asyncio.sleep(1)
            server.fault = fault
            server.break_watches()
            await asyncio.sleep(2 * PERIOD)
            assert scene.left == {KEY}
            assert scene.deletions == []
            server.fault = None
            await asyncio.sleep(PERIOD + 1)
        assert scene.left == set()

    run()


@jumping_time
async def test_kept_while_another_service_shows_its_address() -> None:
    scene = SweepScene()
    scene.put_balancer()
    scene.guest.put(SERVICE, service_document("other", ADDRESS))
    async with scene.live():
        await asyncio.sleep(PERIOD + ORPHAN_GRACE)
        assert scene.left == {KEY}
        scene.guest.put(SERVICE, service_document("other"))
        await asyncio.sleep(PERIOD + 1)
    assert scene.left == set()


@jumping_time
async def test_kept_until_harvester_has_booked_its_address() -> None:
    scene = SweepScene()
    scene.put_balancer(finalizer=False)
    async with scene.live():
        await asyncio.sleep(PERIOD)
        assert scene.left == {KEY}
        scene.put_balancer()
        await asyncio.sleep(ORPHAN_GRACE + 1)
    assert scene.left == set()


@jumping_time
async def test_another_one_of_its_name_has_a_grace_of_its_own() -> None:
    scene = SweepScene()
    scene.put_balancer()
    async with scene.live():
        await asyncio.sleep(ORPHAN_GRACE - 1)
        scene.harvester.remove(BALANCER, KEY)
        scene.put_balancer(uid="another")
        made_at = asyncio.get_running_loop().time()
        await asyncio.sleep(ORPHAN_GRACE + 2)
    assert scene.left == set()
    assert scene.deletions[0] - made_at >= ORPHAN_GRACE


@jumping_time
async def test_foreign_ones_are_left_alone() -> None:
    scene = SweepScene()
    scene.put_balancer(annotations={LB_OWNER: "another"})
    async with scene.live():
        await asyncio.sleep(2 * PERIOD)
    assert scene.left == {KEY}
    assert [call for call in scene.guest.calls if call.path.endswith("/web")] == []


@jumping_time
async def test_report_says_it_once_and_deletes_nothing() -> None:
    scene = SweepScene(OrphanPolicy.REPORT)
    scene.put_balancer()
    with capture_logs() as logs:
        async with scene.live():
            await asyncio.sleep(3 * PERIOD)
    assert scene.left == {KEY}
    assert [entry["event"] for entry in logs].count("load balancer without service") == 1
    assert scene.sweep.deleted == 0


@jumping_time
async def test_off_looks_at_nothing() -> None:
    scene = SweepScene(OrphanPolicy.OFF)
    scene.put_balancer()
    with capture_logs() as logs:
        async with scene.live():
            await asyncio.sleep(3 * PERIOD)
    assert scene.left == {KEY}
    assert [entry for entry in logs if entry["event"] == "load balancer without service"] == []


@jumping_time
async def test_one_of_an_earlier_provider_is_told_by_the_uid_of_its_service_and_reported_only() -> None:
    scene = SweepScene()
    meta = {"name": "kubernetes-shop-web-1234", "namespace": CLUSTER.namespace, "labels": {LB_CLUSTER: CLUSTER.name}}
    scene.harvester.put(BALANCER, {"metadata": {**meta, "annotations": {LB_SERVICE_UUID: "uid-of-web"}}})
    stored = service_document()
    scene.guest.put(SERVICE, {**stored, "metadata": {**stored["metadata"], "uid": "uid-of-web"}})
    with capture_logs() as logs:
        async with scene.live():
            await asyncio.sleep(2 * PERIOD)
            assert reports(logs) == []
            scene.guest.remove(SERVICE, "shop/web")
            await asyncio.sleep(2 * PERIOD)
    assert reports(logs) == ["uid-of-web"]
    assert scene.deletions == []


def reports(logs: list[Any]) -> list[str]:
    """Return the Services whose load balancers were reported as left over."""
    return [entry["service"] for entry in logs if entry["event"] == "load balancer without service"]
