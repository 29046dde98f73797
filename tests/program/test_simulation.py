"""The simulation itself: its actions can run, and its oracles notice what they are for."""

import asyncio
import inspect
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import pytest

from devenv.announcement import ADDRESS_ANNOTATION, DEFAULT_CLASS, Version
from devenv.harvester.pools import booked
from devenv.harvester.records import POOLS
from harvester_ccm.config import Announcer
from harvester_ccm.model.core import ENDPOINT_SLICES, NODES, SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
    ANNOUNCED_AS,
    IP_POOL,
    KUBE_VIP_IGNORE,
    LB_CLUSTER,
    LB_SERVICE_NAME,
    LOAD_BALANCER_READY,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    RESYNC_TRIGGER,
    SERVICE_FINALIZER,
    WORKLOAD_TYPE,
    Reason,
)
from tests.simulation.actions import LAN, Fragment
from tests.simulation.actions import SERVICES as NAMES
from tests.simulation.address_oracle import CACHE_DELAY, CORRECTED_WITHIN, AddressOracle
from tests.simulation.amount_oracle import EVENTS_OF_RUN, WRITES, WRITES_AFTER_DELETION, AmountOracle
from tests.simulation.facts import shown
from tests.simulation.fragments import FAMILIES
from tests.simulation.loop import SeededLoop
from tests.simulation.oracles import Oracles
from tests.simulation.request_oracle import RequestOracle
from tests.simulation.rest import AtRest
from tests.simulation.runner import ActionRunner
from tests.simulation.schedule import is_about_announcement, is_touch_of
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
        pytest.param("PATCH", {"metadata": {"annotations": {ANNOUNCED_AS: "{}"}}}, True, id="record"),
        pytest.param("PATCH", {"metadata": {"annotations": {ADDRESS_ANNOTATION: ""}}}, False, id="annotation"),
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


@pytest.mark.parametrize(
    ("verb", "collection", "services", "expected"),
    [
        pytest.param("PATCH", "endpointslices", {"b"}, True, id="touch"),
        pytest.param("PATCH", "endpointslices", {"a"}, False, id="another Service"),
        pytest.param("DELETE", "endpointslices", {"b"}, False, id="deletion"),
        pytest.param("PATCH", "services", {"b"}, False, id="Service"),
    ],
)
def test_touches_of_endpoints_at_rest(verb: str, collection: str, services: set[str], *, expected: bool) -> None:
    call = Call(verb, f"/namespaces/shop/{collection}/b-guest-1", 0.0, {})
    assert is_touch_of(call, services) is expected


def _publish(world: World, name: str, address: str = ADDRESS) -> None:
    annotations = {ADDRESS_ANNOTATION: address}
    status = {"loadBalancer": {"ingress": [{"ip": address}]}}
    world.original.change_service(name, {"metadata": {"annotations": annotations}, "status": status})


def _condition(message: str, status: str = "True") -> Document:
    reason = "EnsuredLoadBalancer" if status == "True" else "AddressNotAnnounced"
    condition = {"type": LOAD_BALANCER_READY, "status": status, "reason": reason, "message": message}
    return {"status": {"conditions": [condition]}}


@pytest.mark.parametrize("another_stays", [True, False])
def test_another_load_balancer_that_vanishes_after_a_replacement_has_begun_is_no_fault(*, another_stays: bool) -> None:
    with _world() as world:
        world.original.change_service("a", {"status": {"loadBalancer": {"ingress": [{"ip": ADDRESS}]}}})
        Oracles(world)
        guest = world.original
        node = {"metadata": {"name": "w1"}, "spec": {"providerID": "harvester://gone"}, "status": {}}
        guest.server.put(NODES, node)
        labels = {LB_CLUSTER: CLUSTER.name, LB_SERVICE_NAME: "b"}
        metadata = {"name": "of-b", "namespace": CLUSTER.namespace, "labels": labels}
        if another_stays:
            world.harvester.put(LOAD_BALANCERS, {"metadata": metadata, "spec": {"ipam": "pool"}})
        _pass(world, CACHE_DELAY)
        replaced = world.harvester.of(LOAD_BALANCERS)["vms/of-a"]
        guest.note_deletion(replaced, world.loop.time())
        if another_stays:
            world.harvester.remove(LOAD_BALANCERS, "vms/of-b")
        world.harvester.remove(LOAD_BALANCERS, "vms/of-a")
        assert guest.is_in_another_harvester() is another_stays


