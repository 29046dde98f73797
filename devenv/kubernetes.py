"""The tests on real API servers, with the oldest or the newest version of Kubernetes that the project supports.

``python -m devenv.kubernetes oldest [ARGUMENT ...]`` builds the API server and the controller manager of that version
once, and runs pytest with the arguments. The other programs are those of all tests.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from devenv.binaries import OTHER_KUBERNETES, require
from devenv.process import DevenvError

_SERVERS: Final = ("kube-apiserver", "kube-controller-manager")


def link_servers(version: str, directory: Path) -> None:
    """Fill ``directory`` with links to the servers of a version, under their usual names. Raises DevenvError."""
    for server in _SERVERS:
        name = f"{server}-{version}"
        (directory / server).symlink_to(require(name)[name])


def main() -> int:
    """Entry point of ``python -m devenv.kubernetes``. Returns the exit code of pytest."""
    parser = argparse.ArgumentParser(
        prog="python -m devenv.kubernetes", description="Test another version of Kubernetes."
    )
    parser.add_argument("version", choices=OTHER_KUBERNETES)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of pytest")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="harvester-ccm-kubernetes-") as directory:
        try:
            link_servers(given.version, Path(directory))
        except DevenvError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        print(f"Kubernetes {OTHER_KUBERNETES[given.version]}", flush=True)
        # devenv.binaries looks for each program there first.
        environment = {**os.environ, "KUBEBUILDER_ASSETS": directory}
        return subprocess.run(
            [sys.executable, "-m", "pytest", *given.arguments], check=False, env=environment
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
