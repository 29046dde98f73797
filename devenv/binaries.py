"""Finds the server programs, and makes them once where they are missing.

They are looked for in the directory ``KUBEBUILDER_ASSETS``, then in the project's cache
(``HARVESTER_CCM_CACHE``, else ``$XDG_CACHE_HOME/harvester-ccm``, else ``~/.cache/harvester-ccm``). What is
in neither is taken from the published envtest archive where that can be reached, and is else built from
source. The result stays in the cache; programs appear there complete or not at all, and two processes never
make them at once.

``python -m devenv.binaries [PROGRAM ...]`` makes sure that they exist and prints their paths.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devenv import envtest, gosource
from devenv.process import DevenvError

DEFAULT = ("etcd", "kube-apiserver")
"""What a control plane cannot do without. The other programs are made only when they are asked for."""

_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def require(*programs: str) -> dict[str, Path]:
    """The paths of the programs (default: etcd and kube-apiserver), made first where they are missing.

    Making them takes minutes and is reported on stderr. Raises DevenvError when a program is not one of
    ``gosource.PROGRAMS`` or cannot be made.
    """
    wanted = programs or DEFAULT
    if unknown := sorted(set(wanted) - set(gosource.PROGRAMS)):
        raise DevenvError(f"unknown programs {unknown}: expected some of {sorted(gosource.PROGRAMS)}")
    cache = cache_directory()
    found = _found(wanted, cache)
    if len(found) < len(set(wanted)):
        with _only_one_process(cache):
            _make([one for one in wanted if one not in _found(wanted, cache)], cache)
        found = _found(wanted, cache)
    return found


def cache_directory() -> Path:
    """Where made programs are kept. It need not exist yet."""
    if own := os.environ.get("HARVESTER_CCM_CACHE"):
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "harvester-ccm"


def platform_name() -> str:
    """This machine in the words of Go: ``linux-amd64``. Raises DevenvError on an unsupported one."""
    system, machine = platform.system().lower(), platform.machine().lower()
    if system not in {"linux", "darwin"} or machine not in _ARCHITECTURES:
        raise DevenvError(
            f"no servers for {system} on {machine}: expected Linux or macOS on x86-64 or ARM64; "
            "set KUBEBUILDER_ASSETS to a directory that has them"
        )
    return f"{system}-{_ARCHITECTURES[machine]}"


def _found(programs: tuple[str, ...], cache: Path) -> dict[str, Path]:
    places = [cache / f"{release}-{platform_name()}" for release in (gosource.RELEASE, envtest.RELEASE)]
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        places.insert(0, Path(assets).absolute())
    found = {}
    for program in programs:
        for place in places:
            if os.access(place / program, os.X_OK):
                found[program] = place / program
                break
    return found


def _make(programs: list[str], cache: Path) -> None:
    if set(programs) & set(envtest.PROGRAMS):
        try:
            with _new_directory(cache, envtest.RELEASE) as directory:
                envtest.fetch(directory, platform_name())
            programs = [one for one in programs if one not in envtest.PROGRAMS]
        except envtest.UnavailableError as reason:
            _say(f"not using the envtest archive: {reason}")
    for program in programs:
        with _new_directory(cache, gosource.RELEASE) as directory:
            gosource.build(program, directory, cache=cache, platform=platform_name())


@contextmanager
def _new_directory(cache: Path, release: str) -> Iterator[Path]:
    """A directory to make programs in; those that are in it at the end move into the cache at once."""
    for left_over in cache.glob(".making-*"):
        shutil.rmtree(left_over, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=cache) as name:
        yield Path(name)
        final = cache / f"{release}-{platform_name()}"
        final.mkdir(parents=True, exist_ok=True)
        for program in Path(name).iterdir():
            program.replace(final / program.name)


@contextmanager
def _only_one_process(cache: Path) -> Iterator[None]:
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another process is making the servers, waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Entry point of ``python -m devenv.binaries``. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m devenv.binaries",
        description="Make sure that server programs exist, print their paths.",
    )
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(sorted(gosource.PROGRAMS)))
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
