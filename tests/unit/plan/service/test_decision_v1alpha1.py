"""Services on Harvester before 1.2: what is written, read, told, and what an upgrade makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES, KUBE_VIP_IGNORE
from harvester_ccm.model.core import NODES
from harvester_ccm.model.harvester import BEFORE_1_2, LOAD_BALANCERS_V1ALPHA1, HealthCheck, Listener, LoadBalancer
from harvester_ccm.model.outcome import Done, Refused, Wait
from harvester_ccm.names import (
    EXCLUDE_NODE_LABEL,
    HEALTH_CHECK_PERIOD,
    HEALTH_CHECK_PORT,
    IP_POOL,
    IPAM,
    LB_CLUSTER,
    LB_SERVICE_UID,
    NETWORK,
    POOL_NAMESPACE,
    PROJECT,
    REQUESTED_ADDRESS,
    WORKLOAD_TYPE,
    Reason,
)
from harvester_ccm.plan.service.backends import backend_addresses
from harvester_ccm.plan.service.cleanup import before_deletion
from harvester_ccm.plan.service.load_balancer import LoadBalancerChange, changed_document
from harvester_ccm.plan.service.orphans import Orphan, orphan_state
from harvester_ccm.plan.service.ownership import Owner, owner_of
from harvester_ccm.plan.service.steps import CreateLoadBalancer, Step
from tests.unit.plan.service.plans import OURS, outline, plan, said
from tests.worlds.builders import ADDRESS, CLUSTER, LB_NAME, UID, marked, service

Document = dict[str, Any]
OLD = {"capabilities": BEFORE_1_2, "backend_addresses": ("10.1.0.1", "10.1.0.2")}
UUID = "cloudprovider.harvesterhci.io/service-uuid"
PREFIX = "cloudprovider.harvesterhci.io/"
HANDS_OFF = {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}
FIRST = {"service": {"annotations": HANDS_OFF, "finalizers": OURS}}
HTTP: Document = {"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}
LISTEN_HTTP = {"name": "http", "port": 80, "protocol": "TCP", "backendPort": 30080}
CHECK: Document = {
    "port": 30080,
    "successThreshold": 1,
    "failureThreshold": 3,
    "PeriodSeconds": 5,
    "timeoutSeconds": 3,
}
SPEC: Document = {"ipam": "pool", "listeners": [LISTEN_HTTP], "backendServers": ["10.1.0.1", "10.1.0.2"]}


def asking(annotations: Mapping[str, str] | None = None, **more: Any) -> Any:
    """Return a Service with one named port."""
    return service(annotations=dict(annotations or {}), **{"ports": [HTTP], **more})


def hosted(annotations: Mapping[str, str] | None = None, **more: Any) -> Any:
    """Return the same, served: nothing of it has to change."""
    return asking({**HANDS_OFF, **(annotations or {})}, ours=True, address=ADDRESS, **more)


def old(spec: Document | None = None, *, address: str = ADDRESS, message: str = "", **more: Any) -> LoadBalancer:
    """Return the load balancer of Service ``hosted()`` as such a Harvester keeps it."""
    document: Document = marked(**more).document()
    document["apiVersion"] = LOAD_BALANCERS_V1ALPHA1.api_version
    document["spec"] = SPEC if spec is None else spec
    ready = {"type": "Ready", "status": "False" if message else "True", **({"message": message} if message else {})}
    document["status"] = {"conditions": [ready], **({"address": address} if address else {})}
    return LOAD_BALANCERS_V1ALPHA1.decode(msgspec.json.encode(document))


def body_of(step: Step) -> Document:
    """Return what a step creates."""
    assert isinstance(step, CreateLoadBalancer)
    return step.body


def test_whole_object() -> None:
    asked = asking({HEALTH_CHECK_PORT: "http", f"{PREFIX}description": "shop"})
    (_, create, _) = plan(asked, **OLD).steps
    assert body_of(create) == {
        "apiVersion": "loadbalancer.harvesterhci.io/v1alpha1",
        "kind": "LoadBalancer",
        "metadata": {
            "name": LB_NAME,
            "namespace": "vms",
            "labels": {f"{PREFIX}cluster": "demo", f"{PREFIX}serviceNamespace": "shop", f"{PREFIX}serviceName": "web"},
            "annotations": {
                UUID: UID,
                f"{PREFIX}service-uid": UID,
                f"{PREFIX}cluster-uid": "cluster-uid",
                f"{PREFIX}lb-network": "",
                "loadbalancer.harvesterhci.io/cluster": "demo",
                "loadbalancer.harvesterhci.io/network": "",
                "loadbalancer.harvesterhci.io/project": "",
                "loadbalancer.harvesterhci.io/namespace": "",
            },
        },
        "spec": {**SPEC, "description": "shop", "healthCheck": CHECK},
        "status": {},
    }


CREATE: Document = {"create": LB_NAME, **SPEC}
WHOLE: Document = {"listeners": [LISTEN_HTTP], "backendServers": ["10.1.0.1", "10.1.0.2"]}


@pytest.mark.parametrize(
    ("asked", "situation", "steps", "outcome"),
    [
        pytest.param(
            asking(), {}, [FIRST, CREATE, "Normal EnsuringLoadBalancer"], Wait("not_processed", 30.0), id="plain"
        ),
        pytest.param(
            asking({IPAM: "dhcp"}),
            {},
            [FIRST, {**CREATE, "ipam": "dhcp"}, "Normal EnsuringLoadBalancer"],
            Wait("not_processed", 30.0),
            id="dhcp",
        ),
        pytest.param(
            asking(ports=[{"port": 53, "protocol": "UDP", "nodePort": 30053}]),
            {},
            [
                FIRST,
                {
                    **CREATE,
                    "listeners": [{"name": "udp-53", "port": 53, "protocol": "UDP", "backendPort": 30053}],
                },
                "Normal EnsuringLoadBalancer",
            ],
            Wait("not_processed", 30.0),
            id="a port without a name gets one",
        ),
        pytest.param(
            asking({WORKLOAD_TYPE: "cluster", IP_POOL: "lab"}),
            {},
            ["Warning SettingsIgnored", FIRST, CREATE, "Normal EnsuringLoadBalancer"],
            Wait("not_processed", 30.0),
            id="wishes that cannot be",
        ),
        pytest.param(
            asking(),
            {"backends_known": False, "backends": ()},
            [FIRST, CREATE, "Normal EnsuringLoadBalancer"],
            Wait("not_processed", 30.0),
            id="VMs are not needed",
        ),
        pytest.param(
            asking(),
            {"backend_addresses": ()},
            [FIRST, {**CREATE, "backendServers": []}, "Normal EnsuringLoadBalancer"],
            Wait("not_processed", 30.0),
            id="no node has an address yet",
        ),
        pytest.param(
            asking({IPAM: "nonsense"}),
            {},
            ["Warning InvalidAnnotation", {"service": {"annotations": HANDS_OFF}}],
            Refused("not_servable"),
            id="wrong ipam",
        ),
    ],
)
def test_creation(asked: Any, situation: Document, steps: list[object], outcome: object) -> None:
    assert outline(asked, **{**OLD, **situation}) == (steps, outcome)


@pytest.mark.parametrize(
    ("asked", "found", "situation", "steps"),
    [
        pytest.param(hosted(), old(), {}, [], id="nothing to do"),
        pytest.param(hosted({WORKLOAD_TYPE: "vm"}), old(), {}, [], id="asked for as what it is"),
        pytest.param(hosted({WORKLOAD_TYPE: "cluster"}), old(), {}, ["Warning SettingsIgnored"], id="never switched"),
        pytest.param(
            hosted(),
            old(),
            {"backend_addresses": ("10.1.0.2",)},
            [{"write": LB_NAME, "spec": {"backendServers": ["10.1.0.2"]}}],
            id="a node left",
        ),
        pytest.param(
            hosted(),
            old(),
            {"backend_addresses": ()},
            ["Warning BackendsUnhealthy", {"write": LB_NAME, "spec": {"backendServers": []}}],
            id="all nodes left",
        ),
        pytest.param(
            hosted({HEALTH_CHECK_PORT: "80"}),
            old(),
            {},
            [{"write": LB_NAME, "spec": {"healthCheck": CHECK}}],
            id="a check added",
        ),
        pytest.param(
            hosted({HEALTH_CHECK_PORT: "80", HEALTH_CHECK_PERIOD: "9"}),
            old({**SPEC, "healthCheck": CHECK}),
            {},
            [{"write": LB_NAME, "spec": {"healthCheck": {**CHECK, "PeriodSeconds": 9}}}],
            id="another period",
        ),
        pytest.param(hosted({HEALTH_CHECK_PORT: "80"}), old({**SPEC, "healthCheck": CHECK}), {}, [], id="same check"),
        pytest.param(
            hosted(),
            old({**SPEC, "healthCheck": CHECK}),
            {},
            [{"write": LB_NAME, "spec": {"healthCheck": None}}],
            id="a check removed",
        ),
        pytest.param(
            hosted(),
            old({**SPEC, "listeners": [{**LISTEN_HTTP, "name": ""}], "description": "kept"}),
            {},
            [{"write": LB_NAME, "spec": {"listeners": [LISTEN_HTTP]}}],
            id="a listener without name, of an earlier provider",
        ),
        pytest.param(
            hosted({IP_POOL: "lab", NETWORK: "infra/vlan9"}),
            old(),
            {},
            ["Warning SettingsIgnored"],
            id="pool and network are not written",
        ),
        pytest.param(
            asking(HANDS_OFF, ours=True),
            old(),
            {},
            [{"service": {"ingress": [f"{ADDRESS} VIP 80/TCP"]}}, "Normal EnsuredLoadBalancer"],
            id="an address came",
        ),
    ],
)
def test_one_that_exists(asked: Any, found: LoadBalancer, situation: Document, steps: list[object]) -> None:
    made, outcome = outline(asked, found, **{**OLD, **situation})
    assert (made, outcome) == (steps, Done())


def test_what_is_not_known_of_it_survives_a_change() -> None:
    found = old({**SPEC, "description": "kept", "extra": 1})
    changed = changed_document(found, LoadBalancerChange(spec={"backendServers": []}))
    assert changed == {**found.document(), "spec": {**SPEC, "description": "kept", "extra": 1, "backendServers": []}}


@pytest.mark.parametrize(
    ("found", "waited", "words"),
    [
        pytest.param(old(address=""), 1.0, "", id="just made"),
        pytest.param(old(address=""), 40.0, "vip-pools", id="no address"),
        pytest.param(old(address="", message="boom"), 1.0, "Harvester says: boom", id="an error"),
    ],
)
def test_waiting_for_an_address(found: LoadBalancer, waited: float, words: str) -> None:
    text = said(plan(asking(HANDS_OFF, ours=True), found, waited=waited, **OLD), Reason.ADDRESS_PENDING)
    assert bool(text) == bool(words)
    assert words in text


def test_decoded() -> None:
    found = old({**SPEC, "healthCheck": CHECK})
    assert found.capabilities == BEFORE_1_2
    assert found.spec.workload_type == "vm"
    assert found.spec.listeners == (Listener(name="http", port=80, protocol="TCP", backend_port=30080),)
    assert found.spec.health_check == HealthCheck(
        port=30080, success_threshold=1, failure_threshold=3, period_seconds=5, timeout_seconds=3
    )
    assert found.backends == ("10.1.0.1", "10.1.0.2")
    assert (found.address, found.allocated_ip, found.allocated_pool) == (ADDRESS, "", "")


def test_one_without_a_status_is_decoded() -> None:
    document = {"apiVersion": LOAD_BALANCERS_V1ALPHA1.api_version, "metadata": {"name": "x"}, "spec": {"ipam": "dhcp"}}
    found = LOAD_BALANCERS_V1ALPHA1.decode(msgspec.json.encode(document))
    assert (found.capabilities, found.address, found.spec.health_check) == (BEFORE_1_2, "", None)


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        pytest.param({}, [], id="none"),
        pytest.param({WORKLOAD_TYPE: "vm"}, [], id="what it is"),
        pytest.param({WORKLOAD_TYPE: "cluster"}, [WORKLOAD_TYPE, "once Harvester is upgraded"], id="cluster"),
        pytest.param({IPAM: "dhcp", IP_POOL: "lab"}, [f"annotations {IP_POOL} ("], id="a pool, said once"),
        pytest.param(
            {NETWORK: "infra/vlan9", PROJECT: "c/p", POOL_NAMESPACE: "x"},
            [f"annotations {NETWORK}, {PROJECT}, {POOL_NAMESPACE} (", "vip-pools"],
            id="all by which a pool is chosen",
        ),
        pytest.param({HEALTH_CHECK_PERIOD: "9"}, [HEALTH_CHECK_PORT], id="a period and no port to check"),
    ],
)
def test_wishes_that_cannot_be(annotations: dict[str, str], words: list[str]) -> None:
    text = said(plan(hosted(annotations), old(), **OLD), Reason.IGNORED)
    assert bool(text) == bool(words)
    assert text.count(IP_POOL) <= 1
    for word in words:
        assert word in text


def test_an_address_that_was_asked_for_cannot_be_pinned() -> None:
    text = said(plan(hosted({REQUESTED_ADDRESS: "10.9.9.9"}), old(), **OLD), Reason.ADDRESS_NOT_AS_REQUESTED)
    assert text.endswith("because Harvester chooses the address itself")


def upgraded(spec: Document | None = None, **more: Any) -> LoadBalancer:
    """Return the same after Harvester's conversion to v1beta1."""
    document: Document = marked(ip=ADDRESS, pool="lan", address=ADDRESS, **more).document()
    document["apiVersion"] = "loadbalancer.harvesterhci.io/v1beta1"
    selector = {"harvesterhci.io/vmName": ["vm-1", "vm-2"]}
    document["spec"] = {"ipam": "pool", "listeners": [LISTEN_HTTP], "backendServerSelector": selector, **(spec or {})}
    return LOAD_BALANCERS_V1ALPHA1.decode(msgspec.json.encode(document))


