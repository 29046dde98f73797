"""Zone and region labels."""

import pytest

from harvester_ccm.names import REGION, ZONE
from harvester_ccm.plan.node.patch import topology_labels
from tests.support.node_objects import UNINITIALIZED, instance, node

OLD_ZONE, OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
BOTH = {ZONE: "z1", OLD_ZONE: "z1", REGION: "r1", OLD_REGION: "r1"}
ON_VM = {ZONE: "z1", REGION: "r1"}
MOVED = {ZONE: "z2", REGION: "r1"}
MIGRATING = {"migrationUid": "m"}


@pytest.mark.parametrize(
    ("target", "vmi", "labels"),
    [
        pytest.param(node(taints=[UNINITIALIZED]), instance(annotations=ON_VM), BOTH, id="new Node"),
        pytest.param(node(), instance(annotations=ON_VM), BOTH, id="initialized Node"),
        pytest.param(node(labels=BOTH), instance(annotations=ON_VM), {}, id="labels are set"),
        pytest.param(node(labels=BOTH), instance(annotations=MOVED), {ZONE: "z2", OLD_ZONE: "z2"}, id="VM moved"),
        pytest.param(node(labels=BOTH), instance(annotations=MOVED, migration=MIGRATING), {}, id="live migration"),
        pytest.param(
            node(taints=[UNINITIALIZED]),
            instance(annotations=ON_VM, migration=MIGRATING),
            BOTH,
            id="new, live migration",
        ),
        pytest.param(
            node(labels=BOTH),
            instance(annotations=MOVED, migration={**MIGRATING, "completed": True, "failed": True}),
            {ZONE: "z2", OLD_ZONE: "z2"},
            id="live migration failed",
        ),
        pytest.param(node(labels=BOTH), instance(), {}, id="VM without zone: labels stay"),
        pytest.param(node(labels=BOTH), None, {}, id="VM is stopped: labels stay"),
    ],
)
def test_labels_follow_the_vm(target: object, vmi: object, labels: dict[str, str]) -> None:
    assert topology_labels(target, vmi, follow=True) == (labels, ())  # type: ignore[arg-type]


@pytest.mark.parametrize(("taints", "labels"), [([UNINITIALIZED], BOTH), ([], {})], ids=["new", "initialized"])
def test_without_vmi_controller_labels_are_set_once(taints: list[dict[str, str]], labels: dict[str, str]) -> None:
    assert topology_labels(node(taints=taints), instance(annotations=ON_VM), follow=False) == (labels, ())


def test_invalid_label_value_is_ignored_with_an_event() -> None:
    labels, events = topology_labels(node(), instance(annotations={ZONE: "zone 1", REGION: "r1"}), follow=True)
    assert labels == {REGION: "r1", OLD_REGION: "r1"}
    assert [(event.reason.name, event.subject) for event in events] == [
        ("INVALID_ANNOTATION", f"{ZONE} of the VM=zone 1")
    ]
