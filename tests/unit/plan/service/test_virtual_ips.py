"""Which addresses count as virtual IPs, which are no addresses of a Node."""

from typing import Any, Final

import pytest

from harvester_ccm.commands.clusters import ClusterStore
from harvester_ccm.kube.errors import KubeError, Unreachable
from harvester_ccm.names import DHCP_ADDRESS, KUBE_VIP_ADDRESSES, KUBE_VIP_HOST
from harvester_ccm.plan.service.announcing.record import Step
from harvester_ccm.plan.service.ownership.virtual_ips import virtual_ips_of_load_balancer, virtual_ips_of_service
from tests.support.builders import ADDRESS, CLUSTER, listed_store, load_balancer, served, service
from tests.unit.plan.service.snapshots import record_of

MANY = ",".join(f"10.0.0.{n}, fd00::{n}" for n in range(1, 200))
SERVICES: dict[str, tuple[dict[str, Any], tuple[str, ...], set[str]]] = {
    "annotation that a tenant can have written": ({KUBE_VIP_ADDRESSES: "10.0.0.9"}, (), set()),
    "two addresses": ({KUBE_VIP_ADDRESSES: "10.0.0.9, fd00::9"}, ("10.0.0.9",), {"10.0.0.9"}),
    "more than one Service can have": ({KUBE_VIP_ADDRESSES: MANY}, (), set()),
    "DHCP, on a device of its own": ({KUBE_VIP_ADDRESSES: DHCP_ADDRESS}, ("10.0.0.8", DHCP_ADDRESS), set()),
    "the annotation was removed": ({KUBE_VIP_HOST: "w1"}, ("10.0.0.8",), set()),
    "addresses of nodes": ({}, ("10.0.0.1", "10.0.0.2"), set()),
    "suppressed": ({KUBE_VIP_ADDRESSES: ""}, (), set()),
    "invalid": ({KUBE_VIP_ADDRESSES: "soon"}, (), set()),
}


@pytest.mark.parametrize(("annotations", "addresses", "expected"), SERVICES.values(), ids=SERVICES.keys())
def test_virtual_ips_of_a_service(annotations: dict[str, str], addresses: tuple[str, ...], expected: set[str]) -> None:
    status = {"ingress": [{"ip": address} for address in addresses]}
    assert virtual_ips_of_service(service(ours=True, annotations=annotations, status=status)) == expected


def test_address_that_annotation_and_status_have_counts() -> None:
    announced = service(ours=True, annotations={KUBE_VIP_ADDRESSES: "10.0.0.9"}, address="10.0.0.9")
    assert virtual_ips_of_service(announced) == {"10.0.0.9"}


RECORD: Final = record_of(Step.SHOWN, "10.0.0.9")
OF_ANOTHER_PROGRAM: dict[str, tuple[dict[str, Any], set[str]]] = {
    "kube-vip announces another address, which its load balancer has": (
        {"annotations": {KUBE_VIP_ADDRESSES: "10.0.0.9", **RECORD}},
        set(),
    ),
    "kube-vip announces another address of the specification": (
        {"annotations": {KUBE_VIP_HOST: "w1"}, "spec": {"loadBalancerIP": "10.0.0.9"}},
        set(),
    ),
    "kube-vip has announced one, which is withdrawn": (
        {"annotations": {KUBE_VIP_ADDRESSES: "", KUBE_VIP_HOST: "w1"}},
        set(),
    ),
}


@pytest.mark.parametrize(("fields", "expected"), OF_ANOTHER_PROGRAM.values(), ids=OF_ANOTHER_PROGRAM.keys())
def test_address_that_another_program_wrote_to_the_status_does_not_count(
    fields: dict[str, Any], expected: set[str]
) -> None:
    shown = service(ours=True, address="10.0.0.1", **fields)
    assert virtual_ips_of_service(shown) == expected


@pytest.mark.parametrize(("kind", "ours"), [("ClusterIP", False), ("ClusterIP", True), ("LoadBalancer", False)])
def test_tenant_cannot_declare_a_virtual_ip(kind: str, *, ours: bool) -> None:
    claim = {KUBE_VIP_ADDRESSES: "10.0.0.9", **RECORD}
    claimed = service(kind=kind, ours=ours, annotations=claim, address="10.0.0.9")
    assert virtual_ips_of_service(claimed) == set()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, set()),
        ({"ip": "10.0.0.9"}, {"10.0.0.9"}),
        ({"ip": DHCP_ADDRESS, "address": "10.0.0.7"}, set()),
        ({"address": "10.0.0.7"}, {"10.0.0.7"}),
    ],
)
def test_virtual_ips_of_a_load_balancer(fields: dict[str, Any], expected: set[str]) -> None:
    assert virtual_ips_of_load_balancer(load_balancer(**fields)) == expected


def test_owner_of_an_address() -> None:
    metallb = {"metallb.io/address-pool": "x", KUBE_VIP_ADDRESSES: "10.0.0.6"}
    left = service("left", uid="3", kind="LoadBalancer", address="10.0.0.6", annotations=metallb, ours=True)
    other_class = service(
        "other",
        uid="4",
        address="10.0.0.5",
        ours=True,
        annotations={KUBE_VIP_ADDRESSES: "10.0.0.5"},
        spec={"loadBalancerClass": "example.com/other"},
    )
    store = listed_store([served(), left, other_class], [load_balancer("lb", ip="10.0.0.7")], None)
    owners = {
        address: store.virtual_ips.owner(address) for address in (ADDRESS, "10.0.0.7", "10.0.0.6", "10.0.0.5", "::1")
    }
    assert owners == {
        ADDRESS: "Service shop/web",
        "10.0.0.7": "load balancer vms/lb in Harvester",
        "10.0.0.6": "Service shop/left",
        "10.0.0.5": "",
        "::1": "",
    }


@pytest.mark.parametrize(
    ("lists", "listed"),
    [({}, True), ({"services": Unreachable("no route")}, True), ({"loadbalancers": Unreachable("no route")}, True)],
)
def test_collections_that_cannot_be_listed_are_not_waited_for(lists: dict[str, KubeError], *, listed: bool) -> None:
    assert ClusterStore(CLUSTER, lists).virtual_ips.listed is listed
