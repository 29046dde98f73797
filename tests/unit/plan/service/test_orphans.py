"""Which load balancers are orphans, and which of them can be deleted."""

from __future__ import annotations

from typing import Any

import pytest

from harvester_ccm.errors import Unreachable
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.model.meta import Store
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
from harvester_ccm.plan.service.orphans import deletion_obstacle, is_orphan
from harvester_ccm.plan.service.snapshot import SERVICE_INDEXES
from tests.worlds.builders import ADDRESS, CLASS_ONLY, CLUSTER, allocated, load_balancer, marked, service

OTHER_CLASS = {"loadBalancerClass": "example.com/other"}
RENAMED = ClusterIdentity(CLUSTER.name, CLUSTER.namespace, CLUSTER.uid, former_names=("old",))
UNNAMED = ClusterIdentity(DEFAULT_CLUSTER_NAME, CLUSTER.namespace, CLUSTER.uid)
UNKNOWN_UID = ClusterIdentity(CLUSTER.name, CLUSTER.namespace)


def unmarked(cluster: str = CLUSTER.name) -> Any:
    """Return a load balancer as the Go provider makes it."""
    found = allocated()
    labels = {**(found.metadata.labels or {}), LB_CLUSTER: cluster}
    return load_balancer(found.metadata.name, labels=labels, ip="10.0.0.1", pool="lan", address="10.0.0.1")


ORPHANS: dict[str, tuple[Any, Any, ClusterIdentity]] = {
    "its Service does not exist": (allocated(), None, CLUSTER),
    "without owner annotation": (unmarked(), None, CLUSTER),
    "its Service became internal, without finalizer": (allocated(), service(kind="ClusterIP"), CLUSTER),
    "its Service has another class": (allocated(), service(spec=OTHER_CLASS), CLUSTER),
    "its Service is being deleted, without finalizer": (
        allocated(),
        service(deleting=True, finalizers=["example.com/keep"]),
        CLUSTER,
    ),
    "of a former cluster name": (allocated(labels={LB_CLUSTER: "old"}), None, RENAMED),
    "its Service has no class, and only one class is served": (allocated(), service(), CLASS_ONLY),
}


@pytest.mark.parametrize(("found", "of", "cluster"), ORPHANS.values(), ids=ORPHANS.keys())
def test_orphan(found: Any, of: Any, cluster: ClusterIdentity) -> None:
    assert is_orphan(found, of, cluster)


NO_ORPHANS: dict[str, tuple[Any, Any, ClusterIdentity]] = {
    "its Service is there": (allocated(), service(), CLUSTER),
    "another Service of its name is there": (allocated(), service(uid="another"), CLUSTER),
    "its Service is on its way out": (allocated(), service(ours=True, deleting=True), CLUSTER),
    "its Service is internal by now and is being cleaned up": (
        allocated(),
        service(kind="ClusterIP", finalizers=[SERVICE_FINALIZER]),
        CLUSTER,
    ),
    "its Service got another class and is being cleaned up": (
        allocated(),
        service(spec=OTHER_CLASS, finalizers=[SERVICE_FINALIZER]),
        CLUSTER,
    ),
    "its Service has the annotation of another controller": (
        allocated(),
        service(annotations={"metallb.io/ip-allocated-from-pool": "lan"}),
        CLUSTER,
    ),
    "its Service shows its address": (allocated(), service(kind="ClusterIP", address=ADDRESS), CLUSTER),
    "of another cluster name": (allocated(labels={LB_CLUSTER: "old"}), None, CLUSTER),
    "its Service was served before only one class was": (
        allocated(),
        service(finalizers=[SERVICE_FINALIZER]),
        CLASS_ONLY,
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


@pytest.mark.parametrize(("found", "of", "cluster"), NO_ORPHANS.values(), ids=NO_ORPHANS.keys())
def test_no_orphan(found: Any, of: Any, cluster: ClusterIdentity) -> None:
    assert not is_orphan(found, of, cluster)


AWAY = Unreachable("no response")
NO_POOL = "no matched IPPool with requirement"
EXHAUSTED = "fail to get ip from pool lan, error: no IP addresses available in range set: 10.0.0.1-10.0.0.2"
DELETABLE = {
    "allocated": allocated(),
    "no pool matches": marked(message=NO_POOL),
    "no pool matches, after one more request": marked(message=NO_POOL, annotations={LB_ASKED_AGAIN: "true"}),
    "no address left in the pool": marked(message=EXHAUSTED),
    "its pool is blocked": marked(closed="lan", message=""),
}


@pytest.mark.parametrize("found", DELETABLE.values(), ids=DELETABLE.keys())
def test_deletable(found: LoadBalancer) -> None:
    assert deletion_obstacle(found, Store[Service]((), SERVICE_INDEXES), Store([found])) == ""


def test_without_owner_annotation_it_is_never_deleted() -> None:
    assert "no owner mark" in deletion_obstacle(unmarked(), Store[Service]((), SERVICE_INDEXES), Store([unmarked()]))


BOOKED = "allocated or refused"
OBSTACLES: dict[str, tuple[Any, Any, Any, str]] = {
    "guest cluster unreachable": (allocated(), Store((), SERVICE_INDEXES, problem=AWAY), Store(()), "cannot be read"),
    "Harvester unreachable": (allocated(), Store((), SERVICE_INDEXES), Store((), problem=AWAY), "cannot be read"),
    "another Service shows its address": (
        allocated(),
        Store((service("other", uid="other", address=ADDRESS),), SERVICE_INDEXES),
        Store(()),
        "shows its address",
    ),
    "no response yet": (marked(), Store((), SERVICE_INDEXES), Store(()), BOOKED),
    "no response to one more request": (
        marked(annotations={LB_ASKED_AGAIN: "true"}),
        Store((), SERVICE_INDEXES),
        Store(()),
        BOOKED,
    ),
    "Harvester's finalizer is missing": (allocated(finalizer=False), Store((), SERVICE_INDEXES), Store(()), BOOKED),
}


@pytest.mark.parametrize(("found", "services", "balancers", "reason"), OBSTACLES.values(), ids=OBSTACLES.keys())
def test_obstacle(found: Any, services: Any, balancers: Any, reason: str) -> None:
    assert reason in deletion_obstacle(found, services, balancers)
