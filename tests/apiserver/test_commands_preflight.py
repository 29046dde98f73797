"""``preflight`` on real API servers: no problem, each missing permission, and each broken kubeconfig.

``transcripts/preflight.txt`` has its text, ``preflight-1.27.txt`` that on servers up to Kubernetes 1.27, which do not
say whose a token is. ``HARVESTER_CCM_RENEW_SNAPSHOTS=1`` writes the file, else it is compared.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from devenv.apiserver import ControlPlane
from harvester_ccm.cli import main
from harvester_ccm.commands.clusters import GUEST, HARVESTER
from harvester_ccm.commands.permissions import Permission
from tests.apiserver.preflight_faults import FAULTS, WARNINGS, Bench, Breaking
from tests.apiserver.preflight_world import (
    CLUSTER_NAME,
    PERMISSIONS,
    PreflightWorld,
    preflight_world,
)

pytestmark = pytest.mark.apiserver

TRANSCRIPTS = Path(__file__).parent / "transcripts"
COLUMNS = "90"
FILES = {HARVESTER: "cloud-config", GUEST: "kubeconfig"}


@dataclass(frozen=True)
class Run:
    """A run of the command."""

    code: int
    out: str
    err: str

    @property
    def checks(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(one["where"], one["check"]): one for one in json.loads(self.out)["checks"]}


@dataclass
class Desk:
    """A directory with both kubeconfigs, in which the command runs."""

    world: PreflightWorld
    directory: Path
    capsys: pytest.CaptureFixture[str]

    def use(self, cluster: str, kubeconfig: Path) -> None:
        shutil.copy(kubeconfig, self.directory / FILES[cluster])

    def run(self, *words: str) -> Run:
        """Run the command with the flags of the product."""
        flags = ["--cloud-config=cloud-config", "--kubeconfig=kubeconfig", f"--cluster-name={CLUSTER_NAME}"]
        self.capsys.readouterr()
        code = main(["harvester-ccm", "preflight", *flags, *words], {"COLUMNS": COLUMNS})
        captured = self.capsys.readouterr()
        return Run(code, captured.out, captured.err)


@pytest.fixture(scope="module")
def world(guest: ControlPlane, harvester: ControlPlane) -> Iterator[PreflightWorld]:
    with preflight_world(guest, harvester) as one:
        yield one


@pytest.fixture
def desk(
    world: PreflightWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Desk:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", COLUMNS)
    one = Desk(world, tmp_path, capsys)
    for cluster, kubeconfig in world.product.items():
        one.use(cluster, kubeconfig)
    return one


@pytest.mark.security("Logs, Events and command output contain no credential of the controller")
def test_everything_is_granted_and_no_token_is_printed(desk: Desk) -> None:
    token = yaml.safe_load(desk.world.cloud_config.read_text())["users"][0]["user"]["token"]
    run = desk.run("--output=json", "--v=4")
    assert run.code == 0
    assert {check["result"] for check in run.checks.values()} == {"ok"}
    assert token not in run.out + run.err


@pytest.mark.parametrize(
    ("cluster", "permission"),
    PERMISSIONS,
    ids=[f"{cluster}-{one.title.replace('/', '-')}-{one.verb}" for cluster, one in PERMISSIONS],
)
def test_missing_permission(desk: Desk, cluster: str, permission: Permission) -> None:
    desk.world.grant(cluster, [one for where, one in PERMISSIONS if where == cluster and one != permission])
    desk.use(cluster, desk.world.limited[cluster])
    run = desk.run("--output=json")
    check = run.checks[cluster, permission.title]
    assert check["result"] == ("failed" if permission.required else "warning")
    assert f"cannot {permission.verb}: {permission.effect}" in check["detail"]
    assert f"Grant {permission.verb} on {permission.title}" in check["fix"]
    assert [
        one["detail"] for one in run.checks.values() if one != check and re.match(r"cannot \w+: ", one["detail"])
    ] == []
    assert run.code == (1 if permission.required else 0)


@pytest.mark.parametrize("name", [*FAULTS, *WARNINGS])
def test_broken_kubeconfig(desk: Desk, name: str) -> None:
    breaking: Breaking
    breaking, row, text = {**FAULTS, **WARNINGS}[name]
    (desk.directory / "cloud-config").unlink()
    with breaking(Bench(desk.world, desk.directory / "cloud-config")):
        run = desk.run("--output=json")
    check = run.checks[HARVESTER, row]
    assert check["result"] == ("failed" if name in FAULTS else "warning"), run.checks
    assert text in check["detail"]
    assert run.code == (name != "no verification")
    # The guest cluster is checked in any case.
    assert run.checks[GUEST, "leases"]["result"] == "ok"


def test_transcript(desk: Desk) -> None:
    runs = [desk.run()]
    desk.world.grant(GUEST, [one for where, one in PERMISSIONS if where == GUEST and one.title != "services/status"])
    desk.use(GUEST, desk.world.limited[GUEST])
    runs.append(desk.run())
    text = "\n".join(f"{_steady(run.out, desk.world)}exit code {run.code}\n" for run in runs)
    kinds = desk.world.planes[GUEST].admin.request("GET", "/apis/authentication.k8s.io/v1")["resources"]
    says_who = any(kind["name"] == "selfsubjectreviews" for kind in kinds)
    transcript = TRANSCRIPTS / ("preflight.txt" if says_who else "preflight-1.27.txt")
    if os.environ.get("HARVESTER_CCM_RENEW_SNAPSHOTS"):
        transcript.write_text(text, encoding="utf-8")
    assert transcript.read_text(encoding="utf-8") == text, "set HARVESTER_CCM_RENEW_SNAPSHOTS=1 to write it"


def _steady(text: str, world: PreflightWorld) -> str:
    """Return a text with ports, versions and times replaced by values of the same length."""
    for cluster, port in ((HARVESTER, "16443"), (GUEST, "26443")):
        text = text.replace(f":{world.planes[cluster].url.rpartition(':')[2]}", f":{port}")
    text = re.sub(r"Kubernetes v1\.[0-9]+\.[0-9]+", "Kubernetes v1.35.4", text)
    return re.sub(r"(expires\s+on\s+)[-0-9]{10}(\s+)[0-9:]{5}", r"\g<1>2027-02-19\g<2>08:00", text)
