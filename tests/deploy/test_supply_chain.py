"""Builds and releases use pinned names only: commits, digests and hashes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
DIGEST = re.compile(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}")
WRITING = {"contents": {"publish"}, "id-token": {"image", "publish", "package"}}
"""Which jobs of a release may write what."""


def workflow(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    return document


def steps(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, job in workflow(path)["jobs"].items():
        for step in job.get("steps", ()):
            yield name, step


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
@pytest.mark.security("actions by commit")
def test_actions_are_named_by_commit_and_say_their_version(path: Path) -> None:
    used = re.findall(r"uses: (.*)", path.read_text())
    assert used
    assert [one for one in used if not one.startswith("./") and not PINNED.fullmatch(one)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_job_has_minimal_permissions(path: Path) -> None:
    found = workflow(path)
    assert found["permissions"] == {"contents": "read"}
    for name, job in found["jobs"].items():
        for right, level in job.get("permissions", {}).items():
            assert level == "read" or name in WRITING[right], f"{name}: {right}"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_scripts_contain_no_expression(path: Path) -> None:
    """Titles and names of branches reach a script through its environment only."""
    assert [step["run"] for _, step in steps(path) if "${{" in step.get("run", "")] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_makes_what_the_makefile_has(path: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    scripts = "\n".join(step.get("run", "") for _, step in steps(path))
    assert set(re.findall(r"\bmake ([a-z][a-z0-9-]*)", scripts)) - {"generate"} <= targets


def test_every_night_has_the_slow_tests() -> None:
    nightly = ROOT / ".github" / "workflows" / "nightly.yml"
    scripts = "\n".join(
        step.get("run", "") for path in (nightly, ROOT / ".github/workflows/test.yml") for _, step in steps(path)
    )
    assert workflow(nightly)["jobs"]["test"]["uses"] == "./.github/workflows/test.yml"
    for target in ("e2e-cluster", "e2e-kind", "e2e-kube-vip", "test-kubernetes", "coverage"):
        assert f"make {target}" in scripts


@pytest.mark.security("the base image by digest")
def test_base_images_are_named_by_digest() -> None:
    text = (ROOT / "Dockerfile").read_text()
    arguments = dict(re.findall(r"^ARG (\w+)=(.*)$", text, re.MULTILINE))
    stages = set(re.findall(r"^FROM .* AS (\w+)$", text, re.MULTILINE))

    def resolved(name: str) -> str:
        return re.sub(r"\$\{(\w+)\}", lambda found: resolved(arguments[found[1]]), name)

    images = {resolved(name) for name in re.findall(r"^FROM (\S+)", text, re.MULTILINE)} - stages - {"scratch"}
    assert images
    assert [image for image in images if not DIGEST.fullmatch(image)] == []


@pytest.mark.security("Python packages are pinned with hashes")
def test_python_packages_are_pinned_with_hashes() -> None:
    for path in (*ROOT.glob("requirements*.txt"), *ROOT.glob("deploy/**/*requirements*.txt")):
        pins = re.findall(r"^([^#\s].*)$(?=\n( +--hash=sha256:[0-9a-f]{64})?)", path.read_text(), re.MULTILINE)
        assert pins
        assert [pin for pin, its_hash in pins if "==" not in pin or not its_hash] == [], path.name


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
@pytest.mark.security("Python packages are pinned with hashes")
def test_workflows_install_python_packages_by_hash_only(path: Path) -> None:
    scripts = "\n".join(step.get("run", "") for _, step in steps(path))
    assert re.findall(r"\b(pipx|uvx|easy_install)\b", scripts) == []
    installed = re.findall(r"^.*\binstall\b.*$", scripts, re.MULTILINE)
    packages = [line for line in installed if "pip" in line]
    assert [line for line in packages if "--require-hashes -r requirements-" not in line] == []
    assert all((ROOT / line.split()[-1]).exists() for line in packages)


@pytest.mark.security("A release is signed by the workflow that built it")
def test_packages_are_audited_and_the_image_is_signed() -> None:
    scripts = "\n".join(step.get("run", "") for _, step in steps(ROOT / ".github" / "workflows" / "release.yml"))
    assert "pip-audit --strict --require-hashes --disable-pip --requirement requirements.txt" in scripts
    # By digest: a tag may be another image by then.
    assert 'cosign sign --yes --recursive "$IMAGE@$DIGEST"' in scripts