LOST = {key: value for key, value in CHECK.items() if key != "PeriodSeconds"}
REPAIRED = {**LOST, "periodSeconds": 5}


@pytest.mark.parametrize(
    ("asked", "found", "steps"),
    [
        pytest.param(hosted(), upgraded(), ["Normal AdoptedLoadBalancer"], id="kept, and told how to have another"),
        pytest.param(hosted({WORKLOAD_TYPE: "vm"}), upgraded(), [], id="kept as asked for"),
        pytest.param(
            hosted({HEALTH_CHECK_PORT: "80"}),
            upgraded({"healthCheck": LOST}),
            [{"write": LB_NAME, "spec": {"healthCheck": REPAIRED}}],
            id="the period was lost",
        ),
        pytest.param(
            hosted({HEALTH_CHECK_PORT: "80"}),
            upgraded({"healthCheck": {**LOST, "periodSeconds": 1}}),
            [{"write": LB_NAME, "spec": {"healthCheck": REPAIRED}}],
            id="the webhook's period in its place",
        ),
        pytest.param(
            hosted({WORKLOAD_TYPE: "vm"}),
            upgraded({"backendServerSelector": {"harvesterhci.io/vmName": []}}),
            [
                {
                    "write": LB_NAME,
                    "spec": {"backendServerSelector": {"harvesterhci.io/vmName": ["vm-1", "vm-2"]}},
                }
            ],
            id="no VM was found for the addresses",
        ),
    ],
)
def test_after_the_upgrade(asked: Any, found: LoadBalancer, steps: list[object]) -> None:
    assert outline(asked, found) == (steps, Done())


