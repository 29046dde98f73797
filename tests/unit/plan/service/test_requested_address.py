"""The request of a certain address: who gets it, who waits, and what is said."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from harvester_ccm.model.core import Service, ServiceStatus
from harvester_ccm.names import (
    ANNOUNCED_AS,
    IP_POOL,
    IPAM,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    REQUESTED_ADDRESS,
    SERVICE_FINALIZER,
    Reason,
)
from harvester_ccm.plan.service.allocation.address_pools import ObservedPool, PoolRights, RefusedSeed
from harvester_ccm.plan.service.allocation.requested_address import RequestStep, answer_to_request
from harvester_ccm.plan.service.announcing.record import Step
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.plan import plan_service
from tests.support.builders import ADDRESS, LB_NAME, SUPPRESSED, UID, load_balancer, marked, served, service
from tests.unit.plan.service.outcomes import differences
from tests.unit.plan.service.snapshots import (
    VM,
    World,
    messages,
    plan,
    record_of,
    short_write,
    snapshot_of,
)
from tests.unit.plan.service.test_address_pools import LAN, pool

WANTED: Final = "10.0.0.20"
OWNER: Final = f"vms/{LB_NAME}"
FIELD: Final = {"loadBalancerIP": WANTED}
IN_LAN: Final = {IP_POOL: "lan"}
RIGHTS: Final = PoolRights(frozenset({"lan"}))
NEW: Final = service(spec=FIELD, annotations=IN_LAN)
PREPARED: Final = service(ours=True, spec=FIELD, annotations={**IN_LAN, **SUPPRESSED})
"""The Service after the first patch."""
CREATION: Final = {"create": LB_NAME, "workloadType": "cluster", "ipam": "pool", "ipPool": "lan"}
SEED: Final = {"seed": WANTED, "pool": "lan", "version": "5"}


def facts(**status: Any) -> dict[str, Any]:
    """Return the facts of a Service that may request addresses of pool ``lan``, which was read."""
    return {"pool_rights": RIGHTS, "pool": ObservedPool("lan", pool(**status))}


PLANS: dict[str, World] = {
    "the Service is prepared before the pool is read": World(NEW, facts={"pool_rights": RIGHTS}),
    "the pool is read": World(PREPARED, facts={"pool_rights": RIGHTS}),
    "another pool was read": World(PREPARED, facts={"pool_rights": RIGHTS, "pool": ObservedPool("dmz", pool())}),
    "free": World(PREPARED, facts=facts()),
    "requested in the pool": World(PREPARED, facts=facts(allocatedHistory={WANTED: OWNER})),
    "the load balancer had another one": World(PREPARED, facts=facts(allocatedHistory={"10.0.0.30": OWNER})),
    "the load balancer has one already": World(PREPARED, facts=facts(allocated={"10.0.0.30": OWNER})),
    "in use": World(PREPARED, facts=facts(allocated={WANTED: "vms/other"})),
    "in use, and announced by kube-vip": World(
        service(spec=FIELD, address=WANTED, annotations=IN_LAN),
        facts=facts(allocated={WANTED: "vms/other"}),
    ),
    "outside of the ranges": World(
        PREPARED, facts={"pool_rights": RIGHTS, "pool": ObservedPool("lan", pool({"subnet": "10.1.0.0/24"}))}
    ),
    "no such pool": World(PREPARED, facts={"pool_rights": RIGHTS, "pool": ObservedPool("lan", None)}),
    "a Node has it": World(PREPARED, facts={**facts(), "holder_of_requested": "Node n1 has it"}),
    "the rights are not known yet": World(PREPARED, facts={"pool_rights": PoolRights(are_known=False)}),
    "the rights are not known yet: the finalizer comes with the withdrawal": World(
        NEW, facts={"pool_rights": PoolRights(are_known=False)}
    ),
    "without the permission": World(PREPARED),
    "permission for another pool": World(PREPARED, facts={"pool_rights": PoolRights(frozenset({"dmz"}))}),
    "no pool is named, and all permit requests": World(
        service(ours=True, spec=FIELD, annotations=SUPPRESSED), facts={"pool_rights": PoolRights(are_all=True)}
    ),
    "one from DHCP is requested as well": World(
        service(ours=True, spec=FIELD, annotations={**IN_LAN, **SUPPRESSED, IPAM: "dhcp"}), facts=facts()
    ),
    "no pool is named": World(service(ours=True, spec=FIELD, annotations=SUPPRESSED), facts=facts()),
}


def test_plan() -> None:
    assert differences("requested_address", PLANS) == []


def test_vm_load_balancer_gets_the_requested_address() -> None:
    requested = service(ours=True, spec=FIELD, annotations={**IN_LAN, **SUPPRESSED, **VM})
    assert plan(requested, pool_rights=RIGHTS).reads_pool
    assert short_write(plan(requested, **facts()).write) == SEED


def test_service_that_waited_for_an_earlier_load_balancer_of_its_name_gets_the_requested_address() -> None:
    """Its condition must not look like that of a Service whose own load balancer is replaced."""
    created = service(ours=True, spec=FIELD, annotations={**IN_LAN, **SUPPRESSED, **VM}, condition=False)
    waiting = plan(created, marked(deleting=True), pool_rights=RIGHTS, waited=30.0)
    assert waiting.condition is not None
    assert waiting.phase is Phase.OLD_TERMINATING
    waited = replace(created, status=replace(created.status, conditions=(waiting.condition,)))
    assert plan(waited, pool_rights=RIGHTS).reads_pool


BINDING: dict[str, tuple[Service, bool]] = {
    "field": (NEW, True),
    "annotation of kube-vip": (service(annotations={**IN_LAN, KUBE_VIP_ADDRESSES: WANTED}), True),
    "annotation": (service(annotations={**IN_LAN, REQUESTED_ADDRESS: WANTED}), True),
    "copy of the user's annotation": (
        service(ours=True, annotations={**IN_LAN, **SUPPRESSED, REQUESTED_ADDRESS: f"{WANTED} {UID}"}),
        True,
    ),
    "withdrawn by this controller while the Service waits": (
        service(
            ours=True,
            annotations={
                **IN_LAN,
                **SUPPRESSED,
                REQUESTED_ADDRESS: f"{WANTED} {UID}",
                KUBE_VIP_HOST: "node-1",
            },
        ),
        True,
    ),
    "copied to another Service": (
        service(annotations={**IN_LAN, REQUESTED_ADDRESS: f"{WANTED} uid-of-the-original"}),
        False,
    ),
    "copied with the record of the announcement": (
        service(annotations={**IN_LAN, KUBE_VIP_ADDRESSES: WANTED, ANNOUNCED_AS: '{"uid": "other", "step": "shown"}'}),
        False,
    ),
    "kube-vip was faster": (
        service(address=WANTED, annotations={**IN_LAN, KUBE_VIP_ADDRESSES: WANTED, KUBE_VIP_HOST: "node-1"}),
        True,
    ),
    "restored with the finalizer": (
        service(ours=True, annotations={**IN_LAN, KUBE_VIP_ADDRESSES: WANTED}),
        False,
    ),
    "pair of addresses": (service(annotations={**IN_LAN, KUBE_VIP_ADDRESSES: f"{WANTED},fd00::1"}), False),
    "not an address": (service(spec={"loadBalancerIP": "10.0.0.020"}, annotations=IN_LAN), False),
    "none": (service(annotations=IN_LAN), False),
}


@pytest.mark.parametrize(("requested", "is_binding"), BINDING.values(), ids=BINDING)
def test_request_of_a_new_service_that_has_to_be_met(requested: Service, *, is_binding: bool) -> None:
    assert plan(requested, pool_rights=RIGHTS).reads_pool is is_binding


def test_first_patch_keeps_the_address_in_the_annotation_of_kube_vip_for_this_service() -> None:
    requested = service(annotations={**IN_LAN, KUBE_VIP_ADDRESSES: WANTED})
    written: Any = short_write(plan(requested, pool_rights=RIGHTS).write)
    assert written["annotations"][REQUESTED_ADDRESS] == f"{WANTED} {UID}"
    assert written["finalizers"] == [SERVICE_FINALIZER]


SERVED: dict[str, Service] = {
    "shows another address": service(ours=True, address=ADDRESS, spec=FIELD, annotations=IN_LAN),
    "had an address": service(spec=FIELD, annotations={**IN_LAN, **record_of(Step.WITHDRAWN)}),
    "the Go provider served it": service(ours=True, address=WANTED, condition=False, spec=FIELD, annotations=IN_LAN),
    "served": served(address=WANTED, spec=FIELD, annotations=IN_LAN),
}


@pytest.mark.parametrize("requested", SERVED.values(), ids=SERVED)
def test_service_that_had_an_address_requests_none(requested: Service) -> None:
    made = plan(requested, pool_rights=RIGHTS)
    assert not made.reads_pool
    assert not any("seed" in str(short_write(write)) for write in (made.write, made.following_write))


def warning(requested: Service, **more: Any) -> str:
    (text,) = messages(plan(requested, **more))
    return text


def test_message_about_an_address_in_use_names_only_load_balancers_of_the_namespace() -> None:
    text = warning(PREPARED, **facts(allocated={WANTED: "vms/other"}))
    assert text.startswith(
        f"spec.loadBalancerIP requests address {WANTED} of IP pool 'lan', which is in use: load balancer other in "
        "Harvester has it. The Service gets the address when it is free"
    )
    text = warning(PREPARED, **facts(allocated={WANTED: "secret/other"}))
    assert "a load balancer of another namespace in Harvester has it" in text
    assert "secret" not in text


def test_address_that_the_pool_has_lost_is_in_use() -> None:
    holder = load_balancer("other", uid="other", ip=WANTED, pool="lan")
    assert "load balancer other in Harvester has it" in warning(PREPARED, other_load_balancers=(holder,), **facts())


POOLS: dict[str, tuple[dict[str, Any], RequestStep]] = {
    "nobody has it": ({}, RequestStep.SEED),
    "another load balancer has it": ({"allocated": {WANTED: "vms/other"}}, RequestStep.WAIT),
    "another load balancer had it": ({"allocatedHistory": {WANTED: "vms/other"}}, RequestStep.SEED),
    "requested": ({"allocatedHistory": {WANTED: OWNER}}, RequestStep.CREATE),
    "it had another one": ({"allocatedHistory": {"10.0.0.30": OWNER}}, RequestStep.CREATE),
    "it has another one": ({"allocated": {"10.0.0.30": OWNER}}, RequestStep.CREATE),
    "it has it": ({"allocated": {WANTED: OWNER}}, RequestStep.CREATE),
    "not ready": ({"conditions": [{"type": "Ready", "status": "False"}]}, RequestStep.WAIT),
    "ready": ({"conditions": [{"type": "Ready", "status": "True"}]}, RequestStep.SEED),
}


@pytest.mark.parametrize(("status", "expected"), POOLS.values(), ids=POOLS)
def test_state_of_the_pool_decides(status: dict[str, Any], expected: RequestStep) -> None:
    assert answer_to_request(snapshot_of(PREPARED, **facts(**status))).step is expected


def test_message_about_an_address_that_the_pool_never_has() -> None:
    requested = service(ours=True, spec={"loadBalancerIP": "10.0.0.200"}, annotations={**IN_LAN, **SUPPRESSED})
    text = warning(requested, pool_rights=RIGHTS, pool=ObservedPool("lan", pool(LAN)))
    assert text.startswith(
        "spec.loadBalancerIP is '10.0.0.200'; expected an address of IP pool 'lan' (10.0.0.10-10.0.0.99), and not the "
        "gateway, the network or the broadcast address. Change it, or name another pool in annotation"
    )


def test_refused_request_is_explained_and_another_address_allocated() -> None:
    snapshot = snapshot_of(PREPARED, **facts())
    snapshot.remembered.refused_seed = RefusedSeed("lan", WANTED, 'ippools "lan" is forbidden')
    made = plan_service(snapshot)
    assert short_write(made.write) == CREATION
    (text,) = messages(made)
    assert 'Harvester: ippools "lan" is forbidden' in text
    assert "generate_addon.sh --address-pools" in text
    snapshot.remembered.refused_seed = RefusedSeed("lan", "10.0.0.21", "no")
    assert short_write(plan_service(snapshot).write) == SEED


@pytest.mark.parametrize("annotations", [{IPAM: "dhcp"}, {}], ids=["DHCP", "no pool"])
def test_request_that_cannot_be_made_is_explained_with_the_address(annotations: dict[str, str]) -> None:
    requested = service(ours=True, spec=FIELD, annotations={**SUPPRESSED, **annotations})
    assert messages(plan(requested, pool_rights=RIGHTS)) == []
    made = plan(requested, marked(ip=ADDRESS, pool="lan"), pool_rights=RIGHTS)
    assert Reason.ADDRESS_NOT_AS_REQUESTED in {event.reason for event in made.events}


def test_condition_stays_while_the_pool_is_read_again() -> None:
    waiting = plan(PREPARED, **facts(allocated={WANTED: "vms/other"}))
    assert waiting.condition is not None
    status = ServiceStatus(conditions=(waiting.condition,))
    again = plan_service(snapshot_of(replace(PREPARED, status=status), pool_rights=RIGHTS))
    assert again.reads_pool
    assert (again.write, again.condition) == (None, waiting.condition)


def test_service_with_a_load_balancer_requests_nothing() -> None:
    assert not plan(NEW, marked(), **facts()).reads_pool


def test_one_load_balancer_is_created_after_the_other() -> None:
    for world in ({"pool_rights": RIGHTS}, facts(), facts(allocatedHistory={WANTED: OWNER})):
        assert plan(PREPARED, **world).is_next_creation
    assert not plan(NEW, pool_rights=RIGHTS).is_next_creation
    assert not plan(PREPARED, **facts(allocated={WANTED: "vms/other"})).is_next_creation
