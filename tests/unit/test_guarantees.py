"""Promises of pages, and the tests that name them.

Each guarantee on the page about ownership and safety has a test with the marker ``guarantee``, and each line about what
the package ``kube`` guarantees one with the marker ``kube``.

The page about security and the section "Scope" of ``SECURITY.md`` consist of promises: each sentence, item of a list
and row of a table. Tests with the marker ``security`` name a promise or a part of it. Together, the parts contain every
word of it, so that a sentence with two statements has tests for both.

Each row of the page about trust names its tests itself.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from harvester_ccm import kube

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "concepts" / "ownership-and-safety.md"
SECURITY_PAGE = ROOT / "docs" / "operations" / "security.md"
TRUST_PAGE = ROOT / "docs" / "contributing" / "trust.md"
SECURITY_POLICY = ROOT / "SECURITY.md"

NO_PROMISES: Final = {
    "The chart grants exactly these:": "introduces a list whose items have tests",
    "Limit the scope of pools in Harvester, or set a ResourceQuota with `services.loadbalancers`.": "an instruction",
    "Namespaces take turns, so somebody with sixty of them can delay the Services of others by a minute.": (
        "says what is not limited"
    ),
    "Harvester has one queue for the load balancers of all its clusters.": "says what Harvester does",
    (
        "Whoever has the cloud-config of a cluster can keep it busy: 100 load balancers of 1.4 MB delay the addresses "
        "of all clusters by half a minute, once."
    ): "says what Harvester does not limit",
    "The security page describes permissions, checks and limits.": "a reference to the promises themselves",
    "Every way around them is a vulnerability:": "introduces a list whose items have tests",
    "users with access to Secrets in `kube-system`": "says what Kubernetes permits",
    "because all users of a machine can list the arguments of processes": "the reason of the words before it",
    "A user who can create Services of type LoadBalancer can use all addresses of the pools for the cluster.": (
        "says what Harvester does not limit"
    ),
    "Whoever gets port 80 of an address can, for example, pass the ACME HTTP-01 challenge for its host names.": (
        "an effect outside of the product"
    ),
    (
        "kube-vip announces every address in the annotations of a Service, and everybody who may change the Service "
        "can write them again after the controller has withdrawn the address."
    ): "says what kube-vip and Kubernetes do",
    "The chart has a policy against that, `kubeVipPolicy`.": "introduces a table whose rows have tests",
    "Set it to `deny` in a cluster with several tenants:": "an instruction",
    "kube-vip can announce it until the first write of the controller, usually for less than a second.": (
        "says what kube-vip does"
    ),
    (
        "kube-vip also announces Services that this controller does not serve, such as those of the class "
        "`kube-vip.io/kube-vip-class`: limit the classes that users can set, or set `kube-vip.harvesterClass` in the "
        "chart."
    ): "says what kube-vip does, and an instruction",
}
"""Text that promises nothing about the product, with the reason."""
JOINING_WORDS: Final = {"and", "or"}
"""Words that may stay between two parts of a promise."""

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
    return any(isinstance(node, ast.Assert) for node in ast.walk(function)) or "raises" in called_names(function)


def called_names(function: Function) -> set[str]:
    """Return the names of the functions and methods that a function calls."""
    callees = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    names = {callee.id for callee in callees if isinstance(callee, ast.Name)}
    return names | {callee.attr for callee in callees if isinstance(callee, ast.Attribute)}


def modules_of_tests() -> Iterator[tuple[Path, str]]:
    """Yield the modules with tests but this one, with their text."""
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        if path != Path(__file__):
            yield path, path.read_text()


def named_functions(module: ast.Module) -> list[Function]:
    """Return the test functions of a module."""
    return [node for node in module.body if isinstance(node, Function) and node.name.startswith("test_")]


def marked_tests(marker: str) -> Iterator[MarkedTest]:
    """Yield the tests with a marker, once for each of its texts."""
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


def blocks_of(markdown: str) -> Iterator[str]:
    """Yield paragraphs, items of lists and rows of tables as one line each, without headings and targets of links."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    for heading in (r"^#.*$", r"^\|.*\|\n\|[-|]+\|$", r"^\*\*.*?\*\* "):
        text = re.sub(heading, "", text, flags=re.MULTILINE)
    for block in re.split(r"\n\s*\n|\n(?=- |\|)", text):
        if line := " ".join(block.strip().removeprefix("- ").strip("| ").split()):
            yield line


def promises_of(markdown: str) -> Iterator[str]:
    """Yield every sentence, and every row of a table."""
    for block in blocks_of(markdown):
        yield from re.split(r"(?<=\.) (?=[A-Z`])", block)


def all_promises() -> list[str]:
    scope = SECURITY_POLICY.read_text().partition("## Scope\n")[2].partition("\n## ")[0]
    return [*promises_of(SECURITY_PAGE.read_text()), *promises_of(scope)]


def words_without_a_test(promise: str, parts: set[str]) -> list[str]:
    """Return the words of a promise that no part contains."""
    covered = [False] * len(promise)
    for part in parts:
        start = promise.find(part)
        if start >= 0:
            covered[start : start + len(part)] = [True] * len(part)
    rest = "".join(" " if is_covered else character for character, is_covered in zip(promise, covered, strict=True))
    words = [word.strip(",;:.|()") for word in rest.split()]
    return [word for word in words if word and word not in JOINING_WORDS]


@pytest.mark.parametrize(
    ("parts", "untested"),
    [
        ({"It stops", "`--all` removes everything"}, []),
        ({"It stops"}, ["`--all`", "removes", "everything"]),
        ({"stops", "`--all` removes everything"}, ["It"]),
        ({"It stops at once", "`--all` removes everything"}, ["It", "stops"]),
    ],
)
def test_words_of_a_promise_that_no_part_contains(parts: set[str], untested: list[str]) -> None:
    assert words_without_a_test("It stops, and `--all` removes everything.", parts) == untested


def test_page_is_split_into_its_promises() -> None:
    markdown = """# Title

**Part.** One [link](x.md).
Two: a; b.

| A | B |
|---|---|
| c | d |

- e
  f.
- `G` h: I. J
"""
    assert list(promises_of(markdown)) == ["One link.", "Two: a; b.", "c | d", "e f.", "`G` h: I.", "J"]


def test_each_promise_about_security_has_a_test() -> None:
    parts = {test.text for test in marked_tests("security")} | NO_PROMISES.keys()
    untested = {promise: words_without_a_test(promise, parts) for promise in all_promises()}
    assert "\n".join(f"{promise} WITHOUT A TEST: {words}" for promise, words in untested.items() if words) == ""


def test_each_part_that_a_test_names_is_in_one_promise() -> None:
    parts = {test.text for test in marked_tests("security")} | NO_PROMISES.keys()
    promises = all_promises()
    # A part that is in two promises would be shown by the test of one of them.
    assert [part for part in sorted(parts) if sum(part in promise for promise in promises) != 1] == []
