"""Addresses of a Node: whole plans, and the order of the rules."""

import json
import sys
from collections.abc import Mapping, Sequence
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import INSTANCES, VirtualMachineInstance
from harvester_ccm.names import ADDITIONAL_INTERNAL_IPS, PROVIDED_NODE_IP
from harvester_ccm.plan.node.addresses import AddressPlan, plan_addresses
from harvester_ccm.plan.node.facts import Holder, read_facts
from tests.support.node_objects import DEFAULTS, UNINITIALIZED, Owners, Pairs, instance, node, pairs, shown

GRACE_SECONDS = DEFAULTS.address_grace_seconds
POD = ("default", "")
NICS = (("nic-1", "prod/mgmt"), ("nic-2", "storage"))
VIRTUAL_IPS = Owners({"10.0.0.100": "Service shop/web"})
HOLDERS = {"10.0.0.50": Holder("w2", "prod/w2")}

PLANS = """
# Node                         | the VM reports                            | flags                                    | plan
# One interface
new                            | 10.0.0.1 10.0.0.2 fd00::1                 |                                          | I 10.0.0.1, E 10.0.0.2, I fd00::1
new kubelet=10.0.0.2           | 10.0.0.1 10.0.0.2 fd00::1                 |                                          | I 10.0.0.2, E 10.0.0.1, E fd00::1
new kubelet=fd00::1,10.0.0.2   | 10.0.0.1 10.0.0.2 fd00::1                 |                                          | I fd00::1, I 10.0.0.2, E 10.0.0.1
new kubelet=10.0.0.2           | 10.0.0.1 10.0.0.2                         | --disable-annotation-alpha-provided-ip-addr | I 10.0.0.1, E 10.0.0.2
new kubelet=junk               | 10.0.0.1                                  |                                          | I 10.0.0.1; InvalidAnnotation
new                            | 10.0.0.1 10.0.0.2 fd00::1                 | --node-ip-cidr=10.0.0.2/32               | E 10.0.0.1, I 10.0.0.2, E fd00::1
new                            | 10.0.0.1 10.0.0.2 fd00::1                 | --node-ip-cidr=10.9.0.0/16               | waits: NoInternalIP
new                            | 10.0.0.1 10.0.0.2 fd00::1                 | --node-ip-cidr=10.0.0.0/8 --node-exclude-ip-ranges=0.0.0.0/0 | I 10.0.0.1, E fd00::1
new                            | 10.0.0.1 10.0.0.2 fd00::1                 | --node-exclude-ip-ranges=10.0.0.1        | I 10.0.0.2, I fd00::1
new                            | 10.0.0.1                                  | --node-exclude-ip-ranges=10.0.0.1        | I 10.0.0.1
new more=["10.0.0.2","10.9.0.0/16"] | 10.0.0.1 10.0.0.2 fd00::1            |                                          | I 10.0.0.1, I fd00::1
new more=["x"]                 | 10.0.0.1                                  |                                          | I 10.0.0.1; InvalidAnnotation
new                            | fe80::1 x 127.0.0.1 :: 10.0.0.1 10.0.0.1 ::ffff:10.0.0.2 |                           | I 10.0.0.1, E 10.0.0.2
new                            |                                           |                                          | waits: NoAddress
I 10.0.0.2, I fd00::1 kubelet=fd00::1,10.0.0.2 | 10.0.0.2 fd00::1                          |                                          | I fd00::1, I 10.0.0.2
I 10.0.0.2                     | 10.0.0.1 10.0.0.2 fd00::1                 |                                          | I 10.0.0.2, E 10.0.0.1, I fd00::1
new kubelet=10.0.0.1,10.0.0.2  | 10.0.0.1                                  |                                          | I 10.0.0.1; InvalidAnnotation
new kubelet=0.0.0.0            | 10.0.0.1                                  |                                          | I 10.0.0.1; InvalidAnnotation
new kubelet=127.0.0.1          | 10.0.0.1                                  |                                          | I 10.0.0.1; InvalidAnnotation
new kubelet=10.0.0.1,fe80::1   | 10.0.0.1                                  |                                          | I 10.0.0.1; InvalidAnnotation
new kubelet=fd00::1, 10.0.0.2  | 10.0.0.2 fd00::1                          |                                          | I fd00::1, I 10.0.0.2
new more=null                  | 10.0.0.1                                  |                                          | I 10.0.0.1
new more=[" 10.0.0.2 "]        | 10.0.0.1 10.0.0.2                         |                                          | I 10.0.0.1
new more={                     | 10.0.0.1                                  |                                          | I 10.0.0.1; InvalidAnnotation
new                            | 10.0.0.1 10.0.0.2                         | --node-exclude-ip-ranges=10.0.0.0/8      | I 10.0.0.1
I 10.0.0.2                     | 10.0.0.1 10.0.0.2                         | --node-exclude-ip-ranges=10.0.0.0/8      | I 10.0.0.2
I 10.0.0.1                     | 10.0.0.1 10.0.0.2                         | --node-exclude-ip-ranges=10.0.0.1        | I 10.0.0.2
I 10.0.0.1                     | 10.0.0.1 10.0.0.2                         | --node-ip-cidr=10.0.0.2/32               | E 10.0.0.1, I 10.0.0.2
I 10.0.0.1                     | 10.0.0.2                                  | --node-ip-cidr=10.0.0.2/32               | I 10.0.0.2
I 10.0.0.1 overdue             | 10.0.0.2                                  | --node-exclude-ip-ranges=10.0.0.2        | I 10.0.0.2; missing 10.0.0.1
# A virtual IP, 10.0.0.100, and the InternalIP of another Node, 10.0.0.50
new                            | 10.0.0.100 10.0.0.1                       |                                          | I 10.0.0.1
new kubelet=10.0.0.100         | 10.0.0.100                                |                                          | I 10.0.0.100
I 10.0.0.100                   | 10.0.0.100 10.0.0.1                       |                                          | I 10.0.0.100, E 10.0.0.1
new                            | 10.0.0.50 10.0.0.1                        |                                          | I 10.0.0.1
new                            | 10.0.0.50                                 |                                          | waits: InternalIPInUse
new kubelet=10.0.0.50          | 10.0.0.50 10.0.0.1                        |                                          | waits: InternalIPInUse
I 10.0.0.1 kubelet=10.0.0.50   | 10.0.0.50 10.0.0.1                        |                                          | I 10.0.0.1; InternalIPInUse
I 10.0.0.1, E 10.0.0.50        | 10.0.0.50 10.0.0.1                        |                                          | I 10.0.0.1
I 10.0.0.1                     | 10.0.0.50                                 |                                          | I 10.0.0.1; InternalIPInUse
I 10.0.0.50                    | 10.0.0.50 10.0.0.1                        |                                          | I 10.0.0.50, E 10.0.0.1; InternalIPInUse
# An address that the VM does not report, or has not reported for long enough: overdue
new kubelet=10.0.0.9           | 10.0.0.1                                  |                                          | waits: NodeIPNotReported; missing 10.0.0.9
new kubelet=10.0.0.9 overdue   | 10.0.0.1                                  |                                          | I 10.0.0.9, E 10.0.0.1; NodeIPNotReported; missing 10.0.0.9
new kubelet=10.0.0.9 overdue   |                                           |                                          | I 10.0.0.9; NodeIPNotReported; missing 10.0.0.9
I 10.0.0.1 kubelet=10.0.0.9 overdue | 10.0.0.1                             |                                          | I 10.0.0.1; NodeIPNotReported
I 10.0.0.1 kubelet=10.0.0.9    | 10.0.0.1 10.0.0.9                         |                                          | I 10.0.0.9, E 10.0.0.1
I 10.0.0.1 overdue             |                                           |                                          | waits: NoAddress
I 10.0.0.1 overdue             | 10.0.0.100                                |                                          | waits: NoAddress
I 10.0.0.1 overdue             | fd00::1                                   |                                          | I 10.0.0.1, I fd00::1
I 10.0.0.1                     | 10.0.0.2                                  |                                          | I 10.0.0.1, E 10.0.0.2; missing 10.0.0.1
I 10.0.0.1 overdue             | 10.0.0.2                                  |                                          | I 10.0.0.2; missing 10.0.0.1
# Two interfaces, in the networks mgmt and storage
new                            | 10.0.0.1 10.0.0.2 + 192.168.5.1 192.168.5.2 |                                        | I 10.0.0.1, E 10.0.0.2; ManagementNetworkDefaulted
new                            | 10.0.0.1 10.0.0.2 + 192.168.5.1 192.168.5.2 | --management-network=prod/storage         | I 192.168.5.1, E 192.168.5.2
new                            | 10.0.0.1 10.0.0.2 + 192.168.5.1 192.168.5.2 | --management-network=x/y               | waits: NoVMNetwork
new                            | 10.0.0.1 10.0.0.2 + 192.168.5.1 192.168.5.2 | --node-ip-cidr=192.168.0.0/16          | I 192.168.5.1, E 192.168.5.2
new kubelet=192.168.5.2        | 10.0.0.1 10.0.0.2 + 192.168.5.1 192.168.5.2 |                                        | I 192.168.5.2, E 192.168.5.1
new kubelet=10.0.0.1           | 10.0.0.1 10.0.0.2 + 192.168.5.1 192.168.5.2 | --management-network=prod/storage         | waits: NodeIPNotReported
I 192.168.5.2                  | 10.0.0.1 10.0.0.2 + 192.168.5.1 192.168.5.2 |                                        | I 192.168.5.2, E 192.168.5.1; ManagementNetworkDefaulted
I 192.168.5.2                  | 10.0.0.1 10.0.0.2 + 192.168.5.1 192.168.5.2 | --management-network=prod/mgmt            | I 10.0.0.1, E 10.0.0.2
I 192.168.5.2, E 10.0.0.2      | 10.0.0.1 10.0.0.2 + 192.168.5.2           | --management-network=prod/storage        | I 192.168.5.2
I 10.0.0.2 kubelet=192.168.5.2 | 10.0.0.2 + 192.168.5.2                    |                                          | I 192.168.5.2
I 192.168.5.2, E 10.0.0.2      | 10.0.0.1 10.0.0.2 + 192.168.5.2           |                                          | I 192.168.5.2, E 10.0.0.2; ManagementNetworkDefaulted
I 192.168.5.2 overdue          | 10.0.0.1 10.0.0.2 +                       |                                          | waits: NoInternalIP
I 192.168.5.2 overdue          | 10.0.0.1 10.0.0.2 + 192.168.5.1           |                                          | waits: NoInternalIP
I 192.168.5.2 overdue          | 10.0.0.1 10.0.0.2 + 192.168.5.1           | --node-ip-cidr=192.168.0.0/16            | I 192.168.5.1; missing 192.168.5.2
I 192.168.5.2 overdue          | +                                         |                                          | waits: NoAddress
I 192.168.5.2 overdue          | fd00::1 +                                 |                                          | waits: NoAddress
new kubelet=10.0.0.1           | 10.0.0.1 + 10.0.0.1                       |                                          | I 10.0.0.1
I 192.168.5.2, I fd00::1       | 10.0.0.1 fd00::1 + 192.168.5.2            |                                          | I 192.168.5.2, I fd00::1; ManagementNetworkDefaulted
I 192.168.5.2                  | 10.0.0.1 + 192.168.5.2                    | --node-ip-cidr=0.0.0.0/0                 | I 192.168.5.2
# Harvester's pod network
I 10.0.0.50                    | pod 10.0.0.50 + 10.0.0.1                  |                                          | I 10.0.0.50, E 10.0.0.1; NodeIPInPodNetwork
I 10.52.0.7                    | pod 10.52.0.7 + 10.0.0.1                  |                                          | I 10.52.0.7, E 10.0.0.1; NodeIPInPodNetwork
I 10.52.0.7 kubelet=10.0.0.1   | pod 10.52.0.7 + 10.0.0.1                  |                                          | I 10.0.0.1
new                            | pod 10.52.0.7                             |                                          | waits: NoVMNetwork
new kubelet=10.0.0.3           | pod 10.52.0.7                             |                                          | waits: NodeIPNotReported; missing 10.0.0.3
new kubelet=10.0.0.3 overdue   | pod 10.52.0.7                             |                                          | I 10.0.0.3; NodeIPNotReported; missing 10.0.0.3
new kubelet=10.0.0.3 overdue   | pod 10.52.0.7                             | --management-network=x/y                 | waits: NoVMNetwork
I 10.0.0.3 kubelet=10.0.0.3    | pod 10.52.0.7                             |                                          | I 10.0.0.3; missing 10.0.0.3
"""  # noqa: E501  # a table
ROWS = [[cell.strip() for cell in row.split("|")] for row in PLANS.splitlines() if row and not row.startswith("#")]