def test_settings_that_are_changed_back_before_the_controller_sees_it_are_known() -> None:
    with _world() as world:
        guest = world.original
        guest.change_settings("b", {"externalTrafficPolicy": "Local"})
        assert guest.settings_restored == set()
        guest.change_settings("b", {"externalTrafficPolicy": "Cluster"})
        assert guest.settings_restored == {"b"}
        guest.change_settings("a", {"externalTrafficPolicy": "Local"})
        guest.change_service("a", {"metadata": {"annotations": {ANNOUNCED_AS: '{"fields": "Local IPv4 SingleStack"}'}}})
        guest.change_settings("a", {"externalTrafficPolicy": "Cluster"})
        assert guest.settings_restored == {"b"}
        guest.create_service("c", {"type": "LoadBalancer", "ports": []}, {})
        guest.change_settings("c", {"externalTrafficPolicy": "Local"})
        assert guest.settings_restored == {"b", "c"}, "kube-vip can have announced it before the controller"


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
        oracle = RequestOracle(world)
        assert problem in oracle.check_arrival(call)
        assert bool(oracle.check_arrival(call)) is bool(problem)
        outdated = Call("PATCH", call.path, call.at, {**body, "metadata": {"resourceVersion": "1"}}, "p.1")
        assert not oracle.check_arrival(outdated) or "more of a pool" in problem


def test_oracle_of_requests_misses_the_request_of_a_permitted_address() -> None:
    with _world() as world:
        oracle, guest = RequestOracle(world), world.original
        spec = {"type": "LoadBalancer", "loadBalancerIP": "10.0.0.11", "ports": []}
        guest.create_service("c", spec, {IP_POOL: LAN})
        _pass(world, 1.0)
        body = {"metadata": {"name": "demo-shop-c-1", "labels": {LB_SERVICE_NAME: "c"}}}
        call = Call("POST", LOAD_BALANCERS.path("vms"), world.loop.time(), body, "p.1")
        assert oracle.check_creation(call) == "", "not permitted"
        world.permit_requests(guest, permitted=True)
        _pass(world, 700.0)
        assert oracle.check_creation(call).endswith("without the request of 10.0.0.11")
        guest.change_service("c", {"status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.11"}]}}})
        assert oracle.check_creation(call).endswith("without the request of 10.0.0.11"), "kube-vip has written it"
        guest.condition_removed.add("c")
        assert oracle.check_creation(call) == "", "it looks like a Service of another provider"
        guest.condition_removed.clear()
        version = world.harvester.of(POOLS)[LAN]["metadata"]["resourceVersion"]
        requested = {
            "metadata": {"resourceVersion": version},
            "status": {"allocatedHistory": {"10.0.0.11": "vms/demo-shop-c-1"}},
        }
        oracle.check_arrival(Call("PATCH", POOLS.path(None, LAN), world.loop.time(), requested, "p.1"))
        world.harvester.change(POOLS, LAN, {"status": {"allocatedHistory": {"10.0.0.11": "vms/drill-shop-c-1"}}})
        assert oracle.check_creation(call) == "", "another cluster has requested it since"


