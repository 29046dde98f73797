"""A Service with an address from DHCP: kube-vip alone gets the lease, we pass it on."""

from __future__ import annotations

from typing import Any

import pytest

from harvester_ccm.kube_vip_names import (
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    KUBE_VIP_LEASE,
)
from harvester_ccm.model.outcome import Done, Wait
from harvester_ccm.names import IPAM, REQUESTED_ADDRESS, Reason
from tests.unit.plan.service.plans import OURS, outline, plan, said
from tests.worlds.builders import LB_NAME, marked, service

LEASE = "10.115.3.9"
HELD = {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}
ASKING = {KUBE_VIP_ADDRESSES: "0.0.0.0", IPAM: "dhcp"}
NOTED = {KUBE_VIP_HOST: "node-a", KUBE_VIP_LEASE: LEASE}
"""What kube-vip notes of a lease that it has."""
SHOWN_AGAIN = [{"service": {"ingress": [f"{LEASE} VIP 80/TCP"]}}, {"write": LB_NAME, "address": LEASE}]
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
    "kube-vip has another lease than Harvester": (
        service(annotations={**ASKING, **NOTED}, ours=True),
        balancer(address="10.115.3.77"),
        0.0,
        [*SHOWN_AGAIN, "Warning AddressChanged"],
        Done(),
    ),
    "the load balancer was created again and the status emptied": (
        service(annotations={**ASKING, **NOTED}, ours=True),
        balancer(),
        0.0,
        [*SHOWN_AGAIN, "Normal EnsuredLoadBalancer"],
        Done(),
    ),
    "the user wrote the annotation before kube-vip had a lease": (
        service(annotations={**ASKING, KUBE_VIP_LEASE: LEASE}, ours=True),
        balancer(),
        0.0,
        [],
        Wait("dhcp", 30.0),
    ),
    "the annotation has no address": (
        service(annotations={**ASKING, **NOTED, KUBE_VIP_LEASE: "lan"}, ours=True),
        balancer(),
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
        [{"service": {"annotations": {KUBE_VIP_ADDRESSES: "0.0.0.0"}}, "touch": True}],
        Wait("endpoints", 1.0),
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
