"""A Service with an address from DHCP: kube-vip alone gets the lease, we pass it on."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from harvester_ccm.kube_vip_names import (
    ANNOUNCE_AGAIN,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    KUBE_VIP_LEASE,
    USER_IGNORE,
)
from harvester_ccm.model.outcome import Done, Wait
from harvester_ccm.names import IPAM, REQUESTED_ADDRESS, Reason
from harvester_ccm.plan.service.situation import ServiceStates
from harvester_ccm.plan.service.steps import ServicePlan, TouchEndpoints
from tests.unit.plan.service.plans import OURS, outline, plan, said, situation_of
from tests.worlds.builders import LB_NAME, marked, service

LEASE = "10.115.3.9"
HELD = {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}
ASKING = {KUBE_VIP_ADDRESSES: "0.0.0.0", IPAM: "dhcp"}
NOTED = {KUBE_VIP_HOST: "node-a", KUBE_VIP_LEASE: LEASE}
"""What kube-vip notes of a lease that it has."""
WEB = ({"port": 80, "protocol": "TCP", "nodePort": 30080},)


def leasing(address: str | None = None, **more: Any) -> Any:
    return service(annotations=ASKING, ours=True, address=address, **more)


def balancer(**more: Any) -> Any:
    return marked(**{"ip": "0.0.0.0", "spec": {"ipam": "dhcp"}, **more})


STEPS = {
    "created": (
        service(annotations={IPAM: "dhcp"}),
        None,
        0.0,
        [
            {"service": {"annotations": HELD, "finalizers": OURS}},
            {"create": LB_NAME, "workloadType": "cluster", "ipam": "dhcp"},
            "Normal EnsuringLoadBalancer",
        ],
        Wait("not_processed", 30.0),
    ),
    "a pool has no meaning with DHCP": (
        service(annotations={IPAM: "dhcp", "cloudprovider.harvesterhci.io/ip-pool": "lab"}),
        None,
        0.0,
        [
            "Warning SettingsIgnored",
            {"service": {"annotations": HELD, "finalizers": OURS}},
            {"create": LB_NAME, "workloadType": "cluster", "ipam": "dhcp"},
            "Normal EnsuringLoadBalancer",
        ],
        Wait("not_processed", 30.0),
    ),
    "handed to kube-vip": (
        service(annotations={IPAM: "dhcp", **HELD}, ours=True),
        balancer(),
        0.0,
        [{"service": {"annotations": {KUBE_VIP_ADDRESSES: "0.0.0.0", KUBE_VIP_IGNORE: None}}}],
        Wait("dhcp", 30.0),
    ),
    "kube-vip asks": (leasing(), balancer(), 12.0, [], Wait("dhcp", 18.0)),
    "nobody answers": (leasing(), balancer(), 30.0, ["Warning AddressPending"], Wait("dhcp")),
    "leased": (
        leasing(LEASE),
        balancer(),
        0.0,
        [{"write": LB_NAME, "address": LEASE}, "Normal EnsuredLoadBalancer"],
        Done(),
    ),
    "nothing to do": (leasing(LEASE), balancer(address=LEASE), 0.0, [], Done()),
    "another lease": (
        leasing("10.115.3.77"),
        balancer(address=LEASE),
        0.0,
        [{"write": LB_NAME, "address": "10.115.3.77"}, "Warning AddressChanged"],
        Done(),
    ),
    "ports changed, which kube-vip does not follow": (
        service(
            annotations=ASKING,
            ours=True,
            ports=[{"port": 443, "nodePort": 30443}],
            status={"ingress": [{"ip": LEASE, "ipMode": "VIP", "ports": [{"port": 80, "protocol": "TCP"}]}]},
        ),
        balancer(address=LEASE),
        0.0,
        [{"service": {"ingress": [f"{LEASE} VIP 443/TCP"]}}],
        Done(),
    ),
    "load balancer created again while the lease goes on": (
        leasing(LEASE),
        balancer(finalizer=False),
        0.0,
        [{"write": LB_NAME, "address": LEASE}, "Normal EnsuredLoadBalancer"],
        Done(),
    ),
    "the lease was taken out of the status": (
        service(annotations={**ASKING, **NOTED}, ours=True),
        balancer(address=LEASE),
        0.0,
        [{"service": {"ingress": [f"{LEASE} VIP 80/TCP"]}}],
        Done(),
    ),
    "kube-vip has noted another lease than Harvester has": (
        service(annotations={**ASKING, **NOTED}, ours=True),
        balancer(address="10.115.3.77"),
        0.0,
        [],
        Wait("dhcp", 30.0),
    ),
    "nobody has a lease any more": (
        service(annotations={**ASKING, KUBE_VIP_HOST: "node-a"}, ours=True),
        balancer(),
        0.0,
        [],
        Wait("dhcp", 30.0),
    ),
    "withdrawn, and asked for anew": (
        service(annotations={**ASKING, **NOTED, KUBE_VIP_ADDRESSES: ""}, ours=True),
        balancer(address=LEASE),
        0.0,
        [{"service": {"annotations": {KUBE_VIP_ADDRESSES: "0.0.0.0", ANNOUNCE_AGAIN: "due"}}}],
        Wait("endpoints"),
    ),
    "kube-vip's own annotations": (
        service(
            annotations={**ASKING, "kube-vip.io/hwaddr": "00:00:6c:1", "kube-vip.io/requestedIP": LEASE},
            ours=True,
            address=LEASE,
        ),
        balancer(address=LEASE),
        0.0,
        [],
        Done(),
    ),
}


@pytest.mark.parametrize(("asked", "found", "waited", "steps", "outcome"), STEPS.values(), ids=STEPS.keys())
def test_course_of_a_lease(asked: Any, found: Any, waited: float, steps: list[object], outcome: object) -> None:
    assert outline(asked, *([found] if found else []), waited=waited) == (steps, outcome)


UNSHOWN = service(annotations={**ASKING, **NOTED}, ours=True)
ANEW: dict[str, tuple[Any, dict[str, Any], list[object], object]] = {
    "just noted": (UNSHOWN, {"waited": 90.0, "noted_for": 0.1}, ["Warning AddressPending"], Wait("dhcp", 29.9)),
    "due": (
        UNSHOWN,
        {"waited": 30.0, "noted_for": 30.0},
        ["touch endpoints", {"service": {"annotations": {KUBE_VIP_ADDRESSES: ""}}}, "Warning AddressPending"],
        Wait("dhcp"),
    ),
    "touched, and not written yet": (
        UNSHOWN,
        {"waited": 31.0, "noted_for": 31.0, "touched": True},
        [{"service": {"annotations": {KUBE_VIP_ADDRESSES: ""}}}, "Warning AddressPending"],
        Wait("dhcp"),
    ),
    "the touch was refused": (
        UNSHOWN,
        {"waited": 31.0, "noted_for": 31.0, "refused": 30.0},
        ["Warning AddressPending"],
        Wait("dhcp", 29.0),
    ),
    "asked anew": (UNSHOWN, {"waited": 5.0, "noted_for": 40.0}, [], Wait("dhcp", 25.0)),
    "asked anew in vain": (
        UNSHOWN,
        {"waited": 30.0, "noted_for": 70.0},
        ["Warning AddressPending"],
        Wait("dhcp", 5.0),
    ),
    "not more often than once an hour": (
        UNSHOWN,
        {"waited": 3600.0, "noted_for": 90000.0},
        ["touch endpoints", {"service": {"annotations": {KUBE_VIP_ADDRESSES: ""}}}, "Warning AddressPending"],
        Wait("dhcp"),
    ),
    "kube-vip was told to ignore it": (
        service(annotations={**ASKING, **NOTED, KUBE_VIP_IGNORE: "true", USER_IGNORE: "true"}, ours=True),
        {"waited": 30.0, "noted_for": 30.0},
        ["Warning AddressPending"],
        Wait("dhcp"),
    ),
    "an address of a pool was announced before": (
        service(annotations={**ASKING, KUBE_VIP_HOST: "node-a"}, ours=True),
        {"waited": 30.0, "noted_for": 30.0},
        ["Warning AddressPending"],
        Wait("dhcp"),
    ),
}


@pytest.mark.parametrize(("asked", "passed", "steps", "outcome"), ANEW.values(), ids=ANEW.keys())
def test_a_lease_that_nobody_shows_is_got_anew(
    asked: Any, passed: dict[str, Any], steps: list[object], outcome: object
) -> None:
    """Its status was emptied before anybody had recorded it, and kube-vip does not say that it still has it."""
    assert outline(asked, balancer(), **passed) == (steps, outcome)


def test_a_lease_is_not_withdrawn_where_kube_vip_would_not_get_it_again() -> None:
    steps = plan(UNSHOWN, balancer(), waited=40.0, noted_for=40.0).steps
    (touch,) = (one for one in steps if isinstance(one, TouchEndpoints))
    assert steps[0] == touch
    text = said(touch.otherwise, Reason.ADDRESS_PENDING)
    assert "rbac.endpointSlices" in text
    assert "is told to let go" not in text
    assert touch.otherwise == ServicePlan(touch.otherwise.steps, Wait("dhcp", 40.0))
    assert text == said(plan(UNSHOWN, balancer(), waited=41.0, noted_for=41.0, refused=40.0), Reason.ADDRESS_PENDING)


def test_a_lease_counts_as_unshown_since_the_address_was_there_last() -> None:
    states, lost = ServiceStates(), situation_of(UNSHOWN, balancer())
    shown = situation_of(service(annotations={**ASKING, **NOTED}, ours=True, address=LEASE), balancer())
    looks = ((lost, 0.0), (lost, 20.0), (shown, 30.0), (lost, 40.0), (lost, 70.0))
    found = [replace(one, remembered=states.follow(one, now), now=now).noted_for for one, now in looks]
    assert found == [0.0, 20.0, 0.0, 0.0, 30.0]


def test_who_has_a_lease_is_not_told_to_look_after_the_dhcp_server_alone() -> None:
    text = said(plan(UNSHOWN, balancer(), waited=30.0, noted_for=30.0), Reason.ADDRESS_PENDING)
    assert LEASE in text
    assert "node-a" in text


def test_a_wished_address_is_compared_with_the_lease() -> None:
    asked = service(annotations={**ASKING, REQUESTED_ADDRESS: "10.115.3.50"}, ours=True, address=LEASE)
    text = said(plan(asked, balancer(address=LEASE)), Reason.ADDRESS_NOT_AS_REQUESTED)
    assert "10.115.3.50" in text
    assert LEASE in text


CHANGED_MIND = {
    "pool to dhcp": ({IPAM: "dhcp"}, {"ip": "10.0.0.1", "address": "10.0.0.1"}, "is 'dhcp'", "'pool'"),
    "dhcp to pool": (
        {IPAM: "pool"},
        {"ip": "0.0.0.0", "address": LEASE, "spec": {"ipam": "dhcp"}},
        "is 'pool'",
        "'dhcp'",
    ),
    "dhcp annotation removed": ({}, {"ip": "0.0.0.0", "address": LEASE, "spec": {"ipam": "dhcp"}}, "removed", "'dhcp'"),
}


@pytest.mark.parametrize(("annotations", "made_of", "asked", "kept"), CHANGED_MIND.values(), ids=CHANGED_MIND.keys())
def test_ipam_is_fixed(annotations: dict[str, str], made_of: dict[str, Any], asked: str, kept: str) -> None:
    found = marked(**made_of)
    announced = {KUBE_VIP_ADDRESSES: found.allocated_ip}
    one = service(annotations={**annotations, **announced}, ours=True, address=found.address)
    assert outline(one, found) == (["Warning ChangeRefused"], Done())
    text = said(plan(one, found), Reason.IMMUTABLE)
    assert asked in text
    assert kept in text
    assert IPAM in text
