"""Which addresses count as virtual IPs, which are no addresses of a Node."""

from typing import Any

import pytest

from harvester_ccm.names import DHCP_ADDRESS, KUBE_VIP_ADDRESSES, KUBE_VIP_HOST
from harvester_ccm.plan.service.virtual_ips import virtual_ips_of_load_balancer, virtual_ips_of_service
from tests.worlds.builders import load_balancer, service

MANY = ",".join(f"10.0.0.{n}, fd00::{n}" for n in range(1, 200))
SERVICES: dict[str, tuple[dict[str, Any], tuple[str, ...], set[str]]] = {
    "annotation that a tenant can have written": ({KUBE_VIP_ADDRESSES: "10.0.0.9"}, (), set()),
    "two addresses": ({KUBE_VIP_ADDRESSES: "10.0.0.9, fd00::9"}, ("10.0.0.9",), {"10.0.0.9"}),
    "more than one Service can have": ({KUBE_VIP_ADDRESSES: MANY}, (), set()),
    "DHCP": ({KUBE_VIP_ADDRESSES: DHCP_ADDRESS}, ("10.0.0.8",), {"10.0.0.8"}),
    "announced without a request": ({KUBE_VIP_HOST: "w1"}, ("10.0.0.8",), {"10.0.0.8"}),
    "addresses of nodes": ({}, ("10.0.0.1", "10.0.0.2"), set()),
    "suppressed": ({KUBE_VIP_ADDRESSES: ""}, (), set()),
    "invalid": ({KUBE_VIP_ADDRESSES: "soon"}, (), set()),
}


@pytest.mark.parametrize(("annotations", "addresses", "expected"), SERVICES.values(), ids=SERVICES.keys())
def test_virtual_ips_of_a_service(annotations: dict[str, str], addresses: tuple[str, ...], expected: set[str]) -> None:
    status = {"ingress": [{"ip": address} for address in addresses]}
    assert virtual_ips_of_service(service(ours=True, annotations=annotations, status=status)) == expected


def test_annotation_counts_if_this_controller_has_written_the_condition() -> None:
    announced = service(ours=True, annotations={KUBE_VIP_ADDRESSES: "10.0.0.9"}, address="10.0.0.8")
    assert virtual_ips_of_service(announced) == {"10.0.0.8", "10.0.0.9"}


@pytest.mark.parametrize(("kind", "ours"), [("ClusterIP", False), ("ClusterIP", True), ("LoadBalancer", False)])
def test_tenant_cannot_declare_a_virtual_ip(kind: str, *, ours: bool) -> None:
    claimed = service(kind=kind, ours=ours, annotations={KUBE_VIP_ADDRESSES: "10.0.0.9"}, address="10.0.0.9")
    assert virtual_ips_of_service(claimed) == set()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({}, set()), ({"ip": "10.0.0.9"}, {"10.0.0.9"}), ({"ip": DHCP_ADDRESS, "address": "10.0.0.7"}, {"10.0.0.7"})],
)
def test_virtual_ips_of_a_load_balancer(fields: dict[str, Any], expected: set[str]) -> None:
    assert virtual_ips_of_load_balancer(load_balancer(**fields)) == expected
