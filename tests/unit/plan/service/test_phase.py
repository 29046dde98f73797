"""The phase of a Service: every phase is reached, and of several that fit, which one counts."""

from typing import Any, Final

import pytest

from harvester_ccm.kube.errors import Unreachable
from harvester_ccm.names import (
    IP_POOL,
    IPAM,
    LB_OWNER,
    LB_REQUESTED_NETWORK,
    LB_SELECT_NETWORK,
    NETWORK,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    WORKLOAD_TYPE,
)
from harvester_ccm.plan.service.allocation.address_pools import PoolRights
from harvester_ccm.plan.service.ownership.right_harvester import HarvesterCheck
from harvester_ccm.plan.service.phase import Phase, phase_of
from harvester_ccm.plan.service.plan import PLANS, plan_service
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
    HOSTED,
    PRIMARY,
    SHARED,
    SHARES,
    VM,
    VM_LOAD_BALANCER,
    WAITING,
    WITHDRAWN,
    World,
    snapshot_in,
)

OTHER_PORT: dict[str, Any] = {"ports": [{"port": 443, "protocol": "TCP", "nodePort": 30443}]}
SHARING: dict[str, Any] = {"primary": PRIMARY, "primary_allocated": frozenset({ADDRESS})}
NO_NODE_PORTS: dict[str, Any] = {"spec": {"allocateLoadBalancerNodePorts": False}, "ports": [{"port": 80}]}
FOREIGN: Final = marked(annotations={LB_OWNER: "other"})
HOLDER: Final = load_balancer("other", uid="other", ip=ADDRESS, pool="lan")
UNREACHABLE: Final = Unreachable("no route")
VLAN: Final = {NETWORK: "infra/vlan9"}
IN_OTHER: Final = marked(
    annotations={LB_REQUESTED_NETWORK: "infra/vlan9", LB_SELECT_NETWORK: "infra/vlan7"}, ip=ADDRESS, pool="lan"
)
IN_VLAN: Final = marked(annotations={LB_REQUESTED_NETWORK: "infra/vlan9"}, ip=ADDRESS, pool="lan")

