"""The simulated answers of the API server: JSON merge patch (RFC 7386, appendix A, objects only)."""

from __future__ import annotations

import pytest

from harvester_ccm.commands.rehearsal import differences, merge
from tests.unit.commands.conftest import Json


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": "text"}, {"a": {"b": "c"}}, {"a": {"b": "c"}}),
    ],
)
def test_merge(target: Json, patch: Json, result: Json) -> None:
    before = dict(target)
    assert merge(target, patch) == result
    assert target == before


def test_differences_name_each_field() -> None:
    before = {"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"ports": [1]}, "gone": 1}
    after = {"metadata": {"labels": {"a": "1", "b": "3"}}, "spec": {"ports": [1, 2]}, "new": True}
    assert differences(before, after) == [
        'metadata.labels.b "2" → "3"',
        "spec.ports [1] → [1,2]",
        "gone 1 → absent",
        "new absent → true",
    ]
