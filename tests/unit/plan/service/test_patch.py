"""Patches of a Service contain only what differs."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from harvester_ccm.model.core import Service, ServiceCondition
from harvester_ccm.names import KUBE_VIP_ADDRESSES, LOAD_BALANCER_READY, SERVICE_FINALIZER
from harvester_ccm.plan.service.desired import Desired, Finalizer, PatchService, virtual_ip_ingress
from harvester_ccm.plan.service.patch import sent_patch, service_patch, with_condition
from harvester_ccm.plan.service.verdict import NotManaged
from tests.support.builders import ADDRESS, SUPPRESSED, UID, allocated, marked, served, service
from tests.unit.plan.service.outcomes import differing, text_of
from tests.unit.plan.service.snapshots import EXHAUSTED, WAITING, WITHDRAWN, plan

PORTS: Final = [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]
INGRESS: Final[dict[str, Any]] = {"ip": ADDRESS, "ipMode": "VIP", "ports": [{"port": 80, "protocol": "TCP"}]}
READY: Final = ServiceCondition(
    type=LOAD_BALANCER_READY,
    status="True",
    reason="EnsuredLoadBalancer",
    message=f"The load balancer has address {ADDRESS}",
    last_transition_time="2026-02-02T00:00:00Z",
)
READY_DOCUMENT: Final = {
    "type": LOAD_BALANCER_READY,
    "status": "True",
    "reason": "EnsuredLoadBalancer",
    "message": f"The load balancer has address {ADDRESS}",
    "lastTransitionTime": "2026-02-02T00:00:00Z",
}
FAILED: Final = replace(READY, status="False", reason="PoolExhausted", message="No free address")


def desired(**fields: Any) -> Desired:
    return Desired(NotManaged(), **fields)


PATCHES: dict[str, tuple[Service, Desired]] = {
    "one annotation of two": (service(annotations={"a": "1"}), desired(annotations={"a": "1", "b": ""})),
    "removed annotation": (service(annotations={"a": "1"}), desired(annotations={"a": None, "b": None})),
    "removed label": (service(labels={"a": "1"}), desired(labels={"a": None, "b": None, "c": "2"})),
    "kube-vip ignores the Service, unless another client set an address": (service(), desired(annotations=SUPPRESSED)),
    "kube-vip ignores the Service already": (
        service(annotations=SUPPRESSED),
        desired(annotations={**SUPPRESSED, "a": "1"}),
    ),
    "an annotation, unless the Service changed": (service(), desired(annotations={"a": "1"}, requires_version=True)),
    "removed status, unless the Service changed": (served(), desired(ingress=(), requires_version=True)),
    "no difference, unless the Service changed": (
        service(annotations={"a": "1"}),
        desired(annotations={"a": "1"}, requires_version=True),
    ),
    "kube-vip must not ignore a withdrawal": (served(), desired(annotations={KUBE_VIP_ADDRESSES: ""})),
    "finalizer next to others, unless they changed": (
        service(finalizers=["x/y"]),
        desired(finalizer=Finalizer.ADD),
    ),
    "finalizer that is present": (service(ours=True), desired(finalizer=Finalizer.ADD)),
    "finalizer that is kept": (service(), desired()),
    "removed finalizer": (service(finalizers=["x/y"], ours=True), desired(finalizer=Finalizer.REMOVE)),
    "removed finalizer that is absent": (service(finalizers=["x/y"]), desired(finalizer=Finalizer.REMOVE)),
    "status with all ports in order": (
        service(ports=PORTS),
        desired(ingress=virtual_ip_ingress(ADDRESS, service(ports=PORTS))),
    ),
    "removed status": (served(), desired(ingress=())),
    "removed status that is absent": (service(), desired(ingress=())),
}
WITH_CONDITION: dict[str, tuple[Service, Desired, ServiceCondition | None]] = {
    "no difference": (
        served(),
        desired(
            annotations={KUBE_VIP_ADDRESSES: ADDRESS},
            finalizer=Finalizer.ADD,
            ingress=virtual_ip_ingress(ADDRESS, service()),
        ),
        READY,
    ),
    "condition alone, whether the Service changed or not": (service(), desired(requires_version=True), READY),
    "first condition": (service(), desired(), READY),
    "another message keeps the time": (served(), desired(), replace(READY, message="x")),
    "another status": (served(), desired(), FAILED),
    "removed condition": (served(), desired(), None),
    "removed condition that is absent": (service(), desired(), None),
    "everything in one patch": (
        service(),
        desired(
            annotations={"a": "1"},
            labels={"b": "2"},
            finalizer=Finalizer.ADD,
            ingress=virtual_ip_ingress(ADDRESS, service()),
        ),
        READY,
    ),
}


def test_patch() -> None:
    patches = {name: service_patch(before, wanted) for name, (before, wanted) in PATCHES.items()}
    for name, (before, wanted, condition) in WITH_CONDITION.items():
        patches[name] = with_condition(service_patch(before, wanted), before, condition)
    assert differing("patches", {name: text_of(patch) for name, patch in patches.items()}) == []


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


@pytest.mark.parametrize(("ingress", "is_equal"), STATUSES.values(), ids=STATUSES.keys())
def test_status_is_written_if_it_differs(ingress: list[dict[str, Any]], *, is_equal: bool) -> None:
    wanted = desired(ingress=virtual_ip_ingress(ADDRESS, service()))
    assert (service_patch(service(status={"ingress": ingress}), wanted) == {}) is is_equal


SENT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing about finalizers": ({"status": {"x": 1}}, {"metadata": {"uid": UID}, "status": {"x": 1}}),
    "added finalizer": (
        {"metadata": {"finalizers": ["x/y", SERVICE_FINALIZER]}},
        {"metadata": {"uid": UID, "finalizers": ["x/y", SERVICE_FINALIZER]}},
    ),
    "removed finalizer": (
        {"metadata": {"finalizers": ["x/y"]}},
        {
            "metadata": {
                "uid": UID,
                "finalizers": ["x/y"],
                "$deleteFromPrimitiveList/finalizers": [SERVICE_FINALIZER],
            }
        },
    ),
}


@pytest.mark.parametrize(("patch", "sent"), SENT.values(), ids=SENT.keys())
def test_patch_is_only_for_the_service_with_this_uid(patch: dict[str, Any], sent: dict[str, Any]) -> None:
    assert sent_patch(service(), patch) == sent


def test_patch_of_a_plan_contains_its_condition() -> None:
    made = plan(WAITING, marked(ip=ADDRESS, pool="lan"), wall_time="2026-02-02T00:00:00Z")
    assert isinstance(made.write, PatchService)
    status: Any = made.write.patch["status"]
    assert status["conditions"] == [READY_DOCUMENT]


def test_withdrawal_says_in_the_same_patch_that_the_service_is_not_ready() -> None:
    made = plan(served(), marked(message=EXHAUSTED))
    assert isinstance(made.write, PatchService)
    status: Any = made.write.patch["status"]
    assert [(one["status"], one["reason"]) for one in status["conditions"]] == [("False", "PoolExhausted")]


def test_last_patch_removes_the_condition_of_a_service() -> None:
    made = plan(served(deleting=True, annotations=WITHDRAWN), allocated(deleting=True))
    assert isinstance(made.write, PatchService)
    assert made.write.releases
    status: Any = made.write.patch["status"]
    assert status["conditions"] == [{"$patch": "delete", "type": LOAD_BALANCER_READY}]


def test_condition_has_the_generation_of_the_service() -> None:
    changed = replace(service(), metadata=replace(service(ours=True).metadata, generation=4))
    condition = plan(changed, marked(ip=ADDRESS, pool="lan")).condition
    assert condition is not None
    assert condition.observed_generation == 4
