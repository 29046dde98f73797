"""The way out: what is withdrawn, deleted, cleared and let go, in which order, and what is waited for."""

from __future__ import annotations

from typing import Any

import pytest

from harvester_ccm.kube_vip_names import (
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    KUBE_VIP_INTERFACE,
    USER_IGNORE,
)
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.outcome import Done, Wait
from harvester_ccm.names import (
    LB_ASKED_AGAIN,
    LB_REQUESTED_NETWORK,
    LOAD_BALANCER_CLASS,
    NETWORK,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    REQUESTED_ADDRESS,
    Reason,
)
from harvester_ccm.plan.service.cleanup import before_deletion
from harvester_ccm.plan.service.load_balancer import LoadBalancerChange
from tests.unit.plan.service.plans import outline, plan, said
from tests.worlds.builders import ADDRESS, LB_NAME, allocated, marked, served, service
from tests.worlds.service_plan_world import ServicePlanWorld

WITHDRAW = {"service": {"annotations": {KUBE_VIP_ADDRESSES: ""}}}
LET_GO: dict[str, object] = {"finalizers": []}
DELETE = ["Normal DeletingLoadBalancer", {"delete": LB_NAME}, "Normal DeletedLoadBalancer"]
HANDS_OFF = {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}
FULL = "no IP addresses available in range set: 10.0.0.1-10.0.0.2"
EXHAUSTED = f"fail to get ip from pool lan, error: {FULL}"
NO_POOL = "no matched IPPool with requirement &{Network: Project: Namespace:vms Cluster:demo}"
NO_ALLOCATOR = "fail to get allocator lan"
NAME_POOL = {"write": LB_NAME, "closing_pool": "lan"}
ASKED = {LB_ASKED_AGAIN: "true"}
ASK_AGAIN = {"write": LB_NAME, "annotations": ASKED, "ask_again": True}
TOLD: list[object] = ["Warning DeletionPending"]
RESERVING = "fail to get ip from pool lan, error: fail to reserve 10.0.0.1 into lan"
KEPT = "example.com/keep"
ANOTHER = "192.168.100.99"


def pending(**more: Any) -> Any:
    return service(annotations={KUBE_VIP_ADDRESSES: ""}, **{"ours": True, "deleting": True, **more})


