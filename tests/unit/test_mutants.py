"""The faults of ``tests.mutants`` can still be made and tried: nobody notices otherwise when something moves away."""

from __future__ import annotations

from tests.mutants import MUTANTS, ROOT, misplaced


def test_text_of_every_fault_is_found_once() -> None:
    assert [problem for one in MUTANTS if (problem := misplaced(one))] == []


def test_tests_of_every_fault_exist() -> None:
    assert {path for one in MUTANTS for path in one.paths if not (ROOT / path).exists()} == set()
