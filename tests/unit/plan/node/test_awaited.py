"""Addresses that a VM should have and does not report: what happens until they have been awaited for long enough."""

from __future__ import annotations

import pytest

from harvester_ccm.config import NodeSettings
from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.names import MACHINE_RECORD, NODE_NETWORK_RECORD, PROVIDED_NODE_IP, NodeReason
from harvester_ccm.plan.node.addresses import AddressPlan, plan_addresses
from harvester_ccm.plan.node.decision import NodePlan, NodeView, plan_node
from harvester_ccm.plan.node.match import find_vm
from harvester_ccm.plan.node.patch import patch_request
from tests.worlds.node_objects import (
    DEFAULTS,
    OWN,
    REINITIALIZE,
    UNINITIALIZED,
    instance,
    node,
    node_settings,
    pairs,
    patched,
    reasons,
    shown,
    store,
    vm,
)

PATIENCE = DEFAULTS.address_patience
PODS_ONLY = instance(networks=[("default", "")], interfaces=[{"name": "default", "ipAddress": "10.52.0.9"}], labels=OWN)
AWAITED, TRUSTED = ["PROVIDED_IP_NOT_FOUND"], ["PROVIDED_IP_TRUSTED"]


def reporting(ips: str) -> VirtualMachineInstance:
    return instance(ips=[ip for ip in ips.split(", ") if ip], labels=OWN)


def target(present: str, provided: str | None, *, new: bool = False) -> Node:
    return node(
        provider_id="" if new else "harvester://uid-w1",
        taints=[UNINITIALIZED] if new else [],
        addresses=pairs(present),
        annotations={} if provided is None else {PROVIDED_NODE_IP: provided},
    )


def planned(
    known: Node, running: VirtualMachineInstance, seconds: float, settings: NodeSettings = DEFAULTS
) -> AddressPlan:
    """Return the plan when everything that is awaited has been awaited for so long."""
    first = plan_addresses(known, running, settings=settings)
    return plan_addresses(known, running, settings=settings, waited=dict.fromkeys(first.awaited, seconds))


@pytest.mark.parametrize(
    ("provided", "ips", "waiting", "expected"),
    [
        pytest.param("10.0.0.9", "10.0.0.9", False, "I 10.0.0.9, H w1", id="reported"),
        pytest.param("10.0.0.9", "", True, "I 10.0.0.9, H w1", id="nothing reported"),
        pytest.param("10.0.0.9", "fd00::5", True, "I 10.0.0.9, E fd00::5, H w1", id="the other family first"),
        pytest.param("10.0.0.9", "10.0.0.1", True, "I 10.0.0.9, E 10.0.0.1, H w1", id="another of its family first"),
        pytest.param("10.0.0.9,fd00::9", "10.0.0.9", True, "I 10.0.0.9, I fd00::9, H w1", id="half of a pair"),
        pytest.param("10.0.0.9,fd00::9", "fd00::9", True, "I 10.0.0.9, I fd00::9, H w1", id="the other half"),
        pytest.param("10.0.0.9,fd00::9", "", True, "I 10.0.0.9, I fd00::9, H w1", id="nothing of a pair"),
        pytest.param("10.0.0.9,fd00::9", "10.0.0.9, fd00::9", False, "I 10.0.0.9, I fd00::9, H w1", id="pair"),
        pytest.param("169.254.1.1", "10.0.0.1", False, "I 10.0.0.1, H w1", id="none that a Node may have"),
    ],
)
def test_new_node_is_released_whole(provided: str, ips: str, waiting: bool, expected: str) -> None:
    new = target("I 10.0.0.9, H w1", provided, new=True)
    first, last = (planned(new, reporting(ips), seconds) for seconds in (0.0, PATIENCE))
    assert (shown(first.addresses), reasons(first)) == (("", AWAITED) if waiting else (expected, reasons(last)))
    assert shown(last.addresses) == expected
    assert (reasons(last) == TRUSTED) == waiting


