"""Zone and region labels."""

from __future__ import annotations

import pytest

from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.names import TOPOLOGY_RECORD
from harvester_ccm.plan.node.topology import plan_topology
from tests.worlds.node_objects import UNINITIALIZED, instance, node

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE, OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
TYPE, OLD_TYPE = "node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"
BOTH = {ZONE: "z1", OLD_ZONE: "z1", REGION: "r1", OLD_REGION: "r1"}
RECORD = {TOPOLOGY_RECORD: '{"region":"r1","zone":"z1"}'}
ON_VM = {ZONE: "z1", REGION: "r1"}
MIGRATING = {"migrationUid": "m"}


@pytest.mark.parametrize("taints", [[UNINITIALIZED], []], ids=["initialisation", "afterwards"])
def test_both_label_generations_and_the_record(taints: list[dict[str, str]]) -> None:
    plan = plan_topology(node(taints=taints), instance(annotations=ON_VM))
    assert (plan.change.labels, plan.change.annotations, plan.notes) == (BOTH, RECORD, ())


def test_nothing_to_write_when_all_is_there() -> None:
    plan = plan_topology(node(labels=BOTH, annotations=RECORD), instance(annotations=ON_VM))
    assert (plan.change.labels, plan.change.annotations) == ({}, {})


def test_only_what_differs_is_written() -> None:
    plan = plan_topology(node(labels=BOTH, annotations=RECORD), instance(annotations={**ON_VM, ZONE: "z2"}))
    assert plan.change.labels == {ZONE: "z2", OLD_ZONE: "z2"}
    assert plan.change.annotations == {TOPOLOGY_RECORD: '{"region":"r1","zone":"z2"}'}


@pytest.mark.parametrize(
    ("migration", "taints", "followed"),
    [
        pytest.param(MIGRATING, [], False, id="under way"),
        pytest.param({**MIGRATING, "completed": True}, [], True, id="finished"),
        pytest.param({**MIGRATING, "completed": True, "failed": True}, [], True, id="failed"),
        pytest.param(MIGRATING, [UNINITIALIZED], True, id="initialisation does not wait"),
    ],
)
def test_live_migration(migration: dict[str, object], taints: list[dict[str, str]], followed: bool) -> None:
    moved = instance(annotations={ZONE: "z2", REGION: "r1"}, migration=migration)
    plan = plan_topology(node(labels=BOTH, annotations=RECORD, taints=taints), moved)
    assert (ZONE in plan.change.labels) == followed


@pytest.mark.parametrize(
    ("taints", "followed"), [([UNINITIALIZED], True), ([], False)], ids=["initialisation", "afterwards"]
)
def test_with_the_vmi_controller_switched_off(taints: list[dict[str, str]], followed: bool) -> None:
    plan = plan_topology(node(taints=taints), instance(annotations=ON_VM), follow=False)
    assert bool(plan.change.labels) == followed


@pytest.mark.parametrize(
    ("labels", "record", "expected"),
    [
        pytest.param(BOTH, RECORD, {ZONE: None, OLD_ZONE: None}, id="set from the VM: removed"),
        pytest.param(BOTH, {}, {}, id="not known to come from the VM: stays"),
        pytest.param({**BOTH, ZONE: "mine", OLD_ZONE: "mine"}, RECORD, {}, id="changed by a user since: stays"),
        pytest.param({**BOTH, OLD_ZONE: "mine"}, RECORD, {ZONE: "mine"}, id="only the beta one changed: it counts"),
        pytest.param({ZONE: "z1", REGION: "r1", OLD_REGION: "r1"}, RECORD, {ZONE: None}, id="beta one removed before"),
    ],
)
def test_zone_that_vanished_from_the_vm(
    labels: dict[str, str], record: dict[str, str], expected: dict[str, str | None]
) -> None:
    plan = plan_topology(node(labels=labels, annotations=record), instance(annotations={REGION: "r1"}))
    assert plan.change.labels == expected
    assert plan.change.annotations == {TOPOLOGY_RECORD: '{"region":"r1"}'}


def test_record_goes_with_the_last_label() -> None:
    plan = plan_topology(node(labels=BOTH, annotations=RECORD), instance())
    assert plan.change.labels == dict.fromkeys(BOTH)
    assert plan.change.annotations == {TOPOLOGY_RECORD: None}


@pytest.mark.parametrize(
    ("machine", "ready"),
    [
        pytest.param(None, "True", id="VM does not run"),
        pytest.param(instance(phase="Scheduling"), "True", id="VM starts"),
        pytest.param(instance(), "False", id="guest starts"),
        pytest.param(instance(agent=False), "True", id="guest starts, its stop was not noticed yet"),
        pytest.param(instance(migration=MIGRATING), "True", id="VM moves"),
    ],
)
def test_labels_stay_while_the_vm_says_nothing_yet(machine: VirtualMachineInstance | None, ready: str) -> None:
    plan = plan_topology(node(labels=BOTH, annotations=RECORD, ready=ready), machine)
    assert (plan.change.labels, plan.change.annotations) == ({}, {})


def test_value_that_is_no_label_value() -> None:
    plan = plan_topology(node(taints=[UNINITIALIZED]), instance(annotations={ZONE: "zone 1", REGION: "r1"}))
    assert plan.change.labels == {REGION: "r1", OLD_REGION: "r1"}
    assert [(note.reason.name, note.subject) for note in plan.notes] == [("TOPOLOGY_INVALID", f"{ZONE}=zone 1")]


OLD = {OLD_ZONE: "foo", OLD_REGION: "bar", OLD_TYPE: "the-best-type"}
NEW = {ZONE: "foo", REGION: "bar", TYPE: "the-best-type"}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param(OLD, NEW, id="beta only"),
        pytest.param({**OLD, **NEW}, {}, id="all equal"),
        pytest.param(
            {**OLD, ZONE: "wrongfoo", REGION: "wrongbar", TYPE: "the-wrong-type"}, NEW, id="overwritten by beta"
        ),
        pytest.param(NEW, {}, id="no beta"),
    ],
)
@pytest.mark.parametrize("machine", [None, instance()], ids=["no VM", "VM without topology"])
def test_beta_labels_are_copied(
    labels: dict[str, str], expected: dict[str, str], machine: VirtualMachineInstance | None
) -> None:
    assert plan_topology(node(labels=labels), machine).change.labels == expected


def test_beta_labels_are_not_copied_before_the_initialisation() -> None:
    assert plan_topology(node(labels=OLD, taints=[UNINITIALIZED]), instance()).change.labels == {}


@pytest.mark.parametrize("record", ["no JSON", "null", "[]", '{"zone":1}', "[" * 2000], ids=lambda one: one[:10])
def test_unreadable_record_removes_nothing(record: str) -> None:
    plan = plan_topology(node(labels=BOTH, annotations={TOPOLOGY_RECORD: record}), instance())
    assert plan.change.labels == {}
    assert plan.change.annotations == {TOPOLOGY_RECORD: None}