def node_of(text: str) -> Node:
    """Return the Node in a row: ``new``, or the addresses of an initialized one, and what its annotations name."""
    addresses, *annotations = text.removesuffix(" overdue").replace(" more=", " kubelet=+").split(" kubelet=")
    named = {
        ADDITIONAL_INTERNAL_IPS if value[0] == "+" else PROVIDED_NODE_IP: value.lstrip("+") for value in annotations
    }
    if addresses == "new":
        return node(taints=[UNINITIALIZED], addresses=pairs("H w1"), annotations=named)
    return node(provider_id="harvester://uid-w1", addresses=pairs(f"{addresses}, H w1"), annotations=named)


def vmi_of(*nics: Sequence[str], networks: Pairs = NICS) -> VirtualMachineInstance:
    """Return a VMI that reports these addresses for its interfaces."""
    attached = networks[: len(nics)]
    entries = [{"name": name, "ipAddresses": list(ips)} for (name, _), ips in zip(attached, nics, strict=True)]
    return instance(networks=attached, interfaces=entries)


def reporting(text: str) -> VirtualMachineInstance:
    """Return the VMI in a row."""
    nics = [nic.split() for nic in text.removeprefix("pod ").split("+")]
    return vmi_of(*nics, networks=(POD, *NICS) if text.startswith("pod ") else NICS)


