"""Which Services are ours: classes, marks of other controllers, the finalizer that several of them use; and whether the
cloud-config leads to the Harvester of the cluster.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from harvester_ccm.errors import Unreachable
from harvester_ccm.model.harvester import LoadBalancer, VirtualMachine
from harvester_ccm.model.meta import Store
from harvester_ccm.names import (
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_IGNORE,
    LB_OWNER,
    LOAD_BALANCER_CLASS,
    PRIMARY_SERVICE_LABEL,
    SERVICE_FINALIZER,
)
from harvester_ccm.plan.service.scope import (
    is_our_harvester,
    may_be_ours,
    scope_of,
    wants_load_balancer,
)
from harvester_ccm.plan.service.writes import ServicePlan
from tests.unit.plan.service.plans import plan, told
from tests.worlds.builders import ADDRESS, CLUSTER, allocated, served, service
from tests.worlds.memory_server import refused
from tests.worlds.node_objects import node, vm

OWN: dict[str, Any] = {"spec": {"loadBalancerClass": LOAD_BALANCER_CLASS}}
FOREIGN: dict[str, Any] = {"spec": {"loadBalancerClass": "kube-vip.io/kube-vip-class"}}
KUBE_VIP_CLOUD: dict[str, Any] = {"labels": {"implementation": "kube-vip"}}
HELD: dict[str, Any] = {"annotations": {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}}
METALLB: dict[str, Any] = {"annotations": {"metallb.io/ip-allocated-from-pool": "lan"}}

WANTED: dict[str, tuple[Any, dict[str, bool], bool]] = {
    "no class": (service(), {}, True),
    "our class": (service(**OWN), {}, True),
    "another class": (service(**FOREIGN), {}, False),
    "another class, with our finalizer": (service(**FOREIGN, ours=True), {}, False),
    "class only: no class": (service(), {"class_only": True}, False),
    "class only: our class": (service(**OWN), {"class_only": True}, True),
    "ClusterIP": (service(kind="ClusterIP"), {}, False),
    "being deleted": (service(ours=True, deleting=True), {}, False),
    "MetalLB": (service(**METALLB), {}, False),
    "MetalLB, older mark": (service(annotations={"metallb.universe.tf/address-pool": "x"}), {}, False),
    "MetalLB installed later": (service(**METALLB, ours=True), {}, True),
    "MetalLB, our class": (service(**METALLB, **OWN), {}, True),
    "Cilium": (service(annotations={"lbipam.cilium.io/ips": "10.0.0.1"}), {}, False),
    "Cilium, older mark": (service(annotations={"io.cilium/lb-ipam-ips": "10.0.0.1"}), {}, False),
    "Cilium cluster mesh is no load balancer": (service(annotations={"io.cilium/global-service": "true"}), {}, True),
    "kube-vip-cloud-provider": (service(**KUBE_VIP_CLOUD), {}, False),
    "kube-vip-cloud-provider uses our finalizer": (
        service(**KUBE_VIP_CLOUD, ours=True, annotations={KUBE_VIP_ADDRESSES: ADDRESS}),
        {},
        False,
    ),
    "kube-vip-cloud-provider installed later": (
        service(**KUBE_VIP_CLOUD, ours=True, annotations={KUBE_VIP_ADDRESSES: ADDRESS}),
        {"owned": True},
        True,
    ),
    "kube-vip-cloud-provider installed later, waiting for an address": (
        service(**KUBE_VIP_CLOUD, ours=True, annotations={KUBE_VIP_ADDRESSES: ""}),
        {},
        True,
    ),
    "kube-vip-cloud-provider installed later, a secondary": (
        service(ours=True, labels={"implementation": "kube-vip", PRIMARY_SERVICE_LABEL: "shop.front"}),
        {},
        True,
    ),
    "kube-vip's own annotations": (service(annotations={"kube-vip.io/vipHost": "node-1"}), {}, True),
}


def _known(more: dict[str, bool]) -> dict[str, Any]:
    return {"cluster": replace(CLUSTER, class_only="class_only" in more), "owned": "owned" in more}


@pytest.mark.parametrize(("asked", "more", "wanted"), WANTED.values(), ids=WANTED.keys())
def test_who_is_served(asked: Any, more: dict[str, bool], wanted: bool) -> None:
    assert wants_load_balancer(asked, **_known(more)) is wanted
    assert may_be_ours(asked, _known(more)["cluster"]) or not wanted
    if not wanted and not more:
        by_marks = asked.spec.load_balancer_class is None and asked.spec.type == "LoadBalancer" and not asked.addresses
        note = ["Normal ManagedByOtherController"] if by_marks and not asked.metadata.deleting else []
        made = plan(asked)
        assert (made.write, told(made)) == (None, note) or scope_of(asked, CLUSTER, owned=False).leaving


GOING: dict[str, Any] = {"ours": True, "deleting": True}
CLEANED: dict[str, tuple[Any, dict[str, bool], bool]] = {
    "being deleted": (service(**GOING), {}, True),
    "ClusterIP": (service(kind="ClusterIP", ours=True), {}, True),
    "ClusterIP without our finalizer": (service(kind="ClusterIP"), {}, False),
    "being deleted without our finalizer": (service(deleting=True, finalizers=["example.com/keep"]), {}, False),
    "refused, and being deleted": (service(deleting=True, finalizers=["example.com/keep"], **HELD), {}, False),
    "refused": (service(**HELD), {}, False),
    "refused, and ClusterIP now": (service(kind="ClusterIP", **HELD), {}, True),
    "refused, and of another class now": (service(**FOREIGN, **HELD), {}, True),
    "refused, and kube-vip-cloud-provider's now": (service(**KUBE_VIP_CLOUD, **HELD), {}, True),
    "refused, and class only now": (service(**HELD), {"class_only": True}, True),
    "still wanted": (served(), {}, False),
    "our class": (service(**GOING, **OWN), {"class_only": True}, True),
    "another class": (service(**GOING, **FOREIGN), {}, False),
    "another class, with a load balancer of ours": (service(**GOING, **FOREIGN), {"owned": True}, True),
    "came back with another class, with a load balancer of ours": (
        service(**FOREIGN, ours=True),
        {"owned": True},
        True,
    ),
    "came back with another class, interrupted after the deletion": (
        service(**FOREIGN, ours=True, annotations={KUBE_VIP_ADDRESSES: ""}),
        {},
        True,
    ),
    "another class without our finalizer, with a load balancer of ours": (service(**FOREIGN), {"owned": True}, False),
    "class only: served before that, still wanted": (served(), {"class_only": True, "owned": True}, False),
    "class only: another controller's": (service(**GOING), {"class_only": True}, False),
    "class only: served before that": (service(**GOING), {"class_only": True, "owned": True}, True),
    "class only: interrupted after the deletion": (
        service(**GOING, annotations={KUBE_VIP_ADDRESSES: ""}),
        {"class_only": True},
        True,
    ),
    "kube-vip-cloud-provider's": (service(**GOING, **KUBE_VIP_CLOUD), {}, False),
    "kube-vip-cloud-provider's by now, with a load balancer of ours": (
        service(**GOING, **KUBE_VIP_CLOUD),
        {"owned": True},
        True,
    ),
    "left behind by the Go provider": (
        service(**GOING, annotations={KUBE_VIP_ADDRESSES: ADDRESS}, address=ADDRESS),
        {},
        True,
    ),
}


@pytest.mark.parametrize(("asked", "more", "wanted"), CLEANED.values(), ids=CLEANED.keys())
def test_who_is_cleaned_up(asked: Any, more: dict[str, bool], wanted: bool) -> None:
    assert scope_of(asked, **_known(more)).leaving is wanted
    assert may_be_ours(asked, _known(more)["cluster"]) or not wanted


UNTOUCHED = {
    "foreign class": served(**FOREIGN, condition=False),
    "foreign class, deleted": served(**FOREIGN, deleting=True, condition=False),
    "kube-vip-cloud-provider": served(**KUBE_VIP_CLOUD, condition=False),
    "kube-vip-cloud-provider, deleted": served(**KUBE_VIP_CLOUD, deleting=True, condition=False),
    "kube-vip-cloud-provider, ClusterIP": served(**KUBE_VIP_CLOUD, kind="ClusterIP", condition=False),
    "MetalLB": service(**METALLB, address=ADDRESS),
}


@pytest.mark.parametrize("asked", UNTOUCHED.values(), ids=UNTOUCHED.keys())
def test_services_of_others_are_never_touched(asked: Any) -> None:
    assert plan(asked) == ServicePlan()


def test_what_we_serve_stays_ours() -> None:
    assert plan(served(**KUBE_VIP_CLOUD), allocated()).outcome == plan(served(), allocated()).outcome
    going = plan(served(**KUBE_VIP_CLOUD, deleting=True), allocated())
    assert SERVICE_FINALIZER not in repr(going.outcome)
    assert going != ServicePlan()


@pytest.mark.parametrize(
    ("finalizers", "words"),
    [
        ([], "nothing of this controller is left"),
        (["x.example/hold"], "finalizers of other controllers: x.example/hold"),
    ],
)
def test_who_else_holds_a_service_that_is_deleted_is_named(finalizers: list[str], words: str) -> None:
    going = service(deleting=True)
    held = replace(going, metadata=replace(going.metadata, finalizers=finalizers))
    assert scope_of(held, CLUSTER, owned=False).because.endswith(words)


NODES_HERE = Store([node(provider_id="harvester://vm-1")])
VMS_HERE, OTHER_VMS = Store([vm(uid="vm-1")]), Store([vm(uid="other")])
NO_LBS: Store[LoadBalancer] = Store(())
FORBIDDEN = Store[VirtualMachine]((), problem=refused(403, "Forbidden", "no"))
UNREACHABLE = Store[VirtualMachine]((), problem=Unreachable("no response"))
FOREIGN_LB = Store([allocated(annotations={LB_OWNER: "another"})])
ACCEPTED = replace(CLUSTER, new_harvester=True)
HARVESTERS: dict[str, tuple[Any, Any, Any, Any, Any, bool | None]] = {
    "no sign of this cluster": ([served()], NO_LBS, NODES_HERE, OTHER_VMS, CLUSTER, False),
    "only load balancers of another cluster": ([served()], FOREIGN_LB, NODES_HERE, OTHER_VMS, CLUSTER, False),
    "accepted by the flag": ([served()], NO_LBS, NODES_HERE, OTHER_VMS, ACCEPTED, True),
    "a load balancer": ([served()], Store([allocated()]), NODES_HERE, OTHER_VMS, CLUSTER, True),
    "a VM of a Node": ([served()], NO_LBS, NODES_HERE, VMS_HERE, CLUSTER, True),
    "no Service has an address": ([service()], NO_LBS, NODES_HERE, OTHER_VMS, CLUSTER, True),
    "no Node has a provider ID": ([served()], NO_LBS, Store([node()]), OTHER_VMS, CLUSTER, True),
    "a load balancer cannot be decoded": (
        [served()],
        Store[LoadBalancer]((), unread=frozenset({"vms/x"})),
        NODES_HERE,
        OTHER_VMS,
        CLUSTER,
        True,
    ),
    "a VM cannot be decoded": (
        [served()],
        NO_LBS,
        NODES_HERE,
        Store[VirtualMachine]((), unread=frozenset({"vms/x"})),
        CLUSTER,
        True,
    ),
    "VMs must not be listed": ([served()], NO_LBS, NODES_HERE, FORBIDDEN, CLUSTER, True),
    "VMs are not listed yet": ([served()], NO_LBS, NODES_HERE, UNREACHABLE, CLUSTER, None),
}


@pytest.mark.parametrize(
    ("services", "balancers", "nodes", "vms", "cluster", "expected"), HARVESTERS.values(), ids=HARVESTERS.keys()
)
def test_is_our_harvester(
    services: Any, balancers: Any, nodes: Any, vms: Any, cluster: Any, expected: bool | None
) -> None:
    assert is_our_harvester(Store(services), balancers, nodes, vms, cluster) is expected
