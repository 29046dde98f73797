"""Addresses of a Node: whole plans."""

import json
import sys
from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.names import ADDITIONAL_INTERNAL_IPS, PROVIDED_NODE_IP
from harvester_ccm.plan.node.addresses import AddressPlan, plan_addresses
from harvester_ccm.plan.node.interface import INTERFACE_RULES, InterfaceRule
from harvester_ccm.plan.node.internal_ip import INTERNAL_IP_RULES, InternalIPRule
from harvester_ccm.plan.node.match import OTHER_IDENTITIES, MatchedBy
from tests.support.node_objects import DEFAULTS, UNINITIALIZED, Owners, instance, node, node_settings, pairs, shown

GRACE_SECONDS = DEFAULTS.address_grace_seconds
TWO_NICS = (("nic-1", "prod/mgmt"), ("nic-2", "prod/storage"))
VIP = {"10.0.0.100": "Service shop/web"}


def new(provided: str | None = None, **annotations: str) -> Node:
    """Return a Node that has just joined; ``provided`` is the kubelet's address."""
    notes = {**annotations, **({PROVIDED_NODE_IP: provided} if provided is not None else {})}
    return node(taints=[UNINITIALIZED], addresses=pairs("H w1"), annotations=notes)


def old(addresses: str, provided: str | None = None) -> Node:
    """Return an initialized Node."""
    annotations = {PROVIDED_NODE_IP: provided} if provided is not None else {}
    return node(provider_id="harvester://uid-w1", addresses=pairs(f"{addresses}, H w1"), annotations=annotations)


def vmi(*nics: Sequence[str], networks: Sequence[tuple[str, str]] | None = None) -> VirtualMachineInstance:
    """Return a VMI that reports these addresses for its interfaces."""
    networks = networks or TWO_NICS[: len(nics)]
    entries = [{"name": name, "ipAddresses": list(ips)} for (name, _), ips in zip(networks, nics, strict=True)]
    return instance(networks=networks, interfaces=entries)


def planned(
    target: Node,
    machine: VirtualMachineInstance,
    *,
    overdue: Sequence[str] = (),
    flags: Mapping[str, object] | None = None,
) -> AddressPlan:
    """Return the plan; the ``overdue`` addresses have been missing for long enough."""
    missing_for = {ip_address(one): GRACE_SECONDS for one in overdue}
    settings = node_settings(**(flags or {}))
    return plan_addresses(
        target, machine, settings=settings, virtual_ips=Owners(VIP), missing_for=missing_for, holders={}
    )


def outline(plan: AddressPlan) -> str:
    """Return the addresses, or the problem, and after a bar the reasons of Events and the missing addresses."""
    text = shown(plan.addresses).removesuffix(", H w1") if plan.addresses else f"- {problem_of(plan)}"
    more = [str(event.reason) for event in plan.events] + [f"missing {one}" for one in sorted(map(str, plan.missing))]
    return f"{text} | {', '.join(more)}" if more else text


def problem_of(plan: AddressPlan) -> str:
    assert plan.problem is not None
    return str(plan.problem.reason)


LIST = ["10.0.0.1", "10.0.0.2", "fd00::1"]


