"""The network to device ConfigMap."""

import json
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harvester_ccm.model.core import ConfigMap
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.plan.node.device_mapping import plan_device_mapping
from tests.support.node_objects import instance

NICS = {"A": "nic-a", "B": "nic-b", "C": "nic-c"}


def machine(
    name: str,
    devices: Mapping[str, str],
    *,
    attached: str = "AB",
    phase: str = "Running",
    migration: Mapping[str, object] | None = None,
    reported: bool = True,
) -> VirtualMachineInstance:
    """Return an instance on the networks ``attached``; ``devices`` maps the ones it reports a device for."""
    interfaces = [{"name": NICS[net], "interfaceName": devices.get(net, "")} for net in attached] if reported else []
    return instance(
        name,
        networks=[("default", ""), *((NICS[net], net) for net in attached)],
        interfaces=interfaces,
        phase=phase,
        migration=migration,
    )


def published(value: str | None) -> ConfigMap:
    return ConfigMap(data=None if value is None else {"interface-nad-mapping": value, "other": "x"})


def planned(instances: Sequence[VirtualMachineInstance], config_map: ConfigMap | None = None) -> str | None:
    return plan_device_mapping(instances, config_map)


ONE, TWO = {"A": "enp1s0", "B": "enp2s0"}, {"A": "enp1s0", "B": "enp3s0"}
A_ONLY = '{"A":"enp1s0"}'
MOVING = {"migrationUid": "m"}


@pytest.mark.parametrize(
    ("instances", "value"),
    [
        pytest.param([machine("vm1", ONE), machine("vm2", TWO)], A_ONLY, id="network on different devices is left out"),
        pytest.param([machine("vm1", ONE)], '{"A":"enp1s0","B":"enp2s0"}', id="sorted and compact"),
        pytest.param([machine("vm1", ONE), machine("vm2", {"A": "enp1s0"}, attached="A")], A_ONLY, id="one lacks B"),
        pytest.param([machine("vm1", {"A": "x"}, attached="A"), machine("vm2", {"B": "x"}, attached="B")], "",
                     id="nothing in common"),
        pytest.param([machine("vm1", ONE), machine("vm2", TWO, phase="Scheduled")], '{"A":"enp1s0","B":"enp2s0"}',
                     id="VM that does not run"),
        pytest.param([machine("vm1", ONE), machine("vm2", TWO, migration=MOVING)], '{"A":"enp1s0","B":"enp2s0"}',
                     id="VM that moves"),
        pytest.param([machine("vm1", ONE), machine("vm2", TWO, migration={**MOVING, "completed": True})], A_ONLY,
                     id="VM that has moved"),
        pytest.param([machine("vm1", ONE), machine("vm2", {}, reported=False)], '{"A":"enp1s0","B":"enp2s0"}',
                     id="VM without any interface yet"),
    ],
)  # fmt: skip
def test_same_as_go(instances: list[VirtualMachineInstance], value: str) -> None:
    assert planned(instances) == value