DELETIONS: dict[str, tuple[Any, Any, float, list[object], object]] = {
    "served": (
        served(deleting=True),
        allocated(),
        0.0,
        [WITHDRAW, *DELETE, {"service": {**LET_GO, "ingress": None}}],
        Done(),
    ),
    "an address was written when kube-vip ignored it": (
        service(annotations={**HANDS_OFF, KUBE_VIP_ADDRESSES: "10.9.9.9"}, ours=True, deleting=True),
        None,
        0.0,
        [{"service": {"annotations": {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: None}}}, {"service": LET_GO}],
        Done(),
    ),
    "withdrawn before": (
        service(annotations={KUBE_VIP_ADDRESSES: ""}, ours=True, deleting=True, address=ADDRESS),
        allocated(),
        0.0,
        [*DELETE, {"service": {**LET_GO, "ingress": None}}],
        Done(),
    ),
    "load balancer on its way already": (
        served(deleting=True),
        allocated(deleting=True),
        0.0,
        [WITHDRAW, "Normal DeletedLoadBalancer", {"service": {**LET_GO, "ingress": None}}],
        Done(),
    ),
    "load balancer on its way, not booked": (
        pending(),
        marked(deleting=True, finalizer=False),
        0.0,
        ["Normal DeletedLoadBalancer", {"service": LET_GO}],
        Done(),
    ),
    "load balancer gone": (
        served(deleting=True),
        None,
        0.0,
        [WITHDRAW, {"service": {**LET_GO, "ingress": None}}],
        Done(),
    ),
    "announced by its status alone": (
        service(ours=True, deleting=True, address=ADDRESS),
        allocated(),
        0.0,
        [WITHDRAW, *DELETE, {"service": {**LET_GO, "ingress": None}}],
        Done(),
    ),
    "the finalizer of somebody else stays": (
        served(deleting=True, finalizers=[KEPT]),
        allocated(),
        0.0,
        [WITHDRAW, *DELETE, {"service": {"finalizers": [KEPT], "ingress": None}}],
        Done(),
    ),
    "announced by Harvester": (
        service(annotations=HANDS_OFF, ours=True, deleting=True, address=ADDRESS),
        allocated(spec={"workloadType": "vm"}),
        0.0,
        [*DELETE, {"service": {**LET_GO, "ingress": None}}],
        Done(),
    ),
    "a secondary": (
        served(
            deleting=True, annotations={PRIMARY_SERVICE: "shop/front"}, labels={PRIMARY_SERVICE_LABEL: "shop.front"}
        ),
        None,
        0.0,
        [WITHDRAW, {"service": {**LET_GO, "ingress": None}}],
        Done(),
    ),
    "just created, not seen by Harvester": (pending(), marked(finalizer=False), 1.0, [], Wait("booking", 29.0)),
    "booked, without Harvester's finalizer": (
        pending(),
        allocated(finalizer=False, address=""),
        1.0,
        [],
        Wait("booking", 29.0),
    ),
    "Harvester has a conflict in the pool": (
        pending(),
        marked(message=RESERVING),
        1.0,
        [NAME_POOL],
        Wait("booking", 29.0),
    ),
    "waiting for the booking for long": (
        pending(),
        marked(finalizer=False),
        31.0,
        ["Warning DeletionPending"],
        Wait("booking", 269.0),
    ),
    "waited long enough": (pending(), marked(finalizer=False), 300.0, [*DELETE, {"service": LET_GO}], Done()),
    "a pool has none left": (pending(), marked(message=EXHAUSTED), 0.0, [NAME_POOL], Wait("booking", 30.0)),
    "its pool is named": (pending(), marked(closed="lan"), 0.0, [], Wait("booking", 30.0)),
    "its pool is named, Harvester is away": (pending(), marked(closed="lan"), 31.0, TOLD, Wait("booking", 269.0)),
    "its pool is named, and Harvester has seen it": (
        pending(),
        marked(closed="lan", message=""),
        0.0,
        [*DELETE, {"service": LET_GO}],
        Done(),
    ),
    "refused by a pool, not held": (
        pending(),
        marked(message=EXHAUSTED, finalizer=False),
        0.0,
        [],
        Wait("booking", 30.0),
    ),
    "no pool fits": (pending(), marked(message=NO_POOL), 0.0, [ASK_AGAIN], Wait("booking", 30.0)),
    "its pool does not exist": (pending(), marked(message=NO_ALLOCATOR), 0.0, [ASK_AGAIN], Wait("booking", 30.0)),
    "asked again, not answered": (pending(), marked(annotations=ASKED), 31.0, TOLD, Wait("booking", 269.0)),
    "asked again, no pool fits": (
        pending(),
        marked(message=NO_POOL, annotations=ASKED),
        0.0,
        [*DELETE, {"service": LET_GO}],
        Done(),
    ),
    "asked again, a pool has none left": (
        pending(),
        marked(message=EXHAUSTED, annotations=ASKED),
        31.0,
        [*TOLD, NAME_POOL],
        Wait("booking", 269.0),
    ),
}


@pytest.mark.parametrize(("asked", "found", "waited", "steps", "outcome"), DELETIONS.values(), ids=DELETIONS.keys())
def test_deletion(asked: Any, found: Any, waited: float, steps: list[object], outcome: object) -> None:
    assert outline(asked, *([found] if found else []), waited=waited) == (steps, outcome)


