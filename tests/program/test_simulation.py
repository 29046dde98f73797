"""The simulation itself: its actions can run, and its oracles notice what they are for."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from devenv.announcement import ADDRESS_ANNOTATION
from devenv.harvester.pools import booked
from devenv.harvester.records import POOLS
from harvester_ccm.kube.builtin import EVENTS
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
    KUBE_VIP_IGNORE,
    LB_CLUSTER,
    LB_SERVICE_NAME,
    LB_SERVICE_UID,
    LOAD_BALANCER_READY,
    PRIMARY_SERVICE,
    SERVICE_FINALIZER,
)
from tests.simulation.actions import LAN, Action
from tests.simulation.address_oracle import CORRECTED_WITHIN, AddressOracle
from tests.simulation.amount_oracle import EVENTS_OF_RUN, WRITES, WRITES_AFTER_DELETION, AmountOracle
from tests.simulation.budget import DISTURBANCES, most_in_a_minute, within_budget
from tests.simulation.loop import SeededLoop
from tests.simulation.oracles import Oracles
from tests.simulation.request_oracle import wrong_about_pool
from tests.simulation.rest import AtRest
from tests.simulation.world import RECOVERY_SECONDS, World
from tests.support.builders import CLUSTER
from tests.support.memory_server import Call, Document, refused

ADDRESS: Final = "10.0.0.10"
PATH: Final = "/api/v1/namespaces/shop/services/b/status"
EVENTS_PATH: Final = "/api/v1/namespaces/shop/events"


@contextmanager
def _world() -> Iterator[World]:
    """Return a world without faults in which Service a has an address, and no controller runs."""
    loop = SeededLoop("oracles 2")
    asyncio.set_event_loop(loop)
    world = World(loop, "oracles 2", pool=3)
    for name in ("a", "b"):
        world.original.create_service(name, {"type": "LoadBalancer", "ports": []}, {})
        world.original.change_service(name, {"metadata": {"finalizers": [SERVICE_FINALIZER]}})
    _pass(world, RECOVERY_SECONDS)
    labels = {LB_CLUSTER: CLUSTER.name, LB_SERVICE_NAME: "a"}
    metadata = {"name": "of-a", "namespace": CLUSTER.namespace, "labels": labels}
    status = {"allocatedAddress": {"ip": ADDRESS}}
    world.harvester.put(LOAD_BALANCERS, {"metadata": metadata, "spec": {"ipam": "pool"}, "status": status})
    try:
        yield world
    finally:
        loop.close()
        asyncio.set_event_loop(None)


def _pass(world: World, seconds: float) -> None:
    world.loop.run_until_complete(asyncio.sleep(seconds))


def _publication(world: World) -> Call:
    return Call("PATCH", PATH, world.loop.time(), {"metadata": {"annotations": {ADDRESS_ANNOTATION: ADDRESS}}}, "p.1")


def test_publication_of_the_address_of_another_service_is_noticed() -> None:
    with _world() as world:
        oracle = AddressOracle(world)
        oracle.look()
        assert "publishes 10.0.0.10 for b" in oracle.check_write(_publication(world))
        world.original.change_service("b", {"metadata": {"annotations": {PRIMARY_SERVICE: "shop/a"}}})
        assert oracle.check_write(_publication(world)) == ""


def test_service_that_keeps_the_address_of_another_one_is_noticed() -> None:
    with _world() as world:
        oracle = AddressOracle(world)
        world.original.change_service("b", {"status": {"loadBalancer": {"ingress": [{"ip": ADDRESS}]}}})
        oracle.look()
        _pass(world, CORRECTED_WITHIN - 1)
        assert oracle.late() == []
        _pass(world, 2)
        assert oracle.late() == [f"b of {CLUSTER.name} shows 10.0.0.10, which another Service has"]


def test_endless_writes_are_noticed() -> None:
    with _world() as world:
        oracle = AmountOracle(world)
        for _ in range(WRITES):
            oracle.answered(_publication(world), None)
        assert world.wrong == []
        oracle.answered(_publication(world), None)
        assert "writes /api/v1/namespaces/shop/services/b too often" in world.wrong[0]


def test_endless_writes_of_a_deleted_object_are_noticed() -> None:
    with _world() as world:
        oracle = AmountOracle(world)
        for _ in range(WRITES_AFTER_DELETION + 1):
            oracle.answered(_publication(world), refused(404, "NotFound", 'services "b" not found', about="b"))
        assert "again and again, which does not exist" in world.wrong[0]


_EVENT_NUMBERS: Final = itertools.count()


def _event(world: World, message: str) -> Call:
    uid = world.guest.of(SERVICES)["shop/b"]["metadata"]["uid"]
    body = {
        "metadata": {"name": f"b.{next(_EVENT_NUMBERS)}"},
        "involvedObject": {"uid": uid},
        "reason": "Allocating",
        "message": message,
    }
    return Call("POST", EVENTS_PATH, world.loop.time(), body, "p.1")


def test_endless_events_are_noticed() -> None:
    with _world() as world:
        oracle = AmountOracle(world)
        for number in range(EVENTS_OF_RUN + 1):
            oracle.answered(_event(world, str(number)), None)
        assert "emits too many Events" in world.wrong[0]


def test_repeated_event_is_noticed() -> None:
    with _world() as world:
        oracle = AmountOracle(world)
        oracle.answered(_event(world, "no address"), None)
        _pass(world, 600.0)
        oracle.answered(_event(world, "no address"), None)
        assert "repeats Event Allocating" in world.wrong[0]


OWNER: Final = "vms/demo-shop-a-1"
SEEDS: dict[str, tuple[Document, str]] = {
    "one entry": ({"allocatedHistory": {"10.0.0.11": OWNER}}, ""),
    "an address in use": ({"allocatedHistory": {ADDRESS: OWNER}}, "which Harvester cannot allocate"),
    "outside of the pool": ({"allocatedHistory": {"10.0.0.99": OWNER}}, "which Harvester cannot allocate"),
    "the gateway": ({"allocatedHistory": {"10.0.0.1": OWNER}}, "which Harvester cannot allocate"),
    "for another cluster": ({"allocatedHistory": {"10.0.0.11": "vms/other-shop-a-1"}}, "of another cluster"),
    "two entries": ({"allocatedHistory": {"10.0.0.11": OWNER, "10.0.0.12": OWNER}}, "more of a pool than one entry"),
    "an allocation": ({"allocated": {"10.0.0.11": OWNER}}, "more of a pool than one entry"),
}


@pytest.mark.parametrize(("status", "problem"), SEEDS.values(), ids=SEEDS)
def test_oracle_of_requests_judges_a_patch_of_a_pool(status: Document, problem: str) -> None:
    with _world() as world:
        pool = world.harvester.put(POOLS, booked(world.harvester.of(POOLS)[LAN], ADDRESS, "vms/of-a"))
        version = pool["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "status": status}
        call = Call("PATCH", POOLS.path(None, LAN), world.loop.time(), body, "p.1")
        wrong = wrong_about_pool(world, call)
        assert problem in wrong
        assert bool(wrong) is bool(problem)


def _deletion(world: World) -> Call:
    uid = world.harvester.of(LOAD_BALANCERS)["vms/of-a"]["metadata"]["uid"]
    body = {"preconditions": {"uid": uid}}
    return Call("DELETE", LOAD_BALANCERS.path("vms", "of-a"), world.loop.time(), body, "p.1")


def _arrive(world: World, call: Call) -> list[str]:
    Oracles(world)
    for arrived in world.harvester.on_arrived:
        arrived(call)
    return world.wrong


def test_deletion_of_a_load_balancer_in_use_is_noticed() -> None:
    with _world() as world:
        world.harvester.change(LOAD_BALANCERS, "vms/of-a", {"spec": {"workloadType": "cluster"}})
        _publish(world, "a")
        assert _arrive(world, _deletion(world)) == [f"p.1 deletes of-a before {ADDRESS} is withdrawn from a"]


def test_deletion_of_the_load_balancer_that_a_service_asks_for_is_noticed() -> None:
    with _world() as world:
        _publish(world, "a")
        service = world.original.service("a")
        assert service is not None
        mark = {LB_SERVICE_UID: service["metadata"]["uid"]}
        world.harvester.change(LOAD_BALANCERS, "vms/of-a", {"metadata": {"annotations": mark}})
        assert _arrive(world, _deletion(world)) == ["p.1 deletes of-a, which a asks for"]


def test_change_of_a_load_balancer_of_another_cluster_is_noticed() -> None:
    with _world() as world:
        world.harvester.change(LOAD_BALANCERS, "vms/of-a", {"metadata": {"labels": {LB_CLUSTER: "other"}}})
        (wrong,) = _arrive(world, _deletion(world))
        assert "for of-a of another cluster" in wrong


def _publish(world: World, name: str) -> None:
    annotations = {ADDRESS_ANNOTATION: ADDRESS}
    status = {"loadBalancer": {"ingress": [{"ip": ADDRESS}]}}
    world.original.change_service(name, {"metadata": {"annotations": annotations}, "status": status})


def _say(world: World, status: str, message: str) -> None:
    condition = {"type": LOAD_BALANCER_READY, "status": status, "reason": "Reason", "message": message}
    world.original.change_service("a", {"status": {"conditions": [condition]}})


def _at_rest(world: World) -> list[str]:
    return [problem for problem in AtRest(world, world.original).differences() if problem.startswith("a ")]


SILENT: Final = f"a shows {ADDRESS}, cluster, which is not announced by kube-vip"


def test_address_that_is_silent_without_an_explanation_is_noticed() -> None:
    with _world() as world:
        world.harvester.change(LOAD_BALANCERS, "vms/of-a", {"spec": {"workloadType": "cluster"}})
        status = {"loadBalancer": {"ingress": [{"ip": ADDRESS}]}}
        world.original.change_service("a", {"status": status, "metadata": {"annotations": {KUBE_VIP_IGNORE: "true"}}})
        world.original.restore_endpoints("a")
        _say(world, "True", "usual")
        assert _at_rest(world) == [SILENT]
        world.guest.put(EVENTS, _event_about(world, "the right is missing"))
        assert _at_rest(world) == [SILENT]
        _say(world, "True", "usual, and the right is missing")
        assert _at_rest(world) == []


def _event_about(world: World, message: str, kind: str = "Warning") -> Document:
    service = world.original.service("a")
    assert service is not None
    about = {"uid": service["metadata"]["uid"]}
    name = f"a.{world.guest.version}"
    metadata = {"name": name, "namespace": "shop", "resourceVersion": str(world.guest.version)}
    return {"metadata": metadata, "involvedObject": about, "message": message, "type": kind}


def test_address_that_stays_up_without_a_load_balancer_needs_a_warning() -> None:
    announced = f"{ADDRESS} is announced for shop/a, and no load balancer has it"
    with _world() as world:
        oracles = Oracles(world)
        world.original.restore_endpoints("a")
        _publish(world, "a")
        _pass(world, 10.0)
        world.harvester.remove(LOAD_BALANCERS, "vms/of-a")
        _pass(world, 1.0)
        assert oracles.unheld(0.0) == [announced]
        assert _at_rest(world) == ["a has no load balancer"]
        world.guest.put(EVENTS, _event_about(world, "it is another Harvester"))
        assert oracles.unheld(0.0) == _at_rest(world) == []
        world.guest.put(EVENTS, _event_about(world, "all is well", "Normal"))
        assert oracles.unheld(0.0) == [announced]
        assert _at_rest(world) == ["a has no load balancer"]


def test_address_of_a_vm_load_balancer_that_kube_vip_announces_is_noticed() -> None:
    with _world() as world:
        world.harvester.change(LOAD_BALANCERS, "vms/of-a", {"spec": {"workloadType": "cluster"}})
        world.original.restore_endpoints("a")
        _publish(world, "a")
        _pass(world, 10.0)
        _say(world, "True", "usual")
        assert _at_rest(world) == []
        world.harvester.change(LOAD_BALANCERS, "vms/of-a", {"spec": {"workloadType": "vm"}})
        assert _at_rest(world) == [f"a shows {ADDRESS}, vm, which is announced by kube-vip"]


def test_condition_that_stays_false_without_an_explanation_is_noticed() -> None:
    with _world() as world:
        _publish(world, "a")
        _say(world, "False", "waits")
        assert _at_rest(world) == [f"a shows {ADDRESS}, and its condition is not True"]


@pytest.mark.parametrize("change", [{"spec": {"type": "ClusterIP"}}, {"spec": {"loadBalancerClass": "example.com/x"}}])
def test_remains_of_a_service_are_noticed(change: Document) -> None:
    with _world() as world:
        world.original.change_service("a", change)
        assert _at_rest(world) == ["a is not cleaned up"]


def test_load_balancer_without_a_service_is_noticed() -> None:
    with _world() as world:
        world.original.release(SERVICE_FINALIZER)
        world.original.delete_service("a")
        assert "of-a has no Service" in AtRest(world, world.original).differences()


def _kills(*pauses: float, name: str = "") -> list[Action]:
    more = {"name": name} if name else {}
    return [Action(pause, "clear_status" if name else "stop", more) for pause in pauses]


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        pytest.param(_kills(0.0, 30.0), 2, id="two within a minute"),
        pytest.param(_kills(0.0, 30.0, 29.0), 3, id="three within a minute"),
        pytest.param(_kills(0.0, 30.0, 30.0), 2, id="three in more than a minute"),
        pytest.param([*_kills(0.0, name="a"), *_kills(0.0, name="b"), *_kills(0.0)], 2, id="of two Services"),
        pytest.param([Action(0.0, "halt", {"seconds": 100}), *_kills(150.0)], 2, id="one that lasts"),
        pytest.param([Action(0.0, "retype", {"name": "a", "type": "NodePort"})] * 5, 0, id="of a user"),
        pytest.param([Action(0.0, "annotate", {"name": "a", "annotations": {ADDRESS_ANNOTATION: None}})], 1, id="ours"),
    ],
)
def test_budget_counts_the_disturbances_of_a_service_in_a_minute(actions: list[Action], expected: int) -> None:
    assert most_in_a_minute(actions) == expected
    assert most_in_a_minute(within_budget(actions)) == min(expected, DISTURBANCES)
    assert len(within_budget(actions)) == len(actions)
