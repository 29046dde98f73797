"""What somebody at another terminal needs to work on the scene: a kubectl, the program's commands, and where both look.

``env`` is to be read by a shell. After that ``kubectl`` is the one of ``devenv.binaries`` on both clusters, and
``harvester-ccm`` needs no flags: as in the pod, it knows what the running program was told.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from devenv.binaries import require
from devenv.ccm import DEFAULT_FLAGS
from devenv.kubeconfig import merge_kubeconfigs
from devenv.stage import Scene

GUEST: Final = "guest"
HARVESTER: Final = "harvester"
_CHECKOUT: Final = Path(__file__).parents[2]


def write_toolbox(scene: Scene, directory: Path) -> Path:
    """Write all of it below ``directory`` and return the file for the shell. kubectl is made first if it is missing."""
    kubectl = require("kubectl")["kubectl"]
    tools = directory / "bin"
    tools.mkdir()
    (tools / "kubectl").symlink_to(kubectl)
    flags = {"cloud-config": str(scene.cloud_config), "cluster-name": DEFAULT_FLAGS["cluster-name"]}
    own = [sys.executable, "-m", "harvester_ccm"]
    _write_script(tools / "harvester-ccm", own, [f"--{name}={value}" for name, value in flags.items()])
    kubeconfig = merge_kubeconfigs(
        directory / "kubeconfig",
        {GUEST: scene.guest.admin_kubeconfig, HARVESTER: scene.harvester.admin_kubeconfig},
    )
    env = directory / "env"
    env.write_text(f"export KUBECONFIG={shlex.quote(str(kubeconfig))}\nexport PATH={shlex.quote(str(tools))}:$PATH\n")
    return env


def _write_script(path: Path, words: Sequence[str], last: Sequence[str]) -> None:
    """Write a script that runs ``words`` on what it is given, with ``last`` behind that."""
    where = f"PYTHONPATH={shlex.quote(str(_CHECKOUT))}"
    path.write_text(f'#!/bin/sh\n{where} exec {shlex.join(words)} "$@" {shlex.join(last)}\n')
    path.chmod(0o700)
