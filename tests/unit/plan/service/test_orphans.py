"""Which load balancers are orphans."""

from typing import Any

import pytest

from harvester_ccm.model.harvester import ClusterIdentity
from harvester_ccm.names import (
    DEFAULT_CLUSTER_NAME,
    LB_CLUSTER,
    LB_OWNER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    LB_SERVICE_UUID,
)
from harvester_ccm.plan.service.orphans import is_orphan
from tests.worlds.builders import ADDRESS, CLASS_ONLY, CLUSTER, allocated, load_balancer, service

OTHER_CLASS = {"loadBalancerClass": "example.com/other"}
RENAMED = ClusterIdentity(CLUSTER.name, CLUSTER.namespace, CLUSTER.uid, former_names=("old",))
DEFAULT = ClusterIdentity(DEFAULT_CLUSTER_NAME, CLUSTER.namespace, CLUSTER.uid)
NO_UID = ClusterIdentity(CLUSTER.name, CLUSTER.namespace)


def of_go(cluster: str = CLUSTER.name) -> Any:
    """Return a load balancer of the Go provider, without owner annotation."""
    labels = {**(allocated().metadata.labels or {}), LB_CLUSTER: cluster}
    return load_balancer(allocated().metadata.name, labels=labels, ip="10.0.0.1", pool="lan", address="10.0.0.1")


ROWS: dict[str, tuple[Any, Any, ClusterIdentity, bool]] = {
    "its Service does not exist": (allocated(), None, CLUSTER, True),
    "Go provider": (of_go(), None, CLUSTER, True),
    "former cluster name": (allocated(labels={LB_CLUSTER: "old"}), None, RENAMED, True),
    "type ClusterIP": (allocated(), service(kind="ClusterIP"), CLUSTER, True),
    "another class": (allocated(), service(spec=OTHER_CLASS), CLUSTER, True),
    "no class, with --load-balancer-class-only": (allocated(), service(), CLASS_ONLY, True),
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
    "another class, with finalizer": (allocated(), service(spec=OTHER_CLASS, ours=True), CLUSTER, False),
    "no class, with --load-balancer-class-only and finalizer": (allocated(), service(ours=True), CLASS_ONLY, False),
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


@pytest.mark.parametrize(("found", "of", "cluster", "expected"), ROWS.values(), ids=ROWS.keys())
def test_orphan(found: Any, of: Any, cluster: ClusterIdentity, expected: bool) -> None:
    assert is_orphan(found, of, cluster) is expected
