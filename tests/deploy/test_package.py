"""Source archive and wheel: complete, alike, acceptable to an index, and able to run."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from devenv.binaries import require
from devenv.package import COMPLETION, build, copy_sources, metadata_of, run_backend
from harvester_ccm import __version__

ROOT = Path(__file__).parents[2]
MADE = (
    "share/bash-completion/completions/harvester-ccm",
    "share/zsh/site-functions/_harvester-ccm",
    "share/fish/vendor_completions.d/harvester-ccm.fish",
)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("dist"))


def test_wheel_contains_exactly_the_product(package: tuple[Path, Path]) -> None:
    names = set(zipfile.ZipFile(package[1]).namelist())
    sources = {str(file.relative_to(ROOT)) for file in (ROOT / "harvester_ccm").rglob("*.py")}
    assert sources | {"harvester_ccm/py.typed"} == {name for name in names if name.startswith("harvester_ccm/")}
    kept = {Path(name).parts[0] for name in names} - {"harvester_ccm"}
    assert kept == {f"harvester_ccm-{__version__}.dist-info", f"harvester_ccm-{__version__}.data"}
    assert {name.partition(".data/data/")[2] for name in names if ".data/" in name} == set(MADE)


def test_source_archive_is_enough_to_build(package: tuple[Path, Path]) -> None:
    """The wheel was made from it, so what is in the wheel is in it; beside that it has what a packager needs."""
    with tarfile.open(package[0]) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", *map(str, COMPLETION.values())} <= names
    assert not {name for name in names if name.startswith(("tests", "devenv"))}


def test_checkout_can_be_installed(tmp_path: Path) -> None:
    """As the image and make setup do, without what is made for the package."""
    copy_sources(tmp_path / "checkout")
    wheel = run_backend("build_wheel", tmp_path / "checkout", tmp_path)
    assert "harvester_ccm/cli.py" in zipfile.ZipFile(tmp_path / wheel).namelist()


def test_metadata_is_accepted_by_an_index(package: tuple[Path, Path]) -> None:
    metadata = metadata_of(package[1])
    assert (metadata.name, str(metadata.version)) == ("harvester-ccm", __version__)
    assert metadata.description_content_type == "text/markdown"
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.license_files == ["LICENSE"]
    assert metadata.requires_python is not None
    assert all(requirement.url is None for requirement in metadata.requires_dist or ())


def test_installed_programs_run(package: tuple[Path, Path], tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*pip, "--target", tmp_path, package[1]], check=True)
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path)}
    orders: list[list[str | Path]] = [
        [sys.executable, tmp_path / "bin" / "harvester-ccm", "--version"],
        [sys.executable, tmp_path / "bin" / "harvester-cloud-provider", "--version"],
        # kubectl runs it as a plugin.
        [require("kubectl")["kubectl"], "harvester-ccm", "version"],
    ]
    for order in orders:
        done = subprocess.run(order, check=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.stdout.split()[-1] == __version__
    commands = subprocess.run(
        [sys.executable, tmp_path / "bin" / "harvester-ccm", "preflight", "--cloud-config=none"],
        check=False,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (commands.returncode, "NOT READY" in commands.stdout) == (1, True)
    assert [made for made in MADE if not (tmp_path / made).is_file()] == []