WORLDS: dict[str, tuple[World, Phase]] = {
    "another type": (World(service(kind="ClusterIP")), Phase.NOT_OURS),
    "another type, Harvester not listed": (
        World(service(kind="ClusterIP"), facts={"harvester_known": False}),
        Phase.NOT_OURS,
    ),
    "another type, with a primary": (World(service(kind="ClusterIP", annotations=SHARES)), Phase.NOT_OURS),
    "Harvester not listed": (World(service(), facts={"harvester_known": False}), Phase.HARVESTER_UNKNOWN),
    "Harvester not listed, deleted": (
        World(service(ours=True, deleting=True), facts={"harvester_known": False}),
        Phase.HARVESTER_UNKNOWN,
    ),
    "Harvester not listed, secondary": (
        World(service(annotations=SHARES), facts={**SHARING, "harvester_known": False}),
        Phase.HARVESTER_UNKNOWN,
    ),
    "Harvester lost, deleted, its load balancer may be missing": (
        World(service(ours=True, deleting=True), facts={"harvester_problem": UNREACHABLE}),
        Phase.HARVESTER_UNKNOWN,
    ),
    "Harvester lost, deleted, with its load balancer": (
        World(served(deleting=True), (allocated(),), {"harvester_problem": UNREACHABLE}),
        Phase.LEAVING,
    ),
    "Harvester lost": (
        World(served(), (allocated(),), {"harvester_problem": UNREACHABLE}),
        Phase.ANNOUNCED_BY_KUBE_VIP,
    ),
    "deleted": (World(served(deleting=True), (allocated(),)), Phase.LEAVING),
    "deleted secondary": (
        World(served(deleting=True, annotations=SHARES, labels=SHARED), facts=SHARING),
        Phase.LEAVING,
    ),
    "another type since": (World(service(kind="ClusterIP", ours=True)), Phase.LEAVING),
    "a secondary": (World(service(ours=True, annotations=SHARES, **OTHER_PORT), facts=SHARING), Phase.SHARING),
    "a secondary that still has a load balancer": (
        World(served(annotations=SHARES, **OTHER_PORT), (allocated(),), SHARING),
        Phase.SHARING,
    ),
    "a secondary of a Service without an address": (
        World(service(annotations=SHARES), facts={"primary": service("main", uid="main-uid", ours=True)}),
        Phase.SHARING_PENDING,
    ),
    "a secondary of none": (World(service(annotations=SHARES)), Phase.SHARING_PENDING),
    "a secondary of none keeps its load balancer": (
        World(served(annotations=SHARES), (allocated(),)),
        Phase.ANNOUNCED_BY_KUBE_VIP,
    ),
    "a secondary of none with a load balancer without an address": (
        World(service(ours=True, annotations={**SUPPRESSED, **SHARES}), (marked(),)),
        Phase.PENDING,
    ),
    "a secondary of none whose load balancer is being deleted": (
        World(served(annotations=SHARES), (allocated(deleting=True),)),
        Phase.SHARING_PENDING,
    ),
    "a former secondary": (World(served(labels=SHARED)), Phase.NEW),
    "the label of a secondary, and a load balancer with the address": (
        World(served(labels=SHARED), (allocated(),)),
        Phase.ANNOUNCED_BY_KUBE_VIP,
    ),
    "a former secondary without an address": (
        World(service(ours=True, annotations=SUPPRESSED, labels={PRIMARY_SERVICE_LABEL: "shop.main"})),
        Phase.NEW,
    ),
    "a name of another cluster": (World(service(), (FOREIGN,)), Phase.NAME_TAKEN),
    "a name of another cluster, unsupported": (World(service(annotations={IPAM: "x"}), (FOREIGN,)), Phase.NAME_TAKEN),
    "a name of another cluster, VMs not listed": (
        World(service(), (FOREIGN,), {"harvester_check": HarvesterCheck.UNKNOWN}),
        Phase.NAME_TAKEN,
    ),
    "VMs not listed": (World(service(), facts={"harvester_check": HarvesterCheck.UNKNOWN}), Phase.HARVESTER_UNKNOWN),
    "VMs not listed, with a load balancer": (
        World(WAITING, (marked(),), {"harvester_check": HarvesterCheck.UNKNOWN}),
        Phase.PENDING,
    ),
    "another Harvester": (World(service(), facts={"harvester_check": HarvesterCheck.MISMATCH}), Phase.WRONG_HARVESTER),
    "another Harvester, unsupported": (
        World(service(annotations={IPAM: "x"}), facts={"harvester_check": HarvesterCheck.MISMATCH}),
        Phase.WRONG_HARVESTER,
    ),
    "its address was given to another": (
        World(served(), facts={"other_load_balancers": (HOLDER,)}),
        Phase.ADDRESS_TAKEN,
    ),
    "its address was given to another, its load balancer waits": (
        World(served(), (marked(),), {"other_load_balancers": (HOLDER,)}),
        Phase.ADDRESS_TAKEN,
    ),
    "its address was given to another, unsupported": (
        World(served(annotations={IPAM: "x"}), facts={"other_load_balancers": (HOLDER,)}),
        Phase.ADDRESS_TAKEN,
    ),
    "its address is that of another one that is being deleted": (
        World(served(), facts={"other_load_balancers": (load_balancer("other", ip=ADDRESS, deleting=True),)}),
        Phase.NEW,
    ),
    "two load balancers with its address": (
        World(served(), (allocated(),), {"other_load_balancers": (HOLDER,)}),
        Phase.ANNOUNCED_BY_KUBE_VIP,
    ),
    "a Node has its new address": (
        World(WAITING, (allocated(),), {"holders_of_new": {ADDRESS: "Node w1 has it"}}),
        Phase.ADDRESS_IN_USE,
    ),
    "a Node has the address of its primary, which it cannot share": (
        World(
            service(ours=True, annotations=SHARES),
            (allocated(),),
            {**SHARING, "primary_allocated": {"10.0.0.9"}, "holders_of_new": {"10.0.0.9": "Node w1 has it"}},
        ),
        Phase.ANNOUNCED_BY_KUBE_VIP,
    ),
    "a Node has the address of its primary": (
        World(
            service(ours=True, annotations=SHARES, **OTHER_PORT),
            facts={**SHARING, "holders_of_new": {ADDRESS: "Node w1 has it"}},
        ),
        Phase.ADDRESS_IN_USE,
    ),
    "invalid ipam": (World(service(annotations={IPAM: "static"})), Phase.UNSUPPORTED),
    "invalid ipam, with a load balancer": (
        World(served(annotations={IPAM: "static"}), (allocated(),)),
        Phase.ANNOUNCED_BY_KUBE_VIP,
    ),
    "another invalid annotation": (World(service(annotations={WORKLOAD_TYPE: "pod"})), Phase.NEW),
    "IPv6 only": (World(service(spec={"ipFamilies": ["IPv6"]})), Phase.UNSUPPORTED),
    "no node ports": (World(service(**NO_NODE_PORTS)), Phase.NEW),
    "no node ports, VM load balancer": (World(service(annotations=VM, **NO_NODE_PORTS)), Phase.UNSUPPORTED),
    "new": (World(service()), Phase.NEW),
    "with the finalizer": (World(WAITING), Phase.NEW),
    "its load balancer vanished": (World(served()), Phase.NEW),
    "the old load balancer is being deleted": (World(WAITING, (marked(deleting=True),)), Phase.OLD_TERMINATING),
    "the old load balancer is being deleted, with its address": (
        World(served(), (allocated(deleting=True),)),
        Phase.OLD_TERMINATING,
    ),
    "no address yet": (World(WAITING, (marked(),)), Phase.PENDING),
    "VM load balancer, allocated but not announced": (
        World(service(ours=True, annotations={**SUPPRESSED, **VM}), (marked(ip=ADDRESS, pool="lan", spec=VM_SPEC),)),
        Phase.PENDING,
    ),
    "device not looked up": (
        World(service(ours=True, annotations={**SUPPRESSED, **VLAN}), (IN_VLAN,), {"network_devices": None}),
        Phase.ANNOUNCED_BY_KUBE_VIP,
    ),
    "no device in the network": (
        World(service(ours=True, annotations={**SUPPRESSED, **VLAN}), (IN_VLAN,), {"network_devices": {"a/b": "eth1"}}),
        Phase.ANNOUNCED_BY_KUBE_VIP,
    ),
    "pool of another network": (
        World(service(ours=True, annotations={**SUPPRESSED, **VLAN}), (IN_OTHER,)),
        Phase.OTHER_NETWORK,
    ),
    "pool of another network, already announced": (
        World(served(annotations=VLAN), (IN_OTHER,)),
        Phase.ANNOUNCED_BY_KUBE_VIP,
    ),
    "device not looked up, already announced": (
        World(served(annotations=VLAN), (IN_VLAN,), {"network_devices": None}),
        Phase.ANNOUNCED_BY_KUBE_VIP,
    ),
    "allocated": (World(WAITING, (marked(ip=ADDRESS, pool="lan"),)), Phase.ANNOUNCED_BY_KUBE_VIP),
    "allocated by DHCP": (
        World(
            service(ours=True, annotations={**SUPPRESSED, IPAM: "dhcp"}), (marked(ip="0.0.0.0", spec={"ipam": "dhcp"}),)
        ),
        Phase.ANNOUNCED_BY_KUBE_VIP,
    ),
    "served": (World(served(), (allocated(),)), Phase.ANNOUNCED_BY_KUBE_VIP),
    "served by Harvester": (World(HOSTED, (VM_LOAD_BALANCER,)), Phase.ANNOUNCED_BY_HARVESTER),
    "a load balancer without a workload type": (
        World(
            service(ours=True, address=ADDRESS, annotations=SUPPRESSED),
            (allocated(spec={**VM_SPEC, "workloadType": ""}),),
        ),
        Phase.ANNOUNCED_BY_HARVESTER,
    ),
    "the other workload type, withdrawn": (
        World(service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, **VM}), (allocated(),)),
        Phase.SWITCHING,
    ),
    "the other workload type, not settled": (
        World(served(annotations=VM), (marked(ip=ADDRESS, pool="lan"),)),
        Phase.ANNOUNCED_BY_KUBE_VIP,
    ),
    "the other workload type, settled": (World(served(annotations=VM), (allocated(),)), Phase.SWITCHING),
    "the other workload type, no address yet": (
        World(service(ours=True, annotations={**SUPPRESSED, **VM}), (marked(),)),
        Phase.SWITCHING,
    ),
    "the other workload type, and a primary": (
        World(served(annotations={**VM, PRIMARY_SERVICE: "shop/none"}), (allocated(),)),
        Phase.ANNOUNCED_BY_KUBE_VIP,
    ),
    "the other workload type, no node ports": (
        World(served(annotations=VM, **NO_NODE_PORTS), (allocated(),)),
        Phase.ANNOUNCED_BY_KUBE_VIP,
    ),
    "the other workload type, backends not known": (
        World(served(annotations=VM), (allocated(),), {"backends": None}),
        Phase.ANNOUNCED_BY_KUBE_VIP,
    ),
    "the other workload type, another Harvester": (
        World(served(annotations=VM), (allocated(),), {"harvester_check": HarvesterCheck.MISMATCH}),
        Phase.ANNOUNCED_BY_KUBE_VIP,
    ),
    "the other workload type, and the name of another cluster": (
        World(
            served(annotations={**VM, IP_POOL: "vlan100"}), (allocated(name="demo-shop-web-old", uid="old"), FOREIGN)
        ),
        Phase.ANNOUNCED_BY_KUBE_VIP,
    ),
    "the requested address is in use": (
        World(
            service(spec={"loadBalancerIP": "10.0.0.7"}, annotations={IP_POOL: "lan"}),
            facts={"pool_rights": PoolRights(are_all=True), "holder_of_requested": "Node n1 has it"},
        ),
        Phase.NEW,
    ),
}


@pytest.mark.parametrize(("world", "phase"), WORLDS.values(), ids=WORLDS.keys())
def test_phase(world: World, phase: Phase) -> None:
    snapshot = snapshot_in(world)
    assert plan_service(snapshot).phase == phase
    if phase is not Phase.SWITCHING:
        assert phase_of(snapshot) is phase


def test_every_phase_is_reached_and_has_a_plan() -> None:
    assert {phase for _, phase in WORLDS.values()} == set(Phase)
    assert PLANS.keys() == set(Phase)


def test_time_counts_from_the_phase() -> None:
    snapshot = snapshot_in(World(WAITING, (marked(name=LB_NAME),), {"waited": 7.0}))
    assert snapshot.waited(Phase.PENDING) == 7.0
    assert snapshot.waited(Phase.NEW) == 0.0
