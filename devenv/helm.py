"""Helm for tests of the chart and for the manifests made from it, built once from its Go module.

The version is pinned in ``devenv/gobuild-helm``. The program is kept in the project's cache beside the servers.

``python -m devenv.helm`` makes sure that it exists and prints its path.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from devenv.gotool import GoTool
from devenv.process import DevenvError

VERSION = "v3.20.2"
CHART = Path(__file__).parent.parent / "deploy" / "charts" / "harvester-cloud-provider"
RELEASE = "harvester-cloud-provider"
"""Name of the chart's release, fixed by RKE2 and Rancher."""
NAMESPACE = "kube-system"
KUBERNETES = ("--kube-version", "v1.35.4")
"""What a Helm that asks no cluster takes it for; one built without its makefile takes it for 1.20."""

_RUN_SECONDS = 120.0
RUNS_FOR_A_MOMENT = {"GOGC": "off", "GOMAXPROCS": "1"}
"""Environment of programs in Go that end soon: collecting their garbage would take a third of their processor time."""
_HELM = GoTool(
    name="helm",
    title="Helm",
    version=VERSION,
    module=Path(__file__).parent / "gobuild-helm",
    package="helm.sh/helm/v3/cmd/helm",
    takes="about 2 minutes",
    linker_flags=f"-s -w -X helm.sh/helm/v3/internal/version.version={VERSION}",
)


def helm_program() -> Path:
    """Return the path of the program, which is built when it is not there. Raises DevenvError."""
    return _HELM.binary()


def run_helm(*arguments: str | Path, kubeconfig: Path | None = None) -> str:
    """Run Helm and return what it printed. Without ``kubeconfig`` no cluster is asked.

    Raises DevenvError with what it printed on stderr when it fails.
    """
    with tempfile.TemporaryDirectory(prefix="harvester-ccm-helm-") as home:
        homes = {f"HELM_{kind}_HOME": f"{home}/{kind.lower()}" for kind in ("CACHE", "CONFIG", "DATA")}
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": home} | RUNS_FOR_A_MOMENT | homes
        environment["KUBECONFIG"] = str(kubeconfig) if kubeconfig else f"{home}/none"
        done = subprocess.run(
            [_HELM.binary(), *arguments],
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
    """The objects of the chart as YAML documents, with the files of values and then ``key=value`` settings.

    ``hooks`` says whether those of ``helm test`` are among them.

    Raises DevenvError with Helm's message when the chart cannot be rendered.
    """
    arguments: list[str | Path] = ["template", RELEASE, CHART, "--namespace", NAMESPACE, *KUBERNETES]
    if not hooks:
        arguments.append("--no-hooks")
    for file in values:
        arguments += ["--values", file]
    for setting in settings:
        arguments += ["--set", setting]
    return run_helm(*arguments)


def main() -> int:
    """Entry point of ``python -m devenv.helm``. Returns the exit code."""
    try:
        print(_HELM.binary())
    except DevenvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
