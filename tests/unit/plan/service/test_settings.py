"""Annotations and fields that users set: their effect, and the Warnings about those without the requested effect."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harvester_ccm.names import (
    DESCRIPTION,
    DHCP_ADDRESS,
    HEALTH_CHECK_PERIOD,
    HEALTH_CHECK_PORT,
    IP_POOL,
    IPAM,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_INTERFACE,
    LB_REQUESTED_NETWORK,
    LB_SELECT_PROJECT,
    NETWORK,
    POOL_NAMESPACE,
    PREFIX,
    PRIMARY_SERVICE,
    PROJECT,
    REQUESTED_ADDRESS,
    SERVICE_ANNOTATIONS,
    WORKLOAD_TYPE,
    Reason,
)
from harvester_ccm.plan.service.desired import ServicePlan
from harvester_ccm.plan.service.ineffective import ignored_on_secondary, rejected_changes
from harvester_ccm.plan.service.request import HEALTH_CHECK_SETTINGS, Ipam, WorkloadType
from tests.support.builders import ADDRESS, SUPPRESSED, UID, VM_SPEC, allocated, load_balancer, marked, served, service
from tests.unit.plan.service.outcomes import differing
from tests.unit.plan.service.snapshots import NO_NODE_PORTS, PRIMARY, SHARES, messages, plan, snapshot_of

PORTS = (
    {"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080},
    {"name": "30080", "port": 8080, "protocol": "TCP", "nodePort": 30081},
    {"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053},
    {"name": "dns-tcp", "port": 53, "protocol": "TCP", "nodePort": 30054},
    {"name": "plain", "port": 9000, "protocol": "TCP"},
)
VM = {WORKLOAD_TYPE: "vm"}
CLUSTER_LB = {WORKLOAD_TYPE: "cluster"}
ROWS: dict[str, tuple[dict[str, Any], dict[str, object]]] = {
    "nothing": (
        {},
        {
            "ipam": Ipam.POOL,
            "workload_type": WorkloadType.ANY,
            "network": "",
            "address": "",
            "primary": "",
            "problems": (),
        },
    ),
    "values with blanks": (
        {IPAM: " dhcp ", WORKLOAD_TYPE: "vm "},
        {"ipam": Ipam.DHCP, "workload_type": WorkloadType.VM},
    ),
    "empty values": (
        {IPAM: "", WORKLOAD_TYPE: ""},
        {"ipam": Ipam.POOL, "workload_type": WorkloadType.ANY, "problems": ()},
    ),
    "cluster": ({WORKLOAD_TYPE: "cluster"}, {"workload_type": WorkloadType.CLUSTER, "wants_vm": False}),
    "invalid values": ({IPAM: "DHCP", WORKLOAD_TYPE: "pod"}, {"ipam": Ipam.INVALID, "workload_type": WorkloadType.ANY}),
    "network": ({NETWORK: " infra/vlan9 "}, {"network": "infra/vlan9"}),
    "network without namespace": ({NETWORK: "vlan9"}, {"network": "default/vlan9"}),
    "IP pool": ({IP_POOL: " lab "}, {"ip_pool": "lab"}),
    "project": ({PROJECT: "c-1/p-1"}, {"project": "c-1/p-1"}),
    "namespace": ({POOL_NAMESPACE: "infra"}, {"pool_namespace": "infra"}),
    "description": ({DESCRIPTION: "front "}, {"description": "front "}),
    "empty pool, network and address": (
        {IP_POOL: " ", NETWORK: " ", REQUESTED_ADDRESS: " "},
        {"ip_pool": "", "network": "", "address": "", "problems": ()},
    ),
    "primary": ({PRIMARY_SERVICE: " shop/web "}, {"primary": "shop/web"}),
    "empty primary": ({PRIMARY_SERVICE: " "}, {"primary": ""}),
    "requested address": ({REQUESTED_ADDRESS: " 10.0.0.7 "}, {"address": "10.0.0.7"}),
    "requested address, kept by this controller": ({REQUESTED_ADDRESS: f"10.0.0.7 {UID}"}, {"address": "10.0.0.7"}),
    "address annotation of kube-vip": ({KUBE_VIP_ADDRESSES: "10.0.0.7"}, {"address": "10.0.0.7"}),
    "address annotation with blanks": ({KUBE_VIP_ADDRESSES: " 10.0.0.7 "}, {"address": "10.0.0.7"}),
    "DHCP of kube-vip": ({KUBE_VIP_ADDRESSES: "0.0.0.0", IPAM: "dhcp"}, {"address": ""}),
    "addresses of both families for kube-vip": ({KUBE_VIP_ADDRESSES: "10.0.0.7,fd00::7"}, {"address": ""}),
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
    later = served(spec={"loadBalancerIP": "10.0.0.8"})
    addresses = [snapshot_of(requesting).request.address for requesting in (both, invalid_field, served(), later)]
    assert addresses == ["10.0.0.8", "10.0.0.7", "", "10.0.0.8"]


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
    assert request.health_check.get("port") == node_port
    assert bool(request.health_check) is (node_port is not None)
    assert bool(request.problems) is (node_port is None)


THRESHOLDS = {setting.annotation: (setting.field, setting.default) for setting in HEALTH_CHECK_SETTINGS}


@pytest.mark.parametrize(
    "value", ["0", "-1", "1.5", "five", "", "86401", "٣", "1e3", "0" * 5000], ids=lambda text: repr(text[:9])
)
@pytest.mark.parametrize("key", THRESHOLDS)
def test_invalid_threshold_is_replaced_by_its_default(key: str, value: str) -> None:
    request = snapshot_of(service(annotations={HEALTH_CHECK_PORT: "80", key: value})).request
    field, default = THRESHOLDS[key]
    assert request.health_check[field] == default
    (event,) = request.problems
    assert key in event.message
    assert f"{default} is used" in event.message[:1024]


@pytest.mark.parametrize("number", [1, 86_400])
@pytest.mark.parametrize("key", THRESHOLDS)
def test_limits_of_thresholds_are_valid(key: str, number: int) -> None:
    request = snapshot_of(service(annotations={HEALTH_CHECK_PORT: "80", key: str(number)})).request
    assert request.problems == ()
    assert request.health_check[THRESHOLDS[key][0]] == number


@given(values=st.fixed_dictionaries(dict.fromkeys(THRESHOLDS, st.integers(1, 86400))))
def test_valid_thresholds(values: dict[str, int]) -> None:
    annotations = {key: f" {value}" for key, value in values.items()}
    request = snapshot_of(service(annotations={HEALTH_CHECK_PORT: "http", **annotations}, ports=PORTS)).request
    assert request.problems == ()
    assert {key: request.health_check[THRESHOLDS[key][0]] for key in THRESHOLDS} == values


SOME_NODE_PORTS: dict[str, Any] = {
    "spec": {"allocateLoadBalancerNodePorts": False},
    "ports": [{"port": 80, "nodePort": 30080}, {"port": 81}],
}
DUAL = {"ipFamilies": ["IPv4", "IPv6"]}
INVALID = Reason.INVALID_ANNOTATION
IGNORED = Reason.IGNORED
UNSUPPORTED = Reason.UNSUPPORTED
NEW: dict[str, dict[str, Any]] = {
    "plain": {},
    "ipam": {"annotations": {IPAM: "DHCP"}},
    "DHCP requested from kube-vip only": {"annotations": {KUBE_VIP_ADDRESSES: "0.0.0.0"}},
    "IPv6 address": {"spec": {"loadBalancerIP": "2001:db8::1"}},
    "two addresses": {"annotations": {KUBE_VIP_ADDRESSES: "10.0.0.7,10.0.0.8"}},
    "addresses of both families": {"annotations": {KUBE_VIP_ADDRESSES: "10.0.0.7,fd00::7"}},
    "leading zeros": {"annotations": {REQUESTED_ADDRESS: "10.0.0.07"}},
    "health check port": {"annotations": {HEALTH_CHECK_PORT: "81"}, "ports": PORTS},
    "health check of no port": {"annotations": {HEALTH_CHECK_PORT: " "}},
    "only UDP": {"annotations": {HEALTH_CHECK_PORT: "53"}, "ports": [PORTS[2]]},
    "TCP without a node port": {"annotations": {HEALTH_CHECK_PORT: "80"}, "ports": [{"name": "http", "port": 80}]},
    "unknown annotation": {"annotations": {f"{PREFIX}healthcheck-prot": "x"}},
    "unknown annotation, part of a name": {"annotations": {f"{PREFIX}pool": "x"}},
    "unknown annotation, capitals": {"annotations": {f"{PREFIX}IP-Pool": "x"}},
    "another prefix of Harvester": {"annotations": {"harvesterhci.io/ip-pool": "x"}},
    "unknown annotations, unlike any": {"annotations": {f"{PREFIX}z-z-z": "x", f"{PREFIX}y-y-y": "x"}},
    "IPv6 only": {"spec": {"ipFamilies": ["IPv6"]}},
    "IPv6 first": {"spec": {"ipFamilies": ["IPv6", "IPv4"]}},
    "no node ports, kube-vip": NO_NODE_PORTS,
    "no node ports, VM load balancer": {**NO_NODE_PORTS, "annotations": VM},
    "some node ports, VM load balancer": {**SOME_NODE_PORTS, "annotations": VM},
    "kube-proxy implements these": {
        "spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"], "sessionAffinity": "ClientIP"}
    },
    "source ranges": {"annotations": VM, "spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}},
    "session affinity": {"annotations": VM, "spec": {"sessionAffinity": "ClientIP"}},
    "local traffic policy": {"annotations": VM, "spec": {"externalTrafficPolicy": "Local"}},
    "local traffic policy with a health check": {
        "annotations": {**VM, HEALTH_CHECK_PORT: "80"},
        "spec": {"externalTrafficPolicy": "Local"},
    },
    "dual stack": {"spec": DUAL},
    "dual stack preferred": {"spec": {**DUAL, "ipFamilyPolicy": "PreferDualStack"}},
    "dual stack required": {"spec": {**DUAL, "ipFamilyPolicy": "RequireDualStack"}},
    "dual stack preferred in a cluster with one family": {
        "spec": {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "PreferDualStack"}
    },
    "network of a VM load balancer": {"annotations": {**VM, NETWORK: "infra/vlan9"}},
    "pool and DHCP": {"annotations": {IPAM: "dhcp", IP_POOL: "lab"}},
    "threshold without a port": {"annotations": {HEALTH_CHECK_PERIOD: "9", **VM}},
    "threshold without a port on a cluster load balancer": {"annotations": {HEALTH_CHECK_PERIOD: "9"}},
    "health check and cluster": {"annotations": {HEALTH_CHECK_PORT: "80", **CLUSTER_LB}},
}


def warnings_of(made: ServicePlan, *reasons: Reason) -> str:
    warnings = [event for event in made.events if event.type == "Warning"]
    chosen = [event for event in warnings if not reasons or event.reason in reasons]
    return "\n".join(f"{event.reason}: {event.message}" for event in chosen)


def test_warnings_for_a_new_service() -> None:
    rows = {name: warnings_of(plan(service(**fields))) for name, fields in NEW.items()}
    assert differing("settings_new", rows) == []


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
    made = plan(service(annotations={**dict.fromkeys(SERVICE_ANNOTATIONS, ""), **others}))
    assert messages(made, IGNORED) == []


IMMUTABLE = Reason.IMMUTABLE
OTHERWISE = Reason.ADDRESS_NOT_AS_REQUESTED
EXISTING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "ipam": ({IPAM: "dhcp"}, {}),
    "network added": ({NETWORK: "infra/new"}, {}),
    "network changed": ({NETWORK: "infra/new"}, {"annotations": {LB_REQUESTED_NETWORK: "infra/old"}}),
    "network removed": ({}, {"annotations": {LB_REQUESTED_NETWORK: "infra/old"}}),
    "pool": ({IP_POOL: "other"}, {}),
    "the allocated pool": ({IP_POOL: "vlan100"}, {}),
    "another address": ({REQUESTED_ADDRESS: "10.0.0.7"}, {}),
    "the requested address": ({REQUESTED_ADDRESS: ADDRESS}, {}),
    "pool, which an administrator changed in the specification": ({IP_POOL: "vlan100"}, {"spec": {"ipPool": "other"}}),
    "pool removed, the allocated one stays": ({}, {"spec": {"ipPool": "lab"}}),
    "description": ({DESCRIPTION: "shop"}, {"spec": {"description": "shop"}}),
}


def test_warnings_for_a_load_balancer_with_an_address() -> None:
    rows: dict[str, str] = {}
    for name, (annotations, fields) in EXISTING.items():
        shown = served(annotations={**annotations, KUBE_VIP_INTERFACE: "eth1"})
        rows[name] = warnings_of(plan(shown, allocated(**fields)))
    assert differing("settings_existing", rows) == []


KEPT_IPAM: dict[str, tuple[dict[str, str], str]] = {
    "DHCP requested from a pool": ({IPAM: "dhcp"}, "pool"),
    "DHCP requested from a pool that is named": ({IPAM: "dhcp", IP_POOL: "lan"}, "pool"),
    "pool requested from DHCP": ({IPAM: "pool"}, "dhcp"),
    "named pool requested from DHCP": ({IPAM: "pool", IP_POOL: "lan"}, "dhcp"),
    "DHCP with a named pool": ({IPAM: "dhcp", IP_POOL: "lan"}, "dhcp"),
}


@pytest.mark.parametrize("workload", ["cluster", "vm"])
def test_warnings_about_the_pool_follow_the_ipam_that_the_load_balancer_has(workload: str) -> None:
    rows: dict[str, str] = {}
    for name, (annotations, ipam) in KEPT_IPAM.items():
        spec: dict[str, Any] = {"ipam": ipam} if workload == "cluster" else {**VM_SPEC, "ipam": ipam}
        address = DHCP_ADDRESS if ipam == "dhcp" else ADDRESS
        present = load_balancer(ip=address, pool="lan" if ipam == "pool" else "", address=ADDRESS, spec=spec)
        noted = {KUBE_VIP_ADDRESSES: address} if workload == "cluster" else SUPPRESSED
        shown = service(ours=True, address=ADDRESS, annotations={**noted, **annotations})
        rows[name] = warnings_of(plan(shown, present), IGNORED, IMMUTABLE)
    assert differing("settings_kept_ipam", rows) == []


def test_warning_about_health_checks_asks_for_no_setting_that_the_service_has() -> None:
    """The switch to a VM load balancer is refused."""
    annotations = {WORKLOAD_TYPE: "vm", HEALTH_CHECK_PORT: "80"}
    (warning,) = messages(plan(served(annotations=annotations, **NO_NODE_PORTS), allocated()), IGNORED)
    assert warning.endswith(f"{HEALTH_CHECK_PORT} (health checks need a VM load balancer and a port)")


REPLACED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "project, kept": ({PROJECT: "c-1/p-1"}, {LB_SELECT_PROJECT: "c-1/p-1"}),
    "project, not known": ({PROJECT: "c-1/p-1"}, {}),
    "project": ({PROJECT: "c-1/p-1"}, {LB_SELECT_PROJECT: "c-2/p-2"}),
    "project, dropped": ({PROJECT: "c-1/p-1"}, {LB_SELECT_PROJECT: ""}),
    "no project": ({}, {LB_SELECT_PROJECT: "c-2/p-2"}),
}


@pytest.mark.parametrize("workload", ["cluster", "vm"])
def test_project_that_harvester_replaced_is_without_effect(workload: str) -> None:
    rows: dict[str, str] = {}
    for name, (requested, stored) in REPLACED.items():
        shown, spec = served(annotations=requested), {}
        if workload == "vm":
            shown = service(ours=True, address=ADDRESS, annotations={**SUPPRESSED, **requested})
            spec = VM_SPEC
        rows[name] = warnings_of(plan(shown, allocated(annotations=stored, spec=spec)), IGNORED)
    assert differing("settings_replaced_project", rows) == []


@pytest.mark.parametrize(("policy", "types"), [("Local", ["Normal"]), ("Cluster", [])])
def test_local_traffic_policy_with_kube_vip_names_the_setting_of_kube_vip(policy: str, types: list[str]) -> None:
    made = plan(served(spec={"externalTrafficPolicy": policy}), allocated())
    assert [event.type for event in made.events if "svc_election" in event.message] == types


def test_network_of_a_load_balancer_by_a_provider_before_0_2_7_is_not_known() -> None:
    request = snapshot_of(served(annotations={NETWORK: "infra/new"})).request
    assert list(rejected_changes(request, load_balancer(ip=ADDRESS, pool="lan"), has_address=True)) == []


FIXED_BEFORE: dict[str, dict[str, str]] = {
    "network": {NETWORK: "infra/new"},
    "pool": {IP_POOL: "other"},
    "ipam": {IPAM: "dhcp"},
}


def test_only_ipam_is_fixed_before_there_is_an_address() -> None:
    rows: dict[str, str] = {}
    for name, annotations in FIXED_BEFORE.items():
        waiting = service(ours=True, annotations={**SUPPRESSED, **annotations})
        rows[name] = warnings_of(plan(waiting, marked()), IMMUTABLE)
    assert differing("settings_fixed_before", rows) == []


ON_SECONDARY: dict[str, tuple[dict[str, Any], bool]] = {
    "nothing": ({}, False),
    "settings of the load balancer": (
        {"annotations": {IP_POOL: "x", WORKLOAD_TYPE: "vm", PROJECT: "x", POOL_NAMESPACE: "x", DESCRIPTION: "x"}},
        False,
    ),
    "health checks": ({"annotations": {HEALTH_CHECK_PORT: "80", HEALTH_CHECK_PERIOD: "9"}}, False),
    "invalid ipam": ({"annotations": {IPAM: "x"}}, False),
    "ipam and a pool": ({"annotations": {IPAM: "dhcp", IP_POOL: "x"}}, False),
    "another ipam": ({"annotations": {IPAM: "dhcp"}}, False),
    "ipam": ({"annotations": {IPAM: "pool"}}, False),
    "another address": (
        {"annotations": {REQUESTED_ADDRESS: "10.0.0.7"}, "spec": {"loadBalancerIP": "10.0.0.8"}},
        False,
    ),
    "the shared address": ({"annotations": {REQUESTED_ADDRESS: ADDRESS}}, False),
    "dual stack": ({"spec": DUAL}, False),
    "source ranges": ({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}, False),
    "source ranges, Harvester announces the address": ({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}, True),
}


def test_settings_without_effect_on_a_secondary() -> None:
    rows: dict[str, str] = {}
    for name, (fields, is_vm) in ON_SECONDARY.items():
        snapshot = snapshot_of(service(**{**fields, "annotations": {**SHARES, **fields.get("annotations", {})}}))
        warning = ignored_on_secondary(snapshot.service, snapshot.request, PRIMARY, is_vm=is_vm)
        rows[name] = "" if warning is None else f"{warning.reason}: {warning.message}"
    assert differing("settings_on_secondary", rows) == []


def test_key_of_another_program_is_not_misplaced() -> None:
    foreign = {"example.com/ip-pool": "x", "loadbalancer.harvesterhci.io/other": "x", "ip-pool": "x"}
    assert plan(served(annotations=foreign), allocated()).events == ()
