"""The faults of ``tests.mutants`` can still be made: nobody notices otherwise when the program moves away from one."""

from __future__ import annotations

from tests.mutants import MUTANTS, misplaced


def test_text_of_every_fault_is_found_once() -> None:
    assert [problem for one in MUTANTS if (problem := misplaced(one))] == []
