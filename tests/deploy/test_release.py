"""The steps of a release, run as the workflow runs them."""

import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from devenv import binaries
from devenv.helm import CHART
from devenv.manifests import IMAGE
from harvester_ccm import __version__

ROOT = Path(__file__).parents[2]
STEP = "Chart and manifests name the image that is published"
TAG = f"v{__version__}"


NOTES = "### Added\n\n- What is new in it,\n  on two lines.\n"
RECORDER = """#!/bin/sh
echo "${0##*/} $*" >> "$CALLS"
"""
"""Fake of a program that uses a server."""
HELM = """#!/bin/sh
case $1 in
  registry | push) echo "helm $*" >> "$CALLS"; cat >> "$GIVEN" ;;
  *) exec "$REAL_HELM" "$@" ;;
esac
"""


def job(name: str) -> dict[str, Any]:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    found: dict[str, Any] = workflow["jobs"][name]
    return found


def script(step: str = STEP, of: str = "version") -> str:
    (text,) = [one["run"] for one in job(of)["steps"] if one.get("name") == step]
    return str(text)


def run(text: str, environment: Mapping[str, str], directory: Path = ROOT) -> subprocess.CompletedProcess[str]:
    bash = shutil.which("bash")
    assert bash is not None
    command = [bash, "-e", "-o", "pipefail", "-c", text]
    environment = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(
        command, check=False, cwd=directory, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("image", "chart", "tag", "message"),
    [
        pytest.param("me/ccm", "me/ccm", TAG, "", id="the same"),
        pytest.param("docker.io/me/ccm", "me/ccm", TAG, "", id="default registry written out"),
        pytest.param("", "me/ccm", TAG, "set the repository variable IMAGE; the chart names me/ccm", id="none"),
        pytest.param(
            "ghcr.io/me/ccm",
            '""',
            TAG,
            'the variable IMAGE is ghcr.io/me/ccm, but the chart names "": set image.repository there and in '
            "deploy/manifests/values, and run make generate",
            id="no name in the chart",
        ),
        pytest.param(
            "me/ccm",
            "me/ccm",
            "v99.0.0",
            "deploy/manifests/k3s.yaml does not name me/ccm:v99.0.0-ccm: run make generate",
            id="another version",
        ),
    ],
)
def test_published_image_is_the_one_that_is_installed(
    image: str, chart: str, tag: str, message: str, checkout: Path
) -> None:
    values = checkout / "deploy" / "charts" / "harvester-cloud-provider" / "values.yaml"
    values.write_text(values.read_text().replace('\n  repository: ""\n', f"\n  repository: {chart}\n", 1))
    for manifest in (checkout / "deploy" / "manifests").glob("*.yaml"):
        manifest.write_text(manifest.read_text().replace(IMAGE, chart))
    done = run(script(), {"IMAGE": image, "GITHUB_REF_NAME": tag}, checkout)
    assert (done.returncode, done.stdout.strip()) == (1 if message else 0, message), done.stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files of a release, with its section in the changelog."""
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "deploy", root / "deploy")
    shutil.copytree(ROOT / "scripts", root / "scripts", symlinks=True)
    shutil.copy(ROOT / "pyproject.toml", root)
    released = f"## [{__version__}] - 2026-01-01\n\n{NOTES}\n## [0.0.9] - 2025-01-01\n\n- Old.\n"
    (root / "CHANGELOG.md").write_text(f"# Changelog\n\n## [Unreleased]\n\n{released}")
    return root


@pytest.mark.parametrize(
    ("tag", "says"),
    [(TAG, ""), ("v99.0.0", f"tag v99.0.0, program {TAG}, chart {TAG}"), (f"{TAG}-rc1", "program")],
)
def test_release_has_the_version_of_its_files(checkout: Path, tag: str, says: str) -> None:
    done = run(script("Tag, package and chart have the same version"), {"GITHUB_REF_NAME": tag}, checkout)
    assert bool(done.returncode) == bool(says)
    assert says in done.stdout


@pytest.mark.parametrize(("tagged", "code"), [("origin/main", 0), ("origin/main~1", 0), ("origin/topic", 1)])
def test_only_a_commit_on_main_is_released(tmp_path: Path, tagged: str, code: int) -> None:
    """The commit is checked out as the action does it: detached, with all branches of the remote."""
    commit = "git -c user.name=me -c user.email=me@example.org commit --quiet --allow-empty --message"
    history = f"git init --quiet --initial-branch=main remote; cd remote; {commit} one; {commit} two"
    branch = f"git switch --quiet --create topic HEAD~1; {commit} three; cd .."
    clone = f"git clone --quiet remote clone; cd clone; git checkout --quiet --detach {tagged}"
    assert run(f"{history}; {branch}; {clone}", {}, tmp_path).returncode == 0
    done = run(script("The tagged commit is on main"), {"GITHUB_REF_NAME": TAG}, tmp_path / "clone")
    assert done.returncode == code, done.stderr
    assert ("is not on the branch main" in done.stdout) == bool(code)


def test_nothing_is_published_before_tests_and_checks() -> None:
    assert set(job("image")["needs"]) == {"test", "version", "audit"}
    assert [job(name)["needs"] for name in ("publish", "package")] == ["image", "image"]


def test_release_has_a_section_in_the_changelog(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n")
    done = run(script("Tag, package and chart have the same version"), {"GITHUB_REF_NAME": TAG}, checkout)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, f"CHANGELOG.md has no section {__version__}")


@pytest.mark.security("A release is signed by the workflow that built it")
def test_release_is_built_signed_and_published(checkout: Path, tmp_path: Path) -> None:
    """Every step of the job, with fakes for programs that use servers."""
    tools, calls, given = tmp_path / "tools", tmp_path / "calls", tmp_path / "given"
    tools.mkdir()
    for name, text in {"helm": HELM, "cosign": RECORDER, "gh": RECORDER}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    environment = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "CALLS": str(calls),
        "GIVEN": str(given),
        "REAL_HELM": str(binaries.require("helm")["helm"]),
        "HOME": str(tmp_path),
        "GITHUB_REF_NAME": TAG,
        "GITHUB_REPOSITORY": "me/harvester-ccm",
        "REPOSITORY": "https://github.com/me/harvester-ccm",
        "CHARTS": "oci://registry.example.org:5000/charts",
        "USERNAME": "me",
        "PASSWORD": "secret of the registry",
    }
    for step in job("publish")["steps"]:
        if "run" in step:
            done = run(step["run"], environment, checkout)
            assert done.returncode == 0, f"{step['name']}: {done.stderr}"
    package = f"harvester-cloud-provider-{chart_version()}.tgz"
    files = sorted(file.name for file in (checkout / "dist").iterdir())
    manifests = sorted(file.name for file in (ROOT / "deploy" / "manifests").glob("*.yaml"))
    assert files == sorted([*manifests, "generate_addon.sh", package, "SHA256SUMS"])
    assert run("sha256sum --check --strict SHA256SUMS", {}, checkout / "dist").returncode == 0
    assert calls.read_text().splitlines() == [
        f"cosign sign-blob --yes --bundle dist/{package}.sigstore.json dist/{package}",
        "cosign sign-blob --yes --bundle dist/SHA256SUMS.sigstore.json dist/SHA256SUMS",
        f"gh release create {TAG} --repo me/harvester-ccm --verify-tag --title {TAG} --notes-file notes.md "
        + " ".join(f"dist/{name}" for name in files),
        "helm registry login registry.example.org:5000 --username me --password-stdin",
        f"helm push dist/{package} oci://registry.example.org:5000/charts",
    ]
    assert given.read_text() == "secret of the registry\n"
    assert (checkout / "notes.md").read_text().strip() == NOTES.strip()
    with tarfile.open(checkout / "dist" / package) as archive:
        described = archive.extractfile("harvester-cloud-provider/Chart.yaml")
        assert described is not None
        assert yaml.safe_load(described)["home"] == "https://github.com/me/harvester-ccm"


def chart_version() -> str:
    return str(yaml.safe_load((CHART / "Chart.yaml").read_text())["version"])


@pytest.mark.parametrize("name", ["release", "test"])
def test_workflows_use_the_tested_helm(name: str) -> None:
    """By default, the action installs the newest version."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())["jobs"].values()
    steps = [step for one in jobs for step in one.get("steps", ()) if "setup-helm" in step.get("uses", "")]
    assert [step["with"]["version"] for step in steps] == [binaries.HELM]


def test_repository_contains_one_chart() -> None:
    """Rancher offers every Chart.yaml in a repository that it reads from git."""
    found = {
        file.parent for part in ("deploy", "tests", "devenv", "docs") for file in (ROOT / part).rglob("Chart.yaml")
    }
    assert found == {CHART, CHART / "charts" / "kube-vip"}


def test_package_goes_to_the_index_without_a_password() -> None:
    package = job("package")
    assert package["permissions"] == {"contents": "read", "id-token": "write"}
    assert package["environment"] == "pypi"
    assert "secrets." not in str(package)
    orders = [step["run"] for step in package["steps"] if "run" in step]
    assert orders[0] == "make dist"
    assert orders[-1].endswith("--trusted-publishing always dist/*")
