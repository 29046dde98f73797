"""A Service with an address from a pool, announced by kube-vip: from creation to everyday changes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from harvester_ccm.kube_vip_names import (
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_IGNORE,
    KUBE_VIP_INTERFACE,
    USER_IGNORE,
)
from harvester_ccm.model.core import Ingress, LoadBalancerStatus, ServiceStatus
from harvester_ccm.model.outcome import Done, Refused, Wait
from harvester_ccm.names import (
    IP_POOL,
    IPAM,
    LB_ASKED_AGAIN,
    LB_REQUESTED_NETWORK,
    LB_SERVICE_NAME,
    LB_SERVICE_UID,
    NETWORK,
    REQUESTED_ADDRESS,
    Reason,
)
from harvester_ccm.plan.service.load_balancer import new_load_balancer
from harvester_ccm.plan.service.request import read_request
from tests.unit.plan.service.plans import OURS, outline, plan, said, told
from tests.worlds.builders import ADDRESS, CLUSTER, LB_NAME, UID, allocated, load_balancer, marked, served, service

WITHDRAWN = {KUBE_VIP_ADDRESSES: ""}
TOUCH_LATER = Wait("endpoints")
WITHDRAWAL = {"service": {"annotations": {KUBE_VIP_ADDRESSES: ""}}}
HELD = {**WITHDRAWN, KUBE_VIP_IGNORE: "true"}
CREATE = {"create": LB_NAME, "workloadType": "cluster", "ipam": "pool"}
EXHAUSTED = "fail to get ip from pool lan, error: no IP addresses available in range set: 10.0.0.1-10.0.0.2"
NO_POOL = "no matched IPPool with requirement &{Network:infra/vlan9 Project: Namespace:vms Cluster:demo}"
STATUS = f"{ADDRESS} VIP 80/TCP"
NEW = Wait("not_processed", 30.0)


def waiting(**more: Any) -> Any:
    return service(annotations=HELD, ours=True, **more)


CREATIONS = {
    "a Service of type LoadBalancer": (
        {},
        [{"service": {"annotations": HELD, "finalizers": OURS}}, CREATE, "Normal EnsuringLoadBalancer"],
    ),
    "other finalizers stay": (
        {"finalizers": ["example.com/keep"]},
        [
            {"service": {"annotations": HELD, "finalizers": ["example.com/keep", *OURS]}},
            CREATE,
            "Normal EnsuringLoadBalancer",
        ],
    ),
    "a named pool": (
        {"annotations": {IP_POOL: "lab"}},
        [
            {"service": {"annotations": HELD, "finalizers": OURS}},
            {**CREATE, "ipPool": "lab"},
            "Normal EnsuringLoadBalancer",
        ],
    ),
    "an empty ipam annotation": (
        {"annotations": {IPAM: ""}},
        [{"service": {"annotations": HELD, "finalizers": OURS}}, CREATE, "Normal EnsuringLoadBalancer"],
    ),
    "an address that kube-vip announces already is remembered": (
        {"annotations": {KUBE_VIP_ADDRESSES: "192.168.100.7"}, "address": "192.168.100.7"},
        [
            {
                "service": {
                    "annotations": {REQUESTED_ADDRESS: "192.168.100.7"},
                    "finalizers": OURS,
                }
            },
            CREATE,
            "Normal EnsuringLoadBalancer",
        ],
    ),
    "an address written for kube-vip is remembered": (
        {"annotations": {KUBE_VIP_ADDRESSES: "192.168.100.7"}},
        [
            {"service": {"annotations": {REQUESTED_ADDRESS: "192.168.100.7"}, "finalizers": OURS}},
            CREATE,
            "Normal EnsuringLoadBalancer",
        ],
    ),
    "the field for the address says more than kube-vip's annotation": (
        {"annotations": {KUBE_VIP_ADDRESSES: "192.168.100.7"}, "spec": {"loadBalancerIP": "192.168.100.8"}},
        [{"service": {"finalizers": OURS}}, CREATE, "Normal EnsuringLoadBalancer"],
    ),
    "interrupted after the finalizer": (
        {"annotations": HELD, "ours": True},
        [CREATE, "Normal EnsuringLoadBalancer"],
    ),
    "kube-vip is told to ignore it by the user, which is kept": (
        {"annotations": {KUBE_VIP_IGNORE: "true"}},
        [
            {"service": {"annotations": {**WITHDRAWN, USER_IGNORE: "true"}, "finalizers": OURS}},
            CREATE,
            "Normal EnsuringLoadBalancer",
        ],
    ),
    "kube-vip is told to ignore it by the user, after a refused creation": (
        {"annotations": {**HELD, USER_IGNORE: "true"}, "ours": True},
        [CREATE, "Normal EnsuringLoadBalancer"],
    ),
    "interrupted after kube-vip withdrew what the user asked for": (
        {"annotations": WITHDRAWN, "ours": True, "spec": {"loadBalancerIP": "192.168.100.8"}},
        [CREATE, "Normal EnsuringLoadBalancer"],
    ),
}


@pytest.mark.parametrize(("made_of", "steps"), CREATIONS.values(), ids=CREATIONS.keys())
def test_creation(made_of: dict[str, Any], steps: list[object]) -> None:
    assert outline(service(**made_of)) == (steps, NEW)


def test_the_object_that_is_created() -> None:
    asked = service(annotations={NETWORK: "vlan9", "cloudprovider.harvesterhci.io/project": "c-1/p-1"})
    assert new_load_balancer(
        asked, read_request(asked), LB_NAME, CLUSTER, spec={"workloadType": "cluster", "ipam": "pool"}
    ) == {
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1",
        "kind": "LoadBalancer",
        "metadata": {
            "name": LB_NAME,
            "namespace": "vms",
            "labels": {
                "cloudprovider.harvesterhci.io/cluster": "demo",
                "cloudprovider.harvesterhci.io/serviceNamespace": "shop",
                "cloudprovider.harvesterhci.io/serviceName": "web",
            },
            "annotations": {
                "loadbalancer.harvesterhci.io/cluster": "demo",
                # Harvester compares it with the networks of its pools, which have a namespace.
                "loadbalancer.harvesterhci.io/network": "default/vlan9",
                # The Go provider compares it with the annotation as it is written.
                "cloudprovider.harvesterhci.io/lb-network": "vlan9",
                "loadbalancer.harvesterhci.io/project": "c-1/p-1",
                "loadbalancer.harvesterhci.io/namespace": "",
                "cloudprovider.harvesterhci.io/cluster-uid": "cluster-uid",
                "cloudprovider.harvesterhci.io/service-uid": UID,
            },
            # Harvester's controller need not add it, in a write of its own.
            "finalizers": ["wrangler.cattle.io/harvester-lb-controller"],
        },
        "spec": {"workloadType": "cluster", "ipam": "pool"},
    }


REFUSED = {
    "an unknown ipam": (
        {"annotations": {IPAM: "static"}},
        ["Warning InvalidAnnotation", {"service": {"annotations": HELD}}],
    ),
    "IPv6 only": (
        {"spec": {"ipFamilies": ["IPv6"]}},
        ["Warning SyncLoadBalancerFailed", {"service": {"annotations": HELD}}],
    ),
    "IPv6 only, with an address for kube-vip": (
        {"spec": {"ipFamilies": ["IPv6"]}, "annotations": {KUBE_VIP_ADDRESSES: "192.168.100.7"}},
        [
            "Warning SyncLoadBalancerFailed",
            {"service": {"annotations": {**WITHDRAWN, REQUESTED_ADDRESS: "192.168.100.7"}}},
        ],
    ),
}


@pytest.mark.parametrize(("made_of", "steps"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_served_is_told_and_does_not_stall_kube_vip(
    made_of: dict[str, Any], steps: list[object]
) -> None:
    assert outline(service(**made_of)) == (steps, Refused("not_servable"))


def test_ipv6_first_is_served_with_the_ipv4_address() -> None:
    made = plan(service(spec={"ipFamilies": ["IPv6", "IPv4"]}))
    assert told(made) == ["Warning SettingsIgnored", "Normal EnsuringLoadBalancer"]


PENDING = {
    "Harvester has not seen it": ({"finalizer": False}, 0.0, [], Wait("not_processed", 30.0)),
    "Harvester has not seen it for long": (
        {"finalizer": False},
        30.0,
        ["Warning AddressPending"],
        Wait("not_processed"),
    ),
    "no pool fits": ({"message": NO_POOL}, 0.0, ["Warning AddressPending"], Wait("no_matching_pool")),
    "the pool is used up": ({"message": EXHAUSTED}, 0.0, ["Warning AddressPending"], Wait("pool_exhausted")),
    "the pool does not exist": (
        {"message": "fail to get allocator lab"},
        0.0,
        ["Warning AddressPending"],
        Wait("no_such_pool"),
    ),
    "two load balancers wanted the pool at once": (
        {"message": "fail to get ip from pool lan, error: fail to reserve 10.0.0.1 into lan"},
        3.0,
        [],
        Wait("allocating", 27.0),
    ),
    "two load balancers wanted the pool at once, for long": (
        {"message": "fail to get ip from pool lan, error: fail to reserve 10.0.0.1 into lan"},
        31.0,
        ["Warning AddressPending"],
        Wait("allocating"),
    ),
    "something new": ({"message": "the moon is full"}, 0.0, ["Warning AddressPending"], Wait("other")),
}


@pytest.mark.parametrize(("made_of", "waited", "steps", "outcome"), PENDING.values(), ids=PENDING.keys())
def test_waiting_for_an_address(made_of: dict[str, Any], waited: float, steps: list[object], outcome: Wait) -> None:
    assert outline(waiting(), marked(**made_of), waited=waited) == (steps, outcome)


def test_host_name_that_somebody_wrote_stays_while_no_address_comes() -> None:
    named = LoadBalancerStatus(ingress=(Ingress(hostname="web.example.com"),))
    waits = replace(waiting(), status=ServiceStatus(load_balancer=named))
    assert outline(waits, marked(message=NO_POOL))[0] == outline(waiting(), marked(message=NO_POOL))[0]


ASKED = {LB_ASKED_AGAIN: "true"}
ANSWERS: dict[str, tuple[Any, list[object]]] = {
    "Harvester has not looked": (marked(), []),
    "Harvester is about to book": (
        marked(message="fail to get ip from pool lan, error: fail to reserve 10.0.0.1 into lan"),
        [],
    ),
    "Harvester has refused": (
        marked(message=EXHAUSTED),
        [{"write": LB_NAME, "closing_pool": "lan"}, "Warning AddressPending"],
    ),
    "Harvester has found none to refuse it": (
        marked(message="no matched IPPool"),
        [{"write": LB_NAME, "annotations": ASKED, "ask_again": True}, "Warning AddressPending"],
    ),
    "Harvester was asked again": (marked(annotations=ASKED), []),
    "Harvester has refused again": (
        marked(message="no matched IPPool", annotations=ASKED),
        [{"delete": LB_NAME}, "Warning AddressPending"],
    ),
    "Harvester has given an address meanwhile": (
        marked(ip=ADDRESS, pool="lan", annotations=ASKED),
        [
            "Warning ChangeRefused",
            {"service": {"annotations": {KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None}, "ingress": [STATUS]}},
            "Normal EnsuredLoadBalancer",
            {"write": LB_NAME, "annotations": {LB_ASKED_AGAIN: None}, "address": ADDRESS},
        ],
    ),
    "Harvester has given one of that pool meanwhile": (
        marked(ip=ADDRESS, pool="dmz", annotations=ASKED),
        [
            {"service": {"annotations": {KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None}, "ingress": [STATUS]}},
            "Normal EnsuredLoadBalancer",
            {"write": LB_NAME, "annotations": {LB_ASKED_AGAIN: None}, "address": ADDRESS},
        ],
    ),
    "it is closed": (marked(closed="lan"), []),
    "it is closed, and Harvester has seen that": (marked(closed="lan", message=""), [{"delete": LB_NAME}]),
}


@pytest.mark.parametrize(("found", "steps"), ANSWERS.values(), ids=ANSWERS.keys())
def test_it_is_made_anew_for_another_pool_once_harvester_books_in_none(found: Any, steps: list[object]) -> None:
    corrected = service(annotations={**HELD, IP_POOL: "dmz"}, ours=True)
    assert outline(corrected, found)[0] == steps


ASKED_FOR: dict[str, Any] = {
    "in the field": {"spec": {"loadBalancerIP": ADDRESS}},
    "of kube-vip": {"annotations": {KUBE_VIP_ADDRESSES: ADDRESS, REQUESTED_ADDRESS: ADDRESS}},
}
DECISIONS: dict[str, tuple[Any, float, list[object]]] = {
    "Harvester has not looked": (marked(), 0.0, []),
    "Harvester takes long": (marked(), 30.0, [{"service": {"annotations": WITHDRAWN}}, "Warning AddressPending"]),
    "no address left": (
        marked(message=EXHAUSTED),
        0.0,
        [{"service": {"annotations": WITHDRAWN}}, "Warning AddressPending"],
    ),
}


@pytest.mark.parametrize("made_of", ASKED_FOR.values(), ids=ASKED_FOR.keys())
@pytest.mark.parametrize(("found", "waited", "steps"), DECISIONS.values(), ids=DECISIONS.keys())
def test_kube_vip_announces_what_its_user_asked_for_until_harvester_has_decided(
    found: Any, waited: float, steps: list[object], made_of: dict[str, Any]
) -> None:
    assert outline(service(**made_of, ours=True), found, waited=waited)[0] == steps


@pytest.mark.parametrize("made_of", ASKED_FOR.values(), ids=ASKED_FOR.keys())
def test_what_kube_vip_announces_already_is_not_withdrawn_when_it_is_granted(made_of: dict[str, Any]) -> None:
    (given, *_), _ = outline(service(**made_of, ours=True), marked(ip=ADDRESS, pool="lan"))
    assert given == {"service": {"ingress": [STATUS]}}


def test_an_address_that_only_its_user_gave_was_not_lost_in_harvester() -> None:
    announced = service(spec={"loadBalancerIP": ADDRESS}, ours=True, address=ADDRESS)
    assert outline(announced)[0] == [CREATE, "Normal EnsuringLoadBalancer"]


def test_what_kube_vip_announced_by_itself_is_told_once() -> None:
    announced = service(spec={"loadBalancerIP": ADDRESS}, ours=True, address=ADDRESS)
    new = {"write": LB_NAME, "address": ADDRESS}
    assert outline(announced, marked(ip=ADDRESS, pool="lan"))[0] == ["Normal EnsuredLoadBalancer", new]
    assert outline(announced, allocated())[0] == []
    text = said(plan(announced, marked(ip=ADDRESS, pool="lan")), Reason.ENSURED)
    assert text == f"Ensured load balancer, address {ADDRESS}"


@pytest.mark.parametrize("announced", [None, "192.168.100.7"], ids=["not met by kube-vip", "met by kube-vip"])
def test_a_wish_that_comes_when_kube_vip_ignores_the_service_is_kept(announced: str | None) -> None:
    edited = service(annotations={**HELD, KUBE_VIP_ADDRESSES: "192.168.100.7"}, ours=True, address=announced)
    kept = {} if announced else {REQUESTED_ADDRESS: "192.168.100.7"}
    again = {"service": {"annotations": {**WITHDRAWN, KUBE_VIP_IGNORE: None, **kept}}}
    assert outline(edited, marked())[0] == [again]
    unallocated = ["Warning AddressNotBooked"] if announced else []
    assert outline(edited, marked(), waited=30.0)[0] == [again, "Warning AddressPending", *unallocated]


def test_a_waiting_service_whose_address_somebody_wrote_for_kube_vip_is_parked_again() -> None:
    edited = service(annotations={KUBE_VIP_ADDRESSES: "192.168.100.7"}, ours=True)
    assert outline(edited, marked(message=EXHAUSTED)) == (
        [{"service": {"annotations": {**WITHDRAWN, REQUESTED_ADDRESS: "192.168.100.7"}}}, "Warning AddressPending"],
        Wait("pool_exhausted"),
    )


GRANTED = {
    "first address": (
        waiting(),
        marked(ip=ADDRESS, pool="lan"),
        [
            {"service": {"annotations": {KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None}, "ingress": [STATUS]}},
            "Normal EnsuredLoadBalancer",
            {"write": LB_NAME, "address": ADDRESS},
        ],
    ),
    "first address, and kube-vip withdrew another before": (
        service(annotations=WITHDRAWN, ours=True),
        marked(ip=ADDRESS, pool="lan"),
        [
            {"service": {"annotations": {KUBE_VIP_ADDRESSES: ADDRESS}, "ingress": [STATUS]}, "touch": True},
            "Normal EnsuredLoadBalancer",
            {"write": LB_NAME, "address": ADDRESS},
        ],
    ),
    "first address, kept from kube-vip by the user": (
        service(annotations={**HELD, USER_IGNORE: "true"}, ours=True),
        marked(ip=ADDRESS, pool="lan"),
        [
            {"service": {"annotations": {KUBE_VIP_ADDRESSES: ADDRESS}, "ingress": [STATUS]}},
            "Normal EnsuredLoadBalancer",
            {"write": LB_NAME, "address": ADDRESS},
        ],
    ),
    "nothing to do": (served(), allocated(), []),
    "nothing to do on a server that stores no ipMode": (
        service(
            annotations={KUBE_VIP_ADDRESSES: ADDRESS},
            ours=True,
            status={"ingress": [{"ip": ADDRESS, "ports": [{"port": 80, "protocol": "TCP"}]}]},
        ),
        allocated(),
        [],
    ),
    "ports changed": (
        service(
            annotations={KUBE_VIP_ADDRESSES: ADDRESS},
            ours=True,
            ports=[{"port": 443, "nodePort": 30443}],
            status={"ingress": [{"ip": ADDRESS, "ipMode": "VIP", "ports": [{"port": 80, "protocol": "TCP"}]}]},
        ),
        allocated(),
        [{"service": {"ingress": [f"{ADDRESS} VIP 443/TCP"]}}],
    ),
    "a node port or a target changed": (
        served(ports=[{"port": 80, "protocol": "TCP", "nodePort": 31111}]),
        allocated(),
        [],
    ),
    "kube-vip's own annotations": (served(annotations={"kube-vip.io/vipHost": "node-1"}), allocated(), []),
    "the address changed": (
        served(),
        allocated(ip="192.168.100.21"),
        ["Warning AddressChanged", WITHDRAWAL],
    ),
    "somebody removed the finalizer": (
        service(annotations={KUBE_VIP_ADDRESSES: ADDRESS}, address=ADDRESS),
        allocated(),
        [{"service": {"finalizers": OURS}}],
    ),
    "somebody wrote another address for kube-vip": (
        served(annotations={KUBE_VIP_ADDRESSES: "192.168.100.7"}),
        allocated(),
        ["Warning AddressNotAsRequested", WITHDRAWAL],
    ),
    "somebody edited the labels of the load balancer": (
        served(),
        allocated(labels={LB_SERVICE_NAME: "other"}),
        [{"write": LB_NAME, "labels": {LB_SERVICE_NAME: "web"}}],
    ),
    "served by the Go provider until now": (
        served(),
        load_balancer(
            ip=ADDRESS,
            pool="lan",
            address=ADDRESS,
            labels=allocated().metadata.labels,
            annotations={"loadbalancer.harvesterhci.io/cluster": "demo", "loadbalancer.harvesterhci.io/project": "p"},
        ),
        [
            {
                "write": LB_NAME,
                "annotations": {"cloudprovider.harvesterhci.io/cluster-uid": "cluster-uid", LB_SERVICE_UID: UID},
            }
        ],
    ),
    "the load balancer vanished": (
        served(),
        None,
        [CREATE, "Warning RecreatingLoadBalancer"],
    ),
    "created again, and its pool has no address left": (
        served(),
        marked(message=EXHAUSTED),
        [{"service": {"annotations": WITHDRAWN, "ingress": None}}, "Warning AddressPending"],
    ),
    "created again, and no pool fits any more": (
        served(),
        marked(message=NO_POOL),
        [{"service": {"annotations": WITHDRAWN, "ingress": None}}, "Warning AddressPending"],
    ),
    "created again, and the pool is busy for a moment": (
        served(),
        marked(message="fail to get ip from pool lan, error: fail to reserve 10.0.0.1 into lan"),
        [],
    ),
}


@pytest.mark.parametrize(("asked", "found", "steps"), GRANTED.values(), ids=GRANTED.keys())
def test_a_service_that_has_or_had_an_address(asked: Any, found: Any, steps: list[object]) -> None:
    assert outline(asked, *([found] if found else []))[0] == steps


def test_a_hundred_served_services_are_silent_after_a_restart() -> None:
    for number in range(100):
        one = served(f"web-{number}", uid=f"uid-{number}")
        assert outline(one, allocated(one, f"any-{number}")) == ([], Done())


DEVICES = {
    "no network": ("", None, True, [], None),
    "known by now": ("infra/vlan9", {"infra/vlan9": "eth1"}, True, ["Warning NetworkDeviceChanged"], "eth1"),
    "bare name": ("vlan9", {"default/vlan9": "eth1"}, True, ["Warning NetworkDeviceChanged"], "eth1"),
    "no mapping": ("infra/vlan9", None, True, ["Warning NetworkDeviceUnknown"], None),
    "mapping not read yet": ("infra/vlan9", None, False, [], None),
    "not on all nodes": ("infra/vlan9", {"infra/other": "eth1"}, True, ["Warning NetworkDeviceUnknown"], None),
}


@pytest.mark.parametrize(("network", "devices", "known", "events", "device"), DEVICES.values(), ids=DEVICES.keys())
def test_device_of_an_address_that_is_announced(
    network: str, devices: dict[str, str] | None, known: bool, events: list[str], device: str | None
) -> None:
    asked = served(annotations={NETWORK: network})
    found = allocated(annotations={"cloudprovider.harvesterhci.io/lb-network": network})
    made = plan(asked, found, network_devices=devices, mapping_known=known)
    assert told(made) == events
    steps: list[object] = [*events]
    if device:
        steps.append({"service": {"annotations": {KUBE_VIP_INTERFACE: device}}})
    assert outline(asked, found, network_devices=devices, mapping_known=known) == (steps, Done())


@pytest.mark.parametrize("asked_for", ["", "infra/vlan8"], ids=["removed", "changed"])
def test_a_refused_change_of_the_network_does_not_move_the_address(asked_for: str) -> None:
    devices = {"infra/vlan8": "eth8", "infra/vlan9": "eth9"}
    found = allocated(annotations={LB_REQUESTED_NETWORK: "infra/vlan9"})
    network = {NETWORK: asked_for} if asked_for else {}
    kept = served(annotations={**network, KUBE_VIP_INTERFACE: "eth9"})
    assert outline(kept, found, network_devices=devices) == (["Warning ChangeRefused"], Done())
    moved = served(annotations={**network, KUBE_VIP_INTERFACE: "eth8"})
    back = {"service": {"annotations": {KUBE_VIP_INTERFACE: "eth9"}}}
    notes = ["Warning ChangeRefused", "Warning NetworkDeviceChanged"]
    assert outline(moved, found, network_devices=devices) == ([*notes, back], Done())


TOUCHES: dict[str, tuple[float, dict[str, Any], list[object], object]] = {
    "kube-vip has not had the time to see it": (0.6, {}, [], Wait("endpoints", 0.6)),
    "due": (0.0, {}, ["touch endpoints"], Done()),
    "the address is another one by now": (0.0, {"ip": "10.0.0.9"}, ["Warning AddressChanged", WITHDRAWAL], TOUCH_LATER),
    "Harvester has no address by now": (0.0, {"ip": "", "address": ""}, [], Wait("not_processed", 30.0)),
}


@pytest.mark.parametrize(("due_in", "found", "steps", "outcome"), TOUCHES.values(), ids=TOUCHES.keys())
def test_endpoints_are_touched_for_an_address_that_kube_vip_meets_again(
    due_in: float, found: dict[str, Any], steps: list[object], outcome: object
) -> None:
    assert outline(served(), allocated(**found), touch_at=due_in) == (steps, outcome)


GOING = {
    "just now": (0.0, {}, [], Wait("old_load_balancer", 30.0)),
    "for long": (31.0, {}, ["Warning AddressPending"], Wait("old_load_balancer")),
    "for long, under another name": (
        31.0,
        {"name": "older-shop-web-00000000"},
        [CREATE, "Normal EnsuringLoadBalancer"],
        NEW,
    ),
}


@pytest.mark.parametrize(("waited", "made_of", "steps", "outcome"), GOING.values(), ids=GOING.keys())
def test_a_load_balancer_that_is_being_deleted_is_waited_for(
    waited: float, made_of: dict[str, Any], steps: list[object], outcome: Wait
) -> None:
    assert outline(waiting(), marked(deleting=True, ip=ADDRESS, **made_of), waited=waited) == (steps, outcome)


def test_a_service_that_becomes_one_again_is_parked_while_its_old_load_balancer_goes() -> None:
    assert outline(service(), marked(deleting=True, ip=ADDRESS))[0] == [
        {"service": {"annotations": HELD, "finalizers": OURS}}
    ]
