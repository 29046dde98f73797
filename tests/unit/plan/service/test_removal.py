"""Plans of a Service that is removed from Harvester: it is being deleted, or is not to be served any more."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from harvester_ccm.kube.errors import Unreachable
from harvester_ccm.model.core import Service, ServiceCondition
from harvester_ccm.names import (
    ANNOUNCED_AS,
    DHCP_ADDRESS,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    KUBE_VIP_INTERFACE,
    KUBE_VIP_LEASE,
    LB_RECONCILE,
    LB_REQUESTED_NETWORK,
    LOAD_BALANCER_READY,
    NETWORK,
    PRIMARY_SERVICE_LABEL,
    Reason,
)
from harvester_ccm.plan.service.announcing.record import Step
from harvester_ccm.plan.service.desired import PatchService
from harvester_ccm.plan.service.phase import Phase
from tests.support.builders import (
    ADDRESS,
    LB_NAME,
    SUPPRESSED,
    allocated,
    marked,
    served,
    service,
)
from tests.unit.plan.service.snapshots import (
    EXHAUSTED_LOAD_BALANCER,
    NO_POOL,
    SHARED,
    VM,
    VM_LOAD_BALANCER,
    WITHDRAWN,
    Plan,
    World,
    messages,
    outline,
    plan,
    record_of,
)

DELETED: Final = service(ours=True, deleting=True, annotations=SUPPRESSED)
"""A deleted Service without an address."""
DELETED_WITHDRAWN: Final = served(deleting=True, annotations=WITHDRAWN)
BLOCKED: Final = marked(closed="lan", message="x")
TERMINATING: Final = allocated(deleting=True)
SHARES_THIS: Final = {PRIMARY_SERVICE_LABEL: "shop.web"}
OTHER_CLASS: Final[dict[str, Any]] = {"spec": {"loadBalancerClass": "example.com/other"}}
VLAN: Final = {NETWORK: "infra/vlan9"}

SHOWS: Final = {KUBE_VIP_ADDRESSES: ADDRESS}


def with_condition(of: Service) -> Service:
    """Return a Service with this controller's condition."""
    condition = ServiceCondition(type=LOAD_BALANCER_READY, status="False", reason="Queued")
    return replace(of, status=replace(of.status, conditions=(condition,)))


