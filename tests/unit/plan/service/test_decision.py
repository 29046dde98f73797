"""Whole plans of a Service: the Events, the one write and what the Service waits for, in the order of its life."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import WaitReason
from harvester_ccm.names import (
    HEALTH_CHECK_PORT,
    IP_POOL,
    IPAM,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    LB_OWNER,
    LB_RECONCILE,
    LB_REQUESTED_NETWORK,
    NETWORK,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    REQUESTED_ADDRESS,
    SERVICE_FINALIZER,
    WORKLOAD_TYPE,
)
from tests.unit.plan.service.plans import outline, plan
from tests.worlds.builders import ADDRESS, CLUSTER, LB_NAME, SUPPRESSED, VM_SPEC, allocated, marked, served, service

EXHAUSTED = "fail to get ip from pool lan, error: no IP addresses available in range set: 10.0.0.1-10.0.0.2"
WITHDRAWN = {KUBE_VIP_ADDRESSES: ""}
BLOCKED_LAN = {"allocatedAddress": {"ipPool": "lan"}, "conditions": None}
SHOWN = f"{ADDRESS} VIP 80/TCP"
VM = {WORKLOAD_TYPE: "vm"}
waiting = service(ours=True, annotations=SUPPRESSED)
hosted = service(ours=True, address=ADDRESS, annotations={**SUPPRESSED, **VM})
vmlb = allocated(spec=VM_SPEC)
primary = served("main", uid="main-uid")
other = service("main", uid="main-uid", ours=True, address="10.0.0.9")
shares = {PRIMARY_SERVICE: "shop/main"}
shared = {PRIMARY_SERVICE_LABEL: "shop.web"}
dns = service(ours=True, ports=[{"port": 80, "protocol": "UDP"}], annotations={**SUPPRESSED, **shares})
older = service(ours=True, ports=[{"port": 443}], created="2026-01-01T00:00:00Z", annotations={**SUPPRESSED, **shares})
newer = served(
    "b",
    uid="b",
    ports=[{"port": 443}],
    created="2026-02-01T00:00:00Z",
    annotations=shares,
    labels={PRIMARY_SERVICE_LABEL: "shop.main"},
)


class Row(NamedTuple):
    """A Service, its load balancers and other facts, and the plan: Events, write and reason to wait."""

    asked: Service
    found: tuple[LoadBalancer, ...] = ()
    more: Mapping[str, Any] = MappingProxyType({})
    events: Sequence[str] = ()
    write: object = None
    reason: WaitReason | None = None


ROWS = {
    "a new Service is suppressed first": Row(
        service(),
        events=["Normal EnsuringLoadBalancer"],
        write={"annotations": SUPPRESSED, "finalizers": [SERVICE_FINALIZER]},
        reason=WaitReason.QUEUED,
    ),
    "then its load balancer is created": Row(
        waiting,
        events=["Normal EnsuringLoadBalancer"],
        write={"create": LB_NAME, "workloadType": "cluster", "ipam": "pool"},
        reason=WaitReason.QUEUED,
    ),
    "kube-vip keeps the address that the user requests": Row(
        service(spec={"loadBalancerIP": "10.0.0.7"}),
        events=["Normal EnsuringLoadBalancer"],
        write={"finalizers": [SERVICE_FINALIZER]},
        reason=WaitReason.QUEUED,
    ),
    "no node ports yet for a VM load balancer": Row(
        service(annotations=VM, ports=[{"port": 80}]), write={"annotations": SUPPRESSED}, reason=WaitReason.NODE_PORTS
    ),
    "VMs not listed yet": Row(
        service(annotations=VM),
        more={"backends": None},
        write={"annotations": SUPPRESSED},
        reason=WaitReason.HARVESTER_UNAVAILABLE,
    ),
    "a VM load balancer": Row(
        service(annotations={**VM, **SUPPRESSED}, ours=True),
        events=["Normal EnsuringLoadBalancer"],
        write={"create": LB_NAME, "ipam": "pool", **VM_SPEC},
        reason=WaitReason.QUEUED,
    ),
    "a health check": Row(
        service(annotations={HEALTH_CHECK_PORT: "80", **SUPPRESSED}, ours=True),
        events=["Normal EnsuringLoadBalancer"],
        write={
            "create": LB_NAME,
            "ipam": "pool",
            "healthCheck": {
                "port": 30080,
                "successThreshold": 1,
                "failureThreshold": 3,
                "periodSeconds": 5,
                "timeoutSeconds": 3,
            },
            **VM_SPEC,
        },
        reason=WaitReason.QUEUED,
    ),
    "Harvester not read yet": Row(
        service(),
        more={"harvester_known": False},
        write={"annotations": SUPPRESSED},
        reason=WaitReason.HARVESTER_UNAVAILABLE,
    ),
    "not processed yet": Row(waiting, found=(marked(),), reason=WaitReason.NOT_PROCESSED),
    "no free address": Row(
        waiting, found=(marked(message=EXHAUSTED),), events=["Warning AddressPending"], reason=WaitReason.POOL_EXHAUSTED
    ),
    "another pool is requested meanwhile": Row(
        service(ours=True, annotations={**SUPPRESSED, IP_POOL: "other"}),
        found=(marked(message=EXHAUSTED),),
        events=["Warning AddressPending"],
        write={"write": LB_NAME, "status": BLOCKED_LAN},
        reason=WaitReason.POOL_EXHAUSTED,
    ),
    "the blocked pool was confirmed": Row(
        service(ours=True, annotations={**SUPPRESSED, IP_POOL: "other"}),
        found=(marked(closed="lan", message="x"),),
        events=["Warning AddressPending"],
        write={"delete": LB_NAME},
        reason=WaitReason.OTHER,
    ),
    "allocated": Row(
        waiting,
        found=(marked(ip=ADDRESS, pool="lan"),),
        events=["Normal EnsuredLoadBalancer"],
        write={"annotations": {KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None}, "ingress": [SHOWN]},
    ),
    "the load balancer gets the address": Row(
        served(), found=(marked(ip=ADDRESS, pool="lan"),), write={"write": LB_NAME, "status": {"address": ADDRESS}}
    ),
    "ready": Row(served(), found=(allocated(),)),
    "another address": Row(
        served(),
        found=(allocated(ip="10.0.0.9", address="10.0.0.9"),),
        events=["Warning AddressChanged"],
        write={"annotations": WITHDRAWN, "touch": True},
        reason=WaitReason.ENDPOINTS,
    ),
    "the withdrawn address is announced again after a touch": Row(
        service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, KUBE_VIP_HOST: "n1"}),
        found=(allocated(),),
        write={"annotations": {KUBE_VIP_ADDRESSES: ADDRESS}, "touch": True},
        reason=WaitReason.ENDPOINTS,
    ),
    "no component publishes the device": Row(
        service(ours=True, annotations={**SUPPRESSED, NETWORK: "lan"}),
        found=(marked(ip=ADDRESS, pool="lan", annotations={LB_REQUESTED_NETWORK: "lan"}),),
        more={"cluster": replace(CLUSTER, publishes_devices=False)},
        events=["Warning NetworkDeviceUnknown", "Normal EnsuredLoadBalancer"],
        write={"annotations": {KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None}, "ingress": [SHOWN]},
    ),
    "Harvester not read yet, and an address is requested": Row(
        service(annotations={KUBE_VIP_ADDRESSES: "10.0.0.7"}),
        more={"harvester_known": False},
        write={"annotations": {KUBE_VIP_ADDRESSES: "", REQUESTED_ADDRESS: "10.0.0.7"}, "touch": True},
        reason=WaitReason.HARVESTER_UNAVAILABLE,
    ),
    "an address that the Go provider announced is no request": Row(
        served(condition=False, labels={PRIMARY_SERVICE_LABEL: "shop.main"}),
        found=(allocated(),),
        write={"labels": {PRIMARY_SERVICE_LABEL: None}},
    ),
    "an address that was requested under the Go provider": Row(
        service(ours=True, annotations={KUBE_VIP_ADDRESSES: "10.0.0.7"}),
        found=(marked(message=EXHAUSTED),),
        events=["Warning AddressPending"],
        write={"annotations": {KUBE_VIP_ADDRESSES: "", REQUESTED_ADDRESS: "10.0.0.7"}, "touch": True},
        reason=WaitReason.POOL_EXHAUSTED,
    ),
    "the label of a former primary": Row(
        served(labels={PRIMARY_SERVICE_LABEL: "shop.main"}),
        found=(allocated(),),
        write={"labels": {PRIMARY_SERVICE_LABEL: None}},
    ),
    "a user has kube-vip ignore the Service": Row(served(annotations={KUBE_VIP_IGNORE: "true"}), found=(allocated(),)),
    "kube-vip has to withdraw what Harvester announces": Row(
        served(annotations=VM), found=(vmlb,), write={"annotations": WITHDRAWN, "touch": True}
    ),
    "kube-vip has to withdraw what Harvester announces, although it ignores the Service": Row(
        served(annotations={**VM, KUBE_VIP_IGNORE: "true"}),
        found=(vmlb,),
        write={"annotations": {**WITHDRAWN, KUBE_VIP_IGNORE: None}, "touch": True},
    ),
    "kube-vip has to announce the address of the specification": Row(
        service(ours=True, spec={"loadBalancerIP": ADDRESS}, annotations={KUBE_VIP_IGNORE: "true"}),
        found=(allocated(),),
        events=["Normal EnsuredLoadBalancer"],
        write={"annotations": {KUBE_VIP_IGNORE: None}, "ingress": [SHOWN]},
    ),
    "a secondary while the load balancer of its primary is replaced": Row(
        served(ports=[{"port": 443}], annotations=shares, labels={PRIMARY_SERVICE_LABEL: "shop.main"}),
        more={
            "primary": service("main", uid="main-uid", ours=True, address=ADDRESS, annotations=WITHDRAWN),
            "primary_allocated": frozenset(),
        },
        write={"annotations": WITHDRAWN, "touch": True},
        reason=WaitReason.SHARED_ADDRESS,
    ),
    "a duplicate for which Harvester allocates an address": Row(
        served(), found=(allocated(), marked(name="demo-shop-web-old", uid="old"))
    ),
    "a VM load balancer with an address": Row(
        service(ours=True, annotations={**SUPPRESSED, **VM}),
        found=(vmlb,),
        events=["Normal EnsuredLoadBalancer"],
        write={"ingress": [SHOWN]},
    ),
    "both annotations are restored": Row(
        service(ours=True, annotations=VM),
        found=(vmlb,),
        events=["Normal EnsuredLoadBalancer"],
        write={"annotations": SUPPRESSED, "ingress": [SHOWN]},
    ),
    "served by Harvester": Row(hosted, found=(vmlb,)),
    "no node can get traffic": Row(
        hosted,
        found=(vmlb,),
        more={"backends": ()},
        events=["Warning BackendsUnhealthy"],
        write={
            "write": LB_NAME,
            "spec": {"backendServerSelector": {"harvesterhci.io/vmName": ["no-node-of-this-cluster"]}},
        },
    ),
    "a switch: dry run, pin and withdrawal": Row(
        served(annotations=VM),
        found=(allocated(),),
        events=["Normal ReplacingLoadBalancer"],
        write={"annotations": {IP_POOL: "vlan100", KUBE_VIP_ADDRESSES: ""}, "touch": True},
        reason=WaitReason.OLD_LOAD_BALANCER,
    ),
    "a switch: deletion": Row(
        service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, **VM, IP_POOL: "vlan100"}),
        found=(allocated(),),
        events=["Normal ReplacingLoadBalancer"],
        write={"delete": LB_NAME},
        reason=WaitReason.OLD_LOAD_BALANCER,
    ),
    "a switch: Harvester allocates the address": Row(
        service(ours=True, annotations={**SUPPRESSED, **VM}), found=(marked(),), reason=WaitReason.ALLOCATING
    ),
    "a switch: the old one is being deleted": Row(
        service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, **VM, IP_POOL: "vlan100"}),
        found=(allocated(deleting=True),),
        reason=WaitReason.OLD_LOAD_BALANCER,
    ),
    "a switch: creation": Row(
        service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, **VM, IP_POOL: "vlan100"}),
        events=["Normal EnsuringLoadBalancer"],
        write={"create": LB_NAME, "ipam": "pool", "ipPool": "vlan100", **VM_SPEC},
        reason=WaitReason.QUEUED,
    ),
    "the load balancer vanished": Row(
        served(),
        events=["Warning RecreatingLoadBalancer"],
        write={"create": LB_NAME, "workloadType": "cluster", "ipam": "pool"},
        reason=WaitReason.QUEUED,
    ),
    "removal: withdrawal": Row(
        served(deleting=True),
        found=(allocated(),),
        events=["Normal DeletingLoadBalancer"],
        write={"annotations": WITHDRAWN, "touch": True},
        reason=WaitReason.ALLOCATING,
    ),
    "removal: deletion": Row(
        served(deleting=True, annotations=WITHDRAWN),
        found=(allocated(),),
        events=["Normal DeletingLoadBalancer"],
        write={"delete": LB_NAME},
        reason=WaitReason.ALLOCATING,
    ),
    "removal: the end": Row(
        served(deleting=True, annotations=WITHDRAWN),
        found=(allocated(deleting=True),),
        events=["Normal DeletedLoadBalancer"],
        write={"finalizers": [], "ingress": None},
    ),
    "removal: Harvester has not responded": Row(
        service(ours=True, deleting=True, annotations=SUPPRESSED), found=(marked(),), reason=WaitReason.ALLOCATING
    ),
    "removal: the pool is blocked": Row(
        service(ours=True, deleting=True, annotations=SUPPRESSED),
        found=(marked(message=EXHAUSTED),),
        write={"write": LB_NAME, "status": BLOCKED_LAN},
        reason=WaitReason.ALLOCATING,
    ),
    "removal: one more search": Row(
        service(ours=True, deleting=True, annotations=SUPPRESSED),
        found=(marked(message="no matched IPPool"),),
        write={"write": LB_NAME, "annotations": {LB_RECONCILE: "true"}, "status": {"conditions": None}},
        reason=WaitReason.ALLOCATING,
    ),
    "removal: patience": Row(
        service(ours=True, deleting=True, annotations=SUPPRESSED),
        found=(marked(),),
        more={"waited": 300.0},
        events=["Normal DeletingLoadBalancer"],
        write={"delete": LB_NAME},
        reason=WaitReason.ALLOCATING,
    ),
    "removal: secondaries": Row(
        served(deleting=True),
        found=(allocated(),),
        more={"own_secondaries": (served("b", uid="b", labels={PRIMARY_SERVICE_LABEL: "shop.web"}),)},
        events=["Warning DeletionPending"],
        reason=WaitReason.SHARED_ADDRESS,
    ),
    "removal: Harvester not read yet": Row(
        service(ours=True, deleting=True, annotations=SUPPRESSED),
        more={"harvester_known": False},
        reason=WaitReason.HARVESTER_UNAVAILABLE,
    ),
    "removal: kube-vip has to see the withdrawal": Row(
        served(deleting=True, annotations={KUBE_VIP_IGNORE: "true"}),
        found=(allocated(),),
        events=["Normal DeletingLoadBalancer"],
        write={"annotations": {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: None}, "touch": True},
        reason=WaitReason.ALLOCATING,
    ),
    "removal: a secondary that is being deleted, too": Row(
        served(deleting=True),
        found=(allocated(),),
        more={"own_secondaries": (served("b", deleting=True, labels=shared),)},
        events=["Warning DeletionPending"],
        reason=WaitReason.SHARED_ADDRESS,
    ),
    "removal: a secondary without a status": Row(
        served(deleting=True),
        found=(allocated(),),
        more={"own_secondaries": (service("b", ours=True, annotations={KUBE_VIP_ADDRESSES: ADDRESS}, labels=shared),)},
        events=["Warning DeletionPending"],
        reason=WaitReason.SHARED_ADDRESS,
    ),
    "a switch: secondaries announce the address": Row(
        service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, **VM, IP_POOL: "vlan100"}),
        found=(allocated(),),
        more={"own_secondaries": (served("b", uid="b", labels=shared),)},
        reason=WaitReason.SHARED_ADDRESS,
    ),
    "a secondary with a load balancer: withdrawal": Row(
        served(ports=[{"port": 443, "protocol": "TCP"}], annotations=shares),
        found=(allocated(),),
        more={"primary": other, "primary_allocated": frozenset({"10.0.0.9"})},
        events=["Normal DeletingLoadBalancer"],
        write={"annotations": WITHDRAWN, "touch": True},
        reason=WaitReason.ALLOCATING,
    ),
    "a secondary whose own address is shared": Row(
        served(ports=[{"port": 443, "protocol": "TCP"}], annotations=shares),
        found=(allocated(),),
        more={
            "primary": other,
            "primary_allocated": frozenset({"10.0.0.9"}),
            "own_secondaries": (served("b", uid="b", labels=shared),),
        },
        events=["Warning AddressSharingRejected"],
    ),
    "a secondary": Row(
        service(ours=True, ports=[{"port": 443, "protocol": "TCP"}], annotations={**SUPPRESSED, **shares}),
        more={"primary": primary, "primary_allocated": frozenset({ADDRESS})},
        events=["Normal EnsuredLoadBalancer"],
        write={
            "annotations": {KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None},
            "labels": {PRIMARY_SERVICE_LABEL: "shop.main"},
            "ingress": [SHOWN.replace("80", "443")],
        },
    ),
    "a secondary of none": Row(
        service(annotations=shares),
        events=["Warning AddressSharingRejected"],
        write={"annotations": SUPPRESSED, "finalizers": [SERVICE_FINALIZER]},
        reason=WaitReason.UNSUPPORTED,
    ),
    "a port of the primary in another protocol": Row(
        dns,
        more={"primary": primary, "primary_allocated": frozenset({ADDRESS}), "ranked": (dns,)},
        events=["Normal EnsuredLoadBalancer"],
        write={
            "annotations": {KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None},
            "labels": {PRIMARY_SERVICE_LABEL: "shop.main"},
            "ingress": [SHOWN.replace("TCP", "UDP")],
        },
    ),
    "a port of a newer secondary that has the address": Row(
        older,
        more={"primary": primary, "primary_allocated": frozenset({ADDRESS}), "ranked": (older, newer)},
        events=["Warning AddressSharingRejected"],
        reason=WaitReason.UNSUPPORTED,
    ),
    "a former secondary": Row(
        served(labels={PRIMARY_SERVICE_LABEL: "shop.main"}),
        write={"annotations": WITHDRAWN, "labels": {PRIMARY_SERVICE_LABEL: None}, "ingress": None, "touch": True},
        reason=WaitReason.SHARED_ADDRESS,
    ),
    "the old load balancer is being deleted": Row(
        waiting, found=(marked(deleting=True),), reason=WaitReason.OLD_LOAD_BALANCER
    ),
    "the name belongs to another cluster": Row(
        service(),
        found=(marked(annotations={LB_OWNER: "other"}),),
        events=["Warning LoadBalancerOwnershipConflict"],
        write={"annotations": SUPPRESSED},
        reason=WaitReason.OWNERSHIP_CONFLICT,
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_plan(row: Row) -> None:
    events, write, outcome = outline(row.asked, *row.found, **row.more)
    assert (events, write, getattr(outcome, "reason", None)) == (list(row.events), row.write, row.reason)


@pytest.mark.parametrize(
    ("asked", "found", "expected"),
    [
        (waiting, (marked(message=EXHAUSTED),), ("False", "PoolExhausted")),
        (waiting, (marked(ip=ADDRESS, pool="lan"),), ("True", "EnsuredLoadBalancer")),
        (service(annotations={IPAM: "static"}), (), ("False", "Unsupported")),
        (served(deleting=True, annotations=WITHDRAWN), (allocated(deleting=True),), None),
        # Only with the next patch: a patch could make kube-vip announce the address again.
        (served(condition=False), (allocated(),), ("True", "EnsuredLoadBalancer")),
    ],
)
def test_condition(asked: Service, found: tuple[LoadBalancer, ...], expected: tuple[str, str] | None) -> None:
    condition = plan(asked, *found).condition
    assert (condition and (condition.status, condition.reason)) == expected


def test_a_replacement_is_checked_by_a_dry_run_and_needs_ten_writes() -> None:
    made = plan(served(annotations=VM), allocated())
    assert made.check is not None
    assert made.writes_needed == 10


def test_a_withdrawal_needs_the_writes_of_the_next_announcement() -> None:
    assert plan(served(), allocated(ip="10.0.0.9", address="10.0.0.9")).writes_needed == 3
