"""Which Services this controller manages, removes from Harvester or ignores."""

from typing import Any

import pytest
from msgspec.structs import replace

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.names import KUBE_VIP_ADDRESSES, LOAD_BALANCER_CLASS, PRIMARY_SERVICE_LABEL, SERVICE_FINALIZER
from harvester_ccm.plan.service.scope import Role, may_be_ours
from tests.support.builders import ADDRESS, CLASS_ONLY, CLUSTER, SUPPRESSED, allocated, served, service
from tests.unit.plan.service.snapshots import plan, short_write, snapshot_of

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
Row = tuple[Service, tuple[LoadBalancer, ...], Role]


def without_finalizer(of: Service) -> Service:
    """Return the Service without the finalizer of this controller."""
    others = tuple(name for name in of.metadata.finalizers or () if name != SERVICE_FINALIZER)
    return replace(of, metadata=replace(of.metadata, finalizers=others))


ROWS: dict[str, Row] = {
    "no class": (service(), NONE, Role.SERVE),
    "own class": (service(**OWN_CLASS), NONE, Role.SERVE),
    "another class": (service(**OTHER_CLASS), NONE, Role.IGNORE),
    "another class, finalizer": (service(**OTHER_CLASS, ours=True), NONE, Role.IGNORE),
    "another class, load balancer": (service(**OTHER_CLASS), LB, Role.IGNORE),
    "another class, finalizer, load balancer": (service(**OTHER_CLASS, ours=True), LB, Role.REMOVE),
    "another class, finalizer, withdrawn": (service(**OTHER_CLASS, ours=True, **WITHDRAWN), NONE, Role.REMOVE),
    "another class, suppressed": (service(**OTHER_CLASS, **IGNORED), NONE, Role.REMOVE),
    "suppressed": (service(**IGNORED), NONE, Role.SERVE),
    "ClusterIP": (service(kind="ClusterIP"), NONE, Role.IGNORE),
    "ClusterIP, finalizer": (service(kind="ClusterIP", ours=True), NONE, Role.REMOVE),
    "ClusterIP, suppressed": (service(kind="ClusterIP", **IGNORED), NONE, Role.REMOVE),
    "ClusterIP, condition, another client removed the finalizer": (
        without_finalizer(served(kind="ClusterIP")),
        NONE,
        Role.REMOVE,
    ),
    "another class, condition, another client removed the finalizer": (
        without_finalizer(served(**OTHER_CLASS)),
        NONE,
        Role.REMOVE,
    ),
    "deleted, condition, another client removed the finalizer": (
        without_finalizer(served(deleting=True, finalizers=["example.com/keep"])),
        NONE,
        Role.IGNORE,
    ),
    "deleted": (service(**DELETED), NONE, Role.REMOVE),
    "deleted, other finalizers": (service(deleting=True, finalizers=["example.com/keep"]), NONE, Role.IGNORE),
    "deleted, suppressed, other finalizers": (
        service(deleting=True, finalizers=["example.com/keep"], **IGNORED),
        NONE,
        Role.IGNORE,
    ),
    "deleted, another class": (service(**DELETED, **OTHER_CLASS), NONE, Role.IGNORE),
    "deleted, another class, load balancer": (service(**DELETED, **OTHER_CLASS), LB, Role.REMOVE),
    "deleted, Go provider": (service(**DELETED, address=ADDRESS, **ANNOUNCED), NONE, Role.REMOVE),
    "MetalLB": (service(**METALLB), NONE, Role.IGNORE),
    "MetalLB, older annotation": (
        service(annotations={"metallb.universe.tf/address-pool": "x"}),
        NONE,
        Role.IGNORE,
    ),
    "MetalLB installed later": (service(**METALLB, ours=True), NONE, Role.SERVE),
    "MetalLB, own class": (service(**METALLB, **OWN_CLASS), NONE, Role.SERVE),
    "MetalLB with an address": (service(**METALLB, address=ADDRESS), NONE, Role.IGNORE),
    "Cilium": (service(**CILIUM), NONE, Role.IGNORE),
    "Cilium cluster mesh": (service(annotations={"io.cilium/global-service": "true"}), NONE, Role.SERVE),
    "kube-vip-cloud-provider": (service(**KUBE_VIP_CLOUD), NONE, Role.IGNORE),
    "kube-vip-cloud-provider, finalizer": (
        service(**KUBE_VIP_CLOUD, ours=True, recorded=False, **ANNOUNCED),
        NONE,
        Role.IGNORE,
    ),
    "kube-vip-cloud-provider, load balancer": (service(**KUBE_VIP_CLOUD, ours=True, **ANNOUNCED), LB, Role.SERVE),
    "kube-vip-cloud-provider, withdrawn": (service(**KUBE_VIP_CLOUD, ours=True, **WITHDRAWN), NONE, Role.SERVE),
    "kube-vip-cloud-provider, secondary": (
        service(ours=True, labels={"implementation": "kube-vip", PRIMARY_SERVICE_LABEL: "shop.front"}),
        NONE,
        Role.SERVE,
    ),
    "kube-vip-cloud-provider, suppressed": (service(**KUBE_VIP_CLOUD, **IGNORED), NONE, Role.REMOVE),
    "kube-vip-cloud-provider, ClusterIP": (
        served(**KUBE_VIP_CLOUD, kind="ClusterIP", condition=False),
        NONE,
        Role.IGNORE,
    ),
    "deleted, kube-vip-cloud-provider": (service(**DELETED, **KUBE_VIP_CLOUD), NONE, Role.IGNORE),
    "deleted, kube-vip-cloud-provider, load balancer": (service(**DELETED, **KUBE_VIP_CLOUD), LB, Role.REMOVE),
    "annotation of kube-vip": (service(annotations={"kube-vip.io/vipHost": "node-1"}), NONE, Role.SERVE),
}
ROWS_OF_CLASS_ONLY: dict[str, Row] = {
    "no class": (service(), NONE, Role.IGNORE),
    "own class": (service(**OWN_CLASS), NONE, Role.SERVE),
    "suppressed": (service(**IGNORED), NONE, Role.REMOVE),
    "deleted": (service(**DELETED), NONE, Role.IGNORE),
    "deleted, own class": (service(**DELETED, **OWN_CLASS), NONE, Role.REMOVE),
    "deleted, load balancer": (service(**DELETED), LB, Role.REMOVE),
    "deleted, withdrawn": (service(**DELETED, **WITHDRAWN), NONE, Role.REMOVE),
    "finalizer and load balancer": (served(condition=False), LB, Role.SERVE),
    "load balancer": (service(), LB, Role.SERVE),
    "finalizer": (service(ours=True, recorded=False), NONE, Role.IGNORE),
    "secondary": (service(ours=True, labels={PRIMARY_SERVICE_LABEL: "shop.front"}), NONE, Role.SERVE),
    "secondary, deleted": (service(**DELETED, labels={PRIMARY_SERVICE_LABEL: "shop.front"}), NONE, Role.REMOVE),
}
CASES = [
    pytest.param(cluster, *row, id=f"{name}, {flag}")
    for flag, cluster, rows in (("default", CLUSTER, ROWS), ("class only", CLASS_ONLY, ROWS_OF_CLASS_ONLY))
    for name, row in rows.items()
]


