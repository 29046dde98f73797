"""Runs the container image as the chart does, on real API servers, and tells its size and how fast it starts.

``python -m devenv.image IMAGE`` needs a Docker engine on this machine. The container gets the host's network, a
read-only root file system and no capability: once as user 0 with a kubeconfig that only root can read, as Rancher
leaves it on a node, and once as another user, as with a Secret.
"""

from __future__ import annotations

import argparse
import http.client
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from devenv.apiserver import ControlPlane, start_clusters
from devenv.process import DevenvError, ReservedPort, run_directory
from devenv.restclient import wait_until

START_SECONDS = 30.0
STOP_SECONDS = 10
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager"
PROGRAMS = ("harvester-cloud-provider", "harvester-ccm")
UNPRIVILEGED = 65532


@dataclass(frozen=True)
class Start:
    """What was measured of one container."""

    user: int
    answering: float
    """Seconds from the order to start until the program answered on its port."""
    leading: float
    """Seconds from the order to start until it held the Lease."""
    stopping: float
    """Seconds from SIGTERM to the end."""


def docker(*arguments: str | Path) -> str:
    """Run the Docker client and return what it printed. Raises DevenvError with its message when it fails."""
    program = shutil.which("docker")
    if program is None:
        raise DevenvError("docker is not on PATH: the image test needs a Docker engine")
    done = subprocess.run([program, *arguments], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise DevenvError(f"docker {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


GROUPS = {
    "opt/harvester-ccm/bytecode": "bytecode",
    "opt/harvester-ccm": "the program and its packages",
    "usr/lib/python": "standard library",
    "usr/local/lib/python": "standard library",
    "usr/lib": "libraries",
    "usr/local/lib": "libraries",
    "usr/bin": "interpreter",
    "usr/local/bin": "interpreter",
}
"""The first of these that a file's path begins with says what it is."""


def group_of(path: str) -> str:
    """Return what kind of file has this path, without its first slash.

    >>> group_of("usr/lib/python3.13/json/decoder.py")
    'standard library'
    """
    return next((group for start, group in GROUPS.items() if path.startswith(start)), "other")


def sizes_by_group(image: str) -> dict[str, int]:
    """Return how many bytes the files of each group have. Raises DevenvError when Docker fails."""
    container = docker("create", image)
    sizes: dict[str, int] = {}
    try:
        with tempfile.TemporaryDirectory() as directory:
            archive = Path(directory) / "image.tar"
            docker("export", f"--output={archive}", container)
            with tarfile.open(archive) as files:
                for file in files:
                    group = group_of(file.name)
                    sizes[group] = sizes.get(group, 0) + file.size
    finally:
        docker("rm", "--force", container)
    return sizes


def _sizes(groups: dict[str, int]) -> list[str]:
    largest = sorted(groups.items(), key=lambda entry: -entry[1])
    return [f"{size / 1e6:.1f} MB {group}" for group, size in largest]


def measure_start(image: str, guest: ControlPlane, harvester: ControlPlane, *, user: int) -> Start:
    """Start a container as ``user``, wait until it leads, stop it. Raises DevenvError when it does not get that far."""
    files = _credentials(guest, harvester, user)
    reserved = ReservedPort()
    port = reserved.number
    reserved.release()
    container = docker(
        *("create", "--network=host", "--read-only", "--tmpfs=/tmp", f"--user={user}:{user}"),
        *("--cap-drop=ALL", "--security-opt=no-new-privileges"),
        *(f"--volume={file}:/etc/kubernetes/{file.name}:ro" for file in files),
        *(image, PROGRAMS[0], "--cloud-config=/etc/kubernetes/cloud-config", "--kubeconfig=/etc/kubernetes/guest"),
        *("--cluster-name=demo", f"--secure-port={port}", "--bind-address=127.0.0.1"),
    )
    # What the storage driver does for a new container is no part of the start.
    started = time.monotonic()
    try:
        docker("start", container)
        wait_until(lambda: _answers(port), seconds=START_SECONDS, what=f"/livez as user {user}")
        answering = time.monotonic() - started
        wait_until(lambda: bool(_holder(guest)), seconds=START_SECONDS, what=f"the Lease as user {user}")
        return Start(user, answering, time.monotonic() - started, _seconds_to_stop(container, guest))
    except DevenvError as error:
        raise DevenvError(f"{error}\n{docker('logs', container)}") from error
    finally:
        docker("rm", "--force", container)


def _credentials(guest: ControlPlane, harvester: ControlPlane, user: int) -> list[Path]:
    """The kubeconfigs for a container: as Rancher writes them for root, readable for all for another user."""
    directory = guest.directory / f"user-{user}"
    directory.mkdir()
    files = []
    for name, source in (("cloud-config", _rights_on(harvester, "vms")), ("guest", _rights_on(guest, "kube-system"))):
        file = directory / name
        file.touch(0o600)
        file.write_bytes(source.read_bytes())
        file.chmod(0o600 if user == 0 else 0o644)
        files.append(file)
    return files


def _seconds_to_stop(container: str, guest: ControlPlane) -> float:
    ordered = time.monotonic()
    docker("stop", f"--time={STOP_SECONDS}", container)
    seconds = time.monotonic() - ordered
    code = docker("inspect", "--format={{.State.ExitCode}}", container)
    if code != "0" or _holder(guest):
        raise DevenvError(f"after SIGTERM: exit code {code}, Lease held by {_holder(guest) or 'nobody'}")
    return seconds


def _rights_on(plane: ControlPlane, namespace: str) -> Path:
    name = "harvester-cloud-provider"
    return plane.kubeconfig_for_service_account(namespace, name, context_namespace=namespace)


def _holder(guest: ControlPlane) -> str:
    lease = guest.admin.get_or_none(LEASE)
    return (lease or {}).get("spec", {}).get("holderIdentity") or ""


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


def main() -> int:
    """Entry point of ``python -m devenv.image``. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m devenv.image", description="Run the image on real API servers.")
    parser.add_argument("image", metavar="IMAGE")
    image: str = parser.parse_args().image
    try:
        groups = sizes_by_group(image)
        print(f"size: {sum(groups.values()) / 1e6:.1f} MB, of them {', '.join(_sizes(groups))}")
        for program in PROGRAMS:
            version = docker(
                "run", "--rm", "--network=none", "--read-only", "--cap-drop=ALL", image, program, "--version"
            )
            print(f"{program} --version: {version}")
        with run_directory("image") as directory:
            guest, harvester = start_clusters(directory, guest_additions=True, vm_namespace="vms")
            with guest, harvester:
                for user in (0, UNPRIVILEGED):
                    start = measure_start(image, guest, harvester, user=user)
                    print(
                        f"user {start.user}: answers after {start.answering:.2f} s, leads after {start.leading:.2f} s, "
                        f"ends {start.stopping:.2f} s after SIGTERM"
                    )
    except DevenvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
