"""Plans of a Service that is removed from Harvester: it is being deleted, or is not to be served any more."""

from typing import Any, Final

from harvester_ccm.kube.errors import Unreachable
from harvester_ccm.model.core import Service
from harvester_ccm.names import (
    DHCP_ADDRESS,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    KUBE_VIP_INTERFACE,
    KUBE_VIP_LEASE,
    LB_CLUSTER,
    LB_OWNER,
    LB_REQUESTED_NETWORK,
    NETWORK,
    PRIMARY_SERVICE_LABEL,
    Reason,
)
from harvester_ccm.plan.service.announcing.record import Step
from harvester_ccm.plan.service.desired import PatchService
from tests.support.builders import (
    ADDRESS,
    SUPPRESSED,
    allocated,
    marked,
    served,
    service,
)
from tests.unit.plan.service.outcomes import differences
from tests.unit.plan.service.snapshots import (
    EXHAUSTED_LOAD_BALANCER,
    SHARED,
    VM,
    VM_LOAD_BALANCER,
    WITHDRAWN,
    World,
    messages,
    plan,
    record_of,
    with_condition,
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


def queued(of: Service) -> Service:
    return with_condition(of, "False", Reason.QUEUED)


DELETION: dict[str, World] = {
    "withdrawal": World(served(deleting=True), (allocated(),)),
    "withdrawal, although kube-vip ignores the Service": World(
        served(deleting=True, annotations={KUBE_VIP_IGNORE: "true"}), (allocated(),)
    ),
    "withdrawal of a requested address": World(
        service(ours=True, deleting=True, spec={"loadBalancerIP": "10.0.0.7"}), (marked(),)
    ),
    "Harvester announces the address": World(
        service(ours=True, deleting=True, address=ADDRESS, annotations={**SUPPRESSED, **VM}), (VM_LOAD_BALANCER,)
    ),
    "deletion": World(DELETED_WITHDRAWN, (allocated(),)),
    "two load balancers": World(DELETED_WITHDRAWN, (TERMINATING, allocated(name="demo-shop-web-old", uid="old"))),
    "the end": World(DELETED_WITHDRAWN, (TERMINATING,)),
    "the end, without a load balancer": World(DELETED),
    "the end, with a finalizer of another controller": World(
        service(ours=True, deleting=True, finalizers=["example.com/keep"], annotations=SUPPRESSED)
    ),
    "a Service of the Go provider": World(served(deleting=True, condition=False)),
    "a former secondary": World(served(deleting=True, labels=SHARED)),
    "a former secondary, withdrawn": World(served(deleting=True, labels=SHARED, annotations=WITHDRAWN)),
    "not processed": World(DELETED, (marked(),)),
    "not processed for 30 s": World(DELETED, (marked(),), {"waited": 30.0}),
    "not processed for 300 s": World(DELETED, (marked(),), {"waited": 300.0}),
    "the pool is full: it is blocked": World(DELETED, (EXHAUSTED_LOAD_BALANCER,)),
    "the blocked pool was confirmed": World(DELETED, (BLOCKED,)),
    "Harvester cannot be read": World(
        DELETED_WITHDRAWN, (allocated(),), {"harvester_problem": Unreachable("no route")}
    ),
}
SHARED_ADDRESS: dict[str, World] = {
    "a secondary": World(
        served(deleting=True), (allocated(),), {"own_secondaries": (served("b", uid="b", labels=SHARES_THIS),)}
    ),
    "a secondary of a lease": World(
        served(deleting=True),
        (marked(ip=DHCP_ADDRESS, spec={"ipam": "dhcp"}),),
        {"own_secondaries": (served("b", uid="b", labels=SHARES_THIS),)},
    ),
    "a secondary that is being deleted, too": World(
        served(deleting=True),
        (allocated(),),
        {"own_secondaries": (served("b", deleting=True, labels=SHARES_THIS),)},
    ),
    "a secondary without a status": World(
        served(deleting=True),
        (allocated(),),
        {"own_secondaries": (service("b", ours=True, annotations={KUBE_VIP_ADDRESSES: ADDRESS}, labels=SHARES_THIS),)},
    ),
    "a secondary with another address": World(
        served(deleting=True),
        (allocated(),),
        {"own_secondaries": (service("b", ours=True, address="10.0.0.9", annotations=SUPPRESSED, labels=SHARES_THIS),)},
    ),
    "a Service with the label that nobody manages": World(
        served(deleting=True),
        (allocated(),),
        {"own_secondaries": (service("b", kind="ClusterIP", address=ADDRESS, labels=SHARES_THIS),)},
    ),
    "a Service with the label that another controller serves": World(
        served(deleting=True),
        (allocated(),),
        {
            "own_secondaries": (
                service("b", address=ADDRESS, labels=SHARES_THIS, annotations={"metallb.io/address-pool": "lan"}),
            )
        },
    ),
    "a Service that names it, and does not have the label yet": World(
        served(deleting=True), (allocated(),), {"own_secondaries": (served("b", uid="b"),)}
    ),
    "a secondary of another type, without the finalizer": World(
        served(deleting=True),
        (allocated(),),
        {"own_secondaries": (queued(service("b", kind="ClusterIP", labels=SHARES_THIS, annotations=SHOWS)),)},
    ),
    "a secondary of another class, which another controller announces": World(
        served(deleting=True),
        (allocated(),),
        {"own_secondaries": (service("b", ours=True, labels=SHARES_THIS, annotations=SHOWS, **OTHER_CLASS),)},
    ),
    "a secondary of another class, which has the condition": World(
        served(deleting=True),
        (allocated(),),
        {"own_secondaries": (queued(service("b", ours=True, labels=SHARES_THIS, annotations=SHOWS, **OTHER_CLASS)),)},
    ),
    "a secondary, and the load balancer is gone": World(
        served(deleting=True), facts={"own_secondaries": (served("b", uid="b", labels=SHARES_THIS),)}
    ),
    "a secondary is being reconciled": World(served(deleting=True), (allocated(),), {"secondary_in_progress": True}),
    "a secondary is being reconciled, after the withdrawal": World(
        DELETED_WITHDRAWN, (allocated(),), {"secondary_in_progress": True}
    ),
}
OF_OTHERS: Final = {KUBE_VIP_ADDRESSES: "10.0.0.9", **record_of(Step.SHOWN)}
"""Another controller has announced its own address since."""
STAYS: dict[str, World] = {
    "type ClusterIP: deletion, kube-vip keeps the address": World(
        served(kind="ClusterIP", annotations={KUBE_VIP_HOST: "n1"}), (allocated(),)
    ),
    "type ClusterIP: the end": World(
        service(kind="ClusterIP", ours=True, annotations={**WITHDRAWN, KUBE_VIP_HOST: "n1"}),
        (allocated(deleting=True),),
    ),
    "type ClusterIP: Harvester announced the address": World(
        service(kind="ClusterIP", ours=True, annotations={**SUPPRESSED, **VM}), (VM_LOAD_BALANCER,)
    ),
    "type ClusterIP: the device of the network": World(
        service(kind="ClusterIP", ours=True, annotations={**WITHDRAWN, **VLAN, KUBE_VIP_INTERFACE: "eth1"}),
        (allocated(deleting=True, annotations={LB_REQUESTED_NETWORK: "infra/vlan9"}),),
        {"network_devices": {"infra/vlan9": "eth1"}},
    ),
    "type ClusterIP: a device of the user": World(
        service(kind="ClusterIP", ours=True, annotations={**WITHDRAWN, **VLAN, KUBE_VIP_INTERFACE: "bond7"}),
        (allocated(deleting=True, annotations={LB_REQUESTED_NETWORK: "infra/vlan9"}),),
        {"network_devices": {"infra/vlan9": "eth1"}},
    ),
    "type ClusterIP: the device of the primary": World(
        service(kind="ClusterIP", ours=True, annotations={**WITHDRAWN, KUBE_VIP_INTERFACE: "eth1"}, labels=SHARED)
    ),
    "type ClusterIP, no finalizer, kept from kube-vip": World(service(kind="ClusterIP", annotations=SUPPRESSED)),
    "another class: withdrawal": World(served(**OTHER_CLASS), (allocated(),)),
    "another class: the end": World(
        service(ours=True, address=ADDRESS, annotations=WITHDRAWN, **OTHER_CLASS),
        (allocated(deleting=True),),
    ),
    "another class, its address is only in the specification": World(
        service(ours=True, spec={"loadBalancerIP": ADDRESS, "loadBalancerClass": "example.com/other"}),
        (allocated(),),
    ),
    "another class, whose controller has announced its own address": World(
        service(ours=True, address="10.0.0.9", annotations=OF_OTHERS, **OTHER_CLASS), (allocated(),)
    ),
    "another class, whose controller has announced its own address: the end": World(
        service(ours=True, address="10.0.0.9", annotations=OF_OTHERS, **OTHER_CLASS),
        (allocated(deleting=True),),
    ),
    "another class: withdrawal of a lease": World(
        service(
            ours=True,
            address=ADDRESS,
            annotations={KUBE_VIP_ADDRESSES: DHCP_ADDRESS, KUBE_VIP_LEASE: ADDRESS},
            **OTHER_CLASS,
        ),
        (marked(ip=DHCP_ADDRESS, address=ADDRESS, spec={"ipam": "dhcp"}),),
    ),
    "another class: the end of a lease": World(
        service(
            ours=True,
            address=ADDRESS,
            annotations={**WITHDRAWN, KUBE_VIP_LEASE: ADDRESS, **record_of(Step.WITHDRAWN, DHCP_ADDRESS, again=True)},
            **OTHER_CLASS,
        ),
        (marked(ip=DHCP_ADDRESS, spec={"ipam": "dhcp"}, deleting=True),),
    ),
    "another class, and kube-vip has noted its node": World(
        served(annotations={KUBE_VIP_HOST: "n1"}, **OTHER_CLASS), (allocated(),)
    ),
    "type ClusterIP and deleted, kube-vip has noted its node": World(
        served(kind="ClusterIP", deleting=True, annotations={KUBE_VIP_HOST: "n1"}), (allocated(),)
    ),
    "another class, its load balancer is gone": World(served(**OTHER_CLASS)),
    "another class: the end, the address was withdrawn": World(
        service(ours=True, annotations=WITHDRAWN, **OTHER_CLASS), (allocated(deleting=True),)
    ),
    "type ClusterIP: the end, with the address of another program": World(
        service(kind="ClusterIP", ours=True, address="10.0.0.9", annotations=WITHDRAWN), (allocated(deleting=True),)
    ),
    "type ClusterIP: the end, a Service of the Go provider": World(
        served(kind="ClusterIP", condition=False, recorded=False, annotations=WITHDRAWN), (allocated(deleting=True),)
    ),
    "type ClusterIP, no finalizer, kept from kube-vip, which has noted its node": World(
        service(kind="ClusterIP", annotations={**SUPPRESSED, KUBE_VIP_HOST: "n1"})
    ),
    "type ClusterIP, no finalizer, with an address and the record": World(
        service(kind="ClusterIP", address=ADDRESS, annotations={**WITHDRAWN, **record_of(Step.WITHDRAWN)})
    ),
    "type ClusterIP, no finalizer, with an address and the condition": World(
        queued(service(kind="ClusterIP", address=ADDRESS, annotations=WITHDRAWN))
    ),
    "type ClusterIP, no finalizer, with the condition, and a user requests an address": World(
        queued(service(kind="ClusterIP", annotations=SHOWS))
    ),
    "type ClusterIP, no finalizer, kept from kube-vip, with the address of another program": World(
        service(kind="ClusterIP", address="10.0.0.9", annotations=SUPPRESSED)
    ),
}


def test_deleted_service() -> None:
    assert differences("removal_deletion", DELETION) == []


def test_deleted_primary() -> None:
    assert differences("removal_shared_address", SHARED_ADDRESS) == []


def test_service_that_stays() -> None:
    assert differences("removal_stays", STAYS) == []


def test_load_balancer_under_another_cluster_name_stays_and_is_named() -> None:
    made = plan(DELETED, marked(name="old-shop-web-1", labels={LB_CLUSTER: "old"}))
    (event,) = made.events
    assert event.reason == Reason.OWNERSHIP_CONFLICT
    assert "--former-cluster-names=old" in event.message
    of_other_cluster = marked(name="old-shop-web-1", labels={LB_CLUSTER: "old"}, annotations={LB_OWNER: "another"})
    assert [event.reason for event in plan(DELETED, of_other_cluster).events] == [Reason.DELETED]


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
    made = plan(service(kind="ClusterIP", ours=True, annotations={**WITHDRAWN, KUBE_VIP_HOST: "n1"}))
    assert (
        "1.2.3 does not withdraw an address when a Service is no longer of type LoadBalancer: its address may"
        in (messages(made, Reason.STILL_ANNOUNCED)[0])
    )


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