TYPE_CHANGES: dict[str, tuple[Any, Any, dict[str, object]]] = {
    "announced by kube-vip": (
        served(kind="ClusterIP"),
        allocated(),
        {"annotations": {KUBE_VIP_ADDRESSES: None}, **LET_GO, "ingress": None},
    ),
    "announced by Harvester": (
        service(kind="ClusterIP", annotations=HANDS_OFF, ours=True, address=ADDRESS),
        allocated(spec={"workloadType": "vm"}),
        {"annotations": {KUBE_VIP_ADDRESSES: None, KUBE_VIP_IGNORE: None}, **LET_GO, "ingress": None},
    ),
    "interrupted after the deletion": (
        service(kind="ClusterIP", annotations=HANDS_OFF, ours=True, address=ADDRESS),
        None,
        {"annotations": {KUBE_VIP_ADDRESSES: None, KUBE_VIP_IGNORE: None}, **LET_GO, "ingress": None},
    ),
    "our device goes, the user's wish stays": (
        served(
            kind="ClusterIP",
            annotations={NETWORK: "infra/vlan9", KUBE_VIP_INTERFACE: "eth1", REQUESTED_ADDRESS: "10.0.0.7"},
        ),
        allocated(annotations={LB_REQUESTED_NETWORK: "infra/vlan9"}),
        {"annotations": {KUBE_VIP_ADDRESSES: None, KUBE_VIP_INTERFACE: None}, **LET_GO, "ingress": None},
    ),
    "our device goes after a refused change of the network": (
        served(kind="ClusterIP", annotations={NETWORK: "infra/vlan8", KUBE_VIP_INTERFACE: "eth1"}),
        allocated(annotations={LB_REQUESTED_NETWORK: "infra/vlan9"}),
        {"annotations": {KUBE_VIP_ADDRESSES: None, KUBE_VIP_INTERFACE: None}, **LET_GO, "ingress": None},
    ),
    "in the middle of a change of the workload type": (
        service(kind="ClusterIP", annotations={KUBE_VIP_ADDRESSES: ""}, ours=True),
        None,
        {"annotations": {KUBE_VIP_ADDRESSES: None}, **LET_GO},
    ),
    "a device that the user chose stays": (
        served(kind="ClusterIP", annotations={NETWORK: "infra/vlan9", KUBE_VIP_INTERFACE: "bond7"}),
        allocated(annotations={LB_REQUESTED_NETWORK: "infra/vlan9"}),
        {"annotations": {KUBE_VIP_ADDRESSES: None}, **LET_GO, "ingress": None},
    ),
    "what the user told kube-vip stays": (
        served(kind="ClusterIP", annotations={KUBE_VIP_IGNORE: "true", USER_IGNORE: "true"}),
        allocated(),
        {"annotations": {KUBE_VIP_ADDRESSES: None, USER_IGNORE: None}, **LET_GO, "ingress": None},
    ),
    "a secondary": (
        served(kind="ClusterIP", labels={PRIMARY_SERVICE_LABEL: "shop.front"}),
        None,
        {
            "annotations": {KUBE_VIP_ADDRESSES: None},
            "labels": {PRIMARY_SERVICE_LABEL: None},
            **LET_GO,
            "ingress": None,
        },
    ),
    "never served": (
        service(kind="ClusterIP", annotations=HANDS_OFF),
        None,
        {"annotations": {KUBE_VIP_ADDRESSES: None, KUBE_VIP_IGNORE: None}},
    ),
    "of our class": (
        served(kind="ClusterIP", spec={"loadBalancerClass": LOAD_BALANCER_CLASS}),
        allocated(),
        {"annotations": {KUBE_VIP_ADDRESSES: None}, **LET_GO, "ingress": None},
    ),
}


@pytest.mark.parametrize(("asked", "found", "last"), TYPE_CHANGES.values(), ids=TYPE_CHANGES.keys())
def test_a_service_that_stays_loses_what_was_put_on_it(asked: Any, found: Any, last: dict[str, object]) -> None:
    steps, outcome = outline(asked, *([found] if found else []), network_devices={"infra/vlan9": "eth1"})
    assert steps[-1] == {"service": last}
    assert outcome == Done()


NOTED = {KUBE_VIP_HOST: "node-1"}
"""What is on a Service that kube-vip has announced."""
INTERNAL: dict[str, Any] = {"kind": "ClusterIP", "ours": True}
"""The API server empties the status with the change of the type."""
LEFT_UP: dict[str, tuple[Any, Any, str]] = {
    "announced": (service(annotations={**NOTED, KUBE_VIP_ADDRESSES: ADDRESS}, **INTERNAL), allocated(), ADDRESS),
    "announced by its status alone": (service(annotations=NOTED, **INTERNAL), allocated(), ADDRESS),
    "with a lease": (
        service(annotations={**NOTED, KUBE_VIP_ADDRESSES: "0.0.0.0"}, **INTERNAL),
        allocated(ip="0.0.0.0", address="10.115.3.9", spec={"ipam": "dhcp"}),
        "10.115.3.9",
    ),
    "a secondary": (
        service(
            annotations={**NOTED, KUBE_VIP_ADDRESSES: ADDRESS}, labels={PRIMARY_SERVICE_LABEL: "shop.front"}, **INTERNAL
        ),
        None,
        ADDRESS,
    ),
    "interrupted": (service(annotations={**NOTED, KUBE_VIP_ADDRESSES: ""}, **INTERNAL), None, "its address"),
}


