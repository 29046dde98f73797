"""Runs the container image with the settings of the chart on real API servers, and prints how fast it starts.

``python -m devenv.image IMAGE``. An engine is ``docker`` or ``podman``. Without one, ``buildah`` mounts the files of
the image that it has built, and ``runc`` or ``crun`` runs them. A container gets the host's network, a read-only root
file system, a writable ``/tmp``, no capability, and the chart's memory limit: once as user 0 with a kubeconfig that
only root can read, as Rancher writes it on a node, and once as another user, as with a Secret. Requires root, because
user 0 without capabilities cannot read the files of other users.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from devenv.apiserver import ControlPlane, start_clusters
from devenv.process import DevenvError, ReservedPort, run_directory
from devenv.restclient import Json, wait_until

ENGINES: Final = ("docker", "podman", "buildah")
MEMORY: Final = 256 << 20
"""Bytes; the limit of the chart."""
MOUNTED: Final = "/etc/kubernetes"
"""Directory of the kubeconfigs in a container."""
START_SECONDS: Final = 30.0
STOP_SECONDS: Final = 10
EXECUTABLES: Final = ("harvester-cloud-provider", "harvester-ccm")
UNPRIVILEGED: Final = 65532


class EngineImage:
    """An image of an engine with Docker's command line."""

    def __init__(self, engine: str, image: str) -> None:
        self._engine = engine
        self._image = image

    def command(self, name: str, words: Sequence[str], user: int, files: Sequence[Path]) -> list[str | Path]:
        """Return the command that runs ``words`` in a container in the foreground, with ``files`` in ``MOUNTED``."""
        return [
            *(self._engine, "run", "--rm", f"--name={name}", "--network=host", "--read-only", "--tmpfs=/tmp"),
            *(f"--user={user}:{user}", "--cap-drop=ALL", "--security-opt=no-new-privileges", f"--memory={MEMORY}"),
            *(f"--volume={file}:{MOUNTED}/{file.name}:ro" for file in files),
            *(self._image, *words),
        ]

    def stop(self, name: str) -> list[str | Path]:
        """Return the command that sends SIGTERM to a container."""
        return [self._engine, "stop", f"--time={STOP_SECONDS}", name]


class UnpackedImage:
    """The files of an image, and an OCI runtime."""

    def __init__(self, root: Path, environment: Sequence[str], directory: Path) -> None:
        runtime = shutil.which("runc") or shutil.which("crun")
        if runtime is None:
            raise DevenvError("neither runc nor crun is on PATH: without an engine one of them runs the image")
        self._runtime: list[str | Path] = [runtime, "--root", directory / "state"]
        self._root = root
        self._environment = environment
        self._directory = directory

    def command(self, name: str, words: Sequence[str], user: int, files: Sequence[Path]) -> list[str | Path]:
        """Return the command as ``EngineImage.command``."""
        bundle = self._directory / name
        bundle.mkdir()
        (bundle / "config.json").write_text(json.dumps(self._configuration(name, words, user, files)))
        return [*self._runtime, "run", "--bundle", bundle, name]

    def stop(self, name: str) -> list[str | Path]:
        """Return the command that sends SIGTERM to a container."""
        return [*self._runtime, "kill", name, "TERM"]

    def _configuration(self, name: str, words: Sequence[str], user: int, files: Sequence[Path]) -> Json:
        """Return the configuration of a container in the format of the OCI runtime specification."""
        options = ["nosuid", "nodev", "noexec"]
        mounts = [
            {"destination": "/proc", "type": "proc", "source": "proc", "options": options},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": [*options, "mode=1777"]},  # noqa: S108
            *(
                {"destination": f"{MOUNTED}/{file.name}", "source": str(file), "options": ["bind", "ro"]}
                for file in files
            ),
        ]
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
            "mounts": mounts,
            "linux": {
                "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc")],
                "resources": {"memory": {"limit": MEMORY}},
                "cgroupsPath": f"/{name}",
            },
        }


