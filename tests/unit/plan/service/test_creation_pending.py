"""Plans of a Service without a load balancer, and of one whose load balancer has no address yet."""

from typing import Final

import pytest
from msgspec.structs import replace

from harvester_ccm.kube.errors import Unreachable
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
    NETWORK,
    POOL_NAMESPACE,
    PROJECT,
    REQUESTED_ADDRESS,
    WORKLOAD_TYPE,
    Reason,
)
from harvester_ccm.plan.service.allocation.address_pools import PoolRights
from harvester_ccm.plan.service.allocation.creation import CREATION_QUEUED
from harvester_ccm.plan.service.announcing.record import Step
from harvester_ccm.plan.service.plan import plan_service, plan_waiting_for_creation
from tests.support.builders import (
    ADDRESS,
    SUPPRESSED,
    VM_SPEC,
    allocated,
    load_balancer,
    marked,
    served,
    service,
)
from tests.unit.plan.service.outcomes import differences
from tests.unit.plan.service.snapshots import (
    EXHAUSTED,
    EXHAUSTED_LOAD_BALANCER,
    HOSTED,
    NO_POOL,
    VM,
    WAITING,
    WITHDRAWN,
    World,
    messages,
    record_of,
    short_condition,
    short_verdict,
    short_write,
    snapshot_in,
    with_condition,
)

REQUESTED: Final = service(spec={"loadBalancerIP": "10.0.0.7"})
OTHER_POOL: Final = service(ours=True, annotations={**SUPPRESSED, IP_POOL: "other"})
VM_WAITING: Final = service(ours=True, annotations={**SUPPRESSED, **VM})
DHCP: Final = {IPAM: "dhcp"}
FOR_LEASE: Final = marked(spec={"ipam": "dhcp"})
ANNOUNCED_REQUEST: Final = service(
    ours=True, address="10.0.0.7", annotations={KUBE_VIP_ADDRESSES: "10.0.0.7", REQUESTED_ADDRESS: "10.0.0.7"}
)
"""kube-vip announces the address that the user requests, as with the Go provider."""

