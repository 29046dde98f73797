"""Which load balancers are orphans, and which of them are deleted."""

import pytest

from harvester_ccm.commands.clusters import ClusterStore
from harvester_ccm.kube.errors import KubeError, Unreachable
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.names import (
    DEFAULT_CLUSTER_NAME,
    LB_CLUSTER,
    LB_OWNER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    LB_SERVICE_UUID,
)
from harvester_ccm.plan.service.ownership.orphans import deletion_obstacle, is_orphan, service_of
from tests.support.builders import ADDRESS, CLASS_ONLY, CLUSTER, allocated, listed_store, load_balancer, marked, service

OTHER_CLASS = {"loadBalancerClass": "example.com/other"}
RENAMED = ClusterIdentity(CLUSTER.name, CLUSTER.namespace, CLUSTER.uid, former_names=("old",))
DEFAULT = ClusterIdentity(DEFAULT_CLUSTER_NAME, CLUSTER.namespace, CLUSTER.uid)
NO_UID = ClusterIdentity(CLUSTER.name, CLUSTER.namespace)


def of_go(cluster: str = CLUSTER.name) -> LoadBalancer:
    """Return a load balancer of the Go provider, without owner annotation."""
    labels = {**(allocated().metadata.labels or {}), LB_CLUSTER: cluster}
    return load_balancer(allocated().metadata.name, labels=labels, ip="10.0.0.1", pool="lan", address="10.0.0.1")


ROWS: dict[str, tuple[LoadBalancer, Service | None, ClusterIdentity, bool]] = {
    "its Service does not exist": (allocated(), None, CLUSTER, True),
    "Go provider": (of_go(), None, CLUSTER, True),
    "former cluster name": (allocated(labels={LB_CLUSTER: "old"}), None, RENAMED, True),
    "type ClusterIP": (allocated(), service(kind="ClusterIP"), CLUSTER, True),
    "another class": (allocated(), service(spec=OTHER_CLASS), CLUSTER, True),
    "no class, with --require-load-balancer-class": (allocated(), service(), CLASS_ONLY, False),
    "deleted Service without finalizer": (
        allocated(),
        service(deleting=True, finalizers=["example.com/keep"]),
        CLUSTER,
        True,
    ),
    "its Service exists": (allocated(), service(), CLUSTER, False),
    "a new Service of the name exists": (allocated(), service(uid="another"), CLUSTER, False),
    "deleted Service with finalizer": (allocated(), service(ours=True, deleting=True), CLUSTER, False),
    "type ClusterIP, with finalizer": (allocated(), service(kind="ClusterIP", ours=True), CLUSTER, False),
    "another class, with the finalizer alone": (
        allocated(),
        service(spec=OTHER_CLASS, ours=True, recorded=False),
        CLUSTER,
        False,
    ),
    "another class, with finalizer": (allocated(), service(spec=OTHER_CLASS, ours=True), CLUSTER, False),
    "no class, with --require-load-balancer-class and finalizer": (allocated(), service(ours=True), CLASS_ONLY, False),
    "annotation of another controller": (
        allocated(),
        service(annotations={"metallb.io/ip-allocated-from-pool": "lan"}),
        CLUSTER,
        False,
    ),
    "its Service has its address": (allocated(), service(kind="ClusterIP", address=ADDRESS), CLUSTER, False),
    "being deleted": (allocated(deleting=True), None, CLUSTER, False),
    "another cluster name": (allocated(labels={LB_CLUSTER: "old"}), None, CLUSTER, False),
    "another owner annotation": (allocated(annotations={LB_OWNER: "another"}), None, CLUSTER, False),
    "Go provider, another cluster name": (of_go("another"), None, CLUSTER, False),
    "Go provider, default cluster name": (of_go(DEFAULT_CLUSTER_NAME), None, DEFAULT, False),
    "own UID unknown": (allocated(), None, NO_UID, False),
    "no labels": (load_balancer(ip="10.0.0.1"), None, CLUSTER, False),
    "no name of a Service": (allocated(labels={LB_SERVICE_NAME: ""}), None, CLUSTER, False),
    "no namespace of a Service": (allocated(labels={LB_SERVICE_NAMESPACE: ""}), None, CLUSTER, False),
    "owner annotation, and only the UID of a Service": (
        allocated(labels={LB_SERVICE_NAME: "", LB_SERVICE_NAMESPACE: ""}, annotations={LB_SERVICE_UUID: "deleted"}),
        None,
        CLUSTER,
        False,
    ),
}


@pytest.mark.parametrize(("load_balancer", "existing", "cluster", "expected"), ROWS.values(), ids=ROWS.keys())
def test_orphan(
    load_balancer: LoadBalancer, existing: Service | None, cluster: ClusterIdentity, *, expected: bool
) -> None:
    assert is_orphan(load_balancer, existing, cluster) is expected


def test_service_is_found_by_the_labels_or_by_its_uid() -> None:
    store = listed_store([service(), service("api", uid="other")], (), None)
    by_uid = load_balancer("x", annotations={LB_SERVICE_UUID: "other"})
    found = [service_of(candidate, store.services) for candidate in (allocated(), by_uid, load_balancer("x"))]
    assert [owner and owner.metadata.name for owner in found] == ["web", "api", None]


def with_problem(**problems: KubeError) -> ClusterStore:
    """Return a store of which some lists could not be read."""
    return ClusterStore(CLUSTER, dict(problems))


UNREAD = Unreachable("no route")
SHOWING = listed_store([service("api", address=ADDRESS)], (), None)
EMPTY = listed_store([], (), None)
OBSTACLES: dict[str, tuple[LoadBalancer, ClusterStore, str]] = {
    "none": (allocated(), EMPTY, ""),
    "no owner annotation": (of_go(), EMPTY, "it carries this cluster's name but no owner mark"),
    "Services cannot be read": (allocated(), with_problem(services=UNREAD), "while one of the clusters cannot be read"),
    "Harvester cannot be read": (
        allocated(),
        with_problem(loadbalancers=UNREAD),
        "while one of the clusters cannot be read",
    ),
    "a Service shows its address": (allocated(), SHOWING, "while a Service shows its address"),
    "a Service shows its address beside another one": (
        allocated(),
        listed_store([service("api", status={"ingress": [{"ip": "10.0.0.9"}, {"ip": ADDRESS}]})], (), None),
        "while a Service shows its address",
    ),
    "a Service shows another address": (allocated(ip="10.0.0.9", address="10.0.0.9"), SHOWING, ""),
    "Harvester has not responded": (marked(), EMPTY, "until Harvester has allocated or refused its address"),
}


@pytest.mark.parametrize(("load_balancer", "store", "reason"), OBSTACLES.values(), ids=OBSTACLES.keys())
def test_orphan_that_must_not_be_deleted(load_balancer: LoadBalancer, store: ClusterStore, reason: str) -> None:
    obstacle = deletion_obstacle(load_balancer, store.services, store.load_balancers)
    assert reason in obstacle
    assert bool(obstacle) is bool(reason)