Image = EngineImage | UnpackedImage


def call(program: str | Path, *arguments: str | Path) -> str:
    """Run a program and return its output. Raises DevenvError with its message if it fails."""
    done = subprocess.run([program, *arguments], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise DevenvError(f"{Path(program).name} {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


@contextmanager
def open_image(engine: str, name: str, directory: Path) -> Iterator[Image]:
    """Yield the image of this name. Raises DevenvError if a program is missing."""
    if shutil.which(engine) is None:
        raise DevenvError(f"{engine} is not on PATH: the image test needs one of {', '.join(ENGINES)}")
    if engine != "buildah":
        yield EngineImage(engine, name)
        return
    container = call(engine, "from", "--pull-never", name)
    try:
        described = json.loads(call(engine, "inspect", container))["OCIv1"]["config"]
        yield UnpackedImage(Path(call(engine, "mount", container)), described.get("Env", ()), directory)
    finally:
        call(engine, "rm", container)


def run_once(image: Image, guest: ControlPlane, files: Sequence[Path], user: int) -> str:
    """Start a container, wait until it leads, stop it, and return how long each took.

    Raises DevenvError with its log if a step fails.
    """
    port, name = ReservedPort(), _new_name()
    port.release()
    words = [
        *(EXECUTABLES[0], f"--cloud-config={MOUNTED}/cloud-config", f"--kubeconfig={MOUNTED}/guest"),
        *("--cluster-name=demo", f"--secure-port={port.number}", "--bind-address=127.0.0.1"),
    ]
    log = guest.directory / f"{name}.log"
    command, began = image.command(name, words, user, files), time.monotonic()
    with log.open("wb") as stream, subprocess.Popen(command, stdout=stream, stderr=stream) as process:
        try:
            wait_until(lambda: "became leader" in log.read_text(), seconds=START_SECONDS, what=f"leader as user {user}")
            leading, began = time.monotonic() - began, time.monotonic()
            call(*image.stop(name))
            code = process.wait(STOP_SECONDS)
            stopping = time.monotonic() - began
        except (DevenvError, subprocess.TimeoutExpired) as error:
            subprocess.run(image.stop(name), check=False, capture_output=True)
            process.kill()
            raise DevenvError(f"{error}\n{log.read_text()}") from error
    if code != 0 or "lease released" not in log.read_text():
        raise DevenvError(f"it exited with code {code}:\n{log.read_text()}")
    return f"leads after {leading:.2f} s, exits {stopping:.2f} s after SIGTERM"


def _new_name() -> str:
    return f"harvester-ccm-{uuid.uuid4().hex[:12]}"


def _credentials(guest: ControlPlane, harvester: ControlPlane, user: int) -> list[Path]:
    """Return the kubeconfigs for a container: readable for all unless the user is root."""
    directory = guest.directory / f"user-{user}"
    directory.mkdir()
    files = []
    for name, plane, namespace in (("cloud-config", harvester, "default"), ("guest", guest, "kube-system")):
        file = plane.kubeconfig_for_service_account(
            namespace, EXECUTABLES[0], context_namespace=namespace, path=directory / name
        )
        file.chmod(0o600 if user == 0 else 0o644)
        files.append(file)
    return files


def main() -> int:
    """Entry point of ``python -m devenv.image``. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m devenv.image", description="Run the image on real API servers.")
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0])
    parser.add_argument("image", metavar="IMAGE")
    options = parser.parse_args()
    try:
        with run_directory("image") as directory, open_image(options.engine, options.image, directory) as image:
            for executable in EXECUTABLES:
                version = call(*image.command(_new_name(), [executable, "--version"], UNPRIVILEGED, ()))
                print(f"{executable} --version: {version}", flush=True)
            guest, harvester = start_clusters(directory, guest_additions=True)
            with guest, harvester:
                for user in (0, UNPRIVILEGED):
                    result = run_once(image, guest, _credentials(guest, harvester, user), user)
                    print(f"user {user}: {result}", flush=True)
    except DevenvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
