"""VM load balancers: what is written to Harvester and to the Service, and how it follows Services and nodes."""

from collections.abc import AsyncIterator

import pytest

from devenv.guestnodes import GuestNodes
from devenv.restclient import Json
from devenv.stage import Stage, until
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import (
    ANNOUNCED_AS,
    HEALTH_CHECK_PORT,
    LB_SERVICE_NAME,
    VM_NAME,
    Reason,
)
from tests.e2e.observing import ingress_of

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("ccm")]

HTTP = {"name": "http", "port": 8080, "protocol": "TCP", "nodePort": 31080}
DNS = {"name": "dns", "port": 5353, "protocol": "UDP", "nodePort": 31053}
DEFAULT_CHECK = {"successThreshold": 1, "failureThreshold": 3, "periodSeconds": 5, "timeoutSeconds": 3}
OURS = "cloudprovider.harvesterhci.io"
THEIRS = "loadbalancer.harvesterhci.io"


@pytest.fixture
async def nodes(stage: Stage) -> AsyncIterator[GuestNodes]:
    """Two nodes of the guest; nothing listens on them."""
    async with GuestNodes(stage.guest, stage.host) as nodes:
        await nodes.add(1, 2)
        yield nodes


async def balancer_of(stage: Stage, name: str) -> LoadBalancer:
    """Return the load balancer of a Service once it has an address and Harvester's finalizer."""

    async def found() -> LoadBalancer | None:
        balancers = [one for one in await stage.load_balancers() if one.metadata.label(LB_SERVICE_NAME) == name]
        complete = len(balancers) == 1 and balancers[0].address and balancers[0].metadata.finalizers
        return balancers[0] if complete else None

    return await until(found, within=60, what=f"load balancer of {name} with an address")


@pytest.mark.usefixtures("nodes")
async def test_fields_of_the_load_balancer_and_the_service(stage: Stage) -> None:
    annotations = {HEALTH_CHECK_PORT: "http"}
    await stage.create_service("web", ports=[HTTP, DNS], annotations=annotations)
    document: Json = (await balancer_of(stage, "web")).document()
    (served,) = await stage.served("web")

    metadata = document["metadata"]
    assert metadata["labels"] == {
        f"{OURS}/cluster": "demo",
        f"{OURS}/serviceNamespace": "default",
        f"{OURS}/serviceName": "web",
    }
    assert metadata["annotations"] == {
        f"{OURS}/lb-network": "",
        f"{OURS}/cluster-uid": await stage.cluster_uid(),
        f"{OURS}/service-uid": served.metadata.uid,
        f"{OURS}/update-after-create": "true",
        f"{THEIRS}/cluster": "demo",
        f"{THEIRS}/network": "",
        f"{THEIRS}/project": "",
        f"{THEIRS}/namespace": "default",
    }
    assert document["spec"] == {
        "description": "default/web of cluster demo",
        "workloadType": "vm",
        "ipam": "pool",
        "listeners": [
            {"name": "http", "port": 8080, "protocol": "TCP", "backendPort": 31080},
            {"name": "dns", "port": 5353, "protocol": "UDP", "backendPort": 31053},
        ],
        "backendServerSelector": {VM_NAME: ["node-1", "node-2"]},
        "healthCheck": {"port": 31080, **DEFAULT_CHECK},
    }
    assert document["status"]["allocatedAddress"]["ipPool"] == "lan"
    service = await stage.service_document("web")
    ports = [{"port": 8080, "protocol": "TCP"}, {"port": 5353, "protocol": "UDP"}]
    assert ingress_of(service) == [{"ip": "127.77.0.2", "ports": ports}]
    (condition,) = service["status"]["conditions"]
    assert (condition["type"], condition["status"]) == (f"{OURS}/LoadBalancerReady", "True")
    assert service["metadata"]["finalizers"] == ["service.kubernetes.io/load-balancer-cleanup"]
    written = {**annotations, "kube-vip.io/ignore": "true", "kube-vip.io/loadbalancerIPs": ""}
    recorded = service["metadata"]["annotations"].pop(ANNOUNCED_AS)
    assert service["metadata"]["annotations"] == written
    assert '"step":"delegated","address":"127.77.0.2"' in recorded
    ensured = await stage.hears("web", Reason.ENSURED)
    # Harvester may name the backends a moment later.
    assert ensured.message.partition(", backends ")[0] == "Ensured load balancer, address 127.77.0.2"
    assert [told.reason for told in await stage.told("web")] == [Reason.ENSURING, Reason.ENSURED]
