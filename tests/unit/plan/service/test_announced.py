"""Plans of a Service with an allocated address that kube-vip in this cluster announces."""

from typing import Any, Final, cast

import pytest
from msgspec.structs import replace

from harvester_ccm.config import Announcer
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import (
    ANNOUNCED_AS,
    DHCP_ADDRESS,
    IPAM,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_DDNS,
    KUBE_VIP_HARDWARE,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    KUBE_VIP_INTERFACE,
    KUBE_VIP_LEASE,
    LB_OWNER,
    LB_RECONCILE,
    LB_REQUESTED_NETWORK,
    LEASE_NOTE_OUTDATED,
    NETWORK,
    PREFIX,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    REQUESTED_ADDRESS,
    SERVICE_FINALIZER,
    SPECIFIED_ADDRESS,
    Reason,
)
from harvester_ccm.plan.service.desired import PatchService, TriggerKubeVipResync
from harvester_ccm.plan.service.lease_wait import LeaseWait
from harvester_ccm.plan.service.phase import Phase
from tests.support.builders import ADDRESS, CLUSTER, LB_NAME, SUPPRESSED, allocated, marked, served, service
from tests.unit.plan.service.snapshots import (
    PUBLICATION,
    READY,
    RECORD,
    SHARED,
    SHOWN,
    WAITING,
    WITHDRAWAL,
    WITHDRAWN,
    Plan,
    World,
    messages,
    outline,
    plan,
)

VLAN: Final = {NETWORK: "infra/vlan9"}
IN_VLAN: Final = {LB_REQUESTED_NETWORK: "infra/vlan9"}
DEVICES: Final = {"network_devices": {"infra/vlan9": "eth1"}}
ONE_ADDRESS: Final = marked(ip=ADDRESS, pool="lan")
OTHER_ADDRESS: Final = allocated(ip="10.0.0.9", address="10.0.0.9")
WITHDRAWN_SERVICE: Final = service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, KUBE_VIP_HOST: "n1"})
DHCP: Final = {IPAM: "dhcp"}
LEASING: Final = service(ours=True, annotations={**DHCP, KUBE_VIP_ADDRESSES: DHCP_ADDRESS})
BY_DHCP: Final = marked(ip=DHCP_ADDRESS, spec={"ipam": "dhcp"})
NOTED: Final = {
    **DHCP,
    KUBE_VIP_ADDRESSES: DHCP_ADDRESS,
    KUBE_VIP_HOST: "n1",
    KUBE_VIP_HARDWARE: "02:00:00:00:00:01",
    KUBE_VIP_LEASE: ADDRESS,
}
LEASED: Final = service(ours=True, address=ADDRESS, annotations=NOTED)
AGAIN: Final = {KUBE_VIP_ADDRESSES: DHCP_ADDRESS, KUBE_VIP_DDNS: "False", **RECORD}
RECORDED: Final = marked(ip=DHCP_ADDRESS, address=ADDRESS, spec={"ipam": "dhcp"})
OUTDATED: Final = {**NOTED, LEASE_NOTE_OUTDATED: "true"}
FROM_POOL: Final = served(annotations={**DHCP, KUBE_VIP_HOST: "n1"})
"""A Service with the address of an IP pool that is to get its address from DHCP."""
TWO: Final[dict[str, Any]] = {"ingress": [{"ip": ADDRESS, "ipMode": "VIP"}, {"ip": "fd00::1", "ipMode": "VIP"}]}