def test_oracle_of_requests_accepts_a_wait_for_an_address_that_another_load_balancer_gets_next() -> None:
    with _world() as world:
        oracle, guest = RequestOracle(world), world.original
        guest.create_service("c", {"type": "LoadBalancer", "loadBalancerIP": "10.0.0.11", "ports": []}, {IP_POOL: LAN})
        waits = {"type": LOAD_BALANCER_READY, "status": "False", "reason": Reason.ADDRESS_IN_USE}
        guest.change_service("c", {"status": {"conditions": [waits]}})
        world.permit_requests(guest, permitted=True)
        service = guest.server.of(SERVICES)["shop/c"]
        assert not oracle.waits_rightly(guest, service)
        world.harvester.change(POOLS, LAN, {"status": {"allocatedHistory": {"10.0.0.11": "vms/of-b"}}})
        assert not oracle.waits_rightly(guest, service), "there is no load balancer of this name"
        metadata = {"name": "of-b", "namespace": CLUSTER.namespace}
        world.harvester.put(LOAD_BALANCERS, {"metadata": metadata, "spec": {"ipam": "pool"}})
        assert oracle.waits_rightly(guest, service)


@pytest.mark.parametrize("writer", ["another client", "its user", "kube-vip", "the controller"])
def test_deletion_is_a_fault_unless_others_gave_a_released_service_the_address(writer: str) -> None:
    with _world() as world:
        guest = world.original
        Oracles(world)
        world.harvester.change(LOAD_BALANCERS, "vms/of-a", {"spec": {"workloadType": "cluster"}})
        released = {"metadata": {"finalizers": [], "annotations": {PRIMARY_SERVICE: "shop/a"}}}
        guest.change_service("b", {**released, "spec": {"type": "ClusterIP"}})
        if writer == "another client":
            ActionRunner(world).write_address("b", "a")
        elif writer == "its user":
            guest.change_service("b", {"spec": {"type": "LoadBalancer"}})
            ActionRunner(world).request_address("b", "a")
        elif writer == "kube-vip":
            _have_kube_vip_write_the_status(world)
        else:
            guest.change_service("b", {"metadata": {"annotations": {ADDRESS_ANNOTATION: ADDRESS}}})
        uid = world.harvester.of(LOAD_BALANCERS)["vms/of-a"]["metadata"]["uid"]
        body = {"preconditions": {"uid": uid}}
        deletion = Call("DELETE", LOAD_BALANCERS.path("vms", "of-a"), world.loop.time(), body, "p.1")
        for arrived in world.harvester.on_arrived:
            arrived(deletion)
        said = f"p.1 deletes of-a before {ADDRESS} is withdrawn from b"
        assert (said in world.wrong) is (writer == "the controller")


def _have_kube_vip_write_the_status(world: World) -> None:
    """Have kube-vip announce the address for an event of before the release, with which it writes the status."""
    guest = world.original
    for kind, address in (("LoadBalancer", ADDRESS), ("ClusterIP", None)):
        guest.change_service("b", {"spec": {"type": kind}, "metadata": {"annotations": {ADDRESS_ANNOTATION: address}}})
        _pass(world, CACHE_DELAY)
    # The pool of this world has no allocation, which Harvester takes for a released one.
    world.controllers.let_go.clear()
    service = guest.service("b")
    assert service is not None
    assert shown(service) == (ADDRESS,)


@pytest.mark.parametrize("is_blocked", [True, False])
def test_touch_is_missed_while_events_of_the_service_wait_in_the_queue_of_kube_vip(*, is_blocked: bool) -> None:
    with _world() as world:
        guest = world.original
        if is_blocked:
            guest.create_service("c", {"type": "LoadBalancer", "ports": []}, {})
        guest.release(SERVICE_FINALIZER)
        guest.delete_service("b")
        guest.create_service("b", {"type": "LoadBalancer", "ports": []}, {ADDRESS_ANNOTATION: ADDRESS})
        guest.restore_endpoints("b")
        _pass(world, 1.0 if is_blocked else 100.0)
        (touched,) = [key for key in world.guest.of(ENDPOINT_SLICES) if key.startswith("shop/b-")]
        world.guest.change(ENDPOINT_SLICES, touched, {"metadata": {"annotations": {RESYNC_TRIGGER: "1"}}})
        # The queue has the deletion of the earlier Service as well.
        _pass(world, 200.0)
        assert guest.kube_vip.missed_touches == ({"shop/b"} if is_blocked else set())


