"""Files for contributors: the paths and names of the code in them, and their checks."""

from pathlib import Path

import pytest
import yaml

from harvester_ccm.names import NodeReason, Reason

ROOT = Path(__file__).parents[2]


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
