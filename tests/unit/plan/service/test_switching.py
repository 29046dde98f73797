"""Plans of a Service whose load balancer is replaced by one of the other workload type."""

from typing import Any, Final

from msgspec.structs import replace

from harvester_ccm.model.core import Service
from harvester_ccm.names import (
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
    WORKLOAD_TYPE,
    Reason,
)
from harvester_ccm.plan.service.announcing.record import Step
from harvester_ccm.plan.service.desired import DeleteLoadBalancer
from harvester_ccm.plan.service.ownership.right_harvester import HarvesterCheck
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.plan import plan_service
from harvester_ccm.plan.service.snapshot import ServiceState
from tests.support.builders import ADDRESS, LB_NAME, SUPPRESSED, VM_SPEC, allocated, marked, served, service
from tests.unit.plan.service.outcomes import differences
from tests.unit.plan.service.snapshots import (
    EXHAUSTED,
    EXHAUSTED_LOAD_BALANCER,
    NO_NODE_PORTS,
    NO_POOL,
    SHARES,
    VM,
    VM_LOAD_BALANCER,
    WITHDRAWN,
    World,
    messages,
    plan,
    record_of,
    snapshot_of,
    with_condition,
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
SECONDARY: Final = served("b", uid="b", labels={PRIMARY_SERVICE_LABEL: "shop.web"})
IGNORED_SECONDARY: Final = served(
    "b", uid="b", labels={PRIMARY_SERVICE_LABEL: "shop.web"}, annotations={KUBE_VIP_IGNORE: "true"}
)


def being_replaced(of: Service) -> Service:
    """Return a Service whose condition says that its load balancer is replaced."""
    reason = Reason.REPLACEMENT_PENDING
    return with_condition(of, "False", reason, f"The Service waits for {reason.meaning}")


TO_VM: dict[str, World] = {
    "the present load balancer is completed first": World(served(annotations=VM), (marked(ip=ADDRESS, pool="lan"),)),
    "dry run, pinned pool and withdrawal": World(served(annotations=VM), (allocated(),)),
    "dry run and withdrawal, the user names the pool": World(served(annotations=PINNED), (allocated(),)),
    "deletion": World(being_replaced(WITHDRAWN_PINNED), (allocated(),)),
    "deletion, an earlier process withdrew the address without the pool": World(
        service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, **VM}), (allocated(),)
    ),
    "secondaries announce the address": World(WITHDRAWN_PINNED, (allocated(),), {"own_secondaries": (SECONDARY,)}),
    "a secondary announces the address that kube-vip has read before another client let it ignore the Service": World(
        WITHDRAWN_PINNED, (allocated(),), {"own_secondaries": (IGNORED_SECONDARY,)}
    ),
    "a secondary is being reconciled": World(WITHDRAWN_PINNED, (allocated(),), {"secondary_in_progress": True}),
    "secondaries have withdrawn the address": World(
        being_replaced(WITHDRAWN_PINNED),
        (allocated(),),
        {"own_secondaries": (replace(SECONDARY, metadata=WITHDRAWN_PINNED.metadata),)},
    ),
    "the old one is being deleted": World(WITHDRAWN_PINNED, (allocated(deleting=True),)),
    "creation": World(WITHDRAWN_PINNED),
    "the new one has its address": World(WITHDRAWN_PINNED, (allocated(spec={**VM_SPEC, "ipPool": "vlan100"}),)),
    "Harvester has not responded": World(service(ours=True, annotations={**SUPPRESSED, **VM}), (marked(),)),
    "no free address": World(service(ours=True, annotations={**SUPPRESSED, **VM}), (EXHAUSTED_LOAD_BALANCER,)),
    "another client removed the finalizer, there is no address to lose": World(
        service(annotations={**SUPPRESSED, **VM}), (marked(message=NO_POOL, annotations={LB_RECONCILE: "true"}),)
    ),
    "of an address from DHCP": World(
        service(
            ours=True,
            address=ADDRESS,
            annotations={**VM, **DHCP, KUBE_VIP_ADDRESSES: "0.0.0.0", KUBE_VIP_HOST: "n1", KUBE_VIP_LEASE: ADDRESS},
        ),
        (marked(ip="0.0.0.0", address=ADDRESS, spec={"ipam": "dhcp"}),),
    ),
    "of an address from DHCP, withdrawn and deleted": World(
        service(
            ours=True,
            address=ADDRESS,
            annotations={**WITHDRAWN, **VM, **DHCP, **record_of(Step.WITHDRAWN, DHCP_ADDRESS, again=True)},
        ),
        facts={"since": 1.0},
    ),
    "of an address from DHCP, not shown any more": World(
        service(ours=True, annotations={**WITHDRAWN, **VM, **DHCP}), facts={"since": 1.0}
    ),
}
TO_CLUSTER: dict[str, World] = {
    "pinned pool": World(HOSTED_LEAVING, (VM_LOAD_BALANCER,)),
    "nobody announces the address from the deletion on, which is said first": World(HOSTED_PINNED, (VM_LOAD_BALANCER,)),
    "deletion": World(being_replaced(HOSTED_PINNED), (VM_LOAD_BALANCER,)),
    "creation": World(HOSTED_PINNED),
    "of an address from DHCP, not shown any more": World(
        service(ours=True, annotations={**WITHDRAWN, **CLUSTER_TYPE, **DHCP}), facts={"since": 1.0}
    ),
    "of an address from DHCP, not shown any more, but a secondary announces it": World(
        service(ours=True, annotations={**SUPPRESSED, **CLUSTER_TYPE, **DHCP}),
        (marked(ip="0.0.0.0", address=ADDRESS, spec={**VM_SPEC, "ipam": "dhcp"}),),
        {"own_secondaries": (SECONDARY,)},
    ),
    "no free address": World(
        service(ours=True, annotations={**SUPPRESSED, **CLUSTER_TYPE}), (marked(message=EXHAUSTED, spec=VM_SPEC),)
    ),
    "not announced by Harvester yet": World(
        service(ours=True, annotations={**SUPPRESSED, **CLUSTER_TYPE}),
        (marked(ip=ADDRESS, pool="lan", message="service is waiting for external IP", spec=VM_SPEC),),
    ),
}
REJECTED: dict[str, World] = {
    "without node ports": World(served(annotations=VM, **NO_NODE_PORTS), (allocated(),)),
    "another Harvester": World(served(annotations=VM), (allocated(),), MISMATCH),
    "VMs not listed": World(served(annotations=VM), (allocated(),), {"harvester_check": HarvesterCheck.UNKNOWN}),
    "backends not known": World(served(annotations=VM), (allocated(),), {"backends": None}),
    "invalid ipam": World(served(annotations={**VM, IPAM: "static"}), (allocated(),)),
    "another cluster has the name": World(
        served(annotations=VM),
        (allocated(name="demo-shop-web-old", uid="old"), marked(annotations={LB_OWNER: "other"})),
    ),
    "the same type": World(served(annotations=CLUSTER_TYPE), (allocated(),)),
    "the address of another Service is requested, which does not exist": World(
        served(annotations={**VM, **SHARES}), (allocated(),)
    ),
}


def test_switch_to_a_vm_load_balancer() -> None:
    assert differences("switching_to_vm", TO_VM) == []


def test_switch_to_a_cluster_load_balancer() -> None:
    assert differences("switching_to_cluster", TO_CLUSTER) == []


def test_switch_that_is_not_possible() -> None:
    assert differences("switching_rejected", REJECTED) == []


def test_dry_run_has_the_next_load_balancer() -> None:
    made = plan(served(annotations=VM), allocated())
    assert made.dry_run is not None
    body: Any = made.dry_run
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
