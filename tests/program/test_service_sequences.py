"""Sequences of events in the life of a Service that are easy to get wrong.

Three more are next to related tests: a creation that gets no response (``test_creation_gate``), a deletion after the
rate limit is reached (``test_write_limits``), and addresses that users requested under the Go provider
(``test_requested_addresses``).
"""

import asyncio

import pytest

from devenv.announcement import lacks_address
from harvester_ccm.kube.errors import Conflict, KubeError, Unreachable
from harvester_ccm.model.core import CONFIG_MAPS, SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_IGNORE,
    KUBE_VIP_INTERFACE,
    NAD_MAPPING_NAME,
    NAD_MAPPING_NAMESPACE,
    NETWORK,
    PRIMARY_SERVICE,
    SERVICE_FINALIZER,
    WORKLOAD_TYPE,
)
from tests.support.builders import service
from tests.support.clock import jumping_time
from tests.support.memory_server import Call, Document, refused
from tests.support.program_world import AWAY, Harvester, Program, guest_server, with_machines, with_nodes

KEY = "shop/web"

CONFLICT = refused(409, "Conflict", "the object has been modified; please apply your changes to the latest version")
REJECTED = refused(400, "", 'admission webhook "validator" denied the request: no')


class World(Program):
    """A guest cluster with three nodes."""

    harvester: Harvester

    def __init__(self, *flags: str) -> None:
        super().__init__(with_nodes(guest_server()), with_machines(Harvester()), "demo", *flags)

    @property
    def balancer(self) -> Document | None:
        found = self.harvester.items(LOAD_BALANCERS)
        assert len(found) <= 1
        return found[0] if found else None

    @property
    def is_empty(self) -> bool:
        return not self.guest.items(SERVICES) and not self.harvester.items(LOAD_BALANCERS)

    def cut(self) -> None:
        """Make Harvester unreachable."""
        self.harvester.fault = lambda _call: AWAY
        self.harvester.break_watches(AWAY)


@pytest.mark.parametrize("running", [True, False], ids=["running", "at start"])
@jumping_time
@pytest.mark.guarantee("A Service does not block other Services")
async def test_new_service_delays_no_other_while_harvester_is_unreachable(*, running: bool) -> None:
    world = World()
    world.create("old")
    async with world.live():
        await asyncio.sleep(10)
    before = world.service("old")
    if not running:
        world.cut()
    async with world.live():
        await asyncio.sleep(5)
        world.cut()
        world.create("web")
        await asyncio.sleep(1)
        assert not lacks_address(world.service("web")), "kube-vip waits for it, and for no other Service meanwhile"
        await asyncio.sleep(600)
        assert world.service("old") == before
        assert world.reasons() == ["web: HarvesterUnavailable"]
        world.harvester.fault = None
        await asyncio.sleep(60)
        assert world.address("web") == world.annotations()[KUBE_VIP_ADDRESSES] != ""
        assert KUBE_VIP_IGNORE not in world.annotations()


@pytest.mark.parametrize(
    ("after", "cut"),
    [(0.0, False), (0.0, True), (3.0, True)],
    ids=["watch delayed", "connection lost", "loss noticed"],
)
@jumping_time
async def test_service_deleted_after_a_creation_without_response_leaves_nothing(after: float, *, cut: bool) -> None:
    world = World()

    def lose(call: Call) -> KubeError | None:
        if call.verb != "POST":
            return None
        world.harvester.lost = lambda _call: None
        if cut:
            world.cut()
        asyncio.get_running_loop().call_later(after, world.guest.delete, SERVICES, KEY)
        return Unreachable("no answer within 10 s")

    async with world.live():
        await asyncio.sleep(5)
        world.harvester.lost, world.harvester.lagging = lose, True
        world.create("web")
        await asyncio.sleep(60)
        assert world.balancer is not None
        if after:
            assert world.service("web")["metadata"]["finalizers"] == [SERVICE_FINALIZER]
        world.harvester.fault = None
        world.harvester.catch_up()
        # Without a Service, the load balancer is an orphan.
        await asyncio.sleep(120)
        assert world.is_empty


