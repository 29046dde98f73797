"""The two versions of Harvester's load balancers as one view, and what is written of it in each."""

from __future__ import annotations

import gc
from typing import Any

import msgspec
import pytest

from harvester_ccm.model.harvester import BEFORE_1_2, SINCE_1_2, Capabilities, LoadBalancer, decode_load_balancer
from harvester_ccm.names import LB_SERVICE_UID, LB_SERVICE_UUID

CHECK = {"port": 80, "periodSeconds": 5}
SPEC: dict[str, Any] = {
    "workloadType": "vm",
    "ipam": "pool",
    "ipPool": "lan",
    "listeners": [],
    "backendServerSelector": {"harvesterhci.io/vmName": ["w1"]},
    "backendServers": ["10.1.0.1"],
    "description": "shop",
    "healthCheck": CHECK,
    "unknown": 1,
}
BODY: dict[str, Any] = {"metadata": {"name": "web", "annotations": {LB_SERVICE_UID: "1"}}, "spec": SPEC}


def without(*keys: str) -> dict[str, Any]:
    """Return ``SPEC`` without these fields."""
    return {key: value for key, value in SPEC.items() if key not in keys}


def test_whole_object_of_today() -> None:
    assert SINCE_1_2.encode(BODY) == {
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1",
        "kind": "LoadBalancer",
        "metadata": BODY["metadata"],
        "spec": without("backendServers"),
    }


def test_whole_object_before_1_2() -> None:
    spec = without("workloadType", "ipPool", "backendServerSelector")
    assert BEFORE_1_2.encode(BODY) == {
        "apiVersion": "loadbalancer.harvesterhci.io/v1alpha1",
        "kind": "LoadBalancer",
        "metadata": {"name": "web", "annotations": {LB_SERVICE_UID: "1", LB_SERVICE_UUID: "1"}},
        "spec": {**spec, "healthCheck": {"port": 80, "PeriodSeconds": 5}},
        "status": {},
    }


@pytest.mark.parametrize("capabilities", [SINCE_1_2, BEFORE_1_2], ids=["today", "before 1.2"])
def test_what_was_given_stays_as_it_is(capabilities: Capabilities) -> None:
    before = msgspec.json.encode(BODY)
    capabilities.encode(BODY)
    assert msgspec.json.encode(BODY) == before


def test_a_health_check_that_goes_is_none_in_either() -> None:
    assert BEFORE_1_2.encode_spec({"healthCheck": None}) == {"healthCheck": None}
    assert SINCE_1_2.encode_spec({"healthCheck": None}) == {"healthCheck": None}


def read(capabilities: Capabilities, **fields: Any) -> LoadBalancer:
    """Return a load balancer as it is read."""
    document = {"apiVersion": capabilities.api_version, "metadata": {"name": "web"}, **fields}
    return decode_load_balancer(msgspec.json.encode(document))


@pytest.mark.parametrize(
    ("found", "backends", "named_type"),
    [
        pytest.param(read(BEFORE_1_2, spec={"backendServers": ["10.1.0.1"]}), ("10.1.0.1",), "vm", id="no status"),
        pytest.param(
            read(BEFORE_1_2, spec={"backendServers": ["10.1.0.1"]}, status={"address": "192.0.2.1"}),
            ("10.1.0.1",),
            "vm",
            id="before 1.2",
        ),
        pytest.param(read(BEFORE_1_2, spec={}), (), "vm", id="before 1.2, none"),
        pytest.param(
            read(SINCE_1_2, spec={}, status={"backendServers": ["10.1.0.2"]}), ("10.1.0.2",), "", id="converted"
        ),
        pytest.param(read(SINCE_1_2, spec={"backendServers": ["10.1.0.1"]}), (), "", id="not of this version"),
    ],
)
def test_backends_and_type(found: LoadBalancer, backends: tuple[str, ...], named_type: str) -> None:
    assert (found.backends, found.spec.named_workload_type, found.spec.workload_type) == (backends, named_type, "vm")


@pytest.mark.parametrize(
    ("found", "awaits"),
    [
        pytest.param(read(SINCE_1_2), True, id="new"),
        pytest.param(read(SINCE_1_2, status={"allocatedAddress": {"ip": "192.0.2.1"}}), False, id="allocated"),
        pytest.param(read(BEFORE_1_2), False, id="no pools to allocate from"),
    ],
)
def test_wait_for_an_allocation(found: LoadBalancer, awaits: bool) -> None:
    assert found.awaits_allocation is awaits


def test_all_that_was_read_is_kept() -> None:
    document = {"apiVersion": BEFORE_1_2.api_version, "metadata": {"name": "web"}, "spec": {**SPEC, "extra": {"a": 1}}}
    assert decode_load_balancer(msgspec.json.encode(document)).document() == document


def test_the_document_that_is_kept_is_all_but_who_wrote_what() -> None:
    metadata = {"name": "web", "unknown": {"a": [1]}, "managedFields": [{"manager": "kubectl"}]}
    source = {"apiVersion": SINCE_1_2.api_version, "metadata": metadata, "spec": SPEC, "new": None}
    found = decode_load_balancer(msgspec.json.encode(source))
    assert found.document() == {**source, "metadata": {"name": "web", "unknown": {"a": [1]}}}


def test_the_garbage_collector_passes_over_views() -> None:
    found = decode_load_balancer(msgspec.json.encode({"apiVersion": SINCE_1_2.api_version, **BODY, "status": {}}))
    assert not any(gc.is_tracked(one) for one in (found, found.metadata, found.spec, found.status))
