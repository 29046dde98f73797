"""Which load balancers are left over, and which of them are deleted."""

from __future__ import annotations

from typing import Any

import pytest

from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.names import DEFAULT_CLUSTER_NAME, LB_CLUSTER, LB_OWNER, LB_SERVICE_NAME, SERVICE_FINALIZER
from harvester_ccm.plan.service.orphans import LOOK_AGAIN, OrphanPlan, Suspicion, plan_orphan
from harvester_ccm.plan.service.ownership import ORPHAN_GRACE
from tests.worlds.builders import CLUSTER, allocated, load_balancer, marked, service

CERTAIN = Suspicion(age=ORPHAN_GRACE, caches_current=True, address_in_use=False)
NOTHING = OrphanPlan()
DELETED = OrphanPlan(
    suspicious=True, delete=True, detail="made by this cluster for a Service that is gone or not served by it"
)
UNNAMED = ClusterIdentity(DEFAULT_CLUSTER_NAME, CLUSTER.namespace, CLUSTER.uid)
UNKNOWN_UID = ClusterIdentity(CLUSTER.name, CLUSTER.namespace)


def unmarked(cluster: str = CLUSTER.name) -> Any:
    """Return a load balancer as the Go provider makes it."""
    found = allocated()
    labels = {**(found.metadata.labels or {}), LB_CLUSTER: cluster}
    return load_balancer(found.metadata.name, labels=labels, ip="10.0.0.1", pool="lan", address="10.0.0.1")


def test_deleted_when_its_service_is_gone() -> None:
    assert plan_orphan(allocated(), None, CLUSTER, CERTAIN) == DELETED


def test_refused_address_is_no_reason_to_keep_it() -> None:
    found = marked(message="no matched IPPool with requirement")
    assert plan_orphan(found, None, CLUSTER, CERTAIN) == DELETED


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
    "no name of a Service": (allocated(labels={LB_SERVICE_NAME: ""}), None, CLUSTER),
    "marked, and we do not know our own mark": (allocated(), None, UNKNOWN_UID),
}


@pytest.mark.parametrize(("found", "of", "cluster"), NOT_LEFT_OVER.values(), ids=NOT_LEFT_OVER.keys())
def test_not_left_over(found: Any, of: Any, cluster: ClusterIdentity) -> None:
    assert plan_orphan(found, of, cluster, CERTAIN) == NOTHING


def test_internal_service_without_finalizer_has_no_load_balancer() -> None:
    assert plan_orphan(allocated(), service(kind="ClusterIP"), CLUSTER, CERTAIN) == DELETED


def test_without_mark_it_is_reported_and_never_deleted() -> None:
    plan = plan_orphan(unmarked(), None, CLUSTER, CERTAIN)
    assert (plan.suspicious, plan.delete, plan.look_again) == (True, False, None)
    assert "no owner mark" in plan.detail


DOUBTS: dict[str, tuple[Any, Suspicion, str, float]] = {
    "too early": (
        allocated(),
        Suspicion(age=ORPHAN_GRACE - 12, caches_current=True, address_in_use=False),
        "",
        12.0,
    ),
    "caches behind": (
        allocated(),
        Suspicion(age=99, caches_current=False, address_in_use=False),
        "cannot be read",
        LOOK_AGAIN,
    ),
    "address shown": (
        allocated(),
        Suspicion(age=99, caches_current=True, address_in_use=True),
        "shows its address",
        LOOK_AGAIN,
    ),
    "address not booked": (marked(), CERTAIN, "booked or refused", LOOK_AGAIN),
    "Harvester has not put its finalizer on": (allocated(finalizer=False), CERTAIN, "booked or refused", LOOK_AGAIN),
}


@pytest.mark.parametrize(("found", "suspicion", "detail", "look_again"), DOUBTS.values(), ids=DOUBTS.keys())
def test_kept_while_there_is_a_doubt(found: Any, suspicion: Suspicion, detail: str, look_again: float) -> None:
    plan = plan_orphan(found, None, CLUSTER, suspicion)
    assert (plan.suspicious, plan.delete, plan.look_again) == (True, False, look_again)
    assert detail in plan.detail
    assert bool(detail) == bool(plan.detail)
