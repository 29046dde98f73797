"""The check before a release, run as the workflow runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from devenv.helm import CHART
from harvester_ccm import __version__

ROOT = Path(__file__).parents[2]
STEP = "Chart and manifests name the image that is published"
TAG = f"v{__version__}"


def script() -> str:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    (text,) = [step["run"] for step in workflow["jobs"]["version"]["steps"] if step.get("name") == STEP]
    return str(text)


@pytest.mark.parametrize(
    ("image", "tag", "message"),
    [
        pytest.param("harvester/harvester-ccm", TAG, "", id="the same"),
        pytest.param("docker.io/harvester/harvester-ccm", TAG, "", id="default registry written out"),
        pytest.param("", TAG, "set the repository variable IMAGE; the chart names harvester/harvester-ccm", id="none"),
        pytest.param(
            "ghcr.io/me/ccm",
            TAG,
            "the variable IMAGE is ghcr.io/me/ccm, but the chart names harvester/harvester-ccm: set image.repository "
            "in its values and run make generate",
            id="another name",
        ),
        pytest.param(
            "harvester/harvester-ccm",
            "v99.0.0",
            "deploy/manifests/k3s.yaml does not name harvester/harvester-ccm:v99.0.0-ccm: run make generate",
            id="another version",
        ),
    ],
)
def test_published_image_is_the_one_that_is_installed(image: str, tag: str, message: str) -> None:
    environment = {"PATH": os.environ["PATH"], "IMAGE": image, "GITHUB_REF_NAME": tag}
    bash = shutil.which("bash")
    assert bash is not None
    command = [bash, "-e", "-o", "pipefail", "-c", script()]
    done = subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (1 if message else 0, message), done.stderr


def test_nothing_but_our_chart_looks_like_a_chart() -> None:
    """Rancher offers every Chart.yaml in a repository that it reads from git."""
    found = {
        file.parent for part in ("deploy", "tests", "devenv", "docs") for file in (ROOT / part).rglob("Chart.yaml")
    }
    assert found == {CHART, CHART / "charts" / "kube-vip"}


def test_package_goes_to_the_index_without_a_password() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    job = workflow["jobs"]["package"]
    assert job["permissions"] == {"contents": "read", "id-token": "write"}
    assert job["environment"] == "pypi"
    assert "secrets." not in str(job)
    orders = [step["run"] for step in job["steps"] if "run" in step]
    assert orders[0] == "make dist"
    assert orders[-1].endswith("--trusted-publishing always dist/*")


def test_chart_of_a_release_names_the_repository_that_it_is_from() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    steps = {step.get("name"): step for step in workflow["jobs"]["publish"]["steps"]}
    replaced = steps["The chart names this repository"]["run"].split("#")[1]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["home"] == replaced
    names = list(steps)
    assert (
        names.index("The chart names this repository")
        < names.index("Collect the files")
        < names.index("Push the chart")
    )
