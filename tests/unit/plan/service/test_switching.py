"""Plans of a Service whose load balancer is replaced by one of the other workload type."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from harvester_ccm.model.core import Service
from harvester_ccm.names import (
    ANNOUNCED_AS,
    DHCP_ADDRESS,
    IP_POOL,
    IPAM,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    KUBE_VIP_LEASE,
    LB_OWNER,
    LB_RECONCILE,
    PRIMARY_SERVICE_LABEL,
    SERVICE_FINALIZER,
    VM_NAME,
    WORKLOAD_TYPE,
    Reason,
)
from harvester_ccm.plan.service.announcing.record import Step
from harvester_ccm.plan.service.desired import DeleteLoadBalancer
from harvester_ccm.plan.service.ownership.right_harvester import HarvesterCheck
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.plan import body_of, plan_service
from harvester_ccm.plan.service.snapshot import ServiceState
from tests.support.builders import ADDRESS, LB_NAME, SUPPRESSED, VM_SPEC, allocated, marked, served, service
from tests.unit.plan.service.snapshots import (
    EXHAUSTED_LOAD_BALANCER,
    NO_POOL,
    READY,
    VM,
    VM_LOAD_BALANCER,
    WITHDRAWN,
    Plan,
    World,
    messages,
    outline,
    plan,
    record_of,
    snapshot_of,
)

CLUSTER_TYPE: Final = {WORKLOAD_TYPE: "cluster"}
PINNED: Final = {**VM, IP_POOL: "vlan100"}
WITHDRAWN_PINNED: Final = service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, **PINNED})
"""A Service on its way to a VM load balancer, before the deletion of the present one."""
HOSTED_LEAVING: Final = service(ours=True, address=ADDRESS, annotations={**SUPPRESSED, **CLUSTER_TYPE})
"""A Service on its way from a VM load balancer."""
HOSTED_PINNED: Final = service(
    ours=True,
    address=ADDRESS,
    annotations={**SUPPRESSED, **CLUSTER_TYPE, IP_POOL: "vlan100", **record_of(Step.HELD, again=True)},
)
DHCP: Final = {IPAM: "dhcp"}
MISMATCH: Final = {"harvester_check": HarvesterCheck.MISMATCH}
NO_NODE_PORTS: dict[str, Any] = {"spec": {"allocateLoadBalancerNodePorts": False}, "ports": [{"port": 80}]}
SECONDARY: Final = served("b", uid="b", labels={PRIMARY_SERVICE_LABEL: "shop.web"})
IGNORED_SECONDARY: Final = served(
    "b", uid="b", labels={PRIMARY_SERVICE_LABEL: "shop.web"}, annotations={KUBE_VIP_IGNORE: "true"}
)


def being_replaced(of: Service) -> Service:
    """Return a Service whose condition says that its load balancer is replaced."""
    condition = replace(
        of.status.conditions[0],
        status="False",
        reason=Reason.REPLACEMENT_PENDING,
        message=f"The Service waits for {Reason.REPLACEMENT_PENDING.meaning}",
    )
    return replace(of, status=replace(of.status, conditions=(condition,)))


TO_VM: dict[str, tuple[World, Plan]] = {
    "the present load balancer is completed first": (
        World(served(annotations=VM), (marked(ip=ADDRESS, pool="lan"),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"change": LB_NAME, "status": {"address": ADDRESS}},
            delay=60.0,
        ),
    ),
    "dry run, pinned pool and withdrawal": (
        World(served(annotations=VM), (allocated(),)),
        Plan(
            Phase.SWITCHING,
            "NotReady ReplacementPending",
            condition="False ReplacementPending",
            write={
                "annotations": {
                    IP_POOL: "vlan100",
                    KUBE_VIP_ADDRESSES: "",
                    ANNOUNCED_AS: f"withdrawn, {ADDRESS}, again",
                    KUBE_VIP_IGNORE: None,
                }
            },
            then={"delete": LB_NAME},
            events=("Normal ChangingWorkloadType",),
            dry_run=True,
        ),
    ),
    "dry run and withdrawal, the user names the pool": (
        World(served(annotations=PINNED), (allocated(),)),
        Plan(
            Phase.SWITCHING,
            "NotReady ReplacementPending",
            condition="False ReplacementPending",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: "",
                    ANNOUNCED_AS: f"withdrawn, {ADDRESS}, again",
                    KUBE_VIP_IGNORE: None,
                }
            },
            then={"delete": LB_NAME},
            events=("Normal ChangingWorkloadType",),
            dry_run=True,
        ),
    ),
    "deletion": (
        World(being_replaced(WITHDRAWN_PINNED), (allocated(),)),
        Plan(
            Phase.SWITCHING,
            "NotReady ReplacementPending",
            condition="False ReplacementPending",
            write={"delete": LB_NAME},
            events=("Normal ChangingWorkloadType",),
            delay=1.0,
        ),
    ),
    "deletion, an earlier process withdrew the address without the pool": (
        World(service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, **VM}), (allocated(),)),
        Plan(
            Phase.SWITCHING,
            "NotReady ReplacementPending",
            condition="False ReplacementPending",
            write={"annotations": {IP_POOL: "vlan100"}},
            then={"delete": LB_NAME},
            events=("Normal ChangingWorkloadType",),
            delay=1.0,
            dry_run=True,
        ),
    ),
    "secondaries announce the address": (
        World(WITHDRAWN_PINNED, (allocated(),), {"own_secondaries": (SECONDARY,)}),
        Plan(Phase.SWITCHING, "NotReady SharedAddressPending", condition="False SharedAddressPending", delay=1.0),
    ),
    "a secondary announces the address that kube-vip has read before another client let it ignore the Service": (
        World(WITHDRAWN_PINNED, (allocated(),), {"own_secondaries": (IGNORED_SECONDARY,)}),
        Plan(Phase.SWITCHING, "NotReady SharedAddressPending", condition="False SharedAddressPending", delay=1.0),
    ),
    "a secondary is being reconciled": (
        World(WITHDRAWN_PINNED, (allocated(),), {"secondary_in_progress": True}),
        Plan(Phase.SWITCHING, "NotReady SharedAddressPending", condition="False SharedAddressPending", delay=1.0),
    ),
    "secondaries have withdrawn the address": (
        World(
            being_replaced(WITHDRAWN_PINNED),
            (allocated(),),
            {"own_secondaries": (replace(SECONDARY, metadata=WITHDRAWN_PINNED.metadata),)},
        ),
        Plan(
            Phase.SWITCHING,
            "NotReady ReplacementPending",
            condition="False ReplacementPending",
            write={"delete": LB_NAME},
            events=("Normal ChangingWorkloadType",),
            delay=1.0,
        ),
    ),
    "the old one is being deleted": (
        World(WITHDRAWN_PINNED, (allocated(deleting=True),)),
        Plan(Phase.OLD_TERMINATING, "NotReady ReplacementPending", condition="False ReplacementPending", delay=1.0),
    ),
    "creation": (
        World(WITHDRAWN_PINNED),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            condition="False Queued",
            write={
                "create": LB_NAME,
                "workloadType": "vm",
                "ipam": "pool",
                "ipPool": "vlan100",
                "listeners": [{"name": "tcp-80", "port": 80, "protocol": "TCP", "backendPort": 30080}],
                "backendServerSelector": {VM_NAME: ["vm-1", "vm-2"]},
            },
            events=("Normal EnsuringLoadBalancer",),
            delay=1.0,
        ),
    ),
    "the new one has its address": (
        World(WITHDRAWN_PINNED, (allocated(spec={**VM_SPEC, "ipPool": "vlan100"}),)),
        Plan(Phase.ANNOUNCED_BY_HARVESTER, READY, condition="True EnsuredLoadBalancer", delay=1.0),
    ),
    "Harvester has not responded": (
        World(service(ours=True, annotations={**SUPPRESSED, **VM}), (marked(),)),
        Plan(Phase.SWITCHING, "NotReady DeletionPending", delay=30.0),
    ),
    "Harvester has not responded for 30 s": (
        World(
            service(ours=True, annotations={**SUPPRESSED, **VM}),
            (marked(),),
            {"waited": 30.0, "waited_in": Phase.SWITCHING},
        ),
        Plan(
            Phase.SWITCHING,
            "NotReady DeletionPending",
            condition="False DeletionPending",
            write="condition",
            events=("Warning DeletionPending",),
            delay=270.0,
        ),
    ),
    "Harvester has not responded for 300 s": (
        World(
            service(ours=True, annotations={**SUPPRESSED, **VM}),
            (marked(),),
            {"waited": 300.0, "waited_in": Phase.SWITCHING},
        ),
        Plan(
            Phase.SWITCHING,
            "NotReady ReplacementPending",
            write={"delete": LB_NAME},
            events=("Normal ChangingWorkloadType",),
        ),
    ),
    "no free address": (
        World(service(ours=True, annotations={**SUPPRESSED, **VM}), (EXHAUSTED_LOAD_BALANCER,)),
        Plan(
            Phase.SWITCHING,
            "NotReady DeletionPending",
            write={"change": LB_NAME, "status": {"allocatedAddress": {"ipPool": "lan"}, "conditions": None}},
            delay=30.0,
        ),
    ),
    "another client removed the finalizer, there is no address to lose": (
        World(
            service(annotations={**SUPPRESSED, **VM}), (marked(message=NO_POOL, annotations={LB_RECONCILE: "true"}),)
        ),
        Plan(
            Phase.SWITCHING,
            "NotReady ReplacementPending",
            write={"annotations": {ANNOUNCED_AS: "held"}, "finalizers": [SERVICE_FINALIZER]},
            then={"delete": LB_NAME},
            events=("Normal ChangingWorkloadType",),
            dry_run=True,
        ),
    ),
    "of an address from DHCP": (
        World(
            service(
                ours=True,
                address=ADDRESS,
                annotations={**VM, **DHCP, KUBE_VIP_ADDRESSES: "0.0.0.0", KUBE_VIP_HOST: "n1", KUBE_VIP_LEASE: ADDRESS},
            ),
            (marked(ip="0.0.0.0", address=ADDRESS, spec={"ipam": "dhcp"}),),
        ),
        Plan(
            Phase.SWITCHING,
            "NotReady ReplacementPending",
            condition="False ReplacementPending",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: "",
                    ANNOUNCED_AS: "withdrawn, 0.0.0.0, again, from n1",
                    KUBE_VIP_IGNORE: None,
                }
            },
            then={"delete": LB_NAME},
            events=("Normal ChangingWorkloadType",),
            dry_run=True,
        ),
    ),
    "of an address from DHCP, withdrawn and deleted": (
        World(
            service(
                ours=True,
                address=ADDRESS,
                annotations={**WITHDRAWN, **VM, **DHCP, **record_of(Step.WITHDRAWN, DHCP_ADDRESS, again=True)},
            ),
            facts={"since": 1.0},
        ),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            condition="False Queued",
            write={"annotations": {KUBE_VIP_IGNORE: "true", ANNOUNCED_AS: "held, 0.0.0.0, again"}, "ingress": []},
            then={
                "create": LB_NAME,
                "workloadType": "vm",
                "ipam": "dhcp",
                "listeners": [{"name": "tcp-80", "port": 80, "protocol": "TCP", "backendPort": 30080}],
                "backendServerSelector": {VM_NAME: ["vm-1", "vm-2"]},
            },
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "of an address from DHCP, not shown any more": (
        World(service(ours=True, annotations={**WITHDRAWN, **VM, **DHCP}), facts={"since": 1.0}),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={"annotations": {KUBE_VIP_IGNORE: "true", ANNOUNCED_AS: "held, again"}},
            then={
                "create": LB_NAME,
                "workloadType": "vm",
                "ipam": "dhcp",
                "listeners": [{"name": "tcp-80", "port": 80, "protocol": "TCP", "backendPort": 30080}],
                "backendServerSelector": {VM_NAME: ["vm-1", "vm-2"]},
            },
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
}
TO_CLUSTER: dict[str, tuple[World, Plan]] = {
    "pinned pool": (
        World(HOSTED_LEAVING, (VM_LOAD_BALANCER,)),
        Plan(
            Phase.SWITCHING,
            "NotReady ReplacementPending",
            condition="False ReplacementPending",
            write={"annotations": {IP_POOL: "vlan100", ANNOUNCED_AS: f"held, {ADDRESS}, again"}},
            then={"delete": LB_NAME},
            events=("Normal ChangingWorkloadType",),
            dry_run=True,
        ),
    ),
    "nobody announces the address from the deletion on, which is said first": (
        World(HOSTED_PINNED, (VM_LOAD_BALANCER,)),
        Plan(
            Phase.SWITCHING,
            "NotReady ReplacementPending",
            condition="False ReplacementPending",
            write="condition",
            then={"delete": LB_NAME},
            events=("Normal ChangingWorkloadType",),
            dry_run=True,
        ),
    ),
    "deletion": (
        World(being_replaced(HOSTED_PINNED), (VM_LOAD_BALANCER,)),
        Plan(
            Phase.SWITCHING,
            "NotReady ReplacementPending",
            condition="False ReplacementPending",
            write={"delete": LB_NAME},
            events=("Normal ChangingWorkloadType",),
            dry_run=True,
        ),
    ),
    "creation": (
        World(HOSTED_PINNED),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            condition="False Queued",
            write={"create": LB_NAME, "workloadType": "cluster", "ipam": "pool", "ipPool": "vlan100"},
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "of an address from DHCP, not shown any more": (
        World(service(ours=True, annotations={**WITHDRAWN, **CLUSTER_TYPE, **DHCP}), facts={"since": 1.0}),
        Plan(
            Phase.NEW,
            "NotReady Queued",
            write={"annotations": {KUBE_VIP_IGNORE: "true", ANNOUNCED_AS: "held, again"}},
            then={"create": LB_NAME, "workloadType": "cluster", "ipam": "dhcp"},
            events=("Normal EnsuringLoadBalancer",),
            delay=30.0,
        ),
    ),
    "not announced by Harvester yet": (
        World(
            service(ours=True, annotations={**SUPPRESSED, **CLUSTER_TYPE}),
            (marked(ip=ADDRESS, pool="lan", message="service is waiting for external IP", spec=VM_SPEC),),
        ),
        Plan(
            Phase.SWITCHING,
            "NotReady ReplacementPending",
            write={"annotations": {IP_POOL: "lan"}},
            then={"delete": LB_NAME},
            events=("Normal ChangingWorkloadType",),
            dry_run=True,
        ),
    ),
}
REJECTED: dict[str, tuple[World, Plan]] = {
    "without node ports": (
        World(served(annotations=VM, **NO_NODE_PORTS), (allocated(),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            events=("Warning Unsupported",),
            delay=60.0,
        ),
    ),
    "another Harvester": (
        World(served(annotations=VM), (allocated(),), MISMATCH),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            events=("Warning HarvesterMismatch",),
            delay=60.0,
        ),
    ),
    "VMs not listed": (
        World(served(annotations=VM), (allocated(),), {"harvester_check": HarvesterCheck.UNKNOWN}),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer", delay=60.0),
    ),
    "invalid ipam": (
        World(served(annotations={**VM, IPAM: "static"}), (allocated(),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            events=("Warning InvalidAnnotation",),
            delay=60.0,
        ),
    ),
    "another cluster has the name": (
        World(
            served(annotations=VM),
            (allocated(name="demo-shop-web-old", uid="old"), marked(annotations={LB_OWNER: "other"})),
        ),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            events=("Warning LoadBalancerOwnershipConflict",),
            delay=60.0,
        ),
    ),
    "the same type": (
        World(served(annotations=CLUSTER_TYPE), (allocated(),)),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer", delay=60.0),
    ),
}


@pytest.mark.parametrize(("world", "expected"), TO_VM.values(), ids=TO_VM.keys())
def test_switch_to_a_vm_load_balancer(world: World, expected: Plan) -> None:
    assert outline(world) == expected


@pytest.mark.parametrize(("world", "expected"), TO_CLUSTER.values(), ids=TO_CLUSTER.keys())
def test_switch_to_a_cluster_load_balancer(world: World, expected: Plan) -> None:
    assert outline(world) == expected


@pytest.mark.parametrize(("world", "expected"), REJECTED.values(), ids=REJECTED.keys())
def test_switch_that_is_not_possible(world: World, expected: Plan) -> None:
    assert outline(world) == expected


def test_dry_run_has_the_next_load_balancer() -> None:
    made = plan(served(annotations=VM), allocated())
    assert made.dry_run is not None
    body: Any = body_of(made)
    assert body["metadata"]["name"] == LB_NAME
    assert VM_SPEC.items() <= body["spec"].items()


def test_change_to_another_harvester_says_how_to_continue() -> None:
    (message,) = messages(plan(served(annotations=VM), allocated(), **MISMATCH), Reason.HARVESTER_MISMATCH)
    assert "The workload type is not changed" in message
    assert "--allow-harvester-change" in message


def test_time_without_an_address_before_the_switch_does_not_count() -> None:
    state = ServiceState()
    state.enter(Phase.PENDING, 0.0)
    switched = service(ours=True, annotations={**SUPPRESSED, **VM})

    def is_deleted_at(now: float) -> bool:
        snapshot = snapshot_of(switched, marked())
        made = plan_service(replace(snapshot, remembered=state, now=now))
        state.enter(made.phase, now)
        return isinstance(made.write, DeleteLoadBalancer)

    assert [is_deleted_at(now) for now in (400.0, 699.0, 700.0)] == [False, False, True]
