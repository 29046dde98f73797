"""Which Services this controller manages, removes from Harvester or ignores."""

from typing import Any

import pytest

from harvester_ccm.names import KUBE_VIP_ADDRESSES, LOAD_BALANCER_CLASS, PRIMARY_SERVICE_LABEL
from harvester_ccm.plan.service.scope import may_be_ours
from tests.unit.plan.service.plans import plan, snapshot_of
from tests.worlds.builders import ADDRESS, CLASS_ONLY, CLUSTER, SUPPRESSED, allocated, served, service

OWN_CLASS: dict[str, Any] = {"spec": {"loadBalancerClass": LOAD_BALANCER_CLASS}}
OTHER_CLASS: dict[str, Any] = {"spec": {"loadBalancerClass": "kube-vip.io/kube-vip-class"}}
KUBE_VIP_CLOUD: dict[str, Any] = {"labels": {"implementation": "kube-vip"}}
"""kube-vip-cloud-provider, which has the same finalizer."""
IGNORED: dict[str, Any] = {"annotations": SUPPRESSED}
WITHDRAWN: dict[str, Any] = {"annotations": {KUBE_VIP_ADDRESSES: ""}}
ANNOUNCED: dict[str, Any] = {"annotations": {KUBE_VIP_ADDRESSES: ADDRESS}}
METALLB: dict[str, Any] = {"annotations": {"metallb.io/ip-allocated-from-pool": "lan"}}
CILIUM: dict[str, Any] = {"annotations": {"lbipam.cilium.io/ips": "10.0.0.1"}}
DELETED: dict[str, Any] = {"ours": True, "deleting": True}
LB = (allocated(),)
NONE = ()
Row = tuple[Any, tuple[Any, ...], str]

ROWS: dict[str, Row] = {
    "no class": (service(), NONE, "managed"),
    "own class": (service(**OWN_CLASS), NONE, "managed"),
    "another class": (service(**OTHER_CLASS), NONE, "ignored"),
    "another class, finalizer": (service(**OTHER_CLASS, ours=True), NONE, "ignored"),
    "another class, load balancer": (service(**OTHER_CLASS), LB, "ignored"),
    "another class, finalizer, load balancer": (service(**OTHER_CLASS, ours=True), LB, "removed"),
    "another class, finalizer, withdrawn": (service(**OTHER_CLASS, ours=True, **WITHDRAWN), NONE, "removed"),
    "another class, suppressed": (service(**OTHER_CLASS, **IGNORED), NONE, "removed"),
    "suppressed": (service(**IGNORED), NONE, "managed"),
    "ClusterIP": (service(kind="ClusterIP"), NONE, "ignored"),
    "ClusterIP, finalizer": (service(kind="ClusterIP", ours=True), NONE, "removed"),
    "ClusterIP, suppressed": (service(kind="ClusterIP", **IGNORED), NONE, "removed"),
    "deleted": (service(**DELETED), NONE, "removed"),
    "deleted, other finalizers": (service(deleting=True, finalizers=["example.com/keep"]), NONE, "ignored"),
    "deleted, suppressed, other finalizers": (
        service(deleting=True, finalizers=["example.com/keep"], **IGNORED),
        NONE,
        "ignored",
    ),
    "deleted, another class": (service(**DELETED, **OTHER_CLASS), NONE, "ignored"),
    "deleted, another class, load balancer": (service(**DELETED, **OTHER_CLASS), LB, "removed"),
    "deleted, Go provider": (service(**DELETED, address=ADDRESS, **ANNOUNCED), NONE, "removed"),
    "MetalLB": (service(**METALLB), NONE, "ignored"),
    "MetalLB, older annotation": (
        service(annotations={"metallb.universe.tf/address-pool": "x"}),
        NONE,
        "ignored",
    ),
    "MetalLB installed later": (service(**METALLB, ours=True), NONE, "managed"),
    "MetalLB, own class": (service(**METALLB, **OWN_CLASS), NONE, "managed"),
    "MetalLB with an address": (service(**METALLB, address=ADDRESS), NONE, "ignored"),
    "Cilium": (service(**CILIUM), NONE, "ignored"),
    "Cilium cluster mesh": (service(annotations={"io.cilium/global-service": "true"}), NONE, "managed"),
    "kube-vip-cloud-provider": (service(**KUBE_VIP_CLOUD), NONE, "ignored"),
    "kube-vip-cloud-provider, finalizer": (service(**KUBE_VIP_CLOUD, ours=True, **ANNOUNCED), NONE, "ignored"),
    "kube-vip-cloud-provider, load balancer": (service(**KUBE_VIP_CLOUD, ours=True, **ANNOUNCED), LB, "managed"),
    "kube-vip-cloud-provider, withdrawn": (service(**KUBE_VIP_CLOUD, ours=True, **WITHDRAWN), NONE, "managed"),
    "kube-vip-cloud-provider, secondary": (
        service(ours=True, labels={"implementation": "kube-vip", PRIMARY_SERVICE_LABEL: "shop.front"}),
        NONE,
        "managed",
    ),
    "kube-vip-cloud-provider, suppressed": (service(**KUBE_VIP_CLOUD, **IGNORED), NONE, "removed"),
    "kube-vip-cloud-provider, ClusterIP": (
        served(**KUBE_VIP_CLOUD, kind="ClusterIP", condition=False),
        NONE,
        "ignored",
    ),
    "deleted, kube-vip-cloud-provider": (service(**DELETED, **KUBE_VIP_CLOUD), NONE, "ignored"),
    "deleted, kube-vip-cloud-provider, load balancer": (service(**DELETED, **KUBE_VIP_CLOUD), LB, "removed"),
    "annotation of kube-vip": (service(annotations={"kube-vip.io/vipHost": "node-1"}), NONE, "managed"),
}
ROWS_OF_CLASS_ONLY: dict[str, Row] = {
    "no class": (service(), NONE, "ignored"),
    "own class": (service(**OWN_CLASS), NONE, "managed"),
    "suppressed": (service(**IGNORED), NONE, "removed"),
    "deleted": (service(**DELETED), NONE, "ignored"),
    "deleted, own class": (service(**DELETED, **OWN_CLASS), NONE, "removed"),
    "deleted, load balancer": (service(**DELETED), LB, "removed"),
    "deleted, withdrawn": (service(**DELETED, **WITHDRAWN), NONE, "removed"),
    "finalizer and load balancer": (served(condition=False), LB, "ignored"),
}
CASES = [
    pytest.param(cluster, *row, id=f"{name}, {flag}")
    for flag, cluster, rows in (("default", CLUSTER, ROWS), ("class only", CLASS_ONLY, ROWS_OF_CLASS_ONLY))
    for name, row in rows.items()
]


@pytest.mark.parametrize(("cluster", "asked", "found", "expected"), CASES)
def test_scope(cluster: Any, asked: Any, found: Any, expected: str) -> None:
    scope = snapshot_of(asked, *found, cluster=cluster).scope
    assert ("removed" if scope.leaving else "managed" if scope.ours else "ignored") == expected
    assert may_be_ours(asked, cluster) or expected == "ignored"
    if expected == "ignored":
        assert plan(asked, *found, cluster=cluster).write is None
