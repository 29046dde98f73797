"""How an image's files are run where there is no engine: locked down, and with nothing left of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from devenv import containers
from devenv.containers import MEMORY, MOUNTED, Order, UnpackedImage, runtime_description
from devenv.image import group_of, sizes_by_group
from devenv.process import DevenvError
from devenv.restclient import wait_until

RUNTIME = """#!/bin/sh
# --root DIRECTORY run --bundle DIRECTORY NAME, or --root DIRECTORY kill NAME SIGNAL
case $3 in
  run) [ -e "$5/../stuck" ] && exec sleep 60
       [ -e "$5/../late" ] && sleep 0.5
       echo $$ > "$5/pid"
       sed -n 's/.*"args": \\["\\([^"]*\\)".*/ran \\1/p' "$5/config.json"
       [ -e "$5/../wait" ] && exec sleep 60
       rm "$5/pid"
       [ ! -e "$5/../fails" ] ;;
  kill) pid=$(cat "${2%/state}/pid") && kill -s "$5" "$pid" ;;
esac
"""


@pytest.fixture
def image(tmp_path: Path) -> UnpackedImage:
    runtime, root = tmp_path / "runtime", tmp_path / "root"
    runtime.write_text(RUNTIME)
    runtime.chmod(0o755)
    (root / "usr/lib/python3.13").mkdir(parents=True)
    (root / "usr/lib/python3.13/os.py").write_bytes(b"12345")
    (root / "usr/lib64").symlink_to("lib")
    return UnpackedImage(runtime, root, tmp_path, environment=("PATH=/usr/bin",))


def bundles(directory: Path) -> list[Path]:
    return list(directory.glob("harvester-ccm-*"))


def test_nothing_is_allowed_that_the_chart_does_not_allow(tmp_path: Path) -> None:
    order = Order(("harvester-ccm", "--version"), 65532, (tmp_path / "cloud-config",))
    made = runtime_description("one", tmp_path, order, ["PATH=/usr/bin"], ["pid", "mount"])
    assert made["root"] == {"path": str(tmp_path), "readonly": True}
    process = made["process"]
    assert process["user"] == {"uid": 65532, "gid": 65532}
    assert process["noNewPrivileges"] is True
    assert set(process["capabilities"]) == {"bounding", "effective", "inheritable", "permitted", "ambient"}
    assert not any(process["capabilities"].values())
    assert made["linux"]["resources"] == {"memory": {"limit": MEMORY}}
    assert made["linux"]["namespaces"] == [{"type": "pid"}, {"type": "mount"}], "the network is the host's"
    bound = [one for one in made["mounts"] if "bind" in one["options"]]
    assert [(one["destination"], "ro" in one["options"]) for one in bound] == [(f"{MOUNTED}/cloud-config", True)]


def test_a_program_s_output_is_returned_and_nothing_stays(image: UnpackedImage, tmp_path: Path) -> None:
    assert image.output("harvester-ccm", "--version") == "ran harvester-ccm"
    assert bundles(tmp_path) == []


def test_a_program_that_fails_is_told_with_what_it_wrote(image: UnpackedImage, tmp_path: Path) -> None:
    (tmp_path / "fails").touch()
    with pytest.raises(DevenvError, match="ran harvester-ccm"):
        image.output("harvester-ccm")
    assert bundles(tmp_path) == []


def test_a_container_is_ended_and_removed(image: UnpackedImage, tmp_path: Path) -> None:
    (tmp_path / "wait").touch()
    container = image.prepare(Order(("harvester-ccm",), 0))
    container.start()
    wait_until(lambda: "ran" in container.log(), seconds=60, what="the program")
    container.remove()
    assert bundles(tmp_path) == []


@pytest.mark.parametrize("when", ["late", "stuck"])
def test_a_container_that_is_not_there_yet_is_removed(
    image: UnpackedImage, tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime refuses to kill what it has not made."""
    (tmp_path / "wait").touch()
    (tmp_path / when).touch()
    if when == "stuck":
        monkeypatch.setattr(containers, "KILLS", 2)
    container = image.prepare(Order(("harvester-ccm",), 0))
    container.start()
    container.remove()
    assert bundles(tmp_path) == []


def test_a_container_that_ended_by_itself_is_told_with_its_code_and_log(image: UnpackedImage, tmp_path: Path) -> None:
    (tmp_path / "fails").touch()
    container = image.prepare(Order(("harvester-ccm",), 0))
    container.start()
    wait_until(lambda: "ran" in container.log() and not any(tmp_path.glob("*/pid")), seconds=60, what="its end")
    assert container.stop(60) == 1
    assert "ran harvester-ccm" in container.log()
    container.remove()
    assert bundles(tmp_path) == []


def test_size_is_told_by_group_without_what_links_point_to(image: UnpackedImage) -> None:
    assert sizes_by_group(image) == {"standard library": 5}
    assert group_of("opt/harvester-ccm/bytecode/usr/lib/python3.13/os.pyc") == "bytecode"
