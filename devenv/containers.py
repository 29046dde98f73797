"""Ways to run an image locked down: an engine with Docker's command line, or an OCI runtime on the image's files.

An engine is ``docker`` or ``podman``. Where there is none, ``buildah`` has built the image and hands out its files, and
``runc`` or ``crun`` runs them, as an engine would have it do. Both are given the host's network, a read-only root file
system, a writable ``/tmp``, no capability, no way to get one, and a limit of memory.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from devenv.process import DevenvError, log_tail
from devenv.restclient import Json

MEMORY: Final = 256 << 20
"""Bytes; the limit that the chart sets."""
ENGINES: Final = ("docker", "podman", "buildah")
RUNTIMES: Final = ("runc", "crun")
MOUNTED: Final = "/etc/kubernetes"
"""Where files are seen in a container."""
KILLS: Final = 100
"""How often a runtime is asked to kill a container before the runtime itself is killed."""
KILL_SECONDS: Final = 0.1
"""How long each is waited for."""


@dataclass(frozen=True)
class Order:
    """What to run."""

    words: Sequence[str]
    user: int
    files: Sequence[Path] = ()
    """To be read under ``MOUNTED``."""


class Container(Protocol):
    """A process in an image, prepared to be started once."""

    def start(self) -> None:
        """Start it. Raises DevenvError."""

    def stop(self, seconds: float) -> int:
        """Send SIGTERM, wait, and return the exit code."""

    def log(self) -> str:
        """Return what it wrote."""

    def remove(self) -> None:
        """Leave nothing of it."""


class Image(Protocol):
    """An image that is there to be run."""

    def files(self) -> Iterator[tuple[str, int]]:
        """Yield path, without its first slash, and size in bytes of every file."""

    def output(self, *words: str) -> str:
        """Return what a program prints without a network. Raises DevenvError when it fails."""

    def prepare(self, order: Order) -> Container:
        """Return a container that is yet to be started."""


@contextmanager
def open_image(engine: str, name: str, directory: Path) -> Iterator[Image]:
    """The image of this name; ``directory`` is for what has to be written. Raises DevenvError without the programs."""
    program = _program(engine)
    if engine != "buildah":
        yield EngineImage(program, name, directory)
        return
    container = call(program, "from", "--pull-never", name)
    try:
        described = json.loads(call(program, "inspect", container))["OCIv1"]["config"]
        root = Path(call(program, "mount", container))
        yield UnpackedImage(_runtime(), root, directory, environment=described.get("Env", ()))
    finally:
        call(program, "rm", container)


def call(program: Path, *arguments: str | Path) -> str:
    """Run a program and return what it printed. Raises DevenvError with its message when it fails."""
    done = subprocess.run([program, *arguments], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise DevenvError(f"{program.name} {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def _program(name: str) -> Path:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        raise DevenvError(f"{name} is not on PATH: the image test needs one of {', '.join(ENGINES)}")
    return Path(found)


def _runtime() -> Path:
    for name in RUNTIMES:
        try:
            return _program(name)
        except DevenvError:
            continue
    raise DevenvError(f"none of {', '.join(RUNTIMES)} is on PATH: without an engine one of them runs the image")


class EngineImage:
    """An image of an engine."""

    def __init__(self, engine: Path, name: str, directory: Path) -> None:
        self._engine = engine
        self._name = name
        self._directory = directory

    def files(self) -> Iterator[tuple[str, int]]:
        container = call(self._engine, "create", self._name)
        archive = self._directory / "image.tar"
        try:
            call(self._engine, "export", f"--output={archive}", container)
            with tarfile.open(archive) as files:
                yield from ((file.name, file.size) for file in files)
        finally:
            call(self._engine, "rm", "--force", container)
            archive.unlink(missing_ok=True)

    def output(self, *words: str) -> str:
        return call(self._engine, "run", "--rm", "--network=none", "--read-only", "--cap-drop=ALL", self._name, *words)

    def prepare(self, order: Order) -> Container:
        container = call(
            self._engine,
            *("create", "--network=host", "--read-only", "--tmpfs=/tmp", f"--user={order.user}:{order.user}"),
            *("--cap-drop=ALL", "--security-opt=no-new-privileges", f"--memory={MEMORY}"),
            *(f"--volume={file}:{MOUNTED}/{file.name}:ro" for file in order.files),
            *(self._name, *order.words),
        )
        return EngineContainer(self._engine, container)


@dataclass(frozen=True)
class EngineContainer:
    """A container of an engine."""

    engine: Path
    identifier: str

    def start(self) -> None:
        call(self.engine, "start", self.identifier)

    def stop(self, seconds: float) -> int:
        call(self.engine, "stop", f"--time={seconds:.0f}", self.identifier)
        return int(call(self.engine, "inspect", "--format={{.State.ExitCode}}", self.identifier))

    def log(self) -> str:
        done = subprocess.run([self.engine, "logs", self.identifier], check=False, capture_output=True, text=True)
        return done.stdout + done.stderr

    def remove(self) -> None:
        call(self.engine, "rm", "--force", self.identifier)


class UnpackedImage:
    """The files of an image, and a runtime for them."""

    def __init__(self, runtime: Path, root: Path, directory: Path, *, environment: Sequence[str]) -> None:
        self._runtime = runtime
        self._root = root
        self._directory = directory
        self._environment = environment

    def files(self) -> Iterator[tuple[str, int]]:
        for file in self._root.rglob("*"):
            if file.is_file() and not file.is_symlink():
                yield str(file.relative_to(self._root)), file.stat().st_size

    def output(self, *words: str) -> str:
        container = self._prepared(Order(words, user=0), namespaces=("pid", "mount", "ipc", "network"))
        try:
            container.start()
            code = container.wait()
            text = container.log()
        finally:
            container.remove()
        if code != 0:
            raise DevenvError(f"{words[0]} failed: {text}")
        return text.strip()

    def prepare(self, order: Order) -> Container:
        return self._prepared(order, namespaces=("pid", "mount", "ipc"))

    def _prepared(self, order: Order, *, namespaces: Sequence[str]) -> RuntimeContainer:
        name = f"harvester-ccm-{uuid.uuid4().hex[:12]}"
        bundle = self._directory / name
        bundle.mkdir()
        description = runtime_description(name, self._root, order, self._environment, namespaces)
        (bundle / "config.json").write_text(json.dumps(description))
        return RuntimeContainer(self._runtime, name, bundle)


def runtime_description(
    name: str, root: Path, order: Order, environment: Sequence[str], namespaces: Sequence[str]
) -> Json:
    """Return what the OCI runtime specification calls the configuration of a container."""
    nothing = ("nosuid", "nodev", "noexec")
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": nothing},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ("nosuid", "mode=755", "size=65536k")},
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": (*nothing, "mode=1777")},  # noqa: S108
        *(
            {"destination": f"{MOUNTED}/{file.name}", "source": str(file), "options": ("bind", "ro")}
            for file in order.files
        ),
    ]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "args": order.words,
            "env": environment,
            "cwd": "/",
            "user": {"uid": order.user, "gid": order.user},
            "capabilities": {kind: [] for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")},
            "noNewPrivileges": True,
        },
        "root": {"path": str(root), "readonly": True},
        "mounts": mounts,
        "linux": {
            "namespaces": [{"type": kind} for kind in namespaces],
            "resources": {"memory": {"limit": MEMORY}},
            "cgroupsPath": f"/{name}",
        },
    }


class RuntimeContainer:
    """A process that an OCI runtime runs."""

    def __init__(self, runtime: Path, name: str, bundle: Path) -> None:
        self._command: tuple[str | Path, ...] = (runtime, "--root", bundle / "state")
        self._name = name
        self._bundle = bundle
        self._log = bundle / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        order: list[str | Path] = [*self._command, "run", "--bundle", self._bundle, self._name]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(order, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait(self, seconds: float | None = None) -> int:
        """Return the exit code when it has ended by itself. Raises subprocess.TimeoutExpired."""
        assert self._process is not None
        return self._process.wait(seconds)

    def stop(self, seconds: float) -> int:
        self._signal("TERM")
        try:
            return self.wait(seconds)
        except subprocess.TimeoutExpired:
            return self._killed()

    def log(self) -> str:
        return log_tail(self._log, 1000) if self._log.exists() else ""

    def remove(self) -> None:
        try:
            if self._process is not None and self._process.poll() is None:
                self._killed()
        finally:
            shutil.rmtree(self._bundle, ignore_errors=True)

    def _killed(self) -> int:
        assert self._process is not None
        # Right after the order to start, the runtime knows of no container yet.
        for _ in range(KILLS):
            self._signal("KILL")
            with suppress(subprocess.TimeoutExpired):
                return self.wait(KILL_SECONDS)
        self._process.kill()
        return self.wait()

    def _signal(self, name: str) -> None:
        # Refused where the container has ended, or is yet to be made: how its process ends tells more.
        subprocess.run([*self._command, "kill", self._name, name], check=False, capture_output=True)
