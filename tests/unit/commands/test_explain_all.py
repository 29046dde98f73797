"""``explain`` without a name, from files."""

from __future__ import annotations

from tests.unit.commands.conftest import Runner, Writer
from tests.unit.commands.test_status import DEMO, pending, well


def test_explain_without_a_name_explains_what_is_not_fine(run: Runner, case: Writer) -> None:
    file = case(*well(), *pending())
    result = run("explain", "-f", file, DEMO)
    assert result.code == 1
    assert [line for line in result.out.splitlines() if line.startswith(("Service:", "Node:"))] == ["Service: team/api"]
    assert "IP pool 'tiny' has no free address" in result.out
    document = run("explain", "-f", file, DEMO, "-o", "json").document
    assert [one["service"] for one in document["services"]] == ["team/api"]
    assert document["nodes"] == []


def test_explain_without_a_name_where_all_is_well(run: Runner, case: Writer) -> None:
    result = run("explain", "-f", case(*well()), DEMO)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("All Services and Nodes are well")
