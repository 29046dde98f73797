"""Plans of Services that get no load balancer at the moment: others serve them, or something stands in the way."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from harvester_ccm.kube.errors import Answer, Forbidden, Unreachable
from harvester_ccm.model.core import Service
from harvester_ccm.names import (
    IPAM,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_IGNORE,
    LB_OWNER,
    REQUESTED_ADDRESS,
    WORKLOAD_TYPE,
    Reason,
)
from harvester_ccm.plan.service.announcing.record import Step
from harvester_ccm.plan.service.desired import PatchService
from harvester_ccm.plan.service.ownership.right_harvester import HarvesterCheck
from harvester_ccm.plan.service.phase import Phase
from tests.support.builders import ADDRESS, CLUSTER, SUPPRESSED, allocated, load_balancer, marked, served, service
from tests.unit.plan.service.outcomes import differences
from tests.unit.plan.service.snapshots import (
    NO_NODE_PORTS,
    READY,
    SHARES,
    VM,
    WAITING,
    WITHDRAWN,
    World,
    conditioned,
    messages,
    outline,
    plan,
    record_of,
    short_write,
)

UNKNOWN: Final = {"harvester_known": False}
UNREACHABLE: Final = {"harvester_known": False, "harvester_problem": Unreachable("no route")}
LOST: Final = {"harvester_problem": Forbidden(Answer(403, "", "no"))}
"""The load balancers were listed before."""
UNVERIFIED: Final = {"harvester_check": HarvesterCheck.UNKNOWN}
MISMATCH: Final = {"harvester_check": HarvesterCheck.MISMATCH}
HOLDER: Final = load_balancer("other", uid="other", ip=ADDRESS, pool="lan")
FOREIGN: Final = marked(annotations={LB_OWNER: "other"})
REQUESTED: Final = service(annotations={KUBE_VIP_ADDRESSES: "10.0.0.7"})
AWAITS_LEASE: Final = conditioned(Reason.DHCP_LEASE_PENDING, address=ADDRESS, annotations={KUBE_VIP_ADDRESSES: ADDRESS})

NOT_OURS: dict[str, World] = {
    "another type": World(service(kind="ClusterIP")),
    "another class": World(service(spec={"loadBalancerClass": "example.com/other"})),
    "annotation of MetalLB": World(service(annotations={"metallb.io/address-pool": "x"})),
    "annotation of MetalLB, with an address": World(
        service(annotations={"metallb.io/address-pool": "x"}, address=ADDRESS)
    ),
    "being deleted, with the finalizer of another controller": World(
        service(deleting=True, finalizers=["example.com/keep"])
    ),
}
HARVESTER: dict[str, World] = {
    "not listed, new Service": World(service(), facts=UNKNOWN),
    "not listed, new Service, kept from kube-vip": World(service(annotations=SUPPRESSED), facts=UNKNOWN),
    "not listed for 5 s, new Service": World(service(), facts={**UNKNOWN, "waited": 5.0}),
    "not listed, an address is requested": World(REQUESTED, facts=UNKNOWN),
    "not listed, Service with the finalizer": World(WAITING, facts=UNKNOWN),
    "not listed, served": World(served(), facts=UNKNOWN),
    "not listed, being deleted": World(service(ours=True, deleting=True, annotations=SUPPRESSED), facts=UNKNOWN),
    "unreachable, new Service": World(service(), facts=UNREACHABLE),
    "unreachable, served": World(served(), facts=UNREACHABLE),
    "unreachable, served, being deleted": World(served(deleting=True), facts=UNREACHABLE),
    "lost, being deleted": World(served(deleting=True), facts=LOST),
    "lost, served without its load balancer": World(served(), facts=LOST),
    "lost, being deleted, with its load balancer": World(served(deleting=True), (allocated(),), LOST),
    "VMs not listed, new Service": World(service(), facts=UNVERIFIED),
    "VMs not listed, kept from kube-vip": World(WAITING, facts=UNVERIFIED),
    "VMs not listed, with an address": World(served(), facts=UNVERIFIED),
    "another one, new Service": World(service(), facts=MISMATCH),
    "another one, with an address that kube-vip has leased just now": World(AWAITS_LEASE, facts=MISMATCH),
    "another one, with an address": World(served(), facts=MISMATCH),
    "another one, with an address of the Go provider": World(served(condition=False), facts=MISMATCH),
}
OTHERS: dict[str, World] = {
    "name of another cluster": World(service(), (FOREIGN,)),
    "name of another cluster, an address is requested": World(REQUESTED, (FOREIGN,)),
    "a Node has its new address": World(WAITING, (allocated(),), {"holders_of_new": {ADDRESS: "Node w1 has it"}}),
    "a Node has its new address, another client removed the finalizer": World(
        service(annotations=SUPPRESSED), (allocated(),), {"holders_of_new": {ADDRESS: "Node w1 has it"}}
    ),
    "a Node has its former address, which is withdrawn": World(
        service(ours=True, annotations={**WITHDRAWN, **record_of(Step.WITHDRAWN, again=True)}),
        (allocated(),),
        {"holders_of_new": {ADDRESS: "Node w1 has it"}, "since": 1.0},
    ),
    "a Node has the new address of its primary, which cannot be shared": World(
        served(annotations=SHARES),
        (allocated(),),
        {
            "holders_of_new": {"10.0.0.9": "Node w1 has it"},
            "primary": served("main", uid="main-uid", deleting=True),
            "primary_allocated": frozenset({"10.0.0.9"}),
        },
    ),
    "its address was given to another one": World(served(), facts={"other_load_balancers": (HOLDER,)}),
    "its address was given to another one, although kube-vip ignores the Service": World(
        served(annotations={KUBE_VIP_IGNORE: "true"}), facts={"other_load_balancers": (HOLDER,)}
    ),
    "its address was given to another one, after Harvester announced it": World(
        service(ours=True, address=ADDRESS, annotations=SUPPRESSED), facts={"other_load_balancers": (HOLDER,)}
    ),
    "the requested address was given to another one": World(
        served(condition=False, annotations={REQUESTED_ADDRESS: ADDRESS}),
        (marked(),),
        {"other_load_balancers": (HOLDER,)},
    ),
}
UNSUPPORTED: dict[str, World] = {
    "ipam": World(service(annotations={IPAM: "static"})),
    "ipam, kept from kube-vip": World(service(annotations={IPAM: "static", **SUPPRESSED})),
    "ipam and another problem": World(service(annotations={IPAM: "static", WORKLOAD_TYPE: "pod"})),
    "IPv6 only": World(service(spec={"ipFamilies": ["IPv6"]})),
    "IPv6 only, the address of an earlier load balancer": World(served(spec={"ipFamilies": ["IPv6"]})),
    "IPv6 only, the address of an earlier load balancer, withdrawn": World(
        service(ours=True, address=ADDRESS, annotations=WITHDRAWN, spec={"ipFamilies": ["IPv6"]})
    ),
    "IPv6 only, the requested address is announced": World(
        served(spec={"ipFamilies": ["IPv6"], "loadBalancerIP": ADDRESS})
    ),
    "VM load balancer without node ports": World(service(annotations=VM, **NO_NODE_PORTS)),
}


def test_service_of_others_is_left_alone() -> None:
    assert differences("obstacles_not_ours", NOT_OURS) == []


def test_harvester_is_not_known() -> None:
    assert differences("obstacles_harvester", HARVESTER) == []


def test_another_owner_has_the_name_or_the_address() -> None:
    assert differences("obstacles_others", OTHERS) == []


def test_service_that_cannot_be_served() -> None:
    assert differences("obstacles_unsupported", UNSUPPORTED) == []


def test_address_that_was_given_away_is_named_with_its_new_holder() -> None:
    (message,) = messages(plan(served(), other_load_balancers=(HOLDER,)))
    assert f"Address {ADDRESS} is withdrawn: Harvester has given it to other" in message


@pytest.mark.parametrize(
    ("problem", "releases"), [(Unreachable("no route"), True), (Forbidden(Answer(403, "", "no")), False)]
)
def test_command_that_releases_a_deleted_service_is_given_only_without_a_response(
    problem: Unreachable | Forbidden, *, releases: bool
) -> None:
    deleted = served(deleting=True, finalizers=["example.com/keep"])
    (event,) = plan(deleted, harvester_known=False, harvester_problem=problem).events
    assert bool(event.command) is releases
    if releases:
        assert event.command == (
            'kubectl patch service -n shop web --type=merge -p \'{"metadata":{"finalizers":["example.com/keep"]}}\''
        )


def test_obstacle_that_appears_later_is_reported_and_the_address_stays() -> None:
    world = World(
        service(annotations=SUPPRESSED, ours=True, address=ADDRESS, **NO_NODE_PORTS),
        (allocated(spec={"workloadType": "vm"}),),
    )
    made = outline(world)
    assert (made.verdict, made.events) == (READY, ("Warning Unsupported", "Warning SettingsIgnored"))


REQUIRED: dict[str, Any] = {"spec": {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}}


@pytest.mark.parametrize(
    ("required", "is_served"),
    [
        (service(**REQUIRED), False),
        (served(**REQUIRED), True),
        (service(address=ADDRESS, **REQUIRED), True),
        # Another client emptied the status.
        (service(ours=True, annotations={KUBE_VIP_ADDRESSES: ADDRESS}, **REQUIRED), True),
    ],
)
def test_only_a_new_service_that_requires_both_families_gets_no_address(required: Service, *, is_served: bool) -> None:
    assert (outline(World(required)).phase is not Phase.UNSUPPORTED) is is_served


def test_new_harvester_is_accepted() -> None:
    accepted = replace(CLUSTER, new_harvester=True)
    assert outline(World(service(), facts={"cluster": accepted})).phase is Phase.NEW


def test_requested_address_of_a_service_that_cannot_be_served_is_withdrawn() -> None:
    """kube-vip has announced it and written the status, and no load balancer is going to have it."""
    requested = {"loadBalancerIP": ADDRESS}
    made = plan(service(spec=requested, address=ADDRESS, annotations={IPAM: "mark", WORKLOAD_TYPE: "vm"}))
    assert made.phase is Phase.UNSUPPORTED
    assert isinstance(made.write, PatchService)
    metadata: Any = made.write.patch["metadata"]
    assert metadata["annotations"][KUBE_VIP_ADDRESSES] == ""
    withdrawn = service(ours=True, spec=requested, address=ADDRESS, annotations={**WITHDRAWN, IPAM: "mark"})
    written: Any = short_write(plan(withdrawn, since=1.0).write)
    assert written["ingress"] == []
