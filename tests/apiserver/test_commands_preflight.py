"""``preflight`` on real clusters: all right, without each right, with each broken kubeconfig, and with dead servers.

What it prints is kept in transcripts/: ``HARVESTER_CCM_RENEW_SNAPSHOTS=1`` writes those files, else they are compared.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from devenv.apiserver import ControlPlane
from harvester_ccm.cli import main
from harvester_ccm.commands.clusters import HARVESTER
from harvester_ccm.commands.preflight import preflight_text
from harvester_ccm.commands.render import Output
from tests.apiserver.odd_servers import silent_server
from tests.apiserver.preflight_faults import FAULTS, Bench, Fault
from tests.apiserver.preflight_world import (
    CLUSTER_NAME,
    MissingRight,
    PreflightWorld,
    edited,
    missing_rights,
    scenes,
)

pytestmark = pytest.mark.apiserver

TRANSCRIPTS = Path(__file__).with_name("transcripts")
COLUMNS = 90
CLOUD_CONFIG, KUBECONFIG = "cloud-config", "kubeconfig"
_LOOPBACK_ROW = re.compile(r"harvester +server address +warning +https://127\.")


@dataclass(frozen=True)
class Run:
    """A run of the command."""

    code: int
    out: str
    err: str

    @property
    def checks(self) -> dict[tuple[str, str], dict[str, Any]]:
        """The checks of a JSON answer, by where and name."""
        return {(one["where"], one["check"]): one for one in json.loads(self.out)["checks"]}

    @property
    def printed(self) -> str:
        """What people read of the checks of a JSON answer."""
        text = StringIO()
        Output(text, width=COLUMNS).answer(json.loads(self.out), preflight_text)
        return text.getvalue()


@dataclass
class Desk:
    """A directory with both kubeconfigs, and the means to run the command in it."""

    scene: PreflightWorld
    directory: Path
    capsys: pytest.CaptureFixture[str]
    judged: dict[str, Run]
    """Runs of the module for scripts, by what was missing or broken."""

    def reset(self) -> None:
        """Put the product's kubeconfigs there."""
        shutil.copy(self.scene.cloud_config, self.directory / CLOUD_CONFIG)
        shutil.copy(self.scene.kubeconfig, self.directory / KUBECONFIG)

    def run(self, *words: str) -> Run:
        """Run the command with the flags of the product."""
        flags = [f"--cloud-config={CLOUD_CONFIG}", f"--kubeconfig={KUBECONFIG}", f"--cluster-name={CLUSTER_NAME}"]
        self.capsys.readouterr()
        code = main(["harvester-ccm", "preflight", *flags, *words], {"COLUMNS": str(COLUMNS)})
        captured = self.capsys.readouterr()
        return Run(code, captured.out, captured.err)

    def without(self, missing: MissingRight) -> Run:
        """Return a run with an account that lacks one right."""
        if missing.title not in self.judged:
            with self.lacking(missing):
                self.judged[missing.title] = self.run("--output=json")
        return self.judged[missing.title]

    def faced_with(self, fault: Fault) -> Run:
        """Return a run with a broken cloud-config."""
        if fault.title not in self.judged:
            with self.broken(fault):
                self.judged[fault.title] = self.run("--output=json")
        return self.judged[fault.title]

    @contextmanager
    def lacking(self, missing: MissingRight) -> Iterator[None]:
        """Use an account that lacks one right."""
        file = CLOUD_CONFIG if missing.cluster == HARVESTER else KUBECONFIG
        shutil.copy(self.scene.lacking[missing.title], self.directory / file)
        yield
        self.reset()

    @contextmanager
    def broken(self, fault: Fault) -> Iterator[None]:
        """Use a broken cloud-config."""
        target = self.directory / CLOUD_CONFIG
        target.unlink()
        with contextmanager(fault.breaking)(Bench(self.scene, target)):
            yield
        target.unlink(missing_ok=True)
        self.reset()


@pytest.fixture(scope="module")
def scene(guest: ControlPlane, harvester: ControlPlane) -> Iterator[PreflightWorld]:
    yield from scenes(guest, harvester)


@pytest.fixture(scope="module")
def judged() -> dict[str, Run]:
    return {}


