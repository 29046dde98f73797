"""From one kind of load balancer to the other: only when told so, step by step, with the same address."""

from __future__ import annotations

from typing import Any

import pytest

from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES, KUBE_VIP_IGNORE
from harvester_ccm.model.outcome import Done, Wait
from harvester_ccm.names import (
    HEALTH_CHECK_PORT,
    HEALTH_CHECK_SUCCESS_THRESHOLD,
    IP_POOL,
    IPAM,
    LB_TOUCH,
    PRIMARY_SERVICE,
    WORKLOAD_TYPE,
    Reason,
)
from tests.unit.plan.service.plans import outline, plan, said, told
from tests.worlds.builders import ADDRESS, LB_NAME, allocated, marked, served, service

HANDS_OFF = {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}
TO_VM = {WORKLOAD_TYPE: "vm"}
TO_CLUSTER = {WORKLOAD_TYPE: "cluster"}
LISTENERS = [{"name": "tcp-80", "port": 80, "protocol": "TCP", "backendPort": 30080}]
TLS = [{"name": "tcp-443", "port": 443, "protocol": "TCP", "backendPort": 30443}]
VM_SPEC = {"listeners": LISTENERS, "backendServerSelector": {"harvesterhci.io/vmName": ["vm-1", "vm-2"]}}
WITHDRAW = {"service": {"annotations": {KUBE_VIP_ADDRESSES: ""}}}
PIN = {IP_POOL: "vlan100"}
DELETE = {"delete": LB_NAME}
EXHAUSTED = "fail to get ip from pool lan, error: no IP addresses available in range set: 10.0.0.1-10.0.0.2"


def hosted(annotations: dict[str, str] | None = None, **more: Any) -> Any:
    return service(annotations={**HANDS_OFF, **(annotations or {})}, ours=True, address=ADDRESS, **more)


def vm_balancer(**more: Any) -> Any:
    return allocated(**{"spec": {"workloadType": "vm", **VM_SPEC}, **more})


START: dict[str, tuple[Any, Any, list[object], object]] = {
    "to vm": (
        served(annotations=TO_VM),
        allocated(),
        [
            "dry run",
            {"service": {"annotations": {**PIN, KUBE_VIP_ADDRESSES: ""}}},
            "Normal SwitchingLoadBalancer",
            DELETE,
        ],
        Wait("switching"),
    ),
    "to vm, withdrawn": (
        served(annotations={**TO_VM, **PIN, KUBE_VIP_ADDRESSES: ""}),
        allocated(),
        ["Normal SwitchingLoadBalancer", DELETE],
        Wait("switching"),
    ),
    "to vm, of a pool that the user named": (
        served(annotations={**TO_VM, IP_POOL: "lab"}),
        allocated(),
        ["dry run", WITHDRAW, "Normal SwitchingLoadBalancer", DELETE],
        Wait("switching"),
    ),
    "to cluster": (
        hosted(TO_CLUSTER),
        vm_balancer(),
        ["dry run", {"service": {"annotations": PIN}}, "Normal SwitchingLoadBalancer", DELETE],
        Wait("switching"),
    ),
    "what is wrong with the present one is mended first": (
        hosted(TO_CLUSTER, ports=[{"port": 443, "nodePort": 30443}]),
        vm_balancer(),
        [{"write": LB_NAME, "spec": {"listeners": TLS}}],
        Done(),
    ),
    "a lease": (
        hosted({**TO_CLUSTER, IPAM: "dhcp"}),
        vm_balancer(ip="0.0.0.0", pool="", spec={"workloadType": "vm", "ipam": "dhcp", **VM_SPEC}),
        ["dry run", "Normal SwitchingLoadBalancer", DELETE],
        Wait("switching"),
    ),
    "a load balancer that is not booked yet": (
        service(annotations={**TO_VM, KUBE_VIP_ADDRESSES: ""}, ours=True),
        marked(finalizer=False),
        [],
        Wait("booking", 30.0),
    ),
}


@pytest.mark.parametrize(("asked", "found", "steps", "outcome"), START.values(), ids=START.keys())
def test_the_old_one_is_withdrawn_and_deleted(asked: Any, found: Any, steps: list[object], outcome: object) -> None:
    assert outline(asked, found) == (steps, outcome)


