"""Runs the container image as the chart does, on real API servers, and prints its size and how fast it starts.

``python -m devenv.image IMAGE``. An engine is ``docker`` or ``podman``. Without one, ``buildah`` mounts the files of
the image that it has built, and ``runc`` or ``crun`` runs them as an engine would. A container gets the host's network,
a read-only root file system, a writable ``/tmp``, no capability, and the chart's limit of memory: once as user 0 with a
kubeconfig that only root can read, as Rancher leaves it on a node, and once as another user, as with a Secret. The
former needs a caller who is root: without a capability user 0 cannot read other users' files.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import ssl
import subprocess
import sys
import tarfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final, Protocol

from devenv.apiserver import ControlPlane, start_clusters
from devenv.process import DevenvError, ReservedPort, run_directory
from devenv.restclient import Json, wait_until

ENGINES: Final = ("docker", "podman", "buildah")
MEMORY: Final = 256 << 20
"""Bytes; the limit that the chart sets."""
MOUNTED: Final = "/etc/kubernetes"
"""Directory of the kubeconfigs in a container."""
START_SECONDS: Final = 30.0
STOP_SECONDS: Final = 10
ROUNDS: Final = 5
LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager"
PROGRAMS: Final = ("harvester-cloud-provider", "harvester-ccm")
UNPRIVILEGED: Final = 65532
GROUPS: Final = {
    "opt/harvester-ccm/bytecode": "bytecode",
    "opt/harvester-ccm": "the program and its packages",
    "usr/lib/python": "standard library",
    "usr/local/lib/python": "standard library",
    "usr/lib": "libraries",
    "usr/local/lib": "libraries",
    "usr/bin": "interpreter",
    "usr/local/bin": "interpreter",
}
"""The first of these prefixes of a file's path says what it is."""


class Image(Protocol):
    """An image, and how to run it."""

    def files(self) -> Iterator[tuple[str, int]]:
        """Yield path, without its first slash, and size in bytes of every file."""

    def command(self, name: str, words: Sequence[str], user: int, files: Sequence[Path]) -> list[str | Path]:
        """Return the command that runs ``words`` in a container in the foreground, with ``files`` in ``MOUNTED``."""

    def stop(self, name: str) -> list[str | Path]:
        """Return the command that sends SIGTERM to a container."""


