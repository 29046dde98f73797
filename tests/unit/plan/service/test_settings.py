"""Annotations and fields that users set: their effect, and the Warnings about those without the requested effect."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harvester_ccm.model.outcome import Done, Refused, WaitReason
from harvester_ccm.names import (
    DESCRIPTION,
    HEALTH_CHECK_FAILURE_THRESHOLD,
    HEALTH_CHECK_PERIOD,
    HEALTH_CHECK_PORT,
    HEALTH_CHECK_SUCCESS_THRESHOLD,
    HEALTH_CHECK_TIMEOUT,
    IP_POOL,
    IPAM,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_INTERFACE,
    LB_REQUESTED_NETWORK,
    NETWORK,
    PREFIX,
    PRIMARY_SERVICE,
    REQUESTED_ADDRESS,
    SERVICE_ANNOTATIONS,
    WORKLOAD_TYPE,
    Reason,
)
from tests.unit.plan.service.plans import messages, outline, plan, reasons, snapshot_of
from tests.worlds.builders import ADDRESS, SUPPRESSED, allocated, marked, served, service

PORTS = (
    {"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080},
    {"name": "30080", "port": 8080, "protocol": "TCP", "nodePort": 30081},
    {"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053},
    {"name": "dns-tcp", "port": 53, "protocol": "TCP", "nodePort": 30054},
    {"name": "plain", "port": 9000, "protocol": "TCP"},
)
VM = {WORKLOAD_TYPE: "vm"}
CLUSTER_LB = {WORKLOAD_TYPE: "cluster"}
PROJECT, POOL_NAMESPACE = f"{PREFIX}project", f"{PREFIX}namespace"
ROWS: dict[str, tuple[dict[str, Any], dict[str, object]]] = {
    "nothing": ({}, {"ipam": "pool", "workload_type": None, "network": "", "address": "", "primary": None}),
    "values with blanks": ({IPAM: " dhcp ", WORKLOAD_TYPE: "vm "}, {"ipam": "dhcp", "workload_type": "vm"}),
    "empty values": ({IPAM: "", WORKLOAD_TYPE: ""}, {"ipam": "pool", "workload_type": None}),
    "cluster": ({WORKLOAD_TYPE: "cluster"}, {"workload_type": "cluster", "wants_vm": False}),
    "invalid values": ({IPAM: "DHCP", WORKLOAD_TYPE: "pod"}, {"ipam": None, "workload_type": None}),
    "network": ({NETWORK: " infra/vlan9 "}, {"network": "infra/vlan9"}),
    "network without namespace": ({NETWORK: "vlan9"}, {"network": "default/vlan9"}),
    "IP pool": ({IP_POOL: " lab "}, {"ip_pool": "lab"}),
    "primary": ({PRIMARY_SERVICE: " shop/web "}, {"primary": "shop/web"}),
    "empty primary": ({PRIMARY_SERVICE: " "}, {"primary": None}),
    "requested address": ({REQUESTED_ADDRESS: " 10.0.0.7 "}, {"address": "10.0.0.7"}),
    "address annotation of kube-vip": ({KUBE_VIP_ADDRESSES: "10.0.0.7"}, {"address": "10.0.0.7"}),
    "DHCP of kube-vip": ({KUBE_VIP_ADDRESSES: "0.0.0.0", IPAM: "dhcp"}, {"address": ""}),
    "health check": ({HEALTH_CHECK_PORT: "80"}, {"wants_vm": True}),
    "health check and cluster": ({HEALTH_CHECK_PORT: "80", WORKLOAD_TYPE: "cluster"}, {"wants_vm": False}),
}


@pytest.mark.parametrize(("annotations", "expected"), ROWS.values(), ids=ROWS.keys())
def test_annotations(annotations: dict[str, str], expected: dict[str, object]) -> None:
    request = snapshot_of(service(annotations=annotations, ports=PORTS)).request
    assert {name: getattr(request, name) for name in expected} == expected


def test_field_precedes_the_annotation_and_an_announced_address_is_no_request() -> None:
    both = service(spec={"loadBalancerIP": "10.0.0.8"}, annotations={KUBE_VIP_ADDRESSES: "10.0.0.7"})
    invalid_field = service(spec={"loadBalancerIP": "x"}, annotations={REQUESTED_ADDRESS: "10.0.0.7"})
    found = [snapshot_of(one).request.address for one in (both, invalid_field, served())]
    assert found == ["10.0.0.8", "10.0.0.7", ""]


HEALTH_CHECK_PORTS: dict[str, tuple[str, int | None]] = {
    "number of a port": ("80", 30080),
    "name of a port": ("http", 30080),
    "node port": ("30054", 30054),
    "name that is also a node port": ("30080", 30081),
    "number with TCP and UDP": ("53", 30054),
    "name of a UDP port": ("dns", None),
    "node port of a UDP port": ("30053", None),
    "port without a node port": ("9000", None),
    "unknown port": ("81", None),
    "empty": (" ", None),
}


@pytest.mark.parametrize(("value", "node_port"), HEALTH_CHECK_PORTS.values(), ids=HEALTH_CHECK_PORTS.keys())
def test_health_check_port(value: str, node_port: int | None) -> None:
    request = snapshot_of(service(annotations={HEALTH_CHECK_PORT: value}, ports=PORTS)).request
    assert (request.health_check and request.health_check.port) == node_port
    assert bool(request.problems) is (node_port is None)


THRESHOLDS = {
    HEALTH_CHECK_SUCCESS_THRESHOLD: ("success_threshold", 1),
    HEALTH_CHECK_FAILURE_THRESHOLD: ("failure_threshold", 3),
    HEALTH_CHECK_PERIOD: ("period_seconds", 5),
    HEALTH_CHECK_TIMEOUT: ("timeout_seconds", 3),
}


@pytest.mark.parametrize(
    "value", ["0", "-1", "1.5", "five", "", "86401", "٣", "1e3", "0" * 5000], ids=lambda text: repr(text[:9])
)
@pytest.mark.parametrize("key", THRESHOLDS)
def test_invalid_threshold_is_replaced_by_its_default(key: str, value: str) -> None:
    found = snapshot_of(service(annotations={HEALTH_CHECK_PORT: "80", key: value}))
    field, default = THRESHOLDS[key]
    assert getattr(found.request.health_check, field) == default
    (event,) = found.request.problems
    assert key in event.message
    assert f"{default} is used" in event.message[:1024]


@given(values=st.fixed_dictionaries(dict.fromkeys(THRESHOLDS, st.integers(1, 86400))))
def test_valid_thresholds(values: dict[str, int]) -> None:
    annotations = {key: f" {value}" for key, value in values.items()}
    request = snapshot_of(service(annotations={HEALTH_CHECK_PORT: "http", **annotations}, ports=PORTS)).request
    assert request.problems == ()
    assert {key: getattr(request.health_check, THRESHOLDS[key][0]) for key in THRESHOLDS} == values


NO_NODE_PORTS: dict[str, Any] = {"spec": {"allocateLoadBalancerNodePorts": False}, "ports": [{"port": 80}]}
SOME_NODE_PORTS: dict[str, Any] = {
    "spec": {"allocateLoadBalancerNodePorts": False},
    "ports": [{"port": 80, "nodePort": 30080}, {"port": 81}],
}
DUAL = {"ipFamilies": ["IPv4", "IPv6"]}
INVALID = Reason.INVALID_ANNOTATION
IGNORED = Reason.IGNORED
UNSUPPORTED = Reason.SYNC_FAILED
NEW: dict[str, tuple[dict[str, Any], str, str]] = {
    "plain": ({}, "", ""),
    "ipam": ({"annotations": {IPAM: "DHCP"}}, INVALID, f"Annotation {IPAM} is 'DHCP'; expected pool or dhcp"),
    "DHCP requested from kube-vip only": (
        {"annotations": {KUBE_VIP_ADDRESSES: "0.0.0.0"}},
        INVALID,
        f"set annotation {IPAM} to dhcp",
    ),
    "IPv6 address": (
        {"spec": {"loadBalancerIP": "2001:db8::1"}},
        INVALID,
        "spec.loadBalancerIP is '2001:db8::1'; expected one IPv4",
    ),
    "two addresses": (
        {"annotations": {KUBE_VIP_ADDRESSES: "10.0.0.7,10.0.0.8"}},
        INVALID,
        "expected one IPv4 address",
    ),
    "leading zeros": ({"annotations": {REQUESTED_ADDRESS: "10.0.0.07"}}, INVALID, "expected one IPv4 address"),
    "health check port": (
        {"annotations": {HEALTH_CHECK_PORT: "81"}, "ports": PORTS},
        INVALID,
        "there are 80 (http), 8080 (30080), 53 (dns-tcp). Nodes are not checked until then",
    ),
    "only UDP": ({"annotations": {HEALTH_CHECK_PORT: "53"}, "ports": [PORTS[2]]}, INVALID, "there are none"),
    "unknown annotation": (
        {"annotations": {f"{PREFIX}healthcheck-prot": "x"}},
        IGNORED,
        f"{PREFIX}healthcheck-prot (did you mean {PREFIX}healthcheck-port?)",
    ),
    "unknown annotation, part of a name": (
        {"annotations": {f"{PREFIX}pool": "x"}},
        IGNORED,
        f"{PREFIX}pool (did you mean {PREFIX}ip-pool?)",
    ),
    "unknown annotations, unlike any": (
        {"annotations": {f"{PREFIX}z-z-z": "x", f"{PREFIX}y-y-y": "x"}},
        IGNORED,
        f"no effect: {PREFIX}y-y-y, {PREFIX}z-z-z",
    ),
    "IPv6 only": (
        {"spec": {"ipFamilies": ["IPv6"]}},
        UNSUPPORTED,
        "has no IPv4. Set spec.ipFamilyPolicy to PreferDualStack",
    ),
    "no node ports, kube-vip": (NO_NODE_PORTS, "", ""),
    "no node ports, VM load balancer": (
        {**NO_NODE_PORTS, "annotations": VM},
        UNSUPPORTED,
        "allocateLoadBalancerNodePorts is false",
    ),
    "some node ports, VM load balancer": ({**SOME_NODE_PORTS, "annotations": VM}, IGNORED, "ports 81/TCP"),
    "kube-proxy implements these": (
        {"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"], "sessionAffinity": "ClientIP"}},
        "",
        "",
    ),
    "source ranges": (
        {"annotations": VM, "spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}},
        IGNORED,
        "spec.loadBalancerSourceRanges",
    ),
    "session affinity": (
        {"annotations": VM, "spec": {"sessionAffinity": "ClientIP"}},
        IGNORED,
        "spec.sessionAffinity ClientIP",
    ),
    "local traffic policy": (
        {"annotations": VM, "spec": {"externalTrafficPolicy": "Local"}},
        IGNORED,
        "externalTrafficPolicy Local",
    ),
    "dual stack": ({"spec": DUAL}, IGNORED, "IPv6 of spec.ipFamilies"),
    "dual stack preferred": (
        {"spec": {**DUAL, "ipFamilyPolicy": "PreferDualStack"}},
        IGNORED,
        "IPv6 of spec.ipFamilyPolicy PreferDualStack",
    ),
    "dual stack required": (
        {"spec": {**DUAL, "ipFamilyPolicy": "RequireDualStack"}},
        UNSUPPORTED,
        "spec.ipFamilyPolicy",
    ),
    "dual stack preferred in a cluster with one family": (
        {"spec": {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "PreferDualStack"}},
        "",
        "",
    ),
    "network of a VM load balancer": (
        {"annotations": {**VM, NETWORK: "infra/vlan9"}},
        IGNORED,
        "cannot be reached",
    ),
    "pool and DHCP": ({"annotations": {IPAM: "dhcp", IP_POOL: "lab"}}, IGNORED, IP_POOL),
    "threshold without a port": ({"annotations": {HEALTH_CHECK_PERIOD: "9", **VM}}, IGNORED, HEALTH_CHECK_PORT),
    "health check and cluster": (
        {"annotations": {HEALTH_CHECK_PORT: "80", **CLUSTER_LB}},
        IGNORED,
        "health checks need a VM load balancer",
    ),
}


@pytest.mark.parametrize(("fields", "reason", "text"), NEW.values(), ids=NEW.keys())
def test_warning_for_a_new_service(fields: dict[str, Any], reason: str, text: str) -> None:
    found = plan(service(**fields))
    assert text in "\n".join(messages(found, reason))
    assert bool(messages(found)) is bool(reason)


def test_all_mistakes_are_reported_at_once() -> None:
    annotations = {IPAM: "x", WORKLOAD_TYPE: "y", HEALTH_CHECK_PORT: "z", PREFIX + "q-q-q": "", REQUESTED_ADDRESS: "?"}
    assert len(messages(plan(service(annotations=annotations)))) == 5


def test_event_about_thousands_of_unknown_annotations_is_short() -> None:
    (text,) = messages(plan(service(annotations={f"{PREFIX}healthcheck-prt-{number}": "80" for number in range(4000)})))
    assert text.count("did you mean") == 5
    assert text.endswith(" and 3995 more")
    assert len(text) <= 1024


def test_known_annotations_and_those_of_others_are_not_reported() -> None:
    others = {"kube-vip.io/vipHost": "node-1", "example.com/x": "y"}
    found = plan(service(annotations={**dict.fromkeys(SERVICE_ANNOTATIONS, ""), **others}))
    assert messages(found, IGNORED) == []


def test_only_a_new_service_that_requires_both_families_gets_no_address() -> None:
    required: dict[str, Any] = {"spec": {**DUAL, "ipFamilyPolicy": "RequireDualStack"}}
    assert plan(service(**required)).outcome == Refused(WaitReason.UNSUPPORTED)
    assert not isinstance(plan(served(**required), allocated()).outcome, Refused)
    # Another client emptied the status.
    assert not isinstance(plan(served(**required, address=None)).outcome, Refused)


IMMUTABLE = Reason.IMMUTABLE
OTHERWISE = Reason.ADDRESS_NOT_AS_REQUESTED
EXISTING: dict[str, tuple[dict[str, Any], dict[str, Any], str, list[str]]] = {
    "plain": ({}, {}, "", []),
    "ipam": ({IPAM: "dhcp"}, {}, IMMUTABLE, [IPAM, "'dhcp'", "'pool'", "Set the annotation back"]),
    "network added": ({NETWORK: "infra/new"}, {}, IMMUTABLE, ["'infra/new'", "without one", "Remove the annotation"]),
    "network changed": (
        {NETWORK: "infra/new"},
        {"annotations": {LB_REQUESTED_NETWORK: "infra/old"}},
        IMMUTABLE,
        ["'infra/new'", "'infra/old'"],
    ),
    "network removed": (
        {},
        {"annotations": {LB_REQUESTED_NETWORK: "infra/old"}},
        IMMUTABLE,
        ["was removed", "'infra/old'"],
    ),
    "pool": ({IP_POOL: "other"}, {}, IMMUTABLE, [IP_POOL, "'other'", "'vlan100'"]),
    "the allocated pool": ({IP_POOL: "vlan100"}, {}, "", []),
    "another address": ({REQUESTED_ADDRESS: "10.0.0.7"}, {}, OTHERWISE, ["10.0.0.7", ADDRESS]),
    "the requested address": ({REQUESTED_ADDRESS: ADDRESS}, {}, "", []),
    "description": ({DESCRIPTION: "shop"}, {"spec": {"description": "shop"}}, "", []),
}


@pytest.mark.parametrize(("annotations", "fields", "reason", "texts"), EXISTING.values(), ids=EXISTING.keys())
def test_warning_for_a_load_balancer_with_an_address(
    annotations: dict[str, str], fields: dict[str, Any], reason: str, texts: list[str]
) -> None:
    asked = served(annotations={**annotations, KUBE_VIP_INTERFACE: "eth1"})
    found = messages(plan(asked, allocated(**fields)), reason)
    assert len(found) == bool(reason)
    assert all(text in found[0] for text in texts)


def test_obstacle_that_appears_later_is_reported_and_the_address_stays() -> None:
    asked = service(annotations=SUPPRESSED, ours=True, address=ADDRESS, **NO_NODE_PORTS)
    found = plan(asked, allocated(spec={"workloadType": "vm"}))
    assert (reasons(found), found.outcome) == (["Warning SyncLoadBalancerFailed", "Warning SettingsIgnored"], Done())


@pytest.mark.parametrize(("policy", "warned"), [("Local", True), ("Cluster", False)])
def test_local_traffic_policy_with_kube_vip_names_the_setting_of_kube_vip(policy: str, *, warned: bool) -> None:
    found = messages(plan(served(spec={"externalTrafficPolicy": policy}), allocated()))
    assert ["svc_election" in text for text in found] == [True] * warned


@pytest.mark.parametrize("ip", [ADDRESS, "0.0.0.0"])
@pytest.mark.parametrize(
    ("fields", "known", "events", "write"),
    [
        ({"annotations": SUPPRESSED}, False, [], None),
        ({"annotations": SUPPRESSED}, True, ["Warning NetworkDeviceUnknown"], None),
        ({}, True, ["Warning NetworkDeviceUnknown"], {"annotations": SUPPRESSED}),
        # After a switch from a VM load balancer.
        ({"annotations": SUPPRESSED, "address": ADDRESS}, True, ["Warning NetworkDeviceUnknown"], None),
    ],
)
def test_address_is_not_announced_before_its_device_is_known(
    fields: dict[str, Any], *, known: bool, events: list[str], write: object, ip: str
) -> None:
    annotations = {NETWORK: "infra/vlan9", **fields.get("annotations", {})}
    asked = service(ours=True, **{**fields, "annotations": annotations})
    found = marked(annotations={LB_REQUESTED_NETWORK: "infra/vlan9"}, ip=ip, pool="vlan100")
    made = outline(asked, found, network_devices={"infra/other": "eth1"} if known else None)
    assert (made[0], made[1], getattr(made[2], "reason", None)) == (events, write, WaitReason.NETWORK_DEVICE)


DEVICES: dict[str, tuple[dict[str, str], bool, list[str]]] = {
    "device of the annotation": ({KUBE_VIP_INTERFACE: "bond7"}, False, ["on bond7: no device is known"]),
    "device that is not published any more": ({KUBE_VIP_INTERFACE: "eth9"}, True, ["on eth9: "]),
    "no device any more": ({}, True, ["on its default device: ", "they have one in infra/other"]),
}


@pytest.mark.parametrize(("annotations", "published", "texts"), DEVICES.values(), ids=DEVICES.keys())
def test_announced_address_without_a_published_device_is_reported(
    annotations: dict[str, str], *, published: bool, texts: list[str]
) -> None:
    asked = served(annotations={NETWORK: "infra/vlan9", **annotations})
    devices = {"infra/other": "eth1"} if published else {}
    found = plan(asked, allocated(annotations={LB_REQUESTED_NETWORK: "infra/vlan9"}), network_devices=devices)
    (message,) = messages(found, Reason.NO_DEVICE)
    assert all(text in message for text in texts)
    assert found.outcome == Done()
