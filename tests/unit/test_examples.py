"""The examples in docstrings."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for package in ("harvester_ccm", "devenv")
    for file in sorted((ROOT / package).rglob("*.py"))
    if ">>> " in file.read_text(encoding="utf-8")
]


def test_there_are_examples() -> None:
    assert MODULES


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name: str) -> None:
    failures, examples = doctest.testmod(import_module(name))
    assert (failures, examples > 0) == (0, True)