def call(program: str | Path, *arguments: str | Path) -> str:
    """Run a program and return what it printed. Raises DevenvError with its message if it fails."""
    done = subprocess.run([program, *arguments], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise DevenvError(f"{Path(program).name} {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


class EngineImage:
    """An image of an engine with Docker's command line."""

    def __init__(self, engine: str, image: str, directory: Path) -> None:
        self._engine = engine
        self._image = image
        self._archive = directory / "image.tar"

    def files(self) -> Iterator[tuple[str, int]]:
        container = call(self._engine, "create", self._image)
        try:
            call(self._engine, "export", f"--output={self._archive}", container)
            with tarfile.open(self._archive) as files:
                yield from ((file.name, file.size) for file in files)
        finally:
            call(self._engine, "rm", "--force", container)

    def command(self, name: str, words: Sequence[str], user: int, files: Sequence[Path]) -> list[str | Path]:
        return [
            *(self._engine, "run", "--rm", f"--name={name}", "--network=host", "--read-only", "--tmpfs=/tmp"),
            *(f"--user={user}:{user}", "--cap-drop=ALL", "--security-opt=no-new-privileges", f"--memory={MEMORY}"),
            *(f"--volume={file}:{MOUNTED}/{file.name}:ro" for file in files),
            *(self._image, *words),
        ]

    def stop(self, name: str) -> list[str | Path]:
        return [self._engine, "stop", f"--time={STOP_SECONDS}", name]


class UnpackedImage:
    """The files of an image, and an OCI runtime for them."""

    def __init__(self, root: Path, environment: Sequence[str], directory: Path) -> None:
        runtime = shutil.which("runc") or shutil.which("crun")
        if runtime is None:
            raise DevenvError("neither runc nor crun is on PATH: without an engine one of them runs the image")
        self._runtime: list[str | Path] = [runtime, "--root", directory / "state"]
        self._root = root
        self._environment = environment
        self._directory = directory

    def files(self) -> Iterator[tuple[str, int]]:
        for file in self._root.rglob("*"):
            if file.is_file() and not file.is_symlink():
                yield str(file.relative_to(self._root)), file.stat().st_size

    def command(self, name: str, words: Sequence[str], user: int, files: Sequence[Path]) -> list[str | Path]:
        bundle = self._directory / name
        bundle.mkdir()
        (bundle / "config.json").write_text(json.dumps(self._configuration(name, words, user, files)))
        return [*self._runtime, "run", "--bundle", bundle, name]

    def stop(self, name: str) -> list[str | Path]:
        return [*self._runtime, "kill", name, "TERM"]

    def _configuration(self, name: str, words: Sequence[str], user: int, files: Sequence[Path]) -> Json:
        """Return the configuration of a container in the words of the OCI runtime specification."""
        nothing = ("nosuid", "nodev", "noexec")
        dev = ("nosuid", "mode=755", "size=65536k")
        binds = [(f"{MOUNTED}/{file.name}", None, str(file), ("bind", "ro")) for file in files]
        mounts = [
            ("/proc", "proc", "proc", nothing),
            ("/dev", "tmpfs", "tmpfs", dev),
            ("/tmp", "tmpfs", "tmpfs", (*nothing, "mode=1777")),  # noqa: S108
            *binds,
        ]
        keys = ("destination", "type", "source", "options")
        return {
            "ociVersion": "1.0.2",
            "process": {
                "args": words,
                "env": self._environment,
                "cwd": "/",
                "user": {"uid": user, "gid": user},
                "capabilities": {kind: [] for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")},
                "noNewPrivileges": True,
            },
            "root": {"path": str(self._root), "readonly": True},
            "mounts": [{key: value for key, value in zip(keys, mount, strict=True) if value} for mount in mounts],
            "linux": {
                "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc")],
                "resources": {"memory": {"limit": MEMORY}},
                "cgroupsPath": f"/{name}",
            },
        }


@contextmanager
def open_image(engine: str, name: str, directory: Path) -> Iterator[Image]:
    """Yield the image of this name. Raises DevenvError if a program is missing."""
    if shutil.which(engine) is None:
        raise DevenvError(f"{engine} is not on PATH: the image test needs one of {', '.join(ENGINES)}")
    if engine != "buildah":
        yield EngineImage(engine, name, directory)
        return
    container = call(engine, "from", "--pull-never", name)
    try:
        described = json.loads(call(engine, "inspect", container))["OCIv1"]["config"]
        yield UnpackedImage(Path(call(engine, "mount", container)), described.get("Env", ()), directory)
    finally:
        call(engine, "rm", container)


def output(image: Image, *words: str) -> str:
    """Return what a program prints in a container. Raises DevenvError if it fails."""
    return call(*image.command(_new_name(), words, UNPRIVILEGED, ()))


def _new_name() -> str:
    return f"harvester-ccm-{uuid.uuid4().hex[:12]}"


def measure_start(image: Image, guest: ControlPlane, files: Sequence[Path], user: int) -> tuple[float, float, float]:
    """Start a container, wait until it leads, and stop it.

    Returns the seconds until it leads, until it answers on its port, and from SIGTERM to its end. Raises DevenvError if
    it does not get that far.
    """
    port, name = ReservedPort(), _new_name()
    port.release()
    words = [
        *(PROGRAMS[0], f"--cloud-config={MOUNTED}/cloud-config", f"--kubeconfig={MOUNTED}/guest"),
        *("--cluster-name=demo", f"--secure-port={port.number}", "--bind-address=127.0.0.1"),
    ]
    log = guest.directory / f"{name}.log"
    command, began = image.command(name, words, user, files), time.monotonic()
    with log.open("wb") as stream, subprocess.Popen(command, stdout=stream, stderr=stream) as process:
        try:
            # The Lease first: reading it is cheap, and a probe takes the program some of its time.
            wait_until(lambda: bool(_holder(guest)), seconds=START_SECONDS, what=f"the Lease as user {user}")
            leading = time.monotonic() - began
            wait_until(lambda: _answers(port.number), seconds=START_SECONDS, what=f"/livez as user {user}")
            answering = time.monotonic() - began
            began = time.monotonic()
            call(*image.stop(name))
            code = process.wait(STOP_SECONDS)
            stopping = time.monotonic() - began
        except (DevenvError, subprocess.TimeoutExpired) as error:
            subprocess.run(image.stop(name), check=False, capture_output=True)
            process.kill()
            raise DevenvError(f"{error}\n{log.read_text()}") from error
    if code != 0 or _holder(guest):
        raise DevenvError(f"it ended with code {code}, and the Lease is held by {_holder(guest) or 'nobody'}")
    return leading, answering, stopping


def _credentials(guest: ControlPlane, harvester: ControlPlane, user: int) -> list[Path]:
    """Return the kubeconfigs for a container: readable for all unless the user is root."""
    directory = guest.directory / f"user-{user}"
    directory.mkdir()
    files = []
    for name, plane, namespace in (("cloud-config", harvester, "vms"), ("guest", guest, "kube-system")):
        file = plane.kubeconfig_for_service_account(
            namespace, PROGRAMS[0], context_namespace=namespace, path=directory / name
        )
        file.chmod(0o600 if user == 0 else 0o644)
        files.append(file)
    return files


def _holder(guest: ControlPlane) -> str:
    return str((guest.admin.get_or_none(LEASE) or {}).get("spec", {}).get("holderIdentity") or "")


def _answers(port: int) -> bool:
    # The certificate is the program's own, made at its start.
    context = ssl._create_unverified_context()  # noqa: S323, SLF001
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=1, context=context)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def report(image: Image, directory: Path, rounds: int) -> None:
    """Print size, versions, and how fast the image starts as either user. Raises DevenvError if it does not."""
    sizes: Counter[str] = Counter()
    for path, size in image.files():
        sizes[next((group for prefix, group in GROUPS.items() if path.startswith(prefix)), "other")] += size
    groups = ", ".join(f"{size / 1e6:.1f} MB {group}" for group, size in sizes.most_common())
    print(f"size: {sizes.total() / 1e6:.1f} MB, of them {groups}")
    for program in PROGRAMS:
        print(f"{program} --version: {output(image, program, '--version')}", flush=True)
    guest, harvester = start_clusters(directory, guest_additions=True, vm_namespace="vms")
    with guest, harvester:
        for user in (0, UNPRIVILEGED):
            if user == 0 and os.geteuid() != 0:
                print("user 0: left out, only root can give it a kubeconfig that no other user can read", flush=True)
                continue
            files = _credentials(guest, harvester, user)
            starts = [measure_start(image, guest, files, user) for _ in range(rounds)]
            leading, answering, stopping = zip(*starts, strict=True)
            print(
                f"user {user}, {rounds} times: leads after {median(leading):.2f} s ({min(leading):.2f} to "
                f"{max(leading):.2f}), answers after {median(answering):.2f} s, ends {median(stopping):.2f} s after "
                f"SIGTERM; load {os.getloadavg()[0]:.1f}",
                flush=True,
            )


def main() -> int:
    """Entry point of ``python -m devenv.image``. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m devenv.image", description="Run the image on real API servers.")
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="starts as each user (default: %(default)s)")
    parser.add_argument("image", metavar="IMAGE")
    options = parser.parse_args()
    try:
        with run_directory("image") as directory, open_image(options.engine, options.image, directory) as image:
            report(image, directory, options.rounds)
    except DevenvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
