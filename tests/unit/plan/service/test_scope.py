"""Which Services this controller manages, removes from Harvester or ignores."""

from typing import Any

import pytest
from msgspec.structs import replace

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.names import (
    KUBE_VIP_ADDRESSES,
    LOAD_BALANCER_CLASS,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    SERVICE_FINALIZER,
)
from harvester_ccm.plan.service.announcing.record import Step
from harvester_ccm.plan.service.scope import Role, is_handled, may_be_ours, primaries_of
from tests.support.builders import ADDRESS, CLASS_ONLY, CLUSTER, SUPPRESSED, allocated, served, service
from tests.unit.plan.service.outcomes import differing
from tests.unit.plan.service.snapshots import plan, record_of, short_write, snapshot_of

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
Row = tuple[Service, tuple[LoadBalancer, ...]]


def without_finalizer(of: Service) -> Service:
    others = tuple(name for name in of.metadata.finalizers or () if name != SERVICE_FINALIZER)
    return replace(of, metadata=replace(of.metadata, finalizers=others))


ROWS: dict[str, Row] = {
    "no class": (service(), NONE),
    "own class": (service(**OWN_CLASS), NONE),
    "another class": (service(**OTHER_CLASS), NONE),
    "another class, finalizer": (service(**OTHER_CLASS, ours=True), NONE),
    "another class, load balancer": (service(**OTHER_CLASS), LB),
    "another class, finalizer, load balancer": (service(**OTHER_CLASS, ours=True), LB),
    "another class, finalizer, withdrawn": (service(**OTHER_CLASS, ours=True, **WITHDRAWN), NONE),
    "another class, suppressed": (service(**OTHER_CLASS, **IGNORED), NONE),
    "suppressed": (service(**IGNORED), NONE),
    "ClusterIP": (service(kind="ClusterIP"), NONE),
    "ClusterIP, finalizer": (service(kind="ClusterIP", ours=True), NONE),
    "ClusterIP, suppressed": (service(kind="ClusterIP", **IGNORED), NONE),
    "ClusterIP, condition, another client removed the finalizer": (without_finalizer(served(kind="ClusterIP")), NONE),
    "another class, condition, another client removed the finalizer": (without_finalizer(served(**OTHER_CLASS)), NONE),
    "deleted, condition, another client removed the finalizer": (
        without_finalizer(served(deleting=True, finalizers=["example.com/keep"])),
        NONE,
    ),
    "deleted": (service(**DELETED), NONE),
    "deleted, no finalizer": (service(deleting=True), NONE),
    "ClusterIP, the record, another client removed the finalizer": (
        service(kind="ClusterIP", annotations=record_of(Step.SHOWN)),
        NONE,
    ),
    "deleted, other finalizers": (service(deleting=True, finalizers=["example.com/keep"]), NONE),
    "deleted, suppressed, other finalizers": (service(deleting=True, finalizers=["example.com/keep"], **IGNORED), NONE),
    "deleted, another class": (service(**DELETED, **OTHER_CLASS), NONE),
    "deleted, another class, load balancer": (service(**DELETED, **OTHER_CLASS), LB),
    "deleted, Go provider": (service(**DELETED, address=ADDRESS, **ANNOUNCED), NONE),
    "MetalLB": (service(**METALLB), NONE),
    "MetalLB, older annotation": (service(annotations={"metallb.universe.tf/address-pool": "x"}), NONE),
    "MetalLB installed later": (service(**METALLB, ours=True), NONE),
    "MetalLB, own class": (service(**METALLB, **OWN_CLASS), NONE),
    "MetalLB with an address": (service(**METALLB, address=ADDRESS), NONE),
    "Cilium": (service(**CILIUM), NONE),
    "Cilium cluster mesh": (service(annotations={"io.cilium/global-service": "true"}), NONE),
    "kube-vip-cloud-provider": (service(**KUBE_VIP_CLOUD), NONE),
    "kube-vip-cloud-provider, finalizer": (service(**KUBE_VIP_CLOUD, ours=True, recorded=False, **ANNOUNCED), NONE),
    "kube-vip-cloud-provider, load balancer": (service(**KUBE_VIP_CLOUD, ours=True, **ANNOUNCED), LB),
    "kube-vip-cloud-provider, withdrawn": (service(**KUBE_VIP_CLOUD, ours=True, **WITHDRAWN), NONE),
    "kube-vip-cloud-provider, secondary": (
        service(ours=True, labels={"implementation": "kube-vip", PRIMARY_SERVICE_LABEL: "shop.front"}),
        NONE,
    ),
    "kube-vip-cloud-provider, suppressed": (service(**KUBE_VIP_CLOUD, **IGNORED), NONE),
    "kube-vip-cloud-provider, ClusterIP": (served(**KUBE_VIP_CLOUD, kind="ClusterIP", condition=False), NONE),
    "deleted, kube-vip-cloud-provider": (service(**DELETED, **KUBE_VIP_CLOUD), NONE),
    "deleted, kube-vip-cloud-provider, load balancer": (service(**DELETED, **KUBE_VIP_CLOUD), LB),
    "label of a program with another name": (service(labels={"implementation": "metallb"}), NONE),
    "annotation of kube-vip": (service(annotations={"kube-vip.io/vipHost": "node-1"}), NONE),
}
ROWS_OF_CLASS_ONLY: dict[str, Row] = {
    "no class": (service(), NONE),
    "own class": (service(**OWN_CLASS), NONE),
    "suppressed": (service(**IGNORED), NONE),
    "deleted": (service(**DELETED), NONE),
    "deleted, own class": (service(**DELETED, **OWN_CLASS), NONE),
    "deleted, load balancer": (service(**DELETED), LB),
    "deleted, withdrawn": (service(**DELETED, **WITHDRAWN), NONE),
    "finalizer and load balancer": (served(condition=False), LB),
    "load balancer": (service(), LB),
    "finalizer": (service(ours=True, recorded=False), NONE),
    "secondary": (service(ours=True, labels={PRIMARY_SERVICE_LABEL: "shop.front"}), NONE),
    "secondary, deleted": (service(**DELETED, labels={PRIMARY_SERVICE_LABEL: "shop.front"}), NONE),
}
FLAGS = {"": (CLUSTER, ROWS), "class only, ": (CLASS_ONLY, ROWS_OF_CLASS_ONLY)}


