"""Runs the container image as the chart does, on real API servers, and tells its size and how fast it starts.

``python -m devenv.image IMAGE`` runs it with the engine of Docker or Podman, or without one from the files of an image
that Buildah has built (``devenv.containers``). The container gets the host's network, a read-only root file system, no
capability and the chart's limit of memory: once as user 0 with a kubeconfig that only root can read, as Rancher leaves
it on a node, and once as another user, as with a Secret. The former needs a caller who is root: without a capability
user 0 may not read other users' files.
"""

from __future__ import annotations

import argparse
import http.client
import os
import ssl
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from devenv.apiserver import ControlPlane, start_clusters
from devenv.containers import ENGINES, MOUNTED, Container, Image, Order, open_image
from devenv.process import DevenvError, ReservedPort, run_directory
from devenv.restclient import wait_until

START_SECONDS = 30.0
STOP_SECONDS = 10
ROUNDS = 5
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager"
PROGRAMS = ("harvester-cloud-provider", "harvester-ccm")
UNPRIVILEGED = 65532


@dataclass(frozen=True)
class Start:
    """What was measured of one container, in seconds."""

    answering: float
    """From the order to start until the program answered on its port."""
    leading: float
    """From the order to start until it held the Lease."""
    stopping: float
    """From SIGTERM to the end."""


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


def sizes_by_group(image: Image) -> dict[str, int]:
    """Return how many bytes the files of each group have. Raises DevenvError when they cannot be had."""
    sizes: dict[str, int] = {}
    for path, size in image.files():
        group = group_of(path)
        sizes[group] = sizes.get(group, 0) + size
    return sizes


def _sizes(groups: dict[str, int]) -> list[str]:
    largest = sorted(groups.items(), key=lambda entry: -entry[1])
    return [f"{size / 1e6:.1f} MB {group}" for group, size in largest]


def measure_start(image: Image, guest: ControlPlane, files: list[Path], *, user: int) -> Start:
    """Start a container as ``user``, wait until it leads, stop it. Raises DevenvError when it does not get that far."""
    reserved = ReservedPort()
    port = reserved.number
    reserved.release()
    words = [
        *(PROGRAMS[0], f"--cloud-config={MOUNTED}/cloud-config", f"--kubeconfig={MOUNTED}/guest"),
        *("--cluster-name=demo", f"--secure-port={port}", "--bind-address=127.0.0.1"),
    ]
    # What is made for a new container is no part of its start.
    container = image.prepare(Order(words, user, files))
    ordered = time.monotonic()
    try:
        container.start()
        # The Lease first: a look at it is cheap, and one at the port takes the program some of its time.
        wait_until(lambda: bool(_holder(guest)), seconds=START_SECONDS, what=f"the Lease as user {user}")
        leading = time.monotonic() - ordered
        wait_until(lambda: _answers(port), seconds=START_SECONDS, what=f"/livez as user {user}")
        answering = time.monotonic() - ordered
        return Start(answering, leading, _seconds_to_stop(container, guest))
    except DevenvError as error:
        raise DevenvError(f"{error}\n{container.log()}") from error
    finally:
        container.remove()


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


def _seconds_to_stop(container: Container, guest: ControlPlane) -> float:
    ordered = time.monotonic()
    code = container.stop(STOP_SECONDS)
    seconds = time.monotonic() - ordered
    if code != 0 or _holder(guest):
        raise DevenvError(f"it ended with code {code}, and the Lease is held by {_holder(guest) or 'nobody'}")
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


def report_starts(image: Image, directory: Path, rounds: int) -> None:
    """Print how fast the image starts as either user. Raises DevenvError when it does not."""
    guest, harvester = start_clusters(directory, guest_additions=True, vm_namespace="vms")
    with guest, harvester:
        for user in (0, UNPRIVILEGED):
            if user == 0 and os.geteuid() != 0:
                print("user 0: left out, only root can give it a kubeconfig that nobody else may read", flush=True)
                continue
            files = _credentials(guest, harvester, user)
            starts = [measure_start(image, guest, files, user=user) for _ in range(rounds)]
            leading = sorted(start.leading for start in starts)
            print(
                f"user {user}, {rounds} times: leads after {statistics.median(leading):.2f} s "
                f"({leading[0]:.2f} to {leading[-1]:.2f}), "
                f"answers after {statistics.median(start.answering for start in starts):.2f} s, "
                f"ends {statistics.median(start.stopping for start in starts):.2f} s after SIGTERM; "
                f"load {os.getloadavg()[0]:.1f}",
                flush=True,
            )


def main() -> int:
    """Entry point of ``python -m devenv.image``. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m devenv.image", description="Run the image on real API servers.")
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="starts as each user (default: %(default)s)")
    parser.add_argument("image", metavar="IMAGE")
    asked = parser.parse_args()
    try:
        with run_directory("image") as directory, open_image(asked.engine, asked.image, directory) as image:
            groups = sizes_by_group(image)
            print(f"size: {sum(groups.values()) / 1e6:.1f} MB, of them {', '.join(_sizes(groups))}")
            for program in PROGRAMS:
                print(f"{program} --version: {image.output(program, '--version')}", flush=True)
            report_starts(image, directory, asked.rounds)
    except DevenvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
