"""Files for contributors: the paths that they name, and their checks."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def test_recipes_name_what_exists() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"`((?:harvester_ccm|tests|docs|deploy)/[\w./-]+)`", page))
    assert named
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_a_commit_is_checked_as_everywhere() -> None:
    configuration = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repository in configuration["repos"] for hook in repository["hooks"]]
    assert [hook["entry"] for hook in hooks] == ["make check"]


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


def test_owners_are_of_what_exists() -> None:
    lines = (ROOT / ".github" / "CODEOWNERS").read_text().splitlines()
    paths = [line.split()[0] for line in lines if line and not line.startswith("#")]
    assert paths[0] == "*"
    assert [path for path in paths[1:] if not (ROOT / path.strip("/")).exists()] == []
