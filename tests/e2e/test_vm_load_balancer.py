"""VM load balancers: what is written to Harvester and to the Service, and how it follows Services and nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from devenv.faults import Record
from devenv.guestnodes import NODES, GuestNodes, name_of
from devenv.restclient import Json
from devenv.stage import Stage, until
from devenv.watch import Document, documents
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import (
    HEALTH_CHECK_FAILURE_THRESHOLD,
    HEALTH_CHECK_PERIOD,
    HEALTH_CHECK_PORT,
    HEALTH_CHECK_SUCCESS_THRESHOLD,
    HEALTH_CHECK_TIMEOUT,
    IPAM,
    LB_SERVICE_NAME,
    VM_NAME,
    WORKLOAD_TYPE,
    Reason,
)
from tests.devenv.emulated import watching
from tests.e2e.observing import caught_up, retouched, writes

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("ccm")]

BALANCERS = "/loadbalancers/"
GUEST_SERVICES = documents("", "v1", "services", kind="Service")
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
    """Return the load balancer of a Service once Harvester announces it and the program has nothing left to do."""

    async def found() -> LoadBalancer | None:
        balancers = [one for one in await stage.load_balancers() if one.metadata.label(LB_SERVICE_NAME) == name]
        complete = len(balancers) == 1 and balancers[0].address and balancers[0].metadata.finalizers
        return balancers[0] if complete else None

    return await until(found, within=60, what=f"load balancer of {name} with an address")


async def spec_of(stage: Stage, name: str) -> Json:
    """Return ``spec`` of a Service's load balancer as it is stored now."""
    document: Json = (await balancer_of(stage, name)).document()
    spec: Json = document["spec"]
    return spec


def updates(stage: Stage) -> list[Record]:
    """Return the program's changes of load balancers that Harvester took; others met one of its own."""
    return [one for one in writes(stage.harvester_proxy, BALANCERS) if one.method == "PUT" and one.status == 200]


@pytest.mark.usefixtures("nodes")
async def test_whole_load_balancer_and_service(stage: Stage) -> None:
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
    ingress = [{"ip": "127.77.0.2", "ipMode": "VIP", "ports": ports}]
    assert service["status"]["loadBalancer"] == {"ingress": ingress}
    (condition,) = service["status"]["conditions"]
    assert (condition["type"], condition["status"]) == (f"{OURS}/LoadBalancerReady", "True")
    assert service["metadata"]["finalizers"] == ["service.kubernetes.io/load-balancer-cleanup"]
    assert service["metadata"]["annotations"] == {
        **annotations, "kube-vip.io/ignore": "true", "kube-vip.io/loadbalancerIPs": "",
    }  # fmt: skip
    ensured = await stage.hears("web", Reason.ENSURED)
    # Harvester may name the backends a moment later.
    assert ensured.message.partition(", backends ")[0] == "Ensured load balancer, address 127.77.0.2"
    assert [told.reason for told in await stage.told("web")] == [Reason.ENSURING, Reason.ENSURED]


@pytest.mark.usefixtures("nodes")
async def test_kube_vip_in_the_guest_never_announces_the_address(stage: Stage) -> None:
    async with watching(stage.guest, "web", "default", resource=GUEST_SERVICES) as journal:
        await stage.create_service("web", ports=[HTTP], annotations={WORKLOAD_TYPE: "vm"})
        await stage.served("web")
        await stage.delete_service("web")
        await stage.gone("web")
        await stage.nothing_left()

    with_address = [one for one in journal.entries if one and ingress_of(one)]
    assert with_address
    assert all(is_ignored(one) for one in with_address)
    assert stage.kube_vip.transitions == []


def ingress_of(service: Document) -> list[Document]:
    """Return the addresses in the status."""
    return (service.get("status") or {}).get("loadBalancer", {}).get("ingress") or []


def is_ignored(service: Document) -> bool:
    """Return whether kube-vip is told to leave the Service alone, in both words that it takes."""
    annotations = service["metadata"].get("annotations") or {}
    return annotations.get("kube-vip.io/ignore") == "true" and annotations.get("kube-vip.io/loadbalancerIPs") == ""


