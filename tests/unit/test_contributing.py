"""Every reason that the product gives is tested."""

from pathlib import Path

import pytest

from harvester_ccm.names import NodeReason, Reason

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", [Reason, NodeReason])
def test_every_reason_is_in_a_test_or_in_its_outcomes(kind: type[Reason] | type[NodeReason]) -> None:
    tests = [file for pattern in ("*.py", "*.txt") for file in (ROOT / "tests").rglob(pattern)]
    text = "".join(file.read_text(encoding="utf-8") for file in tests)
    missing = [reason for reason in kind if str(reason) not in text and f"{kind.__name__}.{reason.name}" not in text]
    assert missing == []
