"""The framework's arrangement for the provided node IP."""

from __future__ import annotations

import pytest

from harvester_ccm.plan.node.arrangement import parse_provided_node_ip, prefer_provided
from tests.worlds.node_objects import parsed, shown

PAIR = "10.1.1.1,fc01:1234::5678"
V6 = "I fc01:1234::5678"


@pytest.mark.parametrize(
    ("annotation", "cloud", "expected"),
    [
        pytest.param("10.1.1.1", "I 10.1.1.1", "I 10.1.1.1", id="the only one"),
        pytest.param("55.55.55.55", "I 10.1.1.1, E 55.55.55.55", "E 55.55.55.55, I 10.1.1.1", id="an ExternalIP"),
        pytest.param(
            "55.55.55.55",
            "I 44.44.44.44, E 44.44.44.44, I 55.55.55.55, E 55.55.55.55",
            "I 55.55.55.55, E 55.55.55.55",
            id="both types",
        ),
        pytest.param(
            "10.1.1.1",
            "I 10.1.1.1, E 55.55.55.55, ID ip-10-1-1-1, ED example.com",
            "I 10.1.1.1, E 55.55.55.55, ID ip-10-1-1-1, ED example.com",
            id="names stay",
        ),
        pytest.param(
            "10.1.1.1",
            "I 10.1.1.1, I 10.2.2.2, I 10.3.3.3, E 55.55.55.55",
            "I 10.1.1.1, E 55.55.55.55",
            id="others of its type go",
        ),
        pytest.param("10.2.2.2", "I 10.1.1.1, E 55.55.55.55", None, id="not offered"),
        pytest.param(
            "2600:1f14:1d4:d101::ba3d",
            "I 10.1.1.1, I 2600:1f14:1d4:d101:0:0:0:ba3d",
            "I 2600:1f14:1d4:d101:0:0:0:ba3d",
            id="compared as addresses, spelling kept",
        ),
        pytest.param(PAIR, "I 10.1.1.1", None, id="half of a pair offered"),
        pytest.param(PAIR, f"I 10.1.1.1, {V6}", f"I 10.1.1.1, {V6}", id="pair"),
        pytest.param(PAIR, f"{V6}, I 10.1.1.1", f"I 10.1.1.1, {V6}", id="pair offered in the other order"),
        pytest.param(
            PAIR,
            f"I 10.1.1.1, I 10.1.1.2, I fc01:1234::1234, {V6}",
            f"I 10.1.1.1, {V6}",
            id="pair among several of each family",
        ),
        pytest.param(
            PAIR,
            f"I 10.1.1.1, E 55.55.55.55, I fc01:1234::1234, {V6}",
            f"I 10.1.1.1, {V6}, E 55.55.55.55",
            id="ExternalIP stays",
        ),
        pytest.param(
            "fc01:1234::5678,10.1.1.1",
            f"I 10.1.1.1, E 55.55.55.55, {V6}, E 2001:db1::1",
            f"{V6}, I 10.1.1.1, E 55.55.55.55, E 2001:db1::1",
            id="IPv6 first",
        ),
        pytest.param(
            "55.55.55.55,fc01:1234::5678",
            f"I 10.1.1.1, E 55.55.55.55, {V6}, E 2001:db1::1",
            f"E 55.55.55.55, {V6}",
            id="one external, one internal",
        ),
    ],
)
def test_arrangement(annotation: str, cloud: str, expected: str | None) -> None:
    cloud, host = f"{cloud}, H hostname", ", H hostname"
    provided = parse_provided_node_ip(annotation)
    if expected is None:
        with pytest.raises(ValueError, match="is not an address of the VM"):
            prefer_provided(parsed(cloud), provided)
    else:
        assert shown(prefer_provided(parsed(cloud), provided)) == expected + host


@pytest.mark.parametrize(
    "value",
    ["", "invalid-ip", "10.0.0.1,", "10.0.0.1,10.0.0.2", "10.0.0.1,fd00::1,10.0.0.2", "0.0.0.0,fd00::1", "10.0.0.1/24"],
)
def test_unusable_value_is_named(value: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        parse_provided_node_ip(value)
    assert repr(value) in str(caught.value)