@pytest.mark.usefixtures("nodes")
async def test_checked_port_by_number_and_node_port_and_own_thresholds(stage: Stage) -> None:
    thresholds = {
        HEALTH_CHECK_SUCCESS_THRESHOLD: "2",
        HEALTH_CHECK_FAILURE_THRESHOLD: "4",
        HEALTH_CHECK_PERIOD: "7",
        HEALTH_CHECK_TIMEOUT: "6",
    }
    other = {"name": "admin", "port": 31081, "protocol": "TCP", "nodePort": 31082}
    node_port = {**HTTP, "nodePort": 31083}
    await stage.create_service("number", ports=[DNS, HTTP], annotations={HEALTH_CHECK_PORT: "8080"})
    # The number of a Service port comes first, also where it is a node port of another one.
    await stage.create_service("first", ports=[{**HTTP, "nodePort": 31084}, other], annotations={
        HEALTH_CHECK_PORT: "31081", **thresholds,
    })  # fmt: skip
    await stage.create_service("node-port", ports=[node_port], annotations={HEALTH_CHECK_PORT: "31083"})

    checks = {name: (await spec_of(stage, name))["healthCheck"] for name in ("number", "first", "node-port")}
    assert checks == {
        "number": {"port": 31080, **DEFAULT_CHECK},
        "first": {
            "port": 31082, "successThreshold": 2, "failureThreshold": 4, "periodSeconds": 7, "timeoutSeconds": 6,
        },
        "node-port": {"port": 31083, **DEFAULT_CHECK},
    }  # fmt: skip


@pytest.mark.usefixtures("nodes")
async def test_wrong_health_check_is_told_and_everything_else_works(stage: Stage) -> None:
    await stage.create_service("web", ports=[HTTP, DNS], annotations={
        HEALTH_CHECK_PORT: "dns", HEALTH_CHECK_PERIOD: "0", HEALTH_CHECK_TIMEOUT: "-1s",
    })  # fmt: skip
    await stage.served("web")
    assert "healthCheck" not in await spec_of(stage, "web")
    (told,) = await stage.told("web", Reason.INVALID_ANNOTATION)
    for words in (HEALTH_CHECK_PORT, "'dns'", "8080 (http)", "not checked"):
        assert words in told.message

    await stage.change_service("web", {"metadata": {"annotations": {HEALTH_CHECK_PORT: "http"}}})
    await until_check(stage, "web", {"port": 31080, **DEFAULT_CHECK})
    await retouched(stage, "web")
    messages = [told.message for told in await stage.told("web", Reason.INVALID_ANNOTATION)]
    assert sorted(messages[1:]) == [
        f"Annotation {HEALTH_CHECK_PERIOD} is '0'; expected a whole number from 1 to 86400; 5 is used",
        f"Annotation {HEALTH_CHECK_TIMEOUT} is '-1s'; expected a whole number from 1 to 86400; 3 is used",
    ]


async def until_check(stage: Stage, name: str, check: Json | None) -> None:
    """Return when the load balancer has this health check."""

    async def present() -> bool:
        return (await spec_of(stage, name)).get("healthCheck") == check

    await until(present, within=60, what=f"health check {check}")


@pytest.mark.usefixtures("nodes")
async def test_address_from_the_dhcp_server_of_the_hosts(stage: Stage) -> None:
    await stage.create_service("web", ports=[HTTP], annotations={WORKLOAD_TYPE: "vm", IPAM: "dhcp"})
    (service,) = await stage.served("web")
    document: Json = (await balancer_of(stage, "web")).document()

    assert service.addresses == ("127.79.0.10",)
    assert document["spec"]["ipam"] == "dhcp"
    assert document["status"]["address"] == "127.79.0.10"
    assert document["status"]["allocatedAddress"] == {"ip": "0.0.0.0"}
    assert stage.kube_vip.transitions == []

    await stage.harvester.host_vip.renew(f"default/{document['metadata']['name']}", "127.79.0.77")
    # Harvester does not look at its own Service again until something of the load balancer changes.
    await stage.change_service("web", {"spec": {"ports": [{**HTTP, "port": 8081}]}})
    told = await stage.hears("web", Reason.ADDRESS_CHANGED)
    assert told.message == "The address changed from 127.79.0.10 to 127.79.0.77"
    (service,) = await stage.served("web")
    assert service.addresses == ("127.79.0.77",)


async def follows(stage: Stage, *backends: str) -> None:
    """Return when exactly these VMs get the traffic; the program has written that once."""

    async def selected() -> bool:
        return bool((await spec_of(stage, "web"))["backendServerSelector"] == {VM_NAME: list(backends)})

    await until(selected, within=60, what=f"backends {backends}")
    await caught_up(stage)
    assert len(updates(stage)) == 1
    stage.harvester_proxy.forget()