DELETION: dict[str, tuple[World, Plan]] = {
    "withdrawal": (
        World(served(deleting=True), (allocated(),)),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: "",
                    ANNOUNCED_AS: f"withdrawn, {ADDRESS}, again",
                    KUBE_VIP_IGNORE: None,
                }
            },
            then={"delete": LB_NAME},
            events=("Normal DeletingLoadBalancer",),
        ),
    ),
    "withdrawal, although kube-vip ignores the Service": (
        World(served(deleting=True, annotations={KUBE_VIP_IGNORE: "true"}), (allocated(),)),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: "",
                    KUBE_VIP_IGNORE: None,
                    ANNOUNCED_AS: f"withdrawn, {ADDRESS}, again",
                }
            },
            then={"delete": LB_NAME},
            events=("Normal DeletingLoadBalancer",),
        ),
    ),
    "withdrawal of a requested address": (
        World(service(ours=True, deleting=True, spec={"loadBalancerIP": "10.0.0.7"}), (marked(),)),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            write={"annotations": {KUBE_VIP_ADDRESSES: "", ANNOUNCED_AS: "withdrawn, again", KUBE_VIP_IGNORE: None}},
            delay=30.0,
        ),
    ),
    "Harvester announces the address": (
        World(
            service(ours=True, deleting=True, address=ADDRESS, annotations={**SUPPRESSED, **VM}), (VM_LOAD_BALANCER,)
        ),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write={"delete": LB_NAME},
            events=("Normal DeletingLoadBalancer",),
        ),
    ),
    "deletion": (
        World(DELETED_WITHDRAWN, (allocated(),)),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write={"delete": LB_NAME},
            events=("Normal DeletingLoadBalancer",),
        ),
    ),
    "two load balancers": (
        World(DELETED_WITHDRAWN, (TERMINATING, allocated(name="demo-shop-web-old", uid="old"))),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write={"delete": "demo-shop-web-old"},
            events=("Normal DeletingLoadBalancer",),
        ),
    ),
    "the end": (
        World(DELETED_WITHDRAWN, (TERMINATING,)),
        Plan(
            Phase.LEAVING,
            "NotManaged",
            write={"finalizers": [], "ingress": [], "release": True},
            events=("Normal DeletedLoadBalancer",),
        ),
    ),
    "the end, without a load balancer": (
        World(DELETED),
        Plan(
            Phase.LEAVING,
            "NotManaged",
            write={"finalizers": [], "release": True},
            events=("Normal DeletedLoadBalancer",),
        ),
    ),
    "the end, with a finalizer of another controller": (
        World(service(ours=True, deleting=True, finalizers=["example.com/keep"], annotations=SUPPRESSED)),
        Plan(
            Phase.LEAVING,
            "NotManaged",
            write={"finalizers": ["example.com/keep"], "release": True},
            events=("Normal DeletedLoadBalancer",),
        ),
    ),
    "a Service of the Go provider": (
        World(served(deleting=True, condition=False)),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            write={"annotations": {KUBE_VIP_ADDRESSES: "", ANNOUNCED_AS: "withdrawn, again", KUBE_VIP_IGNORE: None}},
        ),
    ),
    "a former secondary": (
        World(served(deleting=True, labels=SHARED)),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: "",
                    ANNOUNCED_AS: f"withdrawn, {ADDRESS}, again",
                    KUBE_VIP_IGNORE: None,
                }
            },
        ),
    ),
    "a former secondary, withdrawn": (
        World(served(deleting=True, labels=SHARED, annotations=WITHDRAWN)),
        Plan(
            Phase.LEAVING,
            "NotManaged",
            write={"finalizers": [], "ingress": [], "release": True},
            events=("Normal DeletedLoadBalancer",),
        ),
    ),
    "not processed": (World(DELETED, (marked(),)), Plan(Phase.LEAVING, "NotReady DeletionPending", delay=30.0)),
    "not processed, without the finalizer of Harvester": (
        World(DELETED, (marked(finalizer=False, ip=ADDRESS),)),
        Plan(Phase.LEAVING, "NotReady DeletionPending", delay=30.0),
    ),
    "not processed for 30 s": (
        World(DELETED, (marked(),), {"waited": 30.0}),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write="condition",
            events=("Warning DeletionPending",),
            delay=270.0,
        ),
    ),
    "not processed for 300 s": (
        World(DELETED, (marked(),), {"waited": 300.0}),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            write={"delete": LB_NAME},
            events=("Normal DeletingLoadBalancer",),
        ),
    ),
    "the pool is full: it is blocked": (
        World(DELETED, (EXHAUSTED_LOAD_BALANCER,)),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            write={"change": LB_NAME, "status": {"allocatedAddress": {"ipPool": "lan"}, "conditions": None}},
            delay=30.0,
        ),
    ),
    "the pool is blocked, no response": (
        World(DELETED, (marked(closed="lan"),)),
        Plan(Phase.LEAVING, "NotReady DeletionPending", delay=30.0),
    ),
    "the blocked pool was confirmed": (
        World(DELETED, (BLOCKED,)),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            write={"delete": LB_NAME},
            events=("Normal DeletingLoadBalancer",),
        ),
    ),
    "no pool fits: Harvester is to search once more": (
        World(DELETED, (marked(message=NO_POOL),)),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            write={"change": LB_NAME, "annotations": {LB_RECONCILE: "true"}, "status": {"conditions": None}},
            delay=30.0,
        ),
    ),
    "no pool fits, after one more search": (
        World(DELETED, (marked(message=NO_POOL, annotations={LB_RECONCILE: "true"}),)),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            write={"delete": LB_NAME},
            events=("Normal DeletingLoadBalancer",),
        ),
    ),
    "Harvester cannot be read": (
        World(DELETED_WITHDRAWN, (allocated(),), {"harvester_problem": Unreachable("no route")}),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write={"delete": LB_NAME},
            events=("Normal DeletingLoadBalancer",),
        ),
    ),
}
SHARED_ADDRESS: dict[str, tuple[World, Plan]] = {
    "a secondary": (
        World(served(deleting=True), (allocated(),), {"own_secondaries": (served("b", uid="b", labels=SHARES_THIS),)}),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write="condition",
            events=("Warning DeletionPending",),
        ),
    ),
    "a secondary that is being deleted, too": (
        World(
            served(deleting=True),
            (allocated(),),
            {"own_secondaries": (served("b", deleting=True, labels=SHARES_THIS),)},
        ),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write="condition",
            events=("Warning DeletionPending",),
        ),
    ),
    "a secondary without a status": (
        World(
            served(deleting=True),
            (allocated(),),
            {
                "own_secondaries": (
                    service("b", ours=True, annotations={KUBE_VIP_ADDRESSES: ADDRESS}, labels=SHARES_THIS),
                )
            },
        ),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write="condition",
            events=("Warning DeletionPending",),
        ),
    ),
    "a secondary with another address": (
        World(
            served(deleting=True),
            (allocated(),),
            {
                "own_secondaries": (
                    service("b", ours=True, address="10.0.0.9", annotations=SUPPRESSED, labels=SHARES_THIS),
                )
            },
        ),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: "",
                    ANNOUNCED_AS: f"withdrawn, {ADDRESS}, again",
                    KUBE_VIP_IGNORE: None,
                }
            },
            then={"delete": LB_NAME},
            events=("Normal DeletingLoadBalancer",),
        ),
    ),
    "a Service with the label that nobody manages": (
        World(
            served(deleting=True),
            (allocated(),),
            {"own_secondaries": (service("b", kind="ClusterIP", address=ADDRESS, labels=SHARES_THIS),)},
        ),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: "",
                    ANNOUNCED_AS: f"withdrawn, {ADDRESS}, again",
                    KUBE_VIP_IGNORE: None,
                }
            },
            then={"delete": LB_NAME},
            events=("Normal DeletingLoadBalancer",),
        ),
    ),
    "a secondary of another type, without the finalizer": (
        World(
            served(deleting=True),
            (allocated(),),
            {
                "own_secondaries": (
                    with_condition(service("b", kind="ClusterIP", labels=SHARES_THIS, annotations=SHOWS)),
                )
            },
        ),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: "",
                    ANNOUNCED_AS: f"withdrawn, {ADDRESS}, again",
                    KUBE_VIP_IGNORE: None,
                }
            },
            then={"delete": LB_NAME},
            events=("Normal DeletingLoadBalancer",),
        ),
    ),
    "a secondary of another class, which another controller announces": (
        World(
            served(deleting=True),
            (allocated(),),
            {"own_secondaries": (service("b", ours=True, labels=SHARES_THIS, annotations=SHOWS, **OTHER_CLASS),)},
        ),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: "",
                    ANNOUNCED_AS: f"withdrawn, {ADDRESS}, again",
                    KUBE_VIP_IGNORE: None,
                }
            },
            then={"delete": LB_NAME},
            events=("Normal DeletingLoadBalancer",),
        ),
    ),
    "a secondary of another class, which has the condition": (
        World(
            served(deleting=True),
            (allocated(),),
            {
                "own_secondaries": (
                    with_condition(service("b", ours=True, labels=SHARES_THIS, annotations=SHOWS, **OTHER_CLASS)),
                )
            },
        ),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write="condition",
            events=("Warning DeletionPending",),
        ),
    ),
    "a secondary, and the load balancer is gone": (
        World(served(deleting=True), facts={"own_secondaries": (served("b", uid="b", labels=SHARES_THIS),)}),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: "",
                    ANNOUNCED_AS: f"withdrawn, {ADDRESS}, again",
                    KUBE_VIP_IGNORE: None,
                }
            },
        ),
    ),
    "a secondary is being reconciled": (
        World(served(deleting=True), (allocated(),), {"secondary_in_progress": True}),
        Plan(
            Phase.LEAVING,
            "NotReady SharedAddressPending",
            condition="False SharedAddressPending",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: "",
                    ANNOUNCED_AS: f"withdrawn, {ADDRESS}, again",
                    KUBE_VIP_IGNORE: None,
                }
            },
            delay=1.0,
        ),
    ),
    "a secondary is being reconciled, after the withdrawal": (
        World(DELETED_WITHDRAWN, (allocated(),), {"secondary_in_progress": True}),
        Plan(
            Phase.LEAVING,
            "NotReady SharedAddressPending",
            condition="False SharedAddressPending",
            write="condition",
            delay=1.0,
        ),
    ),
}
OF_OTHERS: Final = {KUBE_VIP_ADDRESSES: "10.0.0.9", **record_of(Step.SHOWN)}
"""Another controller has announced its own address since."""
STAYS: dict[str, tuple[World, Plan]] = {
    "type ClusterIP: deletion, kube-vip keeps the address": (
        World(served(kind="ClusterIP", annotations={KUBE_VIP_HOST: "n1"}), (allocated(),)),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: "",
                    ANNOUNCED_AS: f"withdrawn, {ADDRESS}, again, from n1",
                    KUBE_VIP_IGNORE: None,
                }
            },
            then={"delete": LB_NAME},
            events=("Warning AddressStillAnnounced", "Normal DeletingLoadBalancer"),
        ),
    ),
    "type ClusterIP: the end": (
        World(
            service(kind="ClusterIP", ours=True, annotations={**WITHDRAWN, KUBE_VIP_HOST: "n1"}),
            (allocated(deleting=True),),
        ),
        Plan(
            Phase.LEAVING,
            "NotManaged",
            write={"annotations": {KUBE_VIP_ADDRESSES: None, ANNOUNCED_AS: None}, "finalizers": [], "release": True},
            events=("Warning AddressStillAnnounced", "Normal DeletedLoadBalancer"),
        ),
    ),
    "type ClusterIP: Harvester announced the address": (
        World(service(kind="ClusterIP", ours=True, annotations={**SUPPRESSED, **VM}), (VM_LOAD_BALANCER,)),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            write={"delete": LB_NAME},
            events=("Normal DeletingLoadBalancer",),
        ),
    ),
    "type ClusterIP: the device of the network": (
        World(
            service(kind="ClusterIP", ours=True, annotations={**WITHDRAWN, **VLAN, KUBE_VIP_INTERFACE: "eth1"}),
            (allocated(deleting=True, annotations={LB_REQUESTED_NETWORK: "infra/vlan9"}),),
            {"network_devices": {"infra/vlan9": "eth1"}},
        ),
        Plan(
            Phase.LEAVING,
            "NotManaged",
            write={
                "annotations": {KUBE_VIP_ADDRESSES: None, ANNOUNCED_AS: None, KUBE_VIP_INTERFACE: None},
                "finalizers": [],
                "release": True,
            },
            events=("Normal DeletedLoadBalancer",),
        ),
    ),
    "type ClusterIP: a device of the user": (
        World(
            service(kind="ClusterIP", ours=True, annotations={**WITHDRAWN, **VLAN, KUBE_VIP_INTERFACE: "bond7"}),
            (allocated(deleting=True, annotations={LB_REQUESTED_NETWORK: "infra/vlan9"}),),
            {"network_devices": {"infra/vlan9": "eth1"}},
        ),
        Plan(
            Phase.LEAVING,
            "NotManaged",
            write={"annotations": {KUBE_VIP_ADDRESSES: None, ANNOUNCED_AS: None}, "finalizers": [], "release": True},
            events=("Normal DeletedLoadBalancer",),
        ),
    ),
    "type ClusterIP: the device of the primary": (
        World(
            service(kind="ClusterIP", ours=True, annotations={**WITHDRAWN, KUBE_VIP_INTERFACE: "eth1"}, labels=SHARED)
        ),
        Plan(
            Phase.LEAVING,
            "NotManaged",
            write={
                "annotations": {KUBE_VIP_ADDRESSES: None, ANNOUNCED_AS: None, KUBE_VIP_INTERFACE: None},
                "labels": {PRIMARY_SERVICE_LABEL: None},
                "finalizers": [],
                "release": True,
            },
            events=("Normal DeletedLoadBalancer",),
        ),
    ),
    "type ClusterIP, no finalizer, kept from kube-vip": (
        World(service(kind="ClusterIP", annotations=SUPPRESSED)),
        Plan(
            Phase.LEAVING,
            "NotManaged",
            write={"annotations": {KUBE_VIP_ADDRESSES: None, KUBE_VIP_IGNORE: None}, "release": True},
        ),
    ),
    "another class: withdrawal": (
        World(served(**OTHER_CLASS), (allocated(),)),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: "",
                    ANNOUNCED_AS: f"withdrawn, {ADDRESS}, again",
                    KUBE_VIP_IGNORE: None,
                }
            },
            then={"delete": LB_NAME},
            events=("Normal DeletingLoadBalancer",),
        ),
    ),
    "another class: the end": (
        World(
            service(ours=True, address=ADDRESS, annotations=WITHDRAWN, **OTHER_CLASS),
            (allocated(deleting=True),),
        ),
        Plan(
            Phase.LEAVING,
            "NotManaged",
            write={
                "annotations": {KUBE_VIP_ADDRESSES: None, ANNOUNCED_AS: None},
                "finalizers": [],
                "ingress": [],
                "release": True,
            },
            events=("Normal DeletedLoadBalancer",),
        ),
    ),
    "another class, its address is only in the specification": (
        World(
            service(ours=True, spec={"loadBalancerIP": ADDRESS, "loadBalancerClass": "example.com/other"}),
            (allocated(),),
        ),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            write={"annotations": {KUBE_VIP_ADDRESSES: "", ANNOUNCED_AS: "withdrawn, again", KUBE_VIP_IGNORE: None}},
            then={"delete": LB_NAME},
            events=("Normal DeletingLoadBalancer",),
        ),
    ),
    "another class, whose controller has announced its own address": (
        World(service(ours=True, address="10.0.0.9", annotations=OF_OTHERS, **OTHER_CLASS), (allocated(),)),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="True EnsuredLoadBalancer",
            write={"delete": LB_NAME},
            events=("Normal DeletingLoadBalancer",),
        ),
    ),
    "another class, whose controller has announced its own address: the end": (
        World(
            service(ours=True, address="10.0.0.9", annotations=OF_OTHERS, **OTHER_CLASS),
            (allocated(deleting=True),),
        ),
        Plan(
            Phase.LEAVING,
            "NotManaged",
            write={"annotations": {ANNOUNCED_AS: None}, "finalizers": [], "release": True},
            events=("Normal DeletedLoadBalancer",),
        ),
    ),
    "another class: withdrawal of a lease": (
        World(
            service(
                ours=True,
                address=ADDRESS,
                annotations={KUBE_VIP_ADDRESSES: DHCP_ADDRESS, KUBE_VIP_LEASE: ADDRESS},
                **OTHER_CLASS,
            ),
            (marked(ip=DHCP_ADDRESS, address=ADDRESS, spec={"ipam": "dhcp"}),),
        ),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: "",
                    ANNOUNCED_AS: "withdrawn, 0.0.0.0, again",
                    KUBE_VIP_IGNORE: None,
                }
            },
            then={"delete": LB_NAME},
            events=("Normal DeletingLoadBalancer",),
        ),
    ),
    "another class: the end of a lease": (
        World(
            service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, KUBE_VIP_LEASE: ADDRESS}, **OTHER_CLASS),
            (marked(ip=DHCP_ADDRESS, spec={"ipam": "dhcp"}, deleting=True),),
        ),
        Plan(
            Phase.LEAVING,
            "NotManaged",
            write={
                "annotations": {KUBE_VIP_ADDRESSES: None, ANNOUNCED_AS: None},
                "finalizers": [],
                "ingress": [],
                "release": True,
            },
            events=("Normal DeletedLoadBalancer",),
        ),
    ),
    "another class, its load balancer is gone": (
        World(served(**OTHER_CLASS)),
        Plan(
            Phase.LEAVING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: "",
                    ANNOUNCED_AS: f"withdrawn, {ADDRESS}, again",
                    KUBE_VIP_IGNORE: None,
                }
            },
        ),
    ),
}