POOL: dict[str, tuple[World, Plan]] = {
    "allocated, another client has written the address before": (
        World(served(annotations={KUBE_VIP_IGNORE: "true"}), (ONE_ADDRESS,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"annotations": {KUBE_VIP_IGNORE: None, **RECORD}},
            then={"change": LB_NAME, "status": {"address": ADDRESS}},
        ),
    ),
    "allocated": (
        World(WAITING, (ONE_ADDRESS,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"annotations": PUBLICATION, "ingress": [SHOWN]},
            then={"change": LB_NAME, "status": {"address": ADDRESS}},
            events=("Normal EnsuredLoadBalancer",),
        ),
    ),
    "allocated, while the finalizer was removed": (
        World(service(annotations=SUPPRESSED), (ONE_ADDRESS,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={
                "annotations": PUBLICATION,
                "finalizers": [SERVICE_FINALIZER],
                "ingress": [SHOWN],
            },
            then={"change": LB_NAME, "status": {"address": ADDRESS}},
            events=("Normal EnsuredLoadBalancer",),
        ),
    ),
    "allocated, the address of the specification": (
        World(service(ours=True, spec={"loadBalancerIP": ADDRESS}), (ONE_ADDRESS,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"annotations": {SPECIFIED_ADDRESS: ADDRESS, **RECORD}, "ingress": [SHOWN]},
            then={"change": LB_NAME, "status": {"address": ADDRESS}},
            events=("Normal EnsuredLoadBalancer",),
        ),
    ),
    "allocated, the address of the specification, which kube-vip ignores": (
        World(
            service(ours=True, spec={"loadBalancerIP": ADDRESS}, annotations={KUBE_VIP_IGNORE: "true"}), (allocated(),)
        ),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"annotations": {SPECIFIED_ADDRESS: ADDRESS, KUBE_VIP_IGNORE: None, **RECORD}, "ingress": [SHOWN]},
            events=("Normal EnsuredLoadBalancer",),
        ),
    ),
    "allocated, another one than the specification has": (
        World(service(ours=True, spec={"loadBalancerIP": "10.0.0.7"}), (ONE_ADDRESS,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write={"annotations": WITHDRAWAL, "touch": True},
            events=("Warning AddressNotAsRequested",),
            writes_needed=3,
        ),
    ),
    "the load balancer gets the address": (
        World(served(), (ONE_ADDRESS,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"change": LB_NAME, "status": {"address": ADDRESS}},
        ),
    ),
    "ready": (
        World(served(), (allocated(),)),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer"),
    ),
    "ready, announced with the same policy": (
        World(served(annotations=RECORD), (allocated(),)),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer"),
    ),
    "another policy since it was announced": (
        World(served(annotations=RECORD, spec={"externalTrafficPolicy": "Local"}), (allocated(),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write={"annotations": {ANNOUNCED_AS: "Local IPv4 SingleStack"}, "touch": True},
            events=("Warning LocalTrafficPolicy",),
            delay=1.0,
        ),
    ),
    "another policy, which another announcer does not see": (
        World(
            served(annotations=RECORD, spec={"externalTrafficPolicy": "Local"}),
            (allocated(),),
            {"cluster": replace(CLUSTER, announcer=Announcer.OTHER)},
        ),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            events=("Warning LocalTrafficPolicy",),
        ),
    ),
    "ready, another port since": (
        World(replace(served(), spec=served(ports=[{"port": 81}]).spec), (allocated(),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"ingress": ["192.168.100.20 VIP 81/TCP"]},
        ),
    ),
    "ready, another client emptied the status": (
        World(service(ours=True, annotations={KUBE_VIP_ADDRESSES: ADDRESS}), (allocated(),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"ingress": [SHOWN]},
            events=("Normal EnsuredLoadBalancer",),
        ),
    ),
    "ready, served by the Go provider: no patch for the condition alone": (
        World(served(condition=False), (allocated(),)),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer"),
    ),
    "ready, another client removed the condition": (
        World(served(condition=False), (allocated(spec={"description": "shop/web of cluster demo"}),)),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer", write="condition"),
    ),
    "ready, a user has kube-vip ignore the Service": (
        World(served(annotations={KUBE_VIP_IGNORE: "true"}), (allocated(),)),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer"),
    ),
    "ready, another client changed the annotation": (
        World(served(annotations={KUBE_VIP_ADDRESSES: "10.0.0.66"}), (allocated(),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write={"annotations": WITHDRAWAL, "touch": True},
            events=("Warning AnnotationRestored",),
            writes_needed=3,
        ),
    ),
    "ready, another client removed the annotation": (
        World(service(ours=True, address=ADDRESS, annotations={KUBE_VIP_HOST: "n1"}), (allocated(),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write={"annotations": {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: None}, "touch": True},
            writes_needed=3,
            delay=1.0,
        ),
    ),
    "ready, the label of a former primary": (
        World(served(labels=SHARED), (allocated(),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"labels": {PRIMARY_SERVICE_LABEL: None}},
        ),
    ),
    "the Go provider announced it: the label of a former primary": (
        World(served(condition=False, labels=SHARED), (allocated(),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"labels": {PRIMARY_SERVICE_LABEL: None}},
        ),
    ),
    "ready, a duplicate": (
        World(served(), (allocated(), allocated(name="demo-shop-web-old", uid="old"))),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"delete": "demo-shop-web-old"},
        ),
    ),
    "ready, a duplicate for which Harvester allocates an address": (
        World(served(), (allocated(), marked(name="demo-shop-web-old", uid="old"))),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer"),
    ),
    "ready, a duplicate that is being deleted": (
        World(served(), (allocated(), allocated(name="demo-shop-web-old", uid="old", deleting=True))),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer"),
    ),
    "ready, a load balancer of another cluster": (
        World(served(), (allocated(), marked(name="demo-shop-web-old", uid="old", annotations={LB_OWNER: "other"}))),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            events=("Warning LoadBalancerOwnershipConflict",),
        ),
    ),
    "ready, an unknown annotation": (
        World(served(annotations={f"{PREFIX}zzz": ""}), (allocated(),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            events=("Warning SettingsIgnored",),
        ),
    ),
    "ready, another address is requested": (
        World(served(annotations={REQUESTED_ADDRESS: "10.0.0.7"}), (allocated(),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            events=("Warning AddressNotAsRequested",),
        ),
    ),
    "ready, a primary that does not exist is named": (
        World(served(annotations={PRIMARY_SERVICE: "shop/none"}), (allocated(),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            events=("Warning AddressSharingRejected",),
        ),
    ),
    "ready, the search before is not needed any more": (
        World(served(), (allocated(annotations={LB_RECONCILE: "true"}),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"change": LB_NAME, "annotations": {LB_RECONCILE: None}},
        ),
    ),
    "ready, the labels of the load balancer were changed": (
        World(served(), (allocated(labels={"cloudprovider.harvesterhci.io/serviceName": "api"}),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"change": LB_NAME, "labels": {"cloudprovider.harvesterhci.io/serviceName": "web"}},
        ),
    ),
    "another address": (
        World(served(), (OTHER_ADDRESS,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write={"annotations": WITHDRAWAL, "touch": True},
            events=("Warning AddressChanged",),
            writes_needed=3,
        ),
    ),
    "another address, withdrawn": (
        World(WITHDRAWN_SERVICE, (OTHER_ADDRESS,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write={
                "annotations": {KUBE_VIP_ADDRESSES: "10.0.0.9", **RECORD},
                "ingress": ["10.0.0.9 VIP 80/TCP"],
                "touch": True,
            },
            events=("Warning AddressChanged",),
            delay=1.0,
        ),
    ),
    "withdrawn, announced again after a touch": (
        World(WITHDRAWN_SERVICE, (allocated(),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write={"annotations": {KUBE_VIP_ADDRESSES: ADDRESS, **RECORD}, "touch": True},
            delay=1.0,
        ),
    ),
    "the touch is due in half a second": (
        World(served(), (allocated(),), {"touch_in": 0.5}),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write="condition",
            delay=0.5,
        ),
    ),
    "the touch is due": (
        World(served(), (allocated(),), {"touch_in": 0.0}),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write="touch",
        ),
    ),
    "the touch is due, and another client cleared the status": (
        World(
            service(ours=True, annotations={KUBE_VIP_ADDRESSES: ADDRESS, **RECORD}), (allocated(),), {"touch_in": 0.0}
        ),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write={"ingress": [SHOWN]},
            then="touch",
            events=("Normal EnsuredLoadBalancer",),
        ),
    ),
    "the touch is due after the load balancer has its address": (
        World(served(), (ONE_ADDRESS,), {"touch_in": -1.0}),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write={"change": LB_NAME, "status": {"address": ADDRESS}},
        ),
    ),
    "a touch is due, another client withdrew the address": (
        World(service(ours=True, annotations=SUPPRESSED), (allocated(),), {"touch_in": 0.0}),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write={
                "annotations": PUBLICATION,
                "ingress": [SHOWN],
                "touch": True,
            },
            events=("Normal EnsuredLoadBalancer",),
            delay=1.0,
        ),
    ),
}
LEASES: dict[str, tuple[World, Plan]] = {
    "kube-vip is to get one": (
        World(service(ours=True, annotations={**SUPPRESSED, **DHCP}), (BY_DHCP,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady DHCPLeasePending",
            condition="False DHCPLeasePending",
            write={"annotations": {KUBE_VIP_ADDRESSES: "0.0.0.0", KUBE_VIP_IGNORE: None, **RECORD}},
            delay=30.0,
        ),
    ),
    "none yet": (
        World(LEASING, (BY_DHCP,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady DHCPLeasePending",
            condition="False DHCPLeasePending",
            write="condition",
            delay=30.0,
        ),
    ),
    "none for 30 s": (
        World(LEASING, (BY_DHCP,), {"waited": 30.0}),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady DHCPLeasePending",
            condition="False DHCPLeasePending",
            # The endpoints are read first.
            write=None,
        ),
    ),
    "in the status": (
        World(LEASED, (BY_DHCP,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"change": LB_NAME, "status": {"address": ADDRESS}},
            events=("Normal EnsuredLoadBalancer",),
        ),
    ),
    "ready": (
        World(LEASED, (RECORDED,)),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer"),
    ),
    "it was noted, the status was emptied": (
        World(service(ours=True, annotations=NOTED), (RECORDED,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"ingress": [SHOWN]},
            events=("Normal EnsuredLoadBalancer",),
        ),
    ),
    "the next one": (
        World(LEASED, (marked(ip=DHCP_ADDRESS, address="10.0.0.9", spec={"ipam": "dhcp"}),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"change": LB_NAME, "status": {"address": ADDRESS}},
            events=("Warning AddressChanged",),
        ),
    ),
    "another client removed the note of kube-vip": (
        World(service(ours=True, address=ADDRESS, annotations={**DHCP, KUBE_VIP_ADDRESSES: DHCP_ADDRESS}), (RECORDED,)),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer"),
    ),
    "two addresses, which are kube-vip's": (
        World(service(ours=True, status=TWO, annotations={**NOTED, KUBE_VIP_LEASE: f"{ADDRESS},fd00::1"}), (RECORDED,)),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, "Ready 192.168.100.20 fd00::1", condition="True EnsuredLoadBalancer"),
    ),
    "of the Go provider: nothing is written": (
        World(service(ours=True, address=ADDRESS, condition=False, annotations=NOTED), (RECORDED,)),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer"),
    ),
}
OTHER_ADDRESSES: dict[str, tuple[World, Plan]] = {
    "of an IP pool is withdrawn": (
        World(FROM_POOL, (BY_DHCP,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write={"annotations": WITHDRAWAL, "ingress": [], "touch": True},
            writes_needed=3,
        ),
    ),
    "that only the status has is withdrawn": (
        World(service(ours=True, address=ADDRESS, condition=False, annotations=DHCP), (BY_DHCP,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write={"annotations": WITHDRAWAL, "ingress": [], "touch": True},
            writes_needed=3,
        ),
    ),
    "is withdrawn, then the lease is requested": (
        World(service(ours=True, annotations={**DHCP, **WITHDRAWN, KUBE_VIP_HOST: "n1"}), (BY_DHCP,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write={"annotations": AGAIN, "touch": True},
            delay=1.0,
        ),
    ),
    "the lease of an earlier load balancer is withdrawn": (
        World(service(ours=True, address=ADDRESS, annotations={**NOTED, KUBE_VIP_ADDRESSES: "10.0.0.9"}), (BY_DHCP,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write={"annotations": WITHDRAWAL, "ingress": [], "touch": True},
            events=("Warning AnnotationRestored",),
            writes_needed=3,
        ),
    ),
    "and is marked": (
        World(service(ours=True, annotations={**NOTED, **WITHDRAWN}), (BY_DHCP,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write={"annotations": {**AGAIN, LEASE_NOTE_OUTDATED: "true"}, "touch": True},
            delay=1.0,
        ),
    ),
    "kube-vip wrote it after the withdrawal": (
        World(service(ours=True, address=ADDRESS, annotations={**NOTED, **WITHDRAWN}), (BY_DHCP,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write={
                "annotations": {**AGAIN, LEASE_NOTE_OUTDATED: "true"},
                "ingress": [],
                "touch": True,
            },
            delay=1.0,
        ),
    ),
    "the note is older than the load balancer": (
        World(service(ours=True, annotations=OUTDATED), (BY_DHCP,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady DHCPLeasePending",
            condition="False DHCPLeasePending",
            write="condition",
            delay=30.0,
        ),
    ),
    "the note was older than the load balancer, until the status showed the address": (
        World(service(ours=True, address=ADDRESS, annotations=OUTDATED), (BY_DHCP,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"annotations": {LEASE_NOTE_OUTDATED: None}},
            then={"change": LB_NAME, "status": {"address": ADDRESS}},
            events=("Normal EnsuredLoadBalancer",),
        ),
    ),
    "the status shows the address before the touch": (
        World(service(ours=True, address=ADDRESS, annotations=OUTDATED), (RECORDED,), {"touch_in": 0.5}),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write="condition",
            delay=0.5,
        ),
    ),
    "another client changed the annotation: the recorded lease stays in the status": (
        World(service(ours=True, address=ADDRESS, annotations={**NOTED, KUBE_VIP_ADDRESSES: "10.0.0.9"}), (RECORDED,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write={"annotations": WITHDRAWAL, "touch": True},
            events=("Warning AnnotationRestored",),
            writes_needed=3,
        ),
    ),
    "the recorded lease is requested again": (
        World(service(ours=True, address=ADDRESS, annotations={**NOTED, **WITHDRAWN}), (RECORDED,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write={"annotations": AGAIN, "touch": True},
            delay=1.0,
        ),
    ),
    "the recorded lease is requested again, touched": (
        World(service(ours=True, address=ADDRESS, annotations=NOTED), (RECORDED,), {"touch_in": 0.0}),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady KubeVipResyncPending",
            condition="False KubeVipResyncPending",
            write="touch",
        ),
    ),
    "of another controller is removed while kube-vip waits for the lease": (
        World(service(ours=True, address="10.0.0.9", annotations=LEASING.metadata.annotations), (BY_DHCP,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady DHCPLeasePending",
            condition="False DHCPLeasePending",
            write={"ingress": []},
            delay=30.0,
        ),
    ),
    "of another controller is replaced by the lease": (
        World(service(ours=True, address="10.0.0.9", annotations=NOTED), (RECORDED,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"ingress": [SHOWN]},
            events=("Warning AddressChanged",),
        ),
    ),
}
NETWORKS: dict[str, tuple[World, Plan]] = {
    "announced on its device": (
        World(
            service(ours=True, annotations={**SUPPRESSED, **VLAN}), (marked(ip=ADDRESS, annotations=IN_VLAN),), DEVICES
        ),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={
                "annotations": {**PUBLICATION, KUBE_VIP_INTERFACE: "eth1"},
                "ingress": [SHOWN],
            },
            then={"change": LB_NAME, "status": {"address": ADDRESS}},
            events=("Normal EnsuredLoadBalancer",),
        ),
    ),
    "ready": (
        World(served(annotations={**VLAN, KUBE_VIP_INTERFACE: "eth1"}), (allocated(annotations=IN_VLAN),), DEVICES),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer"),
    ),
    "another device since": (
        World(served(annotations={**VLAN, KUBE_VIP_INTERFACE: "eth7"}), (allocated(annotations=IN_VLAN),), DEVICES),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"annotations": {KUBE_VIP_INTERFACE: "eth1"}},
            events=("Warning NetworkDeviceChanged",),
        ),
    ),
    "a device since, announced on the default device": (
        World(served(annotations=VLAN), (allocated(annotations=IN_VLAN),), DEVICES),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"annotations": {KUBE_VIP_INTERFACE: "eth1"}},
            events=("Warning NetworkDeviceChanged",),
        ),
    ),
    "a device since, ignored by kube-vip": (
        World(served(annotations={**VLAN, KUBE_VIP_IGNORE: "true"}), (allocated(annotations=IN_VLAN),), DEVICES),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"annotations": {KUBE_VIP_INTERFACE: "eth1"}},
        ),
    ),
    "devices not looked up": (
        World(
            service(ours=True, annotations={**SUPPRESSED, **VLAN}),
            (marked(ip=ADDRESS, annotations=IN_VLAN),),
            {"network_devices": None},
        ),
        Plan(Phase.DEVICE_UNKNOWN, "NotReady NetworkDeviceUnknown"),
    ),
    "not looked up, already announced": (
        World(served(annotations=VLAN), (allocated(annotations=IN_VLAN),), {"network_devices": None}),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer"),
    ),
    "no device": (
        World(
            service(ours=True, annotations={**SUPPRESSED, **VLAN}),
            (marked(ip=ADDRESS, annotations=IN_VLAN),),
            {"network_devices": {"infra/other": "eth1"}},
        ),
        Plan(
            Phase.DEVICE_UNKNOWN,
            "NotReady NetworkDeviceUnknown",
            condition="False NetworkDeviceUnknown",
            write="condition",
            events=("Warning NetworkDeviceUnknown",),
        ),
    ),
    "no device, not kept from kube-vip": (
        World(
            service(ours=True, annotations=VLAN),
            (marked(ip=ADDRESS, annotations=IN_VLAN),),
            {"network_devices": {"infra/other": "eth1"}},
        ),
        Plan(
            Phase.DEVICE_UNKNOWN,
            "NotReady NetworkDeviceUnknown",
            condition="False NetworkDeviceUnknown",
            write={"annotations": SUPPRESSED},
            events=("Warning NetworkDeviceUnknown",),
        ),
    ),
    "no device, DHCP": (
        World(
            service(ours=True, annotations={**SUPPRESSED, **VLAN, **DHCP}),
            (marked(ip=DHCP_ADDRESS, annotations=IN_VLAN, spec={"ipam": "dhcp"}),),
            {"network_devices": {"infra/other": "eth1"}},
        ),
        Plan(
            Phase.DEVICE_UNKNOWN,
            "NotReady NetworkDeviceUnknown",
            condition="False NetworkDeviceUnknown",
            write="condition",
            events=("Warning NetworkDeviceUnknown",),
        ),
    ),
    "no device, another address is announced": (
        World(
            served(annotations=VLAN),
            (allocated(annotations=IN_VLAN, ip="10.0.0.9", address="10.0.0.9"),),
            {"network_devices": {"infra/other": "eth1"}},
        ),
        Plan(
            Phase.DEVICE_UNKNOWN,
            "NotReady NetworkDeviceUnknown",
            condition="False NetworkDeviceUnknown",
            write={"annotations": WITHDRAWAL, "touch": True},
            events=("Warning NetworkDeviceUnknown",),
            writes_needed=3,
        ),
    ),
    "no device, its address after a VM load balancer": (
        World(
            service(ours=True, address=ADDRESS, annotations={**SUPPRESSED, **VLAN}),
            (marked(ip=ADDRESS, annotations=IN_VLAN),),
            {"network_devices": {"infra/other": "eth1"}},
        ),
        Plan(
            Phase.DEVICE_UNKNOWN,
            "NotReady NetworkDeviceUnknown",
            condition="False NetworkDeviceUnknown",
            write="condition",
            events=("Warning NetworkDeviceUnknown",),
        ),
    ),
    "a device of the user": (
        World(
            service(ours=True, annotations={**SUPPRESSED, **VLAN, KUBE_VIP_INTERFACE: "bond7"}),
            (marked(ip=ADDRESS, annotations=IN_VLAN),),
            {"network_devices": {}},
        ),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"annotations": PUBLICATION, "ingress": [SHOWN]},
            then={"change": LB_NAME, "status": {"address": ADDRESS}},
            events=("Warning NetworkDeviceUnknown", "Normal EnsuredLoadBalancer"),
        ),
    ),
    "no component publishes devices": (
        World(
            service(ours=True, annotations={**SUPPRESSED, **VLAN}),
            (marked(ip=ADDRESS, annotations=IN_VLAN),),
            {"cluster": replace(CLUSTER, publishes_devices=False)},
        ),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"annotations": PUBLICATION, "ingress": [SHOWN]},
            then={"change": LB_NAME, "status": {"address": ADDRESS}},
            events=("Warning NetworkDeviceUnknown", "Normal EnsuredLoadBalancer"),
        ),
    ),
    "of the load balancer, not the one that is requested since": (
        World(
            service(ours=True, annotations={**SUPPRESSED, NETWORK: "infra/other"}),
            (marked(ip=ADDRESS, annotations=IN_VLAN),),
            {"network_devices": {"infra/vlan9": "eth1", "infra/other": "eth2"}},
        ),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={
                "annotations": {**PUBLICATION, KUBE_VIP_INTERFACE: "eth1"},
                "ingress": [SHOWN],
            },
            then={"change": LB_NAME, "status": {"address": ADDRESS}},
            events=("Warning ImmutableSettingChanged", "Normal EnsuredLoadBalancer"),
        ),
    ),
}


