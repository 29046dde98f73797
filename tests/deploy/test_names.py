"""Placeholders of names that the publication of the project decides, and the script that replaces them."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
NAMES = tomllib.loads((ROOT / "deploy" / "names.toml").read_text())
REPOSITORY, IMAGE, TEAM, CONTACT = NAMES
REAL = {
    REPOSITORY: "https://github.com/me/harvester-ccm",
    IMAGE: "ghcr.io/me/harvester-ccm",
    TEAM: "@me/reviewers",
    CONTACT: "security@me.example.net",
}
PLACEHOLDER = r"example\.org/harvester-ccm|@example"
PAGES = ("CHANGELOG.md", "README.md", "CONTRIBUTING.md", "SECURITY.md")
FILES = (".github", "deploy", "docs", "scripts", "mkdocs.yml", *PAGES)


def run(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/replace_names.py", *arguments]
    return subprocess.run(command, check=False, cwd=checkout, capture_output=True, text=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in FILES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name)
        else:
            shutil.copy(source, tmp_path / name)
    return tmp_path


def test_names_replace_every_placeholder(checkout: Path) -> None:
    file = checkout / "deploy" / "names.toml"
    text = file.read_text()
    for placeholder, name in REAL.items():
        text = text.replace(f'"{placeholder}" = ""', f'"{placeholder}" = "{name}"')
    assert (run(checkout).stdout, run(checkout, "placeholder=name").returncode) == ("", 1)
    file.write_text(text)
    done = run(checkout)
    assert done.returncode == 0, done.stderr
    left = [
        found
        for found in checkout.rglob("*")
        if found.is_file() and re.search(PLACEHOLDER, found.read_text(errors="replace"))
    ]
    workflow = checkout / ".github" / "workflows" / "release.yml"
    assert sorted(left) == sorted([file, workflow]), "the release names the placeholder that it replaces"
    assert (checkout / ".github" / "CODEOWNERS").read_text().endswith(f"* {REAL[TEAM]}\n")
    policy = (checkout / "SECURITY.md").read_text()
    assert f"write to\n{REAL[CONTACT]}." in policy
    assert f"'^{REAL[REPOSITORY]}/\\.github/workflows/" in policy, "the identity that signs"
    repository = yaml.safe_load((checkout / "deploy" / "rancher" / "clusterrepo.yaml").read_text())
    assert repository["spec"]["gitRepo"] == f"{REAL[REPOSITORY]}.git"
    assert run(checkout).stdout == "", "nothing is left to replace"


@pytest.mark.parametrize("place", [".github", "deploy", "docs", *PAGES])
def test_every_address_of_the_project_is_a_placeholder(place: str) -> None:
    """A team or a repository that looks real, and is not, is worse than a placeholder."""
    path = ROOT / place
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    text = "\n".join(file.read_text(errors="replace") for file in files)
    hosted = set(re.findall(r"https?://[\w.-]+(?:/[\w.-]+)?/harvester-ccm\b", text))
    assert hosted <= {REPOSITORY}
    assert "/OWNER/" not in text
    teams = set(re.findall(r"(?<![\w/])@[\w-]+/[\w-]+", text))
    assert teams <= {TEAM}


def test_reports_go_to_an_address_that_is_a_placeholder() -> None:
    text = "\n".join((ROOT / name).read_text() for name in ("SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md"))
    assert set(re.findall(r"[\w.-]+@[\w-]+\.[\w.-]*\w", text)) == {CONTACT}