UNTOUCHED: dict[str, tuple[Any, Any, list[str]]] = {
    "health check on a cluster load balancer": (
        served(annotations={HEALTH_CHECK_PORT: "80"}),
        allocated(),
        ["Warning SettingsIgnored"],
    ),
    "only a threshold on a cluster load balancer": (
        served(annotations={"cloudprovider.harvesterhci.io/healthcheck-periodseconds": "9"}),
        allocated(),
        ["Warning SettingsIgnored"],
    ),
    "health check removed from a VM load balancer": (hosted(), vm_balancer(), []),
    "the kind it has": (served(annotations=TO_CLUSTER), allocated(), []),
    "an unknown kind": (served(annotations={WORKLOAD_TYPE: "pod"}), allocated(), ["Warning InvalidAnnotation"]),
    "to vm, without node ports": (
        served(annotations=TO_VM, ports=[{"port": 80}], spec={"allocateLoadBalancerNodePorts": False}),
        allocated(),
        ["Warning SyncLoadBalancerFailed"],
    ),
    "to vm, and it has only IPv6 by now": (
        served(annotations=TO_VM, spec={"ipFamilies": ["IPv6"]}),
        allocated(),
        ["Warning SyncLoadBalancerFailed", "Warning SettingsIgnored"],
    ),
    "to vm, node ports not allocated yet": (served(annotations=TO_VM, ports=[{"port": 80}]), allocated(), []),
}


@pytest.mark.parametrize(("asked", "found", "events"), UNTOUCHED.values(), ids=UNTOUCHED.keys())
def test_nothing_is_switched_behind_the_users_back(asked: Any, found: Any, events: list[str]) -> None:
    assert outline(asked, found) == (events, Done())


def test_nothing_is_switched_before_the_vms_are_known() -> None:
    assert outline(served(annotations=TO_VM), allocated(), backends_known=False) == ([], Done())
    back, _ = outline(hosted(TO_CLUSTER), vm_balancer(), backends_known=False)
    assert "Normal SwitchingLoadBalancer" in back, "which is nothing to a cluster load balancer"


def test_the_event_says_how_to_get_health_checks() -> None:
    text = said(plan(served(annotations={HEALTH_CHECK_PORT: "80"}), allocated()), Reason.IGNORED)
    assert f"{WORKLOAD_TYPE} to vm" in text


def test_a_threshold_alone_is_no_advice_to_interrupt_the_traffic_for_nothing() -> None:
    text = said(plan(served(annotations={HEALTH_CHECK_SUCCESS_THRESHOLD: "2"}), allocated()), Reason.IGNORED)
    assert f"Annotation {HEALTH_CHECK_SUCCESS_THRESHOLD} has no effect" in text
    assert f"Set annotation {HEALTH_CHECK_PORT} to the port to check, and {WORKLOAD_TYPE} to vm" in text
    followed = {HEALTH_CHECK_SUCCESS_THRESHOLD: "2", HEALTH_CHECK_PORT: "80", WORKLOAD_TYPE: "vm"}
    assert "Normal SwitchingLoadBalancer" in told(plan(served(annotations=followed), allocated()))


IGNORE = {"service": {"annotations": {KUBE_VIP_IGNORE: "true"}}}
CREATE_VM = {"create": LB_NAME, "workloadType": "vm", "ipam": "pool", "ipPool": "vlan100", **VM_SPEC}
CREATE_CLUSTER = {"create": LB_NAME, "workloadType": "cluster", "ipam": "pool", "ipPool": "vlan100"}
PINNED_VM = {**TO_VM, **PIN, KUBE_VIP_ADDRESSES: ""}
DHCP = {IPAM: "dhcp"}
MIDDLE: dict[str, tuple[Any, Any, list[object], object]] = {
    "old one not gone": (
        served(annotations=PINNED_VM),
        allocated(deleting=True),
        [],
        Wait("old_load_balancer", 30.0),
    ),
    "to vm": (
        served(annotations=PINNED_VM),
        None,
        [CREATE_VM, "Normal EnsuringLoadBalancer"],
        Wait("not_processed", 30.0),
    ),
    "to cluster": (
        hosted({**TO_CLUSTER, **PIN}),
        None,
        [CREATE_CLUSTER, "Normal EnsuringLoadBalancer"],
        Wait("not_processed", 30.0),
    ),
    "a lease ends with its load balancer": (
        hosted({**TO_CLUSTER, **DHCP}),
        None,
        [{"service": {"ingress": None}}],
        Wait("switching"),
    ),
    "to cluster, with DHCP": (
        service(annotations={**TO_CLUSTER, **DHCP, **HANDS_OFF}, ours=True),
        None,
        [{"create": LB_NAME, "workloadType": "cluster", "ipam": "dhcp"}, "Normal EnsuringLoadBalancer"],
        Wait("not_processed", 30.0),
    ),
    "thought better of it": (
        served(annotations={**TO_CLUSTER, **PIN, KUBE_VIP_ADDRESSES: ""}),
        None,
        [CREATE_CLUSTER, "Warning RecreatingLoadBalancer"],
        Wait("not_processed", 30.0),
    ),
}