@pytest.mark.parametrize(
    ("present", "provided", "ips", "first", "last"),
    [
        pytest.param(
            "I 10.0.0.1, E 10.0.0.100, H w1", None, "10.0.0.100", "I 10.0.0.1, E 10.0.0.100, H w1",
            "I 10.0.0.100, H w1", id="published as external",
        ),
        pytest.param("I 10.0.0.1, H w1", None, "10.0.0.7", "E 10.0.0.7, I 10.0.0.1, H w1", "I 10.0.0.7, H w1",
                     id="new lease"),
        pytest.param(
            "I 10.0.0.1, I fd00::1, H w1", None, "10.0.0.1, fd00::7", "I 10.0.0.1, E fd00::7, I fd00::1, H w1",
            "I 10.0.0.1, I fd00::7, H w1", id="temporary IPv6 address changes",
        ),
        pytest.param("I 10.0.0.1, H w1", None, "fd00::1", *["I fd00::1, I 10.0.0.1, H w1"] * 2, id="other family"),
        pytest.param("I 10.0.0.1, H w1", None, "", "", "", id="nothing reported"),
        pytest.param("I 10.0.0.1, H w1", "10.0.0.9", "", "", "", id="nothing reported, kubelet has another"),
        pytest.param(
            "I 10.0.0.1, H w1", "10.0.0.9", "10.0.0.1", *["I 10.0.0.1, H w1"] * 2, id="kubelet has one not reported"
        ),
        pytest.param(
            "I 10.0.0.1, H w1", "10.0.0.9", "10.0.0.1, 10.0.0.9", *["I 10.0.0.9, E 10.0.0.1, H w1"] * 2,
            id="kubelet has another, reported",
        ),
        pytest.param(
            "I 10.0.0.1, H w1", "10.0.0.9", "10.0.0.7", "E 10.0.0.7, I 10.0.0.1, H w1", "I 10.0.0.9, E 10.0.0.7, H w1",
            id="neither the kubelet's nor the present one",
        ),
        pytest.param(
            "I 10.0.0.9, H w1", "10.0.0.9", "10.0.0.1", *["I 10.0.0.9, E 10.0.0.1, H w1"] * 2, id="the kubelet's stays"
        ),
        pytest.param(
            "I 10.0.0.9, H w1", "10.0.0.9,fd00::9", "10.0.0.9, fd00::5", "I 10.0.0.9, E fd00::5, H w1",
            "I 10.0.0.9, I fd00::9, E fd00::5, H w1", id="second family of the kubelet's comes later",
        ),
        pytest.param("H w1", "10.0.0.9", "10.0.0.1", "", "I 10.0.0.9, E 10.0.0.1, H w1", id="host name only"),
        pytest.param("H w1", "10.0.0.9", "", "", "I 10.0.0.9, H w1", id="host name only, nothing reported"),
    ],
)  # fmt: skip
def test_initialised_node(present: str, provided: str | None, ips: str, first: str, last: str) -> None:
    known = target(present, provided)
    plans = [planned(known, reporting(ips), seconds) for seconds in (0.0, PATIENCE - 0.1, PATIENCE)]
    assert [shown(plan.addresses) for plan in plans] == [first, first, last]


def test_it_is_told_what_a_node_with_an_internal_ip_still_waits_for() -> None:
    known, running = target("I 10.0.0.9, H w1", "10.0.0.9,fd00::9"), reporting("10.0.0.9, fd00::5")
    assert [reasons(planned(known, running, seconds)) for seconds in (0.0, PATIENCE)] == [AWAITED, TRUSTED]


@pytest.mark.parametrize(
    ("flag", "provided", "first", "last", "told"),
    [
        pytest.param(None, "10.0.0.9", "", "I 10.0.0.9, H w1", TRUSTED, id="kubelet's address"),
        pytest.param(None, "10.52.0.9", "", "I 10.52.0.9, H w1", TRUSTED, id="even the one in that network"),
        pytest.param(None, None, "", "", ["NO_MANAGEMENT_NETWORK"], id="without"),
        pytest.param("prod/a", "10.0.0.9", "", "", ["NO_MANAGEMENT_NETWORK"], id="the flag wants another network"),
    ],
)
def test_vm_only_in_the_pod_network(
    flag: str | None, provided: str | None, first: str, last: str, told: list[str]
) -> None:
    new, settings = target("H w1", provided, new=True), node_settings(management_network=flag)
    plans = [planned(new, PODS_ONLY, seconds, settings) for seconds in (0.0, PATIENCE)]
    assert [shown(plan.addresses) for plan in plans] == [first, last]
    assert reasons(plans[1]) == told
    after = target("I 10.0.0.9, H w1", provided)
    again = plan_addresses(after, PODS_ONLY, settings=settings)
    assert provided != "10.0.0.9" or flag or (shown(again.addresses), reasons(again)) == ("I 10.0.0.9, H w1", [])


