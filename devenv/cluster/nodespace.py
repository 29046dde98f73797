"""The mounts of a node: ``python -I -S nodespace.py FILE`` in new mount, UTS and network namespaces.

FILE is JSON with the fields of ``NodeSpace`` in ``nodes``. A node sees the file system that ``builds`` made, with a
writable layer of its own, its own ``/run``, and the programs of the cache. At the end, the process waits forever: it
keeps the namespaces. Only the standard library can be imported here.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

READY = "ready"
"""File in the node's directory that exists when all is mounted."""
# What a kubelet would write to the kernel of the whole machine. It finds the values that it wants, and writes nothing.
KERNEL = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
NETWORK = {
    "ipv4/ip_forward": "1",
    "ipv4/conf/all/rp_filter": "0",
    "ipv4/conf/default/rp_filter": "0",
}
PRODUCT = Path("sys/devices/virtual/dmi/id/product_uuid")
"""Where a kubelet reads the UUID of its machine, if the machine has this file."""


def mount(*words: str | Path) -> None:
    """Run mount(8)."""
    subprocess.run(["mount", *words], check=True)


def bind(source: Path, target: Path) -> None:
    """Show a file or directory in another place, which is created."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount("--bind", source, target)


def show_text(text: str, target: Path, *, files: Path) -> None:
    """Show a file with other content in place of one that exists."""
    source = files / target.name
    source.write_text(f"{text}\n")
    mount("--bind", source, target)


def prepare(space: dict[str, Any], directory: Path, root: Path) -> None:
    """Mount everything below ``root``."""
    upper, work, files = (directory / name for name in ("upper", "work", "files"))
    for place in (root, upper, work, files):
        place.mkdir(parents=True)
    layers = f"lowerdir={space['root']},upperdir={upper},workdir={work}"
    mount("-t", "overlay", "-o", layers, "overlay", root)
    mount("-t", "sysfs", "sysfs", root / "sys")
    mount("--rbind", "/sys/fs/cgroup", root / "sys/fs/cgroup")
    mount("-t", "proc", "proc", root / "proc")
    mount("--rbind", "/dev", root / "dev")
    mount("-t", "tmpfs", "tmpfs", root / "run")
    for name, value in KERNEL.items():
        show_text(value, root / "proc/sys" / name, files=files)
    if (root / PRODUCT).exists():
        show_text(space["system_uuid"], root / PRODUCT, files=files)
    for source, target in space["shown"].items():
        bind(Path(source), root / target.lstrip("/"))
    for target, text in space["texts"].items():
        file = root / target.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def become(root: Path) -> None:
    """Make ``root`` the root of this mount namespace, and drop everything else."""
    old = "old-root"
    (root / old).mkdir()
    os.chdir(root)
    subprocess.run(["pivot_root", ".", old], check=True)
    os.chdir("/")
    subprocess.run(["umount", "--lazy", f"/{old}"], check=True)
    Path("/", old).rmdir()
    # A kubelet mounts volumes that containers must see, also later.
    mount("--make-rshared", "/")


def main(file: str) -> None:
    """Prepare the node, say that it is ready, and wait."""
    space = json.loads(Path(file).read_text())
    directory = Path(space["directory"])
    root = directory / "root"
    socket.sethostname(space["name"])
    for name, value in NETWORK.items():
        Path("/proc/sys/net", name).write_text(value)
    prepare(space, directory, root)
    ready = os.open(directory, os.O_DIRECTORY)
    become(root)
    os.close(os.open(READY, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=ready))
    os.close(ready)
    os.execv("/bin/sleep", ["sleep", "infinity"])  # noqa: S606 - holds the namespaces


if __name__ == "__main__":
    main(sys.argv[1])
