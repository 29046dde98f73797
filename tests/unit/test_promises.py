"""The page of promises names for each of them the tests that hold it, and these exist."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "concepts" / "ownership-and-safety.md").read_text(encoding="utf-8")
TEST = re.compile(r"^- `(tests/\S+\.py)::(test_\w+)`$", re.MULTILINE)
PROMISES = dict(part.split("\n", 1) for part in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:])
NAMED = sorted(set(TEST.findall(PAGE)))


@lru_cache
def names_in(path: str) -> frozenset[str]:
    """Return the functions of a file."""
    return frozenset(re.findall(r"^(?:async )?def (\w+)\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_names_the_tests_that_hold_it(promise: str) -> None:
    entries = [line for line in PROMISES[promise].splitlines() if line.startswith("- ")]
    assert entries, "no test is named"
    assert all(TEST.match(entry) for entry in entries), "expected lines like: - `tests/unit/test_x.py::test_y`"


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[f"{path}::{name}" for path, name in NAMED])
def test_a_test_that_is_named_exists(path: str, name: str) -> None:
    assert (ROOT / path).is_file(), f"there is no {path}"
    assert name in names_in(path)


def test_there_are_promises() -> None:
    assert len(PROMISES) >= 20
