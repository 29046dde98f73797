"""A Service after its creation: every field that is written, and the number of writes."""

import pytest

from devenv.kubevip import Transition
from devenv.restclient import Json
from devenv.stage import Stage
from harvester_ccm.names import IPAM, Reason
from tests.e2e.observing import completed, ingress_of, transitions, writes

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("ccm")]

TWO_PORTS = (
    {"name": "https", "port": 8443, "protocol": "TCP"},
    {"name": "dns", "port": 53, "protocol": "UDP"},
)
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
OURS = "cloudprovider.harvesterhci.io"


async def test_service_gets_its_address_in_two_writes(stage: Stage) -> None:
    await stage.create_service("web", ports=TWO_PORTS)
    await stage.served("web")
    await stage.hears("web", Reason.ENSURED)

    service = await stage.service_document("web")
    ports = [{"port": 8443, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]
    assert ingress_of(service) == [{"ip": "127.77.0.2", "ports": ports}]
    (condition,) = service["status"]["conditions"]
    assert (condition["type"], condition["status"]) == (f"{OURS}/LoadBalancerReady", "True")
    assert service["metadata"]["finalizers"] == [FINALIZER]
    assert service["metadata"]["annotations"]["kube-vip.io/loadbalancerIPs"] == "127.77.0.2"
    await transitions(stage, Transition("announce", "127.77.0.2", "default/web"))
    assert [(told.type, told.reason, told.message) for told in await stage.told("web")] == [
        ("Normal", "EnsuringLoadBalancer", "Ensuring load balancer"),
        ("Normal", "EnsuredLoadBalancer", "Ensured load balancer, address 127.77.0.2"),
    ]
    # Finalizer and suppression of kube-vip, then address and status.
    assert len(writes(stage.guest_proxy, "/services/web")) == 2


async def test_service_with_dhcp_gets_the_address_that_kube_vip_obtains(stage: Stage) -> None:
    await stage.create_service("wiki", ports=TWO_PORTS, annotations={IPAM: "dhcp"})
    balancer = await completed(stage, "wiki")
    await stage.hears("wiki", Reason.ENSURED)

    service = await stage.service_document("wiki")
    ports = [{"port": 8443, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]
    assert ingress_of(service) == [{"ip": "127.78.0.10", "ports": ports}]
    (condition,) = service["status"]["conditions"]
    assert (condition["type"], condition["status"]) == (f"{OURS}/LoadBalancerReady", "True")
    annotations = service["metadata"]["annotations"]
    assert annotations["kube-vip.io/loadbalancerIPs"] == "0.0.0.0"
    assert annotations["kube-vip.io/requestedIP"] == "127.78.0.10"
    document: Json = balancer.document()
    whose = "default/wiki of cluster demo"
    assert document["spec"] == {"workloadType": "cluster", "ipam": "dhcp", "description": whose}
    assert document["status"]["address"] == "127.78.0.10"
    assert document["status"]["allocatedAddress"] == {"ip": "0.0.0.0"}
    assert [told.message for told in await stage.told("wiki")] == [
        "Ensuring load balancer",
        "Ensured load balancer, address 127.78.0.10",
    ]