@pytest.mark.parametrize(("world", "expected"), POOL.values(), ids=POOL.keys())
def test_address_from_a_pool(world: World, expected: Plan) -> None:
    assert outline(world) == expected


@pytest.mark.parametrize(("world", "expected"), LEASES.values(), ids=LEASES.keys())
def test_address_from_dhcp(world: World, expected: Plan) -> None:
    assert outline(world) == expected


@pytest.mark.parametrize(("world", "expected"), OTHER_ADDRESSES.values(), ids=OTHER_ADDRESSES.keys())
def test_other_address_than_the_lease(world: World, expected: Plan) -> None:
    assert outline(world) == expected


ANNOUNCED_BEFORE: Final = service(ours=True, annotations=OUTDATED)
PENDING_AGAIN: Final = Plan(
    Phase.ANNOUNCED_BY_KUBE_VIP, "NotReady DHCPLeasePending", condition="False DHCPLeasePending"
)
REQUESTED: Final = Plan(
    Phase.ANNOUNCED_BY_KUBE_VIP,
    "NotReady KubeVipResyncPending",
    condition="False KubeVipResyncPending",
    write={"annotations": {KUBE_VIP_DDNS: "False"}, "touch": True},
    delay=1.0,
)
AGAIN_AFTER: dict[str, tuple[Service, LoadBalancer, LeaseWait, Plan]] = {
    "nothing is due": (
        ANNOUNCED_BEFORE,
        BY_DHCP,
        LeaseWait(-4.0),
        PENDING_AGAIN._replace(write="condition", delay=1.0),
    ),
    "a touch": (ANNOUNCED_BEFORE, BY_DHCP, LeaseWait(-5.0), PENDING_AGAIN._replace(write="touch", delay=30.0)),
    "a request": (ANNOUNCED_BEFORE, BY_DHCP, LeaseWait(-10.0, touches=1), REQUESTED),
    "another request": (
        service(ours=True, annotations={**OUTDATED, KUBE_VIP_DDNS: "False"}),
        BY_DHCP,
        LeaseWait(-600.0, requests=1, touches=4),
        REQUESTED._replace(write={"annotations": {KUBE_VIP_DDNS: "FALSE"}, "touch": True}),
    ),
    "a request, but a user has set the annotation": (
        service(ours=True, annotations={**OUTDATED, KUBE_VIP_DDNS: "true"}),
        BY_DHCP,
        LeaseWait(-600.0, touches=4),
        PENDING_AGAIN._replace(write="condition", delay=30.0),
    ),
    "a request, but no address was announced": (
        service(ours=True, annotations=LEASING.metadata.annotations),
        BY_DHCP,
        LeaseWait(-600.0, touches=4),
        PENDING_AGAIN._replace(write="condition", delay=30.0),
    ),
    "no request with a lease": (
        LEASED,
        RECORDED,
        LeaseWait(-600.0, touches=4),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer"),
    ),
    "a touch with a lease": (
        LEASED,
        RECORDED,
        LeaseWait(-5.0),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer", write="touch"),
    ),
    "a request with a lease that may be the one from before": (
        LEASED,
        RECORDED,
        LeaseWait(0.0, is_doubtful=True),
        REQUESTED,
    ),
    "a touch 5 s after that": (
        LEASED,
        RECORDED,
        LeaseWait(0.0, requests=1, is_doubtful=True),
        PENDING_AGAIN._replace(write="condition", delay=5.0),
    ),
    "the touch after that": (
        LEASED,
        RECORDED,
        LeaseWait(-5.0, requests=1, is_doubtful=True),
        PENDING_AGAIN._replace(write="touch"),
    ),
    "nothing after that touch": (
        LEASED,
        RECORDED,
        LeaseWait(-5.0, requests=1, touches=1, is_doubtful=True),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer", delay=10.0),
    ),
    "a touch later, with a lease": (
        LEASED,
        RECORDED,
        LeaseWait(-5.0, touches=1),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer", delay=10.0),
    ),
}