@pytest.mark.parametrize(
    ("target", "reported", "flags", "expected"),
    [
        pytest.param(new(), LIST, {}, "I 10.0.0.1, E 10.0.0.2, I fd00::1", id="first of each family"),
        pytest.param(new("10.0.0.2"), LIST, {}, "I 10.0.0.2, E 10.0.0.1, E fd00::1", id="kubelet's address"),
        pytest.param(
            new("fd00::1,10.0.0.2"), LIST, {}, "I fd00::1, I 10.0.0.2, E 10.0.0.1", id="kubelet's pair in its order"
        ),
        pytest.param(
            new("10.0.0.2"),
            LIST,
            {"use_provided_node_ip": False},
            "I 10.0.0.1, E 10.0.0.2, I fd00::1",
            id="flag is set",
        ),
        pytest.param(
            new(), LIST, {"node_ip_cidrs": (ip_network("10.0.0.2/32"),)}, "E 10.0.0.1, I 10.0.0.2, E fd00::1", id="CIDR"
        ),
        pytest.param(
            new(), LIST, {"node_ip_cidrs": (ip_network("10.9.0.0/16"),)}, "- NoInternalIP", id="nothing inside the CIDR"
        ),
        pytest.param(
            new(),
            LIST,
            {"node_ip_cidrs": (ip_network("10.0.0.0/8"),), "exclude_ranges": (ip_network("0.0.0.0/0"),)},
            "I 10.0.0.1, E fd00::1",
            id="CIDR and excluded range",
        ),
        pytest.param(
            new(), LIST, {"exclude_ranges": (ip_network("10.0.0.1/32"),)}, "I 10.0.0.2, I fd00::1", id="excluded"
        ),
        pytest.param(
            new(),
            LIST[:1],
            {"exclude_ranges": (ip_network("10.0.0.1/32"),)},
            "I 10.0.0.1",
            id="no other than the excluded one",
        ),
        pytest.param(
            new(**{ADDITIONAL_INTERNAL_IPS: '["10.0.0.2", "10.9.0.0/16"]'}),
            LIST,
            {},
            "I 10.0.0.1, I fd00::1",
            id="additional internal IPs",
        ),
        pytest.param(
            new(**{ADDITIONAL_INTERNAL_IPS: '["x"]'}),
            LIST[:1],
            {},
            "I 10.0.0.1 | InvalidAnnotation",
            id="invalid additional internal IPs",
        ),
        pytest.param(
            new(),
            ["fe80::1", "x", "10.0.0.1", "10.0.0.1", "::ffff:10.0.0.2"],
            {},
            "I 10.0.0.1, E 10.0.0.2",
            id="bad ones",
        ),
        pytest.param(new(), ["10.0.0.100", "10.0.0.1"], {}, "I 10.0.0.1", id="virtual IP"),
        pytest.param(new("10.0.0.100"), ["10.0.0.100"], {}, "I 10.0.0.100", id="virtual IP that the kubelet has"),
        pytest.param(old("I 10.0.0.100"), ["10.0.0.100", "10.0.0.1"], {}, "I 10.0.0.100, E 10.0.0.1", id="taken VIP"),
        pytest.param(new(), [], {}, "- NoAddress", id="silent guest agent"),
        pytest.param(new("junk"), LIST[:1], {}, "I 10.0.0.1 | InvalidAnnotation", id="invalid annotation"),
        pytest.param(old("I 10.0.0.2"), LIST, {}, "I 10.0.0.2, E 10.0.0.1, I fd00::1", id="InternalIP stays"),
    ],
)
def test_addresses_of_one_interface(target: Node, reported: list[str], flags: dict[str, object], expected: str) -> None:
    assert outline(planned(target, vmi(reported), flags=flags)) == expected


@pytest.mark.parametrize(
    ("target", "reported", "overdue", "expected"),
    [
        pytest.param(new("10.0.0.9"), ["10.0.0.1"], [], "- NodeIPNotReported | missing 10.0.0.9", id="new, awaited"),
        pytest.param(
            new("10.0.0.9"),
            ["10.0.0.1"],
            ["10.0.0.9"],
            "I 10.0.0.9, E 10.0.0.1 | NodeIPNotReported, missing 10.0.0.9",
            id="new, used at last",
        ),
        pytest.param(
            new("10.0.0.9"), [], ["10.0.0.9"], "I 10.0.0.9 | NodeIPNotReported, missing 10.0.0.9", id="new, silent"
        ),
        pytest.param(
            old("I 10.0.0.1", "10.0.0.9"),
            ["10.0.0.1"],
            ["10.0.0.9"],
            "I 10.0.0.1 | NodeIPNotReported",
            id="InternalIP that is reported stays",
        ),
        pytest.param(
            old("I 10.0.0.1", "10.0.0.9"), ["10.0.0.1", "10.0.0.9"], [], "I 10.0.0.9, E 10.0.0.1", id="reported"
        ),
        pytest.param(old("I 10.0.0.1"), [], ["10.0.0.1"], "- NoAddress", id="silent agent changes nothing"),
        pytest.param(old("I 10.0.0.1"), ["10.0.0.100"], ["10.0.0.1"], "- NoAddress", id="only a virtual IP"),
        pytest.param(
            old("I 10.0.0.1"), ["fd00::1"], ["10.0.0.1"], "I 10.0.0.1, I fd00::1", id="other family is no replacement"
        ),
        pytest.param(
            old("I 10.0.0.1"), ["10.0.0.2"], [], "I 10.0.0.1, E 10.0.0.2 | missing 10.0.0.1", id="missing for some time"
        ),
        pytest.param(old("I 10.0.0.1"), ["10.0.0.2"], ["10.0.0.1"], "I 10.0.0.2 | missing 10.0.0.1", id="replaced"),
    ],
)
def test_addresses_that_the_vm_does_not_report(
    target: Node, reported: list[str], overdue: list[str], expected: str
) -> None:
    assert outline(planned(target, vmi(reported), overdue=overdue)) == expected