@jumping_time
async def test_service_keeps_its_finalizer_while_a_load_balancer_exists_that_the_cache_lacks() -> None:
    world = World("--orphaned-load-balancer-policy=report")

    def lose(call: Call) -> KubeError | None:
        if call.verb != "POST":
            return None
        world.harvester.lost = lambda _call: None
        # Packets are dropped: the watch is not known to be dead for 150 s.
        world.harvester.hanging = True
        # Before the creation is retried, which would occupy the worker.
        asyncio.get_running_loop().call_later(0.0, world.guest.delete, SERVICES, KEY)
        return Unreachable("no answer within 10 s")

    async with world.live():
        await asyncio.sleep(5)
        world.harvester.lost, world.harvester.lagging = lose, True
        world.create("web")
        await asyncio.sleep(25)
        assert KEY in world.guest.of(SERVICES)
        world.harvester.hanging = False
        world.harvester.catch_up()
        await asyncio.sleep(300)
        assert world.is_empty, "without the deletion of orphans"


@jumping_time
@pytest.mark.guarantee("A load balancer in use is never deleted")
@pytest.mark.security("While its address is shared, the load balancer of the other Service is not deleted")
async def test_deleted_primary_keeps_its_load_balancer_until_the_last_secondary_is_deleted() -> None:
    world = World()
    world.create("web")
    for name, port in (("api", 443), ("db", 5432)):
        shared = {PRIMARY_SERVICE: KEY}
        world.put(service(name, uid=f"uid-of-{name}", ports=[{"port": port}], annotations=shared))
    async with world.live():
        await asyncio.sleep(10)
        address = world.address("web")
        assert world.address("api") == world.address("db") == address != ""
        world.guest.delete(SERVICES, KEY)
        await asyncio.sleep(60)
        world.guest.delete(SERVICES, "shop/api")
        await asyncio.sleep(60)
        assert world.address("web") == world.address("db") == world.annotations("db")[KUBE_VIP_ADDRESSES] == address
        assert "web: DeletionPending" in world.reasons()
        world.guest.delete(SERVICES, "shop/db")
        await asyncio.sleep(10)
        assert world.is_empty


@pytest.mark.parametrize(("has", "wanted"), [("cluster", "vm"), ("vm", "cluster")])
@pytest.mark.parametrize("shared", [False, True], ids=["one service", "shared address"])
@jumping_time
async def test_switch_that_harvester_rejects_in_a_dry_run_changes_nothing(
    has: str, wanted: str, *, shared: bool
) -> None:
    world = World()
    world.put(service(annotations={WORKLOAD_TYPE: has}))
    if shared:
        world.put(
            service("api", uid="api", ports=[{"port": 443, "nodePort": 30443}], annotations={PRIMARY_SERVICE: KEY})
        )
    async with world.live():
        await asyncio.sleep(30)
        before, address, announced = world.balancer, world.address("web"), world.annotations()[KUBE_VIP_ADDRESSES]
        assert announced == (address if has == "cluster" else "")
        world.harvester.fault = lambda call: REJECTED if call.verb == "POST" else None
        world.change(metadata={"annotations": {WORKLOAD_TYPE: wanted}})
        await asyncio.sleep(600)
        assert world.balancer == before
        assert (world.address("web"), world.annotations()[KUBE_VIP_ADDRESSES]) == (address, announced)
        assert world.reasons() == ["web: SyncLoadBalancerFailed"]
        assert "web: ChangingWorkloadType" not in world.reasons("Normal")


@pytest.mark.parametrize(("has", "wanted"), [("cluster", "vm"), ("vm", "cluster")])
@jumping_time
async def test_switch_that_is_taken_back_during_its_dry_run_withdraws_nothing(has: str, wanted: str) -> None:
    world = World()
    world.put(service(annotations={WORKLOAD_TYPE: has}))

    def take_back(call: Call) -> float:
        if call.verb != "POST":
            return 0.002
        world.change(metadata={"annotations": {WORKLOAD_TYPE: has}})
        return 2.0

    async with world.live():
        await asyncio.sleep(30)
        address, announced = world.address("web"), world.annotations()[KUBE_VIP_ADDRESSES]
        world.guest.calls.clear()
        world.harvester.calls.clear()
        world.harvester.delay = take_back
        world.change(metadata={"annotations": {WORKLOAD_TYPE: wanted}})
        await asyncio.sleep(60)
        assert (world.address("web"), world.annotations()[KUBE_VIP_ADDRESSES]) == (address, announced)
        assert "DELETE" not in {call.verb for call in world.harvester.calls}
        assert not [call for call in world.guest.calls if call.is_write and KUBE_VIP_ADDRESSES in str(call.body)]


