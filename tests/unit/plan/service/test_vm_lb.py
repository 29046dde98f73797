"""A Service behind Harvester's own balancer: listeners, backends, health check, and kube-vip kept away."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES, KUBE_VIP_IGNORE
from harvester_ccm.model.core import ServiceCondition
from harvester_ccm.model.outcome import Done, Refused, Wait
from harvester_ccm.names import (
    HEALTH_CHECK_FAILURE_THRESHOLD,
    HEALTH_CHECK_PERIOD,
    HEALTH_CHECK_PORT,
    HEALTH_CHECK_SUCCESS_THRESHOLD,
    HEALTH_CHECK_TIMEOUT,
    LOAD_BALANCER_READY,
    PRIMARY_SERVICE,
    WORKLOAD_TYPE,
    Reason,
)
from tests.unit.plan.service.plans import OURS, outline, plan, said, told, writes
from tests.worlds.builders import ADDRESS, LB_NAME, marked, service

HANDS_OFF = {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}
VM = {WORKLOAD_TYPE: "vm"}
HTTP: dict[str, Any] = {"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}
DNS = {"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053}
LISTEN_HTTP: dict[str, Any] = {"name": "http", "port": 80, "protocol": "TCP", "backendPort": 30080}
LISTEN_DNS = {"name": "dns", "port": 53, "protocol": "UDP", "backendPort": 30053}
NODES = {"harvesterhci.io/vmName": ["vm-1", "vm-2"]}
DEFAULT_CHECK: dict[str, Any] = {
    "port": 30080,
    "successThreshold": 1,
    "failureThreshold": 3,
    "periodSeconds": 5,
    "timeoutSeconds": 3,
}
CHECK_31111 = {**DEFAULT_CHECK, "port": 31111}
SPEC = {"workloadType": "vm", "ipam": "pool", "listeners": [LISTEN_HTTP], "backendServerSelector": NODES}
CREATE = {"create": LB_NAME, **SPEC}
FIRST = {"service": {"annotations": HANDS_OFF, "finalizers": OURS}}
ALL_DOWN = "running backend servers are not probed as healthy total:2, healthy:0"


def asking(annotations: dict[str, str] | None = None, **more: Any) -> Any:
    return service(annotations={**VM, **(annotations or {})}, **{"ports": [HTTP], **more})


def hosted(annotations: dict[str, str] | None = None, **more: Any) -> Any:
    return asking({**HANDS_OFF, **(annotations or {})}, **{"ours": True, "address": ADDRESS, **more})


def balancer(spec: dict[str, Any] | None = None, **more: Any) -> Any:
    return marked(**{"spec": {**SPEC, **(spec or {})}, "ip": ADDRESS, "pool": "lan", "address": ADDRESS, **more})


CREATIONS = {
    "workload type vm": (asking(), [FIRST, CREATE, "Normal EnsuringLoadBalancer"]),
    "a health check": (
        service(annotations={HEALTH_CHECK_PORT: "80"}, ports=[HTTP]),
        [FIRST, {**CREATE, "healthCheck": DEFAULT_CHECK}, "Normal EnsuringLoadBalancer"],
    ),
    "a health check that cannot be is still served": (
        service(annotations={HEALTH_CHECK_PORT: "81"}, ports=[HTTP]),
        ["Warning InvalidAnnotation", FIRST, CREATE, "Normal EnsuringLoadBalancer"],
    ),
    "TCP and UDP": (
        asking(ports=[HTTP, DNS]),
        [FIRST, {**CREATE, "listeners": [LISTEN_HTTP, LISTEN_DNS]}, "Normal EnsuringLoadBalancer"],
    ),
    "TCP and UDP with one number and without names": (
        asking(
            ports=[
                {"name": "", "port": 53, "protocol": "TCP", "nodePort": 30053},
                {"name": "", "port": 53, "protocol": "UDP", "nodePort": 30053},
            ]
        ),
        [
            FIRST,
            {
                **CREATE,
                "listeners": [
                    {"name": "tcp-53", "port": 53, "protocol": "TCP", "backendPort": 30053},
                    {"name": "udp-53", "port": 53, "protocol": "UDP", "backendPort": 30053},
                ],
            },
            "Normal EnsuringLoadBalancer",
        ],
    ),
    "an address for kube-vip, which may be announcing it already": (
        asking({KUBE_VIP_ADDRESSES: "10.0.0.7"}),
        [
            {
                "service": {
                    "annotations": {
                        KUBE_VIP_ADDRESSES: "",
                        "cloudprovider.harvesterhci.io/requested-address": "10.0.0.7",
                    },
                    "finalizers": OURS,
                }
            },
            CREATE,
            "Normal EnsuringLoadBalancer",
        ],
    ),
    "a field with an address, which kube-vip may be announcing already": (
        asking(spec={"loadBalancerIP": "10.0.0.7"}),
        [
            {"service": {"annotations": {KUBE_VIP_ADDRESSES: ""}, "finalizers": OURS}},
            CREATE,
            "Normal EnsuringLoadBalancer",
        ],
    ),
}


@pytest.mark.parametrize(("asked", "steps"), CREATIONS.values(), ids=CREATIONS.keys())
def test_creation(asked: Any, steps: list[object]) -> None:
    assert outline(asked) == (steps, Wait("not_processed", 30.0))


def test_without_any_node_there_is_never_an_empty_list() -> None:
    (_, created, _), _ = outline(asking(), backends=())
    assert isinstance(created, dict)
    assert created["backendServerSelector"] == {"harvesterhci.io/vmName": ["no-node-of-this-cluster"]}


NOT_YET = {
    "node ports are not allocated": (asking(ports=[{"port": 80}]), {}, Wait("node_ports")),
    "the VMs are not known": (asking(), {"backends_known": False}, Wait("machines")),
}


@pytest.mark.parametrize(("asked", "more", "outcome"), NOT_YET.values(), ids=NOT_YET.keys())
def test_not_created_before_all_is_known(asked: Any, more: dict[str, Any], outcome: Wait) -> None:
    assert outline(asked, **more) == ([{"service": {"annotations": HANDS_OFF}}], outcome)


def test_without_node_ports_it_is_refused() -> None:
    asked = asking(ports=[{"port": 80}], spec={"allocateLoadBalancerNodePorts": False})
    assert outline(asked) == (
        ["Warning SyncLoadBalancerFailed", {"service": {"annotations": HANDS_OFF}}],
        Refused("not_servable"),
    )


COURSE = {
    "not seen by Harvester": (
        asking(HANDS_OFF, ours=True),
        balancer(ip="", address="", finalizer=False),
        2.0,
        [],
        Wait("not_processed", 28.0),
    ),
    "booked, kube-vip of Harvester has not announced it": (
        asking(HANDS_OFF, ours=True),
        balancer(address="", message="service is waiting for external IP"),
        2.0,
        [],
        Wait("announcing", 28.0),
    ),
    "kube-vip of Harvester does not announce it": (
        asking(HANDS_OFF, ours=True),
        balancer(address="", message="service is waiting for external IP"),
        30.0,
        ["Warning AddressPending"],
        Wait("announcing"),
    ),
    "has its address": (
        asking(HANDS_OFF, ours=True),
        balancer(),
        1.0,
        [{"service": {"ingress": [f"{ADDRESS} VIP 80/TCP"]}}, "Normal EnsuredLoadBalancer"],
        Done(),
    ),
    "nothing to do": (hosted(), balancer(), 1.0, [], Done()),
    "somebody removed kube-vip's mark": (
        asking({KUBE_VIP_ADDRESSES: ""}, ours=True, address=ADDRESS),
        balancer(),
        1.0,
        [{"service": {"annotations": {KUBE_VIP_IGNORE: "true"}}}],
        Done(),
    ),
    "somebody wrote an address for kube-vip, which may have caught it while it waited for one": (
        hosted({KUBE_VIP_ADDRESSES: "10.0.0.7"}),
        balancer(),
        1.0,
        [{"service": {"annotations": {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: None}}}],
        Done(),
    ),
    "another address": (
        hosted(),
        balancer(address="10.0.0.9"),
        1.0,
        [{"service": {"ingress": ["10.0.0.9 VIP 80/TCP"]}}, "Warning AddressChanged"],
        Done(),
    ),
    "created again": (hosted(), None, 5.0, [CREATE, "Warning RecreatingLoadBalancer"], Wait("not_processed", 30.0)),
}


@pytest.mark.parametrize(("asked", "found", "waited", "steps", "outcome"), COURSE.values(), ids=COURSE.keys())
def test_course(asked: Any, found: Any, waited: float, steps: list[object], outcome: object) -> None:
    assert outline(asked, *([found] if found else []), waited=waited) == (steps, outcome)


CHECKED = {"healthCheck": DEFAULT_CHECK}
CHECKED_80 = {HEALTH_CHECK_PORT: "80"}
CHANGES: dict[str, tuple[Any, Any, tuple[str, ...], object]] = {
    "a port more": (
        hosted(ports=[HTTP, DNS]),
        balancer(),
        ("vm-1", "vm-2"),
        {"listeners": [LISTEN_HTTP, LISTEN_DNS]},
    ),
    "another node port under a check, in one write": (
        hosted(CHECKED_80, ports=[{**HTTP, "nodePort": 31111}]),
        balancer(CHECKED),
        ("vm-1", "vm-2"),
        {"listeners": [{**LISTEN_HTTP, "backendPort": 31111}], "healthCheck": CHECK_31111},
    ),
    "all five numbers of the check": (
        hosted(
            {
                HEALTH_CHECK_PORT: "http",
                HEALTH_CHECK_SUCCESS_THRESHOLD: "2",
                HEALTH_CHECK_FAILURE_THRESHOLD: "4",
                HEALTH_CHECK_PERIOD: "6",
                HEALTH_CHECK_TIMEOUT: "7",
            }
        ),
        balancer(CHECKED),
        ("vm-1", "vm-2"),
        {
            "healthCheck": {
                "port": 30080,
                "successThreshold": 2,
                "failureThreshold": 4,
                "periodSeconds": 6,
                "timeoutSeconds": 7,
            }
        },
    ),
    "a node more": (
        hosted(),
        balancer(),
        ("vm-1", "vm-2", "vm-3"),
        {"backendServerSelector": {"harvesterhci.io/vmName": ["vm-1", "vm-2", "vm-3"]}},
    ),
    "somebody widened the selector": (
        hosted(),
        balancer({"backendServerSelector": {**NODES, "app": ["x"]}}),
        ("vm-1", "vm-2"),
        {"backendServerSelector": NODES},
    ),
    "the same check again": (hosted(CHECKED_80), balancer(CHECKED), ("vm-1", "vm-2"), None),
    "fields that only a newer Harvester knows": (
        hosted(CHECKED_80),
        balancer({"listeners": [{**LISTEN_HTTP, "weight": 3}], "healthCheck": {**DEFAULT_CHECK, "kind": "tcp"}}),
        ("vm-1", "vm-2"),
        None,
    ),
    "its node ports vanished": (hosted(ports=[{**HTTP, "nodePort": 0}]), balancer(), ("vm-1", "vm-2"), None),
}


@pytest.mark.parametrize(("asked", "found", "backends", "spec"), CHANGES.values(), ids=CHANGES.keys())
def test_listeners_check_and_backends_follow(asked: Any, found: Any, backends: tuple[str, ...], spec: object) -> None:
    steps = [step for step in outline(asked, found, backends=backends)[0] if isinstance(step, dict) and "write" in step]
    assert steps == ([{"write": LB_NAME, "spec": spec}] if spec else [])


def test_check_is_switched_off_with_its_annotation() -> None:
    (step,), _ = outline(hosted(), balancer(CHECKED))
    assert step == {"write": LB_NAME, "spec": {"healthCheck": None}}


def test_backends_are_left_alone_while_the_vms_are_not_known() -> None:
    assert outline(hosted(), balancer(), backends=("node-1",), backends_known=False) == ([], Done())


@pytest.mark.parametrize(
    ("strangers", "shown"),
    [
        pytest.param(("w7",), "w7: for", id="one"),
        pytest.param(tuple(f"w{n}" for n in range(1, 501)), "w1, w2, w3, w4, w5 and 495 more: for", id="many"),
    ],
)
def test_nodes_that_are_no_known_vm_are_told(strangers: tuple[str, ...], shown: str) -> None:
    made = plan(hosted(), balancer(), backends=("node-1",), stranger_nodes=strangers)
    assert said(made, Reason.NODES_WITHOUT_VM).startswith(f"Harvester sends no traffic to {shown} these nodes no VM in")
    waiting = plan(hosted(), balancer(ip="", address=""), backends=("node-1",), stranger_nodes=strangers)
    assert said(waiting, Reason.NODES_WITHOUT_VM) != "", "also while it has no address"
    unknown = plan(hosted(), balancer(), backends_known=False, stranger_nodes=strangers)
    assert said(unknown, Reason.NODES_WITHOUT_VM) == ""


SHARED = service(
    "api", ports=[{"name": "http", "port": 8080, "nodePort": 32080}], annotations={PRIMARY_SERVICE: "shop/web"}
)
CLASHING = service("old", ports=[{"port": 80, "nodePort": 32081}], annotations={PRIMARY_SERVICE: "shop/web"}, uid="o")


def test_listeners_of_those_who_share_the_address() -> None:
    (step,), _ = outline(hosted(), balancer(), secondaries_of_primary=(SHARED, CLASHING))
    shared = {"name": "tcp-8080", "port": 8080, "protocol": "TCP", "backendPort": 32080}
    assert step == {"write": LB_NAME, "spec": {"listeners": [LISTEN_HTTP, shared]}}


def down(message: str = ALL_DOWN, spec: dict[str, Any] | None = None) -> Any:
    return balancer({**CHECKED, **(spec or {})}, ip="", message=message, address=ADDRESS)


HEALTH: dict[str, tuple[Any, float, tuple[Reason, ...], dict[str, Any], list[str], object]] = {
    "the first checks are not over": (down(), 2.0, (), {}, [], Wait("backends", 16.0)),
    "all down": (down(), 18.0, (), {}, ["Warning BackendsUnhealthy"], Done()),
    "still all down": (down(), 2.0, (Reason.BACKENDS_UNHEALTHY,), {}, ["Warning BackendsUnhealthy"], Done()),
    "no VM has the label": (
        down("no running backend servers"),
        99.0,
        (),
        {},
        ["Warning BackendsUnhealthy"],
        Done(),
    ),
    "VMs without address": (
        down("running backend servers have no IP"),
        99.0,
        (),
        {},
        ["Warning BackendsUnhealthy"],
        Done(),
    ),
    "no node may get traffic": (
        down(
            "no running backend servers",
            {"backendServerSelector": {"harvesterhci.io/vmName": ["no-node-of-this-cluster"]}},
        ),
        0.0,
        (),
        {"backends": ()},
        ["Warning BackendsUnhealthy"],
        Done(),
    ),
    "up again": (balancer(CHECKED), 99.0, (Reason.BACKENDS_UNHEALTHY,), {}, ["Normal BackendsHealthy"], Done()),
    "another trouble hides them": (
        down("fail to update endpointslice, error: conflict"),
        99.0,
        (Reason.BACKENDS_UNHEALTHY,),
        {},
        ["Warning BackendsUnhealthy"],
        Done(),
    ),
    "up as ever": (balancer(CHECKED), 99.0, (), {}, [], Done()),
}


@pytest.mark.parametrize(("found", "waited", "before", "more", "events", "outcome"), HEALTH.values(), ids=HEALTH.keys())
def test_health_reaches_the_user(
    found: Any, waited: float, before: tuple[Reason, ...], more: dict[str, Any], events: list[str], outcome: object
) -> None:
    conditions = tuple(ServiceCondition(type=LOAD_BALANCER_READY, status="False", reason=str(one)) for one in before)
    asked = hosted(CHECKED_80)
    asked = structs.replace(asked, status=structs.replace(asked.status, conditions=conditions))
    made = plan(asked, found, waited=waited, **more)
    assert (told(made), made.outcome) == (events, outcome)


def test_backends_that_harvester_knows_are_told_with_the_address() -> None:
    found = balancer()
    assert found.status is not None
    status = structs.replace(found.status, backend_servers=("10.1.0.2", "10.1.0.1"))
    made = plan(asking(HANDS_OFF, ours=True), structs.replace(found, status=status))
    assert said(made, Reason.ENSURED) == f"Ensured load balancer, address {ADDRESS}, backends 10.1.0.1, 10.1.0.2"


def test_text_about_backends_names_them_and_never_guesses_single_ones() -> None:
    text = said(plan(hosted(CHECKED_80), down(), waited=99.0), Reason.BACKENDS_UNHEALTHY)
    assert ALL_DOWN in text
    assert "health check port" in text


def test_needless_writes_are_none() -> None:
    for found in (balancer(CHECKED), down()):
        assert writes(plan(hosted(CHECKED_80), found)) == []
