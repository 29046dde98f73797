"""Helm for tests of the chart and for the manifests made from it, built once from its Go module.

The version is pinned in ``devenv/gobuild-helm``. The program is kept in the project's cache beside the servers.

``python -m devenv.helm`` makes sure that it exists and prints its path.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from devenv import gosource
from devenv.binaries import cache_directory, platform_name
from devenv.process import ChildProcess, DevenvError

VERSION = "v3.20.2"
CHART = Path(__file__).parent.parent / "deploy" / "charts" / "harvester-cloud-provider"
RELEASE = "harvester-cloud-provider"
"""Name of the chart's release, fixed by RKE2 and Rancher."""
NAMESPACE = "kube-system"

_MODULE = Path(__file__).parent / "gobuild-helm"
_PACKAGE = "helm.sh/helm/v3/cmd/helm"
_BUILD_SECONDS = 1800.0
_RUN_SECONDS = 120.0


def helm_binary() -> Path:
    """The path of Helm, built first where it is missing. Raises DevenvError when it cannot be built."""
    cache = cache_directory()
    final = cache / f"helm-{VERSION}-{platform_name()}" / "helm"
    if not final.exists():
        cache.mkdir(parents=True, exist_ok=True)
        # The lock of the servers' builds: two builds at once would take each other's memory and cores.
        with (cache / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not final.exists():
                _build(final, cache)
    return final


def run_helm(*arguments: str | Path, kubeconfig: Path | None = None) -> str:
    """Run Helm and return what it printed. Without ``kubeconfig`` no cluster is asked.

    Raises DevenvError with what it printed on stderr when it fails.
    """
    with tempfile.TemporaryDirectory(prefix="harvester-ccm-helm-") as home:
        homes = {f"HELM_{kind}_HOME": f"{home}/{kind.lower()}" for kind in ("CACHE", "CONFIG", "DATA")}
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": home} | homes
        environment["KUBECONFIG"] = str(kubeconfig) if kubeconfig else f"{home}/none"
        done = subprocess.run(
            [helm_binary(), *arguments],
            check=False,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_RUN_SECONDS,
        )
    if done.returncode != 0:
        raise DevenvError(f"helm {arguments[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def render_chart(*, values: Sequence[Path] = (), settings: Sequence[str] = ()) -> str:
    """The objects of the chart as YAML documents, with the files of values and then ``key=value`` settings.

    Raises DevenvError with Helm's message when the chart cannot be rendered.
    """
    arguments: list[str | Path] = ["template", RELEASE, CHART, "--namespace", NAMESPACE]
    for file in values:
        arguments += ["--values", file]
    for setting in settings:
        arguments += ["--set", setting]
    return run_helm(*arguments)


def _build(final: Path, cache: Path) -> None:
    # The servers' way to find Go and to compile for this machine is the one for Helm too.
    go = gosource.toolchain(cache)
    environment = gosource.environment_for(platform_name())
    _say(f"building Helm {VERSION} from source with {go}: about 2 minutes on 2 cores, only once")
    with tempfile.TemporaryDirectory(prefix=".making-", dir=cache) as name:
        work = Path(name)
        flags = f"-s -w -X helm.sh/helm/v3/internal/version.version={VERSION}"
        command: list[str | Path] = [go, "build", "-mod=readonly", "-trimpath", "-ldflags", flags]
        command += ["-o", work / "helm", _PACKAGE]
        child = ChildProcess.start("go build", command, log_file=work / "log", cwd=_MODULE, env=environment)
        try:
            ended = child.wait(_BUILD_SECONDS)
        finally:
            child.stop()
        if not ended or child.exit_code() != 0:
            raise DevenvError(f"go build of Helm {VERSION} failed:\n{child.log_tail(30)}")
        final.parent.mkdir(parents=True, exist_ok=True)
        (work / "helm").replace(final)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Entry point of ``python -m devenv.helm``. Returns the exit code."""
    try:
        print(helm_binary())
    except DevenvError as error:
        _say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
