"""What users write on a Service: what it means, and what is said about what means nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harvester_ccm.names import (
    HEALTH_CHECK_FAILURE_THRESHOLD,
    HEALTH_CHECK_PERIOD,
    HEALTH_CHECK_PORT,
    HEALTH_CHECK_SUCCESS_THRESHOLD,
    HEALTH_CHECK_TIMEOUT,
    IP_POOL,
    IPAM,
    KUBE_VIP_ADDRESSES,
    NETWORK,
    PREFIX,
    PRIMARY_SERVICE,
    REQUESTED_ADDRESS,
    SERVICE_ANNOTATIONS,
    WORKLOAD_TYPE,
    Reason,
)
from harvester_ccm.plan.service.request import (
    MOST_UNKNOWN,
    health_check_port,
    normal_network,
    primary_reference,
    read_request,
    unknown_annotations,
)
from tests.worlds.builders import ADDRESS, service

PORTS = (
    {"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080},
    {"name": "30080", "port": 8080, "protocol": "TCP", "nodePort": 30081},
    {"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053},
    {"name": "dns-tcp", "port": 53, "protocol": "TCP", "nodePort": 30054},
    {"name": "plain", "port": 9000, "protocol": "TCP"},
)


def problems(**made_of: Any) -> list[str]:
    request = read_request(service(**made_of))
    return [note.message for note in (*request.problems, request.unknown) if note is not None]


CHOICES: dict[str, tuple[dict[str, str], str | None, str | None]] = {
    "nothing": ({}, "pool", None),
    "pool": ({IPAM: "pool"}, "pool", None),
    "dhcp": ({IPAM: "dhcp"}, "dhcp", None),
    "blanks around it": ({IPAM: " dhcp ", WORKLOAD_TYPE: "vm "}, "dhcp", "vm"),
    "empty": ({IPAM: "", WORKLOAD_TYPE: ""}, "pool", None),
    "vm": ({WORKLOAD_TYPE: "vm"}, "pool", "vm"),
    "cluster": ({WORKLOAD_TYPE: "cluster"}, "pool", "cluster"),
    "upper case": ({IPAM: "DHCP"}, None, None),
    "an unknown kind": ({WORKLOAD_TYPE: "pod"}, "pool", None),
}


@pytest.mark.parametrize(("annotations", "ipam", "kind"), CHOICES.values(), ids=CHOICES.keys())
def test_choices(annotations: dict[str, str], ipam: str | None, kind: str | None) -> None:
    request = read_request(service(annotations=annotations))
    assert (request.ipam, request.workload_type) == (ipam, kind)


def test_a_wrong_choice_names_annotation_value_and_what_was_expected() -> None:
    assert problems(annotations={IPAM: "DHCP"}) == [f"Annotation {IPAM} is 'DHCP'; expected pool or dhcp"]


NETWORKS = {"": "", " ": "", "vlan9": "default/vlan9", "infra/vlan9": "infra/vlan9", " infra/vlan9 ": "infra/vlan9"}


@pytest.mark.parametrize(("written", "meant"), NETWORKS.items(), ids=map(repr, NETWORKS))
def test_networks(written: str, meant: str) -> None:
    assert normal_network(written) == meant
    assert read_request(service(annotations={NETWORK: written})).network == meant


WISHES: dict[str, tuple[dict[str, Any], str, str]] = {
    "none": ({}, "", ""),
    "the field": ({"spec": {"loadBalancerIP": "10.0.0.7"}}, "10.0.0.7", ""),
    "our annotation": ({"annotations": {REQUESTED_ADDRESS: " 10.0.0.7 "}}, "10.0.0.7", ""),
    "kube-vip's, before we touched it": ({"annotations": {KUBE_VIP_ADDRESSES: "10.0.0.7"}}, "10.0.0.7", ""),
    "kube-vip's, written by us": (
        {"annotations": {KUBE_VIP_ADDRESSES: ADDRESS}, "ours": True, "address": ADDRESS},
        "",
        "",
    ),
    "the field first": (
        {"spec": {"loadBalancerIP": "10.0.0.8"}, "annotations": {KUBE_VIP_ADDRESSES: "10.0.0.7"}},
        "10.0.0.8",
        "",
    ),
    "kube-vip's word for DHCP": ({"annotations": {KUBE_VIP_ADDRESSES: "0.0.0.0", IPAM: "dhcp"}}, "", ""),
    "kube-vip's word for DHCP, without asking us": (
        {"annotations": {KUBE_VIP_ADDRESSES: "0.0.0.0"}},
        "",
        f"set annotation {IPAM} to dhcp",
    ),
    "IPv6": (
        {"spec": {"loadBalancerIP": "2001:db8::1"}},
        "",
        "spec.loadBalancerIP is '2001:db8::1'; expected one IPv4",
    ),
    "several": ({"annotations": {KUBE_VIP_ADDRESSES: "10.0.0.7,10.0.0.8"}}, "", "expected one IPv4 address"),
    "leading zeros": ({"annotations": {REQUESTED_ADDRESS: "10.0.0.07"}}, "", "expected one IPv4 address"),
    "a wrong field does not hide our annotation": (
        {"spec": {"loadBalancerIP": "x"}, "annotations": {REQUESTED_ADDRESS: "10.0.0.7"}},
        "10.0.0.7",
        "spec.loadBalancerIP is 'x'",
    ),
}


@pytest.mark.parametrize(("made_of", "address", "problem"), WISHES.values(), ids=WISHES.keys())
def test_wished_addresses(made_of: dict[str, Any], address: str, problem: str) -> None:
    request = read_request(service(**made_of))
    assert request.address == address
    assert [problem in note.message for note in request.problems] == ([True] if problem else [])


CHECKED_PORTS: dict[str, tuple[str, int | None]] = {
    "number of a port": ("80", 30080),
    "name of a port": ("http", 30080),
    "a node port": ("30054", 30054),
    "a name before a node port": ("30080", 30081),
    "TCP and UDP have the number": ("53", 30054),
    "name of a UDP port": ("dns", None),
    "node port of a UDP port": ("30053", None),
    "without a node port": ("9000", None),
    "none of them": ("81", None),
    "empty": ("", None),
    "a word": ("tcp/80", None),
}


@pytest.mark.parametrize(("value", "node_port"), CHECKED_PORTS.values(), ids=CHECKED_PORTS.keys())
def test_port_of_a_health_check(value: str, node_port: int | None) -> None:
    found = health_check_port(service(ports=PORTS), value)
    assert (found.node_port if found else None) == node_port


def test_no_port_is_none_that_has_no_name() -> None:
    nameless = [{"port": 80, "protocol": "TCP", "nodePort": 30080}]
    request = read_request(service(annotations={HEALTH_CHECK_PORT: " "}, ports=nameless))
    assert request.health_check is None
    assert len(request.problems) == 1


def test_a_health_check_asks_for_the_kind_that_has_some_unless_another_is_named() -> None:
    asked = {HEALTH_CHECK_PORT: "80"}
    assert read_request(service(annotations=asked, ports=PORTS)).wants_vm
    assert not read_request(service(annotations={**asked, WORKLOAD_TYPE: "cluster"}, ports=PORTS)).wants_vm


def test_a_wrong_port_of_a_health_check_is_told_with_those_there_are() -> None:
    (text,) = problems(annotations={HEALTH_CHECK_PORT: "81"}, ports=PORTS)
    assert f"Annotation {HEALTH_CHECK_PORT} is '81'" in text
    assert "there are 80 (http), 8080 (30080), 53 (dns-tcp). Nodes are not checked until then" in text


def test_only_udp_cannot_be_checked() -> None:
    (text,) = problems(annotations={HEALTH_CHECK_PORT: "53"}, ports=[PORTS[2]])
    assert "a TCP port of this Service" in text
    assert "there are none" in text


NUMBERS = {
    HEALTH_CHECK_SUCCESS_THRESHOLD: ("success_threshold", 1),
    HEALTH_CHECK_FAILURE_THRESHOLD: ("failure_threshold", 3),
    HEALTH_CHECK_PERIOD: ("period_seconds", 5),
    HEALTH_CHECK_TIMEOUT: ("timeout_seconds", 3),
}


@pytest.mark.parametrize(
    "value",
    ["0", "-1", "1.5", "five", "", "86401", "٣", "1e3", "0" * 5000, "9" * 5000],
    ids=lambda text: repr(text[:9]),
)
@pytest.mark.parametrize("key", NUMBERS)
def test_wrong_numbers_of_a_health_check_are_told_and_replaced(key: str, value: str) -> None:
    request = read_request(service(annotations={HEALTH_CHECK_PORT: "80", key: value}))
    field, default = NUMBERS[key]
    assert getattr(request.health_check, field) == default
    (note,) = request.problems
    assert key in note.message
    assert f"{default} is used" in note.message[:1024]


@given(values=st.fixed_dictionaries(dict.fromkeys(NUMBERS, st.integers(1, 86400))))
def test_right_numbers_of_a_health_check_are_taken(values: dict[str, int]) -> None:
    annotations = {key: f" {value}" for key, value in values.items()}
    request = read_request(service(annotations={HEALTH_CHECK_PORT: "http", **annotations}, ports=PORTS))
    assert request.problems == ()
    assert {key: getattr(request.health_check, NUMBERS[key][0]) for key in NUMBERS} == values


UNKNOWN: dict[str, tuple[list[str], str]] = {
    "in words of other providers": (["health-check-port"], f"did you mean {PREFIX}healthcheck-port?"),
    "the last word alone": (["pool"], f"{PREFIX}pool (did you mean {PREFIX}ip-pool?)"),
    "a letter more": (["networks"], f"did you mean {PREFIX}network?"),
    "a typing error": (["healthcheck-prot"], f"{PREFIX}healthcheck-prot (did you mean {PREFIX}healthcheck-port?)"),
    "another case": (["healthCheck-port"], f"did you mean {PREFIX}healthcheck-port?"),
    "nothing near": (["zzz"], f"no effect: {PREFIX}zzz"),
    "several, in order": (["b-b-b", "a-a-a"], f"{PREFIX}a-a-a, {PREFIX}b-b-b"),
}


@pytest.mark.parametrize(("names", "text"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_unknown_annotations_are_told_in_one_note(names: list[str], text: str) -> None:
    note = unknown_annotations(service(annotations={PREFIX + name: "x" for name in names}))
    assert note is not None
    assert note.reason == Reason.IGNORED
    assert text in note.message


def test_known_and_foreign_annotations_are_not_told() -> None:
    known = dict.fromkeys(SERVICE_ANNOTATIONS, "x")
    foreign = {"kube-vip.io/vipHost": "node-1", "example.com/x": "y", f"{PREFIX}description": "left by a form"}
    assert unknown_annotations(service(annotations={**known, **foreign})) is None


def test_event_about_thousands_of_unknown_annotations_is_short() -> None:
    (text,) = problems(annotations={f"{PREFIX}healthcheck-prt-{number}": "80" for number in range(4000)})
    assert text.count("did you mean") == MOST_UNKNOWN
    assert text.endswith(" and 3995 more")
    assert len(text) <= 1024


PRIMARIES = {None: None, "": None, " ": None, "shop/web": "shop/web", " shop/web ": "shop/web", "web": "web"}


@pytest.mark.parametrize(("written", "meant"), PRIMARIES.items(), ids=map(repr, PRIMARIES))
def test_named_primary(written: str | None, meant: str | None) -> None:
    annotations = {} if written is None else {PRIMARY_SERVICE: written}
    assert primary_reference(service(annotations=annotations)) == meant


def test_name_of_a_pool() -> None:
    assert read_request(service(annotations={IP_POOL: " lab "})).ip_pool == "lab"


def test_all_mistakes_are_told_at_once() -> None:
    annotations = {IPAM: "x", WORKLOAD_TYPE: "y", HEALTH_CHECK_PORT: "z", PREFIX + "q-q-q": "", REQUESTED_ADDRESS: "?"}
    assert len(problems(annotations=annotations)) == 5
