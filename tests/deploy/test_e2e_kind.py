"""The test on kind clusters, without the containers: every other line of it, on API servers of our own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from devenv.apiserver import ControlPlane
from devenv.binaries import require

pytestmark = [pytest.mark.apiserver, pytest.mark.thorough]

ROOT = Path(__file__).parents[2]


def test_e2e_kind_script_without_containers(guest: ControlPlane, harvester: ControlPlane, tmp_path: Path) -> None:
    given, tools, scratch = tmp_path / "given", tmp_path / "tools", tmp_path / "scratch"
    for directory in (given, tools, scratch):
        directory.mkdir()
    shutil.copy(guest.admin_kubeconfig, given / "guest")
    shutil.copy(harvester.admin_kubeconfig, given / "harvester")
    (tools / "kubectl").symlink_to(require("kubectl")["kubectl"])
    (tools / "helm").symlink_to(require("helm")["helm"])
    environment = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TMPDIR": str(scratch),
        "PYTHON": sys.executable,
        "DRY": str(given),
    }
    script = ROOT / "scripts" / "e2e_kind.sh"
    done = subprocess.run([script], check=False, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "e2e-kind: passed: nothing is left in Harvester" in done.stderr
    assert list(scratch.iterdir()) == [], "it leaves files behind"
