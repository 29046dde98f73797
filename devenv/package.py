"""The Python package: source archive and wheel, with generated shell completion.

``python -m devenv.package DIRECTORY`` builds the archive, and the wheel from the archive, and verifies their metadata.
It writes no file into the checkout and downloads nothing.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from packaging.metadata import Metadata

from devenv.process import DevenvError
from harvester_ccm.commands.completion import SHELLS, script

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = ("pyproject.toml", "README.md", "LICENSE", "harvester_ccm")
COMPLETION: Final[Mapping[str, Path]] = {
    "bash": Path("completion") / "harvester-ccm",
    "zsh": Path("completion") / "_harvester-ccm",
    "fish": Path("completion") / "harvester-ccm.fish",
}
"""Where ``pyproject.toml`` looks for them."""
EPOCH: Final = "1767225600"
"""Time of the files in both, so that the same sources make the same archives."""


def build(directory: Path) -> tuple[Path, Path]:
    """Build source archive and wheel into ``directory`` and return them. Raises DevenvError."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="harvester-ccm-package-") as scratch:
        checkout, unpacked = Path(scratch) / "checkout", Path(scratch) / "unpacked"
        copy_sources(checkout)
        (checkout / "completion").mkdir()
        for shell in SHELLS:
            (checkout / COMPLETION[shell]).write_text(script(shell))
        archive = directory / run_backend("build_sdist", checkout, directory)
        with tarfile.open(archive) as files:
            # Python 3.11.2 knows no argument for it, and no filter.
            files.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
            files.extractall(unpacked)  # noqa: S202 - it was made above
        (source,) = unpacked.iterdir()
        return archive, directory / run_backend("build_wheel", source, directory)


def copy_sources(checkout: Path) -> None:
    """Copy the sources of the package to a new directory."""
    checkout.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, checkout / name)


def run_backend(hook: str, source: Path, directory: Path) -> str:
    """Call a hook of the build backend in ``source``, as installers do, and return the name of the created file."""
    order = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", order, hook, directory.resolve()],
        check=False,
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise DevenvError(f"{hook} failed: {done.stderr.strip()}")
    return done.stdout.split()[-1]


def metadata_of(wheel: Path) -> Metadata:
    """Return the metadata of a wheel. Raises an error of ``packaging`` if an index would reject it."""
    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        return Metadata.from_email(files.read(name), validate=True)


def main() -> int:
    """Entry point of ``python -m devenv.package``. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m devenv.package", description="Build source archive and wheel.")
    parser.add_argument("directory", type=Path)
    directory: Path = parser.parse_args().directory
    try:
        archive, wheel = build(directory)
    except DevenvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    metadata = metadata_of(wheel)
    print(f"{metadata.name} {metadata.version}: {archive}, {wheel}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