def test_one_of_today_is_not_told_to_be_old() -> None:
    assert said(plan(hosted(), upgraded({"workloadType": "vm"})), Reason.ADOPTED) == ""


def test_deletion_has_no_booking_to_wait_for() -> None:
    fresh = old(address="", finalizer=False)
    assert before_deletion(fresh) == LoadBalancerChange()
    leaving = hosted(deleting=True)
    assert outline(leaving, fresh, **OLD)[0] == [
        "Normal DeletingLoadBalancer",
        {"delete": LB_NAME},
        "Normal DeletedLoadBalancer",
        {"service": {"finalizers": [], "ingress": None}},
    ]


def earlier(uid: str = UID, cluster: str = "demo") -> LoadBalancer:
    """Return a load balancer of a provider before 0.2: no labels of the Service, another rule for names."""
    document: Document = {
        "apiVersion": LOAD_BALANCERS_V1ALPHA1.api_version,
        "metadata": {
            "name": "kubernetes-shop-web-1234",
            "namespace": "vms",
            "uid": "lb-uid",
            "resourceVersion": "3",
            "labels": {LB_CLUSTER: cluster},
            "annotations": {UUID: uid},
        },
        "spec": SPEC,
        "status": {"address": ADDRESS, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    return LOAD_BALANCERS_V1ALPHA1.decode(msgspec.json.encode(document))


RENAMED = replace(CLUSTER, former_names=("kubernetes",))


def test_one_of_an_earlier_provider_is_taken_over_under_its_name() -> None:
    (told, write), outcome = outline(hosted(), earlier(cluster="kubernetes"), cluster=RENAMED, **OLD)
    assert told == "Normal AdoptedLoadBalancer"
    assert isinstance(write, dict)
    assert write["write"] == "kubernetes-shop-web-1234"
    assert write["labels"] == {
        LB_CLUSTER: "demo",
        f"{PREFIX}serviceNamespace": "shop",
        f"{PREFIX}serviceName": "web",
    }
    assert write["annotations"][LB_SERVICE_UID] == UID
    assert "spec" not in write
    assert outcome == Done()


@pytest.mark.parametrize(
    ("found", "asked", "owner", "orphan"),
    [
        pytest.param(earlier(), service(), Owner.OURS, Orphan.LIKELY, id="this Service's"),
        pytest.param(earlier("another", "kubernetes"), service(), Owner.UNKNOWN, Orphan.NO, id="nobody knows whose"),
        pytest.param(earlier(cluster="kubernetes"), service(), Owner.OTHER_NAME, Orphan.NO, id="a copy's"),
        pytest.param(earlier("another"), service(address=ADDRESS), Owner.OURS, Orphan.LIKELY, id="it is shown"),
        pytest.param(earlier("another"), service(), Owner.UNKNOWN, Orphan.LIKELY, id="this cluster's"),
    ],
)
def test_whose_it_is(found: LoadBalancer, asked: Any, owner: Owner, orphan: Orphan) -> None:
    assert owner_of(found, asked, CLUSTER).owner is owner
    assert orphan_state(found, None, CLUSTER) is orphan
    assert orphan_state(found, asked, CLUSTER) is Orphan.NO


def node(name: str, *addresses: tuple[str, str], **labels: str) -> Any:
    """Return a Node."""
    entries = [{"type": kind, "address": address} for kind, address in addresses]
    document = {"metadata": {"name": name, "labels": labels}, "status": {"addresses": entries}}
    return NODES.decode(msgspec.json.encode(document))


def test_addresses_of_the_nodes() -> None:
    nodes = [
        node("b", ("InternalIP", "10.1.0.2"), ("InternalIP", "10.2.0.2"), ("Hostname", "b")),
        node("a", ("ExternalIP", "192.0.2.1"), ("InternalIP", "fd00::1"), ("InternalIP", "10.1.0.1")),
        node("c", ("InternalIP", "10.1.0.3"), **{EXCLUDE_NODE_LABEL: "true"}),
        node("d"),
        node("e", ("InternalIP", "10.1.0.1")),
    ]
    assert backend_addresses(nodes) == ("10.1.0.1", "10.1.0.2", "10.2.0.2")