@pytest.mark.parametrize(("asked", "found", "steps", "outcome"), MIDDLE.values(), ids=MIDDLE.keys())
def test_the_new_one_is_created_when_the_old_one_is_gone(
    asked: Any, found: Any, steps: list[object], outcome: object
) -> None:
    assert outline(asked, *([found] if found else [])) == (steps, outcome)


TOUCHED = {LB_TOUCH: "true"}
END: dict[str, tuple[Any, Any, float, list[object], object]] = {
    "vm, same address": (
        hosted(TO_VM),
        vm_balancer(annotations=TOUCHED),
        2.0,
        ["Normal EnsuredLoadBalancer"],
        Wait("touch", 8.0),
    ),
    "vm, another address": (
        hosted(TO_VM),
        vm_balancer(annotations=TOUCHED, address="10.0.0.9"),
        2.0,
        [{"service": {"ingress": ["10.0.0.9 VIP 80/TCP"]}}, "Warning AddressChanged"],
        Wait("touch", 8.0),
    ),
    "vm, touched again some seconds later": (
        hosted(TO_VM),
        vm_balancer(annotations=TOUCHED),
        10.0,
        [{"write": LB_NAME, "annotations": {LB_TOUCH: None}}, "Normal EnsuredLoadBalancer"],
        Done(),
    ),
    "vm, and refused an address: none of its parts can be there yet": (
        service(annotations={**HANDS_OFF, **TO_VM}, ours=True),
        marked(annotations=TOUCHED, spec={"workloadType": "vm", **VM_SPEC}, message=EXHAUSTED),
        60.0,
        ["Warning AddressPending"],
        Wait("pool_exhausted"),
    ),
    "cluster, same address": (
        served(annotations={**TO_CLUSTER, **PIN, KUBE_VIP_ADDRESSES: ""}),
        allocated(address=""),
        2.0,
        [
            {"service": {"annotations": {KUBE_VIP_ADDRESSES: ADDRESS}}, "touch": True},
            "Normal EnsuredLoadBalancer",
            {"write": LB_NAME, "address": ADDRESS},
        ],
        Wait("endpoints", 1.0),
    ),
}


@pytest.mark.parametrize(("asked", "found", "waited", "steps", "outcome"), END.values(), ids=END.keys())
def test_it_is_said_when_the_new_one_serves(
    asked: Any, found: Any, waited: float, steps: list[object], outcome: object
) -> None:
    assert outline(asked, found, waited=waited) == (steps, outcome)


def test_every_new_vm_load_balancer_is_touched_again() -> None:
    plans = (plan(one).steps for one in (served(annotations=PINNED_VM), service(annotations=TO_VM), service()))
    touched = [LB_TOUCH in str(step) for steps in plans for step in steps if "body" in repr(step)]
    assert touched == [True, True, False]


SECONDARY = served("api", uid="api", annotations={PRIMARY_SERVICE: "shop/web"})
WITHDRAWN = served("api", uid="api", annotations={PRIMARY_SERVICE: "shop/web", KUBE_VIP_ADDRESSES: ""})


def test_secondaries_withdraw_before_the_address_goes() -> None:
    asked = served(annotations=TO_VM)
    waiting, outcome = outline(asked, allocated(), own_secondaries=(SECONDARY,))
    assert waiting == ["dry run", {"service": {"annotations": {**PIN, KUBE_VIP_ADDRESSES: ""}}}]
    assert outcome == Wait("secondaries", 5.0)
    assert "Normal SwitchingLoadBalancer" in told(plan(asked, allocated(), own_secondaries=(WITHDRAWN,)))


@pytest.mark.parametrize("wish", [TO_VM, TO_CLUSTER])
def test_what_a_wrong_primary_would_not_let_be_created_again_stays(wish: dict[str, str]) -> None:
    wrong = {**wish, PRIMARY_SERVICE: "shop/nobody"}
    present = (served(annotations=wrong), allocated()) if wish is TO_VM else (hosted(wrong), vm_balancer())
    steps, _ = outline(*present)
    assert "Warning SharingRefused" in steps
    assert DELETE not in steps


def test_a_vm_load_balancer_is_switched_whatever_touch_was_due_before_it() -> None:
    for touch_at in (-60.0, 0.5):
        steps, _ = outline(hosted(TO_CLUSTER), vm_balancer(), touch_at=touch_at)
        assert DELETE in steps
