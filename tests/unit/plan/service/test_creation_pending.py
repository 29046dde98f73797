"""Plans of a Service without a load balancer, and of one whose load balancer has no address yet."""

from typing import Final

import pytest
from msgspec.structs import replace

from harvester_ccm.kube.errors import Unreachable
from harvester_ccm.model.core import Service, ServiceCondition
from harvester_ccm.names import (
    ANNOUNCED_AS,
    DHCP_ADDRESS,
    HEALTH_CHECK_PORT,
    IP_POOL,
    IPAM,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    KUBE_VIP_LEASE,
    LB_RECONCILE,
    LOAD_BALANCER_READY,
    NETWORK,
    POOL_NAMESPACE,
    PROJECT,
    REQUESTED_ADDRESS,
    SERVICE_FINALIZER,
    VM_NAME,
    WORKLOAD_TYPE,
    Reason,
)
from harvester_ccm.plan.service.allocation.address_pools import PoolRights
from harvester_ccm.plan.service.allocation.creation import CREATION_QUEUED
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.plan import body_of, plan_service, plan_waiting_for_creation
from tests.support.builders import (
    ADDRESS,
    LB_NAME,
    SUPPRESSED,
    VM_SPEC,
    allocated,
    load_balancer,
    marked,
    served,
    service,
)
from tests.unit.plan.service.snapshots import (
    EXHAUSTED,
    EXHAUSTED_LOAD_BALANCER,
    HOSTED,
    NO_POOL,
    VM,
    WAITING,
    WITHDRAWN,
    Plan,
    World,
    messages,
    outline,
    plan,
    short_condition,
    short_verdict,
    short_write,
    snapshot_in,
)

NO_NODE_PORTS_YET: Final = [{"port": 80}]
REQUESTED: Final = service(spec={"loadBalancerIP": "10.0.0.7"})
OTHER_POOL: Final = service(ours=True, annotations={**SUPPRESSED, IP_POOL: "other"})
VM_WAITING: Final = service(ours=True, annotations={**SUPPRESSED, **VM})
DHCP: Final = {IPAM: "dhcp"}
FOR_LEASE: Final = marked(spec={"ipam": "dhcp"})
ANNOUNCED_REQUEST: Final = service(
    ours=True, address="10.0.0.7", annotations={KUBE_VIP_ADDRESSES: "10.0.0.7", REQUESTED_ADDRESS: "10.0.0.7"}
)
"""kube-vip announces the address that the user requests, as with the Go provider."""

