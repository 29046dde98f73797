"""``SharingFields`` has everything that the plan of one Service reads of another one.

A change of any other field wakes no Service, so no plan may differ after it.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import fields, replace

from harvester_ccm import names
from harvester_ccm.model.core import Service, ServiceCondition
from harvester_ccm.names import KUBE_VIP_ADDRESSES, LOAD_BALANCER_READY, PRIMARY_SERVICE, PRIMARY_SERVICE_LABEL
from harvester_ccm.plan.service.decision import plan_service
from harvester_ccm.plan.service.ranking import sharing_fields
from harvester_ccm.plan.service.snapshot import observe
from tests.unit.plan.service.plans import BACKENDS
from tests.worlds.builders import ADDRESS, CLUSTER, VM_SPEC, allocated, listed_store, served, service

ANNOTATIONS = sorted(
    {value for value in vars(names).values() if isinstance(value, str) and "/" in value}
    | set(names.SERVICE_ANNOTATIONS)
)
"""All annotations and labels that this project knows, and some other names."""
SPECS: dict[str, Any] = {
    "type": "ClusterIP",
    "ports": (),
    "load_balancer_class": "example.com/other",
    "load_balancer_ip": "10.0.0.99",
    "load_balancer_source_ranges": ("10.0.0.0/8",),
    "external_traffic_policy": "Local",
    "session_affinity": "ClientIP",
    "ip_families": ("IPv6",),
    "ip_family_policy": "RequireDualStack",
    "allocate_load_balancer_node_ports": False,
}
METADATA: dict[str, Any] = {
    "uid": "another",
    "resource_version": "8",
    "generation": 9,
    "creation_timestamp": "2020-01-01T00:00:00Z",
    "deletion_timestamp": "2026-01-01T00:00:00Z",
    "finalizers": ("example.com/hold",),
}


def test_every_field_of_the_specification_is_changed_here() -> None:
    assert {field.name for field in fields(service().spec)} == SPECS.keys()


def changes_of(item: Service) -> Iterator[tuple[str, Service]]:
    """Yield every change of one field of a Service."""
    meta, spec, status = item.metadata, item.spec, item.status
    for key in ANNOTATIONS:
        for value in ("", "true", "10.0.0.99", "shop/web"):
            yield key, replace(item, metadata=replace(meta, annotations={**(meta.annotations or {}), key: value}))
            yield key, replace(item, metadata=replace(meta, labels={**(meta.labels or {}), key: value}))
    for name, value in SPECS.items():
        yield name, replace(item, spec=replace(spec, **{name: value}))
    for name, value in METADATA.items():
        yield name, replace(item, metadata=replace(meta, **{name: value}))
    condition = ServiceCondition(type=LOAD_BALANCER_READY, status="False", reason="Other", message="other")
    yield "condition", replace(item, status=replace(status, conditions=(condition,)))
    yield "status", replace(item, status=replace(status, load_balancer=replace(status.load_balancer, ingress=())))


SHARES: dict[str, Any] = {"annotations": {PRIMARY_SERVICE: "shop/web", KUBE_VIP_ADDRESSES: ADDRESS}}
SHARED: dict[str, Any] = {**SHARES, "labels": {PRIMARY_SERVICE_LABEL: "shop.web"}}
FAMILY = (
    served(),
    served("api", uid="2", ports=[{"port": 9, "nodePort": 30009}], created="2026-01-02T00:00:00Z", **SHARED),
    service("new", uid="3", ports=[{"port": 10, "nodePort": 30010}], created="2026-01-03T00:00:00Z", **SHARES),
)


@pytest.mark.parametrize("spec", [{}, VM_SPEC], ids=["cluster", "vm"])
@pytest.mark.parametrize("changed", FAMILY, ids=["primary", "secondary", "new secondary"])
@pytest.mark.parametrize("leaving", [False, True], ids=["stays", "is deleted"])
def test_other_plans_differ_only_after_a_change_of_a_field_that_sharing_reads(
    spec: dict[str, Any], changed: Service, leaving: bool
) -> None:
    """``leaving``: whether the primary is being deleted."""
    balancers = (allocated(spec=spec),) if spec else (allocated(),)
    deleted_at = "2026-01-01T00:00:00Z" if leaving else None
    family = [replace(one, metadata=replace(one.metadata, deletion_timestamp=None)) for one in FAMILY]
    family[0] = replace(family[0], metadata=replace(family[0].metadata, deletion_timestamp=deleted_at))

    def plans(services: list[Service]) -> list[object]:
        store = listed_store(services, balancers, BACKENDS)
        others = [one for one in services if one.metadata.name != changed.metadata.name]
        return [plan_service(observe(store, one, CLUSTER)) for one in others]

    place = [one.metadata.name for one in FAMILY].index(changed.metadata.name)
    before, expected = sharing_fields(family[place], CLUSTER), plans(family)
    differed = set()
    for name, after in changes_of(family[place]):
        found = plans([*family[:place], after, *family[place + 1 :]])
        if sharing_fields(after, CLUSTER) == before:
            assert found == expected, name
        elif found != expected:
            differed.add(name)
    assert differed or changed != FAMILY[0], "many changes of a primary matter"
