"""The tests on real API servers, with the oldest or the newest version of Kubernetes that the project supports.

``python -m devenv.kubernetes oldest [ARGUMENT ...]`` builds the API server of that version once, and runs pytest with
the arguments. Guest clusters have that API server. Harvester has the version of all other tests, because each of its
releases has a Kubernetes of its own; the other programs are also those of all tests.
"""

import argparse
import os
import subprocess
import sys

from devenv.apiserver import GUEST_KUBERNETES, guest_server
from devenv.binaries import OTHER_KUBERNETES, require
from devenv.process import DevenvError


def main() -> int:
    """Entry point of ``python -m devenv.kubernetes``. Returns the exit code of pytest."""
    parser = argparse.ArgumentParser(
        prog="python -m devenv.kubernetes", description="Test another version of Kubernetes."
    )
    parser.add_argument("version", choices=OTHER_KUBERNETES)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of pytest")
    given = parser.parse_args()
    try:
        require(guest_server(given.version), "etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "helm")
    except DevenvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"Kubernetes {OTHER_KUBERNETES[given.version]}", flush=True)
    environment = {**os.environ, GUEST_KUBERNETES: given.version}
    return subprocess.run([sys.executable, "-m", "pytest", *given.arguments], check=False, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