@pytest.mark.parametrize(("leasing", "balancer", "wait", "expected"), AGAIN_AFTER.values(), ids=AGAIN_AFTER.keys())
def test_lease_is_requested_again(leasing: Service, balancer: LoadBalancer, wait: LeaseWait, expected: Plan) -> None:
    assert outline(World(leasing, (balancer,), {"lease_wait": wait})) == expected


def test_request_holds_only_if_kube_vip_has_not_noted_the_lease_since() -> None:
    write = plan(ANNOUNCED_BEFORE, BY_DHCP, lease_wait=LeaseWait(-10.0, touches=1)).write
    assert isinstance(write, PatchService)
    assert write.requests_lease
    assert "resourceVersion" in cast("dict[str, Any]", write.patch["metadata"])


def test_touch_after_a_patch_comes_before_those_for_a_lease() -> None:
    made = plan(ANNOUNCED_BEFORE, BY_DHCP, lease_wait=LeaseWait(-600.0), touch_in=0.5)
    assert not isinstance(made.write, TriggerKubeVipResync)
    assert made.look_again_after == 0.5


@pytest.mark.parametrize("balancer", [BY_DHCP, marked(spec={"ipam": "dhcp"})], ids=["allocated", "not processed"])
def test_status_is_cleared_only_if_kube_vip_has_not_written_a_lease_since(balancer: LoadBalancer) -> None:
    made = plan(service(ours=True, address="10.0.0.9", annotations=LEASING.metadata.annotations), balancer)
    assert isinstance(made.write, PatchService)
    assert made.write.patch["metadata"] == {"resourceVersion": "7"}


