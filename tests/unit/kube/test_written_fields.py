"""The names of the fields that a patch writes."""

import pytest

from harvester_ccm.kube.written_fields import fields_of_patch

PATCHES: dict[str, tuple[dict[str, object], list[str]]] = {
    "nothing": ({}, []),
    "preconditions": ({"metadata": {"uid": "1", "resourceVersion": "7"}}, []),
    "annotations and labels": (
        {"metadata": {"annotations": {"a/b": "x", "a/c": None}, "labels": {"a/b": "y"}}},
        ["annotation a/b", "annotation a/c", "label a/b"],
    ),
    "lists": (
        {"metadata": {"finalizers": ["f"]}, "spec": {"taints": []}, "status": {"loadBalancer": {"b": 2, "a": 1}}},
        ["metadata.finalizers", "spec.taints", "status.loadBalancer"],
    ),
}


@pytest.mark.parametrize(("patch", "fields"), PATCHES.values(), ids=PATCHES.keys())
def test_fields_of_a_patch(patch: dict[str, object], fields: list[str]) -> None:
    assert fields_of_patch(patch) == fields