def test_address_that_others_write_before_the_controller_is_known() -> None:
    with _world() as world:
        runner, guest = ActionRunner(world), world.original
        runner.write_address("b", "a")
        assert guest.address_restored == set()
        guest.change_service("b", {"metadata": {"annotations": {PRIMARY_SERVICE: "shop/a", ADDRESS_ANNOTATION: ""}}})
        runner.write_address("b", "a")
        assert guest.address_restored == {"b"}, "kube-vip withdraws, and the controller finds the right one"


@pytest.mark.parametrize("ignored", ["true", "false"])
def test_address_that_others_remove_before_the_controller_sees_it_is_hidden_if_kube_vip_ignores_it(
    ignored: str,
) -> None:
    with _world() as world:
        runner, guest = ActionRunner(world), world.original
        guest.change_service("b", {"metadata": {"annotations": {KUBE_VIP_IGNORE: ignored}}})
        runner.write_address("b", "a")
        assert guest.address_hidden == set()
        runner.write_address("b", "c")
        assert guest.address_hidden == ({"b"} if ignored == "true" else set())


def test_settings_that_change_while_another_program_announces_are_not_noted() -> None:
    with _world() as world:
        guest = world.original
        world.set_announcer(Announcer.OTHER)
        guest.change_settings("b", {"externalTrafficPolicy": "Local"})
        assert guest.unseen_changes() == set()
        world.set_announcer(Announcer.KUBE_VIP)
        assert guest.unseen_changes() == {"b"}
        _publish(world, "a")
        guest.change_settings("a", {"externalTrafficPolicy": "Local"})
        assert guest.unseen_changes() == {"a", "b"}, "no process leads yet"


def test_clone_has_lost_the_marks_that_another_client_removed_from_the_original() -> None:
    with _world() as world, _world() as another:
        ActionRunner(world).annotate("b", {ADDRESS_ANNOTATION: None})
        another.original.copy_facts(world.original)
        assert another.original.mark_removed == {"b"}


def _found_at_rest(world: World, name: str) -> list[str]:
    """Return what is wrong about a Service of the original cluster in the final state."""
    found = AtRest(world, world.original, RequestOracle(world)).differences()
    return [one for one in found if one.startswith(f"{name} ")]


def test_address_of_another_client_replaces_the_mark_on_a_service_of_another_class() -> None:
    with _world() as world:
        guest = world.original
        other_class = {"loadBalancerClass": "example.com/other"}
        guest.change_service("b", {"spec": other_class, "metadata": {"annotations": {ADDRESS_ANNOTATION: ""}}})
        assert _found_at_rest(world, "b") == ["b is not cleaned up"]
        ActionRunner(world).write_address("b", "a")
        assert _found_at_rest(world, "b") == []


def test_load_balancer_without_its_mark_is_not_that_of_a_service_that_shows_nothing() -> None:
    with _world() as world:
        guest = world.original
        guest.create_service("c", {"type": "LoadBalancer", "loadBalancerIP": "10.0.0.99", "ports": []}, {IP_POOL: LAN})
        waits = {"type": LOAD_BALANCER_READY, "status": "False", "reason": Reason.INVALID_ANNOTATION}
        guest.change_service("c", {"status": {"conditions": [waits]}})
        world.permit_requests(guest, permitted=True)
        labels = {LB_CLUSTER: CLUSTER.name, LB_SERVICE_NAME: "c"}
        metadata = {"name": "of-c", "namespace": CLUSTER.namespace, "labels": labels}
        status = {"allocatedAddress": {"ip": "10.0.0.11"}}
        world.harvester.put(LOAD_BALANCERS, {"metadata": metadata, "spec": {"ipam": "pool"}, "status": status})
        assert _found_at_rest(world, "c") == []


