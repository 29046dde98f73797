"""Bodies of the writes to a Node."""

from __future__ import annotations

import pytest

from harvester_ccm.model.core import Taint
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import NodeReason
from harvester_ccm.plan.node.patch import (
    MetadataChange,
    NodePatch,
    NodeRequest,
    addresses_patch,
    identity_patch,
    patch_request,
    taints_body,
)
from tests.worlds.node_objects import REINITIALIZE, UNINITIALIZED, node, pairs, parsed

A = Taint(key="a", effect="NoSchedule")
ALL = "I 10.0.0.1, E 10.0.0.2, H w1"


@pytest.mark.parametrize(
    ("present", "wanted", "changed"),
    [
        pytest.param(ALL, ALL, False, id="equal"),
        pytest.param(ALL, "I 10.0.0.1, E 10.0.0.3, H w1", True, id="one value differs"),
        pytest.param(ALL, "I 10.0.0.1, H w1", True, id="old is longer"),
        pytest.param("I 10.0.0.1, H w1", ALL, True, id="new is longer"),
        pytest.param(ALL, "I 10.0.0.2, E 10.0.0.1, H w1", True, id="values swapped between types"),
        pytest.param("I 10.0.0.1, I fd00::1", "I 10.0.0.1, I fd00::1", False, id="two of one type: no write for ever"),
        pytest.param("I 10.0.0.1, E 10.0.0.2", "E 10.0.0.2, I 10.0.0.1", False, id="other order"),
        pytest.param("I 10.0.0.1, I fd00::1", "I fd00::1, I fd00::1", True, id="one of two of a type differs"),
        pytest.param("", "", False, id="none"),
    ],
)
def test_change_of_addresses(present: str, wanted: str, changed: bool) -> None:
    assert (addresses_patch(node(addresses=pairs(present)), parsed(wanted)) is not None) == changed


def test_addresses_are_written_whole_and_as_status() -> None:
    assert addresses_patch(node(), parsed("I 10.0.0.1, I fd00::1, H w1")) == NodePatch(
        {
            "metadata": {"uid": "node-uid"},
            "status": {
                "addresses": [
                    {"type": "InternalIP", "address": "10.0.0.1"},
                    {"type": "InternalIP", "address": "fd00::1"},
                    {"type": "Hostname", "address": "w1"},
                ]
            },
        },
        "status",
    )


def test_identity_writes_only_what_was_asked() -> None:
    assert identity_patch(node(), None, MetadataChange({}, {})) is None
    assert identity_patch(node(), "harvester://x", MetadataChange({}, {})) == NodePatch(
        {"metadata": {"uid": "node-uid"}, "spec": {"providerID": "harvester://x"}}
    )
    assert identity_patch(node(), None, MetadataChange({"l": "2"}, {"a": "1"})) == NodePatch(
        {"metadata": {"uid": "node-uid", "labels": {"l": "2"}, "annotations": {"a": "1"}}}
    )


@pytest.mark.parametrize(
    ("taints", "kept"),
    [
        pytest.param([UNINITIALIZED], None, id="the last one"),
        pytest.param(
            [{"key": "other", "effect": "NoExecute", "timeAdded": "2026-11-21T08:00:00Z"}, UNINITIALIZED],
            [{"key": "other", "effect": "NoExecute", "timeAdded": "2026-11-21T08:00:00Z"}],
            id="another's taint stays as it is",
        ),
        pytest.param([UNINITIALIZED, REINITIALIZE], None, id="every effect"),
    ],
)
def test_end_of_the_initialisation(taints: list[dict[str, str]], kept: list[dict[str, str]] | None) -> None:
    target = node(taints=taints, version="42")
    done = identity_patch(target, None, MetadataChange({}, {}), initialised=True)
    assert done is not None
    body = {"metadata": {"uid": "node-uid", "resourceVersion": "42"}, "spec": {"taints": kept}}
    assert patch_request(target, done) == NodeRequest("PATCH", "w1", body)


def test_end_of_the_initialisation_is_told_when_nothing_else_is_written() -> None:
    told = (EventMessage("Warning", NodeReason.PROVIDED_IP_TRUSTED, "why this address"),)
    done = identity_patch(node(taints=[UNINITIALIZED]), None, MetadataChange({}, {}), told=told, initialised=True)
    assert done is not None
    assert done.told == told


def test_end_of_the_initialisation_brings_the_identity_along() -> None:
    target = node(taints=[UNINITIALIZED], version="42")
    identity = identity_patch(target, "harvester://uid-w1", MetadataChange({"zone": "a"}, {}), initialised=True)
    assert identity is not None
    body = {
        "metadata": {"uid": "node-uid", "labels": {"zone": "a"}, "resourceVersion": "42"},
        "spec": {"providerID": "harvester://uid-w1", "taints": None},
    }
    assert patch_request(target, identity) == NodeRequest("PATCH", "w1", body)


def test_no_write_without_the_taint() -> None:
    target = node(taints=[{"key": "other", "effect": "NoExecute"}])
    assert patch_request(target, NodePatch({}, initialised=True)) is None
    identity = identity_patch(target, "harvester://uid-w1", MetadataChange({}, {}), initialised=True)
    assert identity is not None
    assert patch_request(target, identity) == NodeRequest("PATCH", "w1", identity.body)


def test_taint_is_added_to_the_others() -> None:
    tainted = node(taints=[{"key": "b", "value": "1", "effect": "NoExecute"}])
    assert taints_body(tainted, (*tainted.spec.taints, A))["spec"] == {
        "taints": [{"key": "b", "value": "1", "effect": "NoExecute"}, {"key": "a", "effect": "NoSchedule"}]
    }
