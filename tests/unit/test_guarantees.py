"""Promises of pages, and the tests that name them.

Each guarantee on the page about ownership and safety has a test with the marker ``guarantee``, and each line about what
the package ``kube`` guarantees one with the marker ``kube``.

Tests with the marker ``security`` name a promise of the page about security or of ``SECURITY.md``.

Each row of ``tests/trust.md`` names its tests itself.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from harvester_ccm import kube

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "concepts" / "ownership-and-safety.md"
TRUST_PAGE = ROOT / "tests" / "trust.md"

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def modules_of_tests() -> Iterator[tuple[Path, str]]:
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        if path != Path(__file__):
            yield path, path.read_text()


def named_functions(module: ast.Module) -> list[Function]:
    return [node for node in module.body if isinstance(node, Function) and node.name.startswith("test_")]


def texts_of_marks(marker: str) -> set[str]:
    """Return the texts of a marker at the tests."""
    texts: set[str] = set()
    for path, text in modules_of_tests():
        if f"mark.{marker}" not in text:
            continue
        found = [
            decorator.args[0].value
            for test in named_functions(ast.parse(text))
            for decorator in test.decorator_list
            if isinstance(decorator, ast.Call)
            and ast.unparse(decorator.func) == f"pytest.mark.{marker}"
            and isinstance(decorator.args[0], ast.Constant)
            and isinstance(decorator.args[0].value, str)
        ]
        # In a comment, in a list of markers or at a function that is no test, a marker shows nothing.
        assert len(found) == text.count(f"mark.{marker}"), f"{path}: a marker does not decorate a test"
        texts.update(found)
    return texts


def test_each_guarantee_has_a_test_and_a_line_on_the_page() -> None:
    page = re.findall(r"^\d+\. \*\*(.+?)[.,]\*\*", PAGE.read_text(), re.MULTILINE)
    assert sorted(page) == sorted(texts_of_marks("guarantee"))


def test_each_guarantee_of_the_package_kube_has_a_test_and_a_line_in_its_docstring() -> None:
    lines = re.findall(r"^\* (.+)\.$", str(kube.__doc__), re.MULTILINE)
    assert len(lines) == str(kube.__doc__).count("\n* ")
    assert sorted(lines) == sorted(texts_of_marks("kube"))


def test_each_marker_about_security_is_at_a_test() -> None:
    assert texts_of_marks("security")


def rows_of(markdown: str) -> list[list[str]]:
    """Return the cells of each row of the tables whose last column has tests."""
    rows: list[list[str]] = []
    for table in re.split(r"\n\s*\n", markdown):
        lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
        if lines and lines[0][-1] == "Test":
            rows += lines[2:]
    return rows


def test_each_row_about_trust_has_tests() -> None:
    rows = rows_of(TRUST_PAGE.read_text())
    assert len(rows) > 40
    named = {row[0]: re.findall(r"`(test_\w+)`", row[-1]) for row in rows}
    assert [place for place, names in named.items() if not names] == []
    wanted = {name for names in named.values() for name in names}
    found = Counter(
        test.name
        for _, text in modules_of_tests()
        if any(name in text for name in wanted)
        for test in named_functions(ast.parse(text))
    )
    assert [name for name in wanted if found[name] != 1] == []