@pytest.mark.parametrize(("version", "expected"), [((1, 1, 2), False), ((1, 2, 3), True)])
def test_silent_address_of_another_announcer_is_wrong_if_kube_vip_needs_no_other_spelling(
    version: Version, *, expected: bool
) -> None:
    with _world() as world:
        guest = world.original
        guest.kube_vip._settings = replace(guest.kube_vip._settings, version=version, load_balancer_class=DEFAULT_CLASS)
        balancer = world.harvester.of(LOAD_BALANCERS)[f"{CLUSTER.namespace}/of-a"]
        world.harvester.put(LOAD_BALANCERS, {**balancer, "spec": {"ipam": "pool", "workloadType": "cluster"}})
        guest.change_service("a", {"status": {"loadBalancer": {"ingress": [{"ip": ADDRESS}]}}})
        wrong = f"{ADDRESS} of a, cluster, is not announced by kube-vip"
        assert wrong in AtRest(world, guest, RequestOracle(world)).differences()
        world.set_announcer(Announcer.OTHER)
        assert (wrong in AtRest(world, guest, RequestOracle(world)).differences()) is expected


def test_lease_that_kube_vip_writes_to_a_service_that_is_not_served_stays() -> None:
    with _world() as world:
        guest = world.original
        guest.create_service("c", {"type": "LoadBalancer", "ipFamilies": ["IPv6"], "ports": []}, {})
        guest.change_service("c", {"status": {"loadBalancer": {"ingress": [{"ip": "10.10.0.22"}]}}})
        wrong = "c shows what it does not have"
        assert wrong in AtRest(world, guest, RequestOracle(world)).differences()
        guest.kube_vip.status_written.add(guest.server.of(SERVICES)["shop/c"]["metadata"]["uid"])
        assert wrong not in AtRest(world, guest, RequestOracle(world)).differences()


def test_removal_of_the_condition_hides_that_a_touch_is_due() -> None:
    with _world() as world:
        runner, guest = ActionRunner(world), world.original
        guest.change_service("b", _condition("usual"))
        runner.write_condition("b", None)
        assert guest.unseen_changes() == set()
        waits = {"type": LOAD_BALANCER_READY, "status": "False", "reason": Reason.ANNOUNCING}
        guest.change_service("b", {"status": {"conditions": [waits]}})
        runner.write_condition("b", None)
        assert guest.unseen_changes() == {"b"}


def test_restored_cluster_counts_as_a_change_of_every_service() -> None:
    with _world() as world:
        world.original.change_service("a", {"status": {"loadBalancer": {"ingress": [{"ip": ADDRESS}]}}})
        Oracles(world)
        guest = world.original
        _pass(world, 5.0)
        guest.change_service("b", {"metadata": {"labels": {"color": "blue"}}})
        assert world.restore("guest", 5.0, 0.0)
        assert guest.last_action == {"a": world.loop.time(), "b": world.loop.time()}


@pytest.mark.parametrize(
    "disturb", [lambda runner: runner.edit_balancer("b", "conditions"), lambda runner: runner.open_pool(False)]
)
def test_allocation_that_an_administrator_disturbs_can_get_lost(disturb: Callable[[ActionRunner], None]) -> None:
    with _world() as world:
        labels = {LB_CLUSTER: CLUSTER.name, LB_SERVICE_NAME: "b"}
        metadata = {"name": "of-b", "namespace": CLUSTER.namespace, "labels": labels}
        world.harvester.put(LOAD_BALANCERS, {"metadata": metadata, "spec": {"ipam": "pool", "ipPool": LAN}})
        while "of-b" not in world.pools.allocations().values():
            _pass(world, 0.001)
        assert not any(owner == "vms/of-b" for _, owner in world.controllers.forgotten)
        disturb(ActionRunner(world))
        assert any(owner == "vms/of-b" for _, owner in world.controllers.forgotten)
