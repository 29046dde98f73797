"""The simulation itself: its actions can run, and its oracles notice what they are for."""

import asyncio
import inspect
import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from devenv.announcement import ADDRESS_ANNOTATION
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
    LB_CLUSTER,
    LB_SERVICE_NAME,
    LOAD_BALANCER_READY,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    SERVICE_FINALIZER,
    WORKLOAD_TYPE,
)
from tests.simulation.actions import SERVICES as NAMES
from tests.simulation.actions import Fragment
from tests.simulation.address_oracle import CACHE_DELAY, CORRECTED_WITHIN, AddressOracle
from tests.simulation.amount_oracle import EVENTS_OF_RUN, WRITES, WRITES_AFTER_DELETION, AmountOracle
from tests.simulation.fragments import FAMILIES
from tests.simulation.loop import SeededLoop
from tests.simulation.runner import ActionRunner
from tests.simulation.schedule import is_about_announcement
from tests.simulation.world import RECOVERY_SECONDS, World
from tests.support.builders import CLUSTER
from tests.support.memory_server import Call, Document, refused

ADDRESS: Final = "10.0.0.10"
PATH: Final = "/api/v1/namespaces/shop/services/b/status"
EVENTS_PATH: Final = "/api/v1/namespaces/shop/events"
FRAGMENTS: Final = [fragment for family in FAMILIES.values() for fragment in dict.fromkeys(family)]


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda fragment: fragment.__name__.strip("_"))
def test_actions_of_a_fragment_can_run(fragment: Fragment) -> None:
    for seed in range(30):
        for action in fragment(random.Random(seed), NAMES):
            verb = getattr(ActionRunner, action.verb)
            inspect.signature(verb).bind(None, **action.more)


@contextmanager
def _world() -> Iterator[World]:
    """Return a world without faults in which Service a has an address, and no controller runs."""
    loop = SeededLoop("oracles")
    asyncio.set_event_loop(loop)
    world = World(loop, "oracles", pool=3)
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


def test_address_that_a_load_balancer_lost_may_be_published_for_seconds() -> None:
    with _world() as world:
        world.original.change_service("b", {"metadata": {"annotations": {PRIMARY_SERVICE: "shop/a"}}})
        oracle = AddressOracle(world)
        oracle.look()
        world.harvester.remove(LOAD_BALANCERS, f"{CLUSTER.namespace}/of-a")
        oracle.look()
        _pass(world, CACHE_DELAY - 1)
        assert oracle.check_write(_publication(world)) == ""
        _pass(world, 2)
        assert "publishes 10.0.0.10 for b" in oracle.check_write(_publication(world))


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


def test_event_that_is_sent_again_is_not_repeated() -> None:
    with _world() as world:
        oracle = AmountOracle(world)
        event = _event(world, "no address")
        oracle.answered(event, None)
        # The guest was restored from a backup meanwhile, so the second request is accepted as well.
        oracle.answered(event, None)
        assert world.wrong == []


NOT_READY: Final = {"type": LOAD_BALANCER_READY, "status": "False", "reason": "NoMatchingPool", "message": ""}
READY: Final = {"type": LOAD_BALANCER_READY, "status": "True", "reason": "EnsuredLoadBalancer", "message": ""}
SPECIFIED: Final[Document] = {"spec": {"loadBalancerIP": "10.0.0.11"}, "status": {"conditions": [NOT_READY]}}


@pytest.mark.parametrize(
    ("change", "address", "is_permitted"),
    [
        pytest.param({}, "10.0.0.11", True, id="refused by Harvester"),
        pytest.param({}, "10.0.0.12", False, id="another address"),
        pytest.param({"status": {"conditions": [READY]}}, "10.0.0.11", False, id="called ready"),
        pytest.param({"spec": {"loadBalancerClass": "example.com/other"}}, "10.0.0.11", False, id="another class"),
        pytest.param({"metadata": {"annotations": {WORKLOAD_TYPE: "vm"}}}, "10.0.0.11", False, id="for VMs"),
    ],
)
def test_address_without_a_load_balancer_is_permitted_if_the_user_specifies_it(
    change: Document, address: str, *, is_permitted: bool
) -> None:
    with _world() as world:
        world.original.change_service("b", SPECIFIED)
        world.original.change_service("b", change)
        assert world.original.counts_as_request("b", address) is is_permitted


def test_specified_address_is_no_request_if_harvester_has_allocated_another_one() -> None:
    with _world() as world:
        world.original.change_service("a", SPECIFIED)
        assert not world.original.counts_as_request("a", "10.0.0.11")


OTHER_CLASS: Final[Document] = {"spec": {"loadBalancerClass": "example.com/other"}}


@pytest.mark.parametrize(
    ("mark", "stays"),
    [
        pytest.param({}, False, id="no mark"),
        pytest.param({"status": {"conditions": [NOT_READY]}}, True, id="condition"),
        pytest.param({"metadata": {"annotations": {ADDRESS_ANNOTATION: ""}}}, True, id="annotation"),
        pytest.param({"metadata": {"labels": {PRIMARY_SERVICE_LABEL: "shop.a"}}}, True, id="label"),
    ],
)
def test_other_controller_removes_only_a_finalizer_without_another_mark(mark: Document, *, stays: bool) -> None:
    with _world() as world:
        runner = ActionRunner(world)
        world.original.change_service("b", {"metadata": {"finalizers": []}})
        runner.write_finalizer("b", SERVICE_FINALIZER, present=True)
        world.original.change_service("b", OTHER_CLASS)
        world.original.change_service("b", mark)
        world.original.release_claimed()
        assert _has_finalizer(world, "b") is stays


def test_finalizer_of_this_controller_stays_if_the_class_changes() -> None:
    with _world() as world:
        world.original.change_service("b", OTHER_CLASS)
        world.original.release_claimed()
        assert _has_finalizer(world, "b")


def _has_finalizer(world: World, name: str) -> bool:
    service = world.original.service(name)
    return service is not None and SERVICE_FINALIZER in service["metadata"]["finalizers"]


@pytest.mark.parametrize(
    ("verb", "body", "permitted"),
    [
        pytest.param("PATCH", {"status": {"conditions": [NOT_READY]}}, True, id="condition"),
        pytest.param("PATCH", {"metadata": {"uid": "1"}, "status": {"conditions": [NOT_READY]}}, True, id="of a uid"),
        pytest.param("PATCH", {"metadata": {"annotations": {}}, "status": {"conditions": []}}, False, id="annotation"),
        pytest.param("PATCH", {"status": {"loadBalancer": {}}}, False, id="address"),
        pytest.param("PUT", {"status": {"conditions": [NOT_READY]}}, False, id="load balancer"),
        pytest.param("POST", {"reason": "NoEndpoints"}, True, id="Event"),
        pytest.param("POST", {"reason": "AddressChanged"}, False, id="other Event"),
    ],
)
def test_writes_about_an_announcement_at_rest(verb: str, body: Document, *, permitted: bool) -> None:
    call = Call(verb, PATH, 0.0, body)
    assert is_about_announcement(call, {"b"}) is permitted
    if verb == "PATCH":
        assert not is_about_announcement(call, {"a"}), "kube-vip had noted its node before"
