"""Everything that is built outside of the capsule, and the cache of it.

Programs come from ``devenv.binaries``. The file system of the nodes consists of Debian packages. Images of other
programs are written from them; the image of this checkout is built as its documentation says for a machine without a
registry.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devenv.binaries import COREDNS, KUBE_VIP, cache_directory, platform_name, require
from devenv.cluster.archives import ImageConfig, content_of, layer_of_archive, layer_of_programs, write_image
from devenv.machine import NETWORK_TOOLS, require_root, require_tools
from devenv.process import DevenvError

CHECKOUT: Final = Path(__file__).parents[2]
NODES_SUITE: Final = "bookworm"
"""Release of Debian of the nodes."""
SUITE: Final = os.environ.get("SUITE", "trixie")
"""Release of Debian of the controller's image, which gets its Python from there."""
PACKAGES: Final = (
    *("containerd", "runc", "containernetworking-plugins", "nftables", "iptables", "conntrack", "iproute2"),
    *("dnsmasq-base", "busybox-static"),
    # Kubernetes' specs run these in containers.
    *("curl", "wget", "netcat-openbsd", "bind9-dnsutils", "iputils-ping"),
)
"""Packages of a node, in addition to Debian's minimum."""
NOT_IN_CONTAINERS: Final = (
    *("usr/bin/containerd", "usr/bin/containerd-shim", "usr/bin/containerd-shim-runc-v1"),
    *("usr/bin/containerd-shim-runc-v2", "usr/bin/ctr", "usr/sbin/runc", "usr/lib/cni"),
    *("usr/share/doc", "usr/share/locale", "usr/share/man", "usr/share/perl5", "usr/share/zoneinfo"),
    *("var/cache", "var/lib/apt", "var/lib/dpkg", "var/log", "dev", "proc", "sys"),
)
"""Paths of a node that the image for specs does not need."""
# The specs expect the wget of another distribution, which does not try again.
WGET: Final = b'#!/bin/sh\nexec /usr/bin/wget --tries=1 "$@"\n'
PROGRAMS: Final = (
    *(
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubelet",
        "kube-proxy",
        "kubectl",
        "helm",
    ),
    *("kube-vip", "coredns", "agnhost", "e2e.test"),
)
TOOLS: Final = {
    **NETWORK_TOOLS,
    "nsenter": "util-linux",
    "mount": "mount",
    "debootstrap": "debootstrap",
    "buildah": "buildah",
    "make": "make",
}
"""Programs of the machine, and their Debian packages."""
BASE_IMAGE: Final = "localhost/debian-python"
CONTROLLER_IMAGE: Final = "localhost/harvester-ccm:e2e"
KUBE_VIP_IMAGE: Final = f"localhost/kube-vip:{KUBE_VIP}"
COREDNS_IMAGE: Final = f"localhost/coredns:{COREDNS}"
PAUSE: Final = "localhost/pause:e2e"
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Builds:
    """What was built."""

    programs: Mapping[str, Path]
    debian: Path
    """Archive of the file system of a node."""
    archives: Sequence[Path]
    """Archives of all images."""
    agnhost: str
    """Name of the image of Kubernetes' program for tests."""


def check_machine() -> None:
    """Raise DevenvError with a command that helps if the machine lacks something."""
    require_root("make e2e-cluster")
    require_tools(TOOLS)


def build(directory: Path) -> Builds:
    """Build or find everything. The image of this checkout is written to ``directory``. Raises DevenvError."""
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    # Debian's packages mostly wait for the network, and the programs for the processors.
    with ThreadPoolExecutor(1) as pool:
        packages = pool.submit(lambda: (_debian(cache), _base_image(cache)))
        programs = require(*PROGRAMS)
        debian, base_image = packages.result()
    agnhost = _agnhost_names(programs["e2e.test"])
    archives = [
        _image(cache, (PAUSE,), lambda: [_pause_layer(debian)], PAUSE_CONFIG),
        _image(cache, (KUBE_VIP_IMAGE,), _one_program(programs["kube-vip"]), ImageConfig(["/kube-vip"])),
        _image(cache, (COREDNS_IMAGE,), _one_program(programs["coredns"]), ImageConfig(["/coredns"])),
        _image(cache, agnhost, lambda: _agnhost_layers(debian, programs["agnhost"]), AGNHOST_CONFIG),
        _controller(base_image, directory),
    ]
    return Builds(programs, debian, archives, agnhost[-1])


# Busybox is a static program of Debian; the first container of a pod only has to wait.
PAUSE_CONFIG: Final = ImageConfig(["/busybox", "sleep", "infinity"])
AGNHOST_CONFIG: Final = ImageConfig(["/agnhost"], ["pause"], {"PATH": PATH})


def _pause_layer(debian: Path) -> bytes:
    return layer_of_programs({"/busybox": content_of(debian, "usr/bin/busybox")})


def _one_program(program: Path) -> Callable[[], list[bytes]]:
    return lambda: [layer_of_programs({f"/{program.name}": program})]


