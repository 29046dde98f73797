"""What holds for the addresses of a Node whatever Harvester reports."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harvester_ccm.config import NodeSettings
from harvester_ccm.model.core import Node
from harvester_ccm.names import DHCP_ADDRESS, NodeReason
from harvester_ccm.netip import IPAddress, IPNetwork, parse_range, plain_address
from harvester_ccm.plan.node.addresses import AddressPlan, plan_addresses
from tests.unit.plan.node.test_addresses import PROVIDED
from tests.worlds.node_objects import UNINITIALIZED, instance, node, node_settings

GOOD = ("10.0.0.1", "10.0.0.2", "10.0.1.3", "192.168.7.7", "fd00::1", "fd00::2", "2001:db8::1", "::ffff:10.0.0.1")
ODD = ("", "10.0.0.2/24", "x", "127.0.0.1", "169.254.1.1", "fe80::1", "fe80::1%eth0", "224.0.0.1", DHCP_ADDRESS, "::")
REPORTS = st.lists(st.sampled_from(GOOD + ODD), max_size=8)
RANGES: tuple[IPNetwork, ...] = tuple(parse_range(t)[1] for t in ("10.0.0.2", "10.0.0.0/16", "fd00::/8", "0.0.0.0/0"))
VIRTUAL: tuple[IPAddress, ...] = tuple(map(plain_address, ("10.0.0.2", "192.168.7.7", "fd00::2")))
POLICIES = st.builds(
    node_settings,
    node_ip_cidrs=st.sampled_from([(), RANGES[1:2], RANGES[2:3], RANGES[1:3]]),
    exclude_ranges=st.lists(st.sampled_from(RANGES), max_size=2).map(tuple),
    use_provided_node_ip=st.booleans(),
)
ANNOTATIONS = st.sampled_from([None, "", "x", "10.0.0.1", "10.0.0.2,fd00::2", "fd00::9,10.0.0.1", "169.254.1.1"])
SUBSETS = st.frozensets(st.sampled_from(VIRTUAL))


def known(annotation: str | None, plan: AddressPlan | None = None) -> Node:
    return node(
        provider_id="harvester://uid-w1" if plan else "",
        taints=[] if plan else [UNINITIALIZED],
        addresses=[(address.type, address.address) for address in plan.addresses] if plan else [],
        annotations={} if annotation is None else {PROVIDED: annotation},
    )


def of_type(plan: AddressPlan, kind: str) -> list[IPAddress]:
    return [plain_address(address.address) for address in plan.addresses if address.type == kind]


@st.composite
def histories(draw: st.DrawFn) -> tuple[AddressPlan, NodeSettings, frozenset[IPAddress]]:
    """A plan for a new Node or for one that was planned before, under rules that stay.

    Also its settings, and the addresses of load balancers that the kubelet was not given.
    """
    policy, virtual, annotation = draw(POLICIES), draw(SUBSETS), draw(ANNOTATIONS)
    machine = instance(ips=draw(REPORTS))
    plan = plan_addresses(
        known(annotation), machine, settings=policy, virtual_ips=dict.fromkeys(virtual, "a load balancer")
    )
    if draw(st.booleans()):
        later = instance(ips=draw(REPORTS))
        plan = plan_addresses(
            known(annotation, plan), later, settings=policy, virtual_ips=dict.fromkeys(virtual, "a load balancer")
        )
    given = {text for text in (annotation or "").split(",") if policy.use_provided_node_ip}
    return plan, policy, frozenset(address for address in virtual if str(address) not in given)


@given(histories())
def test_at_most_one_internal_ip_per_family_and_at_least_one_in_all(
    history: tuple[AddressPlan, NodeSettings, frozenset[IPAddress]],
) -> None:
    plan, _, _ = history
    families = [address.version for address in of_type(plan, "InternalIP")]
    assert len(families) == len(set(families))
    assert bool(families) == bool(plan.addresses)
    assert bool(plan.addresses) != (plan.problem is not None)


@given(histories())
def test_no_special_address_is_published_none_twice_and_no_virtual_one_but_the_kubelets(
    history: tuple[AddressPlan, NodeSettings, frozenset[IPAddress]],
) -> None:
    plan, _, virtual = history
    published = of_type(plan, "InternalIP") + of_type(plan, "ExternalIP")
    assert len(published) == len(set(published))
    for address in published:
        assert address not in virtual
        assert not any((address.is_loopback, address.is_link_local, address.is_multicast, address.is_unspecified))
        assert not (isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped)


@given(histories())
def test_excluded_address_is_never_external(
    history: tuple[AddressPlan, NodeSettings, frozenset[IPAddress]],
) -> None:
    plan, policy, _ = history
    for address in of_type(plan, "ExternalIP"):
        assert not any(address in entry for entry in policy.exclude_ranges)


@given(histories())
def test_excluded_address_is_internal_only_by_choice_or_with_a_note(
    history: tuple[AddressPlan, NodeSettings, frozenset[IPAddress]],
) -> None:
    plan, policy, _ = history
    excluded = [a for a in of_type(plan, "InternalIP") if any(a in entry for entry in policy.exclude_ranges)]
    chosen = bool(policy.node_ip_cidrs) or policy.use_provided_node_ip
    told = {
        frozenset(note.subject.split(", ")) for note in plan.notes if note.reason is NodeReason.EXCLUDED_ADDRESS_USED
    }
    assert not excluded or chosen or told == {frozenset(map(str, excluded))}


@given(st.data(), REPORTS, POLICIES, ANNOTATIONS)
def test_order_of_the_interfaces_changes_nothing(
    data: st.DataObject, report: list[str], policy: NodeSettings, annotation: str | None
) -> None:
    """A guest agent lists interfaces as it finds them; the order of the VM's networks is what counts."""
    nics = [("nic-1", "prod/mgmt"), ("nic-2", "prod/storage")]
    entries: list[Mapping[str, object]] = [
        {"name": "nic-1", "ipAddresses": report},
        {"name": "nic-2", "ipAddresses": ["10.9.0.1", "fd00::9"]},
        {"interfaceName": "cni0", "ipAddress": "10.42.0.1"},
    ]
    first = plan_addresses(known(annotation), instance(networks=nics, interfaces=entries), settings=policy)
    shuffled = data.draw(st.permutations(entries))
    again = plan_addresses(known(annotation), instance(networks=nics, interfaces=shuffled), settings=policy)
    # What is shown of the interfaces that do not count follows their order.
    assert replace(again, verdicts=()) == replace(first, verdicts=())
    assert Counter(again.verdicts) == Counter(first.verdicts)


