"""Who writes a field, from ``metadata.managedFields``."""

from __future__ import annotations

from typing import Any

from harvester_ccm.kube.managed_fields import NAMED, writers_of

Document = dict[str, Any]
ZONE = ("metadata", "labels", "topology.kubernetes.io/zone")
OF_ZONE: Document = {"f:metadata": {"f:labels": {".": {}, "f:topology.kubernetes.io/zone": {}}}}


def document(*entries: tuple[str, int, dict[str, Any]]) -> dict[str, Any]:
    """Return an object with managers, the second of their day in which they wrote last, and their fields."""
    managed = [
        {"manager": name, "operation": "Update", "time": f"2026-11-21T09:00:{second:02}Z", "fieldsV1": fields}
        for name, second, fields in entries
    ]
    return {"metadata": {"name": "w1", "managedFields": managed}}


def test_the_managers_of_the_field_the_latest_first() -> None:
    stored = document(("kubectl-label", 5, OF_ZONE), ("kubelet", 9, {"f:status": {}}), ("labeller", 7, OF_ZONE))
    assert writers_of(stored, ZONE) == ("labeller", "kubectl-label")


def test_not_this_program_unless_another_process_of_it_is_all_that_is_left() -> None:
    assert writers_of(document(("harvester-ccm", 9, OF_ZONE), ("labeller", 7, OF_ZONE)), ZONE) == ("labeller",)
    assert writers_of(document(("harvester-ccm", 9, OF_ZONE)), ZONE) == (
        "harvester-ccm, another process of this program",
    )


def test_of_a_field_that_is_gone_whoever_wrote_the_object_last() -> None:
    stored = document(("helm", 3, {"f:spec": {}}), ("kubectl-replace", 8, {"f:spec": {}}), ("harvester-ccm", 9, {}))
    assert writers_of(stored, ZONE) == ("kubectl-replace",)
    assert writers_of(document(("harvester-ccm", 9, {})), ZONE) == ()


def test_an_entry_of_a_list_is_its_own_or_goes_with_the_list() -> None:
    finalizers: Document = {"f:metadata": {"f:finalizers": {".": {}, 'v:"example.com/held"': {}}}}
    taints: Document = {"f:spec": {"f:taints": {}}}
    stored = document(("one", 1, finalizers), ("two", 2, taints))
    assert writers_of(stored, ("metadata", "finalizers", "example.com/held")) == ("one",)
    assert writers_of(stored, ("spec", "taints", "example.com/held")) == ("two",)


def test_what_stands_beside_the_field_is_another_one() -> None:
    label: Document = {"f:metadata": {"f:labels": {".": {}, "f:other": {}}}}
    finalizer: Document = {"f:metadata": {"f:finalizers": {".": {}, 'v:"other"': {}}}}
    stored = document(("one", 1, OF_ZONE), ("two", 2, label), ("three", 3, finalizer))
    assert writers_of(stored, ZONE) == ("one",)
    assert writers_of(document(("two", 2, finalizer)), ("metadata", "finalizers", "held")) == ("two",), (
        "the last writer"
    )
    both = document(("one", 1, {"f:metadata": {"f:finalizers": {'v:"held"': {}}}}), ("three", 3, finalizer))
    assert writers_of(both, ("metadata", "finalizers", "held")) == ("one",)


def test_few_are_named_and_none_without_the_field() -> None:
    assert len(writers_of(document(*((f"m{n}", n, OF_ZONE) for n in range(9))), ZONE)) == NAMED
    assert writers_of({"metadata": {}}, ZONE) == ()