async def test_backends_follow_the_nodes_in_one_write_each(stage: Stage, nodes: GuestNodes) -> None:
    await nodes.add(3, 4)
    await stage.create_service("web", ports=[HTTP], annotations={WORKLOAD_TYPE: "vm"})
    assert (await spec_of(stage, "web"))["backendServerSelector"] == {VM_NAME: [name_of(n) for n in (1, 2, 3, 4)]}
    await caught_up(stage)
    stage.harvester_proxy.forget()

    excluded = "node.kubernetes.io/exclude-from-external-load-balancers"
    await nodes.change(1, {"metadata": {"labels": {excluded: ""}}})
    await follows(stage, "node-2", "node-3", "node-4")
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule", "value": "1"}
    await nodes.change(2, {"spec": {"taints": [taint]}})
    await follows(stage, "node-3", "node-4")
    await nodes.remove(3)
    await follows(stage, "node-4")
    assert await stage.told("web", Reason.BACKENDS_UNHEALTHY) == []

    # An empty list would leave the old backends in place.
    await nodes.remove(4)
    await follows(stage, "no-node-of-this-cluster")
    told = await stage.hears("web", Reason.BACKENDS_UNHEALTHY)
    assert told.message.startswith("None of the 2 Nodes of this cluster gets traffic: 2 are excluded")

    await nodes.change(1, {"metadata": {"labels": {excluded: None}}})
    await follows(stage, "node-1")
    await stage.hears("web", Reason.BACKENDS_HEALTHY)
    (service,) = await stage.served("web")
    assert service.addresses == ("127.77.0.2",)


async def test_changes_of_nodes_that_do_not_matter_write_nothing(stage: Stage, nodes: GuestNodes) -> None:
    await stage.create_service("web", ports=[HTTP], annotations={WORKLOAD_TYPE: "vm"})
    before = await balancer_of(stage, "web")
    await caught_up(stage)
    stage.harvester_proxy.forget()

    await nodes.change(1, {"metadata": {"labels": {"example.com/rack": "4"}}, "spec": {"unschedulable": True}})
    ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    await stage.guest.merge_patch(NODES, "node-2", {"status": {"conditions": [ready]}}, subresource="status")
    await caught_up(stage)

    assert writes(stage.harvester_proxy) == []
    assert (await balancer_of(stage, "web")).metadata.resource_version == before.metadata.resource_version


@pytest.mark.usefixtures("nodes")
async def test_changed_ports_move_listeners_and_check_in_one_write(stage: Stage) -> None:
    await stage.create_service("web", ports=[HTTP], annotations={HEALTH_CHECK_PORT: "http"})
    await balancer_of(stage, "web")
    await caught_up(stage)
    stage.harvester_proxy.forget()

    https = {"name": "https", "port": 8443, "protocol": "TCP", "nodePort": 31443}
    await stage.change_service(
        "web", {"metadata": {"annotations": {HEALTH_CHECK_PORT: "https"}}, "spec": {"ports": [https, DNS]}}
    )
    await until_check(stage, "web", {"port": 31443, **DEFAULT_CHECK})

    assert (await spec_of(stage, "web"))["listeners"] == [
        {"name": "https", "port": 8443, "protocol": "TCP", "backendPort": 31443},
        {"name": "dns", "port": 5353, "protocol": "UDP", "backendPort": 31053},
    ]
    await caught_up(stage)
    assert len(updates(stage)) == 1
    (service,) = await stage.served("web")
    assert ports_in_status(service) == [8443, 5353]

    await stage.change_service("web", {"metadata": {"annotations": {HEALTH_CHECK_PORT: None}}})
    await until_check(stage, "web", None)
    (service,) = await stage.served("web")
    assert service.addresses == ("127.77.0.2",)


def ports_in_status(service: Service) -> list[int]:
    """Return the ports that the status shows."""
    return [port.port for ingress in service.status.load_balancer.ingress for port in ingress.ports]


@pytest.mark.usefixtures("nodes")
async def test_service_without_node_ports_is_refused_until_it_has_some(stage: Stage) -> None:
    await stage.create_service(
        "web",
        ports=[{"name": "http", "port": 8080}],
        annotations={WORKLOAD_TYPE: "vm"},
        spec={"allocateLoadBalancerNodePorts": False},
    )
    told = await stage.hears("web", Reason.SYNC_FAILED)
    await retouched(stage, "web")
    assert "allocateLoadBalancerNodePorts" in told.message
    assert await stage.told("web") == [told]
    assert await stage.load_balancers() == ()

    await stage.change_service("web", {"spec": {"allocateLoadBalancerNodePorts": True}})
    await stage.served("web")
    (listener,) = (await spec_of(stage, "web"))["listeners"]
    assert listener["backendPort"] >= 30000


async def test_settings_without_effect_are_told_together(stage: Stage) -> None:
    await stage.create_service(
        "web",
        ports=[HTTP],
        annotations={WORKLOAD_TYPE: "vm"},
        spec={"loadBalancerSourceRanges": ["10.0.0.0/8"], "sessionAffinity": "ClientIP"},
    )
    told = await stage.hears("web", Reason.IGNORED)
    await stage.served("web")
    await retouched(stage, "web")
    assert "spec.loadBalancerSourceRanges" in told.message
    assert "spec.sessionAffinity" in told.message
    assert await stage.told("web", Reason.IGNORED) == [told]