@jumping_time
async def test_load_balancer_stays_if_the_type_was_changed_back_and_the_cache_is_stale() -> None:
    world = World()
    world.create("web")

    def change_back(call: Call) -> None:
        if call.verb == "PATCH" and world.service("web")["spec"]["type"] == "ClusterIP":
            world.guest.lagging = True
            world.change(spec={"type": "LoadBalancer"})

    async with world.live():
        await asyncio.sleep(10)
        before, address = world.balancer, world.address("web")
        world.guest.lost = change_back
        world.change(spec={"type": "ClusterIP"})
        await asyncio.sleep(30)
        assert "DELETE" not in {call.verb for call in world.harvester.calls}
        world.guest.catch_up()
        await asyncio.sleep(10)
        assert world.balancer == before
        assert world.address("web") == world.annotations()[KUBE_VIP_ADDRESSES] == address


@jumping_time
async def test_load_balancer_stays_if_the_type_is_changed_back_while_the_service_is_read() -> None:
    world = World()
    world.create("web")

    def change_back(call: Call) -> float:
        if (call.verb, call.path) != ("GET", SERVICES.path("shop", "web")):
            return 0.0
        world.change(spec={"type": "LoadBalancer"})
        return 2.0

    async with world.live():
        await asyncio.sleep(10)
        before, address = world.balancer, world.address("web")
        world.guest.way_back = change_back
        world.change(spec={"type": "ClusterIP"})
        await asyncio.sleep(30)
        assert "DELETE" not in {call.verb for call in world.harvester.calls}
        assert world.balancer == before
        assert world.address("web") == world.annotations()[KUBE_VIP_ADDRESSES] == address


@jumping_time
@pytest.mark.security("UID and `resourceVersion` preconditions limit their effect")
async def test_write_of_a_former_leader_that_arrives_late_is_rejected() -> None:
    world = World()
    world.create("web")
    late: list[Call] = []

    def keep(call: Call) -> KubeError | None:
        if call.verb != "PUT":
            return None
        late.append(call)
        task.cancel()
        return AWAY

    world.harvester.fault = keep
    task = asyncio.create_task(world.run())
    await asyncio.wait([task])
    world.harvester.fault = None
    (call,) = late
    async with world.live():
        await asyncio.sleep(10)
        before, address = world.balancer, world.address("web")
        with pytest.raises(Conflict):
            await world.harvester.serve(call.verb, call.path, call.body)
        await asyncio.sleep(10)
        assert world.balancer == before
        assert world.address("web") == address != ""


CONFLICTS = {"Service": ("guest", "PATCH", "/services/"), "load balancer": ("harvester", "PUT", "/loadbalancers/")}


@pytest.mark.parametrize(("server", "verb", "path"), CONFLICTS.values(), ids=CONFLICTS.keys())
@jumping_time
async def test_write_that_conflicts_for_a_minute_is_reported(server: str, verb: str, path: str) -> None:
    world = World()
    concerned = getattr(world, server)
    concerned.fault = lambda call: CONFLICT if call.verb == verb and path in call.path else None
    world.create("web")
    async with world.live():
        await asyncio.sleep(45)
        assert world.reasons() == []
        await asyncio.sleep(45)
        assert world.reasons() == ["web: SyncLoadBalancerFailed"]
        assert str(CONFLICT) in world.warnings("web")[0]
        await asyncio.sleep(600)
        assert len(world.reasons()) == 1
        concerned.fault = None
        await asyncio.sleep(60)
        assert world.address("web")
        assert world.condition()["status"] == "True"


@jumping_time
async def test_address_waits_until_the_mapping_to_devices_is_listed() -> None:
    world = World("--disable-vmi-controller")
    metadata = {"name": NAD_MAPPING_NAME, "namespace": NAD_MAPPING_NAMESPACE}
    world.guest.put(CONFIG_MAPS, {"metadata": metadata, "data": {"interface-nad-mapping": '{"default/vlan7": "ens7"}'}})
    world.guest.delay = lambda call: 5.0 if "configmaps" in call.path else 0.002
    world.put(service(annotations={NETWORK: "default/vlan7"}))
    async with world.live():
        await asyncio.sleep(4)
        assert (world.address("web"), world.annotations()[KUBE_VIP_ADDRESSES]) == ("", "")
        await asyncio.sleep(10)
    assert world.annotations()[KUBE_VIP_ADDRESSES] == world.address("web") != ""
    assert world.annotations()[KUBE_VIP_INTERFACE] == "ens7"
    assert world.warnings("web") == []