@pytest.mark.parametrize(("asked", "found", "address"), LEFT_UP.values(), ids=LEFT_UP.keys())
def test_an_address_that_kube_vip_does_not_take_down_is_told(asked: Any, found: Any, address: str) -> None:
    text = said(plan(asked, *([found] if found else [])), Reason.STILL_ANNOUNCED)
    assert f"LoadBalancer: {address} may stay up on node node-1 until kube-vip restarts" in text


TAKEN_DOWN: dict[str, tuple[Any, Any]] = {
    "not announced yet": (service(annotations={KUBE_VIP_ADDRESSES: ADDRESS}, **INTERNAL), allocated()),
    "announced by Harvester": (
        service(annotations={**HANDS_OFF, **NOTED}, **INTERNAL),
        allocated(spec={"workloadType": "vm"}),
    ),
    "being deleted": (served(deleting=True, annotations=NOTED), allocated()),
    "being deleted after that": (service(deleting=True, annotations=NOTED, **INTERNAL), allocated()),
}


@pytest.mark.parametrize(("asked", "found"), TAKEN_DOWN.values(), ids=TAKEN_DOWN.keys())
def test_of_an_address_that_is_taken_down_nothing_is_told(asked: Any, found: Any) -> None:
    assert said(plan(asked, found), Reason.STILL_ANNOUNCED) == ""


OTHER_CLASS: dict[str, Any] = {"spec": {"loadBalancerClass": "example.com/other"}}
ANOTHERS: dict[str, Any] = {
    "annotations": {KUBE_VIP_ADDRESSES: "10.9.9.9", KUBE_VIP_IGNORE: "true"},
    "address": "10.9.9.9",
}
OTHER_CLASSES: dict[str, tuple[Any, Any, list[object]]] = {
    "with what we put on it": (
        served(**OTHER_CLASS),
        allocated(),
        [WITHDRAW, *DELETE, {"service": {"annotations": {KUBE_VIP_ADDRESSES: None}, **LET_GO, "ingress": None}}],
    ),
    "with what the other controller and its user put on it": (
        service(**OTHER_CLASS, **ANOTHERS, ours=True),
        allocated(),
        [*DELETE, {"service": LET_GO}],
    ),
    "being deleted, with the other one's address": (
        service(**OTHER_CLASS, **ANOTHERS, ours=True, deleting=True),
        allocated(),
        [*DELETE, {"service": LET_GO}],
    ),
    "never served by us": (
        service(**OTHER_CLASS, annotations=HANDS_OFF, address="10.9.9.9"),
        None,
        [{"service": {"annotations": {KUBE_VIP_ADDRESSES: None, KUBE_VIP_IGNORE: None}}}],
    ),
    "interrupted after the deletion": (
        service(**OTHER_CLASS, annotations=HANDS_OFF, address="10.9.9.9", ours=True),
        None,
        [{"service": {"annotations": {KUBE_VIP_ADDRESSES: None, KUBE_VIP_IGNORE: None}, **LET_GO}}],
    ),
}


@pytest.mark.parametrize(("asked", "found", "steps"), OTHER_CLASSES.values(), ids=OTHER_CLASSES.keys())
def test_a_service_that_went_to_another_class_is_left_with_what_is_not_ours(
    asked: Any, found: Any, steps: list[object]
) -> None:
    assert outline(asked, *([found] if found else [])) == (steps, Done())


def user(**more: Any) -> Any:
    """Return shop/api as it is when it shares the address of shop/web."""
    own = {"uid": "api", "annotations": {PRIMARY_SERVICE: "shop/web"}, "labels": {PRIMARY_SERVICE_LABEL: "shop.web"}}
    return served("api", **{**own, **more})


