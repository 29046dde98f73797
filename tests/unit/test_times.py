"""The page of times says what the code does, and all of it."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "harvester_ccm"
PAGE = (ROOT / "docs" / "reference" / "times.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| [^|]+ \| ([0-9.]+(?: to [0-9.]+)?) \|[^|]*\| `([A-Za-z_.]+)` \|$", PAGE, re.MULTILINE)
NUMBERS = re.compile(r"^\w+:[^=\n]*=\s*\(?\s*[\d.]", re.MULTILINE)
"""How a constant begins that is a number or several: most files have none, and parsing takes its time."""
NO_TIMES = {
    "RETRY_JITTER": "a factor",
    "PASS_SPREAD": "a share",
    "LOOKS": "shares of --leader-elect-retry-period",
    "SOON_DAYS": "days until a token expires, in what a command prints",
}


def constants() -> Iterator[str]:
    """Yield the public constants of the program that are numbers with a point, or pairs of them, as times are."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module, text = ".".join(path.relative_to(PACKAGE).with_suffix("").parts), path.read_text(encoding="utf-8")
        for statement in ast.parse(text).body if NUMBERS.search(text) else ():
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
                numbers = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
                name = statement.target.id
                if len(numbers) <= 2 and all(is_decimal(number) for number in numbers) and not name.startswith("_"):
                    yield f"{module}.{name}"


def is_decimal(number: ast.expr) -> bool:
    return isinstance(number, ast.Constant) and isinstance(number.value, float)


@pytest.mark.parametrize(("shown", "constant"), ROWS, ids=[name for _, name in ROWS])
def test_the_page_shows_the_time_of_the_code(shown: str, constant: str) -> None:
    module, _, name = constant.rpartition(".")
    value = getattr(importlib.import_module(f"harvester_ccm.{module}"), name)
    numbers = value if isinstance(value, tuple) else (value,)

    assert shown == " to ".join(f"{number * (60 if name.endswith('_MINUTES') else 1):g}" for number in numbers)


def test_every_time_is_on_the_page() -> None:
    times = {name for name in constants() if name.rpartition(".")[2] not in NO_TIMES}

    assert times == {name for _, name in ROWS}, "docs/reference/times.md needs a row for each time, and for no other"
