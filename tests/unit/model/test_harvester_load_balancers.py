"""Harvester's load balancers as they are read, and what is kept of them."""

from __future__ import annotations

import gc
from typing import Any

import msgspec
import pytest

from harvester_ccm.model.harvester import LoadBalancer, decode_load_balancer

SPEC: dict[str, Any] = {"workloadType": "vm", "ipam": "pool", "healthCheck": {"port": 80}, "unknown": 1}


def read(**fields: Any) -> LoadBalancer:
    """Return a load balancer as it is read."""
    return decode_load_balancer(msgspec.json.encode({"metadata": {"name": "web"}, **fields}))


@pytest.mark.parametrize(("spec", "named", "meant"), [({}, "", "vm"), ({"workloadType": "cluster"}, *["cluster"] * 2)])
def test_absent_workload_type_means_vm(spec: dict[str, Any], named: str, meant: str) -> None:
    found = read(spec=spec).spec
    assert (found.named_workload_type, found.workload_type) == (named, meant)


def test_backends_are_those_of_the_status() -> None:
    assert read().backends == ()
    assert read(status={"backendServers": ["10.1.0.2"]}).backends == ("10.1.0.2",)


def test_the_document_that_is_kept_is_all_but_who_wrote_what() -> None:
    metadata = {"name": "web", "unknown": {"a": [1]}, "managedFields": [{"manager": "kubectl"}]}
    source = {"metadata": metadata, "spec": SPEC, "new": None}
    found = decode_load_balancer(msgspec.json.encode(source))
    assert found.document() == {**source, "metadata": {"name": "web", "unknown": {"a": [1]}}}


def test_the_garbage_collector_passes_over_views() -> None:
    found = read(spec=SPEC, status={})
    assert not any(gc.is_tracked(one) for one in (found, found.metadata, found.spec, found.status))