USERS: dict[str, tuple[tuple[Any, ...], bool]] = {
    "served": ((user(),), True),
    "being deleted, still announced": ((user(deleting=True),), True),
    "ClusterIP by now, still announced": ((user(kind="ClusterIP"),), True),
    "named another one meanwhile, but has the address yet": (
        (user(annotations={PRIMARY_SERVICE: "shop/edge"}, labels={PRIMARY_SERVICE_LABEL: "shop.web"}),),
        True,
    ),
    "lost the finalizer, still announced": ((user(ours=False),), True),
    "on its way out, without our finalizer": ((user(ours=False, deleting=True, finalizers=[KEPT]),), False),
    "never served": ((service("api", annotations={PRIMARY_SERVICE: "shop/web"}),), False),
    "has another address": (
        (user(address=ANOTHER, annotations={PRIMARY_SERVICE: "shop/web", KUBE_VIP_ADDRESSES: ANOTHER}),),
        False,
    ),
    "shows another address, and kube-vip is told this one": ((user(address=ANOTHER),), True),
    "ClusterIP long ago": (
        (service("api", kind="ClusterIP", labels={PRIMARY_SERVICE_LABEL: "shop.web"}, address=ADDRESS),),
        False,
    ),
    "has the address by chance, because it lost its own load balancer": ((user(labels={}),), False),
    "none": ((), False),
}


@pytest.mark.parametrize(("users", "held"), USERS.values(), ids=USERS.keys())
@pytest.mark.parametrize("asked", [served(deleting=True), served(kind="ClusterIP")], ids=["deleted", "ClusterIP"])
def test_an_address_that_others_share_is_kept(asked: Any, users: tuple[Any, ...], held: bool) -> None:
    steps, outcome = outline(asked, allocated(), own_secondaries=users, secondaries_of_primary=users, waited=1.0)
    if held:
        assert (steps, outcome) == (["Warning DeletionPending"], Wait("secondaries"))
        assert "shop/api" in said(plan(asked, allocated(), own_secondaries=users), Reason.DELETION_PENDING)
    else:
        assert outcome == Done()


def test_a_secondary_that_announces_nothing_holds_no_load_balancer_without_an_address() -> None:
    withdrawn = user(address=None, annotations={PRIMARY_SERVICE: "shop/web", KUBE_VIP_ADDRESSES: ""})
    found = marked(closed="lan", message="")
    users: dict[str, Any] = {"own_secondaries": (withdrawn,), "secondaries_of_primary": (withdrawn,)}
    assert outline(pending(), found, waited=1.0, **users)[1] == Done()


def test_an_address_that_no_load_balancer_holds_is_kept_for_nobody() -> None:
    assert outline(served(deleting=True), own_secondaries=(user(),), secondaries_of_primary=(user(),))[1] == Done()


def test_a_service_that_names_itself_as_its_primary_is_let_go() -> None:
    itself: dict[str, Any] = {
        "annotations": {PRIMARY_SERVICE: "shop/web"},
        "labels": {PRIMARY_SERVICE_LABEL: "shop.web"},
    }
    assert outline(served(deleting=True, **itself), allocated())[1] == Done()


def test_one_of_several_secondaries_can_be_deleted() -> None:
    asked = user(deleting=True, labels={PRIMARY_SERVICE_LABEL: "shop.web"})
    sibling = served("third", uid="third", annotations={PRIMARY_SERVICE: "shop/web"})
    assert outline(asked, primary=served(), secondaries_of_primary=(sibling,))[1] == Done()


def test_all_load_balancers_of_a_deleted_service_go() -> None:
    second = allocated(None, "older-shop-web-00000000", uid="second", ip="10.0.0.9", address="")
    steps, _ = outline(served(deleting=True), allocated(), second)
    assert [step for step in steps if isinstance(step, dict) and "delete" in step] == [
        {"delete": LB_NAME},
        {"delete": "older-shop-web-00000000"},
    ]


def test_a_broken_primary_annotation_does_not_hold_a_deletion() -> None:
    asked = served(deleting=True, annotations={PRIMARY_SERVICE: "nonsense"})
    assert outline(asked, allocated())[1] == Done()


