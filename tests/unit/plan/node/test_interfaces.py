"""Which interface of a VM counts: what the kubelet and the Node say comes before the guess of the first one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harvester_ccm.config import NodeSettings
from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.names import NODE_NETWORK_RECORD, PROVIDED_NODE_IP, NodeReason
from harvester_ccm.netip import parse_range
from harvester_ccm.plan.node.addresses import AddressPlan, plan_addresses
from harvester_ccm.plan.node.decision import NodePlan, NodeView, plan_node
from harvester_ccm.plan.node.match import find_vm
from harvester_ccm.plan.node.patch import patch_request
from tests.worlds.node_objects import (
    OWN,
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

A, B = "prod/a", "prod/b"
NICS = (("nic-1", A), ("nic-2", B))
IP1, IP2, V61, V62 = "10.1.0.1", "10.2.0.1", "fd01::1", "fd02::1"
GUESSED, NOT_FOUND, TRUSTED = "NETWORK_GUESSED", "PROVIDED_IP_NOT_FOUND", "PROVIDED_IP_TRUSTED"


def two_nics(first: Sequence[str] = (IP1,), second: Sequence[str] = (IP2,)) -> VirtualMachineInstance:
    """Return a VM whose two interfaces report these addresses."""
    return instance(networks=NICS, ips=first, interfaces=[{"name": "nic-2", "ipAddresses": list(second)}], labels=OWN)


def known(present: str = "", *, provided: str | None = None, recorded: str | None = None) -> Node:
    """Return a Node that is initialised if it has an InternalIP."""
    annotations = {PROVIDED_NODE_IP: provided, NODE_NETWORK_RECORD: recorded}
    return node(
        provider_id="harvester://uid-w1" if present else "",
        taints=[] if present else [UNINITIALIZED],
        addresses=pairs(present),
        annotations={key: value for key, value in annotations.items() if value is not None},
    )


def patient(flag: str | None) -> NodeSettings:
    """Return settings by which nothing is waited for any more; ``test_awaited`` has what comes before."""
    return node_settings(management_network=flag, monitor_period=0.0)


def look(target: Node, running: VirtualMachineInstance, flag: str | None = None) -> tuple[NodePlan, Node]:
    """Return the plan for a Node, and the Node after it."""
    match = find_vm(store([vm(labels=OWN)], [running]), target)
    plan = plan_node(NodeView(target, match, patient(flag)))
    for patch in plan.patches:
        request = patch_request(target, patch)
        target = patched(target, request.body) if request else target
    return plan, target


@pytest.mark.parametrize(
    ("flag", "provided", "recorded", "expected", "told"),
    [
        pytest.param(None, None, None, "I 10.1.0.1, H w1", [GUESSED], id="nothing known: the first"),
        pytest.param(None, IP1, None, "I 10.1.0.1, H w1", [], id="provided on the first"),
        pytest.param(None, IP2, None, "I 10.2.0.1, H w1", [], id="provided on the second"),
        pytest.param(None, IP2, A, "I 10.2.0.1, H w1", [], id="provided before recorded"),
        pytest.param(None, "10.9.0.1", None, "I 10.9.0.1, E 10.1.0.1, H w1", [GUESSED, TRUSTED], id="provided nowhere"),
        pytest.param(None, None, B, "I 10.2.0.1, H w1", [GUESSED], id="recorded"),
        pytest.param(None, None, "prod/gone", "I 10.1.0.1, H w1", [GUESSED], id="recorded network that is gone"),
        pytest.param(None, f"{IP1},{V62}", None, "", [NOT_FOUND], id="pair on two interfaces"),
        pytest.param(A, None, B, "I 10.1.0.1, H w1", [], id="flag before recorded"),
        pytest.param(B, None, None, "I 10.2.0.1, H w1", [], id="flag names the second"),
        pytest.param(B, IP2, None, "I 10.2.0.1, H w1", [], id="flag and provided agree"),
        pytest.param(A, IP2, None, "", [NOT_FOUND], id="flag and provided contradict"),
        pytest.param(A, "10.9.0.1", None, "I 10.9.0.1, E 10.1.0.1, H w1", [TRUSTED], id="flag, provided nowhere"),
    ],
)
def test_new_node(flag: str | None, provided: str | None, recorded: str | None, expected: str, told: list[str]) -> None:
    second = (IP2, V62) if provided and V62 in provided else (IP2,)
    plan = plan_addresses(
        known(provided=provided, recorded=recorded),
        two_nics(second=second),
        settings=patient(flag),
    )
    assert (shown(plan.addresses), reasons(plan)) == (expected, told)


@pytest.mark.parametrize(
    ("flag", "provided", "present", "recorded", "expected", "told"),
    [
        pytest.param(None, None, IP2, None, "I 10.2.0.1, H w1", [GUESSED], id="present on the second"),
        pytest.param(None, None, IP2, A, "I 10.2.0.1, H w1", [GUESSED], id="present before recorded"),
        pytest.param(None, None, "10.2.0.9", B, "I 10.2.0.1, H w1", [GUESSED], id="recorded, new lease"),
        pytest.param(None, None, "10.1.0.9", None, "I 10.1.0.1, H w1", [GUESSED], id="reported nowhere: the first"),
        pytest.param(None, IP2, IP2, None, "I 10.2.0.1, H w1", [], id="provided and present agree"),
        pytest.param(None, IP2, IP1, A, "I 10.2.0.1, H w1", [], id="provided before present"),
        pytest.param(None, "10.9.0.1", IP2, None, "I 10.2.0.1, H w1", [GUESSED, NOT_FOUND], id="provided nowhere"),
        pytest.param(A, None, IP2, B, "I 10.1.0.1, H w1", [], id="flag before present"),
        pytest.param(A, IP2, IP2, None, "", [NOT_FOUND], id="flag and provided contradict: kept"),
        pytest.param(A, IP2, IP1, A, "", [NOT_FOUND], id="flag and provided contradict, present as the flag says"),
    ],
)
def test_initialised_node(
    flag: str | None, provided: str | None, present: str, recorded: str | None, expected: str, told: list[str]
) -> None:
    target = known(f"I {present}, H w1", provided=provided, recorded=recorded)
    plan = plan_addresses(target, two_nics(), settings=patient(flag))
    assert (shown(plan.addresses), reasons(plan)) == (expected, told)


@pytest.mark.parametrize(
    ("ranges", "flag", "provided", "present", "recorded", "expected", "told"),
    [
        pytest.param("10.2.0.0/16", None, None, "", None, f"I {IP2}, H w1", [], id="before the first"),
        pytest.param("10.2.0.0/16", None, None, "", A, "", ["NO_INTERNAL_IP", GUESSED], id="after the recorded"),
        pytest.param(
            "10.2.0.0/16", None, None, f"I {IP1}, H w1", None, "", ["NO_INTERNAL_IP", GUESSED], id="after the present"
        ),
        pytest.param("10.2.0.0/16", None, IP1, "", None, f"I {IP1}, H w1", [], id="after the kubelet's"),
        pytest.param("10.2.0.0/16", A, None, "", None, "", ["NO_INTERNAL_IP"], id="after the flag"),
        pytest.param("10.0.0.0/8", None, None, "", None, f"I {IP1}, H w1", [GUESSED], id="in both"),
        pytest.param("172.16.0.0/12", None, None, "", None, "", ["NO_INTERNAL_IP", GUESSED], id="in none"),
    ],
)
def test_interface_with_an_address_in_the_range_that_a_flag_names(
    ranges: str,
    flag: str | None,
    provided: str | None,
    present: str,
    recorded: str | None,
    expected: str,
    told: list[str],
) -> None:
    settings = replace(patient(flag), node_ip_cidrs=(parse_range(ranges)[1],))
    plan = plan_addresses(known(present, provided=provided, recorded=recorded), two_nics(), settings=settings)
    assert (shown(plan.addresses), reasons(plan)) == (expected, told)


def test_range_speaks_for_the_interface_whose_address_comes_later() -> None:
    settings = replace(patient(None), node_ip_cidrs=(parse_range("10.2.0.0/16")[1],))
    waits = plan_addresses(known(), two_nics(second=()), settings=settings)
    assert (waits.addresses, reasons(waits)) == ((), ["NO_INTERNAL_IP", GUESSED])


DUAL = f"I {IP2}, I {V62}, H w1"


@pytest.mark.parametrize(
    ("first", "second", "recorded", "expected"),
    [
        pytest.param((IP1, V61), (IP2, V62), None, DUAL, id="both families there"),
        pytest.param((IP1, V61), (V62,), None, DUAL, id="IPv4 blinks"),
        pytest.param((IP1, V61), (), None, "", id="all of it blinks, nothing recorded: nothing moves"),
        pytest.param((IP1,), (), None, "", id="all of it blinks, and the other has one family"),
        pytest.param((IP1, V61), (), B, "", id="all of it blinks, recorded"),
        pytest.param((), (), None, "", id="agent silent"),
        pytest.param((), (IP2, V62), A, DUAL, id="the other one silent and recorded"),
    ],
)
def test_dual_stack_on_the_second_interface(
    first: Sequence[str], second: Sequence[str], recorded: str | None, expected: str
) -> None:
    plan = plan_addresses(known(DUAL, recorded=recorded), two_nics(first, second), settings=patient(None))
    assert shown(plan.addresses) == expected


@pytest.mark.parametrize(
    ("state", "reports"),
    [
        pytest.param(
            f"I {IP2}, H w1",
            [((V61,), ()), ((IP1, V61), ()), ((IP1, V61), (V62,)), ((IP1, V61), (IP2, V62))],
            id="the other one comes up first, one family after the other",
        ),
        pytest.param(
            DUAL, [((IP1,), ("fd02::2",)), ((IP1, V61), ("fd02::2",)), ((IP1, V61), (IP2, V62))], id="half of each"
        ),
    ],
)
def test_start_of_a_vm_whose_network_was_never_recorded_moves_nothing(
    state: str, reports: list[tuple[Sequence[str], Sequence[str]]]
) -> None:
    target = known(state)
    for first, second in reports[:-1]:
        plan, target = look(target, two_nics(first, second))
        assert (plan.patches, internal(target)) == ((), internal(known(state)))
        (told,) = (*plan.notes, *plan.remarks)
        assert "10.2.0.1" in told.message
    _, target = look(target, two_nics(*reports[-1]))
    assert internal(target) == {4: IP2, 6: V62}
    assert target.metadata.annotation(NODE_NETWORK_RECORD) == B


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(("10.1.0.9", "fd01::9"), (IP2,), id="the other one has IPv4 only"),
        pytest.param(("10.1.0.9",), (), id="the other one has no address"),
    ],
)
def test_internal_ip_that_is_gone_for_long_is_told_with_what_decides(
    first: Sequence[str], second: Sequence[str]
) -> None:
    """Which of the interfaces had it, nothing says: it is not followed, and that it stays is no secret."""
    state = "I 10.1.0.1, I fd01::1, H w1" if len(first) == 2 else "I 10.1.0.1, H w1"
    target, settings = known(state), node_settings()
    silent = plan_addresses(target, two_nics((), ()), settings=settings)
    assert (silent.addresses, reasons(silent), silent.awaited) == ((), ["NO_ADDRESS"], {})
    plan = plan_addresses(target, two_nics(first, second), settings=settings)
    assert (plan.addresses, reasons(plan)) == ((), ["NO_ADDRESS"])
    waited = dict.fromkeys(plan.awaited, settings.address_patience)
    plan = plan_addresses(target, two_nics(first, second), settings=settings, waited=waited)
    assert (plan.addresses, reasons(plan)) == ((), ["NO_INTERNAL_IP"])
    assert plan.problem is not None
    for text in ("10.1.0.1", "nic-1 has 10.1.0.9", "--management-network", "--node-ip"):
        assert text in plan.problem.message
    flagged = plan_addresses(target, two_nics(first, second), settings=patient(A))
    assert "I 10.1.0.9" in shown(flagged.addresses)


def test_time_in_which_no_interface_counts_does_not_count_for_one_that_does_later() -> None:
    target, settings = known(DUAL), node_settings()
    undecided = plan_addresses(target, two_nics((IP1, V61), ()), settings=settings)
    waited = dict.fromkeys(undecided.awaited, 1e9)
    decided = plan_addresses(target, two_nics((IP1, V61), ("10.2.0.2", "fd02::2")), settings=settings, waited=waited)
    assert internal_ips(decided) == {IP2, V62}


def internal_ips(plan: AddressPlan) -> set[str]:
    return {one.address for one in plan.addresses if one.type == "InternalIP"}


def test_one_interface_follows_a_new_lease_whatever_is_recorded() -> None:
    for recorded in (None, "prod/mgmt", "prod/gone"):
        plan = plan_addresses(
            known("I 10.0.0.1, H w1", recorded=recorded), instance(ips=["10.0.0.7"]), settings=patient(None)
        )
        assert (shown(plan.addresses), reasons(plan)) == ("I 10.0.0.7, H w1", [])


def test_two_interfaces_in_the_network_that_the_flag_names() -> None:
    running = instance(
        networks=[("nic-1", A), ("nic-2", A)], ips=[IP1], interfaces=[{"name": "nic-2", "ipAddresses": [IP2]}]
    )
    settings = node_settings(management_network=A)
    assert shown(plan_addresses(known(), running, settings=settings).addresses) == f"I {IP1}, H w1"
    for target in (known(provided=IP2), known(f"I {IP2}, H w1")):
        assert shown(plan_addresses(target, running, settings=settings).addresses) == f"I {IP2}, H w1"


def test_external_ip_of_another_interface_stays_while_the_vm_has_it_and_no_flag_names_a_network() -> None:
    target = known(f"E {IP1}, I {IP2}, H w1", provided=IP2)
    plan, _ = look(target, two_nics())
    assert plan.patches == ()
    gone = plan_addresses(target, two_nics(first=()), settings=patient(None))
    flagged = plan_addresses(target, two_nics(), settings=node_settings(management_network=B))
    assert [shown(plan.addresses) for plan in (gone, flagged)] == [f"I {IP2}, H w1"] * 2


POD_IP = "10.52.0.9"


@pytest.mark.parametrize(
    ("state", "provided", "expected"),
    [
        pytest.param(f"E {POD_IP}, I {IP2}, H w1", IP2, f"E {POD_IP}, I {IP2}, H w1", id="ExternalIP"),
        pytest.param(f"I {POD_IP}, E {IP2}, H w1", POD_IP, f"I {POD_IP}, E {IP2}, H w1", id="the kubelet's"),
        pytest.param(f"I {POD_IP}, H w1", None, f"E {IP2}, I {POD_IP}, H w1", id="InternalIP"),
        pytest.param("E 10.52.0.8, I 10.52.0.7, H w1", None, f"I {IP2}, H w1", id="those of before a restart"),
        pytest.param("", None, f"I {IP2}, H w1", id="never for a new Node"),
    ],
)
def test_address_in_the_pod_network_stays_while_the_vm_has_it(state: str, provided: str | None, expected: str) -> None:
    mixed = instance(
        networks=[("default", ""), ("nic-2", B)], ips=[POD_IP], interfaces=[{"name": "nic-2", "ipAddresses": [IP2]}]
    )
    plan = plan_addresses(known(state, provided=provided), mixed, settings=patient(None))
    assert shown(plan.addresses) == expected
    flagged = plan_addresses(known(state, provided=provided), mixed, settings=patient(B))
    assert POD_IP not in shown(flagged.addresses) or provided == POD_IP


def test_address_on_a_bridge_that_the_guest_made_is_kept() -> None:
    running = instance(ips=["fd00::1"], interfaces=[{"interfaceName": "br0", "ipAddresses": ["10.0.0.1"]}])
    plan = plan_addresses(known("I 10.0.0.1, I fd00::1, H w1"), running, settings=patient(None))
    assert shown(plan.addresses) == "I 10.0.0.1, I fd00::1, H w1"


def test_contradiction_of_flag_and_kubelet_is_told_with_both() -> None:
    for target in (known(provided=IP2), known(f"I {IP2}, H w1", provided=IP2)):
        plan, after = look(target, two_nics(), flag=A)
        assert after.status.addresses == target.status.addresses
        assert bool(after.spec.taints) == bool(target.spec.taints)
        (told,) = plan.notes
        assert told.reason is NodeReason.PROVIDED_IP_NOT_FOUND
        assert "names 10.2.0.1, which the VM has on interface nic-2 and not on network prod/a" in told.message
        assert "--management-network prod/a" in told.message


def test_chosen_network_is_recorded_with_the_initialisation() -> None:
    plan, after = look(known(provided=IP2), two_nics())
    assert after.metadata.annotation(NODE_NETWORK_RECORD) == B
    assert [patch.subresource for patch in plan.patches] == ["status", None]
    assert look(after, two_nics())[0].patches == ()


def test_chosen_network_of_an_initialised_node_is_recorded_once_and_nothing_else_is_written() -> None:
    plan, after = look(known(f"E {IP1}, I {IP2}, H w1"), two_nics((), (IP1, IP2)))
    (patch,) = plan.patches
    assert patch.body == {"metadata": {"uid": "node-uid", "annotations": {NODE_NETWORK_RECORD: B}}}
    assert look(after, two_nics((), (IP1, IP2)))[0].patches == ()


@pytest.mark.parametrize(
    "running", [instance(ips=["10.0.0.1"], labels=OWN), instance(ips=[], labels=OWN), two_nics((), ())]
)
def test_nothing_is_recorded_alone_where_there_is_no_choice_or_no_address(running: VirtualMachineInstance) -> None:
    assert look(known("I 10.0.0.1, H w1"), running)[0].patches == ()


REPORTS = st.tuples(
    st.lists(st.sampled_from([IP1, V61, "10.1.0.2", "fe80::1"]), max_size=4, unique=True),
    st.lists(st.sampled_from([IP2, V62, "10.2.0.2", "fd02::2"]), max_size=4, unique=True),
)
STATES = st.sampled_from(["", f"I {IP1}, H w1", f"E {IP1}, I {IP2}, H w1", f"I {IP2}, I {V62}, H w1", "H w1"])


def internal(target: Node) -> dict[int, str]:
    return {6 if ":" in one.address else 4: one.address for one in target.status.addresses if one.type == "InternalIP"}


@given(state=STATES, provided=st.sampled_from([None, IP1, IP2, f"{IP2},{V62}"]), reports=st.lists(REPORTS, max_size=6))
def test_no_sequence_of_reports_moves_an_internal_ip_that_the_vm_still_has(
    state: str, provided: str | None, reports: list[tuple[list[str], list[str]]]
) -> None:
    """Each look is that of a program that has just started: all that is remembered is on the Node."""
    target = known(state, provided=provided)
    named = set((provided or "").split(","))
    for first, second in reports:
        before = internal(target) if not target.spec.taints else {}
        _, target = look(target, two_nics(first, second))
        after = internal(target)
        if not named.isdisjoint(after.values()):
            # What the kubelet was given is all that counts, as in Go.
            assert named & set(before.values()) <= set(after.values())
            continue
        for family, address in before.items():
            mine = first if address.startswith(("10.1.", "fd01:")) else second
            still_there = address in mine or not any(one.startswith(("10.", "fd")) for one in mine)
            assert after.get(family) == address if still_there else family in after
        assert look(target, two_nics(first, second))[0].patches == ()


@pytest.mark.parametrize("nics", [1, 2])
@pytest.mark.parametrize("dual", [False, True])
def test_every_combination(nics: int, *, dual: bool) -> None:
    """The whole result, whatever is known: the strongest of what speaks decides, a contradiction writes no address."""
    ips: Mapping[str, tuple[str, ...]] = {A: (IP1, V61) if dual else (IP1,), B: (IP2, V62) if dual else (IP2,)}
    networks = [A, B][:nics]
    running = two_nics(ips[A], ips[B]) if nics == 2 else instance(networks=NICS[:1], ips=ips[A])
    where = {IP1: A, IP2: B if nics == 2 else None, "10.9.0.1": None, None: None}
    for flag, provided, present, recorded in itertools.product(
        (None, *networks), (None, IP1, IP2, "10.9.0.1"), (None, IP1, IP2), (None, A, B, "prod/gone")
    ):
        target = known(f"I {present}, H w1" if present else "", provided=provided, recorded=recorded)
        plan = plan_addresses(target, running, settings=patient(flag))
        asked, told = flag, where[provided]
        wanted = asked or told or where[present] or (recorded if recorded in networks else A)
        assert plan.nic is not None
        case = (flag, provided, present, recorded)
        assert plan.nic.network == wanted, case
        if told and told != wanted:
            assert (plan.addresses, reasons(plan)) == ((), [NOT_FOUND]), case
            continue
        # What the kubelet was given is used though the VM does not report it, unless it reports the InternalIP.
        trusted = provided is not None and told is None and (provided == present or where[present] != wanted)
        internal = [provided] if trusted else [ips[wanted][0], *(() if told else ips[wanted][1:])]
        external = [one for one in ips[wanted] if one not in internal]
        addresses = [f"I {one}" for one in internal] + [f"E {one}" for one in external]
        assert sorted(shown(plan.addresses).split(", ")) == sorted([*addresses, "H w1"]), case
        guessed = [GUESSED] if not asked and not told and nics == 2 else []
        unseen = [] if provided is None or told or provided == present else [TRUSTED if trusted else NOT_FOUND]
        assert reasons(plan) == [*guessed, *unseen], case