def test_scope() -> None:
    outcomes: dict[str, str] = {}
    for flag, (cluster, rows) in FLAGS.items():
        for name, (concerned, load_balancers) in rows.items():
            scope = snapshot_of(concerned, *load_balancers, cluster=cluster).scope
            outcomes[f"{flag}{name}"] = f"{scope.role.name} {scope.reason}".rstrip()
    assert differing("scope", outcomes) == []


@pytest.mark.parametrize("flag", FLAGS)
def test_service_that_is_ignored_loses_the_condition_of_this_controller_and_nothing_else(flag: str) -> None:
    cluster, rows = FLAGS[flag]
    for name, (concerned, load_balancers) in rows.items():
        snapshot = snapshot_of(concerned, *load_balancers, cluster=cluster)
        role = snapshot.scope.role
        assert snapshot.is_leaving is (role is Role.REMOVE), name
        assert snapshot.scope.is_managed is (role is not Role.IGNORE), name
        assert may_be_ours(concerned, cluster) or role is Role.IGNORE, name
        if role is Role.IGNORE:
            write = short_write(plan(concerned, *load_balancers, cluster=cluster).write)
            assert write == (None if concerned.ready_condition is None else "condition"), name


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


KNOWN: dict[str, tuple[Service, bool, bool]] = {
    "new": (service(), True, True),
    "another class": (service(**OTHER_CLASS), False, False),
    "deleted, condition, another client removed the finalizer": (without_finalizer(served(deleting=True)), True, True),
    "another class, finalizer": (service(**OTHER_CLASS, ours=True, recorded=False), False, True),
}
"""Whether this controller handles a Service, and may manage it, as far as the Service itself shows it."""


@pytest.mark.parametrize(("concerned", "handled", "may_be"), KNOWN.values(), ids=KNOWN.keys())
def test_what_a_service_itself_shows(concerned: Service, *, handled: bool, may_be: bool) -> None:
    assert is_handled(concerned, CLUSTER) is handled
    assert may_be_ours(concerned, CLUSTER) is may_be


def test_primaries_are_that_of_the_annotation_and_that_of_the_label() -> None:
    assert primaries_of(service()) == frozenset()
    named = service(annotations={PRIMARY_SERVICE: "shop/next"}, labels={PRIMARY_SERVICE_LABEL: "shop.front"})
    assert primaries_of(named) == {"shop/next", "shop/front"}


def test_deleted_service_names_the_finalizers_of_others() -> None:
    scope = snapshot_of(service(deleting=True, finalizers=["example.com/keep"])).scope
    assert "It waits for finalizers of other controllers: example.com/keep. Check that the controller" in scope.reason
    assert scope.reason.endswith("delete its finalizer with kubectl edit service -n shop web")


@pytest.mark.parametrize("cluster", [CLUSTER, CLASS_ONLY], ids=["any class", "class only"])
def test_service_of_another_class_is_told_how_harvester_would_serve_it(cluster: ClusterIdentity) -> None:
    reason = snapshot_of(service(**OTHER_CLASS), cluster=cluster).scope.reason
    assert f"with spec.loadBalancerClass {LOAD_BALANCER_CLASS}, if kube-vip announces this class" in reason
    assert ("without that class, or with" in reason) is (cluster is not CLASS_ONLY)