def _agnhost_layers(debian: Path, agnhost: Path) -> list[bytes]:
    programs = layer_of_programs({"/agnhost": agnhost, "/usr/local/bin/wget": WGET})
    return [layer_of_archive(debian, without=NOT_IN_CONTAINERS), programs]


def _agnhost_names(e2e: Path) -> tuple[str, ...]:
    """Return the names under which the specs want the program, from the oldest to the newest version."""
    listed = subprocess.run([e2e, "--list-images"], check=True, capture_output=True, text=True).stdout.split()
    names = [name for name in listed if "/e2e-test-images/agnhost:" in name]
    if not names:
        raise DevenvError("e2e.test --list-images names no agnhost")
    return tuple(sorted(names, key=lambda name: [int(part) for part in name.rpartition(":")[2].split(".")]))


def _debian(cache: Path) -> Path:
    """Return the archive of a node's file system."""
    digest = hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:12]
    archive = cache / f"debian-{NODES_SUITE}-{digest}-{platform_name()}.tar"
    if archive.exists():
        return archive
    say("installing the Debian packages of the nodes: about 2 min, only once")
    with tempfile.TemporaryDirectory(prefix="harvester-ccm-debian-") as made:
        root = Path(made) / "root"
        root.mkdir(mode=0o755)
        run_logged("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", NODES_SUITE, str(root))
        # A node has the devices of the machine, and needs no packages any more.
        left_out = [f"--exclude=./{path}/*" for path in ("dev", "proc", "sys", "var/cache/apt", "var/lib/apt/lists")]
        with _new_file(archive) as file:
            run_logged("tar", "-cf", str(file), "--numeric-owner", *left_out, f"--directory={root}", ".")
    return archive


@contextmanager
def _new_file(final: Path) -> Iterator[Path]:
    """Yield a path for a new file of the cache, which gets its name at the end."""
    final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".writing-", dir=final.parent) as made:
        file = Path(made) / final.name
        yield file
        file.rename(final)


def _image(cache: Path, names: Sequence[str], layers: Callable[[], list[bytes]], config: ImageConfig) -> Path:
    """Return the archive of an image. It is written again if its name, which has the version, changes."""
    short = names[-1].rpartition("/")[2].replace(":", "-")
    archive = cache / f"images-{platform_name()}" / f"{short}.tar"
    if not archive.exists():
        say(f"writing the image {names[-1]}")
        architecture = platform_name().partition("-")[2]
        with _new_file(archive) as file:
            write_image(file, names, layers(), config, architecture=architecture)
    return archive


def _base_image(cache: Path) -> Path:
    """Return the archive of the image that the controller is built from, as the page about releases says."""
    archive = cache / f"images-{platform_name()}" / f"debian-python-{SUITE}.tar"
    if not archive.exists():
        say("making the base image: about 2 min, only once")
        make = ("make", "image-base", "ENGINE=buildah", f"BASE_IMAGE={BASE_IMAGE}", f"SUITE={SUITE}")
        with _new_file(archive) as file, _storage(file.parent) as environment:
            run_logged(*make, env=environment)
            _save(BASE_IMAGE, file, environment)
    return archive


def _controller(base: Path, directory: Path) -> Path:
    """Build the image of this checkout and return its archive."""
    say("building the image of this checkout")
    archive = directory / "controller.tar"
    with _storage(directory) as environment:
        run_logged("buildah", "pull", "--quiet", f"docker-archive:{base}", env=environment)
        make = ("make", "image", "ENGINE=buildah", f"BASE_IMAGE={BASE_IMAGE}", f"IMAGE={CONTROLLER_IMAGE}")
        run_logged(*make, env=environment)
        _save(CONTROLLER_IMAGE, archive, environment)
    return archive


def _save(image: str, archive: Path, environment: Mapping[str, str]) -> None:
    run_logged("buildah", "push", "--quiet", image, f"docker-archive:{archive}:{image}", env=environment)


@contextmanager
def _storage(parent: Path) -> Iterator[dict[str, str]]:
    """Yield the environment in which buildah has a storage of its own, and not that of the machine."""
    with tempfile.TemporaryDirectory(prefix="buildah-", dir=parent) as directory:
        file = Path(directory) / "storage.conf"
        places = f'graphroot = "{directory}/graph"\nrunroot = "{directory}/run"\n'
        file.write_text(f'[storage]\ndriver = "overlay"\n{places}')
        yield os.environ | {"CONTAINERS_STORAGE_CONF": str(file)}


def run_logged(*command: str, env: Mapping[str, str] | None = None) -> None:
    """Run a command in the checkout. Raises DevenvError with the end of its output if it fails."""
    done = subprocess.run(
        command, check=False, cwd=CHECKOUT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        end = "\n".join(done.stdout.splitlines()[-30:])
        raise DevenvError(f"{' '.join(command[:2])} failed with code {done.returncode}:\n{end}")


def say(text: str) -> None:
    """Print progress to stderr."""
    print(text, file=sys.stderr, flush=True)
