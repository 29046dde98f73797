"""Addresses of a Node that is initialised: what is known stays until something certain replaces it.

Here nothing is waited for any more; ``test_awaited`` has what comes before.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harvester_ccm.config import NodeSettings
from harvester_ccm.netip import plain_address
from harvester_ccm.plan.node.addresses import AddressPlan, plan_addresses
from harvester_ccm.plan.node.arrangement import in_present_order
from tests.unit.plan.node.test_addresses import PROVIDED, policy
from tests.worlds.node_objects import (
    REINITIALIZE,
    UNINITIALIZED,
    instance,
    node,
    node_settings,
    pairs,
    parsed,
    reasons,
    shown,
)


def replanned(
    present: str, ips: str, flags: NodeSettings | None = None, *, provided: str | None = None, vips: str = ""
) -> AddressPlan:
    known = node(
        provider_id="harvester://uid-w1",
        addresses=pairs(present),
        annotations={PROVIDED: provided} if provided is not None else {},
    )
    virtual = {plain_address(ip): "Service shop/web" for ip in vips.split(", ") if ip}
    machine = instance(ips=[ip for ip in ips.split(", ") if ip])
    settings = replace(flags or node_settings(), monitor_period=0.0)
    return plan_addresses(known, machine, settings=settings, virtual_ips=virtual)


DUAL = "I 10.0.0.1, E 10.0.0.2, I fd00::1, H w1"


@pytest.mark.parametrize(
    ("present", "ips", "expected"),
    [
        pytest.param(DUAL, "10.0.0.1, 10.0.0.2, fd00::1", DUAL, id="nothing new"),
        pytest.param(DUAL, "fd00::1, 10.0.0.2, 10.0.0.1", DUAL, id="same addresses in another order"),
        pytest.param(DUAL, "", "", id="nothing reported: leave the Node alone"),
        pytest.param(DUAL, "fe80::1", "", id="only link-local reported: leave the Node alone"),
        pytest.param(
            DUAL, "fd00::1", "I 10.0.0.1, I fd00::1, H w1", id="only IPv6 reported: IPv4 stays, and stays first"
        ),
        pytest.param(DUAL, "10.0.0.1", "I 10.0.0.1, I fd00::1, H w1", id="only IPv4 reported: IPv6 stays"),
        pytest.param("I 10.0.0.1, H w1", "10.0.0.7", "I 10.0.0.7, H w1", id="new lease"),
        pytest.param(
            "I 10.0.0.2, H w1", "10.0.0.1, 10.0.0.2", "E 10.0.0.1, I 10.0.0.2, H w1", id="InternalIP is not swapped"
        ),
        pytest.param("I fd00::1, H w1", "10.0.0.1, fd00::1", "I 10.0.0.1, I fd00::1, H w1", id="IPv4 came up later"),
        pytest.param("H w1", "10.0.0.1", "I 10.0.0.1, H w1", id="host name only, as the Go provider leaves it"),
        pytest.param("I 10.0.0.1, E 10.0.0.2, H w1", "10.0.0.1", "I 10.0.0.1, H w1", id="ExternalIP went away"),
    ],
)
def test_report_against_what_is_known(present: str, ips: str, expected: str) -> None:
    assert shown(replanned(present, ips).addresses) == expected


@pytest.mark.parametrize(
    ("present", "ips", "flags", "provided", "expected"),
    [
        pytest.param(
            DUAL, "fd00::1", policy(cidr="10.0.0.0/8"), None, "E fd00::1, I 10.0.0.1, H w1", id="inside the range"
        ),
        pytest.param(DUAL, "fd00::1", policy(cidr="192.168.0.0/16"), None, "", id="outside the range: leave it"),
        pytest.param(
            "I 10.0.0.1, H w1", "10.0.0.7, fd00::1", policy(), "10.0.0.1", "I 10.0.0.1, E 10.0.0.7, E fd00::1, H w1",
            id="provided address not reported for a moment",
        ),
        pytest.param(
            "I 10.0.0.1, H w1", "10.0.0.7", policy(exclude="10.0.0.7"), None, "I 10.0.0.1, H w1",
            id="known one before an excluded one",
        ),
    ],
)  # fmt: skip
def test_known_address_still_has_to_suit_the_flags(
    present: str, ips: str, flags: NodeSettings, provided: str | None, expected: str
) -> None:
    assert shown(replanned(present, ips, flags, provided=provided).addresses) == expected


@pytest.mark.parametrize(
    ("present", "ips", "expected"),
    [
        pytest.param("I 10.0.0.1, H w1", "10.0.0.99, 10.0.0.1", "I 10.0.0.1, H w1", id="reported first"),
        pytest.param("I 10.0.0.1, H w1", "10.0.0.99", "", id="nothing else reported: leave the Node alone"),
    ],
)
def test_virtual_ip_is_never_a_node_address(present: str, ips: str, expected: str) -> None:
    assert shown(replanned(present, ips, vips="10.0.0.99").addresses) == expected


@pytest.mark.parametrize(
    ("present", "ips", "provided", "expected"),
    [
        pytest.param("I 10.0.0.99, H w1", "fd00::1", None, "I fd00::1, I 10.0.0.99, H w1", id="IPv4 not reported"),
        pytest.param("I 10.0.0.99, H w1", "10.0.0.99", None, "I 10.0.0.99, H w1", id="the only one"),
        pytest.param(
            "I 10.0.0.99, I fd00::1, H w1", "10.0.0.99, fd00::1", None, "I 10.0.0.99, I fd00::1, H w1",
            id="the only one of its family",
        ),
        pytest.param(
            "I 10.0.0.99, H w1", "10.0.0.99, 10.0.0.1", "10.0.0.99", "I 10.0.0.99, E 10.0.0.1, H w1", id="the kubelet's"
        ),
        pytest.param(
            "I 10.0.0.99, H w1", "10.0.0.99, 10.0.0.1", None, "I 10.0.0.99, E 10.0.0.1, H w1", id="one of several"
        ),
    ],
)  # fmt: skip
def test_load_balancer_takes_neither_the_internal_ip_nor_the_kubelets_address(
    present: str, ips: str, provided: str | None, expected: str
) -> None:
    assert shown(replanned(present, ips, provided=provided, vips="10.0.0.99").addresses) == expected


def test_new_node_whose_only_address_is_claimed_is_told_by_what() -> None:
    new, taken = node(taints=[UNINITIALIZED]), {plain_address("10.0.0.99"): "load balancer prod/lb in Harvester"}
    plan = plan_addresses(new, instance(ips=["10.0.0.99"]), settings=node_settings(), virtual_ips=taken)
    assert plan.problem is not None
    assert "10.0.0.99 (virtual IP of a load balancer: load balancer prod/lb in Harvester)" in plan.problem.message


def test_address_that_moved_out_of_the_network_that_the_flag_names_is_not_kept() -> None:
    known = node(provider_id="harvester://uid-w1", addresses=pairs(DUAL))
    nics = [("nic-1", "prod/mgmt"), ("nic-2", "prod/storage")]
    machine = instance(networks=nics, ips=["fd00::1"], interfaces=[{"name": "nic-2", "ipAddresses": ["10.0.0.1"]}])
    plan = plan_addresses(known, machine, settings=policy(network="prod/mgmt"))
    assert shown(plan.addresses) == "I fd00::1, H w1"


def test_address_in_an_ignored_entry_of_the_same_interface_is_kept() -> None:
    known = node(provider_id="harvester://uid-w1", addresses=pairs(DUAL))
    machine = instance(ips=["fd00::1"], interfaces=[{"name": "nic-1", "ipAddresses": ["10.0.0.1"]}])
    plan = plan_addresses(known, machine, settings=node_settings())
    assert shown(plan.addresses) == "I 10.0.0.1, I fd00::1, H w1"


def test_order_of_the_kubelets_first_addresses_does_not_count() -> None:
    new = node(taints=[UNINITIALIZED], addresses=pairs("H w1, I 10.0.0.1"))
    plan = plan_addresses(new, instance(ips=["10.0.0.1", "10.0.0.2"]), settings=node_settings())
    assert shown(plan.addresses) == "I 10.0.0.1, E 10.0.0.2, H w1"


@pytest.mark.parametrize(
    ("provider_id", "expected"),
    [
        pytest.param("", "I 10.0.0.1, E 10.0.0.2, H w1", id="kubelet's own guess does not count"),
        pytest.param("harvester://uid-w1", "E 10.0.0.1, I 10.0.0.2, H w1", id="second initialisation keeps it"),
    ],
)
@pytest.mark.parametrize("taint", [UNINITIALIZED, REINITIALIZE])
def test_present_internal_ip_of_a_tainted_node(provider_id: str, expected: str, taint: dict[str, str]) -> None:
    tainted = node(provider_id=provider_id, taints=[taint], addresses=pairs("I 10.0.0.2, H w1"))
    plan = plan_addresses(tainted, instance(ips=["10.0.0.1", "10.0.0.2"]), settings=node_settings())
    assert shown(plan.addresses) == expected


def test_silent_agent_is_a_problem_of_a_known_node_too() -> None:
    assert reasons(replanned(DUAL, "")) == ["NO_ADDRESS"]


@pytest.mark.parametrize(
    ("wanted", "present", "expected"),
    [
        pytest.param("I 1.0.0.1, E 1.0.0.2, E 1.0.0.3", "E 1.0.0.3, I 1.0.0.1", "E 1.0.0.3, E 1.0.0.2, I 1.0.0.1",
                     id="new one keeps its place"),
        pytest.param("I 1.0.0.1, E 1.0.0.2", "", "I 1.0.0.1, E 1.0.0.2", id="all new"),
        pytest.param("I 1.0.0.1", "I 1.0.0.1, I 1.0.0.1", "I 1.0.0.1", id="present twice"),
        pytest.param("E 1.0.0.1", "I 1.0.0.1", "E 1.0.0.1", id="another type is another entry"),
    ],
)  # fmt: skip
def test_present_order(wanted: str, present: str, expected: str) -> None:
    assert shown(in_present_order(parsed(wanted), parsed(present))) == expected
