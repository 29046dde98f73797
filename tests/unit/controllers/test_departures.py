"""Load balancers of Services that were seen to go, on API servers in memory and with a clock that jumps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from harvester_ccm.controllers.departures import LOOK_AGAIN, MEMORY_SECONDS, Departures
from harvester_ccm.errors import CCMError, Unreachable
from harvester_ccm.kube.informer import Informer, Selection
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.names import LB_CONTROLLER_FINALIZER, LB_OWNER, SERVICE_FINALIZER
from harvester_ccm.plan.service.ownership import ORPHAN_GRACE, service_key
from tests.worlds.builders import ADDRESS, CLUSTER, DELETED_AT, LB_NAME, UID, allocated
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Call, Document, MemoryClient, MemoryServer, refused

SERVICE: Final = "v1/services"
BALANCER: Final = "loadbalancer.harvesterhci.io/v1beta1/loadbalancers"
KEY: Final = f"{CLUSTER.namespace}/{LB_NAME}"
INDEX: Final = "service"


def service_document(name: str = "web", uid: str = UID, *, kind: str = "LoadBalancer", address: str = "") -> Document:
    """Return a Service."""
    status = {"loadBalancer": {"ingress": [{"ip": address}]}} if address else {}
    metadata = {"name": name, "namespace": "shop", "uid": uid}
    return {"metadata": metadata, "spec": {"type": kind}, "status": status}


class Scene:
    """Two servers in memory; the Service shop/web exists."""

    def __init__(self) -> None:
        self.guest, self.harvester = MemoryServer(), MemoryServer(prompt=[LB_CONTROLLER_FINALIZER])
        guest = MemoryClient(self.guest, cluster="guest")
        harvester = MemoryClient(self.harvester, cluster="harvester", namespace=CLUSTER.namespace)

        def index(one: LoadBalancer) -> tuple[str, ...]:
            return (service_key(one),)

        services = Informer(guest, SERVICES)
        balancers = Informer(harvester, LOAD_BALANCERS, Selection(CLUSTER.namespace), indexes={INDEX: index})
        departures = Departures(guest, harvester, services, balancers, cluster=CLUSTER, index=INDEX)
        self._parts = (services, balancers, departures)
        self.guest.put(SERVICE, service_document())

    def put_balancer(self, **more: Any) -> None:
        """Store the load balancer of shop/web."""
        document: Document = allocated(**more).document()
        self.harvester.put(BALANCER, document)

    def remove_service(self) -> None:
        """Let shop/web go without anybody having waited for its finalizer."""
        self.guest.remove(SERVICE, "shop/web")

    @property
    def left(self) -> set[str]:
        """The load balancers that exist."""
        return set(self.harvester.objects.get(BALANCER, {}))

    @property
    def questions(self) -> int:
        """How often the guest was asked for one Service."""
        return sum(call.verb == "GET" and call.path.endswith("/services/web") for call in self.guest.calls)

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Run everything for the block; the caches are filled."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part.run()) for part in self._parts]
            await asyncio.sleep(1)
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()


@jumping_time
async def test_deleted_long_before_the_grace_of_the_sweep() -> None:
    scene = Scene()
    scene.put_balancer()
    async with scene.live():
        scene.remove_service()
        await asyncio.sleep(1)
    assert scene.left == set()
    assert scene.questions == 1


@jumping_time
async def test_found_when_it_appears_after_its_service_has_gone() -> None:
    scene = Scene()
    async with scene.live():
        scene.remove_service()
        await asyncio.sleep(ORPHAN_GRACE)
        scene.put_balancer()
        await asyncio.sleep(1)
    assert scene.left == set()


@jumping_time
async def test_deleted_as_soon_as_its_address_is_booked() -> None:
    scene = Scene()
    scene.put_balancer(finalizer=False)
    async with scene.live():
        scene.remove_service()
        await asyncio.sleep(2 * LOOK_AGAIN)
        assert scene.left == {KEY}
        assert scene.questions == 0
        scene.put_balancer()
        await asyncio.sleep(1)
    assert scene.left == set()


@jumping_time
async def test_kept_while_another_service_shows_its_address() -> None:
    scene = Scene()
    scene.put_balancer()
    scene.guest.put(SERVICE, service_document("other", "other-uid", address=ADDRESS))
    async with scene.live():
        scene.remove_service()
        await asyncio.sleep(2 * LOOK_AGAIN)
        assert scene.left == {KEY}
        scene.guest.remove(SERVICE, "shop/other")
        await asyncio.sleep(LOOK_AGAIN + 1)
    assert scene.left == set()


@jumping_time
async def test_service_that_waited_for_its_clean_up_is_not_looked_for() -> None:
    scene = Scene()
    scene.put_balancer()
    async with scene.live():
        leaving = {"deletionTimestamp": DELETED_AT, "finalizers": [SERVICE_FINALIZER]}
        scene.guest.change(SERVICE, "shop/web", {"metadata": leaving})
        await asyncio.sleep(1)
        scene.remove_service()
        scene.put_balancer(labels={"changed": "while its deletion is on its way to the cache"})
        await asyncio.sleep(ORPHAN_GRACE)
        assert scene.questions == 0
        # Not so one that was created late: the clean-up did not know it.
        scene.harvester.remove(BALANCER, KEY)
        scene.put_balancer(uid="late")
        await asyncio.sleep(1)
    assert scene.left == set()


@jumping_time
async def test_kept_when_the_cache_was_wrong() -> None:
    scene = Scene()
    scene.put_balancer()
    async with scene.live():
        scene.remove_service()
        # Stored without a word to the watchers.
        scene.guest.objects[SERVICE] = {"shop/web": service_document()}
        await asyncio.sleep(ORPHAN_GRACE)
    assert scene.left == {KEY}
    assert scene.questions == 1


@jumping_time
async def test_new_service_of_the_name_takes_it_over() -> None:
    scene = Scene()
    scene.put_balancer()
    async with scene.live():
        scene.remove_service()
        scene.guest.put(SERVICE, service_document(uid="another"))
        await asyncio.sleep(ORPHAN_GRACE)
        assert scene.left == {KEY}
        scene.remove_service()
        await asyncio.sleep(1)
    assert scene.left == set()


@jumping_time
async def test_new_service_of_the_name_that_wants_none_does_not_keep_it() -> None:
    scene = Scene()
    scene.put_balancer()
    async with scene.live():
        scene.remove_service()
        scene.guest.put(SERVICE, service_document(uid="another", kind="ClusterIP"))
        await asyncio.sleep(1)
    assert scene.left == set()


@jumping_time
async def test_left_to_the_sweep_when_nobody_saw_the_service_go() -> None:
    scene = Scene()
    scene.guest.objects[SERVICE] = {}
    scene.put_balancer()
    async with scene.live():
        await asyncio.sleep(2 * MEMORY_SECONDS)
    assert scene.left == {KEY}
    assert scene.questions == 0


@jumping_time
async def test_left_to_the_sweep_when_it_appears_much_too_late() -> None:
    scene = Scene()
    async with scene.live():
        scene.remove_service()
        await asyncio.sleep(MEMORY_SECONDS)
        scene.put_balancer()
        await asyncio.sleep(LOOK_AGAIN)
    assert scene.left == {KEY}


@jumping_time
async def test_of_another_cluster_is_left_alone() -> None:
    scene = Scene()
    scene.put_balancer(annotations={LB_OWNER: "another"})
    async with scene.live():
        scene.remove_service()
        await asyncio.sleep(ORPHAN_GRACE)
    assert scene.left == {KEY}
    assert scene.questions == 0


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda: refused(401, "Unauthorized", "Unauthorized"), id="401"),
        pytest.param(lambda: refused(403, "Forbidden", "services is forbidden"), id="403"),
        pytest.param(lambda: refused(429, "TooManyRequests", "busy"), id="429"),
        pytest.param(lambda: refused(500, "InternalError", "broken"), id="500"),
        pytest.param(lambda: Unreachable("no answer"), id="unreachable"),
    ],
)
def test_no_answer_but_not_found_means_gone(answer: Callable[[], CCMError]) -> None:
    @jumping_time
    async def run() -> None:
        scene = Scene()
        scene.put_balancer()

        def fault(call: Call) -> CCMError | None:
            return answer() if call.verb == "GET" and call.path.endswith("/services/web") else None

        scene.guest.fault = fault
        async with scene.live():
            scene.remove_service()
            await asyncio.sleep(MEMORY_SECONDS / 2)
            assert scene.left == {KEY}
            scene.guest.fault = None
            await asyncio.sleep(MEMORY_SECONDS / 4)
        assert scene.left == set()

    run()
