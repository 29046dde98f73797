"""Helm, for tests of the chart and for the manifests that are generated from it."""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from devenv.binaries import require
from devenv.process import DevenvError

CHART = Path(__file__).parent.parent / "deploy" / "charts" / "harvester-cloud-provider"
RELEASE = "harvester-cloud-provider"
"""Name of the chart's release, fixed by RKE2 and Rancher."""
NAMESPACE = "kube-system"

_RUN_SECONDS = 120.0


def run_helm(*arguments: str | Path, kubeconfig: Path | None = None) -> str:
    """Run Helm and return its output. Without ``kubeconfig`` it connects to no cluster.

    Raises DevenvError with its error output if it fails.
    """
    with tempfile.TemporaryDirectory(prefix="harvester-ccm-helm-") as home:
        homes = {f"HELM_{kind}_HOME": f"{home}/{kind.lower()}" for kind in ("CACHE", "CONFIG", "DATA")}
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": home} | homes
        environment["KUBECONFIG"] = str(kubeconfig) if kubeconfig else f"{home}/none"
        done = subprocess.run(
            [require("helm")["helm"], *arguments],
            check=False,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_RUN_SECONDS,
        )
    if done.returncode != 0:
        raise DevenvError(f"helm {arguments[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def render_chart(*, values: Sequence[Path] = (), settings: Sequence[str] = (), hooks: bool = True) -> str:
    """Return the objects of the chart as YAML documents, with the files of values and then ``key=value`` settings.

    ``hooks``: with those of ``helm test``. Raises DevenvError with Helm's message if the chart cannot be rendered.
    """
    arguments: list[str | Path] = ["template", RELEASE, CHART, "--namespace", NAMESPACE]
    if not hooks:
        arguments.append("--no-hooks")
    for file in values:
        arguments += ["--values", file]
    for setting in settings:
        arguments += ["--set", setting]
    return run_helm(*arguments)