@pytest.mark.parametrize(("cluster", "service", "load_balancers", "role"), CASES)
def test_scope(
    cluster: ClusterIdentity, service: Service, load_balancers: tuple[LoadBalancer, ...], role: Role
) -> None:
    snapshot = snapshot_of(service, *load_balancers, cluster=cluster)
    assert snapshot.scope.role is role
    assert snapshot.is_leaving is (role is Role.REMOVE)
    assert snapshot.scope.is_managed is (role is not Role.IGNORE)
    assert may_be_ours(service, cluster) or role is Role.IGNORE
    assert bool(snapshot.scope.reason) is (role is Role.IGNORE)
    if role is Role.IGNORE:
        # Only the condition of this controller is removed from the Service of another one.
        write = short_write(plan(service, *load_balancers, cluster=cluster).write)
        assert write == (None if service.ready_condition is None else "condition")


NOTES: dict[str, tuple[Service, str]] = {
    "annotation of MetalLB": (service(**METALLB), "annotation metallb.io/ip-allocated-from-pool"),
    "label of kube-vip-cloud-provider": (service(**KUBE_VIP_CLOUD), "label implementation"),
    "annotation of MetalLB, with an address": (service(**METALLB, address=ADDRESS), ""),
    "another class": (service(**OTHER_CLASS), ""),
    "another type": (service(kind="ClusterIP"), ""),
}


@pytest.mark.parametrize(("ignored", "text"), NOTES.values(), ids=NOTES.keys())
def test_mark_of_another_controller_is_noted_once(ignored: Service, text: str) -> None:
    note = snapshot_of(ignored).scope.event
    assert (note is not None) is bool(text)
    if note is not None:
        assert note.type == "Normal"
        assert text in note.message
        assert f"create the Service again with spec.loadBalancerClass {LOAD_BALANCER_CLASS}" in note.message
        # kube-vip skips Services of every class but one: without that setting, the advice would end in silence.
        assert "kube-vip.harvesterClass" in note.message
        assert "env lb_class_name" in note.message
    assert snapshot_of(ignored, cluster=CLASS_ONLY).scope.event is None


def test_deleted_service_names_the_finalizers_of_others() -> None:
    scope = snapshot_of(service(deleting=True, finalizers=["example.com/keep"])).scope
    assert "It waits for finalizers of other controllers: example.com/keep. Check that the controller" in scope.reason
    assert scope.reason.endswith("delete its finalizer with kubectl edit service -n shop web")


@pytest.mark.parametrize("cluster", [CLUSTER, CLASS_ONLY], ids=["any class", "class only"])
def test_service_of_another_class_is_told_how_harvester_would_serve_it(cluster: ClusterIdentity) -> None:
    reason = snapshot_of(service(**OTHER_CLASS), cluster=cluster).scope.reason
    assert f"with spec.loadBalancerClass {LOAD_BALANCER_CLASS}, if kube-vip announces this class" in reason
    assert ("without that class, or with" in reason) is (cluster is not CLASS_ONLY)