A, B = ["10.0.0.1", "10.0.0.2"], ["192.168.5.1", "192.168.5.2"]
STORAGE = {"management_network": "storage"}


@pytest.mark.parametrize(
    ("target", "nics", "flags", "expected"),
    [
        pytest.param(new(), (A, B), {}, "I 10.0.0.1, E 10.0.0.2 | ManagementNetworkDefaulted", id="first interface"),
        pytest.param(new(), (A, B), STORAGE, "I 192.168.5.1, E 192.168.5.2", id="flag"),
        pytest.param(new(), (A, B), {"management_network": "x/y"}, "- NoVMNetwork", id="no such network"),
        pytest.param(new("192.168.5.2"), (A, B), {}, "I 192.168.5.2, E 192.168.5.1", id="kubelet's address"),
        pytest.param(new("10.0.0.1"), (A, B), STORAGE, "- NodeIPNotReported", id="kubelet contradicts the flag"),
        pytest.param(
            new(), (A, B), {"node_ip_cidrs": (ip_network("192.168.0.0/16"),)}, "I 192.168.5.1, E 192.168.5.2", id="CIDR"
        ),
        pytest.param(
            old("I 192.168.5.2"),
            (A, B),
            {},
            "I 192.168.5.2, E 192.168.5.1 | ManagementNetworkDefaulted",
            id="interface with the InternalIP",
        ),
        pytest.param(
            old("I 192.168.5.2, E 10.0.0.2"),
            (A, B),
            {},
            "I 192.168.5.2, E 10.0.0.2, E 192.168.5.1 | ManagementNetworkDefaulted",
            id="ExternalIP of another interface stays",
        ),
        pytest.param(old("I 192.168.5.2"), (A, []), {}, "- NoInternalIP", id="one of two interfaces is silent"),
        pytest.param(old("I 192.168.5.2"), (A, B[:1]), {}, "- NoInternalIP", id="nothing selects an interface"),
        pytest.param(
            old("I 192.168.5.2"),
            (A, B[:1]),
            {"node_ip_cidrs": (ip_network("192.168.0.0/16"),)},
            "I 192.168.5.1 | missing 192.168.5.2",
            id="CIDR selects the replacement",
        ),
        pytest.param(old("I 192.168.5.2"), ([], []), {}, "- NoAddress", id="both interfaces are silent"),
        pytest.param(
            old("I 192.168.5.2"), (A, B), {"management_network": "mgmt"}, "I 10.0.0.1, E 10.0.0.2", id="new flag"
        ),
    ],
)
def test_interface_of_several(
    target: Node, nics: tuple[list[str], list[str]], flags: dict[str, object], expected: str
) -> None:
    overdue = ["192.168.5.2"] if "10.0.0.2" not in shown(target.status.addresses) else []
    assert outline(planned(target, vmi(*nics), overdue=overdue, flags=flags)) == expected


def test_vm_in_the_pod_network_has_the_address_of_its_kubelet() -> None:
    pod = vmi(["10.52.0.7"], networks=[("default", "")])
    assert outline(planned(new(), pod)) == "- NoVMNetwork"
    assert outline(planned(new("10.0.0.3"), pod)) == "- NodeIPNotReported | missing 10.0.0.3"
    trusted = planned(new("10.0.0.3"), pod, overdue=["10.0.0.3"])
    assert outline(trusted) == "I 10.0.0.3 | NodeIPNotReported, missing 10.0.0.3"
    assert shown(planned(old("I 10.0.0.3", "10.0.0.3"), pod).addresses) == "I 10.0.0.3, H w1"


def test_rules_are_tested_in_the_order_of_the_documentation() -> None:
    assert list(INTERFACE_RULES) == list(InterfaceRule)
    assert list(INTERNAL_IP_RULES) == list(InternalIPRule)
    assert [MatchedBy.PROVIDER_ID, *OTHER_IDENTITIES] == list(MatchedBy)