@pytest.mark.parametrize(("world", "expected"), DELETION.values(), ids=DELETION.keys())
def test_deleted_service(world: World, expected: Plan) -> None:
    assert outline(world) == expected


@pytest.mark.parametrize(("world", "expected"), SHARED_ADDRESS.values(), ids=SHARED_ADDRESS.keys())
def test_deleted_primary(world: World, expected: Plan) -> None:
    assert outline(world) == expected


@pytest.mark.parametrize(("world", "expected"), STAYS.values(), ids=STAYS.keys())
def test_service_that_stays(world: World, expected: Plan) -> None:
    assert outline(world) == expected


def test_user_of_the_address_is_named() -> None:
    users = tuple(served(name, uid=name, labels=SHARES_THIS) for name in ("c", "b"))
    (message,) = messages(plan(served(deleting=True), allocated(), own_secondaries=users))
    assert "The address is still shared by shop/b, shop/c" in message


def test_address_that_stays_announced_is_named_with_its_node() -> None:
    made = plan(served(kind="ClusterIP", annotations={KUBE_VIP_HOST: "n1"}), allocated())
    (event,) = [event for event in made.events if event.reason == Reason.STILL_ANNOUNCED]
    assert event.message.startswith("kube-vip up to 1.2.3 does not withdraw")
    assert f"{ADDRESS} may stay up on node n1 until kube-vip restarts" in event.message
    assert event.subject == "n1"


def test_deletion_that_does_not_end_names_the_pool() -> None:
    waiting = service(ours=True, annotations=SUPPRESSED)
    (message,) = messages(plan(waiting, marked(deleting=True, ip=ADDRESS, pool="lan"), waited=30.0))
    assert "If IP pool 'lan' does not exist any more, create it again under this name" in message
    (message,) = messages(plan(waiting, marked(deleting=True), waited=30.0))
    assert "create it again" not in message


def test_withdrawal_of_a_service_of_another_class_holds_for_its_version_only() -> None:
    """Its controller may write an address of its own at this moment."""
    announced = service(ours=True, address=ADDRESS, annotations={KUBE_VIP_ADDRESSES: ADDRESS}, **OTHER_CLASS)
    made = plan(announced, allocated())
    assert isinstance(made.write, PatchService)
    metadata: Any = made.write.patch["metadata"]
    assert metadata["resourceVersion"] == "7"
