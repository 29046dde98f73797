"""Patches contain only what differs, and a PUT keeps every field that this controller does not know."""

from typing import Any

import msgspec
import pytest

from harvester_ccm.model.harvester import LOAD_BALANCERS, ClusterIdentity
from harvester_ccm.names import (
    DESCRIPTION,
    KUBE_VIP_ADDRESSES,
    LB_RECONCILE,
    LB_SERVICE_UID,
    LB_TOUCH,
    SERVICE_FINALIZER,
)
from harvester_ccm.plan.service.kube_vip import virtual_ip_ingress
from harvester_ccm.plan.service.load_balancer import changed_document
from harvester_ccm.plan.service.writes import ChangeLoadBalancer, CreateLoadBalancer, ServiceChange, service_patch
from tests.unit.plan.service.plans import plan
from tests.worlds.builders import (
    ADDRESS,
    CLUSTER,
    LB_NAME,
    SUPPRESSED,
    UID,
    allocated,
    load_balancer,
    marked,
    served,
    service,
)

PORTS = [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]
INGRESS = {"ip": ADDRESS, "ipMode": "VIP", "ports": [{"port": 80, "protocol": "TCP"}]}
PATCHES: dict[str, tuple[Any, ServiceChange, dict[str, Any]]] = {
    "no difference": (
        served(),
        ServiceChange(
            {KUBE_VIP_ADDRESSES: ADDRESS}, {}, finalizer=True, ingress=virtual_ip_ingress(ADDRESS, service())
        ),
        {},
    ),
    "one annotation of two": (
        service(annotations={"a": "1"}),
        ServiceChange(annotations={"a": "1", "b": ""}),
        {"metadata": {"annotations": {"b": ""}}},
    ),
    "removed annotation": (
        service(annotations={"a": "1"}),
        ServiceChange(annotations={"a": None, "b": None}),
        {"metadata": {"annotations": {"a": None}}},
    ),
    "kube-vip is suppressed, unless another client set an address": (
        service(),
        ServiceChange(annotations=SUPPRESSED),
        {"metadata": {"annotations": SUPPRESSED, "resourceVersion": "7"}},
    ),
    "finalizer next to others, unless they changed": (
        service(finalizers=["x/y"]),
        ServiceChange(finalizer=True),
        {"metadata": {"finalizers": ["x/y", SERVICE_FINALIZER], "resourceVersion": "7"}},
    ),
    "removed finalizer": (
        service(finalizers=["x/y"], ours=True),
        ServiceChange(finalizer=False),
        {"metadata": {"finalizers": ["x/y"], "resourceVersion": "7"}},
    ),
    "status with all ports in order": (
        service(ports=PORTS),
        ServiceChange(ingress=virtual_ip_ingress(ADDRESS, service(ports=PORTS))),
        {"status": {"loadBalancer": {"ingress": [{"ip": ADDRESS, "ipMode": "VIP", "ports": PORTS}]}}},
    ),
    "removed status": (served(), ServiceChange(ingress=()), {"status": {"loadBalancer": {"ingress": None}}}),
    "everything in one patch": (
        service(),
        ServiceChange({"a": "1"}, {"b": "2"}, finalizer=True, ingress=virtual_ip_ingress(ADDRESS, service())),
        {
            "metadata": {
                "annotations": {"a": "1"},
                "labels": {"b": "2"},
                "finalizers": [SERVICE_FINALIZER],
                "resourceVersion": "7",
            },
            "status": {"loadBalancer": {"ingress": [INGRESS]}},
        },
    ),
}


@pytest.mark.parametrize(("before", "change", "patch"), PATCHES.values(), ids=PATCHES.keys())
def test_patch(before: Any, change: ServiceChange, patch: dict[str, Any]) -> None:
    assert service_patch(before, change) == patch


STATUSES: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "as kube-vip writes it": ([INGRESS], True),
    "API server without ipMode": ([{"ip": ADDRESS, "ports": INGRESS["ports"]}], True),
    "no ports": ([{"ip": ADDRESS, "ipMode": "VIP"}], False),
    "another mode": ([{**INGRESS, "ipMode": "Proxy"}], False),
    "another address": ([{**INGRESS, "ip": "10.0.0.1"}], False),
    "a host name": ([{**INGRESS, "hostname": "x"}], False),
    "two entries": ([INGRESS, INGRESS], False),
    "no entry": ([], False),
}


@pytest.mark.parametrize(("ingress", "same"), STATUSES.values(), ids=STATUSES.keys())
def test_status_is_written_if_it_differs(ingress: list[dict[str, Any]], same: bool) -> None:
    found = service(status={"ingress": ingress})
    assert (service_patch(found, ServiceChange(ingress=virtual_ip_ingress(ADDRESS, service()))) == {}) is same


