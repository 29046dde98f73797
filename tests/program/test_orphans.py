"""Orphaned load balancers: which ones are deleted, when, and what prevents it."""

import asyncio
import itertools
import re
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from harvester_ccm.controllers.orphans import DELETION_PAUSE, RETRY_SECONDS
from harvester_ccm.kube.errors import KubeError, Unreachable
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import DHCP_ADDRESS, LB_OWNER, LB_SERVICE_UID
from harvester_ccm.plan.service.ownership.orphans import ORPHAN_GRACE_SECONDS
from tests.support.builders import ADDRESS, CLUSTER, LB_NAME, allocated, service
from tests.support.clock import jumping_time
from tests.support.memory_server import Call, document_of, page, refused
from tests.support.program_world import Harvester, Program, guest_server

PERIOD: Final = 600.0
KEY: Final = f"{CLUSTER.namespace}/{LB_NAME}"
OTHER_CLASS: Final = {"loadBalancerClass": "example.com/other"}
EXHAUSTED: Final = "fail to get ip from pool lan, error: no IP addresses available in range set: 10.0.0.1-10.0.0.2"


class World(Program):
    """A program whose Harvester has the load balancer of Service shop/web, which does not exist."""

    def __init__(self, *flags: str, **balancer: Any) -> None:
        super().__init__(guest_server(), Harvester(), CLUSTER.name, *flags)
        self.put_balancer(**balancer)

    def put_balancer(self, **more: Any) -> None:
        self.harvester.put(LOAD_BALANCERS, {"apiVersion": LOAD_BALANCERS.api_version, **allocated(**more).document()})

    @property
    def left(self) -> set[str]:
        return set(self.harvester.of(LOAD_BALANCERS))

    @property
    def deletions(self) -> list[float]:
        """The times of the DELETE requests."""
        return [call.at for call in self.harvester.calls if call.verb == "DELETE"]


def reported(logs: list[Any]) -> list[str]:
    return [entry["service"] for entry in logs if entry["event"] == "orphaned load balancer found"]


@jumping_time
async def test_orphan_is_deleted_after_the_grace_period_and_not_before() -> None:
    world = World()
    with capture_logs() as logs:
        async with world.live():
            await asyncio.sleep(ORPHAN_GRACE_SECONDS - 1)
            assert world.left == {KEY}
            await asyncio.sleep(2)
            assert world.left == set()
    assert reported(logs) == ["shop/web"]
    assert "harvester_ccm_orphaned_load_balancers_deleted_total 1.0" in world.telemetry.exposition("")[0].decode()


@jumping_time
async def test_grace_period_begins_again_when_a_load_balancer_becomes_an_orphan_again() -> None:
    world = World()
    async with world.live():
        await asyncio.sleep(ORPHAN_GRACE_SECONDS - 5)
        world.put(service())
        await asyncio.sleep(1)
        world.guest.remove(SERVICES, "shop/web")
        await asyncio.sleep(ORPHAN_GRACE_SECONDS - 5)
        assert world.left == {KEY}
        await asyncio.sleep(10)
    assert world.left == set()


@jumping_time
async def test_service_that_the_cache_lacks_is_found_by_a_live_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harvester_ccm.kube.informer.RELIST_SECONDS", (1e9, 1e9))
    world = World()
    async with world.live():
        await asyncio.sleep(1)
        # Stored without a watch event.
        world.guest.of(SERVICES)["shop/web"] = document_of(service(uid="later"))
        await asyncio.sleep(2 * PERIOD)
        assert (world.left, world.deletions) == ({KEY}, [])
        assert sum(call.path.endswith("/services/web") for call in world.guest.calls) <= 3
        del world.guest.of(SERVICES)["shop/web"]
        await asyncio.sleep(PERIOD + 1)
    assert world.left == set()


RESPONSES: dict[str, KubeError] = {
    "401": refused(401, "Unauthorized", "Unauthorized"),
    "403": refused(403, "Forbidden", "services is forbidden"),
    "404 page of a proxy": page(),
    "429": refused(429, "TooManyRequests", "busy"),
    "500": refused(500, "InternalError", "broken"),
    "unreachable": Unreachable("no response"),
}


@pytest.mark.parametrize("path", ["/services/web", "/namespaces/kube-system"])
@pytest.mark.parametrize("response", RESPONSES.values(), ids=RESPONSES.keys())
@jumping_time
@pytest.mark.guarantee("Errors, timeouts, proxies and unreadable lists do not prove a deletion")
@pytest.mark.security("A failure never causes a deletion")
async def test_only_a_404_that_names_the_service_proves_its_deletion(response: KubeError, path: str) -> None:
    world = World()
    async with world.live():
        await asyncio.sleep(1)
        world.guest.fault = lambda call: response if call.verb == "GET" and call.path.endswith(path) else None
        await asyncio.sleep(2 * PERIOD)
        assert world.left == {KEY}
        world.guest.fault = None
        await asyncio.sleep(PERIOD + ORPHAN_GRACE_SECONDS)
    assert world.left == set()


