"""``make e2e-kube-vip``: builds versions of kube-vip, and plays a scene with each in a network namespace of its own."""

import argparse
import subprocess
import sys
from typing import Final

from devenv.binaries import KUBE_VIP, require
from devenv.kubevipprocess import PROGRAMS
from devenv.process import DevenvError
from devenv.recordkubevip import RECORDINGS

SCENES: Final = {"cases": "devenv.realkubevip", "any-state": "devenv.anystate", "record": "devenv.recordkubevip"}
"""Modules by name of the scene."""


def main() -> int:
    """Entry point of ``python -m devenv.e2ekubevip``. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m devenv.e2ekubevip", description="Play a scene with kube-vip.")
    parser.add_argument("--scene", choices=SCENES, default="cases")
    parser.add_argument("--version", choices=("all", *PROGRAMS), default=KUBE_VIP)
    options = parser.parse_args()
    recorded = [version for version in PROGRAMS if (RECORDINGS / version).exists()]
    versions = recorded if options.version == "all" else [options.version]
    try:
        # Programs are built before: a new network namespace has no network.
        require("etcd", "kube-apiserver", *(PROGRAMS[version] for version in versions))
    except DevenvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    scene = [sys.executable, "-m", SCENES[options.scene], "--version"]
    results = [subprocess.run(["unshare", "--net", *scene, version], check=False).returncode for version in versions]
    return max(results)


if __name__ == "__main__":
    sys.exit(main())
