"""What a load balancer of Harvester cannot do, or did otherwise than asked: said once, and only where it is true."""

from __future__ import annotations

from typing import Any

import pytest

from harvester_ccm.model.outcome import Done, Refused, WaitReason
from harvester_ccm.names import (
    DESCRIPTION,
    HEALTH_CHECK_PERIOD,
    HEALTH_CHECK_PORT,
    IP_POOL,
    IPAM,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_IGNORE,
    LB_REQUESTED_NETWORK,
    LB_SELECT_NETWORK,
    NETWORK,
    REQUESTED_ADDRESS,
    WORKLOAD_TYPE,
    Reason,
)
from harvester_ccm.plan.service.cluster_lb import not_as_requested
from harvester_ccm.plan.service.request import ignored_settings, read_request, refused_changes, unsupported
from tests.unit.plan.service.plans import plan, said, told
from tests.worlds.builders import ADDRESS, allocated, marked, served, service

PROJECT = "cloudprovider.harvesterhci.io/project"
POOL_NAMESPACE = "cloudprovider.harvesterhci.io/namespace"
NO_NODE_PORTS: dict[str, Any] = {"spec": {"allocateLoadBalancerNodePorts": False}, "ports": [{"port": 80}]}

OBSTACLES: dict[str, tuple[dict[str, Any], bool, str]] = {
    "IPv4": ({"spec": {"ipFamilies": ["IPv4"]}}, True, ""),
    "dual stack": ({"spec": {"ipFamilies": ["IPv6", "IPv4"]}}, True, ""),
    "IPv6 only": ({"spec": {"ipFamilies": ["IPv6"]}}, False, "has no IPv4. Set spec.ipFamilyPolicy to PreferDualStack"),
    "no node ports": (NO_NODE_PORTS, True, "allocateLoadBalancerNodePorts is false"),
    "no node ports, announced by kube-vip": (NO_NODE_PORTS, False, ""),
    "node ports chosen by hand": ({"spec": {"allocateLoadBalancerNodePorts": False}}, True, ""),
}


@pytest.mark.parametrize(("made_of", "vm", "text"), OBSTACLES.values(), ids=OBSTACLES.keys())
def test_obstacles(made_of: dict[str, Any], vm: bool, text: str) -> None:
    note = unsupported(service(**made_of), vm=vm)
    assert note is None or text in note.message
    assert (note is None) == (not text)


BOTH: dict[str, Any] = {"spec": {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}}


def test_only_a_new_service_that_requires_both_families_gets_no_address() -> None:
    assert plan(service(**BOTH)).outcome == Refused(WaitReason.UNSUPPORTED)
    assert not isinstance(plan(served(**BOTH), allocated()).outcome, Refused)
    # The finalizer is enough, if another client emptied the status.
    assert not isinstance(plan(served(**BOTH, address=None)).outcome, Refused)