def planned(
    target: Node, vmi: VirtualMachineInstance, flags: str = "", missing_for: Mapping[str, float] | None = None
) -> AddressPlan:
    settings = build_settings(parse_command_line(["--cloud-config=x", *flags.split()]), {}).nodes
    missing = {ip_address(address): seconds for address, seconds in (missing_for or {}).items()}
    return plan_addresses(
        read_facts(target, vmi, settings=settings, virtual_ips=VIRTUAL_IPS, missing_for=missing, holders=HOLDERS)
    )


def outline(plan: AddressPlan) -> str:
    """Return the addresses or the problem, the reasons of Events and the missing addresses."""
    texts = [shown(plan.addresses).removesuffix(", H w1")]
    if plan.problem is not None:
        texts = [f"waits: {plan.problem.reason}"]
    texts += [str(event.reason) for event in plan.events]
    texts += [f"missing {address}" for address in sorted(map(str, plan.missing))]
    return "; ".join(texts)


@pytest.mark.parametrize(("target", "reported", "flags", "expected"), ROWS, ids=[" | ".join(row[:3]) for row in ROWS])
def test_plan_of_the_addresses(target: str, reported: str, flags: str, expected: str) -> None:
    present = node_of(target)
    overdue: dict[str, float] = {}
    if target.endswith(" overdue"):
        named = present.metadata.annotation(PROVIDED_NODE_IP) or present.status.addresses[0].address
        overdue = {named: GRACE_SECONDS}
    assert outline(planned(present, reporting(reported), flags, overdue)) == expected


