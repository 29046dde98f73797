"""The parts of ``make e2e-cluster`` that need neither root nor a cluster."""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from devenv.cluster import capsule, layout
from devenv.cluster.archives import ImageConfig, layer_of_programs, write_image
from devenv.cluster.cgroups import control_groups
from devenv.cluster.inside import report_spec
from devenv.cluster.report import Report
from devenv.cluster.specs import EXPLAINED, GROUP, SpecResult

QUICK = f"{GROUP} [Feature:LoadBalancer] should handle load balancer cleanup finalizer for service [Slow]"
EXPLAINED_SPEC = f"{GROUP} {next(iter(EXPLAINED))} [Slow] [LinuxOnly]"


def test_an_image_has_its_name_its_layers_and_its_start(tmp_path: Path) -> None:
    layers = [layer_of_programs({"/bin/wget": b"#!/bin/sh\n"}), layer_of_programs({"/agnhost": Path(sys.executable)})]
    archive = tmp_path / "image.tar"
    config = ImageConfig(["/agnhost"], ["pause"], {"PATH": "/bin"})
    write_image(archive, ["localhost/agnhost:1", "localhost/agnhost:2"], layers, config, architecture="amd64")

    with tarfile.open(archive) as image:
        contents = {member.name: image.extractfile(member) for member in image}
        (entry,) = json.load(contents["manifest.json"] or io.BytesIO())
        described = json.load(contents[entry["Config"]] or io.BytesIO())
        stored = [(contents[name] or io.BytesIO()).read() for name in entry["Layers"]]
    assert entry["RepoTags"] == ["localhost/agnhost:1", "localhost/agnhost:2"]
    assert described["config"] == {"Entrypoint": ["/agnhost"], "Cmd": ["pause"], "Env": ["PATH=/bin"]}
    assert stored == layers
    assert described["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    with tarfile.open(fileobj=io.BytesIO(layers[0])) as files:
        (program,) = files
    assert (program.name, program.mode) == ("bin/wget", 0o755)


@pytest.mark.parametrize("is_unified", [True, False])
def test_control_groups_are_removed_also_those_of_an_earlier_run(tmp_path: Path, is_unified: bool) -> None:
    hierarchies = [tmp_path] if is_unified else [tmp_path / "memory", tmp_path / "cpuset", tmp_path / "unified"]
    for hierarchy in hierarchies:
        (hierarchy / layout.CONTROL_GROUP / "n1" / "kubepods" / "pod").mkdir(parents=True)
    (hierarchies[-1] / "cgroup.controllers").touch()
    before = [*hierarchies, hierarchies[-1] / "cgroup.controllers"]

    with control_groups(tmp_path):
        for node in layout.NODES:
            assert (hierarchies[0] / node.control_group.lstrip("/")).is_dir()
            assert list((hierarchies[0] / node.control_group.lstrip("/")).iterdir()) == []
        # What runc creates.
        (hierarchies[-1] / layout.CONTROL_GROUP / "n1" / "kubepods").mkdir(parents=True)
    assert sorted(path for path in tmp_path.rglob("*")) == sorted(path for path in before if path != tmp_path)


@pytest.mark.parametrize(("ending", "code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 1), ("pass", 0)])
def test_the_first_process_of_a_capsule_ends_like_its_command(ending: str, code: int) -> None:
    # The child of the command loses its parent, and nobody but the first process can collect it.
    program = f"import os, subprocess, sys; subprocess.Popen(['true']); {ending}"
    command = [sys.executable, "-I", "-S", capsule.__file__, sys.executable, "-c", program]
    assert subprocess.run(command, check=False).returncode == code


def test_only_an_explained_spec_can_fail(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    report_spec(report, SpecResult(EXPLAINED_SPEC, "failed", 600.0, "affinity should stop"))
    report_spec(report, SpecResult(QUICK, "passed", 1.0, ""))
    assert report.failed == []
    report_spec(report, SpecResult(QUICK, "failed", 1.0, "no|answer\nfrom it"))
    assert report.failed == ["should handle load balancer cleanup finalizer for service"]
    rows = capsys.readouterr().out.splitlines()
    assert EXPLAINED[next(iter(EXPLAINED))] in rows[0]
    assert rows[2].endswith("| **failed** | 1.0 | failed: no/answer from it |")