CREATION: dict[str, tuple[World, Plan]] = {
    "the Service is kept from kube-vip first": (
        World(service()),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={
                "annotations": {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true", ANNOUNCED_AS: "held"},
                "finalizers": [SERVICE_FINALIZER],
            },
            then={"create": LB_NAME, "workloadType": "cluster", "ipam": "pool"},
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "then the load balancer is created": (
        World(WAITING),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={"create": LB_NAME, "workloadType": "cluster", "ipam": "pool"},
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "kube-vip keeps the address that the specification requests": (
        World(REQUESTED),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={
                "annotations": {KUBE_VIP_ADDRESSES: "", ANNOUNCED_AS: "withdrawn, again", KUBE_VIP_IGNORE: None},
                "finalizers": [SERVICE_FINALIZER],
            },
            then={"create": LB_NAME, "workloadType": "cluster", "ipam": "pool"},
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "the address in kube-vip's annotation becomes a request": (
        World(service(annotations={KUBE_VIP_ADDRESSES: "10.0.0.7"})),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={
                "annotations": {
                    REQUESTED_ADDRESS: "10.0.0.7 6f1c2a34-9b7d-4e58-8a10-3c5d7e9f0b12",
                    KUBE_VIP_ADDRESSES: "",
                    ANNOUNCED_AS: "withdrawn, again",
                    KUBE_VIP_IGNORE: None,
                },
                "finalizers": [SERVICE_FINALIZER],
            },
            then={"create": LB_NAME, "workloadType": "cluster", "ipam": "pool"},
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "a user had kube-vip ignore the Service": (
        World(service(annotations={KUBE_VIP_IGNORE: "true"})),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={"finalizers": [SERVICE_FINALIZER]},
            then={"create": LB_NAME, "workloadType": "cluster", "ipam": "pool"},
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "pool, network, project and namespace": (
        World(
            service(
                ours=True,
                annotations={
                    **SUPPRESSED,
                    IP_POOL: "lab",
                    NETWORK: "vlan9",
                    PROJECT: "c-1/p-1",
                    POOL_NAMESPACE: "infra",
                },
            )
        ),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={"create": LB_NAME, "workloadType": "cluster", "ipam": "pool", "ipPool": "lab"},
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "DHCP, and a pool that is ignored": (
        World(service(ours=True, annotations={**SUPPRESSED, **DHCP, IP_POOL: "lab"})),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={"create": LB_NAME, "workloadType": "cluster", "ipam": "dhcp"},
            events=("Warning SettingsIgnored", "Normal EnsuringLoadBalancer"),
            delay=30.0,
        ),
    ),
    "DHCP, and a requested address, which Harvester never allocates": (
        World(service(annotations=DHCP, spec={"loadBalancerIP": "10.0.0.7"})),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={
                "annotations": {KUBE_VIP_ADDRESSES: "", ANNOUNCED_AS: "withdrawn, again", KUBE_VIP_IGNORE: None},
                "finalizers": [SERVICE_FINALIZER],
            },
            then={"create": LB_NAME, "workloadType": "cluster", "ipam": "dhcp"},
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "VM load balancer": (
        World(VM_WAITING),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={"create": LB_NAME, "ipam": "pool", **VM_SPEC},
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "VM load balancer, not yet kept from kube-vip": (
        World(service(annotations=VM)),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={
                "annotations": {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true", ANNOUNCED_AS: "held"},
                "finalizers": [SERVICE_FINALIZER],
            },
            then={
                "create": LB_NAME,
                "workloadType": "vm",
                "ipam": "pool",
                "listeners": [{"name": "tcp-80", "port": 80, "protocol": "TCP", "backendPort": 30080}],
                "backendServerSelector": {VM_NAME: ["vm-1", "vm-2"]},
            },
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "VM load balancer of a requested address": (
        World(service(annotations={**VM, KUBE_VIP_ADDRESSES: "10.0.0.7"})),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={
                "annotations": {
                    REQUESTED_ADDRESS: "10.0.0.7 6f1c2a34-9b7d-4e58-8a10-3c5d7e9f0b12",
                    KUBE_VIP_ADDRESSES: "",
                    ANNOUNCED_AS: "withdrawn, again",
                    KUBE_VIP_IGNORE: None,
                },
                "finalizers": [SERVICE_FINALIZER],
            },
            then={
                "create": LB_NAME,
                "workloadType": "vm",
                "ipam": "pool",
                "listeners": [{"name": "tcp-80", "port": 80, "protocol": "TCP", "backendPort": 30080}],
                "backendServerSelector": {VM_NAME: ["vm-1", "vm-2"]},
            },
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "VM load balancer with a health check": (
        World(service(ours=True, annotations={HEALTH_CHECK_PORT: "80", **SUPPRESSED})),
        Plan(
            Phase.NEW,
            "NotReady Queued",
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
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "VM load balancer, no node ports yet": (
        World(service(annotations=VM, ports=NO_NODE_PORTS_YET)),
        Plan(
            Phase.NEW,
            "NotReady NodePortsPending",
            write={"annotations": {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true", ANNOUNCED_AS: "held"}},
        ),
    ),
    "VM load balancer, VMs not listed": (
        World(service(annotations=VM), facts={"backends": None}),
        Plan(
            Phase.NEW,
            "NotReady HarvesterUnavailable",
            write={"annotations": {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true", ANNOUNCED_AS: "held"}},
        ),
    ),
    "VM load balancer, no node takes traffic": (
        World(VM_WAITING, facts={"backends": ()}),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={
                "create": LB_NAME,
                "workloadType": "vm",
                "ipam": "pool",
                "listeners": [{"name": "tcp-80", "port": 80, "protocol": "TCP", "backendPort": 30080}],
                "backendServerSelector": {VM_NAME: ["no-node-of-this-cluster"]},
            },
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "the load balancer vanished": (
        World(served()),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            condition="True EnsuredLoadBalancer",
            write={"create": LB_NAME, "workloadType": "cluster", "ipam": "pool"},
            events=("Warning LoadBalancerLost",),
            delay=30.0,
        ),
    ),
    "the load balancer vanished, its address is requested": (
        World(served(spec={"loadBalancerIP": ADDRESS})),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            condition="True EnsuredLoadBalancer",
            write={"create": LB_NAME, "workloadType": "cluster", "ipam": "pool"},
            events=("Warning LoadBalancerLost",),
            delay=30.0,
        ),
    ),
    "the VM load balancer vanished": (
        World(HOSTED),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            condition="True EnsuredLoadBalancer",
            write={"create": LB_NAME, "ipam": "pool", **VM_SPEC},
            events=("Warning LoadBalancerLost",),
            delay=30.0,
        ),
    ),
    "a switch was taken back after the deletion": (
        World(service(ours=True, address=ADDRESS, annotations={KUBE_VIP_ADDRESSES: "", WORKLOAD_TYPE: "cluster"})),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            condition="False Queued",
            write={"create": LB_NAME, "workloadType": "cluster", "ipam": "pool"},
            events=("Normal EnsuringLoadBalancer",),
            delay=1.0,
        ),
    ),
    "a load balancer without labels is nobody's": (
        World(WAITING, (load_balancer("demo-shop-web-00000000", ip="10.0.0.9"),)),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={"create": LB_NAME, "workloadType": "cluster", "ipam": "pool"},
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
}
LEASED: Final = {**DHCP, KUBE_VIP_ADDRESSES: DHCP_ADDRESS, KUBE_VIP_HOST: "n1", KUBE_VIP_LEASE: ADDRESS}
BY_DHCP: dict[str, tuple[World, Plan]] = {
    "the address is from an IP pool": (
        World(served(annotations={**DHCP, KUBE_VIP_HOST: "n1"})),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            condition="True EnsuredLoadBalancer",
            write={"create": LB_NAME, "workloadType": "cluster", "ipam": "dhcp"},
            events=("Warning LoadBalancerLost",),
            delay=30.0,
        ),
    ),
    "another controller has left the address": (
        World(service(address=ADDRESS, annotations=DHCP)),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={
                "annotations": {KUBE_VIP_ADDRESSES: "", ANNOUNCED_AS: "withdrawn, again", KUBE_VIP_IGNORE: None},
                "finalizers": [SERVICE_FINALIZER],
            },
            then={"create": LB_NAME, "workloadType": "cluster", "ipam": "dhcp"},
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "a user requests that address from DHCP": (
        World(service(address=ADDRESS, annotations={**DHCP, KUBE_VIP_LEASE: ADDRESS})),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={
                "annotations": {KUBE_VIP_ADDRESSES: "", ANNOUNCED_AS: "withdrawn, again", KUBE_VIP_IGNORE: None},
                "finalizers": [SERVICE_FINALIZER],
            },
            then={"create": LB_NAME, "workloadType": "cluster", "ipam": "dhcp"},
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "the address is written while kube-vip is kept from the Service": (
        World(service(ours=True, address=ADDRESS, condition=False, annotations={**DHCP, **WITHDRAWN})),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={"annotations": {ANNOUNCED_AS: "withdrawn, again"}},
            then={"create": LB_NAME, "workloadType": "cluster", "ipam": "dhcp"},
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "then the load balancer is created": (
        World(service(ours=True, annotations={**DHCP, **WITHDRAWN, KUBE_VIP_HOST: "n1"}), facts={"since": 1.0}),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={"annotations": {KUBE_VIP_IGNORE: "true", ANNOUNCED_AS: "held, again, from n1"}},
            then={"create": LB_NAME, "workloadType": "cluster", "ipam": "dhcp"},
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "kube-vip announces an address that the status does not show": (
        World(service(ours=True, annotations={**DHCP, KUBE_VIP_ADDRESSES: ADDRESS})),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={"create": LB_NAME, "workloadType": "cluster", "ipam": "dhcp"},
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "kube-vip keeps its lease": (
        World(service(ours=True, address=ADDRESS, annotations=LEASED)),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            condition="True EnsuredLoadBalancer",
            write={"create": LB_NAME, "workloadType": "cluster", "ipam": "dhcp"},
            events=("Warning LoadBalancerLost",),
            delay=30.0,
        ),
    ),
    "kube-vip is about to get its lease": (
        World(service(ours=True, annotations=LEASED)),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={"create": LB_NAME, "workloadType": "cluster", "ipam": "dhcp"},
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "not processed, an address from an IP pool": (
        World(served(annotations=DHCP), (FOR_LEASE,)),
        Plan(Phase.PENDING, "NotReady NotProcessed", condition="True EnsuredLoadBalancer", delay=30.0),
    ),
    "not processed, kube-vip keeps its lease": (
        World(service(ours=True, address=ADDRESS, annotations=LEASED), (FOR_LEASE,)),
        Plan(Phase.PENDING, "NotReady NotProcessed", condition="True EnsuredLoadBalancer", delay=30.0),
    ),
    "another client removed the allocation and the note, the lease is recorded": (
        World(
            service(ours=True, address=ADDRESS, annotations={**DHCP, KUBE_VIP_ADDRESSES: DHCP_ADDRESS}),
            (marked(address=ADDRESS, spec={"ipam": "dhcp"}),),
        ),
        Plan(Phase.PENDING, "NotReady NotProcessed", condition="True EnsuredLoadBalancer", delay=30.0),
    ),
    "not processed for 30 s, kube-vip keeps its lease": (
        World(service(ours=True, address=ADDRESS, annotations=LEASED), (FOR_LEASE,), {"waited": 30.0}),
        Plan(
            Phase.PENDING,
            "NotReady NotProcessed",
            condition="False NotProcessed",
            write="condition",
            events=("Warning NotProcessed",),
        ),
    ),
    "not processed, kube-vip has a lease, the status is that of another controller": (
        World(service(ours=True, address="10.0.0.9", annotations=LEASED), (FOR_LEASE,)),
        Plan(Phase.PENDING, "NotReady NotProcessed", condition="True EnsuredLoadBalancer", delay=30.0),
    ),
}
ANNOUNCED_BEFORE: Final = service(
    ours=True,
    address=ADDRESS,
    condition=False,
    spec={"loadBalancerIP": ADDRESS},
    annotations={},
)
ANNOUNCED_WITH_VMS: Final = replace(ANNOUNCED_BEFORE, metadata=replace(ANNOUNCED_BEFORE.metadata, annotations={**VM}))
OLD: dict[str, tuple[World, Plan]] = {
    "is being deleted": (
        World(WAITING, (marked(deleting=True),)),
        Plan(Phase.OLD_TERMINATING, "NotReady OldLoadBalancerTerminating", delay=30.0),
    ),
    "is being deleted under another name": (
        World(WAITING, (marked(name="demo-shop-web-old", deleting=True),)),
        Plan(Phase.OLD_TERMINATING, "NotReady OldLoadBalancerTerminating", delay=30.0),
    ),
    "is being deleted for 30 s": (
        World(WAITING, (marked(deleting=True),), {"waited": 30.0}),
        Plan(
            Phase.OLD_TERMINATING,
            "NotReady OldLoadBalancerTerminating",
            condition="False OldLoadBalancerTerminating",
            write="condition",
            events=("Warning OldLoadBalancerTerminating",),
        ),
    ),
    "is being deleted, new Service": (
        World(service(), (marked(deleting=True),)),
        Plan(
            Phase.OLD_TERMINATING,
            "NotReady OldLoadBalancerTerminating",
            write={
                "annotations": {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true", ANNOUNCED_AS: "held"},
                "finalizers": [SERVICE_FINALIZER],
            },
            delay=30.0,
        ),
    ),
    "is being deleted, and kube-vip announces the requested address of the new Service": (
        World(ANNOUNCED_BEFORE, (marked(deleting=True),)),
        Plan(
            Phase.OLD_TERMINATING,
            "NotReady ReplacementPending",
            write={"annotations": {KUBE_VIP_ADDRESSES: "", ANNOUNCED_AS: "withdrawn, again", KUBE_VIP_IGNORE: None}},
            delay=30.0,
        ),
    ),
    "is being deleted, and the new Service requests an address and VMs": (
        World(ANNOUNCED_WITH_VMS, (marked(deleting=True),)),
        Plan(
            Phase.OLD_TERMINATING,
            "NotReady ReplacementPending",
            write={"annotations": {KUBE_VIP_ADDRESSES: "", ANNOUNCED_AS: "withdrawn, again", KUBE_VIP_IGNORE: None}},
            delay=30.0,
        ),
    ),
    "is being deleted, and its address is shown": (
        World(served(), (allocated(deleting=True),)),
        Plan(Phase.OLD_TERMINATING, "NotReady ReplacementPending", condition="True EnsuredLoadBalancer", delay=30.0),
    ),
}
PENDING: dict[str, tuple[World, Plan]] = {
    "not processed": (World(WAITING, (marked(),)), Plan(Phase.PENDING, "NotReady NotProcessed", delay=30.0)),
    "not processed for 30 s": (
        World(WAITING, (marked(),), {"waited": 30.0}),
        Plan(
            Phase.PENDING,
            "NotReady NotProcessed",
            condition="False NotProcessed",
            write="condition",
            events=("Warning NotProcessed",),
        ),
    ),
    "not processed, finalizer removed by another client": (
        World(service(annotations=SUPPRESSED), (marked(),)),
        Plan(
            Phase.PENDING,
            "NotReady NotProcessed",
            write={"annotations": {ANNOUNCED_AS: "held"}, "finalizers": [SERVICE_FINALIZER]},
            delay=30.0,
        ),
    ),
    "allocating": (World(WAITING, (marked(message=""),)), Plan(Phase.PENDING, "NotReady Allocating", delay=30.0)),
    "Harvester allocates what is no address": (
        World(WAITING, (marked(ip="lan-pool", pool="lan"),)),
        Plan(Phase.PENDING, "NotReady Allocating", delay=30.0),
    ),
    "Harvester announces what is no address": (
        World(
            service(ours=True, annotations={**SUPPRESSED, **VM}),
            (marked(spec=VM_SPEC, ip=ADDRESS, pool="lan", address="host.example.com"),),
        ),
        Plan(Phase.PENDING, "NotReady Allocating", delay=30.0),
    ),
    "no free address": (
        World(WAITING, (EXHAUSTED_LOAD_BALANCER,)),
        Plan(
            Phase.PENDING,
            "NotReady PoolExhausted",
            condition="False PoolExhausted",
            write="condition",
            events=("Warning PoolExhausted",),
        ),
    ),
    "no free address, an address of another one is shown": (
        World(served(), (EXHAUSTED_LOAD_BALANCER,)),
        Plan(
            Phase.PENDING,
            "NotReady PoolExhausted",
            condition="False PoolExhausted",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: "",
                    ANNOUNCED_AS: f"withdrawn, {ADDRESS}, again",
                    KUBE_VIP_IGNORE: None,
                }
            },
            events=("Warning PoolExhausted",),
        ),
    ),
    "no free address after a switch back from a VM load balancer": (
        World(service(ours=True, address=ADDRESS, annotations=SUPPRESSED), (EXHAUSTED_LOAD_BALANCER,)),
        Plan(
            Phase.PENDING,
            "NotReady PoolExhausted",
            condition="False PoolExhausted",
            write={"annotations": {ANNOUNCED_AS: f"held, {ADDRESS}, again"}, "ingress": []},
            events=("Warning PoolExhausted",),
        ),
    ),
    "no free address, the requested one is announced": (
        World(ANNOUNCED_REQUEST, (EXHAUSTED_LOAD_BALANCER,)),
        Plan(
            Phase.PENDING,
            "NotReady PoolExhausted",
            condition="False PoolExhausted",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: "",
                    ANNOUNCED_AS: "withdrawn, 10.0.0.7, again",
                    KUBE_VIP_IGNORE: None,
                }
            },
            events=("Warning PoolExhausted",),
        ),
    ),
    "no free address, an address was requested under the Go provider": (
        World(service(ours=True, annotations={KUBE_VIP_ADDRESSES: "10.0.0.7"}), (EXHAUSTED_LOAD_BALANCER,)),
        Plan(
            Phase.PENDING,
            "NotReady PoolExhausted",
            condition="False PoolExhausted",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: "",
                    ANNOUNCED_AS: "withdrawn, 10.0.0.7, again",
                    KUBE_VIP_IGNORE: None,
                }
            },
            events=("Warning PoolExhausted",),
        ),
    ),
    "not processed, the requested address is announced": (
        World(ANNOUNCED_REQUEST, (marked(),)),
        Plan(Phase.PENDING, "NotReady NotProcessed", condition="True EnsuredLoadBalancer", delay=30.0),
    ),
    "not processed for 30 s, the requested address is announced": (
        World(ANNOUNCED_REQUEST, (marked(),), {"waited": 30.0}),
        Plan(
            Phase.PENDING,
            "NotReady NotProcessed",
            condition="False NotProcessed",
            write="condition",
            events=("Warning AddressNotAllocated", "Warning NotProcessed"),
        ),
    ),
    "Harvester cannot be read": (
        World(WAITING, (marked(),), {"harvester_problem": Unreachable("no route")}),
        Plan(Phase.PENDING, "NotReady NotProcessed", delay=5.0),
    ),
    "Harvester cannot be read for 5 s": (
        World(WAITING, (marked(),), {"harvester_problem": Unreachable("no route"), "waited": 5.0}),
        Plan(
            Phase.PENDING,
            "NotReady HarvesterUnavailable",
            condition="False HarvesterUnavailable",
            write="condition",
            events=("Warning HarvesterUnavailable",),
        ),
    ),
    "another pool is requested before a response": (
        World(OTHER_POOL, (marked(),)),
        Plan(Phase.PENDING, "NotReady NotProcessed", delay=30.0),
    ),
    "another pool is requested after the refusal": (
        World(OTHER_POOL, (EXHAUSTED_LOAD_BALANCER,)),
        Plan(
            Phase.PENDING,
            "NotReady PoolExhausted",
            condition="False PoolExhausted",
            write={"change": LB_NAME, "status": {"allocatedAddress": {"ipPool": "lan"}, "conditions": None}},
            events=("Warning PoolExhausted",),
        ),
    ),
    "another pool is requested, no pool was found": (
        World(OTHER_POOL, (marked(message=NO_POOL),)),
        Plan(
            Phase.PENDING,
            "NotReady NoMatchingPool",
            condition="False NoMatchingPool",
            write={"change": LB_NAME, "annotations": {LB_RECONCILE: "true"}, "status": {"conditions": None}},
            events=("Warning NoMatchingPool",),
        ),
    ),
    "another pool is requested, Harvester has searched again": (
        World(OTHER_POOL, (marked(message=NO_POOL, annotations={LB_RECONCILE: "true"}),)),
        Plan(
            Phase.PENDING,
            "NotReady NoMatchingPool",
            condition="False NoMatchingPool",
            write={"delete": LB_NAME},
            events=("Warning NoMatchingPool",),
        ),
    ),
    "another pool is requested, the old one is blocked": (
        World(OTHER_POOL, (marked(closed="lan"),)),
        Plan(Phase.PENDING, "NotReady NotProcessed", delay=30.0),
    ),
    "another pool is requested, the blocked pool was confirmed": (
        World(OTHER_POOL, (marked(closed="lan", message="x"),)),
        Plan(
            Phase.PENDING,
            "NotReady AllocationFailed",
            condition="False AllocationFailed",
            write={"delete": LB_NAME},
            events=("Warning AllocationFailed",),
        ),
    ),
    "the first pool is requested again, but it is blocked": (
        World(WAITING, (marked(closed="lan", message="x"),)),
        Plan(
            Phase.PENDING,
            "NotReady AllocationFailed",
            condition="False AllocationFailed",
            write={"delete": LB_NAME},
            events=("Warning AllocationFailed",),
        ),
    ),
    "another search is not needed any more": (
        World(WAITING, (marked(message=NO_POOL, annotations={LB_RECONCILE: "true"}),)),
        Plan(
            Phase.PENDING,
            "NotReady NoMatchingPool",
            condition="False NoMatchingPool",
            write={"change": LB_NAME, "annotations": {LB_RECONCILE: None}},
            events=("Warning NoMatchingPool",),
        ),
    ),
    "another network is requested": (
        World(service(ours=True, annotations={**SUPPRESSED, NETWORK: "infra/v9"}), (marked(message=NO_POOL),)),
        Plan(
            Phase.PENDING,
            "NotReady NoMatchingPool",
            condition="False NoMatchingPool",
            write={"change": LB_NAME, "annotations": {LB_RECONCILE: "true"}, "status": {"conditions": None}},
            events=("Warning NoMatchingPool",),
        ),
    ),
    "VM load balancer, not announced": (
        World(
            VM_WAITING, (marked(ip=ADDRESS, pool="lan", message="service is waiting for external IP", spec=VM_SPEC),)
        ),
        Plan(Phase.PENDING, "NotReady AnnouncementPending", delay=30.0),
    ),
    "VM load balancer, not announced for 30 s": (
        World(
            VM_WAITING,
            (marked(ip=ADDRESS, pool="lan", message="service is waiting for external IP", spec=VM_SPEC),),
            {"waited": 30.0},
        ),
        Plan(
            Phase.PENDING,
            "NotReady AnnouncementPending",
            condition="False AnnouncementPending",
            write="condition",
            events=("Warning AnnouncementPending",),
        ),
    ),
    "VM load balancer, no free address after a switch": (
        World(
            service(ours=True, address=ADDRESS, annotations={**SUPPRESSED, **VM}),
            (marked(message=EXHAUSTED, spec=VM_SPEC),),
        ),
        Plan(
            Phase.PENDING,
            "NotReady PoolExhausted",
            condition="False PoolExhausted",
            write={"annotations": {ANNOUNCED_AS: f"held, {ADDRESS}, again"}, "ingress": []},
            events=("Warning PoolExhausted",),
        ),
    ),
    "VM load balancer, after the last address was withdrawn": (
        World(service(ours=True, annotations={**WITHDRAWN, **VM}), (marked(spec=VM_SPEC),), {"since": 1.0}),
        Plan(
            Phase.PENDING,
            "NotReady NotProcessed",
            write={"annotations": {KUBE_VIP_IGNORE: "true", ANNOUNCED_AS: "held, again"}},
            delay=30.0,
        ),
    ),
    "VM load balancer, another port": (
        World(
            service(ours=True, annotations={**SUPPRESSED, **VM}, ports=[{"port": 81, "nodePort": 30081}]),
            (marked(spec=VM_SPEC),),
        ),
        Plan(
            Phase.PENDING,
            "NotReady NotProcessed",
            write={
                "change": LB_NAME,
                "spec": {"listeners": [{"name": "tcp-81", "port": 81, "protocol": "TCP", "backendPort": 30081}]},
            },
            delay=30.0,
        ),
    ),
}


@pytest.mark.parametrize(("world", "expected"), BY_DHCP.values(), ids=BY_DHCP.keys())
def test_load_balancer_with_dhcp(world: World, expected: Plan) -> None:
    assert outline(world) == expected


@pytest.mark.parametrize(("world", "expected"), CREATION.values(), ids=CREATION.keys())
def test_creation(world: World, expected: Plan) -> None:
    assert outline(world) == expected


@pytest.mark.parametrize(("world", "expected"), OLD.values(), ids=OLD.keys())
def test_old_load_balancer(world: World, expected: Plan) -> None:
    assert outline(world) == expected


@pytest.mark.parametrize(("world", "expected"), PENDING.values(), ids=PENDING.keys())
def test_address_is_pending(world: World, expected: Plan) -> None:
    assert outline(world) == expected


def unready(reason: Reason) -> Service:
    """Return a Service whose condition is False for this reason."""
    condition = ServiceCondition(type=LOAD_BALANCER_READY, status="False", reason=reason, message="x")
    return replace(WAITING, status=replace(WAITING.status, conditions=(condition,)))


QUEUED: dict[str, tuple[World, str, str, float | None]] = {
    "at first": (World(WAITING), "NotReady CreationQueued", "", 60.0),
    "for a minute": (World(WAITING, facts={"waited": 60.0}), "NotReady CreationQueued", "False CreationQueued", None),
    "after an error of Harvester, which stays": (
        World(unready(Reason.HARVESTER_UNAVAILABLE), facts={"waited": 60.0}),
        "NotReady CreationQueued",
        "False HarvesterUnavailable",
        None,
    ),
    "with a mistake, which is reported": (
        World(service(ours=True, annotations={**SUPPRESSED, WORKLOAD_TYPE: "pod"})),
        "NotReady CreationQueued",
        "",
        60.0,
    ),
}


@pytest.mark.parametrize(("world", "verdict", "condition", "delay"), QUEUED.values(), ids=QUEUED.keys())
def test_creation_is_queued(world: World, verdict: str, condition: str, delay: float | None) -> None:
    snapshot = snapshot_in(world)
    made = plan_service(snapshot)
    queued = plan_waiting_for_creation(snapshot, made)
    assert short_verdict(queued.verdict) == verdict
    assert short_condition(queued.condition) == condition
    assert queued.look_again_after == delay
    # The Warnings about the request are reported while the Service waits, and nothing but the condition is written.
    assert messages(queued)[: len(messages(made))] == messages(made)
    # One Service that is not processed has a Warning. Those behind it would only repeat it.
    assert CREATION_QUEUED not in queued.events
    assert short_write(queued.write) == ("condition" if condition == "False CreationQueued" else None)


def test_settings_are_reported_after_the_pool_is_read_also_by_a_service_in_the_queue() -> None:
    """The Service may get no load balancer, and then nothing is ignored on it."""
    rights = PoolRights(frozenset({"lan"}))
    requested = {IP_POOL: "lan", HEALTH_CHECK_PORT: "http", WORKLOAD_TYPE: "cluster"}
    waiting = service(ours=True, annotations={**SUPPRESSED, **requested}, spec={"loadBalancerIP": "10.0.0.50"})
    snapshot = snapshot_in(World(waiting, facts={"pool_rights": rights}))
    made = plan_service(snapshot)
    assert made.reads_pool
    assert messages(plan_waiting_for_creation(snapshot, made)) == []


def test_load_balancer_that_a_plan_creates_is_known_before() -> None:
    bodies = [body_of(plan(new)) for new in (service(), WAITING)]
    assert bodies[0] is not None
    assert bodies[0] == bodies[1]
    assert body_of(plan(served(), allocated())) is None