RANGES = {"loadBalancerSourceRanges": ["10.0.0.0/8"]}
MIXED_PORTS = [{"port": 80, "nodePort": 30080}, {"port": 81}]
IGNORED: dict[str, tuple[dict[str, Any], str, str]] = {
    "plain": ({}, "", ""),
    "source ranges": ({"spec": RANGES}, "", "spec.loadBalancerSourceRanges"),
    "session affinity": ({"spec": {"sessionAffinity": "ClientIP"}}, "", "spec.sessionAffinity ClientIP"),
    "no session affinity": ({"spec": {"sessionAffinity": "None"}}, "", ""),
    "local traffic policy": ({"spec": {"externalTrafficPolicy": "Local"}}, "", "externalTrafficPolicy Local"),
    "cluster traffic policy": ({"spec": {"externalTrafficPolicy": "Cluster"}}, "", ""),
    "SCTP": ({"ports": [{"port": 80, "protocol": "SCTP", "nodePort": 30080}]}, "", "SCTP"),
    "UDP": ({"ports": [{"port": 80, "protocol": "UDP", "nodePort": 30080}]}, "", ""),
    "some ports without node port": (
        {"ports": MIXED_PORTS, "spec": {"allocateLoadBalancerNodePorts": False}},
        "",
        "ports 81/TCP",
    ),
    "dual stack": ({"spec": {"ipFamilies": ["IPv4", "IPv6"]}}, "IPv6 of spec.ipFamilies", "IPv6 of spec.ipFamilies"),
    "dual stack preferred": (
        {"spec": {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"}},
        "IPv6 of spec.ipFamilyPolicy PreferDualStack",
        "IPv6 of spec.ipFamilyPolicy PreferDualStack",
    ),
    "dual stack required": (
        {"spec": {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}},
        "IPv6 of spec.ipFamilyPolicy RequireDualStack",
        "spec.ipFamilyPolicy RequireDualStack",
    ),
    "dual stack preferred where there is one family": (
        {"spec": {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "PreferDualStack"}},
        "",
        "",
    ),
    "ipMode Proxy": (
        {"status": {"ingress": [{"ip": ADDRESS, "ipMode": "Proxy"}]}},
        "ipMode Proxy",
        "ipMode Proxy",
    ),
    "a network": ({"annotations": {NETWORK: "infra/vlan9"}}, "", "cannot be reached"),
    "a pool with DHCP": ({"annotations": {IPAM: "dhcp", IP_POOL: "lab"}}, IP_POOL, IP_POOL),
    "a description": ({"annotations": {DESCRIPTION: "shop"}}, "", ""),
    "thresholds without a port to check": (
        {"annotations": {HEALTH_CHECK_PERIOD: "9"}},
        "health checks need a VM load balancer",
        HEALTH_CHECK_PORT,
    ),
    "a check where kube-vip is asked for": (
        {"annotations": {HEALTH_CHECK_PORT: "80", WORKLOAD_TYPE: "cluster"}},
        "health checks need a VM load balancer",
        "",
    ),
    "a threshold without a port, where kube-vip is asked for": (
        {"annotations": {HEALTH_CHECK_PERIOD: "9", WORKLOAD_TYPE: "cluster"}},
        f"set annotation {WORKLOAD_TYPE} to vm and {HEALTH_CHECK_PORT} to the port to check",
        HEALTH_CHECK_PORT,
    ),
    "no node ports": (NO_NODE_PORTS, "", "80/TCP"),
}


@pytest.mark.parametrize(("made_of", "cluster", "vm"), IGNORED.values(), ids=IGNORED.keys())
def test_ignored_settings(made_of: dict[str, Any], cluster: str, vm: str) -> None:
    for text, hosted in ((cluster, False), (vm, True)):
        asked = service(**made_of)
        note = ignored_settings(asked, read_request(asked), vm=hosted)
        assert (note is None) == (not text)
        assert note is None or text in note.message


def test_what_kube_vip_and_kube_proxy_honour_is_not_told() -> None:
    spec = {**RANGES, "sessionAffinity": "ClientIP", "internalTrafficPolicy": "Local"}
    assert told(plan(served(spec=spec), allocated())) == []


def test_several_ignored_settings_are_one_event() -> None:
    spec = {**RANGES, "sessionAffinity": "ClientIP"}
    asked = service(annotations={WORKLOAD_TYPE: "vm"}, spec=spec)
    assert told(plan(asked)) == ["Warning SettingsIgnored", "Normal EnsuringLoadBalancer"]
    assert said(plan(asked), Reason.IGNORED).count(";") == 2


CHANGED: dict[str, tuple[dict[str, str], dict[str, Any], list[str]]] = {
    "nothing": ({}, {}, []),
    "ipam": ({IPAM: "dhcp"}, {}, [IPAM, "'dhcp'", "'pool'", "Set the annotation back"]),
    "ipam that is none": ({IPAM: "static"}, {}, []),
    "network added": ({NETWORK: "infra/new"}, {}, [NETWORK, "'infra/new'", "without one", "Remove the annotation"]),
    "network changed": (
        {NETWORK: "infra/new"},
        {"annotations": {LB_REQUESTED_NETWORK: "infra/old"}},
        ["'infra/new'", "'infra/old'"],
    ),
    "network removed": ({}, {"annotations": {LB_REQUESTED_NETWORK: "infra/old"}}, ["was removed", "'infra/old'"]),
    "network, the same in other words": ({NETWORK: "default/a"}, {"annotations": {LB_REQUESTED_NETWORK: "a"}}, []),
    "pool named": ({IP_POOL: "other"}, {}, [IP_POOL, "'other'", "'vlan100'"]),
    "pool named that it has": ({IP_POOL: "vlan100"}, {}, []),
    "pool that the administrator changed": ({IP_POOL: "vlan100"}, {"spec": {"ipPool": "second"}}, []),
    "pool with DHCP": ({IPAM: "dhcp", IP_POOL: "x"}, {"spec": {"ipam": "dhcp"}, "ip": "0.0.0.0"}, []),
}


@pytest.mark.parametrize(("annotations", "made_of", "texts"), CHANGED.values(), ids=CHANGED.keys())
def test_changes_after_creation(annotations: dict[str, str], made_of: dict[str, Any], texts: list[str]) -> None:
    asked, found = service(annotations=annotations), allocated(**made_of)
    notes = refused_changes(read_request(asked), found)
    assert len(notes) == (1 if texts else 0)
    assert all(text in notes[0].message for text in texts)
    assert all(note.reason == Reason.IMMUTABLE for note in notes)


def test_a_load_balancer_that_does_not_say_its_network_is_believed() -> None:
    asked, found = service(annotations={NETWORK: "infra/new"}), allocated(annotations={"x": "y"})
    without = found.__class__(
        metadata=found.metadata.__class__(name="x", annotations={"x": "y"}), spec=found.spec, status=found.status
    )
    assert refused_changes(read_request(asked), without) == ()


OTHERWISE: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "as wished": ({"spec": {"loadBalancerIP": ADDRESS}}, {}, []),
    "another address": (
        {"spec": {"loadBalancerIP": "10.0.0.7"}},
        {},
        ["10.0.0.7 is requested", f"{ADDRESS} was allocated", IP_POOL],
    ),
    "another address than the annotation": (
        {"annotations": {REQUESTED_ADDRESS: "10.0.0.7"}},
        {},
        ["10.0.0.7", ADDRESS],
    ),
    "another network": (
        {"annotations": {NETWORK: "infra/new"}},
        {"annotations": {LB_REQUESTED_NETWORK: "infra/new", LB_SELECT_NETWORK: "infra/mgmt"}},
        ["infra/new is requested", "chose infra/mgmt"],
    ),
    "a network changed later is another matter": (
        {"annotations": {NETWORK: "infra/later"}},
        {"annotations": {LB_REQUESTED_NETWORK: "infra/a", LB_SELECT_NETWORK: "infra/a"}},
        [],
    ),
    "a network that Harvester found by itself": (
        {},
        {"annotations": {LB_REQUESTED_NETWORK: "", LB_SELECT_NETWORK: "infra/mgmt"}},
        [],
    ),
    "another project": (
        {"annotations": {PROJECT: "c-1/p-1"}},
        {"annotations": {"loadbalancer.harvesterhci.io/project": "c-2/p-2"}},
        ["c-1/p-1 is requested", "uses c-2/p-2"],
    ),
    "another namespace": (
        {"annotations": {POOL_NAMESPACE: "lab"}},
        {"annotations": {"loadbalancer.harvesterhci.io/namespace": "vms"}},
        ["lab is requested", "uses vms"],
    ),
    "two things, one event": (
        {"annotations": {NETWORK: "infra/new"}, "spec": {"loadBalancerIP": "10.0.0.7"}},
        {"annotations": {LB_REQUESTED_NETWORK: "infra/new", LB_SELECT_NETWORK: "infra/mgmt"}},
        ["10.0.0.7", "; network infra/new"],
    ),
}


@pytest.mark.parametrize(("made_of", "found_of", "texts"), OTHERWISE.values(), ids=OTHERWISE.keys())
def test_not_as_requested(made_of: dict[str, Any], found_of: dict[str, Any], texts: list[str]) -> None:
    asked, found = service(**made_of), allocated(**found_of)
    note = not_as_requested(read_request(asked), found, found.allocated_ip)
    assert (note is None) == (not texts)
    assert note is None or all(text in note.message for text in texts)


def test_obstacles_that_come_later_are_told_and_take_nothing_away() -> None:
    asked = service(
        annotations={KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}, ours=True, address=ADDRESS, **NO_NODE_PORTS
    )
    made = plan(asked, allocated(spec={"workloadType": "vm"}))
    assert told(made) == ["Warning SyncLoadBalancerFailed", "Warning SettingsIgnored"]
    assert made.outcome == Done()


def test_nothing_is_compared_before_there_is_an_address() -> None:
    asked = service(annotations={KUBE_VIP_ADDRESSES: ""}, ours=True, spec={"loadBalancerIP": "10.0.0.7"})
    assert told(plan(asked, marked())) == []


@pytest.mark.parametrize(("policy", "warned"), [("Local", True), ("Cluster", False), ("", False)])
def test_local_policy_with_kube_vip_names_its_setting(policy: str, warned: bool) -> None:
    made = plan(served(spec={"externalTrafficPolicy": policy}), allocated())
    found = [one.message for one in made.events if one.reason is Reason.LOCAL_POLICY]
    assert [("svc_election" in text) for text in found] == [True] * warned