def test_every_address_has_a_reason() -> None:
    plan = planned(old("I 10.0.0.1"), vmi(["10.0.0.1", "10.0.0.2", "10.0.0.100", "x"], B))
    assert plan.reasons == {
        "10.0.0.1": "present InternalIP, which the VM reports",
        "10.0.0.2": "another address of interface nic-1",
        "w1": "name of the Node",
        "10.0.0.100": "virtual IP of Service shop/web",
        "x": "not an IP address",
        "192.168.5.1": "on interface nic-2, and not on nic-1",
        "192.168.5.2": "on interface nic-2, and not on nic-1",
    }


def calls_for(count: int) -> int:
    """Return the number of function calls of a plan for a guest and a kubelet that report this many addresses."""
    reported = [f"10.0.{number // 250}.{number % 250 + 1}" for number in range(count)]
    present = [("InternalIP", address) for address in reported[::2]]
    ranges = json.dumps([f"10.1.{number // 250}.{number % 250 + 1}" for number in range(count)])
    target = node(provider_id="harvester://uid-w1", addresses=present, annotations={ADDITIONAL_INTERNAL_IPS: ranges})
    machine = vmi(reported, reported)
    calls = 0

    def count_call(*_: object) -> None:
        nonlocal calls
        calls += 1

    before = sys.getprofile()
    sys.setprofile(count_call)
    try:
        planned(target, machine)
    finally:
        sys.setprofile(before)
    return calls


def test_work_grows_linearly_with_the_addresses() -> None:
    few, twice_as_many = calls_for(400), calls_for(800)
    assert twice_as_many < 2.5 * few


def test_address_on_a_bridge_of_the_guest_is_named() -> None:
    nic = {"name": "nic-1", "interfaceName": "eth0", "mac": "02:00:00:00:00:01"}
    bridge = {"interfaceName": "br0", "mac": "02:00:00:00:00:01", "ipAddresses": ["10.0.0.5"]}
    of_pods = {"interfaceName": "cni0", "mac": "02:00:00:00:00:09", "ipAddresses": ["10.42.0.1"]}
    machine = instance(networks=TWO_NICS[:1], interfaces=[nic, bridge, of_pods])
    for target in (new(), new("10.0.0.5")):
        problem = planned(target, machine).problem
        assert problem is not None
        assert problem.cause.count(". It reports 10.0.0.5 on br0, a device over this NIC: name the address with") == 1
        assert "cni0" not in problem.cause


ADDRESSES = st.lists(
    st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.100", "192.168.5.1", "fd00::1", "fd00::2", "fe80::1", "x"]),
    max_size=4,
)


@given(
    ADDRESSES,
    ADDRESSES,
    st.sampled_from([None, "10.0.0.1", "10.0.0.9", "10.0.0.9,fd00::9"]),
    st.sampled_from(["I 10.0.0.1", "I 10.0.0.1, I fd00::1", "I 192.168.5.1"]),
    st.sampled_from(["", "storage"]),
)
def test_internal_ip_that_the_vm_reports_stays_without_a_flag_or_the_kubelet(
    first: list[str], second: list[str], provided: str | None, present: str, network: str
) -> None:
    target = old(present, provided)
    plan = planned(target, vmi(first, second), flags={"management_network": network or None})
    after = {one.address for one in plan.addresses if one.type == "InternalIP"}
    assert bool(plan.addresses) == bool(after) == (plan.problem is None)
    for one in target.status.addresses:
        is_named = provided is not None and bool(after & set(provided.split(",")))
        if one.type == "InternalIP" and plan.addresses and not (network or is_named):
            assert one.address in after


@given(ADDRESSES, ADDRESSES, st.sampled_from([None, "10.0.0.1", "10.0.0.9", "10.0.0.9,fd00::9"]))
def test_second_plan_changes_nothing(first: list[str], second: list[str], provided: str | None) -> None:
    machine = vmi(first, second)
    plan = planned(new(provided), machine, overdue=["10.0.0.9", "fd00::9"])
    if plan.addresses:
        after = old(shown(plan.addresses).removesuffix(", H w1"), provided)
        # Without addresses, those of the Node stay.
        assert planned(after, machine).addresses in {(), plan.addresses}
