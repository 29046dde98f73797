"""Which addresses count as virtual IPs."""

from __future__ import annotations

import pytest

from harvester_ccm.model.core import Ingress, LoadBalancerStatus, Service, ServiceSpec, ServiceStatus
from harvester_ccm.model.harvester import AllocatedAddress, HarvesterLoadBalancerStatus, LoadBalancer
from harvester_ccm.model.meta import ObjectMeta
from harvester_ccm.names import DHCP_ADDRESS, SERVICE_FINALIZER
from harvester_ccm.plan.service.virtual_ips import virtual_ips_of_load_balancer, virtual_ips_of_service

OURS = (SERVICE_FINALIZER,)


def service(
    annotations: dict[str, str], *addresses: str, kind: str = "LoadBalancer", finalizers: tuple[str, ...] = OURS
) -> Service:
    ingress = tuple(Ingress(ip=address) for address in addresses)
    return Service(
        metadata=ObjectMeta(name="web", namespace="shop", annotations=annotations, finalizers=finalizers),
        spec=ServiceSpec(type=kind),
        status=ServiceStatus(load_balancer=LoadBalancerStatus(ingress=ingress)),
    )


@pytest.mark.parametrize(
    ("annotations", "status", "expected"),
    [
        pytest.param({"kube-vip.io/loadbalancerIPs": "10.0.0.9"}, (), {"10.0.0.9"}, id="requested, not announced yet"),
        pytest.param({"kube-vip.io/loadbalancerIPs": "10.0.0.9, fd00::9"}, ("10.0.0.9",), {"10.0.0.9"}, id="two"),
        pytest.param(
            {"kube-vip.io/loadbalancerIPs": ",".join(f"10.0.0.{n}, fd00::{n}" for n in range(1, 200))},
            (),
            set(),
            id="those of all nodes",
        ),
        pytest.param({"kube-vip.io/loadbalancerIPs": DHCP_ADDRESS}, ("10.0.0.8",), {"10.0.0.8"}, id="from DHCP"),
        pytest.param({"kube-vip.io/vipHost": "w1"}, ("10.0.0.8",), {"10.0.0.8"}, id="announced without a request"),
        pytest.param({}, ("10.0.0.1", "10.0.0.2"), set(), id="balancer on the nodes' own addresses"),
        pytest.param({"kube-vip.io/loadbalancerIPs": ""}, (), set(), id="held"),
        pytest.param({"kube-vip.io/loadbalancerIPs": "soon"}, (), set(), id="unreadable"),
    ],
)
def test_of_a_service(annotations: dict[str, str], status: tuple[str, ...], expected: set[str]) -> None:
    assert virtual_ips_of_service(service(annotations, *status)) == expected


@pytest.mark.parametrize(
    "tenants",
    [
        service({"kube-vip.io/loadbalancerIPs": "10.0.0.9"}, kind="ClusterIP", finalizers=()),
        service({"kube-vip.io/loadbalancerIPs": "10.0.0.9"}, kind="ClusterIP"),
        service({"kube-vip.io/loadbalancerIPs": "10.0.0.9"}, "10.0.0.9", finalizers=()),
    ],
)
def test_word_of_a_service_that_we_do_not_serve_does_not_count(tenants: Service) -> None:
    assert virtual_ips_of_service(tenants) == set()


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(HarvesterLoadBalancerStatus(), set(), id="new"),
        pytest.param(
            HarvesterLoadBalancerStatus(allocated_address=AllocatedAddress(ip="10.0.0.9")), {"10.0.0.9"}, id="allocated"
        ),
        pytest.param(
            HarvesterLoadBalancerStatus(address="10.0.0.7", allocated_address=AllocatedAddress(ip=DHCP_ADDRESS)),
            {"10.0.0.7"},
            id="leased from DHCP",
        ),
    ],
)
def test_of_a_load_balancer(status: HarvesterLoadBalancerStatus, expected: set[str]) -> None:
    assert virtual_ips_of_load_balancer(LoadBalancer(status=status)) == expected
