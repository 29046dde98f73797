"""Load balancers that Harvester's upgrade to 1.2 converted, and those of providers before 0.2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES, KUBE_VIP_IGNORE
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.model.outcome import Done
from harvester_ccm.names import HEALTH_CHECK_PORT, LB_CLUSTER, LB_SERVICE_UID, WORKLOAD_TYPE, Reason
from harvester_ccm.plan.service.orphans import is_orphan
from harvester_ccm.plan.service.ownership import Owner, owner_of
from tests.unit.plan.service.plans import outline, plan, said
from tests.worlds.builders import ADDRESS, CLUSTER, LB_NAME, UID, marked, service

Document = dict[str, Any]
UUID = "cloudprovider.harvesterhci.io/service-uuid"
PREFIX = "cloudprovider.harvesterhci.io/"
HANDS_OFF = {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}
HTTP: Document = {"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}
LISTEN_HTTP = {"name": "http", "port": 80, "protocol": "TCP", "backendPort": 30080}
LOST: Document = {"port": 30080, "successThreshold": 1, "failureThreshold": 3, "timeoutSeconds": 3}
"""A health check without its period, which the conversion loses."""
REPAIRED = {**LOST, "periodSeconds": 5}


def hosted(annotations: Mapping[str, str] | None = None) -> Any:
    """Return a Service with one named port that a VM load balancer serves."""
    return service(annotations={**HANDS_OFF, **(annotations or {})}, ports=[HTTP], ours=True, address=ADDRESS)


def upgraded(spec: Document | None = None) -> LoadBalancer:
    """Return the load balancer of Service ``hosted()`` as the conversion leaves it: without a workload type."""
    document: Document = marked(ip=ADDRESS, pool="lan", address=ADDRESS).document()
    selector = {"harvesterhci.io/vmName": ["vm-1", "vm-2"]}
    document["spec"] = {"ipam": "pool", "listeners": [LISTEN_HTTP], "backendServerSelector": selector, **(spec or {})}
    return LOAD_BALANCERS.decode(msgspec.json.encode(document))


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


def earlier(uid: str = UID, cluster: str = "demo") -> LoadBalancer:
    """Return a load balancer of a provider before 0.2: no labels of the Service, another rule for names."""
    document: Document = {
        "metadata": {
            "name": "kubernetes-shop-web-1234",
            "namespace": "vms",
            "uid": "lb-uid",
            "resourceVersion": "3",
            "labels": {LB_CLUSTER: cluster},
            "annotations": {UUID: uid},
        },
        "spec": {
            "ipam": "pool",
            "listeners": [LISTEN_HTTP],
            "backendServerSelector": {"harvesterhci.io/vmName": ["vm-1", "vm-2"]},
        },
        "status": {
            "address": ADDRESS,
            "allocatedAddress": {"ip": ADDRESS, "ipPool": "lan"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return LOAD_BALANCERS.decode(msgspec.json.encode(document))


RENAMED = replace(CLUSTER, former_names=("kubernetes",))


def test_one_of_an_earlier_provider_is_taken_over_under_its_name() -> None:
    asked = hosted({WORKLOAD_TYPE: "vm"})
    (told, write), outcome = outline(asked, earlier(cluster="kubernetes"), cluster=RENAMED)
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
        pytest.param(earlier(), service(), Owner.OURS, True, id="this Service's"),
        pytest.param(earlier("another", "kubernetes"), service(), Owner.UNKNOWN, False, id="nobody knows whose"),
        pytest.param(earlier(cluster="kubernetes"), service(), Owner.OTHER_NAME, False, id="a copy's"),
        pytest.param(earlier("another"), service(address=ADDRESS), Owner.OURS, True, id="it is shown"),
        pytest.param(earlier("another"), service(), Owner.UNKNOWN, True, id="this cluster's"),
    ],
)
def test_whose_it_is(found: LoadBalancer, asked: Any, owner: Owner, orphan: bool) -> None:
    assert owner_of(found, asked, CLUSTER).owner is owner
    assert is_orphan(found, None, CLUSTER) is orphan
    assert not is_orphan(found, asked, CLUSTER)