def test_interface_that_shows_the_internal_ip_elsewhere_takes_it_only_by_flag() -> None:
    nics = [("nic-1", "prod/a"), ("nic-2", "prod/b")]
    running = instance(networks=nics, ips=["10.1.0.1"], interfaces=[{"name": "nic-2", "ipAddresses": ["fd02::1"]}])
    known = target("I 10.1.0.1, I fd02::1, H w1", None)
    results = [
        shown(planned(known, running, PATIENCE, node_settings(management_network=flag)).addresses)
        for flag in (None, "prod/a")
    ]
    assert results == ["I 10.1.0.1, I fd02::1, H w1", "I 10.1.0.1, H w1"]


AGAIN = "I 10.0.0.1, E 10.0.0.100, H w1"


@pytest.mark.parametrize(
    ("provider_id", "taint", "record", "expected"),
    [
        pytest.param("", UNINITIALIZED, {NODE_NETWORK_RECORD: "prod/mgmt"}, AGAIN, id="network recorded"),
        pytest.param("", UNINITIALIZED, {MACHINE_RECORD: "prod/w1"}, AGAIN, id="VM recorded"),
        pytest.param("harvester://uid-w1", REINITIALIZE, {}, AGAIN, id="mark of the Go provider"),
        pytest.param("harvester://uid-w1", UNINITIALIZED, {}, AGAIN, id="by hand, as the Go provider left it"),
        pytest.param(
            "", UNINITIALIZED, {}, "I 10.0.0.100, H w1", id="not one of ours yet: the kubelet's guess does not count"
        ),
    ],
)
def test_node_that_gets_the_taint_again_keeps_its_internal_ip(
    provider_id: str, taint: dict[str, str], record: dict[str, str], expected: str
) -> None:
    known = node(
        provider_id=provider_id,
        taints=[taint],
        addresses=pairs(AGAIN),
        annotations=record,
    )
    assert shown(plan_addresses(known, reporting("10.0.0.100"), settings=DEFAULTS).addresses) == expected


@pytest.mark.parametrize("record", [{}, {NODE_NETWORK_RECORD: "prod/mgmt"}])
def test_tainted_node_without_an_internal_ip_waits_for_one_whatever_is_recorded(record: dict[str, str]) -> None:
    for taint in (UNINITIALIZED, REINITIALIZE):
        known = node(
            provider_id="harvester://uid-w1", taints=[taint], addresses=pairs("H w1"),
            annotations=record,
        )  # fmt: skip
        plan = look(known, reporting(""))[0]
        assert (plan.patches, plan.waiting is not None) == ((), True)


def look(known: Node, running: VirtualMachineInstance, **fields: float) -> tuple[NodePlan, Node]:
    """Return the plan for a Node, and the Node after it."""
    match = find_vm(store([vm(labels=OWN)], [running]), known)
    plan = plan_node(NodeView(known, match, node_settings(**fields)))
    for patch in plan.patches:
        request = patch_request(known, patch)
        known = patched(known, request.body) if request else known
    return plan, known


def test_plan_says_when_to_look_again_and_what_is_used_meanwhile() -> None:
    new = target("H w1", "10.0.0.9", new=True)
    plan, _ = look(new, reporting("10.0.0.1"))
    assert (plan.patches, plan.recheck_after) == ((), PATIENCE)
    assert plan.waiting is not None
    assert plan.waiting.message == (
        "Annotation alpha.kubernetes.io/provided-node-ip names 10.0.0.9, which is not among the addresses that the VM "
        "reports on network prod/mgmt (10.0.0.1). It is waited for, and then becomes the InternalIP all the same. "
        "Correct the kubelet's --node-ip if the VM does not have it"
    )
    later, after = look(new, reporting("10.0.0.1"), monitor_period=0.0)
    assert (shown(after.status.addresses), after.spec.taints) == ("I 10.0.0.9, E 10.0.0.1, H w1", ())
    assert [note.reason for patch in later.patches for note in patch.told] == [NodeReason.PROVIDED_IP_TRUSTED]
    assert (later.notes, later.recheck_after) == ((), None)
