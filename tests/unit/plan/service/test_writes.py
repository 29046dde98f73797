"""Smallest writes: only what differs is in a patch, and everything we do not know survives a PUT."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from harvester_ccm.model.harvester import LOAD_BALANCERS, ClusterIdentity
from harvester_ccm.names import (
    DESCRIPTION,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_IGNORE,
    LB_SERVICE_UID,
    LB_TOUCH,
    SERVICE_FINALIZER,
)
from harvester_ccm.plan.service.kube_vip import virtual_ip_ingress
from harvester_ccm.plan.service.load_balancer import (
    changed_document,
    described,
    load_balancer_change,
)
from harvester_ccm.plan.service.messages import pending_cause
from harvester_ccm.plan.service.removal import deletion_of
from harvester_ccm.plan.service.writes import (
    ChangeLoadBalancer,
    CreateLoadBalancer,
    ServiceChange,
    service_patch,
)
from tests.unit.plan.service.plans import plan, snapshot_of
from tests.worlds.builders import ADDRESS, CLUSTER, LB_NAME, UID, allocated, load_balancer, marked, served, service

DUAL = [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]
INGRESS = {"ip": ADDRESS, "ipMode": "VIP", "ports": [{"port": 80, "protocol": "TCP"}]}

PATCHES: dict[str, tuple[Any, ServiceChange, dict[str, Any]]] = {
    "nothing asked": (service(), ServiceChange(), {}),
    "all as it should be": (
        served(),
        ServiceChange(
            {KUBE_VIP_ADDRESSES: ADDRESS}, {}, finalizer=True, ingress=virtual_ip_ingress(ADDRESS, service())
        ),
        {},
    ),
    "one annotation of two": (
        service(annotations={"a": "1"}),
        ServiceChange(annotations={"a": "1", "b": "2"}),
        {"metadata": {"annotations": {"b": "2"}}},
    ),
    "an empty value is a value": (
        service(),
        ServiceChange(annotations={"a": ""}),
        {"metadata": {"annotations": {"a": ""}}},
    ),
    "a key to remove": (
        service(annotations={"a": "1"}),
        ServiceChange(annotations={"a": None, "b": None}),
        {"metadata": {"annotations": {"a": None}}},
    ),
    "kube-vip is to ignore it, if nobody wrote an address": (
        service(),
        ServiceChange(annotations={KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}),
        {"metadata": {"annotations": {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}, "resourceVersion": "7"}},
    ),
    "kube-vip gets it back": (
        service(annotations={KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}),
        ServiceChange(annotations={KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None}),
        {"metadata": {"annotations": {KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None}}},
    ),
    "a label": (service(), ServiceChange(labels={"a": "1"}), {"metadata": {"labels": {"a": "1"}}}),
    "our finalizer next to others, if nobody changed them": (
        service(finalizers=["x/y"]),
        ServiceChange(finalizer=True),
        {"metadata": {"finalizers": ["x/y", SERVICE_FINALIZER], "resourceVersion": "7"}},
    ),
    "our finalizer off, others stay": (
        service(finalizers=["x/y"], ours=True),
        ServiceChange(finalizer=False),
        {"metadata": {"finalizers": ["x/y"], "resourceVersion": "7"}},
    ),
    "our finalizer is off": (service(), ServiceChange(finalizer=False), {}),
    "a status": (
        service(),
        ServiceChange(ingress=virtual_ip_ingress(ADDRESS, service())),
        {"status": {"loadBalancer": {"ingress": [INGRESS]}}},
    ),
    "a status with all ports in order": (
        service(ports=DUAL),
        ServiceChange(ingress=virtual_ip_ingress(ADDRESS, service(ports=DUAL))),
        {"status": {"loadBalancer": {"ingress": [{"ip": ADDRESS, "ipMode": "VIP", "ports": DUAL}]}}},
    ),
    "no status": (served(), ServiceChange(ingress=()), {"status": {"loadBalancer": {"ingress": None}}}),
    "no status, and there was none": (service(), ServiceChange(ingress=()), {}),
    "everything at once is one patch": (
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
    "kube-vip's": ([INGRESS], True),
    "an older server's": ([{"ip": ADDRESS, "ports": INGRESS["ports"]}], True),
    "without ports": ([{"ip": ADDRESS, "ipMode": "VIP"}], False),
    "another mode": ([{**INGRESS, "ipMode": "Proxy"}], False),
    "another address": ([{**INGRESS, "ip": "10.0.0.1"}], False),
    "a host name": ([{**INGRESS, "hostname": "x"}], False),
    "two": ([INGRESS, INGRESS], False),
    "none": ([], False),
}


@pytest.mark.parametrize(("ingress", "same"), STATUSES.values(), ids=STATUSES.keys())
def test_same_status(ingress: list[dict[str, Any]], same: bool) -> None:
    found = service(status={"ingress": ingress})
    assert (service_patch(found, ServiceChange(ingress=virtual_ip_ingress(ADDRESS, service()))) == {}) is same


MANAGED = ClusterIdentity("demo", "vms", "cluster-uid", management_network="infra/mgmt")
MANAGEMENT = "cloudprovider.harvesterhci.io/managementNetwork"
DIFFERENCES: dict[str, tuple[Any, ClusterIdentity, dict[str, Any], ChangeLoadBalancer | None]] = {
    "none": (allocated(), CLUSTER, {"address": ADDRESS}, None),
    "address unknown": (allocated(), CLUSTER, {}, None),
    "address": (allocated(), CLUSTER, {"address": "10.0.0.1"}, ChangeLoadBalancer(LB_NAME, address="10.0.0.1")),
    "management network set": (
        allocated(),
        MANAGED,
        {},
        ChangeLoadBalancer(LB_NAME, annotations={MANAGEMENT: "infra/mgmt"}),
    ),
    "management network no longer set": (
        allocated(annotations={MANAGEMENT: "infra/mgmt"}),
        CLUSTER,
        {},
        ChangeLoadBalancer(LB_NAME, annotations={MANAGEMENT: None}),
    ),
    "what Harvester's webhook overwrites is left alone": (
        allocated(
            annotations={
                "loadbalancer.harvesterhci.io/project": "c-2/p-2",
                "loadbalancer.harvesterhci.io/namespace": "vms",
                "loadbalancer.harvesterhci.io/network": "infra/found",
            }
        ),
        CLUSTER,
        {"address": ADDRESS},
        None,
    ),
    "fields that must be absent": (
        allocated(spec={"healthCheck": {"port": 1}}),
        CLUSTER,
        {"spec": {"healthCheck": None}},
        ChangeLoadBalancer(LB_NAME, spec={"healthCheck": None}),
    ),
    "fields that are absent": (allocated(), CLUSTER, {"spec": {"healthCheck": None}}, None),
}


@pytest.mark.parametrize(("found", "cluster", "more", "change"), DIFFERENCES.values(), ids=DIFFERENCES.keys())
def test_difference(
    found: Any, cluster: ClusterIdentity, more: dict[str, Any], change: ChangeLoadBalancer | None
) -> None:
    made = load_balancer_change(found, snapshot_of(service(), cluster=cluster), **more)
    assert made == change


def test_what_harvester_said_stays_unless_it_has_to_look_for_an_address_elsewhere() -> None:
    found = marked(message="no matched IPPool with requirement")
    said = {"allocatedAddress": {}, "conditions": found.document()["status"]["conditions"]}  # type: ignore[index]
    assert changed_document(found, ChangeLoadBalancer(LB_NAME, labels={"l": "1"}))["status"] == said
    assert changed_document(found, ChangeLoadBalancer(LB_NAME, ask_again=True))["status"] == {"allocatedAddress": {}}


@pytest.mark.guarantee("Fields of other controllers survive")
def test_a_put_keeps_what_this_program_does_not_know() -> None:
    known: Any = load_balancer(
        labels={"team": "a"},
        annotations={"note": "b", LB_TOUCH: "true"},
        spec={"description": "mine", "fromTheFuture": {"x": [1]}, "healthCheck": {"port": 1}},
    ).document()
    known["metadata"]["ownerReferences"] = [{"kind": "ConfigMap", "name": "owner"}]
    status = {"allocatedAddress": {"ip": ADDRESS, "ipPool": "lan"}, "fromTheFuture": "x"}
    found = LOAD_BALANCERS.decode(msgspec.json.encode({**known, "status": status}))
    change = ChangeLoadBalancer(
        LB_NAME,
        labels={"l": "1"},
        annotations={LB_SERVICE_UID: UID, LB_TOUCH: None},
        spec={"listeners": [], "healthCheck": None},
        address=ADDRESS,
    )
    document: Any = changed_document(found, change)
    assert document["metadata"] == {
        **found.document()["metadata"],  # type: ignore[dict-item]  # metadata is an object
        "labels": {"team": "a", "l": "1"},
        "annotations": {"note": "b", LB_SERVICE_UID: UID},
    }
    assert document["metadata"]["resourceVersion"] == "11"
    assert document["spec"] == {
        "workloadType": "cluster",
        "ipam": "pool",
        "description": "mine",
        "fromTheFuture": {"x": [1]},
        "listeners": [],
    }
    assert document["status"] == {**status, "address": ADDRESS}


def test_a_put_without_an_address_leaves_the_status_as_it_was() -> None:
    found = allocated()
    document: Any = changed_document(found, ChangeLoadBalancer(LB_NAME, labels={"a": "b"}))
    assert document["status"] == found.document()["status"]


def test_a_refusal_before_the_question_does_not_answer_it() -> None:
    refused = marked(message="fail to get allocator no-such-pool")
    assert pending_cause(refused).reason == "no_matching_pool"
    document: Any = changed_document(refused, ChangeLoadBalancer(LB_NAME, ask_again=True))
    assert document["status"] == {"allocatedAddress": {}}
    assert deletion_of(LOAD_BALANCERS.decode(msgspec.json.encode(document))) is None


def test_a_pool_is_named_in_the_place_of_an_address() -> None:
    refused = marked(message="fail to get ip from pool lan, error: no IP addresses available")
    document: Any = changed_document(refused, ChangeLoadBalancer(LB_NAME, closing_pool="lan"))
    assert document["status"] == {"allocatedAddress": {"ipPool": "lan"}}, "what comes next is said of this"


def test_what_was_said_of_a_load_balancer_with_an_address_stays() -> None:
    document: Any = changed_document(allocated(), ChangeLoadBalancer(LB_NAME, ask_again=True))
    assert document["status"] == allocated().document()["status"]


WHOSE = "shop/web of cluster demo"
DESCRIPTIONS: dict[str, tuple[str | None, str | None, str]] = {
    "none": (None, None, WHOSE),
    "of the name that the cluster had": (None, "shop/web of cluster old", WHOSE),
    "somebody's": (None, "mine", "mine"),
    "asked for": ("front", None, "front"),
    "asked for, and another was written": ("front", "mine", "front"),
    "asked for, and much like ours": (f"{WHOSE}, prod", WHOSE, f"{WHOSE}, prod"),
}


@pytest.mark.parametrize(("wish", "before", "after"), DESCRIPTIONS.values(), ids=DESCRIPTIONS.keys())
def test_a_load_balancer_that_is_written_says_whose_it_is(wish: str | None, before: str | None, after: str) -> None:
    asked = served(annotations={DESCRIPTION: wish} if wish else {})
    found = allocated(spec={"description": before} if before else {})
    more = load_balancer_change(found, snapshot_of(asked), address="10.0.0.1")
    written: Any = described(changed_document(found, more or ChangeLoadBalancer(LB_NAME)), snapshot_of(asked))
    assert written["spec"]["description"] == after
    again = LOAD_BALANCERS.decode(msgspec.json.encode(written))
    assert load_balancer_change(again, snapshot_of(asked), address="10.0.0.1") is None


@pytest.mark.parametrize(("before", "writes"), [(None, 0), ("mine", 0), ("shop/web of cluster old", 0)])
def test_whose_it_is_is_no_reason_to_write(before: str | None, writes: int) -> None:
    made = plan(served(), allocated(spec={"description": before} if before else {}))
    assert isinstance(made.write, ChangeLoadBalancer) is bool(writes)


def test_a_description_that_is_asked_for_is_a_reason_to_write() -> None:
    made = plan(served(annotations={DESCRIPTION: "front"}), allocated())
    assert made.write == ChangeLoadBalancer(LB_NAME, spec={"description": "front"})


@pytest.mark.parametrize(("wish", "text"), [({}, WHOSE), ({DESCRIPTION: "front"}, "front")])
def test_a_new_load_balancer_says_whose_it_is(wish: dict[str, str], text: str) -> None:
    asked = service(ours=True, annotations={KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true", **wish})
    create = plan(asked).write
    assert isinstance(create, CreateLoadBalancer)
    assert described(create.body, snapshot_of(asked))["spec"] == {
        "workloadType": "cluster",
        "ipam": "pool",
        "description": text,
    }