@given(histories())
def test_host_name_comes_last_and_once(history: tuple[AddressPlan, NodeSettings, frozenset[IPAddress]]) -> None:
    plan, _, _ = history
    if plan.addresses:
        assert [address.type for address in plan.addresses].index("Hostname") == len(plan.addresses) - 1
        assert plan.addresses[-1].address == "w1"


@given(st.data(), REPORTS, POLICIES, ANNOTATIONS)
def test_same_report_in_any_order_changes_nothing(
    data: st.DataObject, report: list[str], policy: NodeSettings, annotation: str | None
) -> None:
    first = plan_addresses(known(annotation), instance(ips=report), settings=policy)
    shuffled = data.draw(st.permutations(report))
    present = known(annotation, first)
    again = plan_addresses(present, instance(ips=shuffled), settings=policy)
    assert (again.addresses or present.status.addresses) == first.addresses


@given(REPORTS, REPORTS, POLICIES)
def test_internal_ip_of_a_family_is_never_lost(first: list[str], second: list[str], policy: NodeSettings) -> None:
    before = plan_addresses(known(None), instance(ips=first), settings=policy)
    after = plan_addresses(known(None, before), instance(ips=second), settings=policy)
    families = {address.version for address in of_type(before, "InternalIP")}
    if after.addresses:
        assert families <= {address.version for address in of_type(after, "InternalIP")}


@given(
    first=REPORTS,
    second=REPORTS,
    policy=POLICIES,
    network=st.sampled_from([None, "prod/storage", "prod/none"]),
    annotation=ANNOTATIONS,
    present=st.sampled_from([None, "10.0.0.1", "10.2.2.2"]),
)
def test_every_address_has_a_verdict_that_fits(
    first: list[str],
    second: list[str],
    policy: NodeSettings,
    network: str | None,
    annotation: str | None,
    present: str | None,
) -> None:
    vmi = instance(
        networks=[("nic-1", "prod/mgmt"), ("nic-2", "prod/storage")],
        interfaces=[{"name": "nic-1", "ipAddresses": first}, {"name": "nic-2", "ipAddresses": second}],
    )
    target = node(
        provider_id="harvester://uid-w1" if present else "",
        taints=[] if present else [UNINITIALIZED],
        addresses=[("InternalIP", present)] if present else [],
        annotations={} if annotation is None else {PROVIDED: annotation},
    )
    settings = replace(policy, management_network=network)
    plan = plan_addresses(target, vmi, settings=settings, virtual_ips={plain_address("10.0.0.2"): "a load balancer"})
    kept = [(one.kind, one.address) for one in plan.verdicts if one.kind]
    assert kept == [(one.type, one.address) for one in plan.addresses]
    assert all(one.because for one in plan.verdicts)
    reported = sorted(plain(one.address) for one in plan.verdicts if one.interface)
    assert reported == sorted(plain(text) for text in (*first, *second))


def plain(text: str) -> str:
    """Return an address as it is published, or the text that is none."""
    try:
        return str(plain_address(text))
    except ValueError:
        return text
