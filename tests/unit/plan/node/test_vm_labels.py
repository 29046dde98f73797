"""Labels and annotations that a VM gives to its Node: what is written, what is left alone, and what is removed."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import VIRTUAL_MACHINES
from harvester_ccm.names import VM_LABELS_RECORD, NodeReason
from harvester_ccm.plan.node.patch import MetadataPlan
from harvester_ccm.plan.node.vm_labels import LONGEST_VALUE, MOST_KEYS, plan_vm_labels
from harvester_ccm.plan.node.vms import VM
from tests.worlds.node_objects import instance, node, patched

PREFIX = "rack.example.com/"
ROW, UNIT, OTHER = f"{PREFIX}row", f"{PREFIX}unit", "example.com/row"
Labels = dict[str, str]


def machine(
    labels: Labels | None = None,
    annotations: Labels | None = None,
    *,
    on_instance: Labels | None = None,
    phase: str = "Running",
) -> VM:
    metadata = {"name": "w1", "namespace": "prod", "uid": "uid-w1", "labels": labels, "annotations": annotations}
    stored = VIRTUAL_MACHINES.decode(msgspec.json.encode({"metadata": metadata, "spec": {}}))
    return VM(stored, instance(labels=on_instance, phase=phase) if phase else None)


def applied(target: Node, plan: MetadataPlan) -> Node:
    change = plan.change
    return patched(target, {"metadata": {"labels": change.labels, "annotations": change.annotations}})


def labels_of(target: Node) -> Labels:
    return dict(target.metadata.labels or {})


def looked(target: Node, vm: VM, prefix: str = PREFIX) -> Node:
    """Return the Node after the plan, which is at rest then."""
    after = applied(target, plan_vm_labels(target, vm, prefix))
    again = plan_vm_labels(after, vm, prefix).change
    assert (again.labels, again.annotations) == ({}, {})
    return after


@pytest.mark.parametrize(
    ("present", "vm", "expected"),
    [
        pytest.param({}, machine({ROW: "7", OTHER: "1"}), {ROW: "7"}, id="of the VM"),
        pytest.param({}, machine(on_instance={ROW: "7"}), {ROW: "7"}, id="of the instance"),
        pytest.param({}, machine({ROW: "8"}, on_instance={ROW: "7"}), {ROW: "8"}, id="the VM before its instance"),
        pytest.param({}, machine({ROW: ""}), {ROW: ""}, id="without a value"),
        pytest.param({}, machine({ROW: "7"}, phase=""), {ROW: "7"}, id="of a VM that does not run"),
        pytest.param({ROW: "1"}, machine({ROW: "7", UNIT: "2"}), {ROW: "1", UNIT: "2"}, id="somebody else's stays"),
        pytest.param({ROW: "7"}, machine({ROW: "7"}), {ROW: "7"}, id="somebody else's with the same value"),
        pytest.param({OTHER: "1"}, machine(), {OTHER: "1"}, id="nothing to copy"),
    ],
)
def test_copied_labels(present: Labels, vm: VM, expected: Labels) -> None:
    assert labels_of(looked(node(labels=present), vm)) == expected


@pytest.mark.parametrize(
    ("meddled", "vm", "expected"),
    [
        pytest.param({}, machine({ROW: "8"}), {ROW: "8"}, id="changed"),
        pytest.param({}, machine(), {}, id="gone"),
        pytest.param({}, machine(phase=""), {ROW: "7"}, id="gone, and the VM is stopped"),
        pytest.param({}, machine(phase="Scheduling"), {ROW: "7"}, id="gone, and the VM starts"),
        pytest.param({ROW: "9"}, machine(), {ROW: "9"}, id="gone, but somebody else has changed it"),
        pytest.param({ROW: "9"}, machine({ROW: "7"}), {ROW: "7"}, id="somebody else has changed it"),
        pytest.param({OTHER: "9"}, machine(), {OTHER: "9"}, id="gone, beside another"),
    ],
)
def test_copied_label_later(meddled: Labels, vm: VM, expected: Labels) -> None:
    before = looked(node(), machine({ROW: "7"}))
    assert labels_of(before) == {ROW: "7"}
    assert labels_of(looked(patched(before, {"metadata": {"labels": meddled}}), vm)) == expected


@pytest.mark.parametrize("prefix", ["", "other.example.com/"])
def test_what_was_copied_goes_with_the_flag(prefix: str) -> None:
    vm = machine({ROW: "7"}, {ROW: "seven"})
    before = looked(node(labels={OTHER: "1"}, annotations={OTHER: "1"}), vm)
    assert before.metadata.annotation(ROW) == "seven"
    after = looked(before, vm, prefix)
    assert (after.metadata.labels, after.metadata.annotations) == ({OTHER: "1"}, {OTHER: "1"})


def test_without_flag_and_record_nothing_is_looked_at() -> None:
    assert plan_vm_labels(node(labels={ROW: "1"}), machine({ROW: "7"}), "").change.labels == {}


@pytest.mark.parametrize("text", ["", "x", "[]", '{"labels": 1}', "[" * 2000], ids=lambda one: one[:10])
def test_record_that_cannot_be_read_removes_nothing(text: str) -> None:
    before = node(labels={ROW: "7"}, annotations={VM_LABELS_RECORD: text})
    assert labels_of(applied(before, plan_vm_labels(before, machine(), PREFIX))) == {ROW: "7"}


def test_bounds_are_told() -> None:
    many = {f"{PREFIX}{number:03}": "x" for number in range(MOST_KEYS + 5)}
    long = {ROW: "x" * (LONGEST_VALUE + 1), UNIT: "x" * LONGEST_VALUE}
    plan = plan_vm_labels(node(), machine(many, long), PREFIX)
    assert sorted(plan.change.labels) == sorted(many)[:MOST_KEYS]
    assert set(plan.change.annotations) == {UNIT, VM_LABELS_RECORD}
    assert [note.reason for note in plan.notes] == [NodeReason.VM_LABEL_LEFT_OUT] * 2
    assert plan.notes[0].message.endswith(f"{PREFIX}050, {PREFIX}051, {PREFIX}052, 2 more")
    taken = plan_vm_labels(node(labels={ROW: "1"}), machine({ROW: "7"}), PREFIX)
    assert "this program has not set them: rack.example.com/row. They stay" in taken.notes[0].message


KEYS = st.dictionaries(st.sampled_from([ROW, UNIT, OTHER]), st.sampled_from(["1", "2"]), max_size=3)


@given(
    theirs=KEYS,
    looks=st.lists(st.tuples(KEYS, KEYS, st.sampled_from(["Running", "", "Scheduling"])), max_size=6),
    kind=st.sampled_from(["labels", "annotations"]),
)
def test_whatever_a_vm_says_the_keys_of_others_stay(
    theirs: Labels, looks: list[tuple[Labels, Labels, str]], kind: str
) -> None:
    of_labels = kind == "labels"
    target = node(labels=theirs) if of_labels else node(annotations=theirs)
    for on_vm, on_instance, phase in [*looks, ({}, {}, "Running")]:
        vm = machine(on_vm, on_instance=on_instance, phase=phase) if of_labels else machine({}, on_vm, phase=phase)
        target = looked(target, vm)
        found = dict(getattr(target.metadata, kind) or {})
        assert theirs.items() <= found.items()
    found.pop(VM_LABELS_RECORD, None)
    assert found == theirs
