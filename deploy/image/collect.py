#!/usr/bin/env python3
"""Collects the files that the controller requires into a directory, as the root file system of an image.

``collect.py ROOT PREFIX``: the interpreter, the part of its standard library that programs use at run time, the shared
libraries that any of these or the controller in PREFIX name, certificate authorities, and the few files that a C
library reads. The image has no shell, no package manager and no pip. The Debian packages of the files are recorded
where scanners look for them.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

LEFT_OUT: Final = frozenset(
    {
        *("test", "tests", "idlelib", "tkinter", "turtledemo", "turtle.py", "lib2to3", "ensurepip", "distutils"),
        *("pydoc_data", "pydoc.py", "site-packages", "dist-packages", "__pycache__", "LICENSE.txt", "curses"),
        *("sqlite3", "dbm", "venv", "unittest", "doctest.py"),
    }
)
"""Of the standard library: tests, windows, what installs packages or documents them."""
UNUSED_EXTENSION: Final = re.compile(
    r"^(_test|_tkinter|_xx|xx|_dbm|_gdbm|_curses|_sqlite|readline|_ctypes_test|ossaudiodev|nis)"
)
CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
MAKES_CERTIFICATES: Final = Path("/usr/sbin/update-ca-certificates")
RELEASE: Final = Path("/usr/lib/os-release")
WRITTEN: Final = {
    "etc/passwd": "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n",
    "etc/group": "root:x:0:\nnonroot:x:65532:\n",
    # Names in /etc/hosts count, as they do everywhere else.
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


def main(root: Path, prefix: Path) -> None:
    """Fill ``root``. Raises RuntimeError if a library that a file names is missing."""
    interpreter = Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    modules = sorted(_standard_library(library))
    extensions = [file for file in modules if file.suffix == ".so"]
    native = [*extensions, *prefix.rglob("*.so")]
    libraries = sorted({file for one in [interpreter, *native] for file in _libraries(one)})

    _link_merged_directories(root)
    for file in [interpreter, *modules, *libraries, CERTIFICATES, RELEASE]:
        _copy(file, root)
    # The interpreter of the virtual environment, and the one that scripts name.
    for name in {Path("/usr/bin/python3"), Path(sys.base_prefix) / "bin" / "python3"} - {interpreter}:
        if name.exists():
            _link(root, name, interpreter)
    _link(root, Path("/etc/os-release"), RELEASE)
    for name, text in WRITTEN.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    probes = [library / "os.py", library / "asyncio/__init__.py", MAKES_CERTIFICATES]
    _note_packages(root, [interpreter, *probes, *libraries])


def _standard_library(library: Path) -> Iterator[Path]:
    for file in library.rglob("*"):
        parts = file.relative_to(library).parts
        of_no_use = any(part in LEFT_OUT or part.startswith("config-") for part in parts)
        if file.is_file() and not of_no_use and not UNUSED_EXTENSION.match(file.name):
            yield file


def _libraries(file: Path) -> Iterator[Path]:
    """Yield what the loader would load for a file, with the loader itself, as paths without links."""
    listed = subprocess.run(["ldd", file], check=True, capture_output=True, text=True).stdout
    for line in listed.splitlines():
        if "not found" in line:
            raise RuntimeError(f"{file} needs {line.strip()}")
        found = re.search(r"(/\S+) \(0x", line)
        if found:
            yield Path(found[1]).parent.resolve() / Path(found[1]).name


def _copy(file: Path, root: Path) -> None:
    target = root / file.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(file, target)


def _link(root: Path, name: Path, target: Path) -> None:
    link = root / name.relative_to("/")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _link_merged_directories(root: Path) -> None:
    """Make the links of a root whose /bin and /lib are in /usr: the loader's path in every program begins with one."""
    for name in ("bin", "lib", "lib64", "sbin"):
        if (Path("/") / name).is_symlink():
            (root / "usr" / name).mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(f"usr/{name}")


def _note_packages(root: Path, files: Iterable[Path]) -> None:
    """Write what ``dpkg`` knows of the packages behind the files, one file each, for scanners of small images."""
    directory = root / "var/lib/dpkg/status.d"
    directory.mkdir(parents=True)
    for package in sorted({name for file in files if (name := _package(file))}):
        known = subprocess.run(["dpkg-query", "--status", package], check=True, capture_output=True, text=True).stdout
        (directory / package.partition(":")[0]).write_text(known)


def _package(file: Path) -> str | None:
    """Return the package of a file, None for one that was not installed as part of any."""
    for path in (file, Path(str(file).removeprefix("/usr"))):
        done = subprocess.run(["dpkg-query", "--search", path], check=False, capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.partition(": ")[0].partition(",")[0]
    return None


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
