"""Files for contributors: the paths and names of the code in them, and their checks."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from harvester_ccm.names import NodeReason, Reason

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "harvester_ccm"
PAGES = (ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "contributing").glob("*.md")))


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT))


@cache
def defined(file: Path) -> frozenset[str]:
    """The names of functions, classes, attributes and variables in a module."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.add(name)
    return frozenset(names)


@cache
def defined_anywhere() -> frozenset[str]:
    folders = (PRODUCT, ROOT / "devenv", ROOT / "tests", ROOT / "benchmarks", ROOT / "scripts")
    files = [file for folder in folders for file in folder.rglob("*.py")]
    return frozenset().union(*(defined(file) for file in files), (file.stem for file in files))


def names_in_places(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names that a page puts into a module: `name`, or `name` and `name`, in `path`."""
    name = r"`[A-Za-z_][\w.]*`"
    for match in re.finditer(rf"({name}(?:(?:, | and | or ){name})*) in `([\w./]+\.py)`", text):
        for found in re.findall(name, match[1]):
            yield found.strip("`"), match[2]
    for match in re.finditer(r"`([A-Za-z_][\w.]*)` \(`([\w./]+\.py)`\)", text):
        yield match[1], match[2]


def snake_case(names: list[str]) -> set[str]:
    return {name for name in names if re.fullmatch(r"_?[a-z0-9]+(_[a-z0-9]+)+", name)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_names_are_in_the_modules_that_a_page_states(page: Path) -> None:
    missing = []
    for name, path in names_in_places(" ".join(page.read_text(encoding="utf-8").split())):
        file = next(file for file in (ROOT / path, PRODUCT / path) if file.is_file())
        if name.rpartition(".")[2] not in defined(file):
            missing.append((name, path))
    assert missing == []


@pytest.mark.thorough
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_names_of_code_on_a_page_exist(page: Path) -> None:
    words = re.findall(r"`(\w+)`", page.read_text(encoding="utf-8"))
    assert snake_case(words) - defined_anywhere() == set()


def test_every_folder_of_tests_is_described() -> None:
    page = (ROOT / "docs" / "contributing" / "testing.md").read_text(encoding="utf-8")
    folders = {f"tests/{file.parent.name}" for file in (ROOT / "tests").glob("*/__init__.py")}
    assert folders - set(re.findall(r"`(tests/\w+)`", page)) == set()


def test_forms_ask_for_status_and_preflight() -> None:
    forms = [file for file in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if file.name != "config.yml"]
    assert forms
    for file in forms:
        form = yaml.safe_load(file.read_text())
        assert {"name", "description", "body"} <= set(form)
        fields = [field for field in form["body"] if field["type"] != "markdown"]
        assert len({field["id"] for field in fields}) == len(fields)
        described = " ".join(field["attributes"].get("description", "") for field in fields)
        assert "harvester-ccm status -o yaml" in described
        assert "harvester-ccm preflight -o json" in described


@pytest.mark.parametrize("kind", [Reason, NodeReason])
def test_every_reason_is_in_a_test_or_in_its_outcomes(kind: type[Reason] | type[NodeReason]) -> None:
    tests = [file for pattern in ("*.py", "*.txt") for file in (ROOT / "tests").rglob(pattern)]
    text = "".join(file.read_text(encoding="utf-8") for file in tests)
    missing = [reason for reason in kind if str(reason) not in text and f"{kind.__name__}.{reason.name}" not in text]
    assert missing == []
