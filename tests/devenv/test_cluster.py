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
from devenv.cluster.archives import ImageConfig, content_of, layer_of_archive, layer_of_programs, write_image
from devenv.cluster.cgroups import control_groups
from devenv.cluster.inside import report_spec, take
from devenv.cluster.report import Report
from devenv.cluster.setup import Setup
from devenv.cluster.specs import EXPLAINED, GROUP, SLOW, SpecResult, choose
from devenv.cluster.story import AFTER_SPECS, BEFORE_SPECS, is_lease

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


def test_a_layer_of_an_archive_leaves_paths_out(tmp_path: Path) -> None:
    for name in ("usr/bin/curl", "usr/bin/containerd", "usr/bin/containerd-shim", "var/cache/apt/list"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    archive = tmp_path / "all.tar"
    subprocess.run(["tar", "-cf", archive, f"--directory={tmp_path}", "./usr", "./var"], check=True)
    layer = layer_of_archive(archive, without=["usr/bin/containerd", "var/cache"])
    with tarfile.open(fileobj=io.BytesIO(layer)) as files:
        names = ["./usr", "./usr/bin", "./usr/bin/containerd-shim", "./usr/bin/curl", "./var"]
        assert sorted(files.getnames()) == names
        content = files.extractfile("./usr/bin/curl")
        assert content is not None
        assert content.read() == content_of(archive, "usr/bin/curl") == b"usr/bin/curl"


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


def test_quick_specs_are_those_that_do_not_take_ten_minutes() -> None:
    slow = [f"{GROUP} {part} [Slow]" for part in SLOW]
    assert choose([QUICK, *slow], "quick") == [QUICK]
    assert choose([QUICK, *slow], "all") == [QUICK, *slow]
    assert choose([QUICK, *slow], "rolling update") == slow[:2]


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


def test_a_step_that_raises_anything_is_a_failed_row(capsys: pytest.CaptureFixture[str]) -> None:
    def step() -> str:
        raise KeyError("status")

    report = Report()
    assert not take(report, "Drain", step)
    assert report.failed == ["Drain"]
    assert "| Drain | **failed** |" in capsys.readouterr().out


def test_every_step_has_a_name_of_its_own() -> None:
    names = [step.__doc__ for step in (*BEFORE_SPECS, *AFTER_SPECS)]
    assert all(names)
    assert len(set(names)) == len(names)


def test_a_lease_is_an_address_of_the_dhcp_server() -> None:
    first, last = layout.LEASES
    assert is_lease(first)
    assert is_lease(last)
    assert not is_lease(layout.POOL[0])
    assert not is_lease("10.88.0.200")


def test_a_setup_is_read_as_it_was_written(tmp_path: Path) -> None:
    setup = Setup(
        programs={"kubectl": "/cache/kubectl"},
        debian=tmp_path / "debian.tar",
        archives={"pause.tar": "/cache/pause.tar"},
        agnhost="localhost/agnhost:1",
        work=tmp_path / "work",
        out=tmp_path / "out",
        specs=[],
        values=["kubeVipPolicy=deny"],
        parallel=4,
        harvester_bin="",
        keep=False,
    )
    setup.write(tmp_path / "setup.json")
    assert Setup.read(tmp_path / "setup.json") == setup
