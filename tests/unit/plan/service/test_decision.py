"""Whole plans of a Service: the Events, the one write and what the Service waits for, in the order of its life."""

from __future__ import annotations

from typing import Any

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
    LB_ASKED_AGAIN,
    LB_OWNER,
    LB_REQUESTED_NETWORK,
    NETWORK,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    REQUESTED_ADDRESS,
    SERVICE_FINALIZER,
    WORKLOAD_TYPE,
)
from harvester_ccm.plan.service.backends import Backends
from tests.unit.plan.service.plans import outline, plan
from tests.worlds.builders import ADDRESS, CLUSTER, LB_NAME, allocated, marked, served, service

EXHAUSTED = "fail to get ip from pool lan, error: no IP addresses available in range set: 10.0.0.1-10.0.0.2"
SUPPRESSED = {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}
WITHDRAWN = {KUBE_VIP_ADDRESSES: ""}
SHOWN = f"{ADDRESS} VIP 80/TCP"
VM = {WORKLOAD_TYPE: "vm"}
SPEC: dict[str, Any] = {
    "workloadType": "vm",
    "listeners": [{"name": "tcp-80", "port": 80, "protocol": "TCP", "backendPort": 30080}],
    "backendServerSelector": {"harvesterhci.io/vmName": ["vm-1", "vm-2"]},
}
waiting = service(ours=True, annotations=SUPPRESSED)
hosted = service(ours=True, address=ADDRESS, annotations={**SUPPRESSED, **VM})
vmlb = allocated(spec=SPEC)
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
Row = tuple[Service, tuple[LoadBalancer, ...], dict[str, Any], list[str], object, WaitReason | None]
"""The Service, its load balancers, other facts; the Events, the write, and the reason to wait."""

