"""Addresses of a new Node: mode, types and order are the Go provider's."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from harvester_ccm.config import NodeSettings
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.names import DHCP_ADDRESS
from harvester_ccm.netip import IPNetwork, parse_range
from harvester_ccm.plan.node.addresses import AddressPlan, plan_addresses
from harvester_ccm.plan.node.interfaces import DroppedAddress, DropReason
from tests.worlds.node_objects import UNINITIALIZED, instance, node, node_settings, reasons, shown

PROVIDED = "alpha.kubernetes.io/provided-node-ip"
ADDITIONAL = "cloudprovider.harvesterhci.io/additional-internal-ips"


def policy(*, cidr: str = "", exclude: str = "", network: str | None = None, annotations: bool = True) -> NodeSettings:
    def ranges(text: str) -> tuple[IPNetwork, ...]:
        return tuple(parse_range(part)[1] for part in text.split(",") if part)

    return node_settings(
        management_network=network,
        node_ip_cidrs=ranges(cidr),
        exclude_ranges=ranges(exclude),
        use_provided_node_ip=annotations,
    )


def planned(
    ips: str, flags: NodeSettings | None = None, *, provided: str | None = None, additional: str | None = None
) -> AddressPlan:
    """Return the plan for a new Node when nothing is waited for any more."""
    annotations = {PROVIDED: provided, ADDITIONAL: additional}
    new = node(taints=[UNINITIALIZED], annotations={k: v for k, v in annotations.items() if v is not None})
    machine = instance(ips=[ip for ip in ips.split(", ") if ip])
    return plan_addresses(new, machine, settings=replace(flags or node_settings(), monitor_period=0.0))


THREE = "10.0.0.1, 10.0.0.2, fd00::1"


@pytest.mark.parametrize(
    ("ips", "flags", "expected"),
    [
        pytest.param(THREE, policy(), "I 10.0.0.1, E 10.0.0.2, I fd00::1, H w1", id="first of each family"),
        pytest.param("fd00::1, 10.0.0.1", policy(), "I fd00::1, I 10.0.0.1, H w1", id="order of the report"),
        pytest.param("fd00::1", policy(), "I fd00::1, H w1", id="IPv6 only"),
        pytest.param(THREE, policy(cidr="10.0.0.2"), "E 10.0.0.1, I 10.0.0.2, E fd00::1, H w1", id="range of one"),
        pytest.param(
            "10.0.0.1, 192.168.0.1, 2001:db8::1, fd00::1",
            policy(cidr="192.168.0.0/16,fd00::/8"),
            "E 10.0.0.1, I 192.168.0.1, E 2001:db8::1, I fd00::1, H w1",
            id="range of each family",
        ),
        pytest.param(
            THREE,
            policy(cidr="10.0.0.0/8", exclude="0.0.0.0/0"),
            "I 10.0.0.1, E fd00::1, H w1",
            id="exclusion hides no InternalIP of a range",
        ),
        pytest.param(
            THREE, policy(cidr="10.0.0.0/8", exclude="fd00::/8"), "I 10.0.0.1, E 10.0.0.2, H w1", id="excluded family"
        ),
        pytest.param("FD00:0:0::1", policy(), "I fd00::1, H w1", id="canonical text"),
    ],
)
def test_same_as_go(ips: str, flags: NodeSettings, expected: str) -> None:
    plan = planned(ips, flags)
    assert (shown(plan.addresses), plan.problem, plan.notes) == (expected, None, ())


@pytest.mark.parametrize(
    ("ips", "provided", "flags", "expected"),
    [
        pytest.param(THREE, "10.0.0.2", policy(), "I 10.0.0.2, E 10.0.0.1, E fd00::1, H w1", id="one family provided"),
        pytest.param(
            THREE, "10.0.0.1", policy(cidr="10.0.0.2"), "I 10.0.0.1, E 10.0.0.2, E fd00::1, H w1", id="before the range"
        ),
        pytest.param(
            THREE,
            "10.0.0.2",
            policy(annotations=False),
            "E 10.0.0.2, I 10.0.0.1, I fd00::1, H w1",
            id="switched off: only the order follows",
        ),
        pytest.param(
            THREE,
            "10.0.0.9",
            policy(annotations=False),
            "I 10.0.0.1, E 10.0.0.2, I fd00::1, H w1",
            id="switched off and unknown",
        ),
    ],
)
def test_provided_node_ip_same_as_go(ips: str, provided: str, flags: NodeSettings, expected: str) -> None:
    plan = planned(ips, flags, provided=provided)
    assert (shown(plan.addresses), plan.problem, plan.notes) == (expected, None, ())


@pytest.mark.parametrize(
    ("provided", "flags", "expected", "told"),
    [
        pytest.param("10.0.0.2,fd00::1", policy(), "I 10.0.0.2, I fd00::1, E 10.0.0.1, H w1", [], id="pair"),
        pytest.param("fd00::1, 10.0.0.2", policy(), "I fd00::1, I 10.0.0.2, E 10.0.0.1, H w1", [], id="with a blank"),
        pytest.param("fd00:0:0::1", policy(), "I fd00::1, E 10.0.0.1, E 10.0.0.2, H w1", [], id="long form"),
        pytest.param(
            "10.0.0.9",
            policy(),
            "I 10.0.0.9, E 10.0.0.1, E 10.0.0.2, E fd00::1, H w1",
            ["PROVIDED_IP_TRUSTED"],
            id="not an address of the VM",
        ),
        pytest.param(
            "10.0.0.9",
            policy(cidr="10.0.0.2"),
            "I 10.0.0.9, E 10.0.0.1, E 10.0.0.2, E fd00::1, H w1",
            ["PROVIDED_IP_TRUSTED"],
            id="not an address of the VM, before the range",
        ),
        pytest.param(
            "10.0.0.2,fd00::9",
            policy(),
            "I 10.0.0.2, I fd00::9, E 10.0.0.1, E fd00::1, H w1",
            ["PROVIDED_IP_TRUSTED"],
            id="half of a pair",
        ),
        pytest.param(
            "169.254.1.1",
            policy(),
            "I 10.0.0.1, E 10.0.0.2, I fd00::1, H w1",
            ["PROVIDED_IP_NOT_FOUND"],
            id="no address for a Node",
        ),
        pytest.param(
            "invalid-ip",
            policy(),
            "I 10.0.0.1, E 10.0.0.2, I fd00::1, H w1",
            ["PROVIDED_IP_INVALID"],
            id="unreadable",
        ),
        pytest.param("", policy(), "I 10.0.0.1, E 10.0.0.2, I fd00::1, H w1", ["PROVIDED_IP_INVALID"], id="empty"),
        pytest.param(
            "10.0.0.1,10.0.0.2",
            policy(),
            "I 10.0.0.1, E 10.0.0.2, I fd00::1, H w1",
            ["PROVIDED_IP_INVALID"],
            id="two of one family",
        ),
        pytest.param(
            "10.0.0.2,fd00::1",
            policy(annotations=False),
            "I 10.0.0.1, E 10.0.0.2, I fd00::1, H w1",
            [],
            id="switched off: no InternalIP is lost to the annotation",
        ),
    ],
)
def test_provided_node_ip_where_go_leaves_the_node_stuck(
    provided: str, flags: NodeSettings, expected: str, told: list[str]
) -> None:
    plan = planned(THREE, flags, provided=provided)
    assert (shown(plan.addresses), reasons(plan)) == (expected, told)


@pytest.mark.parametrize(
    ("additional", "flags", "expected", "told"),
    [
        pytest.param('["10.0.0.2"]', policy(), "I 10.0.0.1, I fd00::1, H w1", [], id="named address"),
        pytest.param('["10.0.0.1"]', policy(), "I 10.0.0.1, E 10.0.0.2, I fd00::1, H w1", [], id="is the InternalIP"),
        pytest.param('["10.0.0.0/24"]', policy(), "I 10.0.0.1, I fd00::1, H w1", [], id="range"),
        pytest.param("[]", policy(), "I 10.0.0.1, E 10.0.0.2, I fd00::1, H w1", [], id="empty list"),
        pytest.param("null", policy(), "I 10.0.0.1, E 10.0.0.2, I fd00::1, H w1", [], id="null"),
        pytest.param("", policy(), "I 10.0.0.1, E 10.0.0.2, I fd00::1, H w1", [], id="empty value"),
        pytest.param(
            '["10.0.0.2"', policy(), "I 10.0.0.1, E 10.0.0.2, I fd00::1, H w1", ["ADDITIONAL_IPS_INVALID"], id="no JSON"
        ),
        pytest.param(
            "[" * 2000,
            policy(),
            "I 10.0.0.1, E 10.0.0.2, I fd00::1, H w1",
            ["ADDITIONAL_IPS_INVALID"],
            id="nested too deep",
        ),
        pytest.param(
            f'["10.0.0.2", {"[" * 500}{"]" * 500}]',
            policy(),
            "I 10.0.0.1, I fd00::1, H w1",
            ["ADDITIONAL_IPS_INVALID"],
            id="a nested entry",
        ),
        pytest.param(
            '"10.0.0.2"',
            policy(),
            "I 10.0.0.1, E 10.0.0.2, I fd00::1, H w1",
            ["ADDITIONAL_IPS_INVALID"],
            id="text instead of a list",
        ),
        pytest.param(
            "5",
            policy(),
            "I 10.0.0.1, E 10.0.0.2, I fd00::1, H w1",
            ["ADDITIONAL_IPS_INVALID"],
            id="a number instead of a list",
        ),
        pytest.param(
            '["10.0.0.2", "x"]',
            policy(),
            "I 10.0.0.1, I fd00::1, H w1",
            ["ADDITIONAL_IPS_INVALID"],
            id="one bad entry",
        ),
        pytest.param(
            '["::ffff:10.0.0.2"]', policy(), "I 10.0.0.1, I fd00::1, H w1", [], id="written as an IPv4-mapped one"
        ),
        pytest.param(
            '["10.0.0.2"]',
            policy(cidr="10.0.0.1"),
            "I 10.0.0.1, E 10.0.0.2, E fd00::1, H w1",
            [],
            id="not looked at with a range",
        ),
        pytest.param(
            '["10.0.0.2"]',
            policy(annotations=False),
            "I 10.0.0.1, E 10.0.0.2, I fd00::1, H w1",
            [],
            id="switched off",
        ),
    ],
)
def test_additional_internal_ips(additional: str, flags: NodeSettings, expected: str, told: list[str]) -> None:
    plan = planned(THREE, flags, additional=additional)
    assert (shown(plan.addresses), reasons(plan)) == (expected, told)


def test_additional_internal_ips_beside_a_provided_node_ip() -> None:
    plan = planned(THREE, provided="10.0.0.2", additional='["10.0.0.1"]')
    assert shown(plan.addresses) == "I 10.0.0.2, E fd00::1, H w1"
    assert plan.dropped == (DroppedAddress("10.0.0.1", DropReason.ADDITIONAL),)


@pytest.mark.parametrize(
    ("exclude", "provided", "expected", "told"),
    [
        pytest.param("10.0.0.2", None, "I 10.0.0.1, I fd00::1, H w1", [], id="external address"),
        pytest.param("10.0.0.1", None, "I 10.0.0.2, I fd00::1, H w1", [], id="passed over as InternalIP"),
        pytest.param(
            "fd00::/8", None, "I 10.0.0.1, E 10.0.0.2, I fd00::1, H w1", ["EXCLUDED_ADDRESS_USED"], id="the only one"
        ),
        pytest.param("10.0.0.0/8,fd00::/8", "10.0.0.2", "I 10.0.0.2, H w1", [], id="a provided one stays"),
    ],
)
def test_exclude_ranges_without_a_range_to_choose_from(
    exclude: str, provided: str | None, expected: str, told: list[str]
) -> None:
    plan = planned(THREE, policy(exclude=exclude), provided=provided)
    assert (shown(plan.addresses), reasons(plan)) == (expected, told)


def test_every_address_that_is_not_published_has_its_reason() -> None:
    odd = (
        "10.0.0.1, 10.0.0.2/24, 010.0.0.3, 127.0.0.1, ::1, 169.254.3.4, fe80::1%eth0, 224.0.0.7, ff02::1, 0.0.0.0, "
        "255.255.255.255, ::ffff:10.0.0.1, 10.0.0.4, 10.0.0.5"
    )
    plan = planned(odd, policy(exclude="10.0.0.4"), additional='["10.0.0.5"]')
    assert shown(plan.addresses) == "I 10.0.0.1, H w1"
    assert {entry.address: entry.reason.name for entry in plan.dropped} == {
        "10.0.0.2/24": "UNREADABLE",
        "010.0.0.3": "UNREADABLE",
        "127.0.0.1": "LOOPBACK",
        "::1": "LOOPBACK",
        "169.254.3.4": "LINK_LOCAL",
        "fe80::1%eth0": "LINK_LOCAL",
        "224.0.0.7": "MULTICAST",
        "ff02::1": "MULTICAST",
        DHCP_ADDRESS: "UNSPECIFIED",
        "255.255.255.255": "BROADCAST",
        "::ffff:10.0.0.1": "DUPLICATE",
        "10.0.0.4": "EXCLUDED",
        "10.0.0.5": "ADDITIONAL",
    }


@pytest.mark.parametrize(
    ("ips", "expected"),
    [
        pytest.param("10.0.0.1, 10.0.0.2/24", "I 10.0.0.1, H w1", id="one bad entry does not spoil the others"),
        pytest.param("::ffff:10.0.0.1", "I 10.0.0.1, H w1", id="IPv4-mapped"),
        pytest.param("fd00::1%eth0", "I fd00::1, H w1", id="with a zone"),
        pytest.param("10.0.0.1, 10.0.0.1", "I 10.0.0.1, H w1", id="twice"),
    ],
)
def test_odd_reports_that_go_handles_badly(ips: str, expected: str) -> None:
    assert shown(planned(ips).addresses) == expected


@pytest.mark.parametrize(
    ("network", "nics", "message"),
    [
        pytest.param(
            None,
            [("default", "")],
            "VM prod/w1 is only in Harvester's management (pod) network, whose addresses change. Give it a VM network "
            "as first or second network; --management-network never means Harvester's management network",
            id="pod network only",
        ),
        pytest.param(
            "prod/b",
            [("default", "")],
            "VM prod/w1 is only in Harvester's management (pod) network, whose addresses change. Give it VM network "
            "prod/b, which --management-network names, as first or second network; --management-network never means "
            "Harvester's management network",
            id="pod network only, with the flag",
        ),
        pytest.param(
            "prod/b",
            [("default", ""), ("nic-1", "prod/a")],
            "VM prod/w1 has no interface in --management-network prod/b; its networks: prod/a",
            id="another VM network",
        ),
    ],
)
def test_vm_without_an_interface_that_counts(network: str | None, nics: list[tuple[str, str]], message: str) -> None:
    machine = instance(networks=nics, interfaces=[{"name": "default", "ipAddress": "10.52.0.9"}])
    plan = plan_addresses(node(taints=[UNINITIALIZED]), machine, settings=policy(network=network))
    assert plan.addresses == ()
    assert plan.problem is not None
    assert plan.problem.message == message


@pytest.mark.parametrize(
    ("network", "nics", "expected", "told"),
    [
        pytest.param(
            None,
            [("default", ""), ("nic-1", "prod/a")],
            "I 10.1.0.1, H w1",
            [],
            id="pod network does not count",
        ),
        pytest.param(
            None,
            [("nic-1", "prod/a"), ("nic-2", "prod/b")],
            "I 10.1.0.1, H w1",
            ["NETWORK_GUESSED"],
            id="first of several",
        ),
        pytest.param("prod/b", [("nic-1", "prod/a"), ("nic-2", "prod/b")], "I 10.2.0.1, H w1", [], id="named"),
        pytest.param("prod/b", [("nic-1", "prod/a"), ("nic-2", "b")], "I 10.2.0.1, H w1", [], id="VM omits namespace"),
        pytest.param(
            "infra/b", [("nic-1", "prod/a"), ("nic-2", "b")], "", ["NO_MANAGEMENT_NETWORK"], id="other namespace"
        ),
        pytest.param(None, [("default", "")], "", ["NO_MANAGEMENT_NETWORK"], id="pod network only"),
        pytest.param(None, [("nic-3", "prod/c")], "", ["NO_ADDRESS"], id="nothing reported for the interface"),
    ],
)
def test_interface_that_counts(
    network: str | None, nics: list[tuple[str, str]], expected: str, told: list[str]
) -> None:
    interfaces: list[Mapping[str, object]] = [
        {"name": "default", "ipAddress": "10.52.0.9"},
        {"name": "nic-1", "ipAddress": "10.1.0.1"},
        {"name": "nic-1", "ipAddresses": ["10.1.0.7"]},
        {"name": "nic-2", "ipAddress": "10.2.0.9", "ipAddresses": ["10.2.0.1"]},
        {"interfaceName": "cni0", "ipAddress": "10.42.0.1"},
    ]
    plan = plan_addresses(
        node(taints=[UNINITIALIZED]), instance(networks=nics, interfaces=interfaces), settings=policy(network=network)
    )
    assert (shown(plan.addresses), reasons(plan)) == (expected, told)


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        pytest.param(
            instance(ips=[], agent=False),
            "VM prod/w1 has no address yet on network prod/mgmt: is qemu-guest-agent installed and running",
            id="no agent",
        ),
        pytest.param(instance(ips=[]), "qemu-guest-agent is connected but reports none", id="agent without addresses"),
        pytest.param(instance(ips=["fe80::1"]), "unusable are fe80::1 (link-local)", id="only link-local"),
    ],
)
def test_reason_of_a_missing_address(machine: VirtualMachineInstance, words: str) -> None:
    plan = plan_addresses(node(taints=[UNINITIALIZED]), machine, settings=node_settings())
    assert plan.addresses == ()
    assert plan.problem is not None
    assert words in plan.problem.message


def test_no_address_in_the_range_publishes_nothing() -> None:
    plan = planned(THREE, policy(cidr="192.168.0.0/16"))
    assert (plan.addresses, reasons(plan)) == ((), ["NO_INTERNAL_IP"])


def test_kubelets_address_stands_in_while_the_vm_reports_none() -> None:
    plan = planned("", provided="10.0.0.7,fd00::7")
    assert (shown(plan.addresses), reasons(plan)) == ("I 10.0.0.7, I fd00::7, H w1", ["PROVIDED_IP_TRUSTED"])


def test_kubelets_address_does_not_stand_in_when_switched_off() -> None:
    plan = planned("", policy(annotations=False), provided="10.0.0.7")
    assert (plan.addresses, reasons(plan)) == ((), ["NO_ADDRESS"])


@pytest.mark.parametrize(
    ("network", "expected", "told"),
    [
        pytest.param(None, "I 10.2.0.1, H w1", [], id="no flag: the kubelet's address says which interface counts"),
        pytest.param("prod/a", "", ["PROVIDED_IP_NOT_FOUND"], id="the flag contradicts it"),
    ],
)
def test_provided_address_on_another_interface(network: str | None, expected: str, told: list[str]) -> None:
    machine = instance(
        networks=[("nic-1", "prod/a"), ("nic-2", "prod/b")],
        ips=["10.1.0.1"],
        interfaces=[{"name": "nic-2", "ipAddress": "10.2.0.1"}],
    )
    new = node(taints=[UNINITIALIZED], annotations={PROVIDED: "10.2.0.1"})
    plan = plan_addresses(new, machine, settings=policy(network=network))
    assert (shown(plan.addresses), reasons(plan)) == (expected, told)
    assert plan.problem is None or "which the VM has on interface nic-2" in plan.problem.message