def test_every_address_has_a_reason() -> None:
    plan = planned(node_of("I 10.0.0.1"), reporting("10.0.0.1 10.0.0.2 10.0.0.100 10.0.0.50 x + 192.168.5.1"))
    assert plan.reasons == {
        "10.0.0.1": "present InternalIP, which the VM reports",
        "10.0.0.2": "another address of interface nic-1",
        "w1": "name of the Node",
        "10.0.0.100": "virtual IP of Service shop/web",
        "10.0.0.50": "InternalIP of Node w2",
        "x": "not an IP address",
        "192.168.5.1": "on interface nic-2, and not on nic-1",
    }


def calls_for(count: int) -> int:
    """Return the number of function calls of a plan for a guest and a kubelet that report this many addresses."""
    reported = [f"10.0.{number // 250}.{number % 250 + 1}" for number in range(count)]
    present = [("InternalIP", address) for address in reported[::2]]
    ranges = json.dumps([f"10.1.{number // 250}.{number % 250 + 1}" for number in range(count)])
    target = node(provider_id="harvester://uid-w1", addresses=present, annotations={ADDITIONAL_INTERNAL_IPS: ranges})
    vmi = vmi_of(reported, reported)
    calls = 0

    def count_call(*_: object) -> None:
        nonlocal calls
        calls += 1

    before = sys.getprofile()
    sys.setprofile(count_call)
    try:
        planned(target, vmi)
    finally:
        sys.setprofile(before)
    return calls


def test_work_grows_linearly_with_the_addresses() -> None:
    assert calls_for(800) < 2.5 * calls_for(400)


def test_address_on_a_bridge_of_the_guest_is_named() -> None:
    nic = {"name": "nic-1", "interfaceName": "eth0", "mac": "02:00:00:00:00:01"}
    bridge = {"interfaceName": "br0", "mac": "02:00:00:00:00:01", "ipAddresses": ["10.0.0.5"]}
    idle = {"interfaceName": "bond0", "mac": "02:00:00:00:00:01"}
    of_pods = {"interfaceName": "cni0", "mac": "02:00:00:00:00:09", "ipAddresses": ["10.42.0.1"]}
    tunnel = {"interfaceName": "tun0", "ipAddresses": ["10.88.0.1"]}
    vmi = instance(networks=NICS, interfaces=[nic, {"name": "nic-2"}, bridge, idle, of_pods, tunnel])
    for target in ("new", "new kubelet=10.0.0.5"):
        problem = planned(node_of(target), vmi).problem
        assert problem is not None
        assert problem.cause.count(". It reports 10.0.0.5 on br0, a device over this NIC: name the address with") == 1
        assert "cni0" not in problem.cause