ROWS: dict[str, Row] = {
    "a new Service is suppressed first": (
        service(),
        (),
        {},
        ["Normal EnsuringLoadBalancer"],
        {"annotations": {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}, "finalizers": [SERVICE_FINALIZER]},
        WaitReason.QUEUED,
    ),
    "then its load balancer is created": (
        waiting,
        (),
        {},
        ["Normal EnsuringLoadBalancer"],
        {"create": LB_NAME, "workloadType": "cluster", "ipam": "pool"},
        WaitReason.QUEUED,
    ),
    "kube-vip keeps the address that the user requests": (
        service(spec={"loadBalancerIP": "10.0.0.7"}),
        (),
        {},
        ["Normal EnsuringLoadBalancer"],
        {"finalizers": [SERVICE_FINALIZER]},
        WaitReason.QUEUED,
    ),
    "no node ports yet for a VM load balancer": (
        service(annotations=VM, ports=[{"port": 80}]),
        (),
        {},
        [],
        {"annotations": {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}},
        WaitReason.NODE_PORTS,
    ),
    "VMs not listed yet": (
        service(annotations=VM),
        (),
        {"backends": Backends(known=False)},
        [],
        {"annotations": {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}},
        WaitReason.HARVESTER_UNAVAILABLE,
    ),
    "a VM load balancer": (
        service(annotations={**VM, **SUPPRESSED}, ours=True),
        (),
        {},
        ["Normal EnsuringLoadBalancer"],
        {
            "create": LB_NAME,
            "workloadType": "vm",
            "ipam": "pool",
            "listeners": [{"name": "tcp-80", "port": 80, "protocol": "TCP", "backendPort": 30080}],
            "backendServerSelector": {"harvesterhci.io/vmName": ["vm-1", "vm-2"]},
        },
        WaitReason.QUEUED,
    ),
    "a health check": (
        service(annotations={HEALTH_CHECK_PORT: "80", **SUPPRESSED}, ours=True),
        (),
        {},
        ["Normal EnsuringLoadBalancer"],
        {
            "create": LB_NAME,
            "workloadType": "vm",
            "ipam": "pool",
            "listeners": [{"name": "tcp-80", "port": 80, "protocol": "TCP", "backendPort": 30080}],
            "backendServerSelector": {"harvesterhci.io/vmName": ["vm-1", "vm-2"]},
            "healthCheck": {
                "port": 30080,
                "successThreshold": 1,
                "failureThreshold": 3,
                "periodSeconds": 5,
                "timeoutSeconds": 3,
            },
        },
        WaitReason.QUEUED,
    ),
    "Harvester not read yet": (
        service(),
        (),
        {"harvester_known": False},
        [],
        {"annotations": {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}},
        WaitReason.HARVESTER_UNAVAILABLE,
    ),
    "not processed yet": (waiting, (marked(),), {}, [], None, WaitReason.NOT_PROCESSED),
    "no free address": (
        waiting,
        (marked(message=EXHAUSTED),),
        {},
        ["Warning AddressPending"],
        None,
        WaitReason.POOL_EXHAUSTED,
    ),
    "another pool is requested meanwhile": (
        service(ours=True, annotations={**SUPPRESSED, IP_POOL: "other"}),
        (marked(message=EXHAUSTED),),
        {},
        ["Warning AddressPending"],
        {"write": LB_NAME, "closing_pool": "lan"},
        WaitReason.POOL_EXHAUSTED,
    ),
    "the blocked pool was confirmed": (
        service(ours=True, annotations={**SUPPRESSED, IP_POOL: "other"}),
        (marked(closed="lan", message="x"),),
        {},
        ["Warning AddressPending"],
        {"delete": LB_NAME},
        WaitReason.OTHER,
    ),
    "allocated": (
        waiting,
        (marked(ip=ADDRESS, pool="lan"),),
        {},
        ["Normal EnsuredLoadBalancer"],
        {"annotations": {KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None}, "ingress": [SHOWN]},
        None,
    ),
    "the load balancer gets the address": (
        served(),
        (marked(ip=ADDRESS, pool="lan"),),
        {},
        [],
        {"write": LB_NAME, "address": ADDRESS},
        None,
    ),
    "ready": (served(), (allocated(),), {}, [], None, None),
    "another address": (
        served(),
        (allocated(ip="10.0.0.9", address="10.0.0.9"),),
        {},
        ["Warning AddressChanged"],
        {"annotations": {KUBE_VIP_ADDRESSES: ""}, "touch": True},
        WaitReason.ENDPOINTS,
    ),
    "the withdrawn address is announced again after a touch": (
        service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, KUBE_VIP_HOST: "n1"}),
        (allocated(),),
        {},
        [],
        {"annotations": {KUBE_VIP_ADDRESSES: ADDRESS}, "touch": True},
        WaitReason.ENDPOINTS,
    ),
    "no component publishes the device": (
        service(ours=True, annotations={**SUPPRESSED, NETWORK: "lan"}),
        (marked(ip=ADDRESS, pool="lan", annotations={LB_REQUESTED_NETWORK: "lan"}),),
        {"cluster": replace(CLUSTER, publishes_devices=False)},
        ["Warning NetworkDeviceUnknown", "Normal EnsuredLoadBalancer"],
        {"annotations": {KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None}, "ingress": [SHOWN]},
        None,
    ),
    "Harvester not read yet, and an address is requested": (
        service(annotations={KUBE_VIP_ADDRESSES: "10.0.0.7"}),
        (),
        {"harvester_known": False},
        [],
        {"annotations": {KUBE_VIP_ADDRESSES: "", REQUESTED_ADDRESS: "10.0.0.7"}, "touch": True},
        WaitReason.HARVESTER_UNAVAILABLE,
    ),
    "the label of a former primary": (
        served(labels={PRIMARY_SERVICE_LABEL: "shop.main"}),
        (allocated(),),
        {},
        [],
        {"labels": {PRIMARY_SERVICE_LABEL: None}},
        None,
    ),
    "a user has kube-vip ignore the Service": (
        served(annotations={KUBE_VIP_IGNORE: "true"}),
        (allocated(),),
        {},
        [],
        None,
        None,
    ),
    "kube-vip has to withdraw what Harvester announces": (
        served(annotations=VM),
        (vmlb,),
        {},
        [],
        {"annotations": {KUBE_VIP_ADDRESSES: ""}, "touch": True},
        None,
    ),
    "a secondary while the load balancer of its primary is replaced": (
        served(ports=[{"port": 443}], annotations=shares, labels={PRIMARY_SERVICE_LABEL: "shop.main"}),
        (),
        {
            "primary": service("main", uid="main-uid", ours=True, address=ADDRESS, annotations=WITHDRAWN),
            "primary_allocated": frozenset(),
        },
        [],
        {"annotations": {KUBE_VIP_ADDRESSES: ""}, "touch": True},
        WaitReason.SHARED_ADDRESS,
    ),
    "a duplicate for which Harvester allocates an address": (
        served(),
        (allocated(), marked(name="demo-shop-web-old", uid="old")),
        {},
        [],
        None,
        None,
    ),
    "a VM load balancer with an address": (
        service(ours=True, annotations={**SUPPRESSED, **VM}),
        (vmlb,),
        {},
        ["Normal EnsuredLoadBalancer"],
        {"ingress": [SHOWN]},
        None,
    ),
    "both annotations are restored": (
        service(ours=True, annotations=VM),
        (vmlb,),
        {},
        ["Normal EnsuredLoadBalancer"],
        {"annotations": SUPPRESSED, "ingress": [SHOWN]},
        None,
    ),
    "served by Harvester": (hosted, (vmlb,), {}, [], None, None),
    "no node can get traffic": (
        hosted,
        (vmlb,),
        {"backends": Backends(none_because="none")},
        ["Warning BackendsUnhealthy"],
        {"write": LB_NAME, "spec": {"backendServerSelector": {"harvesterhci.io/vmName": ["no-node-of-this-cluster"]}}},
        None,
    ),
    "a switch: dry run, pin and withdrawal": (
        served(annotations=VM),
        (allocated(),),
        {},
        ["Normal ReplacingLoadBalancer"],
        {"annotations": {IP_POOL: "vlan100", KUBE_VIP_ADDRESSES: ""}, "touch": True},
        WaitReason.OLD_LOAD_BALANCER,
    ),
    "a switch: deletion": (
        service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, **VM, IP_POOL: "vlan100"}),
        (allocated(),),
        {},
        ["Normal ReplacingLoadBalancer"],
        {"delete": LB_NAME},
        WaitReason.OLD_LOAD_BALANCER,
    ),
    "a switch: Harvester allocates the address": (
        service(ours=True, annotations={**SUPPRESSED, **VM}),
        (marked(),),
        {},
        [],
        None,
        WaitReason.ALLOCATING,
    ),
    "a switch: the old one is being deleted": (
        service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, **VM, IP_POOL: "vlan100"}),
        (allocated(deleting=True),),
        {},
        [],
        None,
        WaitReason.OLD_LOAD_BALANCER,
    ),
    "a switch: creation": (
        service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, **VM, IP_POOL: "vlan100"}),
        (),
        {},
        ["Normal EnsuringLoadBalancer"],
        {
            "create": LB_NAME,
            "workloadType": "vm",
            "ipam": "pool",
            "ipPool": "vlan100",
            "listeners": [{"name": "tcp-80", "port": 80, "protocol": "TCP", "backendPort": 30080}],
            "backendServerSelector": {"harvesterhci.io/vmName": ["vm-1", "vm-2"]},
        },
        WaitReason.QUEUED,
    ),
    "the load balancer vanished": (
        served(),
        (),
        {},
        ["Warning RecreatingLoadBalancer"],
        {"create": LB_NAME, "workloadType": "cluster", "ipam": "pool"},
        WaitReason.QUEUED,
    ),
    "removal: withdrawal": (
        served(deleting=True),
        (allocated(),),
        {},
        ["Normal DeletingLoadBalancer"],
        {"annotations": {KUBE_VIP_ADDRESSES: ""}, "touch": True},
        WaitReason.ALLOCATING,
    ),
    "removal: deletion": (
        served(deleting=True, annotations=WITHDRAWN),
        (allocated(),),
        {},
        ["Normal DeletingLoadBalancer"],
        {"delete": LB_NAME},
        WaitReason.ALLOCATING,
    ),
    "removal: the end": (
        served(deleting=True, annotations=WITHDRAWN),
        (allocated(deleting=True),),
        {},
        ["Normal DeletedLoadBalancer"],
        {"finalizers": [], "ingress": None},
        None,
    ),
    "removal: Harvester has not responded": (
        service(ours=True, deleting=True, annotations=SUPPRESSED),
        (marked(),),
        {},
        [],
        None,
        WaitReason.ALLOCATING,
    ),
    "removal: the pool is blocked": (
        service(ours=True, deleting=True, annotations=SUPPRESSED),
        (marked(message=EXHAUSTED),),
        {},
        [],
        {"write": LB_NAME, "closing_pool": "lan"},
        WaitReason.ALLOCATING,
    ),
    "removal: one more search": (
        service(ours=True, deleting=True, annotations=SUPPRESSED),
        (marked(message="no matched IPPool"),),
        {},
        [],
        {"write": LB_NAME, "annotations": {LB_ASKED_AGAIN: "true"}, "ask_again": True},
        WaitReason.ALLOCATING,
    ),
    "removal: patience": (
        service(ours=True, deleting=True, annotations=SUPPRESSED),
        (marked(),),
        {"waited": 300.0},
        ["Normal DeletingLoadBalancer"],
        {"delete": LB_NAME},
        WaitReason.ALLOCATING,
    ),
    "removal: secondaries": (
        served(deleting=True),
        (allocated(),),
        {"own_secondaries": (served("b", uid="b", labels={PRIMARY_SERVICE_LABEL: "shop.web"}),)},
        ["Warning DeletionPending"],
        None,
        WaitReason.SHARED_ADDRESS,
    ),
    "removal: Harvester not read yet": (
        service(ours=True, deleting=True, annotations=SUPPRESSED),
        (),
        {"harvester_known": False},
        [],
        None,
        WaitReason.HARVESTER_UNAVAILABLE,
    ),
    "removal: kube-vip has to see the withdrawal": (
        served(deleting=True, annotations={KUBE_VIP_IGNORE: "true"}),
        (allocated(),),
        {},
        ["Normal DeletingLoadBalancer"],
        {"annotations": {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: None}, "touch": True},
        WaitReason.ALLOCATING,
    ),
    "removal: a secondary that is being deleted, too": (
        served(deleting=True),
        (allocated(),),
        {"own_secondaries": (served("b", deleting=True, labels=shared),)},
        ["Warning DeletionPending"],
        None,
        WaitReason.SHARED_ADDRESS,
    ),
    "removal: a secondary without a status": (
        served(deleting=True),
        (allocated(),),
        {"own_secondaries": (service("b", ours=True, annotations={KUBE_VIP_ADDRESSES: ADDRESS}, labels=shared),)},
        ["Warning DeletionPending"],
        None,
        WaitReason.SHARED_ADDRESS,
    ),
    "a switch: secondaries announce the address": (
        service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, **VM, IP_POOL: "vlan100"}),
        (allocated(),),
        {"own_secondaries": (served("b", uid="b", labels=shared),)},
        [],
        None,
        WaitReason.SHARED_ADDRESS,
    ),
    "a secondary with a load balancer: withdrawal": (
        served(ports=[{"port": 443, "protocol": "TCP"}], annotations=shares),
        (allocated(),),
        {"primary": other, "primary_allocated": frozenset({"10.0.0.9"})},
        ["Normal DeletingLoadBalancer"],
        {"annotations": {KUBE_VIP_ADDRESSES: ""}, "touch": True},
        WaitReason.ALLOCATING,
    ),
    "a secondary whose own address is shared": (
        served(ports=[{"port": 443, "protocol": "TCP"}], annotations=shares),
        (allocated(),),
        {
            "primary": other,
            "primary_allocated": frozenset({"10.0.0.9"}),
            "own_secondaries": (served("b", uid="b", labels=shared),),
        },
        ["Warning AddressSharingRejected"],
        None,
        None,
    ),
    "a secondary": (
        service(ours=True, ports=[{"port": 443, "protocol": "TCP"}], annotations={**SUPPRESSED, **shares}),
        (),
        {"primary": primary, "primary_allocated": frozenset({ADDRESS})},
        ["Normal EnsuredLoadBalancer"],
        {
            "annotations": {KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None},
            "labels": {PRIMARY_SERVICE_LABEL: "shop.main"},
            "ingress": [SHOWN.replace("80", "443")],
        },
        None,
    ),
    "a secondary of none": (
        service(annotations=shares),
        (),
        {},
        ["Warning AddressSharingRejected"],
        {"annotations": {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}, "finalizers": [SERVICE_FINALIZER]},
        WaitReason.UNSUPPORTED,
    ),
    "a port of the primary in another protocol": (
        dns,
        (),
        {"primary": primary, "primary_allocated": frozenset({ADDRESS}), "secondaries_of_primary": (dns,)},
        ["Normal EnsuredLoadBalancer"],
        {
            "annotations": {KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None},
            "labels": {PRIMARY_SERVICE_LABEL: "shop.main"},
            "ingress": [SHOWN.replace("TCP", "UDP")],
        },
        None,
    ),
    "a port of a newer secondary that has the address": (
        older,
        (),
        {"primary": primary, "primary_allocated": frozenset({ADDRESS}), "secondaries_of_primary": (older, newer)},
        ["Warning AddressSharingRejected"],
        None,
        WaitReason.UNSUPPORTED,
    ),
    "a former secondary": (
        served(labels={PRIMARY_SERVICE_LABEL: "shop.main"}),
        (),
        {},
        [],
        {
            "annotations": {KUBE_VIP_ADDRESSES: ""},
            "labels": {PRIMARY_SERVICE_LABEL: None},
            "ingress": None,
            "touch": True,
        },
        WaitReason.SHARED_ADDRESS,
    ),
    "the old load balancer is being deleted": (
        waiting,
        (marked(deleting=True),),
        {},
        [],
        None,
        WaitReason.OLD_LOAD_BALANCER,
    ),
    "the name belongs to another cluster": (
        service(),
        (marked(annotations={LB_OWNER: "other"}),),
        {},
        ["Warning LoadBalancerOwnershipConflict"],
        {"annotations": {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}},
        WaitReason.OWNERSHIP_CONFLICT,
    ),
}


@pytest.mark.parametrize(("asked", "found", "more", "events", "write", "reason"), ROWS.values(), ids=ROWS.keys())
def test_plan(
    asked: Service,
    found: tuple[LoadBalancer, ...],
    more: dict[str, Any],
    events: list[str],
    write: object,
    reason: WaitReason | None,
) -> None:
    made, next_write, outcome = outline(asked, *found, **more)
    assert (made, next_write, getattr(outcome, "reason", None)) == (events, write, reason)


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