MANAGED = ClusterIdentity("demo", "vms", "cluster-uid", management_network="infra/mgmt")
MANAGEMENT = "cloudprovider.harvesterhci.io/managementNetwork"
DIFFERENCES: dict[str, tuple[dict[str, str], dict[str, Any], ClusterIdentity, ChangeLoadBalancer | None]] = {
    "none": ({}, {}, CLUSTER, None),
    "address": ({}, {"address": "10.0.0.1"}, CLUSTER, ChangeLoadBalancer(LB_NAME, status={"address": ADDRESS})),
    "management network": ({}, {}, MANAGED, ChangeLoadBalancer(LB_NAME, annotations={MANAGEMENT: "infra/mgmt"})),
    "removed management network": (
        {},
        {"annotations": {MANAGEMENT: "infra/mgmt"}},
        CLUSTER,
        ChangeLoadBalancer(LB_NAME, annotations={MANAGEMENT: None}),
    ),
    "annotations that Harvester's webhook overwrites": (
        {},
        {
            "annotations": {
                "loadbalancer.harvesterhci.io/project": "c-2/p-2",
                "loadbalancer.harvesterhci.io/namespace": "vms",
                "loadbalancer.harvesterhci.io/network": "infra/found",
            }
        },
        CLUSTER,
        None,
    ),
    "requested description": (
        {DESCRIPTION: "front"},
        {},
        CLUSTER,
        ChangeLoadBalancer(LB_NAME, spec={"description": "front"}),
    ),
    "description of an administrator": ({}, {"spec": {"description": "mine"}}, CLUSTER, None),
}


@pytest.mark.parametrize(("annotations", "fields", "cluster", "write"), DIFFERENCES.values(), ids=DIFFERENCES.keys())
def test_load_balancer_is_written_if_it_differs(
    annotations: dict[str, str], fields: dict[str, Any], cluster: ClusterIdentity, write: ChangeLoadBalancer | None
) -> None:
    assert plan(served(annotations=annotations), allocated(**fields), cluster=cluster).write == write


@pytest.mark.guarantee("Fields of other controllers survive")
def test_put_keeps_unknown_fields() -> None:
    document: Any = load_balancer(
        labels={"team": "a"},
        annotations={"note": "b", LB_TOUCH: "true"},
        spec={"description": "mine", "fromTheFuture": {"x": [1]}, "healthCheck": {"port": 1}},
    ).document()
    document["metadata"]["ownerReferences"] = [{"kind": "ConfigMap", "name": "owner"}]
    status = {"allocatedAddress": {"ip": ADDRESS, "ipPool": "lan"}, "fromTheFuture": "x"}
    found = LOAD_BALANCERS.decode(msgspec.json.encode({**document, "status": status}))
    change = ChangeLoadBalancer(
        LB_NAME,
        labels={"l": "1"},
        annotations={LB_SERVICE_UID: UID, LB_TOUCH: None},
        spec={"listeners": [], "healthCheck": None},
        status={"address": ADDRESS},
    )
    written: Any = changed_document(found, change)
    assert written["metadata"] == {
        **found.document()["metadata"],  # type: ignore[dict-item]  # metadata is an object
        "labels": {"team": "a", "l": "1"},
        "annotations": {"note": "b", LB_SERVICE_UID: UID},
    }
    assert written["metadata"]["resourceVersion"] == "11"
    assert written["spec"] == {
        "workloadType": "cluster",
        "ipam": "pool",
        "description": "mine",
        "fromTheFuture": {"x": [1]},
        "listeners": [],
    }
    assert written["status"] == {**status, "address": ADDRESS}


NO_POOL = "no matched IPPool with requirement"
EXHAUSTED = "fail to get ip from pool lan, error: no IP addresses available"
DELETIONS: dict[str, tuple[Any, object]] = {
    "one more search": (marked(message=NO_POOL), {"allocatedAddress": {}}),
    "blocked pool": (marked(message=EXHAUSTED), {"allocatedAddress": {"ipPool": "lan"}}),
}


@pytest.mark.parametrize(("found", "status"), DELETIONS.values(), ids=DELETIONS.keys())
def test_write_before_a_deletion_resets_the_response_of_harvester(found: Any, status: object) -> None:
    deleted = service(ours=True, deleting=True, annotations=SUPPRESSED)
    write = plan(deleted, found).write
    assert isinstance(write, ChangeLoadBalancer)
    written: Any = changed_document(found, write)
    assert written["status"] == status
    # Until Harvester responds, the load balancer is not deleted.
    assert plan(deleted, LOAD_BALANCERS.decode(msgspec.json.encode(written))).write is None
    assert (LB_RECONCILE in written["metadata"]["annotations"]) is ("ipPool" not in str(status))


def test_requested_description_follows_and_another_one_stays() -> None:
    found = allocated(spec={"description": "mine"}, address="10.0.0.1")
    write = plan(served(annotations={DESCRIPTION: "front"}), found).write
    assert isinstance(write, ChangeLoadBalancer)
    assert write.spec == {"description": "front"}
    write = plan(served(), found).write
    assert isinstance(write, ChangeLoadBalancer)
    assert write.spec == {}


@pytest.mark.parametrize(("annotations", "text"), [({}, "shop/web of cluster demo"), ({DESCRIPTION: "front"}, "front")])
def test_new_load_balancer_has_a_description(annotations: dict[str, str], text: str) -> None:
    asked = service(ours=True, annotations={**SUPPRESSED, **annotations})
    write = plan(asked).write
    assert isinstance(write, CreateLoadBalancer)
    assert write.body["spec"] == {
        "workloadType": "cluster",
        "ipam": "pool",
        "description": text,
    }