CREATION: dict[str, World] = {
    "the Service is kept from kube-vip first": World(service()),
    "then the load balancer is created": World(WAITING),
    "kube-vip keeps the address that the specification requests": World(REQUESTED),
    "the address in kube-vip's annotation becomes a request": World(
        service(annotations={KUBE_VIP_ADDRESSES: "10.0.0.7"})
    ),
    "a user had kube-vip ignore the Service": World(service(annotations={KUBE_VIP_IGNORE: "true"})),
    "pool, network, project and namespace": World(
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
    "DHCP, and a pool that is ignored": World(service(ours=True, annotations={**SUPPRESSED, **DHCP, IP_POOL: "lab"})),
    "DHCP, and a requested address, which Harvester never allocates": World(
        service(annotations=DHCP, spec={"loadBalancerIP": "10.0.0.7"})
    ),
    "VM load balancer": World(VM_WAITING),
    "VM load balancer, not yet kept from kube-vip": World(service(annotations=VM)),
    "VM load balancer of a requested address": World(service(annotations={**VM, KUBE_VIP_ADDRESSES: "10.0.0.7"})),
    "VM load balancer with a health check": World(
        service(ours=True, annotations={HEALTH_CHECK_PORT: "80", **SUPPRESSED})
    ),
    "VM load balancer, VMs not listed": World(service(annotations=VM), facts={"backends": None}),
    "VM load balancer, no node takes traffic": World(VM_WAITING, facts={"backends": ()}),
    "the load balancer vanished": World(served()),
    "the load balancer vanished, its address is requested": World(served(spec={"loadBalancerIP": ADDRESS})),
    "the load balancer vanished, another client has written another address": World(
        service(ours=True, address=ADDRESS, annotations={KUBE_VIP_ADDRESSES: "10.0.0.9"})
    ),
    "the VM load balancer vanished": World(HOSTED),
    "the VM load balancer vanished, another client changed the status": World(
        service(
            ours=True,
            address="10.0.0.9",
            annotations={**SUPPRESSED, **VM, **record_of(Step.DELEGATED, again=True)},
        )
    ),
    "a switch was taken back after the deletion": World(
        service(ours=True, address=ADDRESS, annotations={KUBE_VIP_ADDRESSES: "", WORKLOAD_TYPE: "cluster"})
    ),
    "a load balancer without labels is nobody's": World(
        WAITING, (load_balancer("demo-shop-web-00000000", ip="10.0.0.9"),)
    ),
}
LEASED: Final = {**DHCP, KUBE_VIP_ADDRESSES: DHCP_ADDRESS, KUBE_VIP_HOST: "n1", KUBE_VIP_LEASE: ADDRESS}
BY_DHCP: dict[str, World] = {
    "the address is from an IP pool": World(served(annotations={**DHCP, KUBE_VIP_HOST: "n1"})),
    "another controller has left the address": World(service(address=ADDRESS, annotations=DHCP)),
    "a user requests that address from DHCP": World(
        service(address=ADDRESS, annotations={**DHCP, KUBE_VIP_LEASE: ADDRESS})
    ),
    "the address is written while kube-vip is kept from the Service": World(
        service(ours=True, address=ADDRESS, condition=False, annotations={**DHCP, **WITHDRAWN})
    ),
    "then the load balancer is created": World(
        service(ours=True, annotations={**DHCP, **WITHDRAWN, KUBE_VIP_HOST: "n1"}), facts={"since": 1.0}
    ),
    "kube-vip announces an address that the status does not show": World(
        service(ours=True, annotations={**DHCP, KUBE_VIP_ADDRESSES: ADDRESS})
    ),
    "the VM load balancer of a lease vanished": World(
        service(
            ours=True,
            address=ADDRESS,
            annotations={**DHCP, **VM, **SUPPRESSED, **record_of(Step.DELEGATED, again=True)},
        )
    ),
    "kube-vip keeps its lease": World(service(ours=True, address=ADDRESS, annotations=LEASED)),
    "kube-vip is about to get its lease": World(service(ours=True, annotations=LEASED)),
    "not processed, an address from an IP pool": World(served(annotations=DHCP), (FOR_LEASE,)),
    "not processed, kube-vip keeps its lease": World(
        service(ours=True, address=ADDRESS, annotations=LEASED), (FOR_LEASE,)
    ),
    "another client removed the allocation and the note, the lease is recorded": World(
        service(ours=True, address=ADDRESS, annotations={**DHCP, KUBE_VIP_ADDRESSES: DHCP_ADDRESS}),
        (marked(address=ADDRESS, spec={"ipam": "dhcp"}),),
    ),
    "not processed for 30 s, kube-vip keeps its lease": World(
        service(ours=True, address=ADDRESS, annotations=LEASED), (FOR_LEASE,), {"waited": 30.0}
    ),
    "not processed, kube-vip has a lease, the status is that of another controller": World(
        service(ours=True, address="10.0.0.9", annotations=LEASED), (FOR_LEASE,)
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
OLD: dict[str, World] = {
    "is being deleted": World(WAITING, (marked(deleting=True),)),
    "is being deleted under another name": World(WAITING, (marked(name="demo-shop-web-old", deleting=True),)),
    "is being deleted for 30 s": World(WAITING, (marked(deleting=True),), {"waited": 30.0}),
    "is being deleted, new Service": World(service(), (marked(deleting=True),)),
    "is being deleted, and kube-vip announces the requested address of the new Service": World(
        ANNOUNCED_BEFORE, (marked(deleting=True),)
    ),
    "is being deleted, and the new Service requests an address and VMs": World(
        ANNOUNCED_WITH_VMS, (marked(deleting=True),)
    ),
    "is being deleted, and its address is shown": World(served(), (allocated(deleting=True),)),
}
PENDING: dict[str, World] = {
    "not processed": World(WAITING, (marked(),)),
    "not processed for 30 s": World(WAITING, (marked(),), {"waited": 30.0}),
    "not processed, the status has only a host name": World(
        service(ours=True, status={"ingress": [{"hostname": "web.example.com"}]}, annotations=SUPPRESSED), (marked(),)
    ),
    "not processed, another client added a host name to the status": World(
        service(
            ours=True,
            status={"ingress": [{"hostname": "web.example.com"}, {"ip": ADDRESS, "ipMode": "VIP"}]},
            annotations={KUBE_VIP_ADDRESSES: ADDRESS, **record_of(Step.SHOWN)},
        ),
        (marked(),),
    ),
    "not processed, a user has kube-vip ignore the Service, which was ready": World(
        service(ours=True, address=ADDRESS, recorded=False, annotations={KUBE_VIP_IGNORE: "true"}), (marked(),)
    ),
    "not processed, finalizer removed by another client": World(service(annotations=SUPPRESSED), (marked(),)),
    "allocating": World(WAITING, (marked(message=""),)),
    "Harvester allocates what is no address": World(WAITING, (marked(ip="lan-pool", pool="lan"),)),
    "Harvester announces what is no address": World(
        service(ours=True, annotations={**SUPPRESSED, **VM}),
        (marked(spec=VM_SPEC, ip=ADDRESS, pool="lan", address="host.example.com"),),
    ),
    "no free address": World(WAITING, (EXHAUSTED_LOAD_BALANCER,)),
    "no free address, an address of another one is shown": World(served(), (EXHAUSTED_LOAD_BALANCER,)),
    "no free address after a switch back from a VM load balancer": World(
        service(ours=True, address=ADDRESS, annotations=SUPPRESSED), (EXHAUSTED_LOAD_BALANCER,)
    ),
    "no free address, the requested one is announced": World(ANNOUNCED_REQUEST, (EXHAUSTED_LOAD_BALANCER,)),
    "no free address, an address was requested under the Go provider": World(
        service(ours=True, annotations={KUBE_VIP_ADDRESSES: "10.0.0.7"}), (EXHAUSTED_LOAD_BALANCER,)
    ),
    "not processed, the requested address is announced": World(ANNOUNCED_REQUEST, (marked(),)),
    "not processed for 30 s, the requested address is announced": World(
        ANNOUNCED_REQUEST, (marked(),), {"waited": 30.0}
    ),
    "no free address, kube-vip announces one that Harvester never allocated to the Go provider": World(
        service(ours=True, address="10.0.0.7", condition=False, annotations={KUBE_VIP_ADDRESSES: "10.0.0.7"}),
        (load_balancer(message=EXHAUSTED),),
    ),
    "no free address, kube-vip ignores the Service of the Go provider": World(
        service(
            ours=True,
            address="10.0.0.7",
            condition=False,
            annotations={KUBE_VIP_ADDRESSES: "10.0.0.7", KUBE_VIP_IGNORE: "true"},
        ),
        (load_balancer(message=EXHAUSTED),),
    ),
    "no free address, kube-vip announces one for which another client removed the record": World(
        service(ours=True, address="10.0.0.7", recorded=False, annotations={KUBE_VIP_ADDRESSES: "10.0.0.7"}),
        (EXHAUSTED_LOAD_BALANCER,),
    ),
    "another pool is requested, Harvester tries to write the old one": World(
        OTHER_POOL, (marked(message="fail to reserve 10.0.0.1 into lan"),)
    ),
    "Harvester cannot be read": World(WAITING, (marked(),), {"harvester_problem": Unreachable("no route")}),
    "Harvester cannot be read for 5 s": World(
        WAITING, (marked(),), {"harvester_problem": Unreachable("no route"), "waited": 5.0}
    ),
    "another pool is requested before a response": World(OTHER_POOL, (marked(),)),
    "another pool is requested after the refusal": World(OTHER_POOL, (EXHAUSTED_LOAD_BALANCER,)),
    "another pool is requested, no pool was found": World(OTHER_POOL, (marked(message=NO_POOL),)),
    "another pool is requested, Harvester has searched again": World(
        OTHER_POOL, (marked(message=NO_POOL, annotations={LB_RECONCILE: "true"}),)
    ),
    "another pool is requested, Harvester is searching again": World(
        OTHER_POOL, (marked(annotations={LB_RECONCILE: "true"}),)
    ),
    "another pool is requested, the old one is blocked": World(OTHER_POOL, (marked(closed="lan"),)),
    "another pool is requested, the blocked pool was confirmed": World(
        OTHER_POOL, (marked(closed="lan", message="x"),)
    ),
    "the first pool is requested again, but it is blocked": World(WAITING, (marked(closed="lan", message="x"),)),
    "another search is not needed any more": World(
        WAITING, (marked(message=NO_POOL, annotations={LB_RECONCILE: "true"}),)
    ),
    "another network is requested": World(
        service(ours=True, annotations={**SUPPRESSED, NETWORK: "infra/v9"}), (marked(message=NO_POOL),)
    ),
    "VM load balancer, not announced": World(
        VM_WAITING, (marked(ip=ADDRESS, pool="lan", message="service is waiting for external IP", spec=VM_SPEC),)
    ),
    "VM load balancer, not announced for 30 s": World(
        VM_WAITING,
        (marked(ip=ADDRESS, pool="lan", message="service is waiting for external IP", spec=VM_SPEC),),
        {"waited": 30.0},
    ),
    "VM load balancer, no free address after a switch": World(
        service(ours=True, address=ADDRESS, annotations={**SUPPRESSED, **VM}),
        (marked(message=EXHAUSTED, spec=VM_SPEC),),
    ),
    "VM load balancer, after the last address was withdrawn": World(
        service(ours=True, annotations={**WITHDRAWN, **VM}), (marked(spec=VM_SPEC),), {"since": 1.0}
    ),
    "VM load balancer, another port": World(
        service(ours=True, annotations={**SUPPRESSED, **VM}, ports=[{"port": 81, "nodePort": 30081}]),
        (marked(spec=VM_SPEC),),
    ),
}


def test_load_balancer_with_dhcp() -> None:
    assert differences("creation_pending_by_dhcp", BY_DHCP) == []


def test_creation() -> None:
    assert differences("creation_pending_creation", CREATION) == []


def test_old_load_balancer() -> None:
    assert differences("creation_pending_old", OLD) == []


def test_address_is_pending() -> None:
    assert differences("creation_pending_pending", PENDING) == []


QUEUED: dict[str, tuple[World, str, str, float | None]] = {
    "at first": (World(WAITING), "NotReady CreationQueued", "", 60.0),
    "for a minute": (World(WAITING, facts={"waited": 60.0}), "NotReady CreationQueued", "False CreationQueued", None),
    "after an error of Harvester, which stays": (
        World(with_condition(WAITING, "False", Reason.HARVESTER_UNAVAILABLE), facts={"waited": 60.0}),
        "NotReady CreationQueued",
        "False HarvesterUnavailable",
        None,
    ),
    "ready before, for a minute": (
        World(served(), facts={"waited": 60.0}),
        "NotReady CreationQueued",
        "False CreationQueued",
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
    assert {event.type for event in queued.events} <= {"Warning"}, "nothing is created yet"
    # One Service that is not processed has a Warning. Those behind it would only repeat it.
    assert CREATION_QUEUED not in queued.events
    assert short_write(queued.write) == ("condition" if condition == "False CreationQueued" else None)


@pytest.mark.parametrize(("since", "written"), {0.0: None, 1.0: "held, again"}.items())
def test_withdrawal_of_a_service_in_the_queue_is_completed(since: float, written: str | None) -> None:
    """kube-vip 0.9 stays silent for good if any other change comes between the two patches of a withdrawal."""
    record = record_of(Step.WITHDRAWN, "", again=True)
    withdrawn = service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, **record})
    snapshot = snapshot_in(World(withdrawn, facts={"since": since}))
    queued = plan_waiting_for_creation(snapshot, plan_service(snapshot))
    patch = short_write(queued.write)
    annotations = patch["annotations"] if isinstance(patch, dict) else {}
    assert annotations.get(ANNOUNCED_AS) == written
    assert annotations.get(KUBE_VIP_IGNORE) == ("true" if written else None)
    assert (patch is None) is (written is None)


def test_settings_are_reported_after_the_pool_is_read_also_by_a_service_in_the_queue() -> None:
    """The Service may get no load balancer, and then nothing is ignored on it."""
    rights = PoolRights(frozenset({"lan"}))
    requested = {IP_POOL: "lan", HEALTH_CHECK_PORT: "http", WORKLOAD_TYPE: "cluster"}
    waiting = service(ours=True, annotations={**SUPPRESSED, **requested}, spec={"loadBalancerIP": "10.0.0.50"})
    snapshot = snapshot_in(World(waiting, facts={"pool_rights": rights}))
    made = plan_service(snapshot)
    assert made.reads_pool
    assert messages(plan_waiting_for_creation(snapshot, made)) == []