@pytest.mark.parametrize(("world", "expected"), NETWORKS.values(), ids=NETWORKS.keys())
def test_network(world: World, expected: Plan) -> None:
    assert outline(world) == expected


DEVICE_TEXTS: dict[str, tuple[dict[str, str], bool, list[str]]] = {
    "device of the annotation": ({KUBE_VIP_INTERFACE: "bond7"}, False, ["on bond7: no device is known"]),
    "device that is not published any more": ({KUBE_VIP_INTERFACE: "eth9"}, True, ["on eth9: "]),
    "no device any more": ({}, True, ["on its default device: ", "Networks with one: infra/other"]),
}


@pytest.mark.parametrize(("annotations", "published", "texts"), DEVICE_TEXTS.values(), ids=DEVICE_TEXTS.keys())
def test_announced_address_without_a_published_device_is_reported(
    annotations: dict[str, str], *, published: bool, texts: list[str]
) -> None:
    devices = {"infra/other": "eth1"} if published else {}
    made = plan(served(annotations={**VLAN, **annotations}), allocated(annotations=IN_VLAN), network_devices=devices)
    (message,) = messages(made, Reason.NETWORK_DEVICE_UNKNOWN)
    assert all(text in message for text in texts)


def test_restored_annotation_is_named_with_both_addresses() -> None:
    (message,) = messages(plan(served(annotations={KUBE_VIP_ADDRESSES: "10.0.0.66"}), allocated()))
    assert message.startswith(
        f"Annotation {KUBE_VIP_ADDRESSES} was changed to '10.0.0.66' and is restored to {ADDRESS}"
    )
