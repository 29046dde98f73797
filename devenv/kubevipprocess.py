"""The real kube-vip as a process: its versions, settings, and the network namespace in which it runs.

Requires Linux and root.
"""

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from devenv.announcement import NEWEST, Settings, Version
from devenv.apiserver import ControlPlane
from devenv.binaries import KUBE_VIP, KUBE_VIP_REVISIONS, NEWEST_KUBE_VIP, require
from devenv.process import ChildProcess, DevenvError

PROGRAMS: Final = {KUBE_VIP: "kube-vip", **{version: f"kube-vip-{version}" for version in KUBE_VIP_REVISIONS}}
"""Programs of ``devenv.binaries`` by version."""
DEVICE: Final = "eth0"
PEER: Final = "peer"
"""The other end of the device."""
NODE_ADDRESS: Final = "10.9.0.1"
SETTINGS: Final = {
    "vip_interface": DEVICE,
    "vip_arp": "true",
    "lb_enable": "true",
    "lb_port": "6443",
    "vip_subnet": "32",
    "cp_enable": "false",
    "svc_enable": "true",
    "svc_election": "false",
    "vip_leaderelection": "false",
    "vip_nodename": Settings().node,
    "prometheus_server": "127.0.0.1:2112",
}
"""Environment of kube-vip: the values of the chart, and the device and node of the network namespace."""
WATCHES: Final = "starting services watcher"
"""Log message of kube-vip when it begins to read Services."""
START_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.1


def text_of(version: Version) -> str:
    """Return a version as it is written."""
    return NEWEST_KUBE_VIP if version == NEWEST else f"v{version[0]}.{version[1]}.{version[2]}"


def version_of(text: str) -> Version:
    """Return a version as numbers. Raises ValueError."""
    major, minor, patch = text.removeprefix("v").partition("-")[0].split(".")
    return int(major), int(minor), int(patch)


class Build(NamedTuple):
    """A program of kube-vip."""

    program: Path
    version: Version


def build_of(version: str) -> Build:
    """Return the program of a version, which is built if it is missing. Raises DevenvError."""
    return Build(require(PROGRAMS[version])[PROGRAMS[version]], version_of(version))


@asynccontextmanager
async def kube_vip_process(
    build: Build, settings: Mapping[str, str], plane: ControlPlane, log_file: Path
) -> AsyncIterator[ChildProcess]:
    """Run kube-vip with the settings as its environment; it reads Services already.

    Raises DevenvError if it does not, or if it ends by itself.
    """
    # kube-vip 0.6 notes the name of the machine, not ``vip_nodename``.
    unshare, rename = shutil.which("unshare") or "unshare", 'hostname "$0" && exec "$@"'
    command: list[str | Path] = [
        unshare,
        "--uts",
        "sh",
        "-c",
        rename,
        settings["vip_nodename"],
        build.program,
        "manager",
    ]
    environment = {**os.environ, **settings, "HOME": str(_home_of(plane))}
    if build.version >= (0, 7, 0):
        command += ["--k8sConfigPath", plane.admin_kubeconfig]
    if build.version < (0, 9, 0):
        environment["vip_cidr"] = environment.pop("vip_subnet")
    child = ChildProcess.start("kube-vip", command, log_file=log_file, env=environment)
    try:
        deadline = time.monotonic() + START_SECONDS
        while WATCHES not in child.log_tail(200):
            if child.exit_code() is not None or time.monotonic() > deadline:
                raise DevenvError(f"kube-vip does not read Services; the end of {log_file}:\n{child.log_tail()}")
            await asyncio.sleep(POLL_SECONDS)
        yield child
        if child.exit_code() is not None:
            raise DevenvError(f"kube-vip has ended; the end of {log_file}:\n{child.log_tail()}")
    finally:
        child.stop()


def _home_of(plane: ControlPlane) -> Path:
    """Return a home directory with the kubeconfig: a kube-vip before 1.0 reads it from nowhere else."""
    home = plane.directory / "home"
    (home / ".kube").mkdir(parents=True, exist_ok=True)
    (home / ".kube" / "config").write_bytes(plane.admin_kubeconfig.read_bytes())
    return home


def ip(arguments: str) -> str:
    """Run ip(8), and return its output."""
    return subprocess.run(["ip", *arguments.split()], check=True, capture_output=True, text=True).stdout


def prepare_network() -> None:
    """Create the device of the node in a new network namespace."""
    for arguments in (
        "link set lo up",
        f"link add {DEVICE} type veth peer name {PEER}",
        f"link set {DEVICE} up",
        f"link set {PEER} up",
        f"address add {NODE_ADDRESS}/16 dev {DEVICE}",
    ):
        ip(arguments)


def announced_addresses() -> set[str]:
    """Return the addresses that kube-vip has put on a device: it leases an address on one of its own."""
    found = {entry["local"] for device in devices() for entry in device["addr_info"] if device["ifname"] != "lo"}
    return found - {NODE_ADDRESS}


def devices() -> list[dict[str, Any]]:
    """Return the devices with their IPv4 addresses."""
    found: list[dict[str, Any]] = json.loads(ip("-json -4 address show"))
    return found


def clear_device() -> None:
    """Remove addresses and devices that kube-vip left."""
    for device in devices():
        if device["ifname"].startswith("vip-"):
            ip(f"link delete {device['ifname']}")
    for address in announced_addresses():
        ip(f"address delete {address}/32 dev {DEVICE}")