@pytest.fixture
def desk(
    scene: PreflightWorld,
    judged: dict[str, Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Desk:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    made = Desk(scene, tmp_path, capsys, judged)
    made.reset()
    return made


def test_all_right(desk: Desk) -> None:
    run = desk.run("--output=json")
    assert (run.code, run.err) == (0, "")
    odd = {key for key, check in run.checks.items() if check["result"] != "ok"}
    assert odd == {("harvester", "server address")}
    document = json.loads(run.out)
    assert document["result"] == "warning"


@pytest.mark.parametrize("missing", missing_rights(), ids=lambda missing: missing.title)
def test_each_missing_right(desk: Desk, missing: MissingRight) -> None:
    run = desk.without(missing)
    permission = missing.permission
    check = run.checks[missing.cluster, permission.title]
    assert check["result"] == ("failed" if permission.required else "warning")
    assert f"may not {permission.verb}: {permission.effect}" in check["detail"]
    assert f"Grant {permission.verb} on {permission.title}" in check["advice"]
    others = [one["detail"] for one in run.checks.values() if one != check and "may not" in one["detail"]]
    assert others == []
    assert run.code == (1 if permission.required else 0)


def test_a_right_in_one_namespace_is_none_on_nodes(desk: Desk) -> None:
    """A Role may name Nodes, and the rules of its namespace list them; a request for a Node is refused all the same."""
    (missing,) = [one for one in missing_rights() if one.title == "guest-nodes-patch"]
    desk.scene.grant_in_namespace(missing)
    with desk.lacking(missing):
        run = desk.run("--output=json")
    assert run.checks["guest", "nodes"]["detail"].startswith("may not patch: ")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.title)
def test_each_broken_kubeconfig(desk: Desk, fault: Fault) -> None:
    run = desk.faced_with(fault)
    check = run.checks["harvester", fault.row]
    assert check["result"] == fault.result
    assert fault.says in check["detail"]
    assert run.code == fault.code
    # The guest is looked at all the same.
    assert run.checks["guest", "leases"]["result"] == "ok"


def test_a_broken_guest_kubeconfig(desk: Desk) -> None:
    (desk.directory / KUBECONFIG).write_text("")
    run = desk.run("--output=json")
    assert run.checks["guest", "kubeconfig"]["result"] == "failed"
    assert run.checks["harvester", "loadbalancers"]["result"] == "ok"
    assert run.code == 1


def test_swapped_kubeconfigs_are_named(desk: Desk) -> None:
    shutil.copy(desk.scene.kubeconfig, desk.directory / CLOUD_CONFIG)
    shutil.copy(desk.scene.cloud_config, desk.directory / KUBECONFIG)
    run = desk.run("--output=json")
    check = run.checks["harvester", "API versions"]
    assert (run.code, check["result"]) == (1, "failed")
    assert "--cloud-config and --kubeconfig are not swapped" in check["advice"]


def test_servers_that_never_respond_do_not_hold_it_up(desk: Desk) -> None:
    with silent_server() as harvester, silent_server() as guest:
        edited(desk.scene.cloud_config, desk.directory / CLOUD_CONFIG, cluster_server=harvester)
        edited(desk.scene.kubeconfig, desk.directory / KUBECONFIG, cluster_server=guest)
        run = desk.run()
    assert run.code == 1
    assert " ".join(run.out.split()).count("no answer within 10 s") == 2


def test_no_token_is_ever_shown(desk: Desk) -> None:
    token = yaml.safe_load(desk.scene.cloud_config.read_text())["users"][0]["user"]["token"]
    for words in ((), ("--output=json",), ("--v=4",)):
        run = desk.run(*words)
        assert token not in run.out + run.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--output=xml"], "--output is 'xml'; expected one of: text, json, yaml"),
        (["--secure-port=-1"], "--secure-port is '-1'"),
        (["extra"], "expected no arguments, got extra"),
        (["--nope"], "unknown flag --nope"),
    ],
)
def test_usage(desk: Desk, words: list[str], problem: str) -> None:
    run = desk.run(*words)
    assert run.code == 2
    assert problem in run.err


def test_the_transcripts_are_what_is_printed(desk: Desk) -> None:
    for name, text in _transcripts(desk):
        file = TRANSCRIPTS / name
        if os.environ.get("HARVESTER_CCM_RENEW_SNAPSHOTS"):
            file.write_text(text, encoding="utf-8")
        assert file.read_text(encoding="utf-8") == text, "set HARVESTER_CCM_RENEW_SNAPSHOTS=1 to write it"


def _transcripts(desk: Desk) -> Iterator[tuple[str, str]]:
    """Yield name and content of each file."""
    shown = desk.run().out
    yield "all_right.txt", _steady(shown, desk.scene)
    # Scripts and people are told the same: one run is enough for both.
    assert desk.run("--output=json").printed == shown
    runs = []
    for missing in missing_rights():
        permission = missing.permission
        group = permission.resource.group or "core"
        title = f"{missing.cluster.title()}: {permission.verb} {permission.title} ({group})"
        runs.append(_titled(title, desk.without(missing), desk.scene))
    yield "missing_rights.txt", "\n".join(runs)
    runs = [_titled(fault.title, desk.faced_with(fault), desk.scene) for fault in FAULTS]
    yield "broken_kubeconfigs.txt", "\n".join(runs)


def _titled(title: str, run: Run, scene: PreflightWorld) -> str:
    return f"=== {title}\n{_steady(_odd_rows(run.printed), scene)}exit code {run.code}\n"


def _steady(text: str, scene: PreflightWorld) -> str:
    """Return the text with what changes from run to run replaced by something as long."""
    text = text.replace(f":{scene.harvester.url.rpartition(':')[2]}", ":16443")
    text = text.replace(f":{scene.guest.url.rpartition(':')[2]}", ":26443")
    text = re.sub(r"(//127\.0\.0\.1:)(?!16443|26443)[0-9]{4,5}", r"\g<1>36443", text)
    text = re.sub(r"Kubernetes v1\.[0-9]+\.[0-9]+", "Kubernetes v1.35.4", text)
    text = re.sub(r"expires on [-0-9]{10}(\s+)[0-9:]{5}", r"expires on 2027-02-19\g<1>08:00", text)
    return f"{text.rstrip()}\n"


def _odd_rows(text: str) -> str:
    """Return the heading and the rows that are not ok, with their further lines."""
    lines = text.splitlines()
    kept, shown = [lines[0]], False
    for line in lines[1:]:
        if line and not line.startswith(" "):
            result = re.match(r"\S+ +\S.*?  +(ok|warning|failed|skipped)  ", line)
            shown = result is not None and result[1] != "ok" and not _LOOPBACK_ROW.match(line)
            shown = shown or not re.match(r"(flags|harvester|guest|both) ", line)
        if shown or not line:
            kept.append(line)
    return "\n".join(kept)
