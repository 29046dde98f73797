"""Which load balancers are left over, and which of them are deleted."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from harvester_ccm.config import OrphanPolicy
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.names import (
    DEFAULT_CLUSTER_NAME,
    LB_ASKED_AGAIN,
    LB_CLUSTER,
    LB_OWNER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    LB_SERVICE_UUID,
    SERVICE_FINALIZER,
)
from harvester_ccm.plan.service.load_balancer import LoadBalancerChange
from harvester_ccm.plan.service.orphans import (
    DELETION_WINDOW,
    DELETIONS_AT_ONCE,
    LOOK_AGAIN,
    LOOK_AGAIN_SEEN,
    ORPHAN_GRACE,
    OrphanPlan,
    Suspicion,
    deletion_turn,
    plan_orphan,
)
from tests.worlds.builders import ADDRESS, CLASS_ONLY, CLUSTER, allocated, load_balancer, marked, service

CERTAIN = Suspicion(age=ORPHAN_GRACE)
SEEN_GONE = Suspicion(age=0, seen_gone=True)
NOTHING = OrphanPlan()
GONE = "made by this cluster for a Service that is gone or not served by it"
DELETED = OrphanPlan(delete=True, because=GONE, report=True)
UNNAMED = ClusterIdentity(DEFAULT_CLUSTER_NAME, CLUSTER.namespace, CLUSTER.uid)
UNKNOWN_UID = ClusterIdentity(CLUSTER.name, CLUSTER.namespace)


def unmarked(cluster: str = CLUSTER.name) -> Any:
    """Return a load balancer as the Go provider makes it."""
    found = allocated()
    labels = {**(found.metadata.labels or {}), LB_CLUSTER: cluster}
    return load_balancer(found.metadata.name, labels=labels, ip="10.0.0.1", pool="lan", address="10.0.0.1")


def test_deleted_when_its_service_is_gone() -> None:
    assert plan_orphan(allocated(), None, CLUSTER, CERTAIN) == DELETED


NO_POOL = "no matched IPPool with requirement"
ASKED = {LB_ASKED_AGAIN: "true"}
ASK_AGAIN = LoadBalancerChange(annotations=ASKED, ask_again=True)
EXHAUSTED = "fail to get ip from pool lan, error: no IP addresses available in range set: 10.0.0.1-10.0.0.2"


REFUSED: dict[str, tuple[Any, LoadBalancerChange]] = {
    "no pool fits": (marked(message=NO_POOL), ASK_AGAIN),
    "still no pool fits": (marked(message=NO_POOL, annotations=ASKED), LoadBalancerChange()),
    "a pool has none left": (marked(message=EXHAUSTED), LoadBalancerChange(closing_pool="lan")),
    "its pool is named": (marked(closed="lan", message=""), LoadBalancerChange()),
}


@pytest.mark.parametrize(("found", "first"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_address_is_no_reason_to_keep_it(found: Any, first: LoadBalancerChange) -> None:
    assert plan_orphan(found, None, CLUSTER, CERTAIN) == replace(DELETED, first=first)
    reported = plan_orphan(found, None, CLUSTER, CERTAIN, OrphanPolicy.REPORT)
    assert reported == replace(DELETED, delete=False), "nothing is written of one that is not deleted"


def test_one_that_was_asked_again_is_kept_until_harvester_answers() -> None:
    plan = plan_orphan(marked(annotations=ASKED), None, CLUSTER, CERTAIN)
    assert (plan.delete, plan.first) == (False, LoadBalancerChange())


NOT_LEFT_OVER: dict[str, tuple[Any, Any, ClusterIdentity]] = {
    "its Service is there": (allocated(), service(), CLUSTER),
    "another Service of its name is there": (allocated(), service(uid="another"), CLUSTER),
    "its Service is on its way out": (allocated(), service(ours=True, deleting=True), CLUSTER),
    "its Service is internal by now and is being cleaned up": (
        allocated(),
        service(kind="ClusterIP", finalizers=[SERVICE_FINALIZER]),
        CLUSTER,
    ),
    "being deleted": (allocated(deleting=True), None, CLUSTER),
    "another cluster's": (allocated(annotations={LB_OWNER: "another"}), None, CLUSTER),
    "another cluster's, of our old name": (unmarked("another"), None, CLUSTER),
    "no mark, and a name that everybody has": (unmarked(DEFAULT_CLUSTER_NAME), None, UNNAMED),
    "nobody's": (load_balancer(ip="10.0.0.1"), None, CLUSTER),
    "made for no Service": (load_balancer(labels={LB_CLUSTER: CLUSTER.name}, ip="10.0.0.1"), None, CLUSTER),
    "no name of a Service": (allocated(labels={LB_SERVICE_NAME: ""}), None, CLUSTER),
    "no namespace of a Service": (allocated(labels={LB_SERVICE_NAMESPACE: ""}), None, CLUSTER),
    "a mark, and only the UID of a Service": (
        allocated(labels={LB_SERVICE_NAME: "", LB_SERVICE_NAMESPACE: ""}, annotations={LB_SERVICE_UUID: "gone"}),
        None,
        CLUSTER,
    ),
    "marked, and we do not know our own mark": (allocated(), None, UNKNOWN_UID),
}


@pytest.mark.parametrize(("found", "of", "cluster"), NOT_LEFT_OVER.values(), ids=NOT_LEFT_OVER.keys())
def test_not_left_over(found: Any, of: Any, cluster: ClusterIdentity) -> None:
    assert plan_orphan(found, of, cluster, CERTAIN) == NOTHING


def test_internal_service_without_finalizer_has_no_load_balancer() -> None:
    assert plan_orphan(allocated(), service(kind="ClusterIP"), CLUSTER, CERTAIN) == DELETED


def test_without_mark_it_is_reported_and_never_deleted() -> None:
    plan = plan_orphan(unmarked(), None, CLUSTER, CERTAIN)
    assert (bool(plan.because), plan.delete, plan.report, plan.look_again) == (True, False, True, None)
    assert "no owner mark" in plan.because


SHOWS_IT = (service("other", uid="other", address=ADDRESS),)
BOOKED, READ = "booked or refused", "cannot be read"
DOUBTS: dict[str, tuple[Any, Suspicion, str, bool, float]] = {
    "too early": (allocated(), Suspicion(age=ORPHAN_GRACE - 12), "looked left over for 30 s", False, 12.0),
    "caches behind": (allocated(), Suspicion(age=99, caches_current=False), READ, True, LOOK_AGAIN),
    "address shown": (allocated(), Suspicion(age=99, services=SHOWS_IT), "shows its address", True, LOOK_AGAIN),
    "address not booked": (marked(), CERTAIN, BOOKED, True, LOOK_AGAIN),
    "Harvester has not put its finalizer on": (allocated(finalizer=False), CERTAIN, BOOKED, True, LOOK_AGAIN),
    "seen to go, caches behind": (
        allocated(),
        Suspicion(age=0, seen_gone=True, caches_current=False),
        READ,
        False,
        LOOK_AGAIN_SEEN,
    ),
    "seen to go, address shown": (
        allocated(),
        Suspicion(age=0, seen_gone=True, services=SHOWS_IT),
        "shows its address",
        False,
        LOOK_AGAIN_SEEN,
    ),
    "seen to go, address not booked": (marked(), SEEN_GONE, BOOKED, False, LOOK_AGAIN_SEEN),
    "seen to go, without Harvester's finalizer": (
        allocated(finalizer=False),
        SEEN_GONE,
        BOOKED,
        False,
        LOOK_AGAIN_SEEN,
    ),
    "seen to go long ago, address not booked": (
        marked(),
        Suspicion(age=ORPHAN_GRACE, seen_gone=True),
        BOOKED,
        True,
        LOOK_AGAIN_SEEN,
    ),
}


@pytest.mark.parametrize(("found", "suspicion", "because", "report", "look_again"), DOUBTS.values(), ids=DOUBTS.keys())
def test_kept_while_there_is_a_doubt(
    found: Any, suspicion: Suspicion, because: str, report: bool, look_again: float
) -> None:
    plan = plan_orphan(found, None, CLUSTER, suspicion)
    assert (bool(plan.because), plan.delete, plan.report, plan.look_again) == (True, False, report, look_again)
    assert because in plan.because


@pytest.mark.parametrize("suspicion", [CERTAIN, SEEN_GONE], ids=["found", "seen to go"])
def test_not_too_many_at_once(suspicion: Suspicion) -> None:
    plan = plan_orphan(allocated(), None, CLUSTER, replace(suspicion, turn_in=12.0))
    assert (bool(plan.because), plan.delete, plan.braked, plan.look_again) == (True, False, True, 12.0)
    assert "20 were in the last 60 s" in plan.because
    reported = plan_orphan(allocated(), None, CLUSTER, replace(CERTAIN, turn_in=12.0), OrphanPolicy.REPORT)
    assert not reported.braked, "nothing is held up that would not be deleted anyway"


TURNS: dict[str, tuple[list[float], float, float]] = {
    "none before": ([], 100.0, 0.0),
    "room for one": ([100.0] * (DELETIONS_AT_ONCE - 1), 100.0, 0.0),
    "no room": ([100.0 + number for number in range(DELETIONS_AT_ONCE)], 125.0, DELETION_WINDOW - 25.0),
    "the first one is long ago": ([100.0, *([150.0] * (DELETIONS_AT_ONCE - 1))], 160.0, 0.0),
    "only the last ones count": ([*([1.0] * 50), *([100.0] * DELETIONS_AT_ONCE)], 110.0, DELETION_WINDOW - 10.0),
}


@pytest.mark.parametrize(("deletions", "now", "turn"), TURNS.values(), ids=TURNS.keys())
def test_whose_turn_it_is(deletions: list[float], now: float, turn: float) -> None:
    assert deletion_turn(deletions, now) == turn


SEEN: dict[str, tuple[Any, Any, bool]] = {
    "the Service is gone": (allocated(), None, True),
    "a new one wants none": (allocated(), service(uid="another", kind="ClusterIP"), True),
    "a new one is another controller's": (
        allocated(),
        service(uid="another", spec={"loadBalancerClass": "example.com/other"}),
        True,
    ),
    "address refused": (marked(closed="lan", message=""), None, True),
    "a new one takes it over": (allocated(), service(uid="another"), False),
    "a new one is being cleaned up": (
        allocated(),
        service(uid="another", kind="ClusterIP", finalizers=[SERVICE_FINALIZER]),
        False,
    ),
    "being deleted": (allocated(deleting=True), None, False),
    "another cluster's": (allocated(annotations={LB_OWNER: "another"}), None, False),
}


@pytest.mark.parametrize("policy", OrphanPolicy)
@pytest.mark.parametrize(("found", "present", "deleted"), SEEN.values(), ids=SEEN.keys())
def test_of_a_service_that_was_seen_to_go(found: Any, present: Any, deleted: bool, policy: OrphanPolicy) -> None:
    """There is no grace, and ``--orphan-lbs`` is not asked."""
    plan = plan_orphan(found, present, CLUSTER, SEEN_GONE, policy)
    assert plan == (OrphanPlan(delete=True, because=GONE) if deleted else NOTHING)


def test_service_that_was_seen_to_go_and_is_there_was_not_gone() -> None:
    plan = plan_orphan(allocated(), service(kind="ClusterIP"), CLUSTER, SEEN_GONE)
    assert (plan.delete, plan.look_again) == (False, ORPHAN_GRACE)
    assert plan_orphan(allocated(), service(kind="ClusterIP"), CLUSTER, SEEN_GONE, OrphanPolicy.OFF) == NOTHING


@pytest.mark.parametrize(("cluster", "deleted"), [(CLUSTER, False), (CLASS_ONLY, True)])
def test_a_new_one_takes_it_over_only_where_it_is_served(cluster: ClusterIdentity, deleted: bool) -> None:
    present = service(uid="another")
    assert plan_orphan(allocated(), present, cluster, SEEN_GONE).delete is deleted


def test_finalizer_of_another_service_does_not_keep_it_where_that_is_not_served() -> None:
    present = service(uid="another", finalizers=[SERVICE_FINALIZER])
    assert plan_orphan(allocated(), present, CLASS_ONLY, SEEN_GONE).delete
    # It may be the very Service that the load balancer serves, from before only one class was served.
    assert plan_orphan(allocated(), present, CLASS_ONLY, CERTAIN) == NOTHING


def test_nothing_is_ours_while_we_do_not_know_our_own_mark() -> None:
    assert plan_orphan(allocated(), None, UNKNOWN_UID, SEEN_GONE) == NOTHING
    for cluster in (CLUSTER, UNKNOWN_UID):
        assert not plan_orphan(allocated(annotations={LB_OWNER: ""}), None, cluster, SEEN_GONE).delete


@pytest.mark.parametrize(
    ("found", "policy", "expected"),
    [
        pytest.param(allocated(), OrphanPolicy.REPORT, OrphanPlan(False, GONE, True), id="reported"),
        pytest.param(allocated(), OrphanPolicy.OFF, NOTHING, id="off"),
        pytest.param(unmarked(), OrphanPolicy.OFF, NOTHING, id="off, and not certain"),
    ],
)
def test_policy_decides_about_one_that_was_found(found: Any, policy: OrphanPolicy, expected: OrphanPlan) -> None:
    assert plan_orphan(found, None, CLUSTER, CERTAIN, policy) == expected


def test_where_the_policy_is_off_nothing_is_reported_of_a_service_that_was_seen_to_go() -> None:
    plan = plan_orphan(allocated(), None, CLUSTER, replace(SEEN_GONE, age=ORPHAN_GRACE), OrphanPolicy.OFF)
    assert (plan.delete, plan.report) == (True, False)