FIRST: dict[str, tuple[Any, LoadBalancerChange | None]] = {
    "booked and held": (allocated(), LoadBalancerChange()),
    "dhcp": (marked(ip="0.0.0.0"), LoadBalancerChange()),
    "refused by a pool": (marked(message=EXHAUSTED, annotations=ASKED), LoadBalancerChange(closing_pool="lan")),
    "being booked": (marked(message=RESERVING), LoadBalancerChange(closing_pool="lan")),
    "refused by the pool that it names, up to Harvester 1.3": (
        marked(message=f"allocate ip for lb vms/lb failed, error: {FULL}", spec={"ipPool": "lan"}),
        LoadBalancerChange(closing_pool="lan"),
    ),
    "refused by the pool that it names, Harvester 1.4 to 1.6": (
        marked(message=FULL, spec={"ipPool": "lan"}, annotations=ASKED),
        LoadBalancerChange(closing_pool="lan"),
    ),
    "refused by a pool that Harvester chose and does not name": (
        marked(message=FULL),
        LoadBalancerChange(annotations=ASKED, ask_again=True),
    ),
    "being booked, up to Harvester 1.3": (
        marked(message="allocate ip for lb vms/lb failed, error: record 10.0.0.1 into lan failed"),
        LoadBalancerChange(closing_pool="lan"),
    ),
    "being booked, Harvester 1.4 to 1.6": (
        marked(message="fail to reserve 10.0.0.1 into lan"),
        LoadBalancerChange(closing_pool="lan"),
    ),
    "names a pool that does not exist": (
        marked(message=NO_ALLOCATOR, spec={"ipPool": "lan"}),
        LoadBalancerChange(annotations=ASKED, ask_again=True),
    ),
    "closed, not looked at since": (marked(closed="lan"), None),
    "closed, and looked at since": (marked(closed="lan", message=""), LoadBalancerChange()),
    "refused for want of a pool": (marked(message=NO_POOL), LoadBalancerChange(annotations=ASKED, ask_again=True)),
    "refused again for want of a pool": (marked(message=NO_POOL, annotations=ASKED), LoadBalancerChange()),
    "booked, not held": (allocated(finalizer=False), None),
    "held, not looked at": (marked(), None),
    "refused, not held": (marked(message=EXHAUSTED, finalizer=False), None),
}


@pytest.mark.parametrize(("found", "first"), FIRST.values(), ids=FIRST.keys())
def test_what_comes_before_a_deletion_that_loses_nothing(found: Any, first: LoadBalancerChange | None) -> None:
    assert before_deletion(found) == first


@pytest.mark.parametrize(("told", "deletes"), [(ADDRESS, False), ("", True)])
def test_an_address_that_kube_vip_is_told_to_announce_is_in_use_whatever_the_status_says(
    told: str, deletes: bool
) -> None:
    # Its user has cleared the status while nobody was there to mend it.
    notes, label = {KUBE_VIP_ADDRESSES: told, PRIMARY_SERVICE: "shop/web"}, {PRIMARY_SERVICE_LABEL: "shop.web"}
    other = service("api", uid="api", annotations=notes, labels=label, ours=True)
    steps, _ = outline(served(deleting=True), allocated(), own_secondaries=(other,), waited=1.0)
    assert ({"delete": LB_NAME} in steps) is deletes


def test_a_patch_in_progress_that_begins_to_share_the_address_is_waited_for() -> None:
    asking = service("api", uid="api", annotations={PRIMARY_SERVICE: "shop/web"}, ours=True)
    steps, outcome = outline(served(deleting=True), allocated(), own_secondaries=(asking,))
    assert (steps, outcome) == ([{"service": {"annotations": {KUBE_VIP_ADDRESSES: ""}}}], Wait("secondaries", 1.0))


def test_nothing_stays_booked_for_one_that_goes_while_harvester_books_for_it_after_all() -> None:
    world = ServicePlanWorld()
    for name in ("a", "b", "c"):
        world.guest.put(SERVICES, service(name, uid=f"uid-of-{name}"))
        for _ in range(3):
            world.reconcile(f"shop/{name}")
            for one in list(world.load_balancers):
                world.harvest(one)
    (refused,) = set(world.load_balancers) - set(world.booked.values())

    world.delete_service("shop/a")
    world.reconcile("shop/a")
    for one in list(world.load_balancers):
        world.harvest(one)
    assert refused in world.booked.values(), "the address that has become free"
    world.delete_service("shop/c")
    for _ in range(3):
        world.reconcile_together("shop/c")
    while refused in world.load_balancers:
        world.harvest(refused)
        world.reconcile_together("shop/c")
    assert refused not in world.booked.values()
    assert set(world.services) == {"shop/b"}
