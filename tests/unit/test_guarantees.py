"""Promises of pages, and the tests that name them.

Each guarantee on the page about ownership and safety has a test with the marker ``guarantee``, and each line about what
the package ``kube`` guarantees one with the marker ``kube``.

Tests with the marker ``security`` name a promise of the page about security or of ``SECURITY.md``.

Each row of ``tests/trust.md`` names its tests itself.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from harvester_ccm import kube

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "concepts" / "ownership-and-safety.md"
TRUST_PAGE = ROOT / "tests" / "trust.md"

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class MarkedTest:
    """A test function with the text of one of its markers, or its name if a page has that."""

    def __init__(self, path: Path, module: ast.Module, function: Function, text: str) -> None:
        self.name = f"{path.relative_to(ROOT)}::{function.name}"
        self.function = function
        self.text = text
        self._helpers = {node.name: node for node in ast.walk(module) if isinstance(node, Function)}

    def is_left_out(self) -> bool:
        """Return whether a decorator skips the test or expects it to fail."""
        decorators = " ".join(ast.unparse(decorator) for decorator in self.function.decorator_list)
        return re.search(r"mark\.(skip|skipif|xfail)\b", decorators) is not None

    def has_an_assertion(self) -> bool:
        """Return whether the test, or a function of its module that it calls, asserts something."""
        seen: set[str] = set()
        functions: list[Function] = [self.function]
        while functions:
            function = functions.pop()
            if asserts(function):
                return True
            seen.add(function.name)
            called = called_names(function) & self._helpers.keys()
            functions += [self._helpers[name] for name in called - seen]
        return False


def asserts(function: Function) -> bool:
    """Return whether a function asserts something: itself, or by a helper that fails for it."""
    has_assertion = any(isinstance(node, ast.Assert) for node in ast.walk(function))
    return has_assertion or not called_names(function).isdisjoint({"raises", "check_outcomes"})


def called_names(function: Function) -> set[str]:
    callees = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    names = {callee.id for callee in callees if isinstance(callee, ast.Name)}
    return names | {callee.attr for callee in callees if isinstance(callee, ast.Attribute)}


def modules_of_tests() -> Iterator[tuple[Path, str]]:
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        if path != Path(__file__):
            yield path, path.read_text()


def named_functions(module: ast.Module) -> list[Function]:
    return [node for node in module.body if isinstance(node, Function) and node.name.startswith("test_")]


def marked_tests(marker: str) -> Iterator[MarkedTest]:
    for path, text in modules_of_tests():
        if f"mark.{marker}" not in text:
            continue
        module = ast.parse(text)
        found = [
            MarkedTest(path, module, test, decorator.args[0].value)
            for test in named_functions(module)
            for decorator in test.decorator_list
            if isinstance(decorator, ast.Call)
            and ast.unparse(decorator.func) == f"pytest.mark.{marker}"
            and isinstance(decorator.args[0], ast.Constant)
            and isinstance(decorator.args[0].value, str)
        ]
        # In a comment, in a list of markers or at a function that is no test, a marker shows nothing.
        assert len(found) == text.count(f"mark.{marker}"), f"{path}: a marker does not decorate a test"
        yield from found


@pytest.mark.parametrize("marker", ["guarantee", "kube", "security"])
def test_each_marked_test_runs_and_asserts_something(marker: str) -> None:
    tests = list(marked_tests(marker))
    assert tests
    assert [test.name for test in tests if test.is_left_out() or not test.has_an_assertion()] == []


def test_each_guarantee_has_a_test_and_a_line_on_the_page() -> None:
    page = re.findall(r"^\d+\. \*\*(.+?)[.,]\*\*", PAGE.read_text(), re.MULTILINE)
    assert sorted(page) == sorted({test.text for test in marked_tests("guarantee")})


def test_each_guarantee_of_the_package_kube_has_a_test_and_a_line_in_its_docstring() -> None:
    lines = re.findall(r"^\* (.+)\.$", str(kube.__doc__), re.MULTILINE)
    assert len(lines) == str(kube.__doc__).count("\n* ")
    assert sorted(lines) == sorted({test.text for test in marked_tests("kube")})


def rows_of(markdown: str) -> list[list[str]]:
    """Return the cells of each row of the tables whose last column has tests."""
    rows: list[list[str]] = []
    for table in re.split(r"\n\s*\n", markdown):
        lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
        if lines and lines[0][-1] == "Test":
            rows += lines[2:]
    return rows


def test_rows_of_a_page_are_found() -> None:
    page = "# T\n\n| A | Test |\n|---|---|\n| a | `test_a`, `test_b` |\n| b | |\n\n| A | B |\n|---|---|\n| c | d |\n"
    assert rows_of(page) == [["a", "`test_a`, `test_b`"], ["b"]]


def test_each_row_about_trust_has_tests_that_run_and_assert_something() -> None:
    rows = rows_of(TRUST_PAGE.read_text())
    assert len(rows) > 40
    named = {row[0]: re.findall(r"`(test_\w+)`", row[-1]) for row in rows}
    assert [place for place, names in named.items() if not names] == []
    wanted = {name for names in named.values() for name in names}
    found: dict[str, list[MarkedTest]] = {name: [] for name in wanted}
    for path, text in modules_of_tests():
        if not any(name in text for name in wanted):
            continue
        module = ast.parse(text)
        for test in named_functions(module):
            if test.name in wanted:
                found[test.name].append(MarkedTest(path, module, test, test.name))
    assert [name for name, tests in found.items() if len(tests) != 1] == []
    tests = [test for several in found.values() for test in several]
    assert [test.name for test in tests if test.is_left_out() or not test.has_an_assertion()] == []