@pytest.mark.parametrize(
    ("instances", "before", "value"),
    [
        pytest.param([], None, None, id="no VM runs, nothing published"),
        pytest.param([], A_ONLY, None, id="no VM runs: the good one stays"),
        pytest.param([machine("vm1", {})], None, None, id="first boot, no agent yet"),
        pytest.param([machine("vm1", {})], A_ONLY, None, id="agent is silent: the good one stays"),
        pytest.param([machine("vm1", ONE), machine("vm2", {})], A_ONLY, None, id="a silent VM changes nothing"),
        pytest.param([machine("vm1", {}, attached="A")], '{"A":"enp1s0","B":"enp2s0"}', A_ONLY,
                     id="network is certainly gone, device of the other unknown"),
        pytest.param([machine("vm1", {}, attached="C")], A_ONLY, "", id="all published networks are certainly gone"),
        pytest.param([machine("vm1", {})], "no JSON", None, id="unreadable and nothing known"),
        pytest.param([machine("vm1", ONE), machine("vm2", TWO)], "[1]", A_ONLY, id="no JSON object is replaced"),
        pytest.param([machine("vm1", ONE), machine("vm2", TWO)], "no JSON", A_ONLY, id="unreadable is replaced"),
        pytest.param([machine("vm1", ONE), machine("vm2", TWO)], '{"A":"enp1s0","B":""}', A_ONLY,
                     id="an entry without a device is replaced"),
        pytest.param([machine("vm1", ONE), machine("vm2", TWO)], '{ "A": "enp1s0" }', None, id="same, other spelling"),
        pytest.param([machine("vm1", ONE), machine("vm2", TWO)], "", A_ONLY, id="emptied by the Go provider"),
        pytest.param([machine("vm1", ONE), machine("vm2", {**ONE, "A": "x"})], A_ONLY, '{"B":"enp2s0"}',
                     id="a guest reports another device than the published one"),
        pytest.param([machine("vm1", {"A": "x"}, attached="A"), machine("vm2", {"A": "y"}, attached="A")], "", None,
                     id="certainly nothing, published already"),
    ],
)  # fmt: skip
def test_unknown_is_not_published_over_known(
    instances: list[VirtualMachineInstance], before: str | None, value: str | None
) -> None:
    assert planned(instances, None if before is None else published(before)) == value


def test_config_map_without_the_key_counts_as_empty() -> None:
    nothing = [machine("vm1", {"A": "x"}, attached="A"), machine("vm2", {"A": "y"}, attached="A")]
    assert planned(nothing, published(None)) is None
    assert planned(nothing, None) == ""


def test_network_attached_twice_shows_its_later_device() -> None:
    twice = instance(
        networks=[("n1", "A"), ("n2", "A")],
        interfaces=[
            {"name": "n1", "interfaceName": "enp1s0"},
            {"name": "n2", "interfaceName": "enp2s0"},
            {"name": "", "interfaceName": "cni0"},
        ],
    )
    assert planned([twice]) == '{"A":"enp2s0"}'


IMPOSSIBLE = {
    "too long": "e" * 16,
    "hundreds of kilobytes": "e" * 300_000,
    "a path": "eth/0",
    "a parent": "..",
    "blanks": "eth 0",
    "a line": "eth0\n",
    "an alias": "eth0:1",
    "a control character": "eth0\x1b",
}
"""Texts that no device of a node can have as its name, which a guest agent reports all the same."""


@pytest.mark.parametrize("device", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_impossible_device_is_not_reported(device: str) -> None:
    liar = machine("vm2", {**ONE, "A": device})
    assert planned([machine("vm1", ONE), liar]) == '{"A":"enp1s0","B":"enp2s0"}'
    assert planned([liar]) == '{"B":"enp2s0"}'
    assert planned([machine("vm1", ONE), liar], published('{"A":"enp1s0","B":"enp2s0"}')) is None


def test_longest_name_of_a_device_is_published() -> None:
    assert planned([machine("vm1", {"A": "e" * 15}, attached="A")]) == json.dumps(
        {"A": "e" * 15}, separators=(",", ":")
    )


MACHINES = st.lists(
    st.builds(
        machine,
        st.sampled_from(["vm1", "vm2", "vm3"]),
        st.dictionaries(st.sampled_from("ABC"), st.sampled_from(["enp1s0", "enp2s0"])),
        attached=st.sampled_from(["A", "AB", "ABC", "BC"]),
        phase=st.sampled_from(["Running", "Scheduled"]),
    ),
    max_size=3,
    unique_by=lambda made: made.metadata.name,
)


@given(MACHINES, st.sampled_from([None, "", A_ONLY, '{"A":"enp9s0","B":"enp2s0"}', "no JSON"]))
def test_planning_again_after_the_plan_writes_nothing(
    instances: list[VirtualMachineInstance], before: str | None
) -> None:
    value = planned(instances, None if before is None else published(before))
    if value is not None:
        assert planned(instances, published(value)) is None