@pytest.mark.parametrize(
    ("target", "vmi", "flags", "text"),
    [
        ("new kubelet=10.0.0.1,fd00::9", vmi_of(["10.0.0.1"]), "", "--node-ip fd00::9 on network prod/mgmt"),
        (
            "new kubelet=10.52.0.7",
            reporting("pod 10.52.0.7 + fd00::1 10.0.0.1"),
            "",
            "(RKE2, K3s: node-ip) to 10.0.0.1, and restart",
        ),
        (
            "new",
            vmi_of(["10.0.0.1"]),
            "--management-network=x/y",
            "in --management-network x/y; its VM networks: prod/mgmt.",
        ),
        ("new", instance(), "", "Check that the VM configures this interface"),
        ("new", instance(agent=False), "", "Check that qemu-guest-agent runs in the VM"),
    ],
)
def test_event_names_what_is_wrong(target: str, vmi: VirtualMachineInstance, flags: str, text: str) -> None:
    problem = planned(node_of(target), vmi, flags).problem
    assert problem is not None
    assert text in problem.message


def test_long_list_of_additional_addresses_is_read_whole() -> None:
    more = json.dumps([*(f"10.1.0.{number}" for number in range(200)), "10.0.0.2"])
    assert outline(planned(node_of(f"new more={more}"), reporting("10.0.0.1 10.0.0.2"))) == "I 10.0.0.1"


OWN_RANGES = {"vmNetworkCIDR": "172.30.0.0/24", "vmIPv6NetworkCIDR": "fd77::/64"}


@pytest.mark.parametrize(
    ("pod", "address"),
    [({}, "10.0.2.254"), ({}, "fd10:0:2::2"), (OWN_RANGES, "172.30.0.5"), (OWN_RANGES, "fd77::5")],
)
def test_address_in_a_range_of_the_pod_network_is_recognized(pod: Mapping[str, str], address: str) -> None:
    networks = [{"name": "nic-1", "multus": {"networkName": "mgmt"}}, {"name": "default", "pod": pod}]
    vmi = INSTANCES.decode(json.dumps({"metadata": {"name": "w1"}, "spec": {"networks": networks}}).encode())
    assert outline(planned(node_of(f"new kubelet={address}"), vmi)) == "waits: NodeIPInPodNetwork"


ADDRESSES = st.lists(
    st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.50", "10.0.0.100", "192.168.5.1", "fd00::1", "fe80::1", "x"]),
    max_size=4,
)


@given(
    ADDRESSES,
    ADDRESSES,
    st.sampled_from(["", "10.0.0.1", "10.0.0.9", "10.0.0.9,fd00::9"]),
    st.sampled_from(["new", "I 10.0.0.1", "I 10.0.0.1, I fd00::1", "I 192.168.5.1"]),
    st.sampled_from(["", "--management-network=prod/storage"]),
)
def test_internal_ip_stays_and_a_second_plan_changes_nothing(
    first: list[str], second: list[str], provided: str, present: str, flags: str
) -> None:
    """Without a flag and an address of the kubelet, the InternalIPs of an initialized Node stay."""
    kubelet = f" kubelet={provided}" if provided else ""
    target = node_of(f"{present}{kubelet}")
    overdue = dict.fromkeys(["10.0.0.9", "fd00::9"], GRACE_SECONDS)
    vmi = vmi_of(first, second)
    plan = planned(target, vmi, flags, overdue)
    after = {entry.address for entry in plan.addresses if entry.type == "InternalIP"}
    assert bool(plan.addresses) == bool(after) == (plan.problem is None)
    if not plan.addresses:
        return
    is_named = bool(flags) or bool(after & set(provided.split(",")))
    before = {entry.address for entry in target.status.addresses if entry.type == "InternalIP"}
    assert is_named or before <= after
    written = node_of(f"{shown(plan.addresses).removesuffix(', H w1')}{kubelet}")
    # Without addresses, those of the Node stay.
    assert planned(written, vmi, flags, overdue).addresses in {(), plan.addresses}