@pytest.mark.parametrize("since", ["", "/services/web"], ids=["from the start", "when the service is read"])
@jumping_time
async def test_nothing_is_deleted_while_another_cluster_responds(since: str) -> None:
    world = World()

    def replace_cluster(call: Call) -> None:
        if call.path.endswith(since):
            world.guest.of("v1/namespaces")["kube-system"]["metadata"]["uid"] = "another"

    async with world.live():
        await asyncio.sleep(1)
        world.guest.fault = replace_cluster
        await asyncio.sleep(2 * ORPHAN_GRACE_SECONDS)
        assert world.exit_code == 1
    assert (world.left, world.deletions) == ({KEY}, [])


@pytest.mark.parametrize("unreachable", ["guest", "harvester"])
@jumping_time
@pytest.mark.security("A failure never causes a deletion")
async def test_nothing_is_deleted_while_a_cluster_cannot_be_listed(unreachable: str) -> None:
    world = World()
    server = getattr(world, unreachable)

    def fault(call: Call) -> KubeError | None:
        reading = call.verb == "WATCH" or re.search("/(services|loadbalancers)$", call.path)
        return refused(503, "ServiceUnavailable", "busy") if reading else None

    async with world.live():
        await asyncio.sleep(1)
        server.fault = fault
        server.break_watches()
        await asyncio.sleep(2 * PERIOD)
        assert (world.left, world.deletions) == ({KEY}, [])
        server.fault = None
        await asyncio.sleep(PERIOD + 1)
    assert world.left == set()


@pytest.mark.parametrize("ip", [ADDRESS, DHCP_ADDRESS], ids=["from a pool", "from DHCP"])
@jumping_time
@pytest.mark.guarantee("A load balancer in use is never deleted")
async def test_orphan_stays_while_another_service_has_its_address(ip: str) -> None:
    world = World(ip=ip)
    world.put(service("other", uid="other", address=ADDRESS, spec=OTHER_CLASS))
    async with world.live():
        await asyncio.sleep(PERIOD + ORPHAN_GRACE_SECONDS)
        assert world.left == {KEY}
        world.put(service("other", uid="other", spec=OTHER_CLASS))
        await asyncio.sleep(RETRY_SECONDS + 1)
    assert world.left == set()


@jumping_time
@pytest.mark.guarantee("No allocation is lost")
async def test_orphan_stays_until_harvester_has_recorded_its_address() -> None:
    world = World(finalizer=False)
    async with world.live():
        await asyncio.sleep(PERIOD)
        assert world.left == {KEY}
        world.put_balancer()
        await asyncio.sleep(ORPHAN_GRACE_SECONDS + 1)
    assert world.left == set()


@jumping_time
async def test_pool_of_an_orphan_without_an_address_is_blocked_before_its_deletion() -> None:
    world = World(ip="", address="", message=EXHAUSTED)
    async with world.live():
        await asyncio.sleep(2 * ORPHAN_GRACE_SECONDS)
        assert world.left == {KEY}, "Harvester might still allocate an address"
        world.harvester.change(LOAD_BALANCERS, KEY, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
        await asyncio.sleep(1)
    assert world.left == set()
    blocked, deleted = [call for call in world.harvester.calls if call.is_write]
    assert (blocked.verb, blocked.body["status"]["allocatedAddress"]) == ("PUT", {"ipPool": "lan"})
    assert deleted.verb == "DELETE"


@jumping_time
async def test_load_balancer_that_changed_since_the_decision_is_not_deleted() -> None:
    world = World()

    def change(call: Call) -> None:
        if call.verb == "DELETE" and len(world.deletions) == 1:
            world.harvester.change(LOAD_BALANCERS, KEY, {"metadata": {"annotations": {LB_OWNER: "another"}}})

    world.harvester.fault = change
    async with world.live():
        await asyncio.sleep(2 * PERIOD)
    assert world.left == {KEY}
    assert len(world.deletions) == 1


@pytest.mark.parametrize(("policy", "reports"), [("report", ["shop/web"]), ("off", [])])
@jumping_time
async def test_orphan_is_only_reported_or_ignored_if_the_flag_says_so(policy: str, reports: list[str]) -> None:
    world = World(f"--orphaned-load-balancer-policy={policy}")
    with capture_logs() as logs:
        async with world.live():
            await asyncio.sleep(3 * PERIOD)
    assert (reported(logs), world.left) == (reports, {KEY})


@jumping_time
@pytest.mark.guarantee("Deletions without a finalizer are rate-limited")
@pytest.mark.security("deletions that no finalizer requested are rate-limited: guarantees")
async def test_many_orphans_are_deleted_with_a_pause_between_two_deletions() -> None:
    world = World()
    for number in range(49):
        annotations = {LB_SERVICE_UID: f"uid-{number}"}
        world.put_balancer(name=f"orphan-{number}", uid=f"lb-uid-{number}", annotations=annotations)
    async with world.live():
        await asyncio.sleep(ORPHAN_GRACE_SECONDS + 60 * DELETION_PAUSE)
    assert world.left == set()
    pauses = [later - earlier for earlier, later in itertools.pairwise(world.deletions)]
    assert len(pauses) == 49
    assert min(pauses) >= 3
